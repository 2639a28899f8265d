// A head learns: the weights of *it* in two sentences, and the matrices of queries and keys, at some steps of training.

"use strict"; {

customElements.define("three-roles", class extends Moving {
  start() {
    super.start()
    this.bars = [...this.querySelectorAll(".stage > div")]
    this.found = this.querySelector(".found")
  }

  // Both sentences have the same matrices; which of them is read, `draw` chooses.
  compute({ start }) {
    return this.cases[start]
  }

  show(numbers, state) {
    super.show(numbers, state)
    this.said += ` ${this.found.textContent}`
  }

  draw(frame, { losses, matrices, ...ends }, { end }) {
    const weights = ends[end][frame]
    const found = [weights[0], weights[1], losses[frame]]
    this.bars.forEach((bar, i) => {
      bar.querySelector("b").textContent = printed(weights[i], 2)
      bar.querySelector("i").style.setProperty("--weight", weights[i])
    })
    this.bars.at(-1).querySelector("span").textContent = end
    this.found.querySelectorAll("b").forEach((shown, i) => { shown.textContent = printed(found[i], 2) })
    this.querySelectorAll("tbody td").forEach((cell, i) => {
      const number = matrices[frame][i]
      cell.textContent = printed(number, 2)
      cell.className = tone(number, this.dataset.largest)
    })
  }
})

}
