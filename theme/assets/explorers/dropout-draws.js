// Dropout on a row of weights, call after call: which are kept, what they sum to, and the mean of all calls so far.
// torch has drawn them all; the page brings its numbers along.

"use strict"; {

const [FLOOR, UNIT] = [114, 220] // of the bars

const height = (bar, weight) => {
  bar.setAttribute("y", (FLOOR - UNIT * weight).toFixed(1))
  bar.setAttribute("height", (UNIT * weight).toFixed(1))
}

customElements.define("dropout-draws", class extends Explorer {
  start() {
    Object.assign(this, JSON.parse(this.querySelector("script").textContent))
    this.slots = [...this.querySelectorAll("g")]
    this.means = [...this.querySelectorAll("path")]
    this.more = this.querySelector("[data-more]")
    this.more.addEventListener("click", () => {
      this.form.elements.calls.stepUp()
      this.update()
      this.share()
    })
  }

  // After eval() every call gives the weights, whatever the rate.
  compute({ percent, calls, mode }) {
    const [row, mean, sums] = this.cases[mode === "eval" ? mode : `${percent} ${calls}`]
    return { row, mean, sums }
  }

  show({ row, mean, sums }, { percent, calls, mode }) {
    const [count, next] = this.calls.slice(Number(calls))
    this.label(this.form.elements.calls, count)
    this.label(this.form.elements.percent, percent / 100)
    if (next) this.more.textContent = filled(this.more.dataset.more, { count: next - count })
    this.more.ariaDisabled = !next // a button that is disabled would lose the focus
    this.slots.forEach((slot, i) => {
      slot.setAttribute("class", row[i] ? "kept" : "dropped")
      height(slot.querySelector("rect"), row[i])
      this.means[i].setAttribute("transform", `translate(0 ${(FLOOR - UNIT * mean[i]).toFixed(1)})`)
    })
    this.fill("weights", this.weights)
    this.fill("row", row)
    this.fill("mean", mean)
    this.fill("sums", sums)
    const [, sum, meanSum] = sums.map(number => printed(number, 2))
    const dropped = row.filter(weight => !weight).length
    const values = { count, dropped, factor: printed(this.factors[percent], 2), sum, mean: meanSum }
    this.said = filled(this.status.dataset[mode === "eval" ? "eval" : "says"], values)
  }
})

}
