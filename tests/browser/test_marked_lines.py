"""The wrong line of a cell and the right one are seen, heard and printed, and copied as every other."""

import pytest

from tests.browser import site
from tests.browser.test_accessibility import COLOURS, FAULTS, faults
from tests.browser.test_outputs import SCHEMES
from tools.cells.source import program

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


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("it", "dark"), ("zh", "print of a dark screen")])
def test_the_wrong_line_and_the_right_one_are_seen_heard_and_copied(tab, language, scheme):
    page, words = site.Page(language, "foundations/scale"), site.LANGUAGES[language].extra["text"]
    [(number, cell)] = [(number, cell) for number, cell in enumerate(page.cells) if cell.name == "twice"]
    tab.page.emulate_media(**SCHEMES[scheme])
    opened = tab.open(page.path)
    code = opened.locator("#cell-twice code")

    marks = code.locator("mark")
    assert marks.evaluate_all(SEEN) == [["wrong", "✗", True, True, True], ["right", "✓", True, True, True]]
    assert faults(opened, FAULTS | COLOURS, "#cell-twice") == []
    opened.emulate_media(forced_colors="active")
    edges = marks.evaluate_all("all => all.map(mark => parseFloat(getComputedStyle(mark).borderInlineStartWidth))")
    assert min(edges) > 1

    heard, lines = code.aria_snapshot().replace('"', ""), cell.code.splitlines()
    for kind, [line] in cell.marks.items():
        assert f"- mark: {words[kind]} {' '.join(lines[line - 1].split())}\n" in heard
    selected = code.evaluate("code => `${getSelection().selectAllChildren(code), getSelection()}`")
    assert selected.rstrip() == cell.code.rstrip()
    assert tab.copy(number) == program(page.cells, cell)
