"""One sentence through attention: the tensors of the first page in order, each with the line of code that makes it."""

import re
from pathlib import Path

from tools.cells.source import read_cells
from tools.figures.pages import Numbers, names_of, numbers

SLUG = "foundations/one-sentence"
MADE = ["words", "inputs", "queries", "keys", "values", "scores", "visible_scores", "weights", "contexts", "outputs"]
WRITTEN_OUT = re.compile(r"\(\s*\[.*\]\s*\)", re.DOTALL)  # a tensor with all its numbers
READER = 4  # *one*, whose row the figure follows


def one_sentence() -> Numbers:
    """The words, and the steps that make vectors, weights and contexts of them."""
    page = names_of(SLUG)
    code = "\n".join(cell.code for cell in read_cells(Path(f"snippets/{SLUG}.md")) if cell.shared)
    steps = []
    for name in MADE:
        [statement] = re.findall(rf"^{name} = .*(?:\n(?: .*\n)+.*)?$", code, re.MULTILINE)
        line, _, shape = WRITTEN_OUT.sub("(...)", statement).partition("  # ")
        step = {"name": name, "line": line, "shape": shape}
        steps.append(step | ({"sizes": tuple(page[name].shape), "rows": numbers(page[name])} if shape else {}))
    return {"reader": READER, "cases": [{"state": {"frame": "0"}, "words": page["words"], "steps": steps}]}
