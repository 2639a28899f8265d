"""A copy of the site on the reader's own disk, opened without a server, works but for the search."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.conftest import open_tab
from tools.cells.source import program


@pytest.fixture(scope="module")
def files(built):
    """The built site as the server of a tab: its addresses are those of files."""
    return site.Server(f"{built.as_uri()}/")


@pytest.fixture
def tab(chromium, files):
    with open_tab(chromium, files) as tab:
        yield tab


@pytest.mark.parametrize("path", ["foundations/causal/", "zh/map/"])
def test_every_link_of_a_copy_opens_a_page_of_it(tab, path):
    opened = tab.open(f"{path}index.html")
    links = opened.locator("a[href^='.'], a[href^='#'], a[href^='file:']").evaluate_all(
        "all => all.map(link => new URL(link.getAttribute('href'), location).pathname)"
    )
    assert len(links) > 30
    assert [link for link in links if not Path(link).is_file()] == []


def test_a_copy_leads_from_page_to_page_and_language_to_language_and_has_no_search(tab):
    opened = tab.open("index.html")
    expect(opened.locator(".search-button")).to_have_count(0)
    opened.locator(".md-nav--primary").get_by_text("Masks", exact=True).click()
    opened.locator(".md-nav--primary [open] a").first.click()
    opened.wait_for_url("**/masks/padding/index.html")
    opened.locator(".md-nav--secondary a[href='#probe']").click()
    opened.locator(".md-select button").click()
    opened.locator(".md-select a[hreflang=zh]").click()
    opened.wait_for_url("**/zh/masks/padding/index.html#probe")
    opened.locator(".pages a[rel=next]").click()
    opened.wait_for_url("**/zh/masks/combining/index.html")


def test_a_copy_has_its_styles_fonts_programs_and_explorers(tab):
    page = site.Page("it", "foundations/causal")
    opened = tab.open(f"{page.path}index.html", quiet=True)
    assert opened.evaluate("[...document.fonts].some(font => font.status === 'loaded')")
    assert tab.copy(0).split() == program(page.cells, page.cells[0]).split()
    opened.locator("a.term").first.hover()
    expect(opened.get_by_role("tooltip")).to_be_visible()
    tab.open("it/foundations/softmax/index.html#one-query?temperature=-1")
    opened.get_by_label("q x").press("ArrowUp")
    expect(opened.locator(".controls [type=range] + span").first).to_have_text("0.5000")
    opened.wait_for_url("**/softmax/index.html#one-query?temperature=-1&qx=1.6")
