// One query and five keys in the plane, which are the values, too: drag them, and see what the query takes from each.

"use strict"; {

const { fround } = Math
const UNIT = 100 // of the picture; there y grows downwards
const EDGE = 2
const THICKEST = 16
const KEYS = ["k0", "k1", "k2", "k3", "k4"]

const place = ([x, y]) => [UNIT * x, -UNIT * y].map(at => at.toFixed(1))

function lead(line, from, to) {
  ["x1", "y1", "x2", "y2"].forEach((name, i) => line.setAttribute(name, [...place(from), ...place(to)][i]))
}

customElements.define("one-query", class extends Explorer {
  start() {
    this.plane = this.querySelector("svg")
    for (const point of this.querySelectorAll("[data-drag]")) {
      point.addEventListener("touchstart", event => event.preventDefault()) // or the page would scroll under the finger
      point.addEventListener("pointerdown", event => point.setPointerCapture(event.pointerId))
      point.addEventListener("pointermove", event => point.hasPointerCapture(event.pointerId) && this.move(point, event))
      point.addEventListener("pointerup", () => this.share())
      point.addEventListener("pointercancel", () => this.cancel())
    }
  }

  move({ dataset }, { clientX, clientY }) {
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(this.plane.getScreenCTM().inverse())
    for (const [axis, at] of [["x", x / UNIT], ["y", -y / UNIT]]) {
      const inside = Math.max(-EDGE, Math.min(EDGE, at))
      this.form.elements[dataset.point + axis].value = (Math.round(10 * inside) / 10 + 0).toFixed(1) // 0.0, not -0.0
    }
    this.update()
  }

  compute(state) {
    const [query, ...values] = kernel.float32(["q", ...KEYS].map(name => [state[`${name}x`], state[`${name}y`]]))
    const temperature = fround(2 ** state.temperature)
    const [scores] = kernel.scores([query], values)
    const scaled = scores.map(score => fround(score / temperature))
    const weights = kernel.softmax(scaled)
    const [context] = kernel.mix([weights], values)
    const entropy = kernel.add(weights.map(weight => weight && fround(-weight * fround(Math.log(weight)))))
    return { query, values, temperature, scores, scaled, weights, context, entropy, equals: fround(Math.exp(entropy)) }
  }

  show({ query, values, temperature, scores, scaled, weights, context, entropy, equals }) {
    const summary = [entropy, equals]
    this.label(this.form.elements.temperature, printed(temperature))
    for (const [name, numbers] of Object.entries({ scores, scaled, weights, context, summary })) this.fill(name, numbers)
    const at = (kind, name) => this.plane.querySelector(`[data-${kind}=${name}]`)
    const points = [["q", query], ["c", context], ...KEYS.map((key, i) => [key, values[i]])]
    for (const [name, point] of points) at("point", name).setAttribute("transform", `translate(${place(point).join(" ")})`)
    lead(at("line", "q"), [0, 0], query)
    KEYS.forEach((key, i) => {
      lead(at("line", key), context, values[i])
      at("line", key).setAttribute("stroke-width", (THICKEST * weights[i]).toFixed(1))
    })
    this.said = this.words({ x: printed(context[0]), y: printed(context[1]), entropy: printed(entropy), equals: printed(equals) })
  }
})

}
