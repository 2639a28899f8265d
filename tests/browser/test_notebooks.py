"""Every page with cells is a notebook to download, in its language."""

import re

import nbformat
import pytest
from nbformat import v4
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import text
from tools.cells.source import files_beside, read_cells

# What stands in the article and has something else upon it.
COVERED = """() => [...document.querySelectorAll("article :is(h1, p, .facts > li), .place")].filter(one => {
    if (!one.checkVisibility()) return false // it is folded
    const { left, top, width, height } = one.getBoundingClientRect()
    const above = document.elementFromPoint(left + width / 2, top + height / 2)
    return above && !one.contains(above)
}).map(one => one.textContent)"""

SOLUTION = re.compile(r'^\?\?\? success "(.*)"\n((?: {4}.*\n|\n)+)', re.M)

every_notebook = pytest.mark.parametrize("page", site.PAGES_WITH_CELLS, ids=str)


def read(built, page, end=""):
    made = (built / page.path / f"{page.slug.rpartition('/')[2]}{end}.ipynb").read_text("utf-8")
    return v4.reads(made)


@every_notebook
def test_a_page_links_its_notebook_and_says_its_whole_address(built, page):
    html, name = site.html(built, page), f"{page.slug.rpartition('/')[2]}.ipynb"
    assert html.css_first("a[download]").attributes["href"] == name
    assert html.css_first("#cloud code").text() == f"{site.SITE_URL}{page.path}{name}"
    words = site.LANGUAGES[page.language].extra["text"]
    assert [way.text() for way in html.css("#cloud li")] == list(words["cloud_ways"].values())


@pytest.mark.parametrize(("width", "language"), [(1280, "en"), (390, "zh"), (320, "it")])
def test_how_to_run_it_elsewhere_unfolds_below_its_title_and_covers_nothing(tab, width, language):
    tab.page.set_viewport_size({"width": width, "height": 900})
    opened = tab.open(site.Page(language, "masks/padding").path)
    title = opened.get_by_text(text(language, "cloud"))
    place = title.bounding_box()
    title.click()
    expect(opened.locator("#cloud li").last).to_be_in_viewport(ratio=1)
    assert opened.evaluate(COVERED) == []
    assert title.bounding_box() == place
    title.press("Enter")
    expect(opened.locator("#cloud li").last).to_be_hidden()


@every_notebook
def test_a_notebook_is_valid_and_has_the_cells_of_its_page_in_order(built, page):
    made = read(built, page)
    nbformat.validate(made)
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    cells = read_cells(page.snippets)
    files = [cell for cell in code if cell["source"].startswith("%%writefile")]
    assert {cell["id"] for cell in files} == {file.stem for cell in cells for file in files_beside(cell)}
    code = [cell for cell in code if cell not in files]
    assert [cell["source"] for cell in code] == [cell.code.rstrip("\n") for cell in cells]
    printed = ["".join(part["text"] for part in cell["outputs"] if "text" in part) or None for cell in code]
    assert printed == [cell.output for cell in cells]


@every_notebook
def test_a_notebook_says_what_its_page_says_without_the_marks_of_the_site(built, page):
    said = "\n\n".join(cell["source"] for cell in read(built, page)["cells"] if cell["cell_type"] == "markdown")
    said = re.sub("^```python\n.*?^```$", "", said, flags=re.M | re.S)  # a section of a file is no cell of it
    source = page.source.read_text("utf-8")
    headings = [re.sub(r" *\{#.*\}$", "", line) for line in re.findall(r"^#+ .*", source, re.M)]
    assert [re.sub(r' *<a id=".*"></a>$', "", line) for line in re.findall(r"^#+ .*", said, re.M)] == headings
    plain = [
        paragraph
        for paragraph in re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S).strip().split("\n\n")
        if not re.match(r"[#!?-]|    |--8<--|```python|\$\$", paragraph) and "](" not in paragraph
    ]
    assert plain
    assert [paragraph for paragraph in plain if paragraph not in said] == []
    assert re.findall(r"--8<--|^\?\?\?.*|^!!! .*|\{#[\w-]+\}|^---$|^description:|\{: ?\.", said, re.M) == []
    assert re.findall(r"(?:\]\(|src=\"|href=\")(?!https?://|#)[^)\"\s]+", said) == [], "it leads nowhere elsewhere"


@every_notebook
def test_a_notebook_without_solutions_lacks_nothing_but_them(built, page):
    """In place of each stands its title and an empty cell; no other cell needs what a solution defines."""
    html, folds = site.html(built, page), SOLUTION.findall(page.source.read_text("utf-8"))
    links = [(link.attributes["href"], link.text()) for link in html.css(".facts [download]")]
    assert len(links) == (2 if folds else 1)
    if not folds:
        return
    assert links[1] == (links[0][0].replace(".", "-without-solutions."), text(page.language, "unsolved"))
    solved, made = read(built, page), read(built, page, "-without-solutions")
    nbformat.validate(made)
    names = {name for _, inside in folds for name in re.findall(r'^ {4}--8<-- ".*:(.+)"', inside, re.M)}
    cells = read_cells(page.snippets)
    assert not any(cell.shared for cell in cells if cell.name in names)
    kept = [cell for cell in solved.cells if cell.cell_type == "code" and cell.id not in names]
    assert {cell.name for cell in cells if re.match("check|exercise", cell.name)} <= {cell.id for cell in kept}
    assert [cell for cell in made.cells if cell.cell_type == "code" and cell.source] == kept
    empty = [number for number, cell in enumerate(made.cells) if not cell.source]
    assert [made.cells[number - 1].source.rpartition("\n")[2] for number in empty] == [
        f"**{title}**" for title, _ in folds
    ]
    lines = {line for cell in made.cells for line in cell.source.splitlines()}
    others = {line for cell in solved.cells if cell.id not in names for line in cell.source.splitlines()}
    secret = {line for cell in cells if cell.name in names for line in cell.code.splitlines()} - others
    assert lines.isdisjoint(secret)
    told = {line.strip() for _, inside in folds for line in inside.splitlines() if len(line) > 30}
    assert [line for line in told if line in "\n".join(lines)] == []


def test_a_lab_shows_its_figures_with_their_names(tab):
    page = site.Page("zh", "labs/see-the-masks")
    plots = tab.open(page.path).locator("article .plot svg").all()
    names = re.findall(r"^!\[(.+)\]\(#", page.source.read_text("utf-8"), re.M)
    assert [plot.get_attribute("aria-label") for plot in plots] == names
    assert all(plot.bounding_box()["height"] > 100 for plot in plots)
