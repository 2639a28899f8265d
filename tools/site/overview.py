"""What the site says of all its pages together: the map, the table of what ran, what the first page counts."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.cells.record import Badge
from tools.cells.shapes import shape_comments
from tools.cells.source import Cell, SourceError, nearest
from tools.site.pages import Edition, SitePage

LINE = 22  # from one line of the map to the next
STEM = 150  # where its arcs stand, to the left of the titles
SWING = 140  # how far the widest of them may swing out

WEIGHTS = "foundations/causal", "weights"  # the cell whose matrix the first page draws
SECTION = "foundations/causal", "row-zero"  # that shows it
DECIMAL = re.compile(r"\d\.\d{4}")


@dataclass(frozen=True)
class Row:
    """A line of the map: the title of a chapter, or a page with those that it builds on and those that build on it."""

    title: str
    y: int
    page: SitePage | None = None
    bases: Sequence[SitePage] = ()
    next_steps: Sequence[SitePage] = ()
    arcs: str = ""


def bases(page: SitePage, pages: Mapping[str, SitePage]) -> list[SitePage]:
    """The pages that a page builds on, of those of the nav; `SourceError` where one does not come before it."""
    order = list(pages)
    before = order[: order.index(page.slug)] if page.slug in pages else order
    for slug in page.builds_on:
        if slug not in before:
            raise SourceError(
                f"docs/en/{page.slug}.md:1: builds_on names {slug!r}; no page before it in the nav is that"
                + nearest(slug, before)
            )
    return [pages[slug] for slug in page.builds_on]


def rows(edition: Edition) -> list[Row]:
    """The map of the chapters, one line below the other."""
    lines: list[tuple[str, SitePage | None]] = []
    for title, pages in edition.chapters:
        lines += [(title, None), *((page.title, page) for page in pages)]
    heights = {page.slug: LINE * number for number, (_, page) in enumerate(lines, start=1) if page}

    def row(title: str, page: SitePage | None, y: int) -> Row:
        if not page:
            return Row(title, y)
        below = bases(page, edition.in_nav)
        above = [other for other in edition.in_nav.values() if page.slug in other.builds_on]
        arcs = "".join(arc(y, heights[base.slug], LINE * len(lines)) for base in below)
        return Row(title, y, page, below, above, arcs)

    return [row(*line, LINE * number) for number, line in enumerate(lines, start=1)]


def arc(start: int, end: int, height: int) -> str:
    """A path between two lines; the further apart they are, the wider it swings."""
    x = STEM - round(4 / 3 * SWING * ((start - end) / height) ** 0.5)  # a cubic curve reaches 3/4 of its way
    return f"M{STEM} {start}C{x} {start} {x} {end} {STEM} {end}"


@dataclass(frozen=True)
class Table:
    """What the records say of some pages on each of the `devices`.

    A row is a page and its badges in the order of the devices; `totals` are the badges of all pages, with counts alone.
    `waiting` are the pages and their cells that need a device.
    """

    devices: Sequence[str]
    rows: Sequence[tuple[SitePage, Sequence[Badge]]]
    totals: Sequence[Badge]
    waiting: Sequence[tuple[SitePage, Cell]]


def table(pages: Iterable[SitePage]) -> Table:
    """The table of those pages that have cells."""
    pages = [page for page in pages if page.own_cells]
    devices = sorted({badge["device"] for page in pages for badge in page.badges})
    rows = [(page, [badge_of(page, device) for device in devices]) for page in pages]
    columns = zip(*(badges for _, badges in rows))
    totals = [{count: sum(badge[count] for badge in column) for count in ("verified", "cells")} for column in columns]
    return Table(devices, rows, totals, [(page, cell) for page in pages for cell in page.own_cells if cell.needs])


def badge_of(page: SitePage, device: str) -> Badge:
    none = {"verified": 0, "cells": len(page.own_cells)}
    return next((badge for badge in page.badges if badge["device"] == device), none)


def counted(pages: Collection[SitePage], languages: int, words: Mapping[str, Any]) -> list[list[str]]:
    """For each promise of the first page the sentences that say what was counted for it."""
    sentences = words["counted"]
    cells = [cell for page in pages for cell in page.own_cells]
    written = dict.fromkeys(cells)  # a page may show the cells of another
    verified = Counter[str]()
    for badge in (badge for page in pages for badge in page.badges):
        verified[badge["device"]] += badge["verified"]
    ran = [
        sentences["cells"].format(verified=verified[device], cells=len(cells), device=device)
        for device in sorted(+verified)
    ]
    current = sum(not page.behind for page in pages)
    return [
        ran if verified["CUDA"] else [*ran, words["no_gpu"]],
        [sentences["shapes"].format(shapes=sum(len(shape_comments(cell)) for cell in written))],
        [sentences["programs"].format(programs=sum(not cell.shared for cell in written))],
        [],
        [sentences["languages"].format(languages=languages, current=current, pages=len(pages))],
    ]


def attention(pages: Mapping[str, SitePage]) -> dict[str, Any]:
    """The tokens of a sentence, for each the weights that it gives to all, and what each row adds up to."""
    slug, name = WEIGHTS
    cell = next(cell for cell in pages[slug].own_cells if cell.name == name)
    printed, size = DECIMAL.findall(cell.output or ""), len(cell.rows)
    rows = [printed[start : start + size] for start in range(0, size * size, size)]
    return {"words": cell.rows, "rows": rows, "sums": printed[size * size :][:size], "shown": SECTION}
