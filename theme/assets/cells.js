// The buttons on a cell: wrap long lines, copy the whole program, or show it. A cell's program is every shared cell
// above it, then the cell itself; that of a section of a file is the file. Below a cell that is not shared stands its
// output, or that it has not run yet. Other code that can be copied, such as a command, comes with the words for its
// button.

"use strict"; {

const all = (selector, root = document) => [...root.querySelectorAll(selector)]

const isShared = cell => !cell.dataset.file && !cell.nextElementSibling?.matches(".output, .ran-on")

const { src } = document.currentScript
const addressOf = cell => new URL(`../${cell.dataset.file}`, src)

async function program(cell) {
  if (cell.dataset.file) return (await fetch(addressOf(cell))).text()
  return parts(cell).map(part => part.textContent).join("\n")
}

function parts(cell) {
  const cells = all("article .language-python")
  const shared = cells.slice(0, cells.indexOf(cell)).filter(isShared)
  return [...shared, cell].map(part => part.querySelector("code"))
}

const whole = document.querySelector("dialog.program")
const said = document.getElementById("said")

let hush = () => {} // the message of the last copy goes when its time is over, or the next one comes

globalThis.copy = async (button, code, words = whole.dataset.copied) => {
  await navigator.clipboard.writeText(code)
  hush()
  const status = button.parentElement.querySelector("[role=status]") ?? said // the rest of the page is silent behind a dialog
  status.textContent = words
  button.classList.add("copied")
  const timer = setTimeout(() => hush(), 2000)
  hush = () => {
    clearTimeout(timer)
    status.textContent = ""
    button.classList.remove("copied")
  }
}

function show(cell) {
  if (cell.dataset.file) return open(addressOf(cell))
  whole.querySelector("code").innerHTML = parts(cell).map(part => part.innerHTML).join("\n") // with its colours
  whole.querySelector("b").textContent = cell.id.replace("cell-", "")
  whole.showModal()
}

// A block that goes on at its right says so, until it has been moved there.
const goesOn = ({ currentTarget: block }) => {
  block.classList.toggle("more", block.scrollLeft + block.clientWidth < block.scrollWidth - 1)
}

// Whoever has no mouse moves a wide block sideways with the arrow keys.
const sized = new ResizeObserver(blocks => {
  for (const { target } of blocks) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0
    else target.removeAttribute("tabindex")
    goesOn({ currentTarget: target })
  }
})
all("pre > code, .plot, .wide, p:has(> .picture)").forEach(block => {
  sized.observe(block)
  block.addEventListener("scroll", goesOn, { passive: true })
})

const tools = document.getElementById("cell-tools").content
for (const cell of all("article .language-python")) {
  cell.append(tools.cloneNode(true))
  cell.querySelector("[data-copy]").addEventListener("click", event => {
    const button = event.currentTarget
    program(cell).then(code => copy(button, code)).catch(() => show(cell)) // over plain http there is no clipboard
  })
  cell.querySelector("[data-show]").addEventListener("click", () => show(cell))
}
whole.querySelector("[data-copy]").addEventListener("click", event => {
  const code = whole.querySelector("code")
  copy(event.currentTarget, code.textContent).catch(() => getSelection().selectAllChildren(code))
})
for (const code of all("code[data-copied]")) {
  const button = tools.querySelector("[data-copy]").cloneNode(true)
  button.title = button.ariaLabel = code.dataset.copyLabel
  button.addEventListener("click", () => {
    copy(button, code.textContent, code.dataset.copied).catch(() => getSelection().selectAllChildren(code))
  })
  code.after(button)
}
whole.addEventListener("click", event => {
  if (event.target === whole || event.target.closest("[data-close]")) whole.close()
})

// Whether long lines are wrapped holds for all code, on this page and the next ones.
const { classList } = document.documentElement
const wrappers = all("[data-wrap]")
const say = () => wrappers.forEach(button => { button.ariaPressed = classList.contains("wrapped") })
say()
for (const button of wrappers) {
  button.addEventListener("click", () => {
    const place = button.getBoundingClientRect().top
    const wrapped = classList.toggle("wrapped")
    say()
    scrollBy(0, button.getBoundingClientRect().top - place)
    try { localStorage.setItem("attention.wrapped", wrapped ? "yes" : "") } catch { /* chosen for this page alone */ }
  })
}

}
