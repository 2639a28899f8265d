"""What the site says of all its pages together: the map, what the first page counts."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.cells.shapes import shape_comments
from tools.cells.source import SourceError, nearest
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


def with_cells(pages: Iterable[SitePage]) -> dict[str, Any]:
    """The pages that have cells, and the devices on which some ran."""
    pages = [page for page in pages if page.own_cells]
    return {"pages": pages, "devices": sorted({device for page in pages for device in page.badges})}


def counted(pages: Collection[SitePage], languages: int, words: Mapping[str, Any]) -> list[list[str]]:
    """For each promise of the first page the sentences that say what was counted for it."""
    cells = [cell for page in pages for cell in page.own_cells]
    written = dict.fromkeys(cells)  # a page may show the cells of another
    verified = Counter[str]()
    for page in pages:
        verified.update({device: badge["verified"] for device, badge in page.badges.items()})

    def say(what: str, **numbers: int | str) -> str:
        return str(words["counted"][what].format(**numbers))

    ran = [say("cells", verified=verified[device], cells=len(cells), device=device) for device in sorted(+verified)]
    return [
        ran if verified["CUDA"] else [*ran, words["no_gpu"]],
        [say("shapes", shapes=sum(len(shape_comments(cell)) for cell in written))],
        [say("programs", programs=sum(not cell.shared for cell in written))],
        [],
        [say("languages", languages=languages, current=sum(not page.behind for page in pages), pages=len(pages))],
    ]


def attention(pages: Mapping[str, SitePage]) -> dict[str, Any]:
    """The tokens of a sentence, for each the weights that it gives to all, and what each row adds up to."""
    slug, name = WEIGHTS
    cell = next(cell for cell in pages[slug].own_cells if cell.name == name)
    printed, size = DECIMAL.findall(cell.output or ""), len(cell.rows)
    rows = [printed[start : start + size] for start in range(0, size * size, size)]
    return {"words": cell.rows, "rows": rows, "sums": printed[size * size :][:size], "shown": SECTION}
