// What finds pages and shows them. It comes with Pagefind, when the search is opened for the first time.

import { debouncedSearch, search } from "../pagefind/pagefind.js"

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
const said = text => plain(joined(text)).match(/[\p{L}\p{N}_]+/gu) ?? []
const beginnings = words => said(parted(words)).map(word => word.slice(0, 3))

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

// Of a word that it does not know Pagefind takes ever shorter beginnings: here three letters have to agree.
function agrees(page, words) {
  const found = [page, ...page.sub_results].flatMap(marked)
  return !found.length || beginnings(words).some(beginning => found.some(word => word.includes(beginning)))
}

const segmenter = new Intl.Segmenter(document.documentElement.lang, { granularity: "word" })
const segments = words => [...segmenter.segment(words.replace(ARTICLE, ""))].map(({ segment }) => segment)

// Pagefind finds what has all words. A message that is pasted has numbers and names of its own, and who asks has words
// that no page says: so each word is looked for by itself, and Pagefind ranks a page by those that it has; one
// that says just what was asked is first.
async function look(words) {
  const all = await debouncedSearch(parted(words), {}, 150)
  if (!all) return // a later search is on its way
  const wanted = [...new Set(segments(words).filter(word => /^[\p{L}_]/u.test(word)).map(parted))]
  if (wanted.length < 2) return all.results
  const each = await Promise.all(wanted.map(word => search(`"${word}"`)))
  const ids = ({ results }) => new Set(results.map(({ id }) => id))
  const whole = ids(all), verbatim = ids(await search(`"${parted(words)}"`))
  const partly = new Map()
  each.forEach(({ results }, at) => results.filter(({ id }) => !whole.has(id)).forEach(({ id }) => {
    const page = partly.get(id) ?? { id, has: [], rarity: 0 }
    page.has.push(wanted[at])
    page.rarity += 1 / results.length
    partly.set(id, page)
  }))
  const rarest = [...partly.values()].sort((a, b) => b.rarity - a.rarity).slice(0, 20)
  const more = await Promise.all(rarest.map(async ({ id, has }) => {
    const { results } = await search(has.join(" "))
    return results.find(result => result.id === id)
  }))
  const best = Math.max(...[...all.results, ...more].map(({ score }) => score))
  return [...all.results, ...more.filter(({ score }) => score > best / 3)]
    .sort((a, b) => verbatim.has(b.id) - verbatim.has(a.id) || b.score - a.score)
}

// The sections of a page, first the one that says most of the words: each counts by its weight, a heading more than a
// text, and the more the fewer sections have it; two that stand there as they were asked count twice.
function ranked({ raw_content, sub_results }, words) {
  const texts = raw_content.split(/\s+/).map(text => said(text).join(" "))
  const asked = ` ${said(parted(words)).join(" ")} `
  const weights = sub_results.map(({ weighted_locations }) => {
    const most = new Map()
    const add = (term, weight) => most.set(term, Math.max(weight, most.get(term) ?? 0))
    for (const { location, weight } of weighted_locations) {
      const pair = `${texts[location]} ${texts[location + 1]}`
      if (!/^\p{sc=Han}$/u.test(texts[location])) add(texts[location].slice(0, 5), weight)
      if (asked.includes(` ${pair} `)) add(pair, 2 * weight)
    }
    return most
  })
  const sections = term => weights.filter(most => most.has(term)).length
  const scores = weights.map(most => [...most].reduce((sum, [term, weight]) => sum + weight / sections(term), 0))
  return sub_results.map((section, at) => [scores[at], section]).sort(([a], [b]) => b - a).map(([, section]) => section)
}

// Whether a page has the name that is asked for; what stands behind a colon or in brackets is no part of it.
function named({ meta }, words) {
  const [name] = joined(meta.title).split(/[:：(（]/)
  return beginnings(name).join(" ") === beginnings(words).join(" ")
}

// A page, and the three of its sections that answer best.
function show(page, words) {
  const isTop = ({ title }) => title === page.meta.title
  const sections = ranked(page, words).filter(part => !isTop(part))
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
  const found = await look(words)
  if (!found) return
  const data = await Promise.all(found.map(result => result.data()))
  const pages = data.filter(page => agrees(page, words)).sort((a, b) => named(b, words) - named(a, words))
  if (words !== query.value.trim()) return
  results.replaceChildren(...pages.map(page => show(page, words)))
  status.textContent = count(pages.length, words)
}
