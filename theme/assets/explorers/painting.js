// A mask that is painted: six queries, six keys, and boxes that say which query sees which key.

"use strict"; {

const STEP = 8 // pixels between two places at which a drag is looked at: less than an entry is wide
const T = 6
const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -T, ArrowDown: T }
const BITS = [8, 4, 2, 1]

const tokens = kernel.float32([
  [.43, .15, .89],
  [.55, .87, .66],
  [.57, .85, .64],
  [.22, .58, .33],
  [.77, .25, .10],
  [.05, .80, .55],
])

// Painted entries, row after row, are the bits of nine hexadecimal digits.
const digits = bits => bits.join("").match(/..../g).map(four => parseInt(four, 2).toString(16)).join("")
const bits = digits => [...digits].flatMap(digit => BITS.map(bit => Boolean(parseInt(digit, 16) & bit)))

globalThis.painting = { T, places: [...Array(T).keys()], tokens, scores: kernel.scores(tokens, tokens), bits }

globalThis.Painter = class extends Explorer {
  start() {
    this.boxes = [...this.querySelectorAll("[data-shows=mask] input")]
    const [first, ...others] = this.boxes
    others.forEach(box => { box.tabIndex = -1 })
    this.stop = first
    this.addEventListener("focusin", ({ target }) => this.boxes.includes(target) && this.rest(target))
    this.addEventListener("keydown", event => this.walk(event))
    this.addEventListener("input", event => this.paint(event), true) // before the state is read
    this.mask = this.querySelector("[data-shows=mask] tbody")
    this.stroke = {}
    addEventListener("pointerdown", ({ clientX: x, clientY: y, isPrimary }) => {
      const first = this.boxAt(x, y)
      this.stroke = { x, y, first, sees: !first?.checked }
      if (!isPrimary) this.cancel() // a second finger zooms
    })
    this.mask.addEventListener("pointermove", event => this.drag(event))
    this.mask.addEventListener("pointercancel", () => this.cancel())
    this.mask.addEventListener("lostpointercapture", ({ target }) => target === this.mask && this.share())
  }

  boxAt(x, y) {
    return document.elementFromPoint(x, y)?.closest("[data-shows=mask] td")?.querySelector("input")
  }

  // A drag turns the entry where it begins, and those that it passes become the same; a tap is a click, for the browser.
  drag({ buttons, clientX, clientY, pointerId }) {
    const { x, y, first, sees } = this.stroke
    if (buttons !== 1 || !first) return
    const steps = Math.ceil(Math.hypot(clientX - x, clientY - y) / STEP)
    const parts = Array.from({ length: steps }, (_, i) => (i + 1) / steps)
    const passed = parts.map(part => this.boxAt(x + part * (clientX - x), y + part * (clientY - y)))
    this.stroke = { x: clientX, y: clientY, first, sees }
    const others = passed.filter(box => box && box !== first)
    if (!others.length) return
    for (const box of [first, ...others]) box.checked = sees
    this.mask.setPointerCapture(pointerId)
    first.dispatchEvent(new Event("input", { bubbles: true }))
  }

  cancel() {
    this.stroke = {}
    super.cancel()
  }

  // The tables of numbers are walked through with the arrow keys; the Tab key stops once.
  rest(box) {
    this.stop.tabIndex = -1
    box.tabIndex = 0
    this.stop = box
  }

  walk(event) {
    const next = step[event.key] && this.boxes[this.boxes.indexOf(event.target) + step[event.key]]
    if (!next || !this.boxes.includes(event.target)) return
    event.preventDefault()
    next.focus()
  }

  paint({ target }) {
    const { pattern, cells } = this.form.elements
    if (this.boxes.includes(target)) pattern.value = "hand"
    if (pattern.value === "hand") cells.value = digits(this.boxes.map(box => Number(box.checked)))
  }
}

}
