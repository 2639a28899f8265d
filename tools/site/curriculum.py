"""Which page builds on which, as the front matter of the English pages says: `builds_on: [foundations/softmax]`

theme/map.html draws and lists it, and each page names the pages that it builds on.
"""

from dataclasses import dataclass, field
from itertools import takewhile

from tools.cells.source import SourceError, nearest

LINE = 22  # from one line of the drawing to the next
STEM = 150  # where the arcs stand, to the left of the titles
SWING = 140  # how far the widest of them may swing out


@dataclass(frozen=True)
class Row:
    """A line of the map: the title of a chapter, or a page with those that it builds on and those that build on it."""

    title: str
    y: int
    page: object = None
    bases: list = field(default_factory=list)
    next_steps: list = field(default_factory=list)
    arcs: str = ""


def bases(page, pages):
    """The pages that a page builds on; `SourceError` where one does not come before it."""
    before = {one.slug: one for one in takewhile(lambda one: one is not page, pages)}
    for slug in page.builds_on:
        if slug not in before:
            raise SourceError(
                f"docs/en/{page.slug}.md:1: builds_on names {slug!r}; no page before it in the nav is that"
                + nearest(slug, before)
            )
    return [before[slug] for slug in page.builds_on]


def rows(nav):
    """The map of the chapters of the nav, one line below the other."""
    lines = [line for chapter in nav.items if chapter.children for line in (chapter, *chapter.children)]
    height = LINE * len(lines)
    y = {line.slug: LINE * number for number, line in enumerate(lines, start=1) if not line.children}

    def row(number, line):
        if line.children:
            return Row(line.title, LINE * number)
        below = bases(line, nav.pages)
        above = [page for page in nav.pages if line.slug in page.builds_on]
        arcs = "".join(arc(y[line.slug], y[base.slug], height) for base in below)
        return Row(line.title, LINE * number, line, below, above, arcs)

    return [row(number, line) for number, line in enumerate(lines, start=1)]


def arc(start, end, height):
    """A path between two lines; the further apart they are, the wider it swings."""
    x = STEM - round(4 / 3 * SWING * ((start - end) / height) ** 0.5)  # a cubic curve reaches 3/4 of its way
    return f"M{STEM} {start}C{x} {start} {x} {end} {STEM} {end}"
