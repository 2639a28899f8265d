"""Pages and cells fit each other, and the cells keep the style of the house."""

import ast
import re
import sys

from tests.configuration import page_file
from tools.cells.labels import refuse_misfit
from tools.cells.plugin import LEGEND
from tools.cells.record import read_record, still_verified
from tools.cells.source import INCLUDE, read_includes, slug_of

ALLOWED_IMPORTS = {"torch", "math"}
ALLOWED_IN_LABS = ALLOWED_IMPORTS | {"matplotlib"} | sys.stdlib_module_names
ALLOWED_ON = {"foundations/einsum": ALLOWED_IMPORTS | {"einops"}}  # where another package is the subject


def test_every_cell_is_shown_once_and_in_order(slug, cells, language):
    includes = read_includes(page_file(language, slug))
    assert [(include.slug, include.name) for include in includes] == [(slug_of(cell.path), cell.name) for cell in cells]


def test_an_include_stands_between_empty_lines(page, language):
    lines = [*page_file(language, page).read_text("utf-8").splitlines(), ""]
    for number, line in enumerate(lines):
        if INCLUDE.fullmatch(line):
            assert lines[number - 1] == lines[number + 1] == "", f"line {number + 1}"


def test_the_blocks_of_a_page_are_commands(page, language):
    """Python in a page would be neither run nor shared between the languages; a comment could hide a cell."""
    text = page_file(language, page).read_text("utf-8")
    fences = [fence for fence in re.findall(r"^\W*?(?:`{3,}|~{3,})(.*)$", text, re.M) if fence]
    assert set(fences) <= {"sh"}
    assert not re.search("<!--|<pre|<code|<script", text)


def test_a_cell_is_short(cells):
    for cell in cells:
        assert cell.code.count("\n") <= 25, cell.name


def test_an_output_is_short_and_narrow(cells):
    for cell in cells:
        rows = (cell.output or "").splitlines()
        assert len(rows) <= 10, f"{cell.name}: {len(rows)} rows"
        assert max(map(len, rows), default=0) <= 79, cell.name


def test_the_names_of_rows_and_columns_fit_what_is_printed(cells):
    for cell in cells:
        refuse_misfit(cell)


def test_a_lab_names_no_rows_since_its_page_would_not_show_them(slug, cells):
    assert not slug.startswith("labs/") or not any(cell.rows or cell.columns for cell in cells)


def test_an_output_prints_few_decimals(cells):
    """Python's own print of a float has more digits than another machine agrees with."""
    for cell in cells:
        assert not re.search(r"\.\d{7}", cell.output or ""), cell.name


def test_an_output_prints_something(cells):
    for cell in cells:
        assert cell.output is None or cell.output.strip(), cell.name


def test_a_reader_needs_nothing_but_torch(slug, cells):
    allowed = ALLOWED_IN_LABS if slug.startswith("labs/") else ALLOWED_ON.get(slug, ALLOWED_IMPORTS)
    for cell in cells:
        for node in ast.walk(ast.parse(cell.code)):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= allowed, cell.name
            elif isinstance(node, ast.ImportFrom):
                assert node.module.partition(".")[0] in allowed, cell.name


def test_sizes_wear_the_letters_of_the_legend(cells):
    for cell in cells:
        names = {node.id for node in ast.walk(ast.parse(cell.code)) if isinstance(node, ast.Name)}
        capitals = {name for name in names if re.fullmatch(r"[A-Z][a-z]{0,2}\d?", name)}
        assert capitals <= LEGEND | {"F"}, cell.name


def test_a_cell_needs_no_device_but_the_one_that_a_job_has(slug, cells):
    needed = {cell.needs for cell in cells if cell.needs}
    assert needed <= ({"cuda"} if not slug.startswith("labs/") else set())


def test_a_page_without_cells_of_its_own_shows_none(root, page, language):
    own = (root / f"snippets/{page}.md").is_file()
    assert own or read_includes(page_file(language, page)) == []


def test_the_record_is_that_of_these_cells(root, slug, cells):
    """Of the device that a cell needs, the CPU for most; a cell that has not run there yet shows no output."""
    shown = [cell for cell in cells if cell.output or not cell.needs]
    for device in {cell.needs or "cpu" for cell in shown}:
        page = read_record(root / f"verified/{device}.json").get(slug)
        wanted = {cell.name for cell in shown if (cell.needs or "cpu") == device}
        stale = wanted - {cell.name for cell in still_verified(page, cells, device)}
        mend = f"update -- {slug}" if device == "cpu" else f"gpu -- --update snippets/{slug}.md"
        assert not stale, f"these cells were not verified on {device} since they changed: nox -s {mend}"


def test_a_record_names_no_page_that_is_gone(root):
    for record in root.glob("verified/*.json"):
        for slug in read_record(record):
            assert (root / f"snippets/{slug}.md").is_file(), f"{record.name} names {slug}"
