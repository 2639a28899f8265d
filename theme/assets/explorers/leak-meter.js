// A token is nudged: which rows of a module move? Torch has measured it; each bug has its numbers, times 10 000.

"use strict"; {

const measured = text => text ? text.split(" ").map(number => number / 1e4) : []
const count = (meters, fault) => meters.flatMap(meter => meter[fault]).filter(Boolean).length
const EFFECTS = { moves: "tr.moves", leak: "tr > .leak:last-child", lost: "tr > .lost:last-child" }

customElements.define("leak-meter", class extends Explorer {
  start() {
    this.bugs = this.form.elements.bug
    this.tables = [...this.querySelectorAll("table:has([name=token])")]
    this.folded = this.querySelector("details")
    this.summary = this.querySelector("summary")
    this.link = this.querySelector("a")
    this.museum = { href: this.link.href, textContent: this.link.textContent }
  }

  // A bug without numbers of its own has those of no bug. A call without any numbers raises.
  compute({ bug }) {
    const [right] = this.bugs.options
    const chosen = [...this.bugs.options].find(({ value }) => value === bug)
    const meters = Object.fromEntries(this.tables.map(({ dataset: { shows } }) => {
      const wanted = measured(right.dataset[shows])
      const moved = measured(chosen.dataset[shows] ?? right.dataset[shows])
      return [shows, {
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
    const [name, place] = token.split("-")
    this.tables.forEach(table => this.meter(table, meters[table.dataset.shows], table.dataset.shows === name ? Number(place) : NaN))
    const { selectedOptions: [{ label, dataset, parentElement: room }] } = this.bugs
    const { none, nudge, says, unseen } = this.status.dataset
    const probes = dataset.probes || none
    Object.assign(this.link, this.museum, room.label && { hash: room.dataset.room, textContent: filled(room.dataset.says, { bug: label }) })
    if (this.folded.querySelector(":checked")) this.folded.open = true

    const faults = parts => Object.fromEntries(["leaks", "lost", "nan", "raised"].map(fault => [fault, count(parts, fault)]))
    const [first, ...rest] = Object.values(meters)
    const others = filled(this.summary.dataset.says, faults(rest))
    this.summary.textContent = others
    const [{ labels: [chosen] }] = this.querySelectorAll("[name=token]:checked")
    const call = chosen.closest("table").caption.textContent
    const nudged = filled(nudge, { call, place, token: chosen.textContent })
    const rows = Object.fromEntries(Object.entries(EFFECTS).map(([effect, shown]) => [effect, this.rows(shown)]))
    const right = !Object.values(faults([first, ...rest])).some(Boolean)
    this.said = filled(right ? unseen : says, { bug: label, nudged, ...rows, probes, others })
  }

  // The rows of which something is shown.
  rows(shown) {
    return this.named([...this.querySelectorAll(shown)].map(part => part.closest("tr")))
  }

  // A meter; where its token at that place is chosen, each row says what it does.
  meter(table, { moved, leaks, lost }, place) {
    if (moved.length) this.fill(table.dataset.shows, moved)
    const width = table.querySelectorAll("input").length
    table.querySelectorAll("tbody td:not([data-shows])").forEach((cell, i) => {
      if (!moved.length) [cell.textContent, cell.className] = ["–", "nil"]
      if (leaks[i]) cell.classList.add("leak")
      if (lost[i]) cell.classList.add("lost")
    })
    table.querySelectorAll("[data-shows=effect]").forEach((cell, row) => {
      const i = row * width + place
      const effect = leaks[i] ? "leak" : lost[i] ? "lost" : moved[i] > 0 ? "moves" : ""
      cell.textContent = this.status.dataset[effect] ?? ""
      cell.className = effect
      cell.parentElement.className = moved[i] > 0 ? "moves" : ""
    })
  }
})

}
