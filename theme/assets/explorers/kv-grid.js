// The grid of a KV cache: which scores a call computes, without a cache and with one, and what a rule for the mask lets through.

"use strict"; {

const ageOf = (place, start, end) => place < start ? "old" : place < end ? "now" : ""

// What a query sees of a key, where its row has a 1 for each key that it sees.
function kind(query, key, row) {
  const isSeen = row[key] === "1"
  if (key > query) return isSeen ? " leak" : " masked"
  return isSeen ? "" : " lost"
}

customElements.define("kv-grid", class extends Moving {
  start() {
    super.start()
    this.grids = [...this.querySelectorAll(".grid")].map(grid => ["b", "span", "i"].map(part => grid.querySelectorAll(part)))
    this.found = this.querySelectorAll(".found")
  }

  show(numbers, state) {
    super.show(numbers, state)
    this.said += ` ${[...this.found].map(({ textContent }) => textContent).join(", ")}`
  }

  draw(frame, { seen, frames }, { rule }) {
    const [start, end, anew, leaks, lost, gap] = frames[frame]
    const rows = seen.split(" ")
    this.paint(this.grids[0], rows.map((_, query) => "1".repeat(query + 1).padEnd(end, "0")), 0, end)
    this.paint(this.grids[1], rows, start, end)
    this.querySelectorAll(".stage p b").forEach((shown, i) => { shown.textContent = [end, anew, end - start, end][i] })
    this.found.forEach((found, i) => {
      const number = [leaks, lost, gap][i]
      found.classList.toggle("off", number > 0)
      found.querySelector("b").textContent = i < 2 ? number : printed(number)
    })
    this.querySelectorAll("tbody tr").forEach((row, i) => row.classList.toggle("chosen", Object.keys(this.cases)[i] === rule))
  }

  paint([keys, [, ...queries], cells], rows, start, end) {
    keys.forEach((key, place) => { key.className = ageOf(place, start, end) })
    queries.forEach((query, place) => { query.className = ageOf(place, start, end) })
    cells.forEach((cell, i) => {
      const [query, key] = [Math.floor(i / rows.length), i % rows.length]
      const age = key < rows[query].length && ageOf(query, start, end)
      cell.className = age ? age + kind(query, key, rows[query]) : ""
    })
  }
})

}
