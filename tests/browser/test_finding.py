"""Ways to a page: addresses of cells, the index of names, the map, the menu and the arc of a chapter."""

import re
import shutil
from collections import Counter
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.test_search import results, search
from tests.configuration import CONFIG, text
from tools.cells.source import read_cells
from tools.markdown import read

BUILDS_ON = {slug: read(site.Page("en", slug).source).front.get("builds_on", []) for slug in site.SLUGS}
LEADS_TO = {slug: [other for other in site.SLUGS if slug in BUILDS_ON[other]] for slug in site.SLUGS}


def slugs(page, links):
    """The pages that links of a page lead to, all in its language."""
    home, here = site.SITE_URL + site.Page(page.language, "index").path, site.SITE_URL + page.path
    return [urljoin(here, link["href"]).removeprefix(home).removesuffix("/") or "index" for link in links]


# --- cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", site.PAGES_WITH_CELLS, ids=str)
def test_each_cell_has_an_address_of_its_own(built, page):
    html = site.soup(built, page)
    ids = [element["id"] for element in html.select("[id]")]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    addresses = [block.get("id") for block in html.select("article .language-python")]
    assert addresses == [f"cell-{cell.name}" for cell in read_cells(page.snippets)]


# --- the index of names ---------------------------------------------------------------------------


WORDS = {"Tensor.masked_fill": r"\.masked_fill\b", "is_causal=": r"\bis_causal=", "torch.cat": r"\btorch\.cat\("}


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_index_leads_to_each_cell_that_says_a_name(built, language):
    html, said = site.soup(built, site.Page(language, "symbols")), {}
    for entry in html.select(".entry"):
        said[entry.h2.get_text()] = [link["href"].removeprefix("../") for link in entry.select("a")]
    for name, word in WORDS.items():
        cells = [
            f"{slug}/#cell-{cell.name}"
            for slug in site.SLUGS
            if site.Page("en", slug).snippets.is_file()
            for cell in read_cells(site.Page("en", slug).snippets)
            if re.search(word, re.sub('"{3}.*?"{3}', "", cell.code, flags=re.S))
        ]
        assert said[name] == cells
    assert "torch.tensor" not in said


def test_from_the_search_to_the_cell_that_uses_a_name(tab):
    opened = tab.open("it/masks/causal/")
    search(opened, "register_buffer")
    found = opened.locator(".search__section[href$='/symbols/#nn.Module.register_buffer']")
    expect(found).to_be_visible()
    found.click()
    opened.wait_for_url("**/it/symbols/#nn.Module.register_buffer")
    opened.locator(".entry:has(:target) a[href$='#cell-buffer']").click()
    opened.wait_for_url("**/it/masks/causal/#cell-buffer")
    expect(opened.locator("#cell-buffer")).to_be_in_viewport()


def test_the_index_does_not_stand_before_the_pages_that_explain(tab):
    opened = tab.open("masks/causal/")
    search(opened, "causal mask")
    expect(opened.locator(".search__page").first).to_be_visible()
    assert results(opened)[0] == "masks/causal/"
    assert not {"symbols/", "map/"} & set(results(opened)[:5])


# --- the map --------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_map_says_of_each_page_what_it_builds_on_and_where_it_leads(built, language):
    page = site.Page(language, "map")
    html, listed = site.soup(built, page), {}
    for step in html.select(".step"):
        [slug] = slugs(page, step.find_all("a", recursive=False))
        listed[slug] = {line.contents[0].strip(): slugs(page, line("a")) for line in step("small")}
    words = text(language, "builds_on"), text(language, "leads_to")
    assert listed == {
        slug: {word: pages for word, pages in zip(words, (BUILDS_ON[slug], LEADS_TO[slug])) if pages}
        for slug in site.SLUGS
        if site.chapter(slug)
    }
    drawn = {slugs(page, group("a"))[0]: group.path["d"].count("M") for group in html.select(".arcs g")}
    assert drawn == {slug: len(BUILDS_ON[slug]) for slug in listed}


def test_the_list_alone_is_shown_where_the_drawing_would_be_too_small(tab):
    opened = tab.open("map/")
    expect(opened.locator(".arcs")).to_be_visible()
    opened.set_viewport_size({"width": 360, "height": 740})
    expect(opened.locator(".arcs")).to_be_hidden()
    expect(opened.locator(".step").first).to_be_visible()


# --- where a page stands --------------------------------------------------------------------------


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_a_page_names_its_chapter_its_place_and_what_it_builds_on(built, page):
    html = site.soup(built, page)
    facts = [
        fact for fact in html.select(".facts li") if str(fact.contents[0]).strip() == text(page.language, "builds_on")
    ]
    assert [slugs(page, fact("a")) for fact in facts] == [BUILDS_ON[page.slug]] * bool(BUILDS_ON[page.slug])
    pages = [slug for slug in site.SLUGS if site.chapter(slug) == site.chapter(page.slug)]
    arc = html.select_one(".pages .arc")
    if not site.chapter(page.slug):
        assert not arc
        return
    assert slugs(page, arc("a")) == pages
    assert slugs(page, arc.select("[aria-current=page]")) == [page.slug]
    title = next(name for item in CONFIG.nav if isinstance(item, dict) for name in item if f"{pages[0]}." in str(item))
    title = (site.LANGUAGES[page.language].nav_translations or {}).get(title, title)
    place = {"number": pages.index(page.slug) + 1, "count": len(pages)}
    assert arc.contents[0].strip() == text(page.language, "arc").format(chapter=title, **place)


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_the_menu_lists_the_chapter_of_a_page_and_the_first_page_of_the_others(built, page):
    links = site.soup(built, page).select(".md-nav--primary a")
    assert slugs(page, links) == site.menu(page.slug)


NAV = re.compile(r"(?<=^nav:\n).*?(?=^# A lab)", re.M | re.S)


@pytest.fixture
def small(tmp_path):
    """A function that builds a site of two chapters, the second with some pages; it returns one page of the first."""

    def build(count):
        project = site.copy_project(tmp_path / f"of-{count}")
        shutil.rmtree(project / "docs")
        glossary = project / "languages/glossary.csv"
        glossary.write_text(re.sub(r".*,[\w-]+/[\w-]+#.*\n", "", glossary.read_text("utf-8")), encoding="utf-8")
        near, far = ["near/one.md", "near/two.md"], [f"far/page-{'x' * number}.md" for number in range(count)]
        for name in ("index.md", "glossary.md", "verified.md", *near, *far):
            path = project / "docs/en" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("---\ndescription: Words.\n---\n\n# A title\n", encoding="utf-8")
        nav = ["Home: index.md", f"Near: [{', '.join(near)}]", f"Far: [{', '.join(far)}]", "glossary.md", "verified.md"]
        config = project / "mkdocs.yml"
        config.write_text(NAV.sub("".join(f"  - {item}\n" for item in nav), config.read_text("utf-8")), "utf-8")
        site.build(project / "site", root=project, ONLY_LANGUAGE="en")
        return (project / "site/near/one/index.html").read_text("utf-8")

    return build


def test_a_page_stays_as_it_is_when_another_chapter_has_twice_the_pages(small):
    assert small(3) == small(6)
