// What finds sections and shows them by page. It comes with Pagefind, when the search is opened for the first time.

import { options, search } from "../pagefind/pagefind.js"

const language = document.documentElement.lang
const dialog = document.querySelector("dialog.search")
const query = dialog.querySelector(".search__query")
const status = dialog.querySelector(".search__status")
const results = dialog.querySelector(".search__results")

// In the index each Han character and each part of `scores.masked_fill` and "l’attenzione" is a word by itself, and the
// spaces added for this are marked (tools/site/search.py). An Italian article says nothing of what is looked for.
const ARTICLE = /(?<!\p{L})(?:[cdlmnstv]|un|(?:a|da|de|ne|que|su)ll)[’'](?=\p{L})/giu
const parted = words => words.replace(ARTICLE, "").replace(/\p{sc=Han}|[’'.](?=[\p{L}_])/gu, " $& ")
const joined = text => text.replace(/\u2060 ?/g, "")
const unescaped = text => new DOMParser().parseFromString(text, "text/html").body.textContent
const plain = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase()
const stems = words => (plain(parted(words)).match(/[\p{L}\p{N}_]+/gu) ?? []).map(word => word.slice(0, 3)).join(" ")

const segmenter = new Intl.Segmenter(language, { granularity: "word" })
const segments = words => [...segmenter.segment(words.replace(ARTICLE, ""))].map(({ segment }) => segment)
const isWord = segment => /^[\p{L}_]/u.test(segment)
const isHan = word => /\p{sc=Han}/u.test(word)

const found = new Map()

async function hits(words) {
  if (!found.has(words)) found.set(words, (await search(words)).results)
  return found.get(words)
}

const fetched = name => fetch(new URL(`../pagefind/${name}`, import.meta.url))
const literally = words => hits(`"${parted(words)}"`)
const largest = Math.max

// Whether one letter more, less or other, or two that change places, make one word of the other.
function isNear(one, other) {
  let at = 0
  while (at < one.length && one[at] === other[at]) at++
  const [a, b] = [one.slice(at), other.slice(at)]
  return a.slice(1) === b.slice(1) || a.slice(1) === b || a === b.slice(1)
    || (a[0] === b[1] && a[1] === b[0] && a.slice(2) === b.slice(2))
}

// What was meant by a word: itself, if it is said or begins a word that is said, or the most frequent word near to it.
async function meant(word) {
  if (isHan(word) || (await literally(word)).length) return word
  const typed = plain(word), all = (await (await fetched(`words.${language}.txt`)).text()).split(" ")
  if (all.some(one => plain(one).startsWith(typed))) return word
  return /^[a-z]{4,}$/.test(typed) && all.find(one => isNear(plain(one), typed))
}

// The sections that say a word, and how much each says of it: less, if it is only the beginning of another.
async function counted(word) {
  const exact = await literally(word), ids = new Set(exact.map(({ id }) => id))
  const all = (await hits(parted(word))).filter(({ id }) => ids.has(id) || !isHan(word))
  const weight = isHan(word) ? .1 : 1
  return all.map(result => [result, (ids.has(result.id) ? 1 : .5) * (1 + weight * Math.log1p(result.score / 5))])
}

const sum = numbers => [...numbers].reduce((all, one) => all + one, 0)

let total // of the sections

// The sections that say most of the words: each word counts more, the fewer sections say it. Two words that stand
// together as they were asked count once more, and all of them most. Pagefind itself finds only what has all words.
async function best(words, terms) {
  const places = new Map()
  const place = result => {
    if (!places.has(result.id)) places.set(result.id, { result, said: new Map(), together: 0 })
    return places.get(result.id)
  }
  const rarity = all => Math.log(1 + total / (all.length + .5))
  const asked = segments(words).filter(segment => /^[\p{L}\p{N}_]/u.test(segment))
  const pairs = asked.slice(1).map((second, at) => asked[at] + (isHan(asked[at] + second) ? "" : " ") + second)
  await Promise.all([
    ...terms.map(async term => {
      const all = await counted(term), weight = rarity(all)
      all.forEach(([result, worth]) => place(result).said.set(term, weight * worth))
    }),
    ...pairs.map(async pair => {
      const all = await literally(pair), weight = rarity(all)
      all.forEach(result => place(result).together += weight)
    }),
    terms.length > 1 && literally(words).then(all => all.forEach(result => place(result).together += 10)),
  ])
  const points = ({ said, together }) => sum(said.values()) + together
  const most = [...places.values()].sort((a, b) => points(b) - points(a)).slice(0, 40)
  return Promise.all(most.map(async one => ({ said: one.said, points: points(one), ...await one.result.data() })))
}

// Whether a page has the name that is asked for; what stands behind a colon, a comma or in brackets is no part of it.
const named = (title, words) => stems(title.split(/[:：,，(（]/)[0]) === stems(words)

// The sections by their pages. What the page says of a word counts for each of its sections, too.
function byPage(sections, words) {
  const pages = new Map()
  for (const { url, meta, raw_content, said, points } of sections) {
    const address = url.replace(/([^/]*)\.html$/, "#$1"), [page] = address.split("#")
    if (!pages.has(page)) {
      const title = joined(meta.page)
      const isNamed = named(title, words)
      pages.set(page, { url: page, title, chapter: meta.chapter, isNamed, sections: [], most: new Map() })
    }
    const { sections, most } = pages.get(page)
    sections.push({ url: address, title: joined(meta.title), text: raw_content, points, worth: meta.worth })
    said.forEach((worth, term) => most.set(term, largest(worth, most.get(term) ?? 0)))
  }
  for (const page of pages.values()) {
    for (const section of page.sections) {
      section.score = section.worth * (section.points + .4 * sum(page.most.values()))
    }
    page.sections.sort((a, b) => b.score - a.score)
    page.score = sum(page.sections.map(({ score }, at) => score * .15 ** at))
  }
  return [...pages.values()].sort((a, b) => b.isNamed - a.isNamed || b.score - a.score)
}

// What answers: pages, each with its sections, the best first; the words that were meant; and what to mark.
export async function answer(asked) {
  if (!total) {
    await options({ ranking: { pageLength: 0 } }) // a long section answers as well as a short one
    total = (await (await fetched("pagefind-entry.json")).json()).languages[language].page_count
  }
  const terms = new Map()
  for (const segment of new Set(segments(asked).filter(isWord))) terms.set(segment, await meant(segment))
  let words = asked
  terms.forEach((right, typed) => { if (right) words = words.replaceAll(typed, right) })
  const known = [...terms.values()].filter(Boolean)
  const pages = known.length || !terms.size ? byPage(await best(words, known.length ? known : [words]), words) : []
  return { pages, words, sought: await pattern(words, known) }
}

// What is marked of a text: runs of Han characters as they were asked, and words, with the endings that they may have
// there; but none that stands everywhere.
async function pattern(asked, terms) {
  const often = await Promise.all(terms.map(async term => (await literally(term)).length > total / 3))
  const rare = terms.filter((_, at) => !often[at])
  const words = (rare.length ? rare : terms).filter(word => !/^\p{sc=Han}$/u.test(word))
  const letter = "[\\p{L}\\p{N}_]"
  const form = word => word.replace(/[^\p{L}\p{N}_]/gu, ".") + (word.length > 3 ? `${letter}*` : `(?!${letter})`)
  const forms = words.map(word => isHan(word) ? word : `(?<!${letter})${form(word)}`)
  return new RegExp([...asked.match(/\p{sc=Han}+/gu) ?? [], ...forms].join("|") || "$^", "giu")
}

// Of a text the part where most of the words stand together, marked.
function passage({ text, title }, sought) {
  const [shown] = unescaped(joined(text)).split("\u2063")
  const said = shown.startsWith(title) ? shown.slice(title.length).replace(/^[.。\s]+/, "") : shown
  const places = [...said.matchAll(sought)]
  const near = ({ index }) => places.filter(place => place.index >= index && place.index < index + 150)
  const together = places.map(place => new Set(near(place).map(([word]) => plain(word))).size)
  const at = places[together.indexOf(largest(...together))]?.index ?? 0
  const from = largest(0, at - 40), to = from + (isHan(said) ? 100 : 200)
  const whole = said.slice(from, to)
    .replace(from ? /^[^\s\p{sc=Han}]*[\s\p{P}]*/u : "", "")
    .replace(to < said.length ? /[^\s\p{sc=Han}]*$/u : "", "")
  const part = (from ? "…" : "") + whole + (to < said.length ? "…" : "")
  const parts = part.split(new RegExp(`(${sought.source})`, sought.flags))
  return parts.map((part, at) => at % 2 ? Object.assign(document.createElement("mark"), { textContent: part }) : part)
}

const element = (name, properties, ...nodes) => {
  const made = Object.assign(document.createElement(name), properties)
  made.append(...nodes)
  return made
}

function show({ url, title, chapter, isNamed, sections }, sought, isFirst) {
  const top = sections.find(section => section.url === url)
  const others = sections.filter(section => section !== top).slice(0, 3)
  const opened = isNamed || sections[0] === top ? url : others[0].url
  const link = (className, { url, title }, ...nodes) => {
    const a = element("a", { className, href: url }, ...nodes, element("strong", {}, title))
    if (isFirst && url === opened) a.classList.add("search__best")
    const marks = JSON.stringify([a.href, sought.source])
    a.addEventListener("click", () => sessionStorage.setItem("attention.sought", marks))
    return a
  }
  const page = link("search__page", { url, title }, element("small", {}, chapter ?? ""))
  if (top) page.append(...passage(top, sought))
  return element("li", {}, page, ...others.map(section => {
    const a = link("search__section", section)
    a.append(...passage(section, sought))
    return a
  }))
}

function count({ pages, words }, asked) {
  if (!pages.length) return dialog.dataset.none.replace("{query}", () => asked)
  const found = pages.length === 1 ? dialog.dataset.one : dialog.dataset.many.replace("{count}", pages.length)
  return words === asked ? found : dialog.dataset.instead.replace("{found}", found).replace("{query}", () => words)
}

const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))

export async function find() {
  const words = query.value.trim()
  const isOld = () => words !== query.value.trim()
  if (!words) {
    results.replaceChildren()
    results.dataset.words = ""
    status.textContent = dialog.dataset.hint
    return
  }
  await pause(150)
  if (isOld()) return
  const found = await answer(words)
  if (isOld()) return
  results.replaceChildren(...found.pages.map((page, at) => show(page, found.sought, !at)))
  results.dataset.words = words
  status.textContent = count(found, words)
}
