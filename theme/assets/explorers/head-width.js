// How wide queries and keys are: the sorted scores of a query with sixteen keys, and the weights that the softmax makes of them.
// torch has drawn both, for every choice that a reader has; the page brings its numbers along.

"use strict"; {

const [MIDDLE, UNIT] = [160, 2] // of the axis of scores
const [FLOOR, HIGH] = [168, 80] // of the bars

customElements.define("head-width", class extends Explorer {
  start() {
    this.cases = JSON.parse(this.querySelector("script").textContent)
    this.dots = [...this.querySelectorAll("circle")]
    this.bars = [...this.querySelectorAll("rect")]
  }

  compute({ width, scale }) {
    const [scores, weights, summary] = this.cases[`${width} ${scale}`]
    return { scores, weights, summary }
  }

  show({ scores, weights, summary }, { width }) {
    const D = 2 ** (Number(width) + 2)
    const [deviation, largest, above] = summary
    this.label(this.form.elements.width, D)
    this.dots.forEach((dot, i) => dot.setAttribute("cx", (MIDDLE + UNIT * scores[i]).toFixed(1)))
    this.bars.forEach((bar, i) => {
      bar.setAttribute("y", (FLOOR - HIGH * weights[i]).toFixed(1))
      bar.setAttribute("height", (HIGH * weights[i]).toFixed(1))
    })
    this.fill("summary", summary)
    const share = `${Math.round(100 * above)}%`
    this.said = this.words({ D, deviation: printed(deviation, 2), largest: printed(largest, 2), share })
  }
})

}
