"""A site that knows its repository: each page links there, opens its notebook in Colab and says how to cite it."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import ROOT, text
from tools.cells.source import SourceError
from tools.site.home import refuse_unknown

HOME = ".facts.home"
COLAB = "https://colab.research.google.com/github/example/attention/blob/notebooks/"


def hrefs(built, page, name):
    """The links of a list below the title of a page, or at its end, by their words."""
    html = (built / page.path / "index.html").read_text("utf-8")
    found = re.search(rf'<ul class="{name}".*?</ul>', html, re.S)  # read whole, 108 pages would take half a minute
    return {link.text: link["href"] for link in BeautifulSoup(found[0] if found else "", "html.parser").select("a")}


def test_every_page_links_to_its_text_its_cells_a_report_that_names_it_and_its_notebook_in_colab(built):
    for page in site.PAGES:
        words, links = site.LANGUAGES[page.language].extra["text"], hrefs(built, page, "facts home")
        path = page.source.relative_to(ROOT).as_posix()
        assert links.pop(words["edit"]) == f"{site.REPOSITORY_URL}/edit/main/{path}"
        report = urlsplit(links.pop(words["report"]))
        assert report._replace(query="").geturl() == f"{site.REPOSITORY_URL}/issues/new"
        assert parse_qs(report.query) == {"title": [f"{path}: "], "body": [f"{site.SITE_URL}{page.path}\n\n"]}
        cells = f"{site.REPOSITORY_URL}/blob/main/snippets/{page.slug}.md"
        assert links == ({words["source"]: cells} if page.snippets.is_file() else {}), page
        colab = hrefs(built, page, "facts").get(words["colab"], "")
        assert colab.startswith(COLAB) == page.snippets.is_file()
        assert not colab or (built / colab.removeprefix(COLAB)).is_file(), "it lies on the branch as in the site"


def test_a_finger_edits_and_reports_in_italian(chromium, server):
    context = chromium.new_context(has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    context.route(re.compile("^https:"), lambda route: route.fulfill(body="elsewhere"))
    opened = context.new_page()
    asked = []
    opened.on("request", lambda request: asked.append(request.url))
    for number, address in enumerate(("/edit/main/docs/it/masks/padding.md", "/issues/new?title=docs%2Fit%2Fmasks")):
        opened.goto(f"{server.url}it/masks/padding/")
        link = opened.locator(f"{HOME} a").nth(number)
        assert link.bounding_box()["height"] >= 16
        assert not any(url.startswith("https://") for url in asked), "before the link is touched"
        link.tap()
        opened.wait_for_url(f"{site.REPOSITORY_URL}{address}**")
        asked.clear()
    context.close()


def test_by_keyboard_a_reader_copies_how_to_cite_a_page(tab):
    opened = tab.open("zh/foundations/causal/")
    box = opened.locator("#cite")
    opened.locator("[popovertarget=cite]").focus()
    opened.keyboard.press("Enter")
    expect(box).to_be_visible()
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    expect(opened.locator("#said")).to_have_text(text("zh", "bibtex_copied"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert opened.evaluate("navigator.clipboard.readText()") == (
        "@misc{attention-by-example,\n"
        f"  author = {{{{{citation['authors'][0]['name']}}}}},\n"
        f"  title = {{{citation['title']}}},\n"
        f"  year = {{{citation['date-released'].year}}},\n"
        f"  url = {{{site.SITE_URL}zh/foundations/causal/}}\n"
        "}\n"
    )
    opened.keyboard.press("Escape")
    expect(box).to_be_hidden()


def test_a_mouse_opens_the_notebook_in_colab(tab):
    opened = tab.open("foundations/causal/")
    opened.context.route(re.compile("^https:"), lambda route: route.fulfill(body="elsewhere"))
    opened.get_by_text("Open in Colab", exact=True).click()
    opened.wait_for_url(f"{COLAB}foundations/causal/causal.ipynb")
    assert re.fullmatch("asks another host: https://colab.*", tab.faults.pop(0))
    tab.faults.clear()  # Chromium asks for an icon there, too


@pytest.mark.parametrize("address", ["https://gitlab.com/a/b", "https://github.com/a", "https://github.com/a/b.git"])
def test_an_address_whose_links_are_not_known_is_refused_in_a_sentence(address):
    with pytest.raises(SourceError, match=r"^REPOSITORY_URL is 'https://.*'; write .* https://github\.com/owner/name"):
        refuse_unknown(address)
    refuse_unknown("https://github.com/a-b/c.d")
    refuse_unknown(None)
