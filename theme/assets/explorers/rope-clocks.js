// Two clocks: the hands of a query and of a key turn with their positions, and the score follows the angle between them.

"use strict"; {

const ROUND = 2 * Math.PI

// A hand goes the way that its position goes; of many whole rounds it goes one, since more of them would only flicker.
function turn(hand, angle) {
  const { at, shown } = hand.turned ?? { at: angle, shown: angle }
  const way = angle - at
  const round = Math.abs(way) > ROUND ? Math.sign(way) * ROUND : 0
  hand.turned = { at: angle, shown: shown + way % ROUND + round }
  hand.style.rotate = `${hand.turned.shown}rad`
}

customElements.define("rope-clocks", class extends Moving {
  show(numbers, state) {
    super.show(numbers, state)
    const [fast, slow, score] = [...this.querySelectorAll(".stage strong")].map(({ textContent }) => textContent)
    this.said += ` ${fast} + ${slow} = ${score}`
  }

  draw(frame, { hands, frames }, { layout }) {
    const [query, key, fast, slow, ...numbers] = frames[frame]
    this.querySelectorAll(".clock").forEach((clock, pair) => {
      const [length, start] = hands[pair]
      const { speed } = clock.dataset
      clock.style.setProperty("--length", length)
      turn(clock.querySelector(".query"), start + query * speed)
      turn(clock.querySelector(".key"), start + key * speed)
      const angle = [fast, slow][pair]
      clock.querySelector(".arc").style.strokeDasharray = `${angle} 360`
      clock.querySelector("span").textContent = `∠ ${angle}°`
    })
    this.querySelectorAll(".stage b").forEach((place, i) => { place.textContent = [query, key][i] })
    this.querySelectorAll(".stage strong").forEach((shown, i) => { shown.textContent = printed(numbers[i]) })
    this.querySelectorAll(".tables thead th").forEach((name, i) => name.classList.toggle("chosen", (i % 2 > 0) === (layout === "pairs")))
  }
})

}
