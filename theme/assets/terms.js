// Terms: whoever points at one, comes to it by keyboard or taps on it, reads its sentence. The note above
// it leads to the glossary, as the term does; but the first tap on a term shows its sentence.

"use strict"; {

const note = document.querySelector(".says")
const [sentence, link] = note.children
const header = document.querySelector(".md-header")
let leaving, shown, opens

function say(term) {
  hush()
  shown = term
  if (term.title) term.dataset.says = term.title
  term.removeAttribute("title") // the browser would show it as well
  term.setAttribute("aria-describedby", sentence.id)
  sentence.textContent = term.dataset.says
  link.href = term.href
  note.showPopover()
  const [line] = term.getClientRects()
  const above = line.top - 6 - note.offsetHeight // over what has been read; below, it would cover the next line
  const fits = above > header.getBoundingClientRect().bottom
  note.style.top = `${scrollY + (fits ? above : line.bottom + 6)}px`
  note.style.left = `${Math.max(8, Math.min(line.left, document.body.clientWidth - note.offsetWidth - 8))}px`
}

function hush() {
  clearTimeout(leaving)
  shown = null
  note.hidePopover()
}

const leave = () => { leaving = setTimeout(hush, 200) } // enough to reach the note, and select its words
note.addEventListener("pointerenter", () => clearTimeout(leaving))
note.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && leave())
document.addEventListener("keydown", event => event.key === "Escape" && hush())
document.addEventListener("pointerdown", ({ target, pointerType }) => {
  const term = target.closest("a.term")
  opens = pointerType === "touch" && term !== shown // before a click on it focuses the term
  if (!term && !note.contains(target)) hush()
})
for (const term of document.querySelectorAll("a.term")) {
  term.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && say(term))
  term.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && leave())
  term.addEventListener("focus", () => say(term))
  term.addEventListener("blur", event => { if (!note.contains(event.relatedTarget)) hush() })
  term.addEventListener("click", event => {
    if (!opens) return
    event.preventDefault()
    say(term)
    opens = false
  })
}

}
