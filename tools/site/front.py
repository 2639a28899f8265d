"""What the first page shows that is printed or counted elsewhere, so that nobody types it."""

import html
import re
from collections import Counter
from itertools import chain
from pathlib import Path

from tools.cells.shapes import shape_comments
from tools.cells.source import read_cells

WORDS = "foundations/weighted-average", "tokens"
WEIGHTS = "masks/causal", "weights"
SECTION = "masks/causal", "row-zero"  # that shows them
DECIMAL = re.compile(r"\d\.\d{4}")
PROMISES = re.compile(r'<h2 id="promises">.*?</ol>', re.S)


def cell(snippets, slug, name):
    return next(cell for cell in read_cells(Path(snippets, f"{slug}.md")) if cell.name == name)


def attention(snippets):
    """The tokens of a sentence, for each the weights that it gives to all, and what each row adds up to."""
    words = re.search(r'words = "(.*)"\.split', cell(snippets, *WORDS).code)[1].split()
    printed, size = DECIMAL.findall(cell(snippets, *WEIGHTS).output), len(words)
    rows = [printed[start : start + size] for start in range(0, size * size, size)]
    sums = printed[size * size : size * size + size]
    return {"words": words, "rows": rows, "sums": sums, "shown": SECTION}


def counted(pages, languages, text):
    """For each promise of the first page the sentences that say what was counted for it."""
    said = text["counted"]
    cells = list(chain.from_iterable(page.cells_to_verify for page in pages))
    written = dict.fromkeys(cells)  # a page may show the cells of another
    verified = Counter()
    for badge in chain.from_iterable(page.badges for page in pages):
        verified[badge["device"]] += badge["verified"]
    ran = [
        said["cells"].format(verified=verified[device], cells=len(cells), device=device) for device in sorted(+verified)
    ]
    current = sum(not page.behind for page in pages)
    return [
        ran if verified["CUDA"] else [*ran, text["no_gpu"]],
        [said["shapes"].format(shapes=sum(len(shape_comments(cell.at_its_lines)) for cell in written))],
        [said["programs"].format(programs=sum(not cell.shared for cell in written))],
        [],  # the tests of a page say more of it than a number
        [said["languages"].format(languages=languages, current=current, pages=len(pages))],
    ]


def say_counted(body, counts):
    """Below each promise what was counted for it."""
    counts = iter(counts)

    def said(end):
        lines = "".join(f"<small>{html.escape(sentence)}</small>" for sentence in next(counts))
        return f"{lines}{end[0]}"

    return PROMISES.sub(lambda section: re.sub("</li>", said, section[0]), body)
