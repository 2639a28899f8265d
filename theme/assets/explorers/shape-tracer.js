// The code of a page, line by line: which shape does each step give, and what does torch say where two do not fit?
// What computes it comes when a reader first changes something: until then the page shows the first state, as it was sent.

"use strict"; {

const MARK = "  # " // between the code of a line and the letters of its shape
const { src } = document.currentScript

customElements.define("shape-tracer", class extends Explorer {
  start() {
    this.rows = [...this.querySelectorAll("tbody tr")]
    this.lines = this.rows.map(row => [row.querySelector("code").textContent, row.querySelector("td span").textContent.slice(1, -1)])
    for (const event of ["focusin", "pointerover"]) this.addEventListener(event, this.load, { once: true })
  }

  load() {
    this.loaded ??= new Promise(resolve => {
      const script = document.createElement("script")
      script.src = new URL("shapes.js", src)
      script.onload = resolve
      document.head.append(script)
    })
    return this.loaded
  }

  update() {
    if (globalThis.shapes) {
      super.update()
    } else if (Object.entries(this.state).some(([name, value]) => this.first[name] !== value)) {
      this.load().then(() => {
        this.update()
        this.say()
      })
    }
  }

  // The lines of a state: one may stand in the place of another.
  written(chosen) {
    const [option] = [...this.form.elements.line.options].filter(({ value }) => value === chosen)
    const [code, letters] = option.textContent.split(MARK)
    return this.lines.map((line, i) => i === parseInt(chosen) - 1 ? [code, letters?.slice(1, -1) ?? line[1]] : line)
  }

  compute({ line, ...chosen }) {
    const given = Object.fromEntries(Object.entries(chosen).map(([name, value]) => [name, Number(value)]))
    const { E, H, out_width } = given
    return shapes.trace(this.written(line), { width: E, num_heads: H, D: Math.floor(out_width / H), ...given })
  }

  show({ steps, error }, { line }) {
    for (const slider of this.querySelectorAll("[type=range]")) slider.nextElementSibling.textContent = slider.value
    const written = this.written(line)
    this.rows.forEach((row, i) => {
      const { trail = [], sizes, letters } = steps[i] ?? {}
      const [code, trailed, raised] = row.querySelectorAll("code, samp, strong")
      code.textContent = written[i][0]
      trailed.textContent = trail.join(" ")
      raised.textContent = i === steps.length - 1 ? error : ""
      row.classList.toggle("changed", i === parseInt(line) - 1)
      row.classList.toggle("stopped", !sizes)
      row.querySelector("span").textContent = letters?.length ? shapes.shape(letters) : ""
      if (letters?.length) shapes.draw(row.querySelector("svg"), sizes, letters)
    })
    const { says, raises, passes } = this.status.dataset
    const sentence = error ? raises : line === "0" ? says : passes
    this.said = filled(sentence, { step: steps.length, message: error, shape: shapes.shape(steps.at(-1).sizes ?? []) })
  }
})

}
