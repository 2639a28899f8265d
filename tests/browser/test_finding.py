"""Ways to a page: its questions, the index of names, the map, and from language to language."""

import re
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.test_search import search
from tests.configuration import text
from tools.cells.source import read_cells
from tools.languages.markdown import read

# --- the questions --------------------------------------------------------------------------------


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_questions_of_all_pages_stand_in_order_and_each_leads_to_its_section(built, language):
    listed, home = site.Page(language, "questions"), site.SITE_URL + site.Page(language, "index").path
    pages = [(slug, read(site.Page(language, slug).source)) for slug in site.SLUGS]
    wanted = {ask: f"{home}{slug}/#{ask.section}".removesuffix("#top") for slug, page in pages for ask in page.asks}
    links = site.html(built, listed).css(".asked .entry a")
    assert [urljoin(site.SITE_URL + listed.path, link.attributes["href"]) for link in links] == [*wanted.values()]
    words = [" ".join(link.text().split()) for link in links]
    assert words == [block.words for _, page in pages for block in page.of("question")]
    plain = (built / listed.path / "index.md").read_text("utf-8")
    assert re.findall(r"^    - \[(.*)\]\((.*)\)$", plain, re.M) == [(ask.words, url) for ask, url in wanted.items()]


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_exercises_of_all_pages_stand_in_order_with_their_minutes_and_notebooks(built, language):
    listed = site.Page(language, "exercises")
    pages = {slug: read(site.Page("en", slug).source).front.get("exercises", {}) for slug in site.SLUGS}
    wanted = [(slug, name, minutes) for slug, exercises in pages.items() for name, minutes in exercises.items()]
    entries = site.html(built, listed).css(".exercise")
    assert len(entries) == len(wanted) == 32
    for entry, (slug, name, minutes) in zip(entries, wanted):
        page = site.Page(language, slug)
        assert text(language, "minutes").format(minutes=minutes) in entry.text()
        title, *others = [urljoin(f"/{listed.path}", link.attributes["href"]) for link in entry.css("a")]
        assert title == f"/{page.path}" + ("" if name == "top" else f"#{name}")
        assert name == "top" or read(page.source).sections[name].title.endswith(entry.css_first("a").text()[1:])
        notebooks = [link.attributes["href"] for link in site.html(built, page).css(".facts [download]")]
        assert others[-len(notebooks) :] == [f"/{page.path}{notebook}" for notebook in notebooks]
    totals = re.findall(r"\d+", " ".join(small.text() for small in site.html(built, listed).css("section h2 small")))
    assert sum(map(int, totals)) == sum(minutes for *_, minutes in wanted)
    plain = (built / listed.path / "index.md").read_text("utf-8")
    assert len(re.findall(r"^- \[.*\]\(http.*\)", plain, re.M)) == len(wanted)


def test_from_an_exercise_in_the_list_to_its_section_with_the_keyboard(tab):
    opened = tab.open("zh/exercises/")
    opened.locator(".exercise a[href$='masks/padding/#exercise']").focus()
    opened.keyboard.press("Tab")
    expect(opened.locator(".exercise a:focus")).to_have_attribute("href", re.compile("masks/padding/$"))
    opened.keyboard.press("Shift+Tab")
    opened.keyboard.press("Enter")
    tab.ends_at("/zh/masks/padding/#exercise")
    with opened.expect_download() as download:
        opened.get_by_role("link", name=text("zh", "unsolved")).click()
    assert download.value.suggested_filename == "padding-without-solutions.ipynb"


# --- the index of names and the map ---------------------------------------------------------------

WORDS = {"torch.cat": r"\btorch\.cat\(", "F.pad": r"\bF\.pad\(", "CausalAttention": r"\bCausalAttention\b"}


def says(word, cell):
    return re.search(word, re.sub('"{3}.*?"{3}', "", cell.code, flags=re.S))


def test_the_index_leads_to_the_first_cell_of_each_page_that_says_a_name(built):
    said = {
        entry.css_first("h2").text(): [link.attributes["href"].removeprefix("../") for link in entry.css("a")]
        for entry in site.html(built, site.Page("it", "symbols")).css(".entry")
    }
    pages = [page for page in site.PAGES_WITH_CELLS if page.language == "it"]
    for name, word in WORDS.items():
        sayers = [(page.slug, [cell.name for cell in read_cells(page.snippets) if says(word, cell)]) for page in pages]
        assert said[name] == [f"{slug}/#cell-{cells[0]}" for slug, cells in sayers if cells]
    assert "torch.manual_seed" not in said


def test_from_the_search_to_the_page_that_introduces_a_name(tab):
    opened = tab.open("it/foundations/causal/")
    search(opened, "CausalAttention")
    opened.locator(".search__section[href$='/symbols/#CausalAttention']").click()
    opened.wait_for_url("**/it/symbols/#CausalAttention")
    opened.locator(".entry:has(:target) a[href$='causal/#cell-module']").click()
    opened.wait_for_url("**/it/foundations/causal/#cell-module")
    expect(opened.locator("#cell-module")).to_be_in_viewport()


# --- languages ------------------------------------------------------------------------------------


def test_the_switcher_stays_on_the_page_and_at_the_section_over_many_hops(tab):
    opened = tab.open("foundations/causal/#row-zero")
    for language in [*(site.LANGUAGES.keys() - {"en"}), "en"] * 2:
        opened.locator(".md-select > button").click()
        opened.locator(f'.md-select a[hreflang="{language}"]').click()
        opened.wait_for_url(f"**{site.PREFIX}{site.Page(language, 'foundations/causal').path}#row-zero")
        expect(opened.locator("html")).to_have_attribute("lang", language)


@pytest.mark.parametrize("path", ["nope/", "it/foundations/causal/nope/nope.html"])
def test_the_page_for_a_lost_reader_speaks_all_languages_at_any_depth(tab, path):
    opened = tab.open(path, quiet=True)
    assert re.fullmatch(f"console: .* 404 .*{path}", tab.faults.pop())
    lines = {line.get_attribute("lang"): line.inner_text() for line in opened.locator("article p[lang]").all()}
    said = {language: [text(language, "lost"), text(language, "start_again")] for language in site.LANGUAGES}
    assert lines == {language: ("" if language == "zh" else " ").join(words) for language, words in said.items()}
    assert opened.locator("header .md-header__button.md-logo svg").bounding_box()["width"] < 40, "no styles"
    for language in site.LANGUAGES:
        target = opened.locator(f'article p[lang="{language}"] a').evaluate("link => link.href")
        assert target == tab.server.url + site.Page(language, "index").path
