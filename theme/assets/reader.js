// What a reader chooses and where they are: colours, language, section, menu.

"use strict"; {

const all = (selector, root = document) => [...root.querySelectorAll(selector)]

// --- colours: as the system has them, light, or dark

const button = document.querySelector(".colours")
const choices = ["auto", "light", "dark"]

function paint(choice) {
  document.documentElement.style.colorScheme = choice === "auto" ? "" : choice
  button.className = button.className.replace(/ is-\w+|$/, ` is-${choice}`)
  button.title = button.dataset[choice]
  button.ariaLabel = button.title
}

const chosen = () => document.documentElement.style.colorScheme || "auto"
paint(chosen())
button.addEventListener("click", () => {
  const choice = choices[(choices.indexOf(chosen()) + 1) % choices.length]
  paint(choice)
  try { localStorage.setItem("attention.colours", choice === "auto" ? "" : choice) } catch { /* chosen for this page alone */ }
})

// --- finding one's place: the title in the header, the section in the table of contents, the menu of a phone

const topic = document.querySelector(".md-header__title")
const title = document.querySelector("h1")
const sections = all("article :is(h2, h3)[id]")
const contents = document.querySelector(".md-nav--secondary")
const entries = all(".md-nav--secondary a")

function follow() {
  topic.classList.toggle("md-header__title--active", title.getBoundingClientRect().bottom < 48)
  const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2
  const here = atEnd ? sections.at(-1) : sections.findLast(heading => heading.getBoundingClientRect().top < 100)
  for (const entry of entries) {
    const isHere = entry.hash === `#${here?.id}`
    if (isHere && !entry.ariaCurrent) contents.scrollTop = entry.offsetTop - contents.clientHeight / 2
    entry.ariaCurrent = isHere ? "location" : null
  }
}

document.addEventListener("scroll", () => requestAnimationFrame(follow), { passive: true })
follow()

const drawer = document.getElementById("__drawer")
const opener = document.querySelector("[data-drawer]")

function slide(open) {
  drawer.checked = open
  opener.ariaExpanded = open
  document.querySelector(".md-content").inert = open // it is behind the menu
}

slide(false) // some browsers keep what was open before a reload
opener.addEventListener("click", () => slide(!drawer.checked))
drawer.addEventListener("change", () => slide(drawer.checked))
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || !drawer.checked) return
  slide(false)
  opener.focus() // or the focus would be lost with the menu
})
document.querySelector(".md-sidebar--primary").addEventListener("click", event => { if (event.target.closest("a")) slide(false) })

// --- keys: n leads to the next page, p to the previous one

document.addEventListener("keydown", event => {
  const rel = { n: "next", p: "prev" }[event.key]
  // A dialog that was closed a moment ago still has the focus.
  const typing = event.target.closest("dialog[open], :is(input, textarea, select):not(dialog *)")
  if (!rel || typing || event.repeat || event.altKey || event.ctrlKey || event.metaKey) return
  document.querySelector(`.pages [rel=${rel}]`)?.click()
})

// --- paper: folded answers are printed too

addEventListener("beforeprint", () => all("article details").forEach(block => { block.open = true }))

// --- languages: the headings of a page have the same ids in all of them

document.addEventListener("click", event => {
  const link = event.target.closest("a[hreflang]")
  if (link) link.hash = location.hash
})

// --- a downloaded copy: no server looks for the page of a folder

if (location.protocol === "file:") {
  for (const link of all("a[href]")) {
    const address = new URL(link.getAttribute("href"), location) // a link in a drawing does not know its parts
    if (address.protocol === "file:" && address.pathname.endsWith("/")) {
      address.pathname += "index.html"
      link.setAttribute("href", address)
    }
  }
}

}
