// Which keys may each of six queries see, and what becomes of its row?

"use strict"; {

const { fround } = Math
const STEP = 8 // pixels between two places at which a drag is looked at: less than an entry is wide
const T = 6
const places = [...Array(T).keys()]
const tokens = kernel.float32([
  [.43, .15, .89],
  [.55, .87, .66],
  [.57, .85, .64],
  [.22, .58, .33],
  [.77, .25, .10],
  [.05, .80, .55],
])
const scores = kernel.scores(tokens, tokens)

const patterns = {
  full: () => true,
  causal: (i, j) => j <= i,
  window: (i, j, size) => j <= i && j > i - size,
  prefix: (i, j, size) => j <= i || j < size,
}
const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -T, ArrowDown: T }

// Painted entries, row after row, are the bits of nine hexadecimal digits.
const BITS = [8, 4, 2, 1]
const digits = bits => bits.join("").match(/..../g).map(four => parseInt(four, 2).toString(16)).join("")
const bits = digits => [...digits].flatMap(digit => BITS.map(bit => Boolean(parseInt(digit, 16) & bit)))

customElements.define("mask-painter", class extends Explorer {
  start() {
    this.reasons = JSON.parse(this.dataset.reasons)
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

  get library() {
    return this.form.elements.library.selectedOptions[0]
  }

  compute({ pattern, size, documents, pads, side, cells }) {
    const share = T / documents
    const pad = side === "left" ? j => j < pads : j => j >= T - pads
    const sees = (i, j) => patterns[pattern](i, j, size) && Math.floor(i / share) === Math.floor(j / share) && !pad(j)
    const painted = bits(cells)
    const visible = places.map(i => places.map(j => pattern === "hand" ? painted[T * i + j] : sees(i, j)))
    const empty = Array(T).fill(fround(this.library.dataset.empty)) // torch was asked: the libraries differ
    const weights = scores.map((row, i) => visible[i].includes(true)
      ? kernel.softmax(row.map((score, j) => visible[i][j] ? score : -Infinity)) : empty)
    return { scores, visible, weights, sums: weights.map(kernel.add), output: kernel.mix(weights, tokens) }
  }

  show({ scores, visible, weights, sums, output }, state) {
    const { size, documents, pads, side } = this.form.elements
    size.disabled = !["window", "prefix"].includes(state.pattern)
    for (const control of [documents, pads, side]) control.disabled = state.pattern === "hand"
    for (const slider of [size, pads]) this.label(slider, slider.value)
    const empty = places.filter(i => !visible[i].includes(true))
    const { label: call, dataset: chosen } = this.library
    const entries = chosen.entries.split(" ") // a hidden one and a visible one
    this.querySelector("caption span").textContent = chosen.says
    this.boxes.forEach((box, i) => {
      box.checked = visible.flat()[i]
      box.nextElementSibling.textContent = entries[Number(box.checked)]
      box.closest("td").className = box.checked ? "plus3" : "nil"
    })
    for (const [name, matrix] of Object.entries({ scores, weights, sums, output })) this.fill(name, matrix.flat())
    for (const name of ["mask", "weights", "output"]) {
      this.querySelectorAll(`[data-shows=${name}] tbody tr`).forEach((row, i) => row.classList.toggle("empty", empty.includes(i)))
    }
    this.querySelector("code").textContent = `${this.code(state)}\n${chosen.code}`
    const { none, given } = this.status.dataset
    const weight = printed(Number(chosen.empty))
    const said = this.words({ visible: visible.flat().filter(Boolean).length, rows: empty.join(", ") || none })
    this.said = empty.length ? `${said} ${filled(given, { call, weight })}` : said
  }

  // The code of a mask that is True where a key is hidden.
  code({ pattern, size, documents, pads, side, cells }) {
    if (pattern === "hand") {
      const hidden = bits(cells).map(bit => Number(!bit))
      const rows = places.map(i => `    [${hidden.slice(T * i, T * i + T).join(", ")}],\n`)
      return `T = ${T}\nmasked = torch.tensor([\n${rows.join("")}]).bool()`
    }
    const values = { size, pads, share: T / documents }
    const chosen = [pattern, ...documents > 1 ? ["documents"] : [], ...pads > 0 ? [side] : []]
    const lines = chosen.flatMap(name => this.reasons[name] ?? []).map(line => filled(line, values))
    const first = `T = ${T}\nplaces = torch.arange(T)\nmasked = torch.zeros(T, T, dtype=torch.bool)`
    return [first, ...lines.map(line => `masked = masked | (${line})`)].join("\n")
  }
})

}
