"""What every page owes its reader. Each is opened once, the languages in turn; on a phone in every language."""

import functools
import operator
import os
import re
import subprocess
import sys

import pytest

from tests.browser import site
from tests.browser.conftest import open_tab
from tools.cells.compare import same
from tools.cells.source import program
from tools.languages.markdown import read
from tools.languages.translations import parts

# Bytes that the server sends, gzipped: the same on every machine.
FIRST_VISIT = 65_000  # with fonts, to the page that takes most
NEXT_PAGE = 33_000
FRAME = 5_800  # of a next page, all that is not its article: the titles of all pages, too, 40 each
# The sum of layout shifts; 0.1 is called good. It is 0, unless a busy machine gets the font of a √ at the top late.
MOVE = 0.01
A4 = {"width": 642, "height": 900}  # between margins of 20 mm
CODE = "article .language-python"

# The words of the article outside code, which may hold a $ of its own.
PROSE = """() => {
    const article = document.querySelector("article").cloneNode(true)
    article.querySelectorAll("code, math, script, svg").forEach(element => element.remove())
    return article.textContent
}"""

# Pictures whose name a screen reader could not say.
NAMELESS = """article :is(img:is([alt=""], :not([alt])), svg:not([role=img][aria-label]:not([aria-label=""]))):not(
    [aria-hidden=true], [aria-hidden=true] *, a *, button *, .facts *)"""

# What reaches beyond the right edge of the screen, where the whole page can be moved sideways.
TOO_WIDE = """() => {
    const width = document.documentElement.clientWidth
    if (document.documentElement.scrollWidth <= width) return []
    return [...document.querySelectorAll("body *")].filter(element => element.getBoundingClientRect().right > width + 1)
        .map(element => `${element.tagName} ${element.getAttribute("class")}`).slice(0, 5)
}"""

# Formulas that need to be pushed sideways.
CUT = """() => [...document.querySelectorAll("article math[display=block]")]
    .filter(formula => formula.scrollWidth > formula.clientWidth).map(formula => formula.textContent)"""

# How much of the page moved by itself, as Cumulative Layout Shift counts it; what a click moves does not count.
MOVED = """() => document.fonts.ready.then(() => new Promise(resolve => {
    const sum = shifts => resolve(shifts.reduce((sum, {value, hadRecentInput}) => sum + !hadRecentInput * value, 0))
    new PerformanceObserver(list => sum(list.getEntries())).observe({type: "layout-shift", buffered: true})
    requestAnimationFrame(() => setTimeout(() => sum([]))) // nothing moved
}))"""

# Words smaller than 12 pixels, which a reader of a phone could not read, those of pictures too.
UNREADABLE = """() => {
    const found = [], words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (words.nextNode()) {
        const { data, parentElement: element } = words.currentNode
        if (!data.trim() || !element.checkVisibility()) continue
        const { a, b } = element.closest("svg") ? element.getScreenCTM() : { a: 1, b: 0 }
        if (parseFloat(getComputedStyle(element).fontSize) * Math.hypot(a, b) < 11.99) found.push(data)
    }
    return found
}"""

