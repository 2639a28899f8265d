// The code of a page, line by line: which shape does each step give, and what does torch say where two do not fit?
// torch itself was asked, for every choice that a reader has; the page brings its answers along.

"use strict"; {

const MARK = "  # " // between the code of a line and the letters of its shape
const [UNIT, SHEET, GAP] = [2, 2, 3] // of a drawn box: a number, an item, between two heads

// Columns go right and rows go down, heads stand side by side and items behind one another.
function draw(svg, sizes) {
  const [width, height] = [sizes.at(-1), sizes.at(-2)].map(size => UNIT * size)
  const [items, heads] = [sizes.length > 2 ? sizes[0] : 1, sizes.length > 3 ? sizes[1] : 1]
  const behind = SHEET * (items - 1)
  const starts = [...Array(heads).keys()].map(head => head * (width + GAP))
  const sheets = [...Array(items).keys()].slice(1).reverse()
  const edges = sheets.flatMap(item => starts.map(x =>
    `M${x + SHEET * item} ${behind - SHEET * (item - 1)}v-${SHEET}h${width}v${height}h-${SHEET}`))
  const fronts = starts.map(x => `M${x} ${behind}h${width}v${height}h-${width}z`)
  svg.querySelectorAll("path").forEach((path, i) => path.setAttribute("d", [edges, fronts][i].join("")))
  const size = [starts.at(-1) + width + behind + 2, height + behind + 2]
  svg.setAttribute("width", size[0])
  svg.setAttribute("height", size[1])
  svg.setAttribute("viewBox", `-1 -1 ${size.join(" ")}`)
}

// (B 2, T 6, 15): a letter with its size, or the size alone where the letter of the page is not true.
function named(letters, sizes) {
  const names = letters.split(", ").map((letter, i) => letter === String(sizes[i]) ? letter : `${letter} ${sizes[i]}`)
  return `(${names.join(", ")})`
}

customElements.define("shape-tracer", class extends Explorer {
  start() {
    this.rows = [...this.querySelectorAll("tbody tr")]
    this.lines = this.rows.map(row => row.querySelector("code").textContent)
    this.cases = JSON.parse(this.querySelector("script").textContent)
    this.asWritten = this.compute(this.state)
    this.template = this.querySelector("template")
  }

  // Before a line that stands in the place of another, all is as it would be without.
  compute({ sizes, line }) {
    const [written, traced] = ["0", line].map(chosen => this.cases[`${sizes} ${chosen}`])
    if (line === "0") return written
    const whole = name => [...written[name].slice(0, parseInt(line) - 1), ...traced[name]]
    return { steps: whole("steps"), letters: whole("letters"), error: traced.error }
  }

  // The code of a state: one line may stand in the place of another.
  written(chosen) {
    const [option] = [...this.form.elements.line.options].filter(({ value }) => value === chosen)
    const [code] = option.textContent.split(MARK)
    return this.lines.map((line, i) => i === parseInt(chosen) - 1 ? code : line)
  }

  show(traced, { line }) {
    const { steps, letters, error } = traced
    const written = this.written(line)
    this.rows.forEach((row, i) => {
      const [code, shape, trail, raised] = row.querySelectorAll("code, span, samp, strong")
      const step = steps[i] ?? ""
      const failed = i === steps.length - 1 && error
      code.textContent = written[i]
      shape.textContent = letters[i] ? named(letters[i], last(step)) : ""
      trail.textContent = failed || step.includes(") ") ? step : ""
      raised.textContent = failed || ""
      row.classList.toggle("changed", i === parseInt(line) - 1)
      row.classList.toggle("stopped", letters[i] === undefined)
      if (letters[i]) draw(row.querySelector("svg"), last(step))
    })
    this.fold(this.rows.map((_, i) => {
      if (traced === this.asWritten) return ""
      if (i >= steps.length) return "unrun"
      return [[steps, this.asWritten.steps], [letters, this.asWritten.letters], [written, this.lines]]
        .every(([ours, theirs]) => ours[i] === theirs[i]) ? "same" : ""
    }))
    const { says, raises, passes } = this.status.dataset
    const sentence = error ? raises : line === "0" ? says : passes
    const shape = `(${last(steps.at(-1)).join(", ")})`
    this.said = filled(sentence, { step: steps.length, message: error, shape })
  }

  // Of steps in a row that a choice leaves as they were, or does not reach, one line remains, which opens.
  fold(kinds) {
    this.querySelectorAll(".fold").forEach(line => line.remove())
    this.rows.forEach(row => { row.hidden = false })
    for (let start = 0, end; start < kinds.length; start = end) {
      for (end = start + 1; kinds[end] === kinds[start];) end++
      if (kinds[start] && end - start > 1) this.foldInto(kinds[start], this.rows.slice(start, end))
    }
  }

  foldInto(kind, rows) {
    const line = this.template.content.firstElementChild.cloneNode(true)
    const button = line.querySelector("button")
    const open = opened => {
      button.ariaExpanded = opened
      rows.forEach(row => { row.hidden = !opened })
    }
    button.textContent = filled(this.template.dataset[kind], { steps: rows.length })
    button.addEventListener("click", () => open(button.ariaExpanded === "false"))
    open(false)
    rows[0].before(line)
  }

  // What is announced is brought into view, too: the step that fails, below the controls.
  say() {
    super.say()
    const failed = this.querySelector("tr:has(strong:not(:empty))")
    if (!failed) return
    failed.style.scrollMarginTop = `${this.querySelector(".bar").offsetHeight}px`
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches
    failed.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "nearest" })
  }
})

// The sizes of the last shape of a step.
function last(step) {
  return step.slice(step.lastIndexOf("(") + 1, -1).split(", ").map(Number)
}

}
