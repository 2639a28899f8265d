"""The face of the site: three ways in, one query attending, what has moved, and what was counted for each promise."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import text
from tools.cells.shapes import shape_comments
from tools.cells.source import read_cells

# The turns that can be seen, counted from 0, and whether anything moves.
SEEN = """() => [...document.querySelectorAll(".turn")].flatMap((turn, i) =>
    +getComputedStyle(turn).opacity ? [i] : [])"""
MOVES = "document.querySelector('.attention').getAnimations({subtree: true}).length"
ENDS = """() => [...new Set(document.querySelector('.attention').getAnimations({subtree: true})
    .map(animation => Math.round(animation.effect.getComputedTiming().endTime)))]"""


# --- ways in --------------------------------------------------------------------------------------


def test_under_the_lead_a_reader_starts_to_learn_asks_for_a_bug_or_paints_a_mask(tab):
    tab.page.set_viewport_size({"width": 1280, "height": 800})
    opened, words = tab.open("zh/"), site.LANGUAGES["zh"].extra["text"]["doors"]
    doors = opened.locator(".doors")
    expect(doors).to_be_in_viewport(ratio=1)
    assert doors.get_by_role("link").all_inner_texts() == [words["learn"], words["paint"]]
    field = doors.get_by_role("textbox", name=words["bug"])
    field.click()
    opened.keyboard.insert_text("损失 nan")
    opened.keyboard.press("Enter")
    expect(opened.locator(".search__query")).to_have_value("损失 nan")
    expect(opened.locator(".search__results a").first).to_be_visible()
    opened.keyboard.press("Escape")
    doors.get_by_role("link").first.focus()
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/zh/foundations/weighted-average/")
    opened.go_back()
    doors.get_by_role("link").last.click()
    opened.wait_for_url("**/zh/masks/combining/#mask-painter")
    expect(opened.locator("#mask-painter")).to_be_in_viewport()


def test_without_scripts_who_looks_for_a_bug_is_led_to_the_questions(bare):
    bare.page.set_viewport_size({"width": 390, "height": 800})
    opened, words = bare.open("it/"), site.LANGUAGES["it"].extra["text"]["doors"]
    doors = opened.locator(".doors")
    expect(doors).to_be_in_viewport(ratio=1)
    expect(doors.get_by_role("textbox")).to_be_hidden()
    doors.get_by_role("link", name=words["bug"]).click()
    expect(opened.locator("#pages")).to_be_in_viewport()


# --- one query attending --------------------------------------------------------------------------


def test_the_picture_shows_the_printed_weights_as_numbers_arcs_and_shares_of_a_bar(built):
    [cell] = [cell for cell in site.Page("en", "foundations/causal").cells if cell.name == "weights"]
    printed = re.findall(r"\d\.\d{4}", cell.output)
    figure = site.html(built, site.Page("it", "index")).css_first("figure")
    turns, words = figure.css(".turn"), [label.text() for label in figure.css("label")]
    assert f'words = "{" ".join(words)}"' in (site.ROOT / "snippets/foundations/weighted-average.md").read_text("utf-8")
    for number, turn in enumerate(turns):
        row = printed[number * len(turns) : (number + 1) * len(turns)]
        total = printed[len(turns) ** 2 + number]
        assert [number.text() for number in turn.css("text")] == [*row, f"= {total}"]
        weights = [float(weight) for weight in row if float(weight)]
        arcs = [float(arc.attributes["stroke-width"]) / 14 for arc in turn.css("path")]
        assert arcs == pytest.approx(weights, abs=0.005)
        *shares, _ = turn.css("rect")  # the last underlines the query
        widths = [(float(share.attributes["width"]) + 1) / 440 for share in shares]
        assert widths == pytest.approx(weights, abs=0.001)


def test_the_picture_ends_by_itself_and_stops_at_the_token_that_a_reader_chooses(tab):
    opened = tab.open("")
    assert opened.evaluate(MOVES) > 0
    assert opened.evaluate(ENDS) == [29_250]
    opened.get_by_role("radio").first.focus()
    opened.keyboard.press("Space")
    assert (opened.evaluate(MOVES), opened.evaluate(SEEN)) == (0, [0])
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate(SEEN) == [1]
    opened.get_by_text("step", exact=True).click()
    assert (opened.evaluate(MOVES), opened.evaluate(SEEN)) == (0, [5])


@pytest.mark.parametrize("media", [{"reduced_motion": "reduce"}, {"media": "print"}], ids=str)
def test_where_nothing_may_move_the_picture_stands(tab, media):
    tab.page.emulate_media(**media)
    opened = tab.open("zh/")
    assert (opened.evaluate(MOVES), opened.evaluate(SEEN)) == (0, [3])


# --- what has moved, and what was counted ---------------------------------------------------------


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_an_address_that_led_to_a_section_of_the_first_page_leads_to_a_link_to_it(built, language):
    html = site.html(built, site.Page(language, "index"))
    names = ("promises", "reading", "teach", "references", "run", "translate")
    moved = {link.id: link.attributes["href"] for link in html.css("article a[id]")}
    assert moved == {name: f"about/#{name}" for name in names}
    assert html.css_first("article #pages ~ p a").attributes["href"] == "questions/"


@pytest.mark.parametrize("language", site.LANGUAGES)
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
