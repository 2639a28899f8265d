"""What the site says of all its pages together: the map, what the first page counts, where each name is used.

A name is one that a cell imports from torch, einops or transformers, written out (`torch.nn.Linear`), or a class that
the cells define, or a function of theirs that says its shapes. One that nearly every page uses says nothing and is left
out. theme/symbols.html shows the index of names, made from the source text of the cells while the site is built.
"""

import ast
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tools.cells.shapes import shape_comments
from tools.cells.source import Cell, SourceError, nearest
from tools.languages.markdown import TOP
from tools.site.pages import Edition, SitePage

PACKAGES = ("torch.", "einops.", "transformers.")
NEARLY_ALL = 0.8
KIND = re.compile(r"^[^:：]*(?:: |：)")  # "Exercise 1: " above the section of one
TASK = re.compile(r"^def (\w+\(.*\)):", re.M)


def bases(page: SitePage, pages: Mapping[str, SitePage]) -> list[SitePage]:
    """The pages that a page builds on, of those of the nav; `SourceError` where one does not come before it."""
    order = list(pages)
    before = order[: order.index(page.slug)] if page.slug in pages else order
    for slug in page.builds_on:
        if slug not in before:
            fault = f"builds_on names {slug!r}; no page before it in the nav is that{nearest(slug, before)}"
            raise SourceError(f"docs/en/{page.slug}.md:1: {fault}")
    return [pages[slug] for slug in page.builds_on]


def rows(edition: Edition) -> Iterator[dict[str, Any]]:
    """The lines of the map: the titles of the chapters, and below each its pages with those before and behind them."""
    for title, pages in edition.chapters:
        yield {"title": title}
        for page in pages:
            next_steps = [other for other in edition.in_nav.values() if page.slug in other.builds_on]
            yield {"title": page.title, "page": page, "bases": bases(page, edition.in_nav), "next_steps": next_steps}


def exercises(edition: Edition) -> Iterator[dict[str, Any]]:
    """The chapters that have exercises; each exercise with its page, the end of its address, its title and minutes.

    `SourceError` where a page has no section of the name of one.
    """
    for title, pages in edition.chapters:
        if asked := [exercise(page, name) for page in pages for name in page.exercises]:
            yield {"title": title, "minutes": sum(one["minutes"] for one in asked), "exercises": asked}


def exercise(page: SitePage, name: str) -> dict[str, Any]:
    """An exercise; a whole page is one, too. Where a cell of its name has the answer to fill in, that is its `task`."""
    if name not in page.source.sections:
        fault = f"exercises names {name!r}; no section of the page has this id{nearest(name, page.source.sections)}"
        raise SourceError(f"docs/en/{page.slug}.md:1: {fault}")
    title = page.source.sections[name].title if name == TOP else KIND.sub("", page.source.sections[name].title)
    starters = (TASK.search(cell.code) for cell in page.own_cells if cell.name == name)
    task = next((found[1] for found in starters if found), "")
    anchor, minutes = "" if name == TOP else f"#{name}", page.exercises[name]
    return {"page": page, "anchor": anchor, "title": title[0].upper() + title[1:], "task": task, "minutes": minutes}


def with_cells(pages: Iterable[SitePage]) -> dict[str, Any]:
    """The pages that have cells, and the devices on which some ran."""
    pages = [page for page in pages if page.own_cells]
    return {"pages": pages, "devices": sorted({device for page in pages for device in page.badges})}


def counted(pages: Collection[SitePage], languages: int, words: Mapping[str, Any]) -> list[list[str]]:
    """For each promise of the first page the sentences that say what was counted for it."""
    cells = [cell for page in pages for cell in page.own_cells]
    written = {(cell.path, cell.name): cell for cell in cells}.values()  # a page may show the cells of another
    verified = Counter[str]()
    for page in pages:
        verified.update({device: badge["verified"] for device, badge in page.badges.items()})
    say = {what: sentence.format for what, sentence in words["counted"].items()}
    ran = [say["cells"](verified=verified[device], cells=len(cells), device=device) for device in sorted(+verified)]
    return [
        ran if verified["CUDA"] else [*ran, words["no_gpu"]],
        [say["shapes"](shapes=sum(len(shape_comments(cell)) for cell in written))],
        [say["programs"](programs=sum(not cell.shared for cell in written))],
        [],
        [say["languages"](languages=languages, current=sum(not page.behind for page in pages), pages=len(pages))],
    ]


# --- the index of names ---------------------------------------------------------------------------


def index(pages: Collection[SitePage]) -> list[dict[str, Any]]:
    """The symbols of some pages from A to Z, whatever stands before the last dot.

    Each has the pages that use it in reading order, each with its first cell that does.
    """
    uses, with_cells = defaultdict[str, list[tuple[SitePage, str]]](list), [page for page in pages if page.own_cells]
    for page in with_cells:
        for name, cell in names(tuple(page.own_cells)).items():
            uses[name].append((page, cell))
    telling = (name for name in uses if len(uses[name]) < NEARLY_ALL * len(with_cells))
    ordered = sorted((name.rpartition(".")[2].lower(), name) for name in telling)
    return [{"name": name, "letter": last[0].upper(), "uses": uses[name]} for last, name in ordered]


@functools.cache
def names(cells: tuple[Cell, ...]) -> Mapping[str, str]:
    """The names that cells use or define, each with the first that does; cached, since languages share their cells."""
    trees = [ast.parse(cell.code) for cell in cells]
    imported, firsts = {name: full for tree in trees for name, full in imports(tree)}, dict[str, str]()
    for cell, tree in zip(cells, trees):
        full = {name for name in written_out(tree, imported) if name.startswith(PACKAGES)}
        used = (short(name) for name in full if not any(other.startswith(f"{name}.") for other in full))
        for name in (*used, *defined(cell.code, tree)):
            firsts.setdefault(name, cell.name)
    return firsts


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
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            says_shapes = "# (" in "".join(lines[node.lineno - 1 : node.end_lineno])
            if says_shapes or isinstance(node, ast.ClassDef):
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
    return name.replace("torch.nn.functional.", "F.").replace("torch.nn.", "nn.")
