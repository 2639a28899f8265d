"""The box below a cell is tinted so that a matrix reads as a heatmap; all words can be read, on screen and on paper."""

import re
from pathlib import Path

import material
import pytest
from playwright.sync_api import expect

from tests.browser import site
from tools.site import weight
from tools.site.outputs import LEVELS

TONES = ["nil", "odd", *(f"{sign}{level}" for sign in ("plus", "minus") for level in range(1, LEVELS + 1))]

# The contrast of text with what is painted behind it, for one element. A canvas does the mixing of colours.
CONTRAST = """element => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
    const paint = colours => {
        for (const colour of ["white", ...colours]) {
            canvas.fillStyle = "#123456"
            canvas.fillStyle = colour
            if (canvas.fillStyle === "#123456") throw new Error(`what colour is ${colour}?`)
            canvas.fillRect(0, 0, 1, 1)
        }
        return [...canvas.getImageData(0, 0, 1, 1).data]
    }
    const light = pixel => pixel.slice(0, 3).map(part => part / 255)
        .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
        .reduce((sum, part, index) => sum + part * [.2126, .7152, .0722][index], 0)
    const behind = []
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor)
    const [ink, paper] = [[...behind, getComputedStyle(element).color], behind].map(paint).map(light)
    return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)
}"""

# The words that a page may colour: the contrast of each, and what it says.
FAINT = f"""() => {{
    const contrast = {CONTRAST}
    const faint = new Set()
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) {{
        const element = texts.currentNode.parentElement
        const words = texts.currentNode.textContent.trim()
        if (!words || !element.checkVisibility({{ opacityProperty: true, visibilityProperty: true }})) continue
        if (element.closest("svg, script, style, .headerlink")) continue
        const ratio = contrast(element)
        if (ratio < 4.5) faint.add(`${{ratio.toFixed(2)}} ${{element.className}}: ${{words.slice(0, 30)}}`)
    }}
    return [...faint]
}}"""

SCHEMES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "print": {"color_scheme": "light", "media": "print"},
    "print of a dark screen": {"color_scheme": "dark", "media": "print"},
}
in_every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_causal_matrix_has_grey_zeros_and_tints_that_grow_with_the_number(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("masks/causal/")
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


@in_every_scheme
def test_the_text_of_every_tint_can_be_read(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("masks/causal/")
    spans = " ".join(f'<span class="{tone}">{tone}</span>' for tone in TONES)
    tab.page.locator("article .output code").first.evaluate("(box, html) => box.innerHTML = html", spans)
    contrast = {tone: tab.page.locator(f"article .output .{tone}").first.evaluate(CONTRAST) for tone in TONES}
    assert {tone: round(ratio, 2) for tone, ratio in contrast.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("scheme", ["print", "print of a dark screen"])
def test_a_printed_page_keeps_the_tints_and_is_dark_on_light(tab, scheme):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("masks/causal/")
    span = tab.page.locator("article .output .plus8").first
    assert span.evaluate("span => getComputedStyle(span).printColorAdjust") == "exact"
    ink = span.evaluate("span => getComputedStyle(span).color")
    assert max(map(int, re.findall(r"\d+", ink)[:3])) < 128


def test_79_columns_of_code_fit_on_paper(tab):
    page = tab.open("masks/causal/")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 605, "height": 900})  # A4 between margins of 25 mm, which Material sets
    code = page.locator("article pre > code").first
    code.evaluate("code => { code.textContent = 'x'.repeat(79); code.style.whiteSpace = 'pre' }")
    assert code.evaluate("code => code.scrollWidth <= code.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("slug", ["index", "masks/causal", "labs/see-the-masks"])
def test_all_words_of_a_page_can_be_read(tab, scheme, slug):
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open(site.Page("zh", slug).path)
    tab.unfold()
    assert tab.page.evaluate(FAINT) == []


def test_the_buttons_of_a_cell_are_no_landmark(tab):
    tab.open("masks/causal/")
    expect(tab.page.locator("article .cell-tools").first).to_be_attached()
    expect(tab.page.locator("article").get_by_role("navigation")).to_have_count(0)


# What depends on the state of an element, or is a part of it.
STATE = re.compile(r"::[\w-]+|:(?:after|before|-[\w-]+|active|checked|focus(?:-[\w-]+)?|hover|valid)(?![\w-])")


def selectors(css):
    return {selector.strip() for rule in weight.RULE.findall(css) for selector in weight.SELECTOR.findall(rule[0])}


@pytest.mark.parametrize("path", [*(site.Page("zh", slug).path for slug in site.SLUGS), "404.html"])
def test_no_rule_that_was_left_out_is_for_anything_on_a_page(tab, built, path):
    gone = set()
    for name in ("main", "palette"):
        pattern = f"assets/stylesheets/{name}.*.css"
        [whole], [left] = Path(material.__file__).parent.glob(f"templates/{pattern}"), built.glob(pattern)
        gone |= selectors(whole.read_text("utf-8")) - selectors(left.read_text("utf-8"))
    gone = {STATE.sub(":is(*)", selector) for selector in gone}
    assert len(gone) > 100
    tab.open(path, until="networkidle")
    tab.unfold()
    assert tab.page.evaluate("gone => gone.filter(one => document.querySelector(one))", sorted(gone)) == []
