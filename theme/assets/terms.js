// Terms: whoever points at one, or comes to it by keyboard, reads its sentence.

"use strict"; {

const note = Object.assign(document.createElement("div"), { className: "says", id: "says", role: "tooltip", popover: "manual" })
document.body.append(note)
let leaving

function say(term) {
  hush()
  if (term.title) term.dataset.says = term.title
  term.removeAttribute("title") // the browser would show it as well
  term.setAttribute("aria-describedby", note.id)
  note.textContent = term.dataset.says
  note.showPopover()
  const [line] = term.getClientRects()
  const below = line.bottom + 6
  const fits = below + note.offsetHeight < innerHeight
  note.style.top = `${scrollY + (fits ? below : line.top - 6 - note.offsetHeight)}px`
  note.style.left = `${Math.max(8, Math.min(line.left, document.body.clientWidth - note.offsetWidth - 8))}px`
}

function hush() {
  clearTimeout(leaving)
  note.hidePopover()
}

const leave = () => { leaving = setTimeout(hush, 200) } // enough to reach the note, and select its words
note.addEventListener("pointerenter", () => clearTimeout(leaving))
note.addEventListener("pointerleave", leave)
document.addEventListener("keydown", event => event.key === "Escape" && hush())
for (const term of document.querySelectorAll("a.term")) {
  term.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && say(term))
  term.addEventListener("pointerleave", leave)
  term.addEventListener("focus", () => say(term))
  term.addEventListener("blur", hush)
}

}
