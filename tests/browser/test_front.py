"""The face of the site: one query attending, what was counted, the foot, and what other sites show of a page."""

import json
import re
import struct
from itertools import accumulate
from urllib.parse import urljoin

import pytest
from fontTools.ttLib import TTFont

from tests.browser import site
from tests.configuration import CONFIG, text
from tools.cells.record import read_record
from tools.cells.shapes import shape_comments
from tools.cells.source import digest, read_cells
from tools.site import front, linked, pictures

PICTURE = front.attention(site.ROOT / "snippets")

# The turns that can be seen, counted from 0, and whether anything moves.
SEEN = (
    """() => [...document.querySelectorAll(".turn")].flatMap((turn, i) => +getComputedStyle(turn).opacity ? [i] : [])"""
)
MOVES = "document.querySelector('.attention').getAnimations({subtree: true}).length"
END = """() => new Set(document.querySelector('.attention').getAnimations({subtree: true})
    .map(animation => Math.round(animation.effect.getComputedTiming().endTime)))"""


def size(png):
    """The width and the height of a PNG."""
    assert png.startswith(b"\x89PNG\r\n")
    return struct.unpack(">II", png[16:24])


# --- one query attending --------------------------------------------------------------------------


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_picture_shows_the_printed_weights_as_numbers_as_arcs_and_as_shares_of_a_bar(built, language):
    figure = site.soup(built, site.Page(language, "index")).figure
    turns = figure.select(".turn")
    for turn, row, total in zip(turns, PICTURE["rows"], PICTURE["sums"], strict=True):
        assert [number.get_text() for number in turn("text")] == [*row, f"= {total}"]
        weights = [float(weight) for weight in row if float(weight)]
        assert [float(arc["stroke-width"]) / 14 for arc in turn("path")] == pytest.approx(weights, abs=0.005)
        *shares, _ = turn("rect")  # the last underlines the query
        assert [(float(share["width"]) + 1) / 440 for share in shares] == pytest.approx(weights, abs=0.001)
        starts = [20 + 440 * share for share in accumulate(weights, initial=0)][:-1]
        assert [float(share["x"]) for share in shares] == pytest.approx(starts, abs=0.1)
    named = [choice["aria-label"] for choice in figure("input")]
    assert named == [f"{word}: {' '.join(row)}" for word, row in zip(PICTURE["words"], PICTURE["rows"])]
    assert figure.svg["aria-label"] == text_of(language, "name")


def text_of(language, key):
    return site.LANGUAGES[language].extra["text"]["attention"][key]


def test_the_picture_ends_by_itself_and_stops_at_the_token_that_a_reader_chooses(tab):
    opened = tab.open("")
    assert opened.evaluate(MOVES) > 0
    assert opened.evaluate(f"[...({END})()]") == [30_000]
    opened.get_by_role("radio").first.focus()
    opened.keyboard.press("Space")
    assert (opened.evaluate(MOVES), opened.evaluate(SEEN)) == (0, [0])
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate(SEEN) == [1]
    opened.get_by_text("step", exact=True).click()
    assert (opened.evaluate(MOVES), opened.evaluate(SEEN)) == (0, [5])


@pytest.mark.parametrize("media", [{"reduced_motion": "reduce"}, {"media": "print"}])
def test_where_nothing_may_move_the_picture_stands(tab, media):
    tab.page.emulate_media(**media)
    opened = tab.open("zh/")
    assert (opened.evaluate(MOVES), opened.evaluate(SEEN)) == (0, [3])


@pytest.mark.parametrize("width", [360, 1300])
def test_each_token_stands_above_its_number_and_is_large_enough_for_a_finger(tab, width):
    tab.page.set_viewport_size({"width": width, "height": 800})
    opened = tab.open("")
    numbers = opened.locator(".turn").nth(3).locator("text").all()
    for token, number in zip(opened.locator(".attention label").all(), numbers):
        box, below = token.bounding_box(), number.bounding_box()
        assert abs(box["x"] + box["width"] / 2 - below["x"] - below["width"] / 2) < 2
        assert box["y"] + box["height"] / 2 < below["y"] + below["height"] / 2
        assert min(box["width"], box["height"]) >= 24


