// The search: Pagefind is fetched when the dialog opens for the first time.

"use strict"; {

const all = (selector, root = document) => [...root.querySelectorAll(selector)]

const dialog = document.querySelector("dialog.search")
const query = dialog.querySelector(".search__query")
const status = dialog.querySelector(".search__status")
const results = dialog.querySelector(".search__results")
const hint = status.textContent
const pagefindUrl = new URL("../pagefind/pagefind.js", document.currentScript.src)
let pagefind

function load() {
  pagefind ??= import(pagefindUrl)
  return pagefind
}

function open() {
  dialog.showModal()
  query.select()
  load().catch(fail)
}

function fail() {
  pagefind = undefined
  status.textContent = dialog.dataset.failed
}

// In the index each Han character and each part of `scores.masked_fill` and "l’attenzione" is a word by itself, and the
// spaces added for this are marked (tools/site/search.py).
const parted = words => words.replace(/\p{sc=Han}|[’'.](?=[\p{L}_])/gu, " $& ")
const joined = text => text.replace(/\u2060(<\/mark>)? ?/g, "$1")

const link = (className, { url, title, excerpt }) => {
  const a = Object.assign(document.createElement("a"), { className, href: url, innerHTML: joined(excerpt) })
  a.prepend(Object.assign(document.createElement("strong"), { textContent: joined(title) }))
  return a
}

const plain = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase()
const marked = ({ excerpt }) => [...excerpt.matchAll(/<mark>(.*?)<\/mark>/g)].map(match => plain(match[1]))
const marks = part => new Set(marked(part)).size

// Of a word that it does not know Pagefind takes ever shorter beginnings: here three letters have to agree.
function agrees(page, words) {
  const found = [page, ...page.sub_results].flatMap(marked)
  const beginnings = plain(parted(words)).match(/[\p{L}\p{N}_]+/gu)?.map(word => word.slice(0, 3)) ?? []
  return !found.length || beginnings.some(beginning => found.some(word => word.includes(beginning)))
}

// A page, and the three of its sections that say most of the words.
function show(page) {
  const isTop = ({ title }) => title === page.meta.title
  const sections = page.sub_results.filter(part => !isTop(part)).sort((a, b) => marks(b) - marks(a))
  const excerpt = page.sub_results.find(isTop)?.excerpt ?? ""
  const item = document.createElement("li")
  item.append(link("search__page", { url: page.url, title: page.meta.title, excerpt }))
  item.append(...sections.slice(0, 3).map(section => link("search__section", section)))
  return item
}

function count(found, words) {
  if (!found) return dialog.dataset.none.replace("{query}", words)
  return found === 1 ? dialog.dataset.one : dialog.dataset.many.replace("{count}", found)
}

async function find() {
  const words = query.value.trim()
  if (!words) {
    results.replaceChildren()
    status.textContent = hint
    return
  }
  const { debouncedSearch } = await load()
  const found = await debouncedSearch(parted(words), {}, 150)
  if (!found) return // a later search is on its way
  const data = await Promise.all(found.results.map(result => result.data()))
  const pages = data.filter(page => agrees(page, words))
  if (words !== query.value.trim()) return
  results.replaceChildren(...pages.map(show))
  status.textContent = count(pages.length, words)
}

function move(step) {
  const stops = [query, ...all("a", results)]
  const at = stops.indexOf(document.activeElement)
  stops[(at + step + stops.length) % stops.length].focus()
}

query.addEventListener("input", () => find().catch(fail))
dialog.addEventListener("keydown", event => {
  if (!dialog.open) return // closed a moment ago, it still has the focus
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
  if (step) {
    event.preventDefault()
    move(step)
  } else if (event.key === "Enter" && event.target === query && !event.isComposing) {
    results.querySelector("a")?.click()
  }
})
dialog.addEventListener("click", event => {
  if (event.target === dialog || event.target.closest("[data-search-close], a")) dialog.close()
})
const openers = all("[data-search-open]")
if (location.protocol === "file:") { // from which nothing can be fetched
  openers.forEach(button => button.remove())
} else {
  openers.forEach(button => button.addEventListener("click", open))
  document.addEventListener("keydown", event => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]") && !dialog.contains(event.target)
    const wanted = (event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))
    if (wanted && !dialog.open) {
      event.preventDefault()
      open()
    }
  })
}

}
