"""The numbers that the prose of a page quotes are those that its cells print."""

import re
from pathlib import Path

import pytest

from tools.cells.source import INCLUDE, read_cells, resolve

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/*/**/*.md"))
NUMBER = re.compile(r"(?<![\d.,])\d+[.,]\d{3,}(?![\d.,]?\d)")
NOT_PROSE = re.compile(r"\$\$.*?\$\$|\$[^$\n]*\$|\]\([^)\s]*\)|<[^>]*>|https?://\S+", re.DOTALL)


def printed(slug, cell):
    """The numbers that a cell prints, as they stand in its output."""
    output = next(found.output for found in read_cells(ROOT / "snippets" / f"{slug}.md") if found.name == cell)
    return re.findall(r"\d+\.\d+", output)


COMPUTED = {  # page: {a number that none of its cells prints: how it follows from numbers that a cell prints}
    "index": {"1.2970": lambda: max(printed("foundations/weighted-average", "columns"), key=float)},
    "masks/causal": {"0.2379": lambda: printed("foundations/weighted-average", "context")[1]},
}


def quoted(page):
    """The numbers with three and more decimals in the prose of a page."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    prose = "\n".join(line for line in lines if not INCLUDE.fullmatch(line))
    return set(NUMBER.findall(NOT_PROSE.sub(" ", prose)))


def explained(page):
    """The numbers that the cells on a page print, and those that are computed from printed numbers."""
    cells = resolve(ROOT / "docs" / page, ROOT / "snippets")
    computed = {compute() for compute in COMPUTED.get(slug_of(page), {}).values()}
    return computed.union(*(re.findall(r"\d+\.\d+", cell.output or "") for cell in cells))


def slug_of(page):
    return page.split("/", 1)[1].removesuffix(".md")


def test_there_are_pages():
    assert PAGES


@pytest.mark.parametrize("path", PAGES)
def test_a_number_in_the_prose_is_printed_by_a_cell_of_the_page(path):
    assert sorted(quoted(path) - explained(path)) == []


@pytest.mark.parametrize("name", COMPUTED)
def test_a_computed_number_is_what_it_is_said_to_be_and_is_quoted(name):
    assert [number for number, compute in COMPUTED[name].items() if compute() != number] == []
    assert COMPUTED[name].keys() <= quoted(f"en/{name}.md")
