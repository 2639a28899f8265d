// The code of a page, line by line: which shape does each step give, and what does torch say where two do not fit?
// torch itself was asked, for every choice that a reader has; the page brings its answers along.

"use strict"; {

const MARK = "  # " // between the code of a line and the letters of its shape
const [UNIT, SHEET, GAP, LETTER, LINE] = [4, 4, 6, 7, 16] // of a drawn box: a number, an item, between two heads; its labels

// Columns go right and rows go down, heads stand side by side and items behind one another.
function draw(svg, sizes, letters) {
  const labels = sizes.map((size, axis) => letters[axis] === `${size}` ? letters[axis] : `${letters[axis]} ${size}`)
  const [width, height] = [sizes.at(-1), sizes.at(-2)].map(size => UNIT * size)
  const [items, heads] = [sizes.length > 2 ? sizes[0] : 1, sizes.length > 3 ? sizes[1] : 1]
  const behind = SHEET * (items - 1)
  const top = LINE + behind
  const starts = [...Array(heads).keys()].map(head => head * (width + GAP))
  const right = starts.at(-1) + width + behind + LETTER
  const sheets = [...Array(items).keys()].slice(1).reverse()
  const edges = sheets.flatMap(item => starts.map(x =>
    `M${x + SHEET * item} ${top - SHEET * (item - 1)}v-${SHEET}h${width}v${height}h-${SHEET}`))
  const fronts = starts.map(x => `M${x} ${top}h${width}v${height}h-${width}z`)
  svg.querySelectorAll("path").forEach((path, i) => path.setAttribute("d", [edges, fronts][i].join("")))
  const [columns, rows, ...others] = labels.toReversed()
  const texts = [
    [0, top + height + LINE, columns],
    [right, top + height / 2 + 6, rows],
    [0, LINE - SHEET, others[1] && others[0]],
    [right, LINE - SHEET, others.at(-1)],
  ]
  svg.querySelectorAll("text").forEach((text, i) => {
    const [x, y, label = ""] = texts[i]
    text.setAttribute("x", x)
    text.setAttribute("y", y)
    text.textContent = label
  })
  const size = [LETTER + Math.max(...texts.map(([x, , label = ""]) => x + LETTER * label.length)), top + height + LINE + SHEET]
  svg.setAttribute("width", size[0])
  svg.setAttribute("height", size[1])
  svg.setAttribute("viewBox", `-1 0 ${size.join(" ")}`)
}

customElements.define("shape-tracer", class extends Explorer {
  start() {
    this.rows = [...this.querySelectorAll("tbody tr")]
    this.lines = this.rows.map(row => row.querySelector("code").textContent)
    this.cases = JSON.parse(this.querySelector("script").textContent)
  }

  compute({ sizes, line }) {
    return this.cases[`${sizes} ${line}`]
  }

  // The code of a state: one line may stand in the place of another.
  written(chosen) {
    const [option] = [...this.form.elements.line.options].filter(({ value }) => value === chosen)
    const [code] = option.textContent.split(MARK)
    return this.lines.map((line, i) => i === parseInt(chosen) - 1 ? code : line)
  }

  show({ steps, letters, error }, { line }) {
    const written = this.written(line)
    this.rows.forEach((row, i) => {
      const [code, trail, raised] = row.querySelectorAll("code, samp, strong")
      code.textContent = written[i]
      trail.textContent = steps[i] ?? ""
      raised.textContent = i === steps.length - 1 ? error : ""
      row.classList.toggle("changed", i === parseInt(line) - 1)
      row.classList.toggle("stopped", letters[i] === undefined)
      row.querySelector("span").textContent = letters[i] ? `(${letters[i]})` : ""
      if (letters[i]) draw(row.querySelector("svg"), last(steps[i]), letters[i].split(", "))
    })
    const { says, raises, passes } = this.status.dataset
    const sentence = error ? raises : line === "0" ? says : passes
    const shape = `(${last(steps.at(-1)).join(", ")})`
    this.said = filled(sentence, { step: steps.length, message: error, shape })
  }
})

// The sizes of the last shape of a step.
function last(step) {
  return step.slice(step.lastIndexOf("(") + 1, -1).split(", ").map(Number)
}

}
