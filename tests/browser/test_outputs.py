"""The box below a cell is tinted so that a matrix reads as a heatmap; all words can be read, on screen and on paper."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.test_accessibility import COLOURS, FAULTS, faults
from tools.site.outputs import LEVELS

TONES = ["nil", "odd", *(f"{sign}{level}" for sign in ("plus", "minus") for level in range(1, LEVELS + 1))]

SCHEMES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "print": {"color_scheme": "light", "media": "print"},
    "print of a dark screen": {"color_scheme": "dark", "media": "print"},
}
NAMED = [
    page.slug for page in site.PAGES if page.language == "en" and any(cell.rows or cell.columns for cell in page.cells)
]


def test_a_causal_matrix_has_grey_zeros_and_tints_that_grow_with_the_number(tab):
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
    opened = tab.open("foundations/causal/")
    spans = " ".join(f'<span class="{tone}">{tone}</span>' for tone in TONES)
    opened.locator("article .output code").first.evaluate("(box, html) => box.innerHTML = html", spans)
    assert opened.locator("article .output").first.locator("span").count() == len(TONES)
    assert faults(opened, FAULTS | COLOURS, "article .output") == []


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


def test_names_are_not_selected(tab):
    opened = tab.open("foundations/causal/")
    page = site.Page("en", "foundations/causal")
    selected = opened.locator(".named").first.evaluate(
        "code => `${getSelection().selectAllChildren(code), getSelection()}`"
    )
    assert selected.rstrip() == next(cell for cell in page.cells if cell.rows).output.rstrip()


def test_the_name_of_an_output_says_its_rows_and_columns(tab):
    opened, words = tab.open("zh/cross/alignment/"), site.LANGUAGES["zh"].extra["text"]
    said = [words["rows"].format(names="because he bought tea the day before yesterday")]
    said += [words["columns"].format(names="weil er vorgestern Tee kaufte")]
    expect(opened.get_by_role("group", name=f"{words['output']} · {' · '.join(said)}")).to_have_count(1)


@pytest.mark.parametrize("scheme", ["print", "print of a dark screen"])
def test_a_printed_page_keeps_the_tints_and_is_dark_on_light(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("foundations/causal/")
    span = tab.page.locator("article .output .plus8").first
    assert span.evaluate("span => getComputedStyle(span).printColorAdjust") == "exact"
    ink = span.evaluate("span => getComputedStyle(span).color")
    assert max(map(int, re.findall(r"\d+", ink)[:3])) < 128
