"""What the kit says of the attention of practice/kit when one of its lines is wrong."""

import re
from pathlib import Path
from typing import Any

import torch

from tools.cells.execute import importable
from tools.cells.source import Cell, read_cells
from tools.figures.pages import Numbers, run, settings, states

GAP = re.compile(r" by \S+; their size is \S+(?=\. )|\d+% (?=off)| at <string>:\d+$")  # of draws, and of our own run


def planted_bug() -> Numbers:
    """The probes, and for each bug its line, the right one, and what fails."""
    [cell] = [cell for cell in read_cells(Path("snippets/practice/kit.md")) if cell.name == "attention"]
    with importable(Path("snippets")):
        right = run(cell.code)
        cases = [{"state": state, **reported(cell, right, state["bug"])} for state in states("planted-bug")]
    return {"probes": [probe.name for probe in right["check"].__globals__["PROBES"]], "cases": cases}


def reported(cell: Cell, right: dict[str, Any], bug: str) -> Numbers:
    """A line and the right one; for each probe 1 if it fails, 0 if it passes, -1 if it is left out; what it says."""
    good, bad = settings("planted-bug")["bugs"][bug]
    torch.manual_seed(0)
    module = run(cell.code.replace(good, bad))["MyAttention"](32, 4)
    other = right["MyAttention"](32, 4).eval()
    other.load_state_dict(module.state_dict())

    def new_cache() -> Any:
        cache: dict[str, torch.Tensor] = {}
        return lambda chunk: module(chunk, cache=cache)

    options = {"module": module, "padding": module, "cache": new_cache, "reference": other}
    report = right["check"](module, width=32, causal=True, **options)
    names = [probe.name for probe in right["check"].__globals__["PROBES"]]
    failed = [1 if name in report.failed else -1 if name in report.left_out else 0 for name in names]
    said = {name: GAP.sub("", words) for name, words in report.failed.items()}
    return {"code": bad, "right": good, "failed": failed, "said": said}
