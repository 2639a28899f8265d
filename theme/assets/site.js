// Copy whole programs, search the pages, keep the place when the language changes.

const all = (selector, root = document) => [...root.querySelectorAll(selector)]

// --- copying: a cell's program is every shared cell above it (one without an output), then the cell itself

const hasOutput = cell => cell.nextElementSibling?.matches(".output") ?? false
const codeOf = cell => cell.querySelector("code").textContent

function program(cell) {
  const cells = all(".language-python")
  const shared = cells.slice(0, cells.indexOf(cell)).filter(above => !hasOutput(above))
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
  pagefind ??= import(new URL("../pagefind/pagefind.js", import.meta.url)).then(async module => {
    await module.options({ excerptLength: document.documentElement.lang === "zh" ? 60 : 25 })
    await module.init()
    return module
  })
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

// In the index each Han character and each Italian "l’" stands alone (tools/site/search.py): do so to a query, and show
// what was found without these spaces.

const isItalian = document.documentElement.lang === "it"

const spaced = words => words
  .replace(isItalian ? /(?<=\p{L})[’']/gu : /\p{sc=Han}/gu, " $& ")
  .replace(/\s+/g, " ").trim()

const joinedItalian = text => text.replace(/(?<=(?<!\bpo)[’'](?:<\/mark>)?)\s+/gu, "")

const joinedChinese = text => text
  .replace(/(?<=\p{sc=Han}(?:<\/mark>)?)\s+|\s+(?=(?:<mark>)?\p{sc=Han})/gu, "")
  .replaceAll("</mark><mark>", "")
  .replace(/(?<=\p{sc=Han}(?:<\/mark>)?)\./gu, "。")
  .replace(/(\p{sc=Han}(?:<\/mark>)?)((?:<mark>)?[A-Za-z0-9])/gu, "$1 $2")
  .replace(/([A-Za-z0-9](?:<\/mark>)?)((?:<mark>)?\p{sc=Han})/gu, "$1 $2")

const joined = isItalian ? joinedItalian : joinedChinese

const marked = (excerpt, phrase) => phrase
  ? joined(excerpt).replace(/<\/?mark>/g, "").replaceAll(phrase, "<mark>$&</mark>")
  : joined(excerpt)

// What was found, and the phrase that an excerpt must show.
async function search(words) {
  const index = await load()
  const found = await index.debouncedSearch(spaced(words), {}, 150)
  if (!found || !/^\p{sc=Han}{2,}$/u.test(words)) return found
  const sideBySide = await index.search(`"${spaced(words)}"`)
  const ids = new Set(sideBySide.results.map(({ id }) => id))
  return ids.size ? { results: found.results.filter(({ id }) => ids.has(id)), phrase: words } : found
}

const link = (className, { url, title, excerpt }) => {
  const a = Object.assign(document.createElement("a"), { className, href: url, innerHTML: excerpt })
  a.prepend(Object.assign(document.createElement("strong"), { textContent: joined(title) }))
  return a
}

function show(page, phrase) {
  const parts = page.sub_results.map(part => ({ ...part, excerpt: marked(part.excerpt, phrase) }))
  const isTop = ({ url, title }) => url === page.url || title === page.meta.title
  const sections = parts.filter(part => !isTop(part) && (!phrase || part.excerpt.includes("<mark>")))
  const excerpt = parts.find(isTop)?.excerpt ?? ""
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
  const found = await search(words)
  if (!found) return // a later search is on its way
  const pages = await Promise.all(found.results.slice(0, 8).map(result => result.data()))
  if (words !== query.value.trim()) return
  results.replaceChildren(...pages.map(page => show(page, found.phrase)))
  status.textContent = count(found.results.length, words)
}

function move(step) {
  const stops = [query, ...all("a", results)]
  const at = stops.indexOf(document.activeElement)
  stops[(at + step + stops.length) % stops.length].focus()
}

query.addEventListener("input", () => find().catch(fail))
dialog.addEventListener("keydown", event => {
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
  const typing = event.target.closest("input, textarea, select, [contenteditable]")
  const wanted = (event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))
  if (wanted && !dialog.open) {
    event.preventDefault()
    open()
  }
})

// --- what Material leaves to be done for those who use a keyboard or a screen reader

const wide = new ResizeObserver(entries => entries.forEach(({ target }) => {
  if (target.scrollWidth > target.clientWidth) target.tabIndex = 0
  else target.removeAttribute("tabindex")
}))

function tend() {
  all("math[display=block], .md-typeset table").forEach(scroller => wide.observe(scroller))
  // A landmark for each copy button helps nobody.
  all("nav.md-code__nav:not([role])").forEach(box => box.setAttribute("role", "presentation"))
}

new MutationObserver(tend).observe(document.body, { childList: true, subtree: true })
tend()