# What a finger could miss: smaller than 24 pixels, and neither in a sentence nor inside another that is large enough.
MISSED = """() => [...document.querySelectorAll("a, button, input, select, summary, label")].filter(target => {
    if (!target.checkVisibility({ visibilityProperty: true }) || target.closest("label:not(:scope)") ) return false
    const line = target.closest("p, li, td, th, dd, caption, figcaption, summary")
    const inSentence = line && line.textContent.trim().length > target.textContent.trim().length + 1
    const { width, height } = target.getBoundingClientRect()
    return Math.min(width, height) < 23.9 && width > 1 && !(inSentence && target.matches("a"))
}).map(target => target.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def visit(chromium, server, request):
    """A first visit to a page: its tab, with the page and what the server sent for it."""
    before = len(server.visits)
    with open_tab(chromium, server) as tab:
        tab.open(request.param.path, quiet=True)
        tab.subject, tab.sent, tab.moved = request.param, server.visits[before:], tab.page.evaluate(MOVED)
        tab.unfold()
        yield tab


every_page = pytest.mark.parametrize("visit", site.TURNS, ids=str, indirect=True, scope="module")
every_page_with_cells = pytest.mark.parametrize("visit", site.TURNS_WITH_CELLS, ids=str, indirect=True, scope="module")


@every_page
def test_a_first_visit_is_light_and_whole_asks_its_own_host_alone_and_moves_nothing(visit):
    assert visit.asked[0].endswith(visit.subject.path)
    assert visit.faults == []
    assert sum(answer.size for answer in visit.sent) <= FIRST_VISIT, visit.sent
    assert visit.moved <= MOVE


@every_page
def test_a_page_says_its_language_its_one_title_and_its_description(visit):
    source = read(visit.subject.source)
    assert visit.page.evaluate("document.documentElement.lang") == visit.subject.language
    assert [text.rstrip("¶") for text in visit.page.locator("h1").all_text_contents()] == [source.title]
    described = visit.page.locator('meta[name="description"]').get_attribute("content")
    assert described == source.front["description"]


@every_page
def test_every_picture_of_a_page_has_a_name(visit):
    assert visit.page.locator(NAMELESS).evaluate_all("all => all.map(one => one.outerHTML)") == []


@every_page
def test_every_formula_is_mathml_and_no_tex_is_left(visit):
    assert re.findall(r"\$|\\[a-zA-Z()\[\]]", visit.page.evaluate(PROSE)) == []
    assert visit.page.locator("article math").count() == len(parts(read(visit.subject.source))["formula"])
    assert visit.page.locator("article merror").count() == 0


@every_page_with_cells
def test_a_cell_and_its_output_are_shown_to_the_letter(visit):
    cells, outputs = visit.subject.cells, visit.page.locator("article .output")
    assert visit.page.locator(f"{CODE} code").all_text_contents() == [cell.code for cell in cells]
    assert outputs.all_text_contents() == [cell.output for cell in cells if cell.output]
    assert outputs.locator("button").count() == 0


@every_page_with_cells
def test_every_copy_button_copies_the_whole_program_of_its_cell(visit):
    cells = visit.subject.cells
    assert visit.page.locator(CODE).count() == len(cells)
    for number, cell in enumerate(cells):
        assert visit.copy(number) == program(cells, cell), cell.name


def test_a_copied_program_prints_in_a_fresh_python_what_the_page_shows(tab, tmp_path):
    """The last cell that prints, a folded solution; the runner proves it of every program, by what all buttons copy."""
    tab.open("it/masks/padding/")
    cells = tab.page.locator(CODE)
    last = cells.evaluate_all("cells => cells.findLastIndex(cell => cell.nextElementSibling?.matches('.output'))")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    pipes = {"input": tab.copy(last), "capture_output": True, "encoding": "utf-8"}
    run = subprocess.run([sys.executable, "-"], cwd=tmp_path, env=environment, **pipes)
    assert run.returncode == 0, run.stderr
    assert same(cells.nth(last).evaluate("cell => cell.nextElementSibling.textContent"), run.stdout)


@every_page_with_cells
def test_on_paper_nothing_reaches_beyond_the_margins_and_79_columns_of_code_fit(visit):
    """The last thing that is done with a visit."""
    visit.page.set_viewport_size(A4)
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate(TOO_WIDE) == []
    code = visit.page.locator(f"{CODE} pre > code").first
    code.evaluate("code => { code.textContent = 'x'.repeat(79); code.style.whiteSpace = 'pre' }")
    assert code.evaluate("code => code.scrollWidth <= code.clientWidth")


# --- on a phone and on paper ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def phone(chromium, server):
    """A tab on a phone that has the font for mathematics already."""
    with open_tab(chromium, server) as tab:
        tab.page.set_viewport_size({"width": 360, "height": 740})
        tab.open("foundations/causal/", quiet=True)
        yield tab


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_nothing_moves_by_itself_on_a_phone_nor_is_wider_than_it(phone, page):
    opened = phone.open(page.path)
    assert opened.evaluate(MOVED) <= MOVE
    phone.unfold()
    assert (opened.evaluate(TOO_WIDE), opened.evaluate(CUT)) == ([], [])
    assert (opened.evaluate(UNREADABLE), opened.evaluate(MISSED)) == ([], [])


# Titles of the map that its picture cuts, or that reach beyond the screen.
CUT_TITLES = """() => [...document.querySelectorAll(".arcs text, .step > a")].filter(title => {
    const box = (title.closest("svg") ?? document.documentElement).getBoundingClientRect()
    const { left, right } = title.getBoundingClientRect()
    return title.checkVisibility() && (left < box.left || right > box.right)
}).map(title => title.textContent)"""


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_map_cuts_no_title(tab, language):
    for width in (1280, 720, 390, 320):
        tab.page.set_viewport_size({"width": width, "height": 900})
        opened = tab.open(site.Page(language, "map").path)
        assert opened.locator(".arcs").is_visible() == (width >= 720)
        assert opened.evaluate(CUT_TITLES) == []


# --- one page of many -----------------------------------------------------------------------------


def test_a_next_page_takes_itself_alone_but_for_the_first_explorer_of_a_kind(newcomer):
    explorers = []
    with newcomer.page.expect_response("**/math.woff2"):  # a busy browser asks for it after the network was idle
        newcomer.open("foundations/causal/", quiet=True)
    for page in site.TURNS_WITH_CELLS[::3]:
        before = len(newcomer.server.visits)
        newcomer.open(page.path)
        # The browser fetches the icon once, when it likes: no event of the tab says when.
        answers = [visit.path for visit in newcomer.server.visits[before:] if not visit.path.endswith("/favicon.svg")]
        explorers += [path for path in answers if "/assets/explorers/" in path]
        assert {path for path in answers if path not in explorers} <= {site.PREFIX + page.path}
    assert len(explorers) == len(set(explorers))


def test_a_page_weighs_little_in_any_language_and_what_is_around_its_article_less(built):
    @functools.cache
    def size(path):
        return len(site.compressed(path.read_bytes()))

    heavy = []
    for page in site.PAGES:
        path = built / page.path / "index.html"
        html = path.read_text("utf-8")
        frame = re.sub("<article.*</article>", "", html, flags=re.S)
        assets = {(path.parent / name).resolve() for name in re.findall(r'(?:href|src)="([^"]*assets/[^"]*)"', html)}
        sizes = size(path), len(site.compressed(frame.encode())), size(path) + sum(map(size, assets))
        if any(map(operator.gt, sizes, (NEXT_PAGE, FRAME, FIRST_VISIT))):
            heavy.append(f"{page}: {sizes}")
    assert not heavy, "\n".join(heavy)
