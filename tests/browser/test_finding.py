"""Ways to a page: its questions, the index of names, the map, and from language to language."""

import re
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.test_search import results, search
from tests.configuration import text
from tools.cells.source import read_cells
from tools.languages.markdown import read

# --- the questions --------------------------------------------------------------------------------


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_questions_of_all_pages_stand_in_order_and_each_leads_to_its_section(built, language):
    listed, home = site.Page(language, "questions"), site.SITE_URL + site.Page(language, "index").path
    pages = [(slug, read(site.Page(language, slug).source)) for slug in site.SLUGS]
    wanted = {ask: f"{home}{slug}/#{ask.section}".removesuffix("#top") for slug, page in pages for ask in page.asks}
    links = site.soup(built, listed).select(".asked .entry a")
    assert [urljoin(site.SITE_URL + listed.path, link["href"]) for link in links] == [*wanted.values()]
    words = [" ".join(link.get_text().split()) for link in links]
    assert words == [block.words for _, page in pages for block in page.of("question")]
    plain = (built / listed.path / "index.md").read_text("utf-8")
    assert re.findall(r"^    - \[(.*)\]\((.*)\)$", plain, re.M) == [(ask.words, url) for ask, url in wanted.items()]


# --- the index of names and the map ---------------------------------------------------------------

WORDS = {"torch.cat": r"\btorch\.cat\(", "F.pad": r"\bF\.pad\(", "CausalAttention": r"\bCausalAttention\b"}


def says(word, cell):
    return re.search(word, re.sub('"{3}.*?"{3}', "", cell.code, flags=re.S))


def test_the_index_leads_to_the_first_cell_of_each_page_that_says_a_name(built):
    said = {}
    for entry in site.soup(built, site.Page("it", "symbols")).select(".entry"):
        said[entry.h2.get_text()] = [link["href"].removeprefix("../") for link in entry.select("a")]
    pages = [page for page in site.PAGES_WITH_CELLS if page.language == "it"]
    for name, word in WORDS.items():
        sayers = [(page.slug, [cell.name for cell in read_cells(page.snippets) if says(word, cell)]) for page in pages]
        assert said[name] == [f"{slug}/#cell-{cells[0]}" for slug, cells in sayers if cells]
    assert "torch.tensor" not in said


def test_from_the_search_to_the_page_that_introduces_a_name(tab):
    opened = tab.open("it/foundations/causal/")
    search(opened, "CausalAttention")
    found = opened.locator(".search__section[href$='/symbols/#CausalAttention']")
    expect(found).to_be_visible()
    found.click()
    opened.wait_for_url("**/it/symbols/#CausalAttention")
    opened.locator(".entry:has(:target) a[href$='causal/#cell-module']").click()
    opened.wait_for_url("**/it/foundations/causal/#cell-module")
    expect(opened.locator("#cell-module")).to_be_in_viewport()


@pytest.mark.parametrize(
    ("prefix", "words", "named"),
    [
        ("", "causal mask", "foundations/causal/"),
        ("it/", "maschera causale", "it/foundations/causal/"),
        ("zh/", "因果掩码", "zh/foundations/causal/"),
        ("", "kv cache", "cache/kv-cache/"),
    ],
)
def test_a_page_of_that_name_is_first_and_the_index_not_before_the_pages_that_explain(tab, prefix, words, named):
    opened = tab.open(f"{prefix}foundations/causal/")
    search(opened, words)
    expect(opened.locator(".search__page").first).to_be_visible()
    assert results(opened)[0] == named
    assert not {f"{prefix}symbols/", f"{prefix}map/"} & set(results(opened)[:5])


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
    assert f"404: {tab.server.url}{path}" in tab.faults
    assert len(tab.faults) == 2, "the console says so, too"
    tab.faults.clear()
    lines = {line.get_attribute("lang"): line.inner_text() for line in opened.locator("article p[lang]").all()}
    said = {language: [text(language, "lost"), text(language, "start_again")] for language in site.LANGUAGES}
    assert lines == {language: ("" if language == "zh" else " ").join(words) for language, words in said.items()}
    assert opened.locator("header .md-header__button.md-logo svg").bounding_box()["width"] < 40, "no styles"
    for language in site.LANGUAGES:
        target = opened.locator(f'article p[lang="{language}"] a').evaluate("link => link.href")
        assert target == tab.server.url + site.Page(language, "index").path
