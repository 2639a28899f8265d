"""What the first page shows that is printed or counted elsewhere, so that nobody types it."""

import re
from collections import Counter
from collections.abc import Collection, Mapping

from tools.cells.shapes import shape_comments
from tools.cells.source import Cell
from tools.site.pages import SitePage

WORDS = "foundations/weighted-average", "tokens"
WEIGHTS = "foundations/causal", "weights"
SECTION = "foundations/causal", "row-zero"  # that shows them
DECIMAL = re.compile(r"\d\.\d{4}")


def cell(pages: Mapping[str, SitePage], slug: str, name: str) -> Cell:
    return next(cell for cell in pages[slug].own_cells if cell.name == name)


def attention(pages: Mapping[str, SitePage]) -> Mapping:
    """The tokens of a sentence, for each the weights that it gives to all, and what each row adds up to."""
    words = re.search(r'words = "(.*)"\.split', cell(pages, *WORDS).code)[1].split()
    printed, size = DECIMAL.findall(cell(pages, *WEIGHTS).output), len(words)
    rows = [printed[start : start + size] for start in range(0, size * size, size)]
    sums = printed[size * size : size * size + size]
    return {"words": words, "rows": rows, "sums": sums, "shown": SECTION}


def counted(pages: Collection[SitePage], languages: int, text: Mapping) -> list[list[str]]:
    """For each promise of the first page the sentences that say what was counted for it."""
    said = text["counted"]
    cells = [cell for page in pages for cell in page.own_cells]
    written = dict.fromkeys(cells)  # a page may show the cells of another
    verified = Counter()
    for badge in (badge for page in pages for badge in page.badges):
        verified[badge["device"]] += badge["verified"]
    ran = [
        said["cells"].format(verified=verified[device], cells=len(cells), device=device) for device in sorted(+verified)
    ]
    current = sum(not page.behind for page in pages)
    return [
        ran if verified["CUDA"] else [*ran, text["no_gpu"]],
        [said["shapes"].format(shapes=sum(len(shape_comments(cell)) for cell in written))],
        [said["programs"].format(programs=sum(not cell.shared for cell in written))],
        [],
        [said["languages"].format(languages=languages, current=current, pages=len(pages))],
    ]
