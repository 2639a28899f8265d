"""The two clocks of rotary positions: what the hands of a query and of a key give, far and near."""

from pathlib import Path

import torch

from tools.cells.source import read_cells
from tools.figures.pages import Numbers, names_of, numbers, run

SLUG = "position/rope"
BASE = 100.0  # a slow hand that can be seen to turn
WORD = torch.tensor([1.0, 0.0, 0.8, 0.6])  # query and key, trained in pairs: the fast one, then the slow one
PLACES = torch.tensor(  # of the query and of the key in each frame
    [(3, 0), (0, 0), (1, 0), (3, 0), (4, 1), (13, 10), (1003, 1000), (44, 0), (44, 0), (0, 0), (3, 0)]
)


def rope_clocks() -> Numbers:
    """Weights of pairs in code of halves, permuted and as they are."""
    page = names_of(SLUG)
    speeds = BASE ** -(torch.arange(0, len(WORD), 2) / len(WORD))
    apart = (PLACES[:, 0] - PLACES[:, 1])[:, None] * speeds
    layouts = {"halves": page["to_halves"](WORD, 1), "pairs": WORD}
    return {
        "speeds": numbers(speeds),
        "places": PLACES.tolist(),
        "angles": (apart.rad2deg() % 360).round().int().tolist(),
        "errors": errors(),
        "cases": [{"state": {"layout": layout}, **clocks(word)} for layout, word in layouts.items()],
    }


def clocks(word: torch.Tensor) -> Numbers:
    """The length and the first angle of the hand in each clock, then in each frame its dot product and the score."""
    rotate, (queries, keys) = names_of(SLUG)["rotate"], PLACES.T
    words = word.expand(1, 1, len(PLACES), -1)
    products = (rotate(words, queries, BASE) * rotate(words, keys, BASE))[0, 0].unflatten(-1, (2, -1)).sum(dim=1)
    along, across = word.view(2, -1)
    hands = torch.stack([torch.hypot(along, across), torch.atan2(across, along)], dim=-1)
    return {"hands": numbers(hands), "dots": numbers(products), "scores": numbers(products.sum(dim=-1))}


def errors() -> dict[str, list[float]]:
    """What the bug of the page does to each row of an output, and that nothing is left of it after the permutation."""
    [cell] = [cell for cell in read_cells(Path(f"snippets/{SLUG}.md")) if cell.name == "bug"]
    lines: list[str] = []
    run(cell.code, **names_of(SLUG), print=lambda *parts: lines.append(" ".join(map(str, parts))))
    _, wrong, _, right, _ = lines
    return {"halves": [float(row) for row in right.split()], "pairs": [float(row) for row in wrong.split()]}
