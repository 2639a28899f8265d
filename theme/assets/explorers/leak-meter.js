// A token is nudged: which rows of a module move? Torch has measured it; each bug has its numbers, times 10 000.

"use strict"; {

const measured = text => text ? text.split(" ").map(number => number / 1e4) : []
const count = (meters, fault) => meters.flatMap(meter => meter[fault]).filter(Boolean).length
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Enter: [0, 0], " ": [0, 0] }
const NUMBERS = "tbody td:not([data-shows])"
const EFFECTS = { moves: "tr.moves", leak: "tr > .leak:last-child", lost: "tr > .lost:last-child" }

customElements.define("leak-meter", class extends Explorer {
  start() {
    this.bugs = this.form.elements.bug
    this.tables = [...this.querySelectorAll("table:has([name=token])")]
    this.folded = this.querySelector("details")
    this.summary = this.querySelector("summary")
    this.link = this.querySelector("a")
    for (const table of this.tables) {
      table.role = "grid" // its numbers are walked through with the arrow keys; the Tab key stops once
      table.querySelector(NUMBERS).tabIndex = 0
    }
    this.addEventListener("click", ({ target }) => target.matches(NUMBERS) && this.tell(target))
    this.addEventListener("keydown", event => this.walk(event))
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
    const { none, says, unseen } = this.status.dataset
    const probes = dataset.probes || none
    Object.assign(this.link, this.museum, room.label && { hash: room.dataset.room, textContent: filled(room.dataset.says, { bug: label }) })
    if (this.folded.querySelector(":checked")) this.folded.open = true

    const faults = parts => Object.fromEntries(["leaks", "lost", "nan", "raised"].map(fault => [fault, count(parts, fault)]))
    const [first, ...rest] = Object.values(meters)
    const others = filled(this.summary.dataset.says, faults(rest))
    this.summary.textContent = others
    const nudged = this.nudged(this.querySelector(`[data-shows=${name}]`), Number(place))
    const rows = Object.fromEntries(Object.entries(EFFECTS).map(([effect, shown]) => [effect, this.rows(shown)]))
    const right = !Object.values(faults([first, ...rest])).some(Boolean)
    this.said = filled(right ? unseen : says, { bug: label, nudged, ...rows, probes, others })
  }

  walk(event) {
    const step = event.target.matches(NUMBERS) && STEPS[event.key]
    if (!step) return
    const { cellIndex, parentElement: { sectionRowIndex, parentElement: { rows } } } = event.target
    const next = rows[sectionRowIndex + step[0]]?.cells[cellIndex + step[1]]
    event.preventDefault()
    if (next?.matches(NUMBERS)) this.tell(next)
  }

  // What a number says: of which bug, which call, which token and which row, and whether it may be so.
  tell(cell) {
    const [row, table, place] = [cell.parentElement, cell.closest("table"), cell.cellIndex - 1]
    table.querySelector("td[tabindex]").removeAttribute("tabindex")
    cell.tabIndex = 0
    cell.focus()
    const { moved, leaks, lost } = this.compute(this.state).meters[table.dataset.shows]
    const i = row.sectionRowIndex * table.querySelectorAll("input").length + place
    const number = moved[i]
    const { dataset } = this.status
    const verdict = number === undefined ? "raises" : Number.isNaN(number) ? "isNan" : leaks[i] ? "leaks" : lost[i] ? "misses" : "fits"
    const said = filled(dataset[verdict], { number: printed(number ?? NaN) })
    const bug = this.bugs.value === "none" ? this.bugs.selectedOptions[0].label : this.link.textContent
    this.status.textContent = filled(dataset.reading, { bug, nudged: this.nudged(table, place), where: this.named([row]), verdict: said })
  }

  nudged(table, place) {
    const { textContent: token } = table.querySelectorAll("thead th")[place]
    return filled(this.status.dataset.nudge, { call: table.caption.textContent, place, token })
  }

  // The rows of which something is shown.
  rows(shown) {
    return this.named([...this.querySelectorAll(shown)].map(part => part.closest("tr")))
  }

  // A meter; where its token at that place is chosen, each row says what it does.
  meter(table, { moved, leaks, lost }, place) {
    if (moved.length) this.fill(table.dataset.shows, moved)
    const width = table.querySelectorAll("input").length
    table.querySelectorAll(NUMBERS).forEach((cell, i) => {
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
