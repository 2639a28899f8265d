"""The wrong line of a cell, the right one and new ones are seen, heard and printed, and copied as every other."""

import re

import pytest

from tests.browser import site
from tests.browser.test_accessibility import COLOURS, FAULTS, faults
from tests.browser.test_outputs import SCHEMES
from tools.cells.source import program

SIGNS = {"wrong": "✗", "right": "✓", "new": "+"}

# Of each line: its sign, whether that stands left of all code, and whether paper shows its tint, in the whole width.
SEEN = """lines => lines.map(line => {
    const style = getComputedStyle(line), sign = getComputedStyle(line, "::before")
    const box = line.getBoundingClientRect(), edge = line.parentElement.getBoundingClientRect()
    const text = document.createRange()
    text.selectNodeContents(line)
    const beside = box.left + parseFloat(sign.left) + parseFloat(sign.width) < text.getBoundingClientRect().left + 3
    const tinted = style.printColorAdjust === "exact" && style.backgroundColor !== "rgba(0, 0, 0, 0)"
    const wide = Math.abs(box.left - edge.left) < 2 && box.right > edge.right - 2
    return [line.className, sign.content[1], beside, tinted, wide]
})"""


@pytest.mark.parametrize(("slug", "name"), [("foundations/scale", "twice"), ("cache/grouped", "attention")])
@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("it", "dark"), ("zh", "print of a dark screen")])
def test_wrong_right_and_new_lines_are_seen_heard_and_copied(tab, language, scheme, slug, name):
    page, words = site.Page(language, slug), site.LANGUAGES[language].extra["text"]
    [(number, cell)] = [(number, cell) for number, cell in enumerate(page.cells) if cell.name == name]
    marked = sorted(cell.marks)
    tab.page.emulate_media(**SCHEMES[scheme])
    opened = tab.open(page.path)
    code = opened.locator(f"#cell-{name} code")

    marks = code.locator("mark")
    assert marks.evaluate_all(SEEN) == [[kind, SIGNS[kind], True, True, True] for _, kind in marked]
    assert faults(opened, FAULTS | COLOURS, f"#cell-{name}") == []
    opened.emulate_media(forced_colors="active")
    edges = marks.evaluate_all("all => all.map(mark => parseFloat(getComputedStyle(mark).borderInlineStartWidth))")
    assert min(edges) > 1

    heard, lines = re.sub(r'\\?"', "", code.aria_snapshot()), cell.code.replace('"', "").splitlines()
    for line, kind in marked:
        assert f"- mark: {words[kind]} {' '.join(lines[line - 1].split())}\n" in heard
    selected = code.evaluate("code => `${getSelection().selectAllChildren(code), getSelection()}`")
    assert selected.rstrip() == cell.code.rstrip()
    assert tab.copy(number) == program(page.cells, cell)
