// The search: a dialog, opened by keyboard, too. What finds sections is fetched when it opens for the first time, and
// what marks the words when it has led to one.

"use strict"; {

const all = (selector, root = document) => [...root.querySelectorAll(selector)]

const dialog = document.querySelector("dialog.search")
const query = dialog.querySelector(".search__query")
const status = dialog.querySelector(".search__status")
const results = dialog.querySelector(".search__results")
const scripts = document.currentScript.src

const isFound = () => results.dataset.words === query.value.trim()

// What one file after the other would ask for, all at once: on a slow network each turn takes as long as many bytes.
let finder

function load() {
  finder ??= fetchAll().catch(error => {
    finder = undefined // so that it is fetched the next time
    throw error
  })
  return finder
}

async function fetchAll() {
  const { lang } = document.documentElement
  ahead(`wasm.${lang}.pagefind`)
  describe(lang).catch(() => {}) // what fails here fails in find.js, too
  const files = ["find.js", "../pagefind/pagefind.js"]
  const [{ value, reason }] = await Promise.allSettled(files.map(file => import(new URL(file, scripts))))
  if (reason) throw reason
  return value.find
}

const indexed = name => new URL(`../pagefind/${name}`, scripts)

function ahead(name) {
  const link = { rel: "preload", as: "fetch", crossOrigin: "anonymous", href: indexed(name) }
  document.head.append(Object.assign(document.createElement("link"), link))
}

// The description of the index is new for each page that is opened, and names its next file.
async function describe(lang) {
  const { languages } = await (await fetch(indexed(`pagefind-entry.json?ts=${performance.timeOrigin}`))).json()
  ahead(`pagefind.${languages[lang].hash}.pf_meta`)
}

function find({ isComposing } = {}) {
  if (query.value.trim() && !isFound()) status.textContent = dialog.dataset.searching
  load().then(find => find(openBest, isComposing)).catch(() => { status.textContent = dialog.dataset.failed })
}

let isEntered = false // Enter waits for the results of the words that stand in the field

function openBest() {
  if (!isEntered || !isFound()) return
  isEntered = false
  results.querySelector(".search__best")?.click()
}

function open() {
  dialog.showModal()
  query.select()
  find()
}

function mark() {
  try {
    if (sessionStorage.getItem("attention.sought")) import(new URL("found.js", scripts)).then(({ mark }) => mark())
  } catch { /* without storage nothing is marked */ }
}

function move(step) {
  const stops = [query, ...all(".search__results a", dialog)]
  const at = stops.indexOf(document.activeElement)
  stops[(at + step + stops.length) % stops.length].focus()
}

const change = event => {
  isEntered = false
  find(event)
}
query.addEventListener("input", change)
query.addEventListener("compositionend", change) // after the last input of an input method
dialog.addEventListener("close", () => { isEntered = false })
dialog.addEventListener("keydown", event => {
  if (!dialog.open) return // closed a moment ago, it still has the focus
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
  if (step) {
    event.preventDefault()
    move(step)
  } else if (event.key === "Enter" && event.target === query && !event.isComposing) {
    isEntered = true
    openBest()
  }
})
dialog.addEventListener("click", event => {
  const closer = event.target === dialog ? dialog : event.target.closest("[data-search-close], a")
  if (!closer) return
  dialog.close()
  if (closer.pathname === location.pathname) setTimeout(mark) // when the browser has gone to the section
})
addEventListener("load", mark)
const openers = all("[data-search-open], .doors form")
if (location.protocol === "file:") { // from which nothing can be fetched
  openers.forEach(button => button.remove())
} else {
  openers.forEach(opener => opener.addEventListener(opener.elements ? "submit" : "click", event => {
    event.preventDefault()
    if (opener.elements) query.value = opener.elements[0].value
    open()
  }))
  const early = () => load().catch(() => {}) // what fails is said when the search is opened
  openers.forEach(opener => opener.elements?.[0].addEventListener("focus", early, { once: true }))
  document.addEventListener("keydown", event => {
    const typing = event.target.closest("input, textarea, select") && !dialog.contains(event.target)
    const wanted = (event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))
    if (wanted && !dialog.open) {
      event.preventDefault()
      open()
    }
  })
}

}
