// The rows of a fused matrix, as a checkpoint stores them and as a program takes them for queries, keys and values.
// torch has cut them, for every choice that a reader has; the page brings along what it found.

"use strict"; {

const [TOP, STEP, GAP] = [36, 11, 10] // of the rows that a program takes: where they begin, a row, and what parts the roles
const HALF = 5 // of the height of a row

const roleOf = (row, [queries, keys]) => row < queries ? 0 : row < queries + keys ? 1 : 2

customElements.define("qkv-rows", class extends Explorer {
  start() {
    this.cases = JSON.parse(this.querySelector("script").textContent)
    this.rows = [...this.querySelectorAll(".row")]
    this.names = [...this.querySelectorAll(".name")]
    this.roles = [...this.querySelectorAll(".role")]
    this.cells = [...this.querySelectorAll("td")]
    this.byView = [...this.form.elements.cut.options].at(-1)
    this.chosen = [...this.querySelectorAll(".chosen")]
  }

  compute({ stored, cut }) {
    const chosen = this.cases[`${stored} ${cut}`]
    const { places, slots, wrong, taken, gaps } = chosen
    return { chosen, places, slots, wrong, taken, gaps }
  }

  show({ chosen: { names, sizes, view, lands, error }, places, slots, wrong, taken, gaps: [gap] }) {
    const D = places.length / names.length
    const left = places.map(place => TOP + GAP + STEP * place)
    const right = slots.map(slot => TOP + GAP * roleOf(slot, taken) + STEP * slot)
    const tint = row => `${"qkv"[roleOf(row, sizes)]}${Math.floor(row / D) % 2}` // of the role and the head of a row
    const choices = [this.form.elements.stored, this.form.elements.cut]
    this.byView.textContent = view
    this.chosen.forEach((text, i) => { text.textContent = choices[i].selectedOptions[0].text })
    this.rows.forEach((row, i) => {
      const [line, stored, landed] = row.children
      row.setAttribute("class", `row ${tint(i)}${wrong[i] ? " wrong" : ""}`)
      line.setAttribute("d", `M106 ${left[i] + HALF}L182 ${right[i] + HALF}`)
      stored.setAttribute("y", left[i])
      landed.setAttribute("y", right[i])
    })
    this.names.forEach((name, i) => this.write(name, names[i], i * D, D, { left, right, wrong, tint }))
    taken.reduce((start, count, i) => {
      this.roles[i].setAttribute("y", TOP + 6 + GAP * i + STEP * (start + count / 2))
      return start + count
    }, 0)

    const count = `${wrong.filter(Boolean).length} / ${wrong.length}`
    const { none, raises, says } = this.status.dataset
    const where = lands.join(", ") || none
    const texts = [taken.join(", "), count, where, error || printed(gap)]
    this.cells.forEach((cell, i) => { cell.textContent = texts[i] })
    this.cells.at(-1).className = lands.length ? "odd" : ""
    this.said = filled(error ? raises : says, { count, where, error, gap: printed(gap ?? 0) })
  }

  // The name of a head stands in the middle of its rows, on both sides; here some numbers of heads have no rows.
  write(name, text, first, D, { left, right, wrong, tint }) {
    const [one, other] = [first + Math.floor((D - 1) / 2), first + Math.floor(D / 2)]
    const [stored, landed, cross] = name.children
    const baseline = (places, below) => text ? (places[one] + places[other]) / 2 + below : 0
    name.setAttribute("class", `name ${tint(first)}${wrong.slice(first, first + D).includes(1) ? " wrong" : ""}`)
    stored.textContent = landed.textContent = text ?? ""
    stored.setAttribute("y", baseline(left, 10))
    landed.setAttribute("y", baseline(right, 10))
    cross.setAttribute("y", baseline(right, 11))
  }
})

}
