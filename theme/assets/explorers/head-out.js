// Six heads and what each looks at: which one does the answer need? Torch has removed each, in two places.

"use strict"; {

customElements.define("head-out", class extends Explorer {
  start() {
    this.answers = JSON.parse(this.querySelector("script").textContent)
    const [maps, answer] = this.querySelectorAll("table")
    this.heads = [...maps.querySelectorAll("tbody tr")].slice(0, -1) // the last row is their mean
    this.heads.forEach((row, i) => row.addEventListener("click", () => this.remove(`${i}`)))
    this.foods = [...answer.querySelectorAll("thead th")].map(({ textContent }) => textContent)
    this.cells = [...answer.querySelectorAll(".now td")]
  }

  // A head that is tapped once more is back.
  remove(head) {
    const { head: chosen } = this.form.elements
    chosen.value = chosen.value === head ? "none" : head
    this.update()
    this.share()
  }

  // The answer of all heads stands first, then two of each head.
  compute({ head, place }) {
    const places = ["context", "outputs"]
    return { logits: this.answers[head === "none" ? 0 : 1 + 2 * Number(head) + places.indexOf(place)] }
  }

  show({ logits }, { head, place }) {
    const best = logits.indexOf(Math.max(...logits))
    this.heads.forEach((row, i) => { row.className = `${i}` === head ? place : "" })
    this.cells.forEach((cell, i) => {
      cell.textContent = printed(logits[i], 2)
      cell.className = i === best ? "chosen" : ""
    })
    this.said = filled(this.status.dataset[head === "none" ? head : place], { head, food: this.foods[best] })
  }
})

}
