"""The face of the site: six tokens to touch, ways in as pictures, old addresses, what was counted for each promise."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.test_explorers import golden, middle, pasted, swipe, words
from tests.configuration import text
from tools.cells.shapes import shape_comments
from tools.cells.source import read_cells

FIRST_VISIT = 40_000  # bytes on the wire
HIGHEST = 2_600  # pixels at 1280
LAPTOP, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
TOUCHED = [".choices", ".reading .picture", "[data-shows=row]", "[role=status]", "[data-shows=mask]"]
NAN = "#six-tokens?query=0&pattern=hand&cells=030e3cfbf"  # the first row sees nothing
MOVING = """() => [...document.querySelectorAll("article *")].filter(part => {
    const { animationName, transitionDuration } = getComputedStyle(part)
    return animationName !== "none" || transitionDuration !== "0s"
}).length"""

in_every_language = pytest.mark.parametrize("language", site.LANGUAGES)


def home(tab, language, fragment=""):
    opened = tab.open(site.Page(language, "index").path + fragment)
    return opened, opened.locator("six-tokens"), words(language)


# --- in the first screen --------------------------------------------------------------------------


@in_every_language
def test_home_is_short_light_and_shows_its_figure_in_the_first_screen(newcomer, language):
    newcomer.page.set_viewport_size(LAPTOP)
    before = len(newcomer.server.visits)
    opened = newcomer.open(site.Page(language, "index").path, quiet=True)
    assert sum(visit.size for visit in newcomer.server.visits[before:]) <= FIRST_VISIT
    assert opened.evaluate("document.documentElement.scrollHeight") <= HIGHEST
    expect(opened.locator("six-tokens")).to_be_in_viewport(ratio=1)
    opened.set_viewport_size(PHONE)
    for part in TOUCHED:
        expect(opened.locator(f"six-tokens {part}")).to_be_in_viewport(ratio=1)
    opened.set_viewport_size({"width": 320, "height": 700})
    assert opened.evaluate("document.documentElement.scrollWidth") == 320


# --- six tokens -----------------------------------------------------------------------------------


@in_every_language
def test_the_figure_comes_with_the_weights_that_causal_prints_as_arcs_and_bar(built, language):
    [cell] = [cell for cell in site.Page("en", "foundations/causal").cells if cell.name == "weights"]
    printed = re.findall(r"\d\.\d{4}", cell.output)
    figure = site.html(built, site.Page(language, "index")).css_first("six-tokens")
    row = [number.text() for number in figure.css("[data-shows=row] tbody td")]
    assert [*row, figure.css_first("[data-shows=sum]").text()] == [*printed[18:24], printed[39]]
    assert golden("six-tokens")["cases"][0]["weights"][5] == pytest.approx([*map(float, printed[30:36])], abs=5e-5)
    weights = [float(weight) for weight in row]
    arcs = [float(arc.attributes["stroke-width"]) / 14 for arc in figure.css(".picture path")]
    assert arcs == pytest.approx(weights, abs=0.005)
    ends = [[float(end) for end in re.findall(r"[\d.]+", part.attributes["d"])] for part in figure.css(".part")]
    assert [(right - left) / 440 for left, _, right in ends] == pytest.approx(weights, abs=0.001)
    assert [left for left, _, _ in ends[1:]] == [right for _, _, right in ends[:-1]], "they fill one bar"


def test_a_mouse_chooses_a_token_and_a_mask_and_all_parts_change_together(tab):
    opened, figure, said = home(tab, "en")
    code, arcs = figure.locator("code"), figure.locator(".picture path")
    figure.get_by_text("starts", exact=True).first.click()
    figure.get_by_text(said["window"], exact=True).click()
    expect(figure.locator("[data-shows=row] tbody td")).to_have_text(
        ["0.2284", "0.3893", "0.3822", "0.0000", "0.0000", "0.0000"]
    )
    figure.locator("tbody th", has_text="step").click()
    expect(code).to_contain_text("visible = torch.ones(6, 6).tril().triu(-2).bool()\n")
    expect(code).to_contain_text("print(weights[5])\n")
    expect(figure.locator("[data-shows=row] thead .nil")).to_have_text(["Your", "journey", "starts"])
    assert [arc.get_attribute("stroke-width") == "0.0" for arc in arcs.all()] == [True] * 3 + [False] * 3
    assert figure.locator(".part").nth(5).get_attribute("d").endswith("H460.0")
    expect(figure.locator("tr.query th")).to_have_text("step")
    expect(figure.get_by_role("status")).to_contain_text("3 of 6")
    tab.ends_at("#six-tokens?pattern=window&query=5")
    expect(opened.locator("p.go-on")).to_be_hidden()


@in_every_language
def test_a_row_without_a_key_turns_to_nan_before_ones_eyes(tab, language):
    _, figure, said = home(tab, language)
    half, status = figure.locator(".half").first, figure.get_by_role("status")
    expect(half).to_have_css("opacity", "0")
    figure.get_by_role("checkbox", name=said["sees"].format(one="Your", other="Your")).locator("..").click()
    expect(figure.locator("[data-shows=row] tbody td.odd")).to_have_text(["nan"] * 6)
    expect(figure.locator("tr.query td.odd")).to_have_text(["nan"] * 6)
    expect(figure.locator("[data-shows=sum]")).to_have_text("nan")
    expect(half).to_have_css("opacity", "1")
    expect(status).to_have_text(said["reads_nothing"].format(token="Your"))
    expect(figure.locator("code")).to_contain_text("[0, 0, 0, 0, 0, 0],\n    [1, 1, 0, 0, 0, 0],")
    tab.ends_at(NAN.replace("query=0&", "") + "&query=0")
    figure.get_by_role("button", name=said["undo"]).click()
    expect(half).to_have_css("opacity", "0")
    expect(status).to_contain_text("0.2956")


def test_a_finger_chooses_a_token_and_paints_rows_empty(phone):
    opened, figure, said = home(phone, "zh")
    figure.get_by_text("one", exact=True).first.tap()
    expect(figure.get_by_role("status")).to_have_text(
        said["reads"].format(token="one", count=5, weight="0.2269", other="starts")
    )
    figure.get_by_text(said["padded"], exact=True).tap()
    expect(figure.locator("code")).to_contain_text("visible = is_real.expand(6, 6)")
    boxes = figure.locator("[data-shows=mask] input")
    boxes.first.scroll_into_view_if_needed()
    swipe(opened, *(middle(boxes.nth(entry)) for entry in (6, 9, 15, 12)))
    phone.ends_at("#six-tokens?pattern=hand&cells=f0003cf3c&query=1")
    expect(figure.locator("tr.query th")).to_have_text("journey")
    expect(figure.get_by_role("status")).to_have_text(said["reads_nothing"].format(token="journey"))


def test_the_copied_program_prints_the_row_that_is_shown(tab):
    _, figure, said = home(tab, "it", "#six-tokens?pattern=padding&query=5")
    figure.get_by_role("button", name=said["copy_code"]).click()
    tab.hears(said["code_copied"])
    shown = figure.locator("[data-shows=row] tbody td").all_inner_texts()
    assert pasted(tab) == shown != ["0.0000"] * 6


def test_without_scripts_home_is_a_still_picture_with_numbers_and_all_links(bare):
    bare.page.set_viewport_size(PHONE)
    opened, figure, _ = home(bare, "it")
    expect(figure.locator(".picture")).to_be_in_viewport(ratio=1)
    expect(figure.locator("[data-shows=row] tbody td").nth(1)).to_have_text("0.2956")
    expect(figure.get_by_role("status")).to_be_visible()
    expect(opened.get_by_role("search")).to_be_hidden()
    expect(opened.locator("article ul:not(.facts) a:visible")).to_have_count(len([*CARDS, *MOVED]) - 1)
    opened.locator("#pages").get_by_role("link").click()
    expect(opened.locator(".entry").first).to_be_visible()


@pytest.mark.parametrize("media", [{"reduced_motion": "reduce"}, {"media": "print"}], ids=str)
def test_where_nothing_may_move_the_figure_stands(tab, media):
    opened, figure, _ = home(tab, "zh", NAN)
    assert opened.evaluate(MOVING) == 8, "six arcs that grow, and two halves that fall apart"
    tab.page.emulate_media(**media)
    assert opened.evaluate(MOVING) == 0
    expect(figure.locator(".picture")).to_be_visible()


# --- ways in --------------------------------------------------------------------------------------

CARDS = {
    "foundations/one-sentence/": "learn",
    "questions/": "bug",
    "masks/combining/#mask-painter": "mask",
    "foundations/shapes/": "shape",
    "cache/kv-cache/": "token",
    "kernels/which-kernel/": "kernels",
    "practice/look-inside/": "inside",
    "labs/see-the-masks/": "labs",
}


@in_every_language
def test_eight_pictures_each_with_a_title_and_a_line_lead_on(built, language):
    cards = site.html(built, site.Page(language, "index")).css("article li a:has(svg)")
    assert [card.attributes["href"] for card in cards] == [*CARDS]
    for card, name in zip(cards, CARDS.values(), strict=True):
        drawn = (site.ROOT / f"docs/assets/cards/{name}.svg").read_text("utf-8")
        assert re.findall(r' d="(.*?)"', card.html) == re.findall(r' d="(.*?)"', drawn) != []
        title = card.css_first("strong").text()
        assert len(card.text().replace(title, "").strip()) > len(title)
        assert card.css_first("svg").attributes["aria-hidden"] == "true"


def test_by_keyboard_a_reader_searches_and_follows_a_card(tab):
    opened, _, _ = home(tab, "zh")
    field = opened.get_by_role("textbox", name=text("zh", "search"), exact=True)
    field.focus()
    opened.keyboard.insert_text("损失 nan")
    opened.keyboard.press("Enter")
    expect(opened.locator(".search__query")).to_have_value("损失 nan")
    expect(opened.locator(".search__results a").first).to_be_visible()
    opened.keyboard.press("Escape")
    field.focus()
    for _ in range(5):  # the button, the questions, and two cards before it
        opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/zh/masks/combining/#mask-painter")
    expect(opened.locator("#mask-painter")).to_be_in_viewport()


# --- what has moved, and what was counted ---------------------------------------------------------

MOVED = {
    "ways": "foundations/one-sentence/",
    **{name: f"about/#{name}" for name in ("promises", "reading", "teach", "references", "run", "translate")},
    "about": "about/",
    "teaser": "foundations/weighted-average/#bug",
}


@in_every_language
def test_an_address_that_led_to_a_section_of_home_leads_to_a_link_to_it(built, language):
    html = site.html(built, site.Page(language, "index"))
    links = {link.id: link.attributes["href"] for link in html.css("article a[id]")}
    assert links == MOVED
    assert html.css_first("article #pages a").attributes["href"] == "questions/"


@in_every_language
def test_each_promise_says_what_was_counted_for_it(built, language):
    """All cells are verified on the CPU, and all pages current, or a test of the structure fails."""
    page, said = site.Page(language, "about"), site.LANGUAGES[language].extra["text"]["counted"]
    cells = [cell for one in site.PAGES_WITH_CELLS if one.language == "en" for cell in read_cells(one.snippets)]
    verified = sum(not cell.needs for cell in cells)
    written = {(cell.path, cell.name): cell for cell in cells}.values()  # a page may show the cells of another
    shapes, pages = sum(len(shape_comments(cell)) for cell in written), len(site.SLUGS)
    promises = site.html(built, page).css("#promises + ol > li")
    counts = [[line.text() for line in promise.css("small")] for promise in promises]
    assert counts[0][0] == said["cells"].format(verified=verified, cells=len(cells), device="CPU")
    if not (site.ROOT / "verified/cuda.json").exists():
        assert counts[0][1:] == [text(language, "no_gpu")]
    assert counts[1:] == [
        [said["shapes"].format(shapes=shapes)],
        [said["programs"].format(programs=sum(not cell.shared for cell in written))],
        [],
        [said["languages"].format(languages=len(site.LANGUAGES), current=pages, pages=pages)],
    ]
