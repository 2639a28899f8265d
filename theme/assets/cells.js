// The buttons on a cell: copy the whole program, or show it. A cell's program is every shared cell above it, then the
// cell itself. Below a cell that is not shared stands its output, or that it has not run yet. Other code that can be
// copied, such as the address of the page's notebook, comes with the words for its button.

"use strict"; {

const all = (selector, root = document) => [...root.querySelectorAll(selector)]

const isShared = cell => !cell.nextElementSibling?.matches(".output, .ran-on")
const codeOf = cell => cell.querySelector("code").textContent

function program(cell) {
  const cells = all(".language-python")
  const shared = cells.slice(0, cells.indexOf(cell)).filter(isShared)
  return [...shared, cell].map(codeOf).join("\n")
}

const whole = document.querySelector("dialog.program")
const said = document.getElementById("said")

globalThis.copy = async (button, code, words = whole.dataset.copied) => {
  await navigator.clipboard.writeText(code)
  const status = button.parentElement.querySelector("[role=status]") ?? said // the rest of the page is silent behind a dialog
  status.textContent = words
  button.classList.add("copied")
  setTimeout(() => { status.textContent = ""; button.classList.remove("copied") }, 2000)
}

function show(cell) {
  whole.querySelector("code").textContent = program(cell)
  whole.querySelector("b").textContent = cell.id.replace("cell-", "")
  whole.showModal()
}

// Whoever has no mouse moves a wide block sideways with the arrow keys.
const sized = new ResizeObserver(blocks => {
  for (const { target } of blocks) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0
    else target.removeAttribute("tabindex")
  }
})
all("article pre > code, .program pre, .plot, .wide, p:has(> .broad)").forEach(block => sized.observe(block))

const tools = document.getElementById("cell-tools").content
for (const cell of all("article .language-python")) {
  cell.append(tools.cloneNode(true))
  cell.querySelector("[data-copy]").addEventListener("click", event => {
    copy(event.currentTarget, program(cell)).catch(() => show(cell)) // over plain http there is no clipboard
  })
  cell.querySelector("[data-show]").addEventListener("click", () => show(cell))
}
whole.querySelector("[data-copy]").addEventListener("click", event => {
  copy(event.currentTarget, codeOf(whole)).catch(() => getSelection().selectAllChildren(whole.querySelector("code")))
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

}
