// Six tokens: which of them does one see, and what does it take from each?

"use strict"; {

const { T, places, scores, bits } = painting
const WIDE = 440 // the bar, which begins at 20; a token is 80 wide
const THICKEST = 14

const patterns = {
  full: () => true,
  causal: (i, j) => j <= i,
  window: (i, j) => j <= i && j > i - 3,
  padding: (i, j) => j < 4,
}

const fixed = number => number.toFixed(1)

// From a query to a key; one that sees itself has a loop.
function arc(i, j) {
  const [start, end, top] = [40 + 80 * i, 40 + 80 * j, 78 - 15 * Math.abs(i - j)]
  return i === j ? `M${end - 4} 102C${end - 26} 58 ${end + 26} 58 ${end + 4} 102`
    : `M${start} 102C${start} ${top} ${end} ${top} ${end} 102`
}

// From a key to its part of the bar.
function flow(j, share, before) {
  const [half, x, left] = [THICKEST * share / 2, 40 + 80 * j, 20 + WIDE * before]
  const [a, b, c, d] = [x - half, x + half, left + WIDE * share, left].map(fixed)
  return `M${a} 0H${b}C${b} 16 ${c} 10 ${c} 26H${d}C${d} 10 ${a} 16 ${a} 0`
}

const part = (share, before) => `M${fixed(20 + WIDE * before)} 32H${fixed(20 + WIDE * (before + share))}`

customElements.define("six-tokens", class extends Painter {
  start() {
    super.start()
    this.rows = [...this.mask.rows]
    this.tokens = [...this.querySelectorAll("[data-shows=row] th")]
    this.names = this.tokens.map(token => token.textContent.trim())
    this.arcs = this.querySelectorAll(".picture path")
    this.flows = this.querySelectorAll(".flow")
    this.parts = this.querySelectorAll(".part")
    this.why = this.querySelector("#why")
    this.changing = this.querySelectorAll("code b")
  }

  // Who paints in a row looks at it.
  paint(event) {
    super.paint(event)
    const row = this.rows.findIndex(row => row.contains(event.target))
    if (this.boxes.includes(event.target)) this.form.elements.query.value = row
  }

  compute({ query, pattern, cells }) {
    const painted = bits(cells)
    const visible = places.map(i => places.map(j => pattern === "hand" ? painted[T * i + j] : patterns[pattern](i, j)))
    const weights = scores.map((row, i) => kernel.softmax(row.map((score, j) => visible[i][j] ? score : -Infinity)))
    return { visible, weights, row: weights[query], sum: [kernel.add(weights[query])] }
  }

  show({ visible, weights, row, sum }, { query, pattern, cells }) {
    const chosen = Number(query)
    const seen = visible[chosen].filter(Boolean).length
    this.fill("row", row)
    this.fill("sum", sum)
    this.classList.toggle("empty", !seen)
    this.tokens.forEach((token, j) => token.classList.toggle("nil", !visible[chosen][j]))
    this.draw(chosen, row.map(weight => weight || 0))
    this.rows.forEach((row, i) => row.classList.toggle("query", i === chosen))
    this.boxes.forEach((box, place) => {
      const weight = weights.flat()[place]
      box.checked = visible.flat()[place]
      box.nextElementSibling.textContent = Number.isNaN(weight) ? "nan" : ""
      box.closest("td").className = tone(weight, 1)
    })
    const { says, empty } = this.status.dataset
    const most = Math.max(...row)
    const said = { token: this.names[chosen], count: seen, other: this.names[row.indexOf(most)], weight: printed(most) }
    this.said = filled(seen ? says : empty, said)
    const [line, place] = this.changing
    const { code, why } = this.querySelector("[name=pattern]:checked").dataset
    line.textContent = pattern === "hand" ? this.literal(bits(cells).map(Number)) : code
    this.why.textContent = why
    place.textContent = query
  }

  // Arcs as thick as the shares, and the bar that these fill.
  draw(query, shares) {
    shares.forEach((share, j) => {
      const before = kernel.add(shares.slice(0, j))
      this.arcs[j].setAttribute("d", arc(query, j))
      this.arcs[j].setAttribute("stroke-width", fixed(THICKEST * share))
      this.flows[j].setAttribute("d", flow(j, share, before))
      this.parts[j].setAttribute("d", part(share, before))
    })
  }

  literal(bits) {
    const rows = places.map(i => `    [${bits.slice(T * i, T * i + T).join(", ")}],\n`)
    return `visible = torch.tensor([\n${rows.join("")}]).bool()`
  }
})

}
