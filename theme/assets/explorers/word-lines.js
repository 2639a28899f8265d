// A translator after some steps of training: which source word does each written word read?

"use strict"; {

customElements.define("word-lines", class extends Explorer {
  start() {
    this.cases = JSON.parse(this.querySelector("script").textContent)
    this.heads = [...this.querySelectorAll("thead th")]
    this.rows = [...this.querySelectorAll("tbody tr")]
    this.rows.forEach((row, i) => row.addEventListener("click", () => {
      this.form.elements.place.value = i + 1
      this.update()
      this.share()
    }))
  }

  compute({ sentence, steps }) {
    const chosen = this.cases[`${sentence} ${steps}`]
    return { chosen, weights: chosen.weights }
  }

  show({ chosen: { read, written, weights } }, { place }) {
    const row = Number(place) - 1
    this.heads.forEach((head, i) => { head.textContent = read[i] })
    this.rows.forEach((line, i) => {
      line.className = i === row ? "chosen" : ""
      const [head, ...cells] = line.children
      head.textContent = written[i]
      cells.forEach((cell, j) => {
        cell.textContent = weights[i][j] ? printed(weights[i][j], 2) : "0"
        cell.className = tone(weights[i][j], 1)
      })
    })
    this.label(this.form.elements.place, written[row])
    const weight = Math.max(...weights[row])
    this.said = this.words({ word: written[row], source: read[weights[row].indexOf(weight)], weight: printed(weight, 2) })
  }
})

}
