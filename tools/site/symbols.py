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

PACKAGES = ("torch", "einops", "transformers")
SHORT = {"torch.nn.functional.": "F.", "torch.nn.": "nn."}
DEFINITIONS = (ast.ClassDef, ast.FunctionDef)
OWN = "of the cells"
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Symbol:
    """A name, and each page that uses it with the names of its cells that do."""

    name: str
    uses: Sequence[tuple[SitePage, Sequence[str]]]


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
    meant, trees = {}, [ast.parse(part) for part in program]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            meant |= {alias.asname or alias.name: package + alias.name for alias in node.names}
    meant |= {name: OWN for part, tree in zip(program, trees) for name in own(part, tree)}
    return tuple(dict.fromkeys(used(trees[-1], meant)))


def own(code: str, tree: ast.Module) -> Iterator[str]:
    """The names that some code defines for readers."""
    lines = code.splitlines()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and has_shapes(lines, node)):
            yield node.name


def has_shapes(lines: Sequence[str], node: ast.FunctionDef) -> bool:
    return any("# (" in line for line in lines[node.lineno - 1 : node.end_lineno])


def used(node: ast.AST, meant: Mapping[str, str]) -> Iterator[str]:
    """The names below a node of a syntax tree, each as far as it goes: torch.nn.Linear is no torch.nn."""
    root, *rest = chain(node)
    stands_for = meant.get(root, "")
    if stands_for == OWN:
        yield root
    elif stands_for:
        name = ".".join([stands_for, *(part for part in rest if not part.startswith("__"))])
        if name.startswith(tuple(f"{package}." for package in PACKAGES)):
            yield short(name)
    if not stands_for or isinstance(node, DEFINITIONS):
        for child in ast.iter_child_nodes(node):
            yield from used(child, meant)


def chain(node: ast.AST) -> list[str]:
    """The names of a chain such as torch.nn.Linear, or the one that is defined here; [""] for anything else."""
    if isinstance(node, ast.Attribute):
        above = chain(node.value)
        return [*above, node.attr] if above[0] else above
    return [node.id if isinstance(node, ast.Name) else node.name if isinstance(node, DEFINITIONS) else ""]


def short(name: str) -> str:
    """A name as the cells write it."""
    for long, alias in SHORT.items():
        name = name.replace(long, alias, 1)
    return name
