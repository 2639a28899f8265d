"""The box below a cell is tinted so that a matrix reads as a heatmap; all words can be read, on screen and on paper."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tools.site.outputs import LEVELS

TONES = ["nil", "odd", *(f"{sign}{level}" for sign in ("plus", "minus") for level in range(1, LEVELS + 1))]

# The contrast of an element's text with what is painted behind it. A canvas mixes the colours.
CONTRAST = """element => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
    const light = colours => {
        for (const colour of ["white", ...colours]) {
            canvas.fillStyle = "#123456"
            canvas.fillStyle = colour
            if (canvas.fillStyle === "#123456") throw new Error(`what colour is ${colour}?`)
            canvas.fillRect(0, 0, 1, 1)
        }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(part => part / 255)
            .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
            .reduce((sum, part, index) => sum + part * [.2126, .7152, .0722][index], 0)
    }
    const behind = []
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor)
    const [ink, paper] = [[...behind, getComputedStyle(element).color], behind].map(light)
    return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)
}"""

SCHEMES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "print": {"color_scheme": "light", "media": "print"},
    "print of a dark screen": {"color_scheme": "dark", "media": "print"},
}
NAMED = [
    page.slug for page in site.PAGES if page.language == "en" and any(cell.rows or cell.columns for cell in page.cells)
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_causal_matrix_has_grey_zeros_and_tints_that_grow_with_the_number(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("foundations/causal/")
    output = tab.page.locator("article .output", has_text="0.0000").first
    cells = output.locator("span").evaluate_all(
        """spans => spans.map(span => {
            const style = getComputedStyle(span)
            return [span.textContent.trim(), style.color, style.backgroundColor]
        })"""
    )
    zeros = [(ink, paper) for text, ink, paper in cells if float(text) == 0]
    others = [(float(text), ink, paper) for text, ink, paper in cells if float(text) > 0]
    ink = output.evaluate("box => getComputedStyle(box.querySelector('code')).color")
    assert len(zeros) >= 3
    assert {paper for _, paper in zeros} == {"rgba(0, 0, 0, 0)"}
    assert ink not in {colour for colour, _ in zeros}
    assert {colour for _, colour, _ in others} == {ink}
    alphas = [float(re.search(r"/ ([\d.]+)\)|$", paper)[1] or 1) for _, _, paper in sorted(others)]
    assert alphas == sorted(alphas)
    assert alphas[0] < alphas[-1]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_text_of_every_tint_can_be_read(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("foundations/causal/")
    spans = " ".join(f'<span class="{tone}">{tone}</span>' for tone in TONES)
    tab.page.locator("article .output code").first.evaluate("(box, html) => box.innerHTML = html", spans)
    contrast = {tone: tab.page.locator(f"article .output .{tone}").first.evaluate(CONTRAST) for tone in TONES}
    assert {tone: round(ratio, 2) for tone, ratio in contrast.items() if ratio < 4.5} == {}


# --- the names of rows and columns ----------------------------------------------------------------


# By matrix: how far its row names reach into the rows, and its column names into each other or out of the box.
CROWDED = """() => [...document.querySelectorAll(".named")].flatMap(code => {
    const ruler = new OffscreenCanvas(1, 1).getContext("2d")
    const wide = (element, text) => {
        const { fontSize, fontFamily } = getComputedStyle(element, "::before")
        ruler.font = `${fontSize} ${fontFamily}`
        return ruler.measureText(text).width
    }
    const rows = [...code.querySelectorAll("i[data-row]")].filter(mark =>
        wide(mark, mark.dataset.row) > mark.getBoundingClientRect().width - 8)
    const columns = [...code.querySelectorAll("[data-column]")].filter((span, index, all) => {
        const name = getComputedStyle(span, "::before")
        const next = all[index + 1]?.getBoundingClientRect() ?? { left: Infinity }
        const own = span.getBoundingClientRect()
        const room = next.left > own.left ? next.left - own.left : Infinity
        const top = getComputedStyle(span.parentElement.querySelector("i.top"), "::before").paddingTop
        return parseFloat(name.width) > room - 2 || parseFloat(name.height) > parseFloat(top) + 4
    })
    return [...rows, ...columns].map(element => JSON.stringify(element.dataset))
})"""


@pytest.mark.parametrize("slug", NAMED)
def test_the_names_of_rows_and_columns_have_room_on_every_screen_and_on_paper(tab, slug):
    opened = tab.open(f"{slug}/")
    assert opened.locator(".named").count() > 0
    for width, media in ((1300, "screen"), (360, "screen"), (642, "print")):
        tab.page.set_viewport_size({"width": width, "height": 800})
        tab.page.emulate_media(media=media)
        assert opened.evaluate(CROWDED) == [], (width, media)


def test_names_are_neither_selected_nor_copied(tab):
    opened = tab.open("foundations/causal/")
    page = site.Page("en", "foundations/causal")
    opened.locator(".named").first.evaluate("code => getSelection().selectAllChildren(code)")
    opened.keyboard.press("ControlOrMeta+c")
    copied = opened.evaluate("navigator.clipboard.readText()")
    assert copied.rstrip() == next(cell for cell in page.cells if cell.rows).output.rstrip()


def test_on_a_phone_the_names_of_rows_stay_while_the_rows_move_by_keyboard(tab):
    tab.page.set_viewport_size({"width": 360, "height": 800})
    opened = tab.open("foundations/causal/")
    code, mark = opened.locator(".named").first, opened.locator(".named i[data-row]").first
    code.evaluate("code => new Promise(done => new ResizeObserver(done).observe(code))")  # the page's own was first
    before = mark.bounding_box()
    code.focus()
    expect(code).to_be_focused()
    opened.keyboard.press("ArrowRight")
    opened.wait_for_function("code => code.scrollLeft > 20", arg=code.element_handle())
    after = opened.locator(".named").first.evaluate(
        "code => { const { left } = code.getBoundingClientRect(); const range = document.createRange();"
        " range.selectNode(code.querySelector('i')); return [left, range.getBoundingClientRect().left] }"
    )
    assert after[1] - after[0] < 4 > before["x"] - after[0]


def test_the_name_of_an_output_says_its_rows_and_columns(tab):
    opened, words = tab.open("zh/cross/alignment/"), site.LANGUAGES["zh"].extra["text"]
    said = [words["rows"].format(names="because he bought tea the day before yesterday")]
    said += [words["columns"].format(names="weil er vorgestern Tee kaufte")]
    expect(opened.get_by_role("group", name=f"{words['output']} · {' · '.join(said)}")).to_have_count(2)


@pytest.mark.parametrize("scheme", ["print", "print of a dark screen"])
def test_a_printed_page_keeps_the_tints_and_is_dark_on_light(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("foundations/causal/")
    span = tab.page.locator("article .output .plus8").first
    assert span.evaluate("span => getComputedStyle(span).printColorAdjust") == "exact"
    ink = span.evaluate("span => getComputedStyle(span).color")
    assert max(map(int, re.findall(r"\d+", ink)[:3])) < 128
