// What all explorers share. The page comes with the controls, as a form, and with the numbers of its first state, as
// they stay without this script. What the controls say is the state: `compute` makes numbers of it, `show` puts them
// into the page, and the address keeps what differs from the first state: #mask-painter?pads=3.

"use strict"; {

const LEVELS = 8 // as in tools/site/outputs.py, whose tints these are

globalThis.tone = (number, largest) => {
  if (Number.isNaN(number)) return "odd"
  if (!number) return "nil"
  return `${number > 0 ? "plus" : "minus"}${Math.ceil(LEVELS * Math.abs(number) / largest)}`
}

globalThis.printed = (number, decimals = 4) => Number.isNaN(number) ? "nan" : number.toFixed(decimals)
globalThis.filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name])

globalThis.Explorer = class extends HTMLElement {
  connectedCallback() {
    this.form = this.querySelector("form")
    this.form.querySelector("fieldset").disabled = false
    this.status = this.querySelector("[role=status]")
    this.undo = this.querySelector("[data-undo]")
    this.past = [] // the addresses of the states before this one
    this.decimals = this.querySelector("[data-decimals]")
    this.decimals?.addEventListener("click", ({ currentTarget: button }) => {
      button.ariaPressed = button.ariaPressed === "false"
      this.update()
    })
    this.start()
    this.first = this.state
    this.settled = this.address
    this.form.addEventListener("input", () => this.update())
    this.form.addEventListener("change", () => this.share())
    this.form.addEventListener("submit", event => event.preventDefault())
    this.querySelector("[data-reset]").addEventListener("click", () => {
      this.enter("")
      this.share()
    })
    this.undo.addEventListener("click", () => {
      this.enter(this.past.pop())
      this.settled = this.address
      this.share()
    })
    this.querySelector("[data-link]").addEventListener("click", ({ currentTarget: button }) => {
      const link = new URL(this.settled, location).href
      copy(button, link, button.dataset.copied).catch(() => prompt(button.textContent, link)) // over plain http
    })
    addEventListener("hashchange", () => this.open())
    this.update()
    this.open()
  }

  get state() {
    const chosen = [...this.form.elements].filter(({ name, type, checked }) => name && (type !== "radio" || checked))
    return Object.fromEntries(chosen.map(({ name, value }) => [name, value])) // also of those that are disabled
  }

  get address() {
    const changed = Object.entries(this.state).filter(([name, value]) => this.first[name] !== value)
    return `#${this.id}${changed.length ? "?" : ""}${new URLSearchParams(changed)}`
  }

  // A number that the controls do not take leaves all as it was; who settles on it is told by the browser.
  update() {
    if (!this.form.checkValidity()) return
    const { state } = this
    this.show(this.compute(state), state)
  }

  share() {
    if (!this.form.reportValidity()) return
    this.say()
    if (this.address !== this.settled) this.past.push(this.settled)
    this.settled = this.address
    this.undo.disabled = !this.past.length
    history.replaceState(null, "", this.settled)
  }

  // What a gesture did that the browser ends, for another of its own.
  cancel() {
    this.enter(this.settled)
  }

  open() {
    const { hash } = location
    if (hash.split("?")[0] !== `#${this.id}`) return
    this.enter(hash)
    this.settled = this.address
    this.scrollIntoView()
    this.say()
  }

  // An address that names no state of this explorer, whoever wrote it, leads to the first one.
  enter(address) {
    const chosen = [...new URLSearchParams(address.split("?")[1])]
    this.form.reset()
    if (!chosen.every(([name, value]) => this.choose(name, value))) this.form.reset()
    this.update()
  }

  choose(name, value) {
    const control = this.form.elements.namedItem(name)
    if (!control) return false
    control.value = value
    return control.value === value && control.selectedIndex !== -1 && control.validity?.valid !== false
  }

  // Only what a reader has settled on is announced, not what a slider passes on its way.
  say() {
    this.status.textContent = this.said
  }

  // The value of a slider stands beside it.
  label(slider, text) {
    slider.ariaValueText = slider.nextElementSibling.textContent = text
  }

  words(values) {
    return filled(this.status.dataset.says, values)
  }

  // In a table with a choice of decimals 0 is 0, and not what is too small for two.
  written(number) {
    if (this.decimals?.ariaPressed !== "false") return printed(number)
    return number === 0 ? "0" : printed(number, 2)
  }

  // Rows of a table, each by its number and its token.
  named(rows) {
    const { row, comma, none } = this.status.dataset
    const names = rows.map(({ sectionRowIndex: place, cells: [head] }) => filled(row, { place, name: head.textContent }))
    return names.join(comma) || none
  }

  // A table, or single cells of one, that show some numbers.
  fill(name, numbers) {
    const largest = Math.max(...numbers.filter(Number.isFinite).map(Math.abs))
    this.querySelectorAll(`[data-shows=${name}] tbody td:not([data-shows]), td[data-shows=${name}]`).forEach((cell, i) => {
      cell.textContent = this.written(numbers[i])
      cell.className = tone(numbers[i], largest)
    })
  }
}

}
