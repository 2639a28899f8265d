"""What all figures use: their settings, what the cells of a page define, and how numbers are stored."""

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from tools.cells.execute import importable
from tools.cells.source import read_cells, read_text

SNIPPETS = Path(__file__).resolve().parents[2] / "snippets"
Numbers = dict[str, Any]  # what a figure is given
State = Mapping[str, str]  # what the controls of a figure say


@functools.cache
def settings(name: str) -> dict[str, Any]:
    """What explorers.yml says of an explorer."""
    explorers: dict[str, dict[str, Any]] = yaml.safe_load(read_text(Path(__file__).with_name("explorers.yml")))
    return explorers[name]


def states(name: str) -> list[State]:
    """The states of an explorer, the first one first."""
    return [settings(name)["first"] | others for others in ({}, *settings(name)["others"])]


def numbers(tensor: torch.Tensor) -> Any:
    """A tensor as lists, its numbers with the nine digits that tell one float32 from the next."""
    if tensor.dim():
        return [numbers(row) for row in tensor]
    return float(f"{tensor.item():.9g}")


def run(code: str, **names: Any) -> dict[str, Any]:
    """The names that a piece of code leaves, which finds these."""
    names |= {"torch": torch}
    with warnings.catch_warnings(action="ignore"), importable(SNIPPETS):  # FlexAttention wants to be compiled
        exec(code, names)
    return names


@functools.cache
def names_of(slug: str) -> dict[str, Any]:
    """What the shared cells of a page define."""
    return run("\n".join(cell.code for cell in read_cells(Path(f"snippets/{slug}.md")) if cell.shared))
