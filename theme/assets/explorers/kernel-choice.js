// Which kernel of SDPA takes a call, and why the others refuse. The conditions come with the page.

"use strict"; {

customElements.define("kernel-choice", class extends Explorer {
  start() {
    const { orders, rules } = JSON.parse(this.querySelector("script").textContent)
    Object.assign(this, { orders, rules })
    this.rows = [...this.querySelectorAll("tbody tr")]
    this.kernels = this.rows.map(({ dataset }) => dataset.kernel)
  }

  // Of each kernel what it asks for in vain, and 1 if it takes the call, 0 if it refuses, -1 if it is not tried.
  compute(state) {
    const tried = this.orders[state.device]
    const broken = this.rules.filter(([, , when]) => Object.entries(when).every(([name, values]) => values.includes(state[name])))
    const reasons = this.kernels.map(kernel => broken.filter(([one]) => one === kernel).map(([, why]) => why))
    const runs = this.kernels.map((kernel, i) => tried.includes(kernel) ? Number(!reasons[i].length) : -1)
    return { reasons, runs }
  }

  show({ reasons, runs }) {
    const words = this.querySelector("tbody").dataset
    const chosen = runs.indexOf(1)
    this.rows.forEach((row, i) => {
      const kind = runs[i] < 0 ? "untried" : !runs[i] ? "refused" : i === chosen ? "chosen" : "could"
      const [verdict, why] = row.querySelectorAll("td")
      row.className = kind
      verdict.textContent = { untried: "", refused: words.refuses, chosen: words.runs, could: words.could }[kind]
      why.textContent = kind === "untried" ? "" : reasons[i].join("; ") || (this.kernels[i] === "math" ? words.stores : "")
    })
    const name = this.kernels[chosen]
    this.said = filled(this.status.dataset[name === "math" ? "math" : "says"], { name })
  }
})

}
