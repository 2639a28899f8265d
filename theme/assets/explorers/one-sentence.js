// One sentence through attention: the page comes with all of it, and the frames show one part after the other.

"use strict"; {

// A line of the code leads to its frame, in which it is the current one.
customElements.define("one-sentence", class extends Moving {
  start() {
    super.start()
    this.lines = [...this.querySelectorAll("[data-lit]")]
    this.lines.forEach((line, number) => line.addEventListener("click", () => this.go(number - this.frame)))
  }

  draw(frame) {
    this.lines.forEach((line, number) => { line.ariaCurrent = number === frame ? "step" : null })
  }
})

}
