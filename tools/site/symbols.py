"""Where each name is used: an index of the cells, made from their source text while the site is built.

A name is one that a cell imports from torch, einops or transformers, written out (`torch.nn.Linear`), or a class that
the cells define, or a function of theirs that says its shapes. One that nearly every page uses says nothing and is left
out. theme/symbols.html shows it.
"""

import ast
import functools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tools.cells.source import Cell, program_cells
from tools.site.pages import SitePage

PACKAGES = ("torch.", "einops.", "transformers.")
SHORT = {"torch.nn.functional.": "F.", "torch.nn.": "nn."}
NEARLY_ALL = 0.8


@dataclass(frozen=True)
class Symbol:
    """A name, and each page that uses it with the names of its cells that do."""

    name: str
    uses: Sequence[tuple[SitePage, Sequence[str]]]

    @property
    def letter(self) -> str:
        return alphabetical(self.name)[0][0].upper()


def index(pages: Collection[SitePage]) -> list[Symbol]:
    """The symbols of some pages from A to Z, whatever stands before the last dot."""
    uses, with_cells = defaultdict(list), [page for page in pages if page.own_cells]
    for page in with_cells:
        cells = defaultdict(list)
        for cell in page.own_cells:
            for name in names(page.own_cells, cell):
                cells[name].append(cell.name)
        for name, users in cells.items():
            uses[name].append((page, users))
    telling = (name for name in uses if len(uses[name]) < NEARLY_ALL * len(with_cells))
    return [Symbol(name, uses[name]) for name in sorted(telling, key=alphabetical)]


def alphabetical(name: str) -> tuple[str, str]:
    return name.rpartition(".")[2].lower(), name


def names(cells: Sequence[Cell], cell: Cell) -> Sequence[str]:
    """The names that a cell uses or defines, each once, as the imports of its program mean them."""
    return names_in(tuple(part.code for part in program_cells(cells, cell)))


@functools.cache
def names_in(program: tuple[str, ...]) -> tuple[str, ...]:
    """The names in the last of some parts of a program; cached, since every language has the same cells."""
    trees = [ast.parse(part) for part in program]
    imported = {name: full for tree in trees for name, full in imports(tree)}
    own = [set(defined(part, tree)) for part, tree in zip(program, trees)]
    found = {name for name in written_out(trees[-1], imported) if name.startswith(PACKAGES)}
    whole = {short(name) for name in found if not any(other.startswith(f"{name}.") for other in found)}
    used = {node.id for node in ast.walk(trees[-1]) if isinstance(node, ast.Name)}
    return tuple(whole | own[-1] | (used & set().union(*own)))


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What some code imports: each name with what it means."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                yield alias.asname or alias.name, package + alias.name


def defined(code: str, tree: ast.Module) -> Iterator[str]:
    """The classes of some code, and the functions that say their shapes."""
    lines = code.splitlines()
    for node in tree.body:
        says_shapes = "# (" in "".join(lines[node.lineno - 1 : node.end_lineno])
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and says_shapes):
            yield node.name


def written_out(tree: ast.Module, imported: Mapping[str, str]) -> Iterator[str]:
    """The imported names that some code uses, torch.nn.Linear and torch.nn alike."""
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts[:0] = [] if node.attr.startswith("__") else [node.attr]
            node = node.value
        if isinstance(node, ast.Name) and node.id in imported:
            yield ".".join([imported[node.id], *parts])


def short(name: str) -> str:
    """A name as the cells write it."""
    for long, alias in SHORT.items():
        name = name.replace(long, alias, 1)
    return name
