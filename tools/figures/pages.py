"""What the cells of a page define, for the figures, and how its numbers are stored."""

import functools
import warnings
from pathlib import Path
from typing import Any

import torch

from tools.cells.source import read_cells

Numbers = dict[str, Any]  # what a figure is given


def numbers(tensor: torch.Tensor) -> Any:
    """A tensor as lists, its numbers with the nine digits that tell one float32 from the next."""
    if tensor.dim():
        return [numbers(row) for row in tensor]
    return float(f"{tensor.item():.9g}")


def run(code: str, **names: Any) -> dict[str, Any]:
    """The names that a piece of code leaves, which finds these."""
    names |= {"torch": torch}
    with warnings.catch_warnings(action="ignore"):  # FlexAttention wants to be compiled
        exec(code, names)
    return names


@functools.cache
def names_of(slug: str) -> dict[str, Any]:
    """What the shared cells of a page define."""
    return run("\n".join(cell.code for cell in read_cells(Path(f"snippets/{slug}.md")) if cell.shared))
