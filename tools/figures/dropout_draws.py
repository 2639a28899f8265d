"""Dropout on a row of weights: what each call keeps, what that sums to, and the mean of all calls so far."""

import torch
from torch import nn

from tools.figures.pages import Numbers, names_of, settings

SLUG = "practice/dropout"
PERCENTS = [50, 10, 20, 30, 40, 60]  # of the weights are dropped; the first one first
CALLS = [*range(1, 11), 100, 1000]


def dropout_draws() -> Numbers:
    """For each rate and each number of calls, the last row of weights of the page; and the same after `eval()`."""
    drop, row = names_of(SLUG)["drop"], names_of(SLUG)["weights"][-1]
    torch.manual_seed(0)
    random = torch.rand(max(CALLS), len(row), device="cpu")
    cases = []
    for percent in PERCENTS:
        p = percent / 100
        rows = drop(row, random >= p, p)
        for place, count in enumerate(CALLS):
            state = {"percent": str(percent), "calls": str(place), "mode": "train"}
            cases.append({"state": state, **shown(row, rows[:count])})
    for percent, place in ((50, 0), (60, 11)):
        state = {"percent": str(percent), "calls": str(place), "mode": "eval"}
        layer = nn.Dropout(percent / 100).eval()
        cases.append({"state": state, **shown(row, torch.stack([layer(row)] * CALLS[place]))})
    factors = {str(percent): round(drop(1, 1, percent / 100), 4) for percent in PERCENTS}
    return {"words": settings("mask-painter")["words"], "calls": CALLS, "factors": factors, "cases": cases}


def shown(row: torch.Tensor, rows: torch.Tensor) -> Numbers:
    """The weights, what the last call makes of them, the mean of all calls, and what each sums to."""
    columns = {"weights": row, "row": rows[-1], "mean": rows.mean(dim=0)}
    columns["sums"] = torch.stack([column.sum() for column in columns.values()])
    return {name: [round(number, 4) for number in column.tolist()] for name, column in columns.items()}
