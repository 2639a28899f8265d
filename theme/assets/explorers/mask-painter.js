// Which keys may each of six queries see, and what becomes of its row?

"use strict"; {

const { fround } = Math
const { T, places, tokens, scores, bits } = painting

const patterns = {
  full: () => true,
  causal: (i, j) => j <= i,
  window: (i, j, size) => j <= i && j > i - size,
  prefix: (i, j, size) => j <= i || j < size,
}

customElements.define("mask-painter", class extends Painter {
  start() {
    this.masks = JSON.parse(this.dataset.masks)
    super.start()
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
    const [entries, tones] = [chosen.entries, chosen.tones].map(both => both.split(" ")) // a hidden one and a visible one
    this.querySelector("caption span").textContent = chosen.says
    this.boxes.forEach((box, i) => {
      box.checked = visible.flat()[i]
      box.nextElementSibling.textContent = entries[Number(box.checked)]
      box.closest("td").className = tones[Number(box.checked)]
    })
    for (const [name, matrix] of Object.entries({ scores, weights, sums, output })) this.fill(name, matrix.flat())
    for (const name of ["mask", "weights", "output"]) {
      this.querySelectorAll(`[data-shows=${name}] tbody tr`).forEach((row, i) => row.classList.toggle("empty", empty.includes(i)))
    }
    const [head, shown] = this.querySelectorAll("code span")
    head.textContent = chosen.head
    shown.textContent = `${this.code(state)}\n${chosen.code}\nprint(context)`
    const { given } = this.status.dataset
    const weight = printed(Number(chosen.empty))
    const said = this.words({ visible: visible.flat().filter(Boolean).length, rows: this.named(empty.map(i => this.mask.rows[i])) })
    this.said = empty.length ? `${said} ${filled(given, { call, weight })}` : said
  }

  // The code of a mask, in the form in which the call takes it.
  code({ pattern, size, documents, pads, side, cells }) {
    const { before, after, reasons, painted } = this.masks[this.library.dataset.mask]
    if (pattern === "hand") {
      const seen = bits(cells).map(Number)
      const rows = places.map(i => `    [${seen.slice(T * i, T * i + T).join(", ")}],\n`)
      return filled(painted, { rows: rows.join("") })
    }
    const values = { size, pads, share: T / documents }
    const chosen = [pattern, ...documents > 1 ? ["documents"] : [], ...pads > 0 ? [side] : []]
    const lines = chosen.flatMap(name => reasons[name] ?? []).map(line => filled(line, values))
    return before + lines.join("") + after
  }
})

}
