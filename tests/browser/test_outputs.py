"""The box below a cell is tinted so that a matrix reads as a heatmap; all words can be read, on screen and on paper."""

import math
import re
from itertools import combinations

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tools.site.outputs import LEVELS

TONES = ["nil", "odd", *(f"{sign}{level}" for sign in ("plus", "minus") for level in range(1, LEVELS + 1))]

# What is painted behind an element, and in the colour of its text before that: two pixels. A canvas mixes the colours.
PAINTED = """element => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
    const paint = colours => {
        for (const colour of ["white", ...colours]) {
            canvas.fillStyle = "#123456"
            canvas.fillStyle = colour
            if (canvas.fillStyle === "#123456") throw new Error(`what colour is ${colour}?`)
            canvas.fillRect(0, 0, 1, 1)
        }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
    }
    const behind = []
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor)
    return [[...behind, getComputedStyle(element).color], behind].map(paint)
}"""

# The contrast of text with what is painted behind it, for one element.
CONTRAST = f"""element => {{
    const light = pixel => pixel.map(part => part / 255)
        .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
        .reduce((sum, part, index) => sum + part * [.2126, .7152, .0722][index], 0)
    const [ink, paper] = ({PAINTED})(element).map(light)
    return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)
}}"""

SCHEMES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "print": {"color_scheme": "light", "media": "print"},
    "print of a dark screen": {"color_scheme": "dark", "media": "print"},
}
NAMED = [
    page.slug for page in site.PAGES if page.language == "en" and any(cell.rows or cell.columns for cell in page.cells)
]
LABS = [slug for slug in site.SLUGS if slug.startswith("labs/")]
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


def of_every_tone(tab, scheme, script):
    """What a script says of a span of each tone."""
    tab.page.emulate_media(**SCHEMES[scheme])
    tab.open("masks/causal/")
    spans = " ".join(f'<span class="{tone}">{tone}</span>' for tone in TONES)
    tab.page.locator("article .output code").first.evaluate("(box, html) => box.innerHTML = html", spans)
    return {tone: tab.page.locator(f"article .output .{tone}").first.evaluate(script) for tone in TONES}


@in_every_scheme
def test_the_text_of_every_tint_can_be_read(tab, scheme):
    contrast = of_every_tone(tab, scheme, CONTRAST)
    assert {tone: round(ratio, 2) for tone, ratio in contrast.items() if ratio < 4.5} == {}


# What an eye without one kind of cone sees, in linear light: Machado, Oliveira and Fernandes (2009), severity 1.
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
TO_CONES = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]  # Oklab, Ottosson (2020)
TO_OKLAB = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
LUMINANCE = [0.2126, 0.7152, 0.0722]
JUST_NOTICEABLE = 0.02  # in Oklab, about one step that an eye tells apart side by side


def linear(pixel):
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (p / 255 for p in pixel)]


def oklab(pixel, eye):
    def times(matrix, vector):
        return [sum(map(math.prod, zip(row, vector))) for row in matrix]

    seen = [min(1, max(0, part)) for part in times(eye, linear(pixel))]
    return times(TO_OKLAB, [math.cbrt(part) for part in times(TO_CONES, seen)])


@in_every_scheme
def test_above_and_below_zero_differ_for_every_eye_and_more_so_with_every_level(tab, scheme):
    """By as many noticeable steps as the level counts: pale tints are close to the paper, and to each other."""
    paper = {tone: pixels[1] for tone, pixels in of_every_tone(tab, scheme, PAINTED).items()}
    steps = {
        f"{level} {name}": math.dist(*(oklab(paper[f"{sign}{level}"], eye) for sign in ("plus", "minus")))
        / JUST_NOTICEABLE
        for name, eye in EYES.items()
        for level in range(1, LEVELS + 1)
    }
    assert {case: round(found, 1) for case, found in steps.items() if found < int(case[0])} == {}


COLOUR = re.compile(r'(?:fill|stroke)="(#[0-9a-f]{6})"')


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_of_a_figure_differ_from_the_paper_and_from_each_other_for_every_eye(tab, built, scheme):
    """From the paper by a contrast of 3, as WCAG wants it of graphics; pale tints are of the same colours."""
    tab.page.emulate_media(**SCHEMES[scheme])
    _, paper = tab.open("labs/see-the-masks/").locator("article").evaluate(PAINTED)
    for slug in LABS:
        plots = "".join(map(str, site.soup(built, site.Page("en", slug)).select(".plot")))
        colours = {name: bytes.fromhex(name[1:]) for name in COLOUR.findall(plots)}
        assert colours
        assert {name for name, pixel in colours.items() if contrast(pixel, paper) < 3} == set(), slug
        alike = {
            (one, other, name)
            for name, eye in EYES.items()
            for one, other in combinations(colours, 2)
            if math.dist(oklab(colours[one], eye), oklab(colours[other], eye)) < 5 * JUST_NOTICEABLE
        }
        assert alike == set(), slug


def contrast(*pixels):
    dark, bright = sorted(sum(map(math.prod, zip(linear(pixel), LUMINANCE))) for pixel in pixels)
    return (bright + 0.05) / (dark + 0.05)


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
    opened = tab.open("masks/causal/")
    page = site.Page("en", "masks/causal")
    opened.locator(".named").first.evaluate("code => getSelection().selectAllChildren(code)")
    opened.keyboard.press("ControlOrMeta+c")
    copied = opened.evaluate("navigator.clipboard.readText()")
    assert copied.rstrip() == next(cell for cell in page.cells if cell.rows).output.rstrip()


def test_on_a_phone_the_names_of_rows_stay_while_the_rows_move_by_keyboard(tab):
    tab.page.set_viewport_size({"width": 360, "height": 800})
    opened = tab.open("masks/causal/")
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
    tab.open("masks/causal/")
    span = tab.page.locator("article .output .plus8").first
    assert span.evaluate("span => getComputedStyle(span).printColorAdjust") == "exact"
    ink = span.evaluate("span => getComputedStyle(span).color")
    assert max(map(int, re.findall(r"\d+", ink)[:3])) < 128
