// Copy whole programs, search the pages, keep the place when the language changes.

const all = (selector, root = document) => [...root.querySelectorAll(selector)]

// --- copying: a cell's program is every shared cell above it, then the cell itself. Below a cell that is not shared
// stands its output, or that it has not run yet

const isShared = cell => !cell.nextElementSibling?.matches(".output, .ran-on")
const codeOf = cell => cell.querySelector("code").textContent

function program(cell) {
  const cells = all(".language-python")
  const shared = cells.slice(0, cells.indexOf(cell)).filter(isShared)
  return [...shared, cell].map(codeOf).join("\n")
}

// Material's copy button gives way to this attribute where it is there.
document.addEventListener("click", event => {
  const cell = event.target.closest("[data-clipboard-target]")?.closest(".language-python")
  if (cell) event.target.closest("[data-clipboard-target]").dataset.clipboardText = program(cell)
}, { capture: true })

// --- languages: the headings of a page have the same ids in all of them

document.addEventListener("click", event => {
  const link = event.target.closest("a[hreflang]")
  if (link) link.hash = location.hash
})

// --- search: Pagefind is fetched when the dialog opens for the first time

const dialog = document.querySelector("dialog.search")
const query = dialog.querySelector(".search__query")
const status = dialog.querySelector(".search__status")
const results = dialog.querySelector(".search__results")
const hint = status.textContent
let pagefind

function load() {
  pagefind ??= import(new URL("../pagefind/pagefind.js", import.meta.url))
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

const marks = ({ excerpt }) => new Set(excerpt.match(/<mark>.*?<\/mark>/g)).size

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
  const pages = await Promise.all(found.results.map(result => result.data()))
  if (words !== query.value.trim()) return
  results.replaceChildren(...pages.map(show))
  status.textContent = count(found.results.length, words)
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
  event.stopPropagation() // Material has keys of its own
})
dialog.addEventListener("click", event => {
  if (event.target === dialog || event.target.closest("[data-search-close], a")) dialog.close()
})
all("[data-search-open]").forEach(button => button.addEventListener("click", open))
document.addEventListener("keydown", event => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]") && !dialog.contains(event.target)
  const wanted = (event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))
  if (wanted && !dialog.open) {
    event.preventDefault()
    open()
  }
})

// --- screen readers: Material makes a landmark for each copy button, as it comes into view

const demote = () => all("nav.md-code__nav").forEach(box => box.setAttribute("role", "presentation"))

new MutationObserver(demote).observe(document.querySelector("article"), { childList: true, subtree: true })
