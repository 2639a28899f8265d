"""Every page with cells is a notebook to download, in its language."""

import re

import nbformat
import pytest
from nbformat import v4
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import text
from tools.cells.source import read_cells

every_notebook = pytest.mark.parametrize("page", site.PAGES_WITH_CELLS, ids=str)


def read(built, page):
    made = (built / page.path / f"{page.slug.rpartition('/')[2]}.ipynb").read_text("utf-8")
    return v4.reads(made)


@pytest.mark.parametrize("slug", ["foundations/causal", "labs/see-the-masks"])
def test_a_page_hands_out_its_notebook(tab, built, slug):
    page = site.Page("zh", slug)
    tab.open(page.path)
    with tab.page.expect_download() as download:
        tab.page.locator(".facts a[download]").click()
    name = f"{slug.rpartition('/')[2]}.ipynb"
    assert download.value.suggested_filename == name
    assert download.value.path().read_bytes() == (built / page.path / name).read_bytes()


@every_notebook
def test_a_page_links_its_notebook_and_says_its_whole_address(built, page):
    html = site.soup(built, page)
    assert html.select_one("a[download]")["href"] == f"{page.slug.rpartition('/')[2]}.ipynb"
    address = html.select_one("#cloud code").text
    assert (built / address.removeprefix(site.SITE_URL)).is_file()
    assert address.startswith(site.SITE_URL)
    words = site.LANGUAGES[page.language].extra["text"]
    assert [way.text for way in html.select("#cloud li")] == list(words["cloud_ways"].values())


def test_by_keyboard_a_reader_sees_how_to_open_a_notebook_and_copies_its_address(tab):
    opened = tab.open("zh/foundations/causal/")
    button, box = opened.locator("[popovertarget=cloud]"), opened.locator("#cloud")
    button.focus()
    opened.keyboard.press("Enter")
    expect(box).to_be_visible()
    opened.keyboard.press("Tab")
    expect(box.locator("[data-copy]")).to_be_focused()
    opened.keyboard.press("Enter")
    tab.hears(text("zh", "address_copied"))
    assert opened.evaluate("navigator.clipboard.readText()") == box.locator("code").inner_text()
    opened.keyboard.press("Escape")
    expect(box).to_be_hidden()
    expect(button).to_be_focused()


def test_without_scripts_the_ways_to_open_a_notebook_and_its_address_are_shown(bare):
    opened = bare.open("zh/foundations/causal/")
    opened.locator("[popovertarget=cloud]").click()
    expect(opened.locator("#cloud code")).to_be_visible()
    expect(opened.locator("#cloud button")).to_have_count(0)


@every_notebook
def test_a_notebook_is_valid_and_has_the_cells_of_its_page_in_order(built, page):
    made = read(built, page)
    nbformat.validate(made)
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    cells = read_cells(page.snippets)
    assert [cell["source"] for cell in code] == [cell.code.rstrip("\n") for cell in cells]
    printed = ["".join(part["text"] for part in cell["outputs"] if "text" in part) or None for cell in code]
    assert printed == [cell.output for cell in cells]


@every_notebook
def test_a_notebook_says_what_its_page_says_without_the_marks_of_the_site(built, page):
    said = "\n\n".join(cell["source"] for cell in read(built, page)["cells"] if cell["cell_type"] == "markdown")
    source = page.source.read_text("utf-8")
    headings = [re.sub(r" *\{#.*\}$", "", line) for line in re.findall(r"^#+ .*", source, re.M)]
    assert [re.sub(r' *<a id=".*"></a>$', "", line) for line in re.findall(r"^#+ .*", said, re.M)] == headings
    plain = [
        paragraph
        for paragraph in re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S).strip().split("\n\n")
        if not re.match(r"[#!?-]|    |--8<--|\$\$", paragraph) and "](" not in paragraph
    ]
    assert plain
    assert [paragraph for paragraph in plain if paragraph not in said] == []
    assert re.findall(r"--8<--|^\?\?\?.*|^!!! .*|\{#[\w-]+\}|^---$|^description:|\{: ?\.", said, re.M) == []
    assert re.findall(r"(?:\]\(|src=\"|href=\")(?!https?://|#)[^)\"\s]+", said) == [], "it leads nowhere elsewhere"


def test_a_lab_shows_its_figures_with_their_names(tab):
    page = site.Page("zh", "labs/see-the-masks")
    opened, source = tab.open(page.path), page.source.read_text("utf-8")
    plots = opened.locator("article .plot svg")
    assert [plot.get_attribute("aria-label") for plot in plots.all()] == re.findall(r"^!\[(.+)\]\(#", source, re.M)
    assert all(plot.bounding_box()["height"] > 100 for plot in plots.all())
    assert opened.locator("article style").count() == 0
    frame = opened.locator("article .plot").first
    expect(frame).not_to_have_attribute("tabindex", "0")
    opened.set_viewport_size({"width": 360, "height": 800})
    expect(frame).to_have_attribute("tabindex", "0")  # the arrow keys move it


def test_a_lab_has_the_boxes_and_the_folds_of_its_page(built):
    page = site.Page("it", "labs/break-it-find-it")
    html, source = site.soup(built, page).article, page.source.read_text("utf-8")
    assert [fold.summary.text for fold in html.select("details")] == re.findall(r'^\?\?\? .*?"(.*)"', source, re.M)
    titles = [title.text for title in html.select("div > .admonition-title")]
    assert titles == re.findall('^!!! .*?"(.*)"', source, re.M)
    folded = {cell["id"] for cell in html.select("details .language-python")}
    code = [cell for cell in read(built, page)["cells"] if cell["cell_type"] == "code"]
    assert folded == {f"cell-{cell['id']}" for cell in code if cell["metadata"]}
    assert 0 < len(folded) < len(code)
