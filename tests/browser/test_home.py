"""A site that knows its repository: each page links there, opens its notebook in Colab and says how to cite it."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import ROOT, text
from tools.cells.source import SourceError
from tools.site.home import refuse_unknown

COLAB = "https://colab.research.google.com/github/example/attention/blob/notebooks/"


def hrefs(built, page, name):
    """The links of a list below the title of a page, or at its end, by their words."""
    links = site.html(built, page).css(f"ul[class='{name}'] a")
    return {link.text(): link.attributes["href"] for link in links}


def test_a_page_links_to_its_text_its_cells_a_report_and_its_notebook_in_colab(built):
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


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (text("it", "edit"), f"{site.REPOSITORY_URL}/edit/main/docs/it/masks/padding.md"),
        (text("it", "report"), f"{site.REPOSITORY_URL}/issues/new?title=docs%2Fit%2Fmasks**"),
        (text("it", "colab"), f"{COLAB}it/masks/padding/padding.ipynb"),
    ],
)
def test_a_finger_edits_reports_and_opens_the_notebook_in_colab(phone, words, address):
    opened = phone.open("it/masks/padding/")
    opened.context.route(re.compile("^https:"), lambda route: route.fulfill(body="elsewhere"))
    opened.get_by_role("link", name=words, exact=True).tap()
    opened.wait_for_url(address)
    phone.faults.clear()  # it asked another host, when the link was touched


def test_by_keyboard_a_reader_copies_how_to_cite_a_page(tab):
    opened = tab.open("zh/foundations/causal/")
    opened.locator("#cite summary").press("Enter")
    expect(opened.locator("#cite code")).to_be_visible()
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


@pytest.mark.parametrize("address", ["https://gitlab.com/a/b", "https://github.com/a", "https://github.com/a/b.git"])
def test_an_address_whose_links_are_not_known_is_refused_in_a_sentence(address):
    with pytest.raises(SourceError, match=r"^REPOSITORY_URL is 'https://.*'; write .* https://github\.com/owner/name"):
        refuse_unknown(address)
    refuse_unknown("https://github.com/a-b/c.d")
    refuse_unknown(None)
