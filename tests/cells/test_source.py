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
    assert [(cell.name, cell.shared, cell.fence, cell.end) for cell in cells] == [
        ("setup", True, 2, 4),
        ("show", False, 8, 14),
        ("later", True, 18, 20),
        ("again", False, 24, 30),
    ]
    assert cells[1].output == "1\n"


def test_a_cell_says_which_device_it_needs_and_why_and_is_not_shared(snippet):
    mark = SETUP.replace("[start:setup] -->", "[start:setup] needs cuda: Triton compiles it -->")
    cells = read_cells(snippet(f"{mark}\n{SHOW}"))
    assert [(cell.needs, cell.why, cell.shared) for cell in cells] == [
        ("cuda", "Triton compiles it", False),
        ("", "", False),
    ]
    assert program(cells, cells[1]) == "print(x)\n"


def test_a_cell_that_measures_says_why_and_is_not_shared(snippet):
    measuring = SHOW.replace("[start:show] -->", "[start:show] measures: how long it takes -->")
    unprinted = measuring.replace("show", "other").replace(OUTPUT, "")
    cells = read_cells(snippet(f"{SETUP}\n{measuring}\n{unprinted}"))
    assert [(cell.measures, cell.needs, cell.shared) for cell in cells] == [
        ("", "", True),
        ("how long it takes", "", False),
        ("how long it takes", "", False),
    ]


@pytest.mark.parametrize(
    ("mark", "rows", "columns"),
    [
        ("rows and columns: a <pad>", ("a", "<pad>"), ("a", "<pad>")),
        ("rows: a b; columns: c", ("a", "b"), ("c",)),
        ("rows: a b", ("a", "b"), ()),
        ("columns: 1", (), ("1",)),
        ("columns: 1; needs cuda: why", (), ("1",)),
    ],
)
def test_a_cell_names_the_rows_and_columns_of_its_matrices(snippet, mark, rows, columns):
    [cell] = read_cells(snippet(SETUP.replace("] -->", f"] {mark} -->", 1)))
    assert cell.names == {"rows": rows, "columns": columns}
    assert cell.why == ("why" if "needs" in mark else "")


def test_names_change_no_digest(snippet):
    """So none changes a record of what was run."""
    named = FILE.replace("[start:show]", "[start:show] rows: a b; columns: c")
    plain, cells = read_cells(snippet(FILE)), read_cells(snippet(named))
    assert cells[1].rows
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
    (tmp_path / "snippets").mkdir()
    other = snippet(FILE, "snippets/masks.md")
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
    assert program(cells, cells[3]) == "x = 1\n\ny = 2\n\nprint(x)\n"
    assert "text\n5\n" in with_outputs(path, {"own": "5\n", "show": "6\n"})
    assert "6" not in with_outputs(path, {"own": "5\n", "show": "6\n"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{SETUP}\n--8<-- "masks.md:shwo"\n', "7: .*masks.md has no cell 'shwo'; is it 'show'?"),
        (f'{SETUP}\n--8<-- "mask.md:show"\n', "7: there is no file .*mask.md"),
        (f'--8<-- "masks.md:setup"\n\n{SETUP}', "3: a second cell is named 'setup'"),
        (f'{SETUP}\n--8<-- "masks.md:setup"\n', "7: a second cell is named 'setup'"),
        (f'{SETUP}\n--8<-- "lab.md:setup"\n', "7: a second cell is named 'setup'"),
    ],
)
def test_a_cell_of_another_file_that_is_not_there_is_named_with_its_line(snippet, tmp_path, text, message):
    (tmp_path / "snippets").mkdir()
    snippet(FILE, "snippets/masks.md")
    path = snippet(text, "snippets/lab.md")
    with pytest.raises(SourceError, match=f"^{path}:{message}"):
        read_cells(path)


