// What figures that move share. A frame is a number of the form, "frame", and so a part of the state that the address
// keeps. Frames are stepped by buttons, the slider, arrow keys and swipes, or played once. A part of the picture says
// when it is there: data-in="2 3" in these frames, data-lit="2 3" lit in these. What else changes, `draw` changes.

"use strict"; {

const SWIPE = 40 // pixels; a shorter one is a tap
const BEAT = 2500 // milliseconds of a frame, unless the figure says another; a long sentence has more of them

globalThis.Moving = class extends Explorer {
  start() {
    const stage = this.querySelector(".stage")
    const data = this.querySelector("script[type='application/json']")
    this.cases = data && JSON.parse(data.textContent)
    this.slider = this.form.elements.frame
    this.player = this.querySelector("[data-play]")
    this.sentences = [...this.querySelectorAll(".steps > li")]
    const lengths = this.sentences.map(sentence => sentence.textContent.length)
    const mean = lengths.reduce((sum, length) => sum + length) / lengths.length
    this.paces = lengths.map(length => length / mean)
    this.parts = [...this.querySelectorAll("[data-in], [data-lit]")]
    this.player.addEventListener("click", () => this.timer ? this.rest() : this.play())
    this.querySelectorAll("[data-go]").forEach(button => button.addEventListener("click", () => this.go(button.dataset.go)))
    this.addEventListener("keydown", event => this.press(event))
    this.form.addEventListener("change", () => this.rest())
    stage.addEventListener("pointerdown", ({ clientX, isPrimary }) => { this.touched = isPrimary && clientX })
    stage.addEventListener("pointerup", ({ clientX }) => this.swipe(clientX))
    stage.addEventListener("pointercancel", () => { this.touched = false })
  }

  get frame() {
    return Number(this.slider.value)
  }

  set frame(number) {
    this.slider.value = number
    this.update()
  }

  get isLast() {
    return this.frame === Number(this.slider.max)
  }

  go(by) {
    this.rest()
    this.frame += Number(by)
    this.share()
  }

  press(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (!by || event.target.matches("input, select") || event.altKey || event.ctrlKey || event.metaKey) return
    event.preventDefault()
    this.go(by)
  }

  swipe(x) {
    const way = this.touched === false ? 0 : x - this.touched
    if (Math.abs(way) > SWIPE) this.go(-Math.sign(way))
    this.touched = false
  }

  // Once, from here to the last frame; at the last one from the first.
  play() {
    if (this.isLast) this.frame = 0
    this.beat()
  }

  beat() {
    this.timer = setTimeout(() => {
      this.frame += 1
      if (!this.isLast) return this.beat()
      this.rest()
      this.share()
    }, (this.dataset.beat ?? BEAT) * this.paces[this.frame])
    this.name()
  }

  rest() {
    clearTimeout(this.timer)
    this.timer = undefined
    this.name()
  }

  name() {
    const { play, pause } = this.player.dataset
    this.player.textContent = this.timer ? pause : play
  }

  // What the page brings along, for what the other controls say: their values, in their order.
  compute({ frame, ...chosen }) {
    return this.cases?.[Object.values(chosen).join(" ")]
  }

  show(numbers, state) {
    const { frame } = this
    this.label(this.slider, `${frame + 1} / ${this.sentences.length}`)
    const isIn = frames => frames.split(" ").includes(`${frame}`)
    this.sentences.forEach((sentence, i) => { sentence.hidden = i !== frame })
    for (const part of this.parts) {
      const { in: shown, lit } = part.dataset
      if (shown) part.classList.toggle("gone", !isIn(shown))
      if (lit) part.classList.toggle("lit", isIn(lit))
    }
    const [back, on] = this.querySelectorAll("[data-go]")
    back.ariaDisabled = frame === 0 // a button that is disabled would lose the focus
    on.ariaDisabled = this.isLast
    this.draw(frame, numbers, state)
    this.said = this.sentences[frame].textContent
  }

  draw() {}
}

}