# --- what was counted -----------------------------------------------------------------------------


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_each_promise_says_what_was_counted_for_it(built, language):
    said = site.LANGUAGES[language].extra["text"]["counted"]
    cells = {page: read_cells(page.snippets) for page in site.PAGES_WITH_CELLS if page.language == "en"}
    number = sum(map(len, cells.values()))
    ran = []
    for record in sorted(site.ROOT.glob("verified/*.json")):
        entries = read_record(record)
        same = [
            cell
            for page, all_cells in cells.items()
            for cell in all_cells
            if entries.get(page.slug, {"cells": {}})["cells"].get(cell.name) == digest(all_cells, cell)
        ]
        ran.append(said["cells"].format(verified=len(same), cells=number, device=record.stem.upper()))
    if not (site.ROOT / "verified/cuda.json").exists():
        ran.append(text(language, "no_gpu"))
    promises = site.soup(built, site.Page(language, "index")).article.select("#promises + ol > li")
    counts = [[line.get_text() for line in promise("small")] for promise in promises]
    assert counts[0] == ran
    assert list(map(len, counts[1:])) == [1, 1, 0, 1]
    written = {(cell.path, cell.name): cell for all_cells in cells.values() for cell in all_cells}.values()
    assert counts[1] == [said["shapes"].format(shapes=sum(len(shape_comments(cell.code)) for cell in written))]
    assert counts[2] == [said["programs"].format(programs=sum(not cell.shared for cell in written))]
    pages = len(site.SLUGS)
    assert counts[4] == [said["languages"].format(languages=len(site.LANGUAGES), current=pages, pages=pages)]


# --- the foot -------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_the_foot_leads_to_what_every_reader_may_want(built, page):
    here = site.SITE_URL + page.path
    foot = site.soup(built, page).footer
    targets = {urljoin(here, link["href"]): link.get_text() for link in foot("a")}
    home = site.SITE_URL + site.Page(page.language, "index").path
    wanted = {f"{home}glossary/", f"{home}verified/", f"{here}index.md", f"{home}llms.txt"}
    wanted |= {site.SITE_URL + site.Page(language, page.slug).path for language in site.LANGUAGES}
    assert {url for url in targets if url.startswith(site.SITE_URL)} == wanted
    assert targets[f"{here}index.md"] == text(page.language, "markdown")
    assert targets[f"{home}llms.txt"] == text(page.language, "all_markdown")
    assert foot.select_one("a[rel=license]")
    for url in wanted:
        path = built / url.removeprefix(site.SITE_URL)
        assert (path / "index.html" if url.endswith("/") else path).is_file()


# --- what other sites show of a page --------------------------------------------------------------


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_a_link_to_a_page_is_shown_with_its_title_its_description_and_a_picture(built, page):
    head = site.soup(built, page).head
    said = {meta["property"]: meta["content"] for meta in head.select("meta[property]")}
    name = site.LANGUAGES[page.language].site_name or CONFIG.site_name
    title = name if page.slug == "index" else head.title.get_text().removesuffix(f" - {name}")
    assert said == {
        "og:type": "website" if page.slug == "index" else "article",
        "og:title": title,
        "og:description": head.find("meta", {"name": "description"})["content"],
        "og:url": site.SITE_URL + page.path,
        "og:image": f"{site.SITE_URL}assets/social-{page.language}.png",
        "og:locale": linked.locale(page.language),
    }
    assert head.find("meta", {"name": "twitter:card"})["content"] == "summary_large_image"
    [script] = head.select('script[type="application/ld+json"]')
    data = json.loads(script.get_text())
    assert (data.get("headline") or data["name"]) == title
    assert (data["description"], data["url"]) == (said["og:description"], said["og:url"])
    assert data["inLanguage"] == page.language
    original = data.get("translationOfWork", {"url": said["og:url"]})["url"]
    assert original == site.SITE_URL + site.Page("en", page.slug).path
    licence = site.soup(built, page).footer.select_one("a[rel=license]")["href"]
    assert licence.startswith(data["license"])


def test_the_pictures_of_the_site_have_the_sizes_that_others_want(built):
    for language in site.LANGUAGES:
        assert size((built / f"assets/social-{language}.png").read_bytes()) == (1200, 630)
    head = site.soup(built, site.Page("it", "masks/causal")).head
    icon = urljoin(site.PREFIX + "it/masks/causal/", head.select_one("link[rel=apple-touch-icon]")["href"])
    assert size((built / icon.removeprefix(site.PREFIX)).read_bytes()) == (180, 180)


def test_the_font_of_the_pictures_has_every_character_of_their_words():
    known = set(map(chr, TTFont(pictures.FONT).getBestCmap()))
    words = "".join(f"{config.site_name or ''}{config.site_description}" for config in site.LANGUAGES.values())
    assert set(words + CONFIG.site_name) - known == set(), "cut the font anew, as tools/site/pictures.py says"


def test_a_visit_asks_for_no_picture_of_other_sites(tab):
    tab.open("", quiet=True)
    assert [url for url in tab.asked if re.search(r"\.png$", url)] == []
