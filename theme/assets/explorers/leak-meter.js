// A token is nudged: which rows of a module move? Torch has measured it; each bug has its numbers, times 10 000.

"use strict"; {

const METERS = ["causal", "padding", "cross", "cache"]
const measured = text => text ? text.split(" ").map(number => number / 1e4) : []
const count = (meters, fault) => meters.flatMap(meter => meter[fault]).filter(Boolean).length

customElements.define("leak-meter", class extends Explorer {
  start() {
    this.bugs = this.form.elements.bug
  }

  // A bug without numbers of its own has those of no bug. A call without any numbers raises.
  compute({ bug }) {
    const [right] = this.bugs.options
    const chosen = [...this.bugs.options].find(({ value }) => value === bug)
    const meters = Object.fromEntries(METERS.map(name => {
      const wanted = measured(right.dataset[name])
      const moved = measured(chosen.dataset[name] ?? right.dataset[name])
      return [name, {
        moved,
        leaks: moved.map((number, i) => number > 0 && !wanted[i]),
        lost: moved.map((number, i) => number === 0 && wanted[i] > 0),
        nan: moved.map(Number.isNaN),
        raised: [!moved.length],
      }]
    }))
    return { meters }
  }

  show({ meters }, { token }) {
    METERS.forEach(name => this.meter(name, meters[name]))
    const { selectedOptions: [{ label, dataset }] } = this.bugs
    const { none, unseen, says } = this.status.dataset
    const probes = dataset.probes || none
    const verdict = [label, probes, dataset.number]
    this.querySelectorAll("[data-shows=verdict] td").forEach((cell, i) => { cell.textContent = verdict[i] })
    const [leaks, lost, nan, raised] = ["leaks", "lost", "nan", "raised"].map(fault => count(Object.values(meters), fault))
    const nudged = this.querySelector(`[value="${token}"]`).ariaLabel
    const rows = this.rows(meters, token) || none
    this.said = filled(leaks + lost + nan + raised ? says : unseen, { bug: label, nudged, rows, leaks, lost, nan, raised, probes })
  }

  meter(name, { moved, leaks, lost }) {
    if (moved.length) this.fill(name, moved)
    this.querySelectorAll(`[data-shows=${name}] tbody td`).forEach((cell, i) => {
      if (!moved.length) [cell.textContent, cell.className] = ["–", "nil"]
      if (leaks[i]) cell.classList.add("leak")
      if (lost[i]) cell.classList.add("lost")
    })
  }

  // The rows that move with a token.
  rows(meters, token) {
    const [name, place] = token.split("-")
    const { moved } = meters[name]
    const width = this.querySelectorAll(`[data-shows=${name}] input`).length
    return moved.filter((_, i) => i % width === Number(place)).flatMap((number, i) => number > 0 ? [i] : []).join(", ")
  }
})

}
