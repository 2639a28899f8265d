"""What the site says of all its pages together: the map, what the first page counts."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tools.cells.shapes import shape_comments
from tools.cells.source import SourceError, nearest
from tools.site.pages import Edition, SitePage

WEIGHTS = "foundations/causal", "weights"  # the cell whose matrix the first page draws
SECTION = "foundations/causal", "row-zero"  # that shows it
DECIMAL = re.compile(r"\d\.\d{4}")


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


def rows(edition: Edition) -> Iterator[dict[str, Any]]:
    """The lines of the map: the titles of the chapters, and below each its pages with those before and behind them."""
    for title, pages in edition.chapters:
        yield {"title": title}
        for page in pages:
            next_steps = [other for other in edition.in_nav.values() if page.slug in other.builds_on]
            yield {"title": page.title, "page": page, "bases": bases(page, edition.in_nav), "next_steps": next_steps}


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
    say = {what: sentence.format for what, sentence in words["counted"].items()}
    ran = [say["cells"](verified=verified[device], cells=len(cells), device=device) for device in sorted(+verified)]
    return [
        ran if verified["CUDA"] else [*ran, words["no_gpu"]],
        [say["shapes"](shapes=sum(len(shape_comments(cell)) for cell in written))],
        [say["programs"](programs=sum(not cell.shared for cell in written))],
        [],
        [say["languages"](languages=languages, current=sum(not page.behind for page in pages), pages=len(pages))],
    ]


def attention(pages: Mapping[str, SitePage]) -> dict[str, Any]:
    """The tokens of a sentence, for each the weights that it gives to all, and what each row adds up to."""
    slug, name = WEIGHTS
    cell = next(cell for cell in pages[slug].own_cells if cell.name == name)
    printed, size = DECIMAL.findall(cell.output or ""), len(cell.rows)
    rows = [printed[start : start + size] for start in range(0, size * size, size)]
    return {"words": cell.rows, "rows": rows, "sums": printed[size * size :][:size], "shown": SECTION}
