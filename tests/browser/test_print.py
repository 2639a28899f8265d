"""On paper: folds as they are or as the reader asks, no program on two sheets, a heading beside what follows it."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import site

SHEETS = 12  # of a page whose folds are shut
# A PDF says of each link on which sheet it is: one without a place of its own stands at both ends of each block.
MARK = """() => {
    const mark = (name, place, block) => {
        const link = document.createElement("a")
        link.href = `mailto:${name}`
        link.textContent = "."
        link.style.position = "absolute"
        link.style.fontSize = "1px"
        block.insertAdjacentElement(place, link)
    }
    const all = selector => [...document.querySelectorAll(`article ${selector}`)]
    all(":is(.language-python, .output) code").forEach((code, number) => {
        const place = code.closest(".output") ? number - 1 : number // of what it belongs to
        mark(`program-${place}`, "afterbegin", code)
        mark(`program-${place}`, "beforeend", code)
    })
    all(":is(h1, h2, h3):has(+ :is(p, .highlight))").forEach((heading, number) => {
        mark(`heading-${number}`, "beforeend", heading)
        const next = heading.nextElementSibling
        mark(`heading-${number}`, "afterbegin", next.matches("p") ? next : next.querySelector("code"))
    })
}"""
OPEN = "() => document.querySelectorAll('article details').forEach(block => { block.open = true })"
# A browser without windows has no dialog to print.
LISTEN = """() => {
    globalThis.seen = []
    globalThis.print = () => seen.push([...document.querySelectorAll("article details")].map(block => block.open))
}"""
STATE = "() => [...document.querySelectorAll('article details')].map(block => [block.open, block.matches('.success')])"


def sheets(pdf):
    """How many sheets a PDF has, and on which of them each mark stands."""
    objects = {int(number): said for number, said in re.findall(rb"\n(\d+) 0 obj\n(.*?)\nendobj", pdf, re.S)}
    pages = [said for _, said in sorted(objects.items()) if re.search(rb"/Type /Page\b", said)]
    marks = {}
    for sheet, page in enumerate(pages):
        links = re.findall(rb"(\d+) 0 R", b"".join(re.findall(rb"/Annots \[(.*?)\]", page, re.S)))
        for name in re.findall(rb"/URI \(mailto:([\w-]+)\)", b"".join(objects[int(link)] for link in links)):
            marks.setdefault(name.decode(), set()).add(sheet)
    return len(pages), marks


@pytest.mark.parametrize("page", site.TURNS_WITH_CELLS, ids=str)
def test_no_program_is_printed_on_two_sheets_nor_a_heading_on_another(tab, page):
    """An output stands on the sheet of its program, whether folds are shut or open."""
    opened = tab.open(page.path)
    opened.evaluate(MARK)
    shut, marks = sheets(opened.pdf(format="A4"))
    opened.evaluate(OPEN)
    unfolded, more = sheets(opened.pdf(format="A4"))
    assert len(marks) > 3
    assert len(more) >= len(marks)
    assert [(name, on) for found in (marks, more) for name, on in found.items() if len(on) > 1] == []
    assert shut <= min(SHEETS, unfolded)


def test_paper_has_the_article_with_the_titles_of_its_folds_and_no_menus(tab):
    opened = tab.open("foundations/causal/")
    opened.emulate_media(media="print")
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    folds = opened.locator("article details:not(.facts *)")
    assert folds.count() > 3
    expect(opened.locator("article details[open]")).to_have_count(0)
    assert all(title.is_visible() for title in folds.locator("summary").all())
    expect(opened.locator("#cell-solution")).to_be_hidden()
    menus = (".md-header", ".md-nav--primary", ".md-nav--secondary", ".skip", ".place", ".pages", ".headerlink")
    for part in (*menus, ".facts [download]", "#print", "#cloud", ".home"):
        expect(opened.locator(part).first).to_be_hidden()
    expect(opened.locator("article")).to_be_visible()
    link = opened.locator("article p a[href^='https:']").first
    assert link.get_attribute("href") in link.evaluate("link => getComputedStyle(link, '::after').content")


@pytest.mark.parametrize("language", site.LANGUAGES)
@pytest.mark.parametrize("way", ["shown", "folds", "all"])
def test_a_reader_chooses_what_is_unfolded_on_paper_with_mouse_or_keyboard(tab, language, way):
    """A solution that is open on the screen is not printed by who asks for none; afterwards all is as it was."""
    opened = tab.open(site.Page(language, "foundations/one-head").path)
    opened.evaluate(LISTEN)
    opened.locator("details.success > summary").first.click()
    words = site.LANGUAGES[language].extra["text"]
    opened.get_by_text(words["print"], exact=True).click()
    button = opened.get_by_role("button", name=words["print_ways"][way], exact=True)
    before = opened.evaluate(STATE)
    assert (True, True) in map(tuple, before)
    button.press("Enter") if language == "it" else button.click()
    opened.wait_for_function("seen.length")
    wanted = {"shown": lambda is_open, _: is_open, "folds": lambda _, solves: not solves, "all": lambda *_: True}[way]
    assert opened.evaluate("seen") == [[wanted(*block) for block in before]]
    opened.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.evaluate(STATE) == before
