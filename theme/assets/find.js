// What finds sections and shows them by page. It comes with Pagefind, when the search is opened for the first time.

import { init, options, preload, search } from "../pagefind/pagefind.js"

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

const segmenter = new Intl.Segmenter(language, { granularity: "word" })
const segments = words => [...segmenter.segment(words.replace(ARTICLE, ""))].map(({ segment }) => segment)
const isWord = segment => /^[\p{L}_]/u.test(segment)
const isHan = word => /\p{sc=Han}/u.test(word)

// A long section answers as well as a short one. A worker would be one more file to wait for. By the tag search.js has
// asked for the description of the index already.
options({ noWorker: true, ranking: { pageLength: 0 }, metaCacheTag: performance.timeOrigin.toString() })
init()

const found = new Map()

async function hits(words) {
  if (!found.has(words)) found.set(words, (await search(words)).results)
  return found.get(words)
}

const fetched = name => fetch(new URL(`../pagefind/${name}`, import.meta.url))
const literally = words => hits(`"${parted(words)}"`)
const largest = Math.max
const sum = numbers => [...numbers].reduce((all, one) => all + one, 0)

// The words in which anything is asked say nothing of what is asked.
const ASKING = new RegExp(`(?<![\\p{L}_])(?:${[
  "what|which|how|why|is|are|does?|the|an?|of|in|to|for|with|i|my|s|means?|meaning|explain(?:ed)?|works?|pytorch",
  "che|cos|cosa|quale?|come|perche|e|sono|si|il|lo|la|i|gli|le|un|una|di|del|della|con|per|mi[ao]",
  "significa(?:to)?|vuol|dire|funziona",
].join("|")})(?![\\p{L}_])|[是为]?什么是?|怎[么样]|如何|意思|含义|原理|[是的吗了]`, "gu")
const WORDS = /\p{sc=Han}+|(?<!\p{N})\p{N}?(?!\p{sc=Han})\p{L}(?:(?!\p{sc=Han})[\p{L}\p{N}])*/gu
const pairsOf = run => run[1] ? [...run].slice(1).map((second, at) => run[at] + second) : [run]
const beginning = word => word.slice(0, 4).replace(/(?<=..)[aeios]$/, "")

// What names are compared by: how their words begin, "quer" of query and queries, and Han characters two by two.
function parts(name) {
  const apart = name.replace(ARTICLE, "").replace(/(?<=\p{Ll})(?=\p{Lu}\p{Ll})/gu, " ")
  const words = plain(apart).replace(ASKING, " ").match(WORDS) ?? []
  return [...new Set(words.flatMap(word => isHan(word) ? pairsOf(word) : beginning(word)))]
}

// How far two names say the same, from 0 to 1; a part counts more, the fewer names have it.
function likeness(one, other, weight) {
  const all = parts => sum(parts.map(weight))
  return 2 * all(one.filter(part => other.includes(part))) / (all(one) + all(other) || 1)
}

let list // of all sections, by the names of their texts

function known() {
  list ??= read().catch(error => {
    list = undefined // so that it is fetched the next time
    throw error
  })
  return list
}

async function read() {
  const pages = await (await fetched(`sections.${language}.json`)).json()
  const sections = new Map(), often = new Map()
  for (const { url, chapter, sections: rows } of pages) {
    const page = { url: new URL(`../${url}`, import.meta.url).pathname, title: rows[0][2], chapter }
    for (const [key, id, title, worth, ...others] of rows) {
      const names = [title, ...others].map(parts)
      names.flat().forEach(part => often.set(part, (often.get(part) ?? 0) + 1))
      sections.set(key, { page, url: page.url + (id && `#${id}`), title, worth, names })
    }
  }
  return { sections, weight: part => Math.log(1 + sections.size / ((often.get(part) ?? 0) + 10)) }
}

known().catch(() => {}) // what fails here fails in `answer`, too

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

// The sections that say most of the words: each word counts more, the fewer sections say it. Two words that stand
// together as they were asked count once more, and all of them most. Pagefind itself finds only what has all words.
async function best(words, terms, { sections, weight }) {
  const places = new Map(), name = parts(words)
  const place = result => {
    const { id } = result
    if (!places.has(id)) places.set(id, { ...sections.get(id), result, said: new Map(), together: 0 })
    return places.get(id)
  }
  const rarity = all => Math.log(1 + sections.size / (all.length + .5))
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
  for (const one of places.values()) {
    const likest = largest(...one.names.map(other => likeness(name, other, weight)))
    one.named = 1 + 5 * likest ** 5
    one.points = sum(one.said.values()) + one.together
  }
  return [...places.values()].sort((a, b) => b.named * b.points - a.named * a.points).slice(0, 40)
}

