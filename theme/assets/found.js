// Marks the words that were looked for in the section to which the search has led, until the next click or Esc.

const article = document.querySelector("article")

// The text of the section at which the address points; the words of some code are in pieces.
function section() {
  const headings = [...article.querySelectorAll("h1, h2")]
  const at = headings.findIndex(({ id }) => location.hash === `#${id}`)
  const range = document.createRange()
  range.setStartBefore(headings[Math.max(at, 0)])
  if (headings[at + 1] && at >= 0) range.setEndBefore(headings[at + 1])
  else range.setEndAfter(article.lastChild)
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT)
  const pieces = []
  for (let node, at = 0; (node = walker.nextNode());) {
    if (!range.intersectsNode(node) || node.parentElement.closest("svg, .headerlink")) continue
    pieces.push({ node, at })
    at += node.length
  }
  return pieces
}

function places(words) {
  const pieces = section()
  const text = pieces.map(({ node }) => node.data).join("")
  const place = index => {
    const { node, at } = pieces.findLast(({ at }) => at <= index)
    return [node, index - at]
  }
  return [...text.matchAll(new RegExp(words, "giu"))].map(({ index, 0: word }) => {
    const range = document.createRange()
    range.setStart(...place(index))
    range.setEnd(...place(index + word.length - 1))
    range.setEnd(range.endContainer, range.endOffset + 1)
    return range
  })
}

const around = (range, selector) => range.startContainer.parentElement.closest(selector)
const fold = range => around(range, "details:not([open])")
const passage = range => around(range, "h1, h2, h3, li, p, pre, summary, tr") ?? article

export function mark() {
  const [address, words] = JSON.parse(sessionStorage.getItem("attention.sought"))
  sessionStorage.removeItem("attention.sought")
  if (address !== location.href || !window.Highlight) return
  const found = places(words)
  // What says most of the words is shown, such as a row of a table, and the fold that hides it is opened.
  const said = new Map()
  for (const range of found) {
    const where = passage(range), words = said.get(where)?.words ?? new Set()
    said.set(where, { first: range, ...said.get(where), words: words.add(`${range}`.toLowerCase()) })
  }
  const [most] = [...said.values()].sort((a, b) => b.words.size - a.words.size || !!fold(a.first) - !!fold(b.first))
  if (!most) return
  const { first } = most
  for (let folded; (folded = fold(first));) folded.open = true
  CSS.highlights.set("found", new Highlight(...found))
  const { top } = first.getBoundingClientRect(), { bottom } = passage(first).getBoundingClientRect()
  if (top < 0 || bottom > innerHeight) first.startContainer.parentElement.scrollIntoView({ block: "center" })
  const clear = new AbortController()
  for (const event of ["click", "keydown"]) {
    addEventListener(event, ({ key }) => {
      if (key && key !== "Escape") return
      CSS.highlights.delete("found")
      clear.abort()
    }, { signal: clear.signal })
  }
}
