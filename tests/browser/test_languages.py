"""Every page in every language, and from each the way to the two others."""

import re
from urllib.parse import urljoin
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

from tests.browser import site
from tests.configuration import text

MAPS = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9", "x": "http://www.w3.org/1999/xhtml"}


def everywhere(page):
    """The addresses of a page by language; whoever reads none of them gets the English one."""
    found = {language: site.SITE_URL + site.Page(language, page.slug).path for language in site.LANGUAGES}
    return found | {"x-default": found["en"]}


def switch(opened, language):
    opened.locator(".md-select > button").click()
    opened.locator(f'.md-select a[hreflang="{language}"]').click()


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_the_switcher_and_the_menus_of_a_page_lead_to_its_own_languages(built, page):
    soup = site.soup(built, page)
    here = urljoin(site.SITE_URL, page.path)
    links = {link["hreflang"]: urljoin(here, link["href"]) for link in soup.select(".md-select a")}
    assert links == {lang: urljoin(site.SITE_URL, site.Page(lang, page.slug).path) for lang in site.LANGUAGES}
    assert [link["hreflang"] for link in soup.select(".md-select a[aria-current]")] == [page.language]
    menus = [urljoin(here, link["href"]) for link in soup.select(".md-nav--primary a")]
    outside = "|".join(site.LANGUAGES.keys() - {"en", page.language})
    assert [url for url in menus if re.search(rf"{site.PREFIX}({outside})/", url)] == []


@pytest.mark.parametrize("slug", ["index", "masks/causal", "labs/see-the-masks"])
def test_the_switcher_stays_on_the_page_over_many_hops(tab, slug):
    opened = tab.open(site.Page("en", slug).path)
    for language in [*(site.LANGUAGES.keys() - {"en"}), "en"] * (2 if slug == "index" else 1):
        switch(opened, language)
        opened.wait_for_url(f"**{site.PREFIX}{site.Page(language, slug).path}")
        assert opened.evaluate("document.documentElement.lang") == language


def test_the_switcher_stays_at_the_section(tab):
    opened = tab.open("masks/causal/#row-zero")
    switch(opened, "zh")
    opened.wait_for_url("**/zh/masks/causal/#row-zero")


@pytest.mark.parametrize("path", ["nope/", "nope/deep/", "zh/nope", "it/masks/causal/nope/nope.html"])
def test_the_page_for_a_lost_reader_speaks_all_languages_at_any_depth(tab, path):
    opened = tab.open(path, quiet=True)
    assert tab.faults == [
        f"404: {tab.server.url}{path}",
        "console: Failed to load resource: the server responded with a status of 404 (Not Found)",
    ]
    tab.faults.clear()
    assert opened.evaluate("document.documentElement.lang") == "en"
    lines = {line.get_attribute("lang"): line.inner_text() for line in opened.locator("article p[lang]").all()}
    said = {language: [text(language, "lost"), text(language, "start_again")] for language in site.LANGUAGES}
    assert lines == {language: ("" if language == "zh" else " ").join(words) for language, words in said.items()}
    # The styles are there, and the menus are those of the default language.
    assert opened.locator("header .md-header__button.md-logo svg").bounding_box()["width"] < 40
    menus = opened.locator(".md-nav--primary a").evaluate_all("all => all.map(one => one.href)")
    assert {tab.server.url + site.Page("en", slug).path for slug in site.menu("404")} <= set(menus)
    for language in site.LANGUAGES:
        target = opened.locator(f'article p[lang="{language}"] a').evaluate("link => link.href")
        assert target == tab.server.url + site.Page(language, "index").path


def test_there_is_one_page_for_lost_readers(built):
    assert [path.relative_to(built).as_posix() for path in built.rglob("404.html")] == ["404.html"]


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_the_head_names_the_page_in_every_language_by_its_whole_address(built, page):
    soup = site.soup(built, page)
    assert {link["hreflang"]: link["href"] for link in soup.head.select("link[hreflang]")} == everywhere(page)
    assert soup.head.select_one("link[rel=canonical]")["href"] == site.SITE_URL + page.path
    assert soup.head.select_one("link[type='text/markdown']")["href"] == "index.md"


def test_the_sitemap_has_every_page_with_all_its_alternates(built):
    tree = ElementTree.parse(built / "sitemap.xml")
    found = {
        entry.find("s:loc", MAPS).text: {
            link.get("hreflang"): link.get("href") for link in entry.findall("x:link[@rel='alternate']", MAPS)
        }
        for entry in tree.findall("s:url", MAPS)
    }
    assert found == {site.SITE_URL + page.path: everywhere(page) for page in site.PAGES}
    assert tree.findall("s:url/s:lastmod", MAPS) == [], "no build knows the day of a change"


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_menus_and_buttons_speak_the_language_of_the_page(tab, language):
    opened = tab.open(site.Page(language, "masks/causal").path)
    said = {
        "search": opened.locator(".search-button span").inner_text(),
        "home": opened.locator(".md-nav--primary a").first.inner_text(),
        "copy": opened.locator(".cell-tools [data-copy]").first.get_attribute("title"),
        "show": opened.locator("[data-show]").first.get_attribute("aria-label"),
        "output": opened.locator(".output").first.get_attribute("aria-label"),
        "notebook": opened.locator(".facts a[download]").inner_text(),
    }
    home = (site.LANGUAGES[language].nav_translations or {}).get("Home", "Home")
    keys = {"search": "search", "copy": "copy", "show": "show", "output": "output", "notebook": "notebook"}
    assert said == {"home": home} | {part: text(language, key) for part, key in keys.items()}


SPOKEN = ("alt", "aria-label", "placeholder", "title")
SAME = {"it": {"Cross-attention"}}  # a name that Italian keeps


def words_around(built, page):
    """What a page says outside its article and its list of languages, on the screen and to a screen reader."""
    soup = BeautifulSoup((built / page.path / "index.html").read_text("utf-8"), "html.parser")
    for other in soup.select("article, head, script, .md-select, .md-nav--secondary, .foot [hreflang]"):
        other.decompose()
    said = set(soup.stripped_strings)
    for element in soup.find_all(True):
        said |= {value for name, value in element.attrs.items() if name in SPOKEN or name.startswith("data-")}
    return {" ".join(words.split()) for words in said if re.search("[A-Za-z]{3}", words)}


@pytest.mark.parametrize("slug", site.SLUGS)
@pytest.mark.parametrize("language", sorted(site.LANGUAGES.keys() - {"en"}))
def test_around_its_article_a_page_says_nothing_in_english(built, language, slug):
    english, said = (words_around(built, site.Page(other, slug)) for other in ("en", language))
    assert len(english) > 20
    assert said & english == SAME.get(language, set())