MALFORMED = {
    "a mark without a space": (
        FILE.replace("--8<-- [start:show]", "--8<--[start:show]"),
        7,
        "expected <!-- --8<-- [start:",
    ),
    "an end of another cell": (FILE.replace("[end:setup]", "[end:set-up]"), 5, "expected <!-- --8<-- [end:setup] -->"),
    "a capital in a name": (FILE.replace("start:show", "start:Show"), 7, "name in a-z, 0-9 and -"),
    "a need without a reason": (FILE.replace("[start:show]", "[start:show] needs cuda"), 7, "' needs cuda: why'"),
    "a measurement without a reason": (FILE.replace("[start:show]", "[start:show] measures:"), 7, "' measures: why'"),
    "no names": (FILE.replace("[start:show]", "[start:show] rows: "), 7, "' rows and columns: a b'"),
    "no end": (SETUP.replace("<!-- --8<-- [end:setup] -->\n", ""), 5, "found 'the end of the file'"),
    "a name used twice": (FILE + SHOW, 32, "a second cell is named 'show'"),
    "a fence that would be skipped": (FILE.replace("```python\nprint", "```py\nprint", 1), 8, "expected ```python"),
    "a title behind the fence": (FILE.replace("```python\nx", "```python title=x\nx", 1), 2, "expected ```python"),
    "tildes": (FILE.replace("```", "~~~"), 2, "expected ```python"),
    "a skip mark": (FILE.replace("```python", "<!--pytest.mark.skip-->\n```python", 1), 2, "expected ```python"),
    "a skipped file": ("<!--pytest-codeblocks:skipfile-->\n" + FILE, 1, "expected <!-- --8<-- [start:"),
    "a continued block": (
        FILE.replace("```python", "<!--pytest-codeblocks:cont-->\n```python", 1),
        2,
        "expected ```python",
    ),
    "ignored white space": (
        FILE.replace("expected-output", "expected-output-ignore-whitespace", 1),
        11,
        "expected <!-- --8<--",
    ),
    "an output as Python": (FILE.replace("```text", "```python", 1), 12, "expected ```text"),
    "a lost fence": (FILE.replace("print(x)\n```\n", "print(x)\n", 1), 8, "block has no closing ```"),
    "two blocks in one cell": (
        SETUP.replace("```\n<", "```\n```python\n```\n<"),
        5,
        "expected <!-- --8<-- [end:setup]",
    ),
    "prose between cells": (FILE.replace("\n\n<!--", "\n\nHello.\n\n<!--", 1), 7, "found 'Hello.'"),
    "a block outside a cell": (FILE + "\n```python\n1\n```\n", 33, "expected <!-- --8<-- [start:"),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_file_is_named_with_its_line(snippet, fault):
    text, line, message = MALFORMED[fault]
    path = snippet(text)
    with pytest.raises(SourceError) as error:
        read_cells(path)
    assert str(error.value).startswith(f"{path}:{line}: "), error.value
    assert message in str(error.value)


def test_a_file_that_is_not_utf8_is_named_with_its_line(snippet):
    path = snippet(FILE.encode().replace(b"x = 1", b"x = '\xe8'"))
    with pytest.raises(SourceError, match=r"masks\.md:3: byte 0xe8 is not UTF-8; save the file as UTF-8"):
        read_cells(path)


def test_a_file_that_holds_a_nul_is_named_with_its_line(snippet):
    path = snippet(FILE.replace("x = 1", "x = '\0'"))
    with pytest.raises(SourceError, match=r"masks\.md:3: holds a NUL, which no page can show; take it out"):
        read_cells(path)


def test_includes_are_resolved(snippet, tmp_path):
    snippet(FILE)
    page = snippet('# P\n\n--8<-- "masks.md:setup"\n\n    --8<-- "masks.md:show"\n', "page.md")
    assert [(i.line, i.slug, i.name) for i in read_includes(page)] == [(3, "masks", "setup"), (5, "masks", "show")]
    assert [cell.name for cell in resolve(page, tmp_path)] == ["setup", "show"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('--8<-- "masks.md:shwo"', "has no cell 'shwo'; is it 'show'?"),
        ('--8<-- "mask.md:show"', "there is no file"),
        ('--8<-- "masks.md"', "write a cell as --8<--"),
        ('--8<-- "100% sure.md:show"', "the name of its file in letters, digits, - and _ alone"),
        ("--8<-- masks.md:show", "write a cell as --8<--"),
    ],
)
def test_an_include_that_shows_nothing_is_named_with_its_line(snippet, tmp_path, line, message):
    snippet(FILE)
    page = snippet(f"# P\n\n{line}\n", "page.md")
    with pytest.raises(SourceError) as error:
        resolve(page, tmp_path)
    assert str(error.value).startswith(f"{page}:3: ")
    assert message in str(error.value)


def test_a_cell_that_would_share_its_address_with_one_above_is_named_with_its_line(snippet):
    page = snippet('--8<-- "masks.md:show"\n\n--8<-- "other.md:show"\n', "page.md")
    with pytest.raises(SourceError, match=r"page\.md:3: a cell named 'show' is shown above; show each once"):
        read_includes(page)
