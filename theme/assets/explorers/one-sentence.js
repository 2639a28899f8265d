// One sentence through attention: the page comes with all of it, and the frames show one part after the other.

"use strict"; {

customElements.define("one-sentence", class extends Moving {})

}