// Whether a page has the name that is asked for; what stands behind a colon, a comma or in brackets is no part of it.
const named = (title, words, weight) => likeness(parts(title.split(/[:：,，(（]/)[0]), parts(words), weight) > .999

// The sections by their pages. What the page says of a word counts for each of its sections, too.
function byPage(sections, words, weight) {
  const pages = new Map()
  for (const section of sections) {
    const { page, said } = section
    if (!pages.has(page)) {
      pages.set(page, { ...page, isNamed: named(page.title, words, weight), sections: [], most: new Map() })
    }
    const { sections, most } = pages.get(page)
    sections.push(section)
    said.forEach((worth, term) => most.set(term, largest(worth, most.get(term) ?? 0)))
  }
  for (const page of pages.values()) {
    for (const section of page.sections) {
      section.score = section.worth * section.named * (section.points + .4 * sum(page.most.values()))
    }
    page.sections.sort((a, b) => b.score - a.score)
    page.score = sum(page.sections.map(({ score }, at) => score * .15 ** at))
  }
  return [...pages.values()].sort((a, b) => b.isNamed - a.isNamed || b.score - a.score)
}

// What answers: pages, each with its sections, the best first; the words that were meant; and what to mark.
export async function answer(asked) {
  const all = await known()
  const typed = [...new Set(segments(asked).filter(isWord))]
  const right = await Promise.all(typed.map(meant))
  const words = typed.reduce((words, word, at) => right[at] ? words.replaceAll(word, right[at]) : words, asked)
  const terms = right.filter(Boolean)
  const places = terms.length || !typed.length ? await best(words, terms.length ? terms : [words], all) : []
  return { pages: byPage(places, words, all.weight), words, sought: await pattern(words, terms, all.sections.size) }
}

// What is marked of a text: runs of Han characters as they were asked, and words, with the endings that they may have
// there; but none that stands everywhere.
async function pattern(asked, terms, total) {
  const often = await Promise.all(terms.map(async term => (await literally(term)).length > total / 3))
  const rare = terms.filter((_, at) => !often[at])
  const words = (rare.length ? rare : terms).filter(word => !/^\p{sc=Han}$/u.test(word))
  const letter = "[\\p{L}\\p{N}_]"
  const form = word => word.replace(/[^\p{L}\p{N}_]/gu, ".") + (word.length > 3 ? `${letter}*` : `(?!${letter})`)
  const forms = words.map(word => isHan(word) ? word : `(?<!${letter})${form(word)}`)
  return new RegExp([...asked.match(/\p{sc=Han}+/gu) ?? [], ...forms].join("|") || "$^", "giu")
}

// Of the text of a section the part where most of the words stand together, marked.
async function passage({ result, title }, sought) {
  const { raw_content: text } = await result.data()
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

async function show({ url, title, chapter, isNamed, sections }, sought, isFirst) {
  const top = sections.find(section => section.url === url)
  const others = sections.filter(section => section !== top).slice(0, 3)
  const opened = isNamed || sections[0] === top ? url : others[0].url
  const link = async (className, { url, title }, section, ...nodes) => {
    const said = section ? await passage(section, sought) : []
    const a = element("a", { className, href: url }, ...nodes, element("strong", {}, title), ...said)
    if (isFirst && url === opened) a.classList.add("search__best")
    const marks = JSON.stringify([a.href, sought.source])
    a.addEventListener("click", () => sessionStorage.setItem("attention.sought", marks))
    return a
  }
  return element("li", {}, ...await Promise.all([
    link("search__page", { url, title }, top, element("small", {}, chapter)),
    ...others.map(section => link("search__section", section, section)),
  ]))
}

function count({ pages, words }, asked) {
  if (!pages.length) return dialog.dataset.none.replace("{query}", () => asked)
  const found = pages.length === 1 ? dialog.dataset.one : dialog.dataset.many.replace("{count}", pages.length)
  return words === asked ? found : dialog.dataset.instead.replace("{found}", found).replace("{query}", () => words)
}

const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))

let latest = 0 // of all searches

// Shows what answers the words in the field. The first pages are shown as soon as their texts are there, and `shown` is
// called; the others follow one after the other. What an input method has not yet made words of, such as yin'guo, is
// looked for only when it stays: some keyboards make all words so.
export async function find(shown, isComposing) {
  const words = query.value.trim(), number = latest += 1
  const isOld = () => number !== latest
  if (!words) {
    results.replaceChildren()
    results.dataset.words = ""
    status.textContent = dialog.dataset.hint
    return
  }
  if (!isComposing) preload(parted(words)).catch(() => {}) // what fails here fails below, too
  await pause(isComposing ? 800 : 150)
  if (isOld()) return
  const found = await answer(words)
  for (let at = 0; !at || at < found.pages.length; at += 2) {
    const pages = found.pages.slice(at, at + 2)
    const items = await Promise.all(pages.map(page => show(page, found.sought, page === found.pages[0])))
    if (isOld()) return
    if (at) results.append(...items)
    else {
      results.replaceChildren(...items)
      results.dataset.words = words
      status.textContent = count(found, words)
      shown()
    }
  }
}
