"""What a page prints, it prints after the definitions of a page that builds on it: people keep one notebook open."""

import ast
import functools
import re
from dataclasses import replace

import pytest

from tests.configuration import SLUGS
from tests.pages import properties as p
from tests.structure.test_anatomy import BUILDS_ON, WRITTEN
from tools.cells import compare
from tools.cells.execute import run
from tools.cells.source import program, program_cells, read_cells


@functools.cache
def definitions(page):
    """The functions and classes that the shared cells of a page define, by name, but for those of its checks."""
    shared = [cell for cell in read_cells(p.ROOT / f"snippets/{page}.md") if cell.shared]
    nodes = [node for cell in shared if not cell.name.startswith("check") for node in ast.parse(cell.code).body]
    return {node.name: ast.unparse(node) for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def redefined(page, base):
    """The names that both pages define, each in its own way."""
    old, new = definitions(base), definitions(page)
    return sorted(name for name in old.keys() & new.keys() if old[name] != new[name])


PAIRS = [(page, base) for page in WRITTEN for base in BUILDS_ON[page] or () if base in SLUGS and redefined(page, base)]


@pytest.mark.parametrize(("page", "base"), PAIRS)
def test_a_page_prints_the_same_after_the_definitions_of_one_that_builds_on_it(page, base):
    path, names = p.ROOT / f"snippets/{base}.md", redefined(page, base)
    cells = read_cells(path)
    imports = [imported(cell) for cell in read_cells(p.ROOT / f"snippets/{page}.md") if cell.shared]
    after = "\n".join([*imports, *definitions(page).values()])
    other = []
    for cell in cells:
        if cell.output and not cell.needs and re.search(rf"\b({'|'.join(names)})\b", program(cells, cell)):
            *above, last = program_cells(cells, cell)
            before = "\n".join(ast.unparse(ast.parse(part.code)) for part in above)
            both = replace(last, name="both", code=f"{before}\n{after}", path=f"{path} and {page}", output=None)
            try:
                printed = run(path, [both, last]).outputs[last.name].getvalue()
            except Exception as error:
                printed = f"{type(error).__name__}: {error}"
            if not compare.same(cell.output, printed):
                other.append(cell.name)
    fault = (
        f"{page} defines {', '.join(names)} anew; then these cells of {base} print something else: {', '.join(other)}"
    )
    assert not other, fault


def imported(cell):
    nodes = [node for node in ast.parse(cell.code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(map(ast.unparse, nodes))
