"""Snippet files and include lines: what is read, and what a person is told where they are written wrong."""

import re

import pytest

from tools.cells.source import (
    SourceError,
    digest,
    files_beside,
    program,
    read_cells,
    read_includes,
    resolve,
    with_outputs,
)

SETUP = "<!-- --8<-- [start:setup] -->\n```python\nx = 1\n```\n<!-- --8<-- [end:setup] -->\n"
OUTPUT = "<!--pytest-codeblocks:expected-output-->\n```text\n1\n```\n"
SHOW = f"<!-- --8<-- [start:show] -->\n```python\nprint(x)\n```\n{OUTPUT}<!-- --8<-- [end:show] -->\n"
LATER = SETUP.replace("setup", "later").replace("x = 1", "y = 2")
FILE = f"{SETUP}\n{SHOW}\n{LATER}\n{SHOW.replace('show', 'again')}"


@pytest.fixture
def snippet(tmp_path):
    def write(text, name="masks.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_cells_are_read_in_order_and_a_program_is_the_shared_ones_above_and_the_cell(snippet):
    cells = read_cells(snippet(FILE))
    places = [("setup", True, 2), ("show", False, 8), ("later", True, 18), ("again", False, 24)]
    assert [(cell.name, cell.shared, cell.fence) for cell in cells] == places
    assert cells[1].output == "1\n"
    assert program(cells, cells[1]) == "x = 1\n\nprint(x)\n"
    assert program(cells, cells[3]) == "x = 1\n\ny = 2\n\nprint(x)\n"


@pytest.mark.parametrize(
    ("mark", "meaning"),
    [
        ("needs cuda: Triton compiles it", {"needs": "cuda", "why": "Triton compiles it"}),
        ("measures: how long it takes", {"measures": "how long it takes"}),
        ("rows and columns: a <pad>", {"rows": ("a", "<pad>"), "columns": ("a", "<pad>")}),
        ("rows: a b; columns: c; needs cuda: why", {"rows": ("a", "b"), "columns": ("c",), "why": "why"}),
        ("wrong: y = x; right: = 1; wrong: z =", {"marks": ((2, "wrong"), (1, "right"), (4, "wrong"))}),
        ("new: x = 1; new: y = ... z = x; right: z =", {"marks": ((1, "new"), (2, "new"), (4, "new"), (4, "right"))}),
    ],
)
def test_a_first_mark_says_what_a_cell_needs_names_and_marks(snippet, mark, meaning):
    """A run of lines, from a piece of its first to one of its last, leaves out those that are empty.

    What a cell needs alone changes its digest, which is in the record of what was run.
    """
    text = SETUP.replace("x = 1\n", "x = 1\ny = x\n\nz = x\n")
    [plain], [cell] = read_cells(snippet(text)), read_cells(snippet(text.replace("] -->", f"] {mark} -->", 1)))
    assert {name: getattr(cell, name) for name in meaning} == meaning
    assert cell.shared is ("needs" not in mark and "measures" not in mark)
    assert (digest([cell], cell) != digest([plain], plain)) is ("needs" in mark)


def test_new_outputs_replace_old_ones_and_nothing_else(snippet):
    path = snippet(FILE)
    assert with_outputs(path, {}) == FILE
    assert with_outputs(path, {"again": "1\n", "show": "1\n"}) == FILE
    assert with_outputs(path, {"show": "5\n6\n"}) == FILE.replace("text\n1\n", "text\n5\n6\n", 1)
    assert with_outputs(path, {"setup": "1\n"}) == FILE.replace("x = 1\n```\n", f"x = 1\n```\n{OUTPUT}", 1)


def test_cells_of_another_file_stand_in_their_place_and_belong_to_the_program(snippet):
    """There no line of them is marked as new."""
    other = snippet(FILE.replace("[start:show]", "[start:show] wrong: print; new: x"), "snippets/masks.md")
    text = f'--8<-- "masks.md:setup"\n\n--8<-- "masks.md:show"\n\n{LATER}\n{SHOW.replace("show", "own")}'
    path = snippet(text, "snippets/lab.md")
    cells = read_cells(path)
    places = [("setup", str(other), 2), ("show", str(other), 8), ("later", str(path), 6), ("own", str(path), 12)]
    assert [(cell.name, cell.path, cell.fence) for cell in cells] == places
    assert cells[1].marks == ((1, "wrong"),)
    assert program(cells, cells[3]) == "x = 1\n\ny = 2\n\nprint(x)\n"
    assert "text\n5\n" in with_outputs(path, {"own": "5\n", "show": "6\n"})
    assert "6" not in with_outputs(path, {"own": "5\n", "show": "6\n"})


# --- what is written wrong -------------------------------------------------------------------------

MALFORMED = {
    "a mark without a space": ("--8<-- [start:show]", "--8<--[start:show]", 7, "neither a whole cell"),
    "an end of another cell": ("[end:setup]", "[end:set-up]", 1, "neither a whole cell"),
    "a name used twice": (LATER, LATER.replace("later", "show"), 17, "a second cell is named 'show'"),
    "a fence that would be skipped": ("```python\nprint", "```py\nprint", 7, "neither a whole cell"),
    "a skip mark": ("```python", "<!--pytest.mark.skip-->\n```python", 1, "neither a whole cell"),
    "ignored white space": ("expected-output", "expected-output-ignore-whitespace", 7, "neither a whole cell"),
    "a lost fence": ("print(x)\n```\n", "print(x)\n", 7, "neither a whole cell"),
    "two blocks in one cell": ("x = 1\n```\n", "x = 1\n```\n```python\n```\n", 1, "neither a whole cell"),
    "prose between cells": ("\n\n<!--", "\n\nHello.\n\n<!--", 7, "'Hello.'"),
}
WRONG_MARKS = {
    "needs cuda": "is it 'needs cuda: …'?",
    "needs cdua: why": "is it 'needs cuda: …'?",
    "rows: a; wrnog: print": "the mark says 'wrnog: print'; CONTRIBUTING.md has an example of each word: wrong: …, ",
    "wrnog: print": "is it 'wrong: …'?",
    "wrong: print(y)": "the mark quotes 'print(y)', which no lines of the cell have; quote a piece",
    "right: x": "the mark quotes 'x', which 2 lines of the cell have; quote a piece",
    "new: print ... x =": "'x =' stands above 'print'; quote the first line of a run first",
}
SHOWN = SHOW.replace("print", "x = 2\nprint")
MALFORMED |= {mark: (SHOW, SHOWN.replace("w] ", f"w] {mark} ", 1), 7, words) for mark, words in WRONG_MARKS.items()}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_file_and_a_wrong_mark_are_named_with_their_line(snippet, fault):
    old, new, line, message = MALFORMED[fault]
    path = snippet(FILE.replace(old, new, 1))
    with pytest.raises(SourceError, match=f"^{path}:{line}: .*{re.escape(message)}"):
        read_cells(path)


def test_a_file_that_is_not_utf8_is_named(snippet):
    path = snippet(FILE.encode().replace(b"x = 1", b"x = '\xe8'"))
    with pytest.raises(SourceError, match=r"masks\.md: .*can't decode byte 0xe8.*; save the file as UTF-8"):
        read_cells(path)


def test_includes_are_resolved(snippet, tmp_path):
    """On a page that is not theirs, no line of them is marked as new."""
    snippet(FILE.replace("[start:show]", "[start:show] new: x"))
    text = '# P\n\n--8<-- "masks.md:setup"\n\n    --8<-- "masks.md:show"\n'
    page, own = snippet(text, "docs/page.md"), snippet(text, "docs/masks.md")
    assert [(i.line, i.slug, i.name) for i in read_includes(page)] == [(3, "masks", "setup"), (5, "masks", "show")]
    assert [(cell.name, cell.marks) for cell in resolve(page, tmp_path)] == [("setup", ()), ("show", ())]
    assert [(cell.name, cell.marks) for cell in resolve(own, tmp_path)] == [("setup", ()), ("show", ((1, "new"),))]


FILE_OF_PYTHON = """import torch
# --8<-- [start:{}]
def moves():
    return torch


# --8<-- [end:{}]
"""


SECTION = '```python\n--8<-- "probes.py:moves"\n```\n'


def test_a_section_of_a_python_file_is_shown_and_its_program_is_the_file(snippet, tmp_path):
    whole = snippet(FILE_OF_PYTHON.format("moves", "moves"), "snippets/probes.py").read_text()
    page = snippet(f'--8<-- "masks.md:show"\n\n{SECTION}', "docs/page.md")
    snippet(FILE, "snippets/masks.md")
    show, section = cells = resolve(page, tmp_path / "snippets")
    assert (section.name, section.code, section.fence) == ("moves", "def moves():\n    return torch\n", 2)
    assert (section.is_section, section.shared, show.is_section) == (True, False, False)
    assert program(cells, section) == whole
    assert program(cells, show) == "print(x)\n"


def test_a_section_that_is_not_there_or_not_closed_is_named(snippet, tmp_path):
    snippet(FILE_OF_PYTHON.format("moves", "move"), "snippets/probes.py")
    page = snippet(f"\n{SECTION}", "docs/page.md")
    with pytest.raises(SourceError, match=rf"^{page}:2: .*probes\.py has no cell 'moves'"):
        resolve(page, tmp_path / "snippets")


def test_a_section_that_stands_in_no_block_of_code_is_named(snippet):
    page = snippet('\n--8<-- "probes.py:moves"\n', "docs/page.md")
    with pytest.raises(SourceError, match=rf"^{page}:2: a section of probes\.py is no Markdown; write ```python"):
        read_includes(page)


def test_a_digest_holds_the_files_that_a_program_imports(snippet):
    file = snippet("def double(x):\n    return 2 * x\n", "snippets/probes.py")
    cells = read_cells(snippet(FILE.replace("x = 1", "import torch\nfrom probes import double"), "snippets/masks.md"))
    assert [files_beside(cell) for cell in cells] == [[file], [], [], []]
    before = [digest(cells, cell) for cell in cells]
    file.write_text("def double(x):\n    return x + x\n")
    assert all(digest(cells, cell) != old for cell, old in zip(cells, before))


NOT_SHOWN = {  # a line: what is said of it on a page, and in a snippet file
    '--8<-- "masks.md:shwo"': ["has no cell 'shwo'; is it 'show'?"] * 2,
    '--8<-- "mask.md:show"': ["there is no file"] * 2,
    '--8<-- "masks.md"': ["write a cell as --8<--", "neither a whole cell"],
}


@pytest.mark.parametrize("line", NOT_SHOWN)
def test_a_line_that_shows_nothing_is_named_on_a_page_and_in_a_snippet_file(snippet, tmp_path, line):
    snippet(FILE, "snippets/masks.md")
    page, file = snippet(f"# P\n\n{line}\n", "page.md"), snippet(f"\n\n{line}\n", "snippets/lab.md")
    with pytest.raises(SourceError, match=rf"^{page}:3: .*{re.escape(NOT_SHOWN[line][0])}"):
        resolve(page, tmp_path / "snippets")
    with pytest.raises(SourceError, match=rf"^{file}:3: .*{re.escape(NOT_SHOWN[line][1])}"):
        read_cells(file)


def test_a_cell_that_a_file_shows_and_has_is_named(snippet):
    snippet(FILE, "snippets/masks.md")
    path = snippet('--8<-- "masks.md:show"\n' + SHOW, "snippets/lab.md")
    with pytest.raises(SourceError, match=f"^{path}:2: .*a second cell is named 'show'"):
        read_cells(path)
