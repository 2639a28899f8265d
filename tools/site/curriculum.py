"""Which page builds on which, as the front matter of the English pages says: `builds_on: [foundations/softmax]`

theme/map.html draws and lists it, and each page names the pages that it builds on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.cells.source import SourceError, nearest
from tools.site.pages import Edition, SitePage

LINE = 22  # from one line of the drawing to the next
STEM = 150  # where the arcs stand, to the left of the titles
SWING = 140  # how far the widest of them may swing out


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
    lines = [
        line for title, pages in edition.chapters for line in ((title, None), *((page.title, page) for page in pages))
    ]
    places = {page.slug: LINE * number for number, (_, page) in enumerate(lines, start=1) if page}
    found = []
    for number, (title, page) in enumerate(lines, start=1):
        row = Row(title, LINE * number)
        if page:
            below = bases(page, edition.in_nav)
            above = [other for other in edition.in_nav.values() if page.slug in other.builds_on]
            arcs = "".join(arc(row.y, places[base.slug], LINE * len(lines)) for base in below)
            row = Row(title, row.y, page, below, above, arcs)
        found.append(row)
    return found


def arc(start: int, end: int, height: int) -> str:
    """A path between two lines; the further apart they are, the wider it swings."""
    x = STEM - round(4 / 3 * SWING * ((start - end) / height) ** 0.5)  # a cubic curve reaches 3/4 of its way
    return f"M{STEM} {start}C{x} {start} {x} {end} {STEM} {end}"
