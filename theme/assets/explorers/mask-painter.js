// Which keys may each of six queries see, and what becomes of its row?

"use strict"; {

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
const spellings = { // of a hidden entry and of a visible one
  ignore: ["True", "False"],
  attend: ["False", "True"],
  inf: ["-inf", "0"],
  lowest: ["min", "0"],
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

  compute({ pattern, size, documents, pads, side, cells }) {
    const share = T / documents
    const pad = side === "left" ? j => j < pads : j => j >= T - pads
    const sees = (i, j) => patterns[pattern](i, j, size) && Math.floor(i / share) === Math.floor(j / share) && !pad(j)
    const painted = bits(cells)
    const visible = places.map(i => places.map(j => pattern === "hand" ? painted[T * i + j] : sees(i, j)))
    const weights = scores.map((row, i) => kernel.softmax(row.map((score, j) => visible[i][j] ? score : -Infinity)))
    return { scores, visible, weights, sums: weights.map(kernel.add), output: kernel.mix(weights, tokens) }
  }

  show({ scores, visible, weights, sums, output }, state) {
    const { size, documents, pads, side } = this.form.elements
    size.disabled = !["window", "prefix"].includes(state.pattern)
    for (const control of [documents, pads, side]) control.disabled = state.pattern === "hand"
    for (const slider of [size, pads]) this.label(slider, slider.value)
    const empty = places.filter(i => !visible[i].includes(true))
    const chosen = this.querySelector("[name=library]:checked").dataset
    const spelling = spellings[chosen.says]
    this.boxes.forEach((box, i) => {
      box.checked = visible.flat()[i]
      box.nextElementSibling.textContent = spelling[Number(box.checked)]
      box.closest("td").className = box.checked ? "plus3" : "nil"
    })
    for (const [name, matrix] of Object.entries({ scores, weights, sums, output })) this.fill(name, matrix.flat())
    for (const name of ["mask", "weights", "output"]) {
      this.querySelectorAll(`[data-shows=${name}] tbody tr`).forEach((row, i) => row.classList.toggle("empty", empty.includes(i)))
    }
    this.querySelector("[data-shows=libraries]").classList.toggle("empty", empty.length > 0)
    this.querySelector("code").textContent = `${this.code(state)}\n${chosen.code}`
    this.said = this.words({
      visible: visible.flat().filter(Boolean).length,
      rows: empty.join(", ") || this.status.dataset.none,
    })
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
