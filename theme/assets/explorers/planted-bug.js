// Which probes of the kit find a wrong line, and in which words. The kit has said all of it; it comes with the page.

"use strict"; {

const KINDS = { "1": "fails", "0": "passes", "-1": "left" }

customElements.define("planted-bug", class extends Explorer {
  start() {
    this.cases = JSON.parse(this.querySelector("script").textContent)
    this.rows = [...this.querySelectorAll("tbody tr")]
    this.lines = [...this.querySelectorAll("dd code")]
    this.sentences = this.querySelector("ul")
  }

  compute({ bug }) {
    return { failed: this.cases[bug].failed }
  }

  show({ failed }, { bug }) {
    const { code, right, said } = this.cases[bug]
    const { dataset } = this.querySelector("tbody")
    const [wrongLine, rightLine] = this.lines
    wrongLine.textContent = code
    rightLine.textContent = right
    this.rows.forEach((row, i) => {
      row.className = KINDS[failed[i]]
      row.cells[1].textContent = dataset[row.className]
    })
    this.sentences.replaceChildren(...Object.entries(said).map(([probe, words]) => {
      const [sentence, name] = ["li", "code"].map(tag => document.createElement(tag))
      name.textContent = probe
      sentence.append(name, ` ${words}`)
      return sentence
    }))
    const names = Object.keys(said)
    const { says, none, comma } = this.status.dataset
    this.said = names.length ? filled(says, { count: names.length, names: names.join(comma) }) : none
  }
})

}
