// Five numbers that two programs add, in three dtypes: which digits depend on the order, and which on a bug?
// torch has added them in every order; the page brings the sums along.

"use strict"; {

const same = (one, other) => [...one].findIndex((digit, i) => digit !== other[i])

customElements.define("last-digits", class extends Explorer {
  start() {
    const { first, seconds } = JSON.parse(this.querySelector("script").textContent)
    Object.assign(this, { seconds, firstSums: first })
    const { order } = this.form.elements
    this.terms = [...this.querySelectorAll(".terms button")]
    this.terms.forEach((term, i) => term.addEventListener("click", () => {
      const { value } = order
      order.value = value[i] + value.slice(0, i) + value.slice(i + 1)
      this.update()
      this.share()
    }))
    this.caption = this.querySelector("caption")
    this.rows = [...this.querySelectorAll("tbody tr")]
  }

  // The sums of the second program, and how far each is from that of the first.
  compute({ order, second }) {
    const { numbers, results, orders } = this.seconds[second]
    const found = results.map((column, i) => column[orders[order][i]])
    return { terms: [...order].map(place => numbers[place]), sums: found.map(([sum]) => sum), gaps: found.map(([, gap]) => gap) }
  }

  show({ terms, sums, gaps }, { second }) {
    this.caption.textContent = terms.join(" + ")
    this.terms.forEach((term, i) => { term.textContent = terms[i] })
    this.rows.forEach((row, i) => {
      const changed = same(sums[i], this.firstSums[i])
      const length = changed < 0 ? sums[i].length : changed
      const digits = row.querySelector(".second")
      digits.textContent = sums[i].slice(0, length)
      digits.append(Object.assign(document.createElement("em"), { textContent: sums[i].slice(length) }))
      row.querySelector("b").textContent = gaps[i]
      row.querySelector("i").style.setProperty("--length", gaps[i] === "0" ? 0 : Number(gaps[i].split("e")[1]) + 17)
    })
    const [half, single, double] = gaps
    this.said = filled(this.status.dataset[second], { half, single, double })
  }
})

}
