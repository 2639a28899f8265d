"""How wide queries and keys are: the scores of random ones, and what the softmax makes of them."""

import torch

from tools.figures.pages import Numbers, names_of, numbers

SLUG = "foundations/scale"
WIDTHS = [2**power for power in range(2, 11)]
FIRST = 64
QUERIES, KEYS = 2000, 16


def head_width() -> Numbers:
    """For each width and each scale, 2000 queries with sixteen keys, as the page draws them."""
    widths = sorted(range(len(WIDTHS)), key=lambda place: WIDTHS[place] != FIRST)
    places = [(place, scale) for place in widths for scale in ("none", "root", "twice")]
    cases = [
        {"state": {"width": str(place), "scale": scale}, "D": WIDTHS[place], **measured(WIDTHS[place], scale)}
        for place, scale in places
    ]
    return {"widths": WIDTHS, "cases": cases}


def measured(D: int, scale: str) -> Numbers:
    """The scores and the weights of a query, sorted, as means over all; their deviation and how saturated they are."""
    page, factor = names_of(SLUG), {"none": 1.0, "root": D**-0.5, "twice": 1 / D}[scale]
    torch.manual_seed(0)
    scores = factor * page["random_scores"](QUERIES, KEYS, D)
    weights = torch.softmax(scores, dim=-1)
    found = {
        "scores": scores.sort(dim=-1).values.mean(dim=0),
        "weights": weights.sort(dim=-1, descending=True).values.mean(dim=0),
        "summary": torch.stack([scores.std(), *page["saturation"](scores)]),
    }
    return {name: numbers(tensor) for name, tensor in found.items()}
