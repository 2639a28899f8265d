// Which key head each query head reads, in the order of torch and in tiles, and how many numbers that takes.
// How far a tiled order is from SDPA with enable_gqa=True comes with the page.

"use strict"; {

const [LEFT, STEP] = [21, 42] // of the query heads in the picture
const [FOOT, TOP] = [44, 106] // of the lines

const thousands = number => String(number).replace(/\B(?=(\d{3})+$)/g, "\u00a0")

customElements.define("grouped-heads", class extends Explorer {
  start() {
    Object.assign(this, JSON.parse(this.querySelector("script").textContent))
    this.lines = [...this.querySelectorAll("path")]
    this.queries = [...this.querySelectorAll(".query")]
    this.keys = [...this.querySelectorAll(".key")]
    this.cells = [...this.querySelectorAll("td")]
  }

  compute({ doublings, order }) {
    const { H, D, gaps } = this
    const Hkv = 2 ** Number(doublings)
    const right = this.queries.map((_, h) => Math.floor(h * Hkv / H))
    const reads = order === "repeat" ? right.map((_, h) => h % Hkv) : right
    const width = H * D // of the inputs
    return { Hkv, right, reads, cached: 2 * Hkv * D, shared: 2 * Hkv * D * width, own: 2 * H * D * width, gap: gaps[`${doublings} ${order}`] }
  }

  show({ Hkv, right, reads, cached, shared, own, gap }) {
    const { H } = this
    const name = { 1: "MQA", [H]: "MHA" }[Hkv] ?? "GQA"
    const middle = j => j < Hkv ? STEP * H * (2 * j + 1) / (2 * Hkv) : LEFT + STEP * j
    this.label(this.form.elements.doublings, `${Hkv} (${name})`)
    reads.forEach((j, h) => {
      const kind = j === right[h] ? "right" : "wrong"
      this.lines[h].setAttribute("class", kind)
      this.lines[h].setAttribute("d", `M${LEFT + STEP * h} ${FOOT}L${middle(j)} ${TOP}`)
      this.queries[h].setAttribute("class", `query ${kind}`)
    })
    this.keys.forEach((key, j) => {
      key.setAttribute("transform", `translate(${middle(j)} 0)`)
      key.setAttribute("visibility", j < Hkv ? "visible" : "hidden")
    })
    const texts = [reads.join(" "), cached, thousands(shared), thousands(own), printed(gap)]
    this.cells.forEach((cell, i) => { cell.textContent = texts[i] })
    this.cells.at(-1).className = gap > 1e-4 ? "odd" : ""
    this.said = this.words({ name, count: Hkv, cached, wrong: reads.filter((j, h) => j !== right[h]).length })
  }
})

}
