// What a reader chooses, what they have read and where they are: colours, pages, section, menu, language.

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

// --- what was read: only this browser keeps it, for all languages together, until the reader forgets it on the first page

const root = document.documentElement
const menu = document.querySelector(".md-nav--primary")
const steps = all("details a", menu)
const own = steps.find(link => link.ariaCurrent)
const goOn = document.querySelector(".go-on")

const folder = link => link.href.replace(/(index\.html)?([?#].*)?$/, "")
const slug = link => folder(link).slice(folder(document.querySelector(".md-logo")).length)

function recall(what) {
  try { return JSON.parse(localStorage.getItem(`attention.${what}`)) ?? {} } catch { return {} }
}

function keep(what, value) {
  try { localStorage.setItem(`attention.${what}`, JSON.stringify(value)) } catch { /* nothing may be kept */ }
}

function tell() {
  const read = recall("read"), place = recall("place")
  const isRead = link => read[slug(link)] === true
  for (const link of steps) {
    link.querySelector(".read")?.remove()
    if (isRead(link)) link.insertAdjacentHTML("beforeend", `<span class="read" role="img" aria-label="${menu.dataset.read}">✓</span>`)
  }
  const last = steps.find(link => slug(link) === place.page)
  if (!goOn || !last) return
  const next = steps.slice(steps.indexOf(last)).find(link => !isRead(link)) ?? last
  const link = goOn.firstChild
  const section = next === last && place.language === root.lang ? ` · ${place.title}` : ""
  link.href = next.href + (next === last ? place.hash : "")
  link.textContent = menu.dataset.goOn.replace("{page}", () => next.firstChild.data + section)
  root.classList.add("reads") // it is seen
}

function forget() {
  for (const what of ["read", "place"]) localStorage.removeItem(`attention.${what}`)
  root.classList.remove("reads")
  tell()
  document.querySelector("main").focus({ preventScroll: true }) // or the focus would be lost with the button
}

if (goOn) {
  goOn.innerHTML = `<a></a> <button type="button">${menu.dataset.forget}</button>`
  goOn.lastChild.addEventListener("click", forget)
}
tell()
addEventListener("pageshow", tell) // who comes back by the button of the browser has read on

// A page is read once each of its sections has been on the screen, in one visit or in several: to open it, or to jump to
// its end, is not to read it.
if (own) {
  const parts = all("article h2[id]")
  const seen = new IntersectionObserver(changes => {
    const read = recall("read"), page = slug(own)
    if (read[page] === true) return
    const ids = new Set(read[page])
    changes.filter(({ isIntersecting }) => isIntersecting).forEach(({ target }) => ids.add(target.id))
    keep("read", { ...read, [page]: parts.every(part => ids.has(part.id)) || [...ids] })
    tell()
  })
  parts.forEach(part => seen.observe(part))
}

function reach({ hash, textContent: title }) {
  if (own) keep("place", { page: slug(own), hash, title, language: root.lang })
}

// --- finding one's place: the title in the header, the section in the table of contents, the menu of a phone

const topic = document.querySelector(".md-header__title")
const title = document.querySelector("h1")
const sections = all("article :is(h2, h3)[id]")
const contents = document.querySelector(".md-nav--secondary")
const entries = all(".md-nav--secondary a")
const place = document.querySelector(".here b")
let current // the entry of the section that is read

function follow() {
  topic.classList.toggle("md-header__title--active", title.getBoundingClientRect().bottom < 48)
  const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2
  const top = 4 + parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) // where a link puts a heading
  const here = atEnd ? sections.at(-1) : sections.findLast(heading => heading.getBoundingClientRect().top < top)
  const entry = entries.find(entry => entry.hash === `#${here?.id}`)
  if (entry === current) return
  if (current) current.ariaCurrent = null
  current = entry
  place.textContent = entry?.textContent ?? ""
  if (!entry) return
  entry.ariaCurrent = "location"
  show()
  reach(entry)
}

function show() {
  contents.scrollTop = current?.offsetTop - contents.clientHeight / 2
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
contents?.addEventListener("toggle", show)
contents?.addEventListener("click", event => {
  if (!event.target.closest("a")) return
  slide(false)
  contents.hidePopover()
})

// --- keys: n leads to the next page, p to the previous one

document.addEventListener("keydown", event => {
  const rel = { n: "next", p: "prev" }[event.key]
  // A dialog that was closed a moment ago still has the focus.
  const typing = event.target.closest("dialog[open], :is(input, textarea, select):not(dialog *)")
  if (!rel || typing || event.repeat || event.altKey || event.ctrlKey || event.metaKey) return
  document.querySelector(`.pages [rel=${rel}]`)?.click()
})

// --- paper: what is folded is printed as it is, or unfolded until it is printed; solutions only if that is asked for

for (const button of all("[data-print]")) {
  button.addEventListener("click", () => {
    const way = button.dataset.print
    const before = new Map(all("article details").map(block => [block, block.open]))
    if (way !== "shown") before.forEach((_, block) => { block.open = way === "all" || !block.matches(".success") })
    addEventListener("afterprint", () => before.forEach((open, block) => { block.open = open }), { once: true })
    print()
  })
}

// --- languages: the headings of a page have the same ids in all of them

document.addEventListener("click", event => {
  const link = event.target.closest("a[hreflang]")
  if (link) link.hash = location.hash
})

}
