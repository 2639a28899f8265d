// The filter of a long list: it leaves the entries in whose names, in any language, stands each word that is typed; or in
// whose question, or the title of its page.

"use strict"; {

const [, field, count] = document.querySelector(".filter").children
const letters = document.querySelector(".letters")
const plain = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().trim()
const said = entry => `${(entry.querySelector("h2") ?? entry).textContent} ${entry.dataset.page ?? ""}`
const entries = [...document.querySelectorAll(".entry")].map(entry => [entry, plain(said(entry))])

function filter() {
  const typed = plain(field.value)
  const words = typed.split(/\s+/)
  for (const [entry, name] of entries) entry.hidden = !words.every(word => name.includes(word))
  letters.hidden = typed !== ""
  const shown = entries.filter(([entry]) => !entry.hidden).length
  count.textContent = typed && count.dataset.count.replace("{shown}", shown).replace("{all}", entries.length)
}

field.addEventListener("input", filter)
field.addEventListener("keydown", event => {
  if (event.key === "Escape") field.value = ""
  filter()
})
addEventListener("hashchange", () => {
  const target = document.querySelector(".entry[hidden] :target")
  if (!target) return
  field.value = ""
  filter()
  target.scrollIntoView()
})
filter() // some browsers keep what was typed before a reload

}
