"""Snippet files and include lines: what is read, and what a person is told where they are written wrong."""

import pytest

from tools.cells.source import SourceError, digest, program, read_cells, read_includes, resolve, with_outputs

SETUP = "<!-- --8<-- [start:setup] -->\n```python\nx = 1\n```\n<!-- --8<-- [end:setup] -->\n"
OUTPUT = "<!--pytest-codeblocks:expected-output-->\n```text\n1\n```\n"
SHOW = f"<!-- --8<-- [start:show] -->\n```python\nprint(x)\n```\n{OUTPUT}<!-- --8<-- [end:show] -->\n"
LATER = SETUP.replace("setup", "later").replace("x = 1", "y = 2")
FILE = f"{SETUP}\n{SHOW}\n{LATER}\n{SHOW.replace('show', 'again')}"


@pytest.fixture
def snippet(tmp_path):
    def write(text, name="masks.md"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_cells_are_read_in_order_with_their_lines(snippet):
    cells = read_cells(snippet(FILE))
    assert [(cell.name, cell.shared, cell.fence) for cell in cells] == [
        ("setup", True, 2),
        ("show", False, 8),
        ("later", True, 18),
        ("again", False, 24),
    ]
    assert cells[1].output == "1\n"


@pytest.mark.parametrize(
    ("mark", "meaning"),
    [
        ("needs cuda: Triton compiles it", {"needs": "cuda", "why": "Triton compiles it"}),
        ("measures: how long it takes", {"measures": "how long it takes"}),
        ("rows and columns: a <pad>", {"rows": ("a", "<pad>"), "columns": ("a", "<pad>")}),
        ("rows: a b; columns: c; needs cuda: why", {"rows": ("a", "b"), "columns": ("c",), "why": "why"}),
        ("wrong: y = x; right: = 1; wrong: z =", {"wrong": (2, 4), "right": (1,)}),
        ("new: x = 1; new: y = ... z = x; right: z =", {"new": (1, 2, 4), "right": (4,)}),
    ],
)
def test_a_first_mark_says_what_a_cell_needs_names_and_marks(snippet, mark, meaning):
    """A run of lines, from a piece of its first to one of its last, leaves out those that are empty."""
    text = SETUP.replace("] -->", f"] {mark} -->", 1).replace("x = 1\n", "x = 1\ny = x\n\nz = x\n")
    [cell] = read_cells(snippet(text))
    assert {name: getattr(cell, name) for name in meaning} == meaning
    assert cell.shared is ("needs" not in mark and "measures" not in mark)


def test_names_and_marked_lines_change_no_digest(snippet):
    """So none changes a record of what was run."""
    named = FILE.replace("[start:show]", "[start:show] rows: a b; columns: c; wrong: print")
    plain, cells = read_cells(snippet(FILE)), read_cells(snippet(named))
    assert (cells[1].rows, cells[1].wrong) == (("a", "b"), (1,))
    assert digest(cells, cells[1]) == digest(plain, plain[1])


def test_a_program_is_the_shared_cells_above_and_the_cell(snippet):
    cells = read_cells(snippet(FILE))
    assert program(cells, cells[1]) == "x = 1\n\nprint(x)\n"
    assert program(cells, cells[3]) == "x = 1\n\ny = 2\n\nprint(x)\n"


def test_new_outputs_replace_old_ones_and_nothing_else(snippet):
    path = snippet(FILE)
    assert with_outputs(path, {}) == FILE
    assert with_outputs(path, {"again": "1\n", "show": "1\n"}) == FILE
    assert with_outputs(path, {"show": "5\n6\n"}) == FILE.replace("text\n1\n", "text\n5\n6\n", 1)
    assert with_outputs(path, {"setup": "1\n"}) == FILE.replace("x = 1\n```\n", f"x = 1\n```\n{OUTPUT}", 1)


def test_cells_of_another_file_stand_in_their_place_and_belong_to_the_program(snippet, tmp_path):
    """There no line of them is marked as new."""
    (tmp_path / "snippets").mkdir()
    other = snippet(FILE.replace("[start:show]", "[start:show] wrong: print; new: x"), "snippets/masks.md")
    path = snippet(
        f'--8<-- "masks.md:setup"\n\n--8<-- "masks.md:show"\n\n{LATER}\n{SHOW.replace("show", "own")}',
        "snippets/lab.md",
    )
    cells = read_cells(path)
    assert [(cell.name, cell.path, cell.fence) for cell in cells] == [
        ("setup", str(other), 2),
        ("show", str(other), 8),
        ("later", str(path), 6),
        ("own", str(path), 12),
    ]
    assert cells[1].marks == {"wrong": (1,), "right": (), "new": ()}
    assert program(cells, cells[3]) == "x = 1\n\ny = 2\n\nprint(x)\n"
    assert "text\n5\n" in with_outputs(path, {"own": "5\n", "show": "6\n"})
    assert "6" not in with_outputs(path, {"own": "5\n", "show": "6\n"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{SETUP}\n--8<-- "masks.md:shwo"\n', "7: .*masks.md has no cell 'shwo'; is it 'show'?"),
        (f'{SETUP}\n--8<-- "mask.md:show"\n', "7: there is no file .*mask.md"),
        (f'{SETUP}\n--8<-- "masks.md:setup"\n', "7: a second cell is named 'setup'"),
    ],
)
def test_a_cell_of_another_file_that_is_not_there_is_named_with_its_line(snippet, tmp_path, text, message):
    (tmp_path / "snippets").mkdir()
    snippet(FILE, "snippets/masks.md")
    path = snippet(text, "snippets/lab.md")
    with pytest.raises(SourceError, match=f"^{path}:{message}"):
        read_cells(path)


MALFORMED = {
    "a mark without a space": ("--8<-- [start:show]", "--8<--[start:show]", 7, "neither a whole cell"),
    "an end of another cell": ("[end:setup]", "[end:set-up]", 1, "neither a whole cell"),
    "a need without a reason": ("[start:show]", "[start:show] needs cuda", 7, "is it 'needs cuda: …'?"),
    "an unknown word": ("[start:show]", "[start:show] wrnog: print", 7, "is it 'wrong: …'?"),
    "an unknown device": ("[start:show]", "[start:show] needs cdua: why", 7, "is it 'needs cuda: …'?"),
    "a run from its end": (
        "setup] -->\n```python\n",
        "setup] new: x = ... y = -->\n```python\ny = 2\n",
        1,
        "'y =' stands above 'x ='; quote the first line of a run first",
    ),
    "a line that is gone": ("[start:show]", "[start:show] wrong: print(y)", 7, "quotes 'print(y)', which no lines of"),
    "a piece of two lines": (
        "setup] -->\n```python\n",
        "setup] right: x -->\n```python\nx = 2\n",
        1,
        "2 lines of the cell",
    ),
    "a name used twice": (LATER, LATER.replace("later", "show"), 17, "a second cell is named 'show'"),
    "a fence that would be skipped": ("```python\nprint", "```py\nprint", 7, "neither a whole cell"),
    "a skip mark": ("```python", "<!--pytest.mark.skip-->\n```python", 1, "neither a whole cell"),
    "ignored white space": ("expected-output", "expected-output-ignore-whitespace", 7, "neither a whole cell"),
    "a lost fence": ("print(x)\n```\n", "print(x)\n", 7, "neither a whole cell"),
    "two blocks in one cell": ("x = 1\n```\n", "x = 1\n```\n```python\n```\n", 1, "neither a whole cell"),
    "prose between cells": ("\n\n<!--", "\n\nHello.\n\n<!--", 7, "'Hello.'"),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_file_is_named_with_its_line(snippet, fault):
    old, new, line, message = MALFORMED[fault]
    path = snippet(FILE.replace(old, new, 1))
    with pytest.raises(SourceError) as error:
        read_cells(path)
    assert str(error.value).startswith(f"{path}:{line}: "), error.value
    assert message in str(error.value)


def test_a_file_that_is_not_utf8_is_named(snippet):
    path = snippet(FILE.encode().replace(b"x = 1", b"x = '\xe8'"))
    with pytest.raises(SourceError, match=r"masks\.md: .*can't decode byte 0xe8.*; save the file as UTF-8"):
        read_cells(path)


def test_includes_are_resolved(snippet, tmp_path):
    """On a page that is not theirs, no line of them is marked as new."""
    (tmp_path / "docs").mkdir()
    snippet(FILE.replace("[start:show]", "[start:show] new: x"))
    text = '# P\n\n--8<-- "masks.md:setup"\n\n    --8<-- "masks.md:show"\n'
    page, own = snippet(text, "docs/page.md"), snippet(text, "docs/masks.md")
    assert [(i.line, i.slug, i.name) for i in read_includes(page)] == [(3, "masks", "setup"), (5, "masks", "show")]
    assert [(cell.name, cell.new) for cell in resolve(page, tmp_path)] == [("setup", ()), ("show", ())]
    assert [(cell.name, cell.new) for cell in resolve(own, tmp_path)] == [("setup", ()), ("show", (1,))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('--8<-- "masks.md:shwo"', "has no cell 'shwo'; is it 'show'?"),
        ('--8<-- "mask.md:show"', "there is no file"),
        ('--8<-- "masks.md"', "write a cell as --8<--"),
    ],
)
def test_an_include_that_shows_nothing_is_named_with_its_line(snippet, tmp_path, line, message):
    snippet(FILE)
    page = snippet(f"# P\n\n{line}\n", "page.md")
    with pytest.raises(SourceError) as error:
        resolve(page, tmp_path)
    assert str(error.value).startswith(f"{page}:3: ")
    assert message in str(error.value)
