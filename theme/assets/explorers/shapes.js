// Shapes in place of tensors: what each line of a program gives, what torch says where two do not fit, and boxes.

"use strict"; {

const [UNIT, SHEET, GAP, LETTER, LINE] = [4, 4, 6, 7, 16] // of a drawn box: a number, an item, between two heads; its labels

const product = sizes => sizes.reduce((one, other) => one * other, 1)
const shape = sizes => `(${sizes.join(", ")})`

function refuse(error) {
  throw new Error(`RuntimeError: ${error}`)
}

function broadcast(one, other) {
  const axes = Math.max(one.length, other.length)
  const [a, b] = [one, other].map(sizes => [...Array(axes - sizes.length).fill(1), ...sizes])
  const axis = a.findLastIndex((size, i) => size !== b[i] && size !== 1 && b[i] !== 1)
  if (axis >= 0) refuse(`The size of tensor a (${a[axis]}) must match the size of tensor b (${b[axis]}) at non-singleton dimension ${axis}`)
  return a.map((size, i) => size === 1 ? b[i] : size)
}

function matmul(left, right) {
  const [lead, [width, columns]] = [left.slice(0, -1), right.slice(-2)]
  const met = left.at(-1)
  if (right.length === 2) {
    if (met !== width) refuse(`mat1 and mat2 shapes cannot be multiplied (${product(lead)}x${met} and ${width}x${columns})`)
    return [...lead, columns]
  }
  const items = broadcast(lead.slice(0, -1), right.slice(0, -2))
  const [many, rows] = [product(items), lead.at(-1)]
  if (met !== width) refuse(`Expected size for first two dimensions of batch2 tensor to be: [${many}, ${met}] but got: [${many}, ${width}].`)
  return [...items, rows, columns]
}

function reshape(sizes, wanted) {
  const [all, known] = [product(sizes), Math.abs(product(wanted))]
  const rest = wanted.includes(-1) ? all / known : 1
  if (!Number.isInteger(rest) || rest * known !== all) refuse(`shape '[${wanted.join(", ")}]' is invalid for input of size ${all}`)
  return wanted.map(size => size === -1 ? rest : size)
}

// A view cannot join two axes that have changed places; an axis of size 1 has no place.
function view(sizes, wanted) {
  const seen = reshape(sizes, wanted)
  if (sizes.turned && !sizes.slice(1).includes(1)) {
    refuse("view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.")
  }
  return seen
}

const operations = {
  view,
  reshape,
  transpose: ([first, one, other, ...others]) => Object.assign([first, other, one, ...others], { turned: true }),
  flatten: ([one, other, ...others]) => [one, other, product(others)],
  masked_fill: (sizes, _, [mask]) => broadcast(mask, sizes),
  new_ones: (_, wanted) => wanted,
  mT: sizes => sizes.with(-1, sizes.at(-2)).with(-2, sizes.at(-1)),
  T: sizes => sizes.toReversed(),
  contiguous: sizes => [...sizes],
  softmax: sizes => sizes,
  triu: sizes => sizes,
}

function index(sizes, entries) {
  const left = [...sizes]
  return entries.split(", ").map(entry => entry === "None" ? 1 : left.shift())
}

// Runs lines with sizes in place of tensors. `trail` has the shapes of a line, up to where torch raises.
class Program {
  constructor(sizes) {
    this.sizes = sizes
    this.tensors = {}
  }

  numbers(text) {
    const sizes = text.split(", ").map(entry => product(entry.split(" * ").map(part => this.sizes[part] ?? Number(part))))
    return sizes.filter(Number.isFinite)
  }

  take([code, letters], trail) {
    const [, number, divisor, error] = code.match(/^if (\w+) % (\w+): raise ValueError\(f"(.*)"\)$/) ?? []
    const [name, expression] = code.split(" = ")
    if (number && this.sizes[number] % this.sizes[divisor]) throw new Error(`ValueError: ${filled(error, this.sizes)}`)
    if (!letters) return []
    this.tensors[name] = expression ? this.evaluate(expression, trail) : this.note(this.numbers(letters), trail)
    return this.tensors[name]
  }

  note(sizes, trail) {
    if (trail.at(-1)?.replace("→ ", "") !== shape(sizes)) trail.push(`${trail.length ? "→ " : ""}${shape(sizes)}`)
    return sizes
  }

  evaluate(expression, trail) {
    const [first, ...rest] = expression.replace(/ \/ \S+/, "").split(/ ([@+]) /)
    let sizes = this.chain(first, trail)
    while (rest.length) {
      const [sign, other] = rest.splice(0, 2)
      const right = this.chain(other, [])
      trail.push(`${sign} ${shape(right)}`)
      sizes = this.note(sign === "@" ? matmul(sizes, right) : broadcast(sizes, right), trail)
    }
    return sizes
  }

  // A name or a call, and what is done to it: x.view(B, T, H, D).transpose(1, 2)
  chain(term, trail) {
    const [[, name, inside], ...links] = term.replace(/^(torch|nn)\./, "").matchAll(/(\w+)(?:\((.*?)\))?|\[(.*?)\]/g)
    let sizes = this.note(this.start(name, inside, trail), trail)
    for (const [, operation, inside = "", entries] of links) {
      const tensors = inside.match(/\w+/g)?.map(name => this.tensors[name])
      sizes = this.note(entries ? index(sizes, entries) : operations[operation](sizes, this.numbers(inside), tensors), trail)
    }
    return sizes
  }

  start(name, inside, trail) {
    const [argument] = inside?.match(/\w+/) ?? []
    if (!argument) return this.tensors[name]
    if (name === "softmax") return this.tensors[argument]
    if (["randn", "Linear"].includes(name)) return this.numbers(inside)
    const sizes = this.note(this.tensors[argument], trail)
    trail.push(`@ ${shape(this.tensors[name])}`)
    return matmul(sizes, this.tensors[name])
  }
}

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

// The steps of some lines with these sizes, each with its trail, up to the error.
function trace(lines, sizes) {
  const program = new Program(sizes)
  const steps = []
  try {
    for (const [code, letters] of lines) {
      const step = { trail: [] }
      steps.push(step)
      step.sizes = program.take([code, letters], step.trail)
      const names = letters.split(", ")
      step.letters = step.sizes.map((size, axis) => program.numbers(names[axis] ?? "")[0] === size ? names[axis] : `${size}`)
    }
  } catch ({ message }) {
    return { steps, error: message }
  }
  return { steps, error: "" }
}

globalThis.shapes = { trace, draw, shape }

}
