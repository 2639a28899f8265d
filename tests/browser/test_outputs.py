"""The box below a cell is tinted so that a matrix reads as a heatmap; all words can be read, on screen and on paper."""

import re

import pytest

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


LOOKS = """spans => spans.map(getComputedStyle).map(
    ({ color, backgroundColor, printColorAdjust }) => [color, backgroundColor, printColorAdjust])"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tints_grow_with_the_number_zeros_are_grey_and_all_can_be_read_and_printed(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    opened = tab.open("foundations/causal/")
    box = opened.locator("article .output").first
    spans = "".join(f'<span class="{tone}">{tone}</span>' for tone in TONES)
    box.locator("code").evaluate("(code, html) => code.innerHTML = html", spans)
    (grey, odd, *ink), papers, printed = zip(*box.locator("span").evaluate_all(LOOKS))
    assert len({grey, odd, *ink}) == 3
    strengths = [float(re.search(r"[/,] ([\d.]+)\)|$", paper)[1] or 1) for paper in papers[2:]]
    assert strengths == sorted(set(strengths)) * 2
    assert set(papers[:2]) == {"rgba(0, 0, 0, 0)"}
    assert set(printed[2:]) == {"exact"}
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
