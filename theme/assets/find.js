// What finds pages and shows them. It comes with Pagefind, when the search is opened for the first time.

import { debouncedSearch } from "../pagefind/pagefind.js"

const dialog = document.querySelector("dialog.search")
const query = dialog.querySelector(".search__query")
const status = dialog.querySelector(".search__status")
const results = dialog.querySelector(".search__results")

// In the index each Han character and each part of `scores.masked_fill` and "l’attenzione" is a word by itself, and the
// spaces added for this are marked (tools/site/search.py). An Italian article says nothing of what is looked for.
const ARTICLE = /(?<!\p{L})(?:[cdlmnstv]|un|(?:a|da|de|ne|que|su)ll)[’'](?=\p{L})/giu
const parted = words => words.replace(ARTICLE, "").replace(/\p{sc=Han}|[’'.](?=[\p{L}_])/gu, " $& ")
const joined = text => text.replace(/\u2060(<\/mark>)? ?/g, "$1")

const plain = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase()
const beginnings = words => plain(parted(words)).match(/[\p{L}\p{N}_]+/gu)?.map(word => word.slice(0, 3)) ?? []

// What Pagefind marks ends at a space: here a mark is one of the words asked for, or a run of their Han characters.
function mark(text, words) {
  const wanted = beginnings(words)
  const known = word => wanted.some(beginning => plain(word).startsWith(beginning))
  const single = /(?<!\p{sc=Han})\p{sc=Han}(?!\p{sc=Han})/u.test(words)
  const again = word => known(word) ? `<mark>${word}</mark>` : word
  return text
    .replace(/<mark>(.*?)<\/mark>/g, (_, part) => part.replace(/&#?\w+;|[\p{L}\p{N}_]+/gu, again))
    .replaceAll("</mark><mark>", "")
    .replace(/<mark>(\p{sc=Han})<\/mark>/gu, single ? "$&" : "$1")
}

// Pagefind puts a full stop behind a heading; what it says of a part begins with the heading, or with the end of it.
function readable(excerpt, title, words) {
  const text = mark(joined(excerpt), words).replace(/(?<=\p{sc=Han}(<\/mark>)?)\. ?/gu, "。")
  const [first] = text.match(/^.*?([.?!] |[。？！]|\.?$)/)
  const heading = first.replace(/<.*?>|[.。]? ?$/g, "")
  return (title.endsWith(heading) ? text.slice(first.length) : text).replace(/^[\s,.;:!?)，。；：！？、）”’]+/, "")
}

const link = (className, { url, title, excerpt }) => {
  const innerHTML = readable(excerpt, joined(title), query.value)
  const a = Object.assign(document.createElement("a"), { className, href: url, innerHTML })
  a.prepend(Object.assign(document.createElement("strong"), { textContent: joined(title) }))
  return a
}

const marked = ({ excerpt }) => [...excerpt.matchAll(/<mark>(.*?)<\/mark>/g)].map(match => plain(match[1]))
const marks = part => new Set(marked(part)).size

// Of a word that it does not know Pagefind takes ever shorter beginnings: here three letters have to agree.
function agrees(page, words) {
  const found = [page, ...page.sub_results].flatMap(marked)
  return !found.length || beginnings(words).some(beginning => found.some(word => word.includes(beginning)))
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
  if (!found) return dialog.dataset.none.replace("{query}", () => words)
  return found === 1 ? dialog.dataset.one : dialog.dataset.many.replace("{count}", found)
}

export async function find() {
  const words = query.value.trim()
  if (!words) {
    results.replaceChildren()
    status.textContent = dialog.dataset.hint
    return
  }
  const found = await debouncedSearch(parted(words), {}, 150)
  if (!found) return // a later search is on its way
  const data = await Promise.all(found.results.map(result => result.data()))
  const pages = data.filter(page => agrees(page, words))
  if (words !== query.value.trim()) return
  results.replaceChildren(...pages.map(show))
  status.textContent = count(pages.length, words)
}
