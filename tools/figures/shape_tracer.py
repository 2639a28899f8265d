"""The code of five pages, line by line, with the shapes that torch gives on the way: what the shape tracer shows.

A reader chooses one of some sizes and puts another line in the place of one; every such state is run here. The lines
and the sizes stand in shape_tracer.yml.
"""

import itertools
import re
import warnings
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn
from torch.overrides import TorchFunctionMode

from tools.cells.source import read_text


def steps_of(lines: str) -> list[list[str]]:
    """Each line with those that can stand in its place, which are indented."""
    return [step.split("\n  ") for step in re.split(r"\n(?! )", lines.strip())]


SETTINGS: dict[str, dict[str, Any]] = yaml.safe_load(read_text(Path(__file__).with_suffix(".yml")))
PROGRAMS = {code: steps_of(settings["lines"]) for code, settings in SETTINGS.items()}
SIZES = {code: settings["sizes"] for code, settings in SETTINGS.items()}
AS_WRITTEN = "0"
MARK = "  # "
SIGNS = {"matmul": "@", "__matmul__": "@", "linear": "@", "add": "+", "__add__": "+"}


def shape_tracer() -> dict[str, Any]:
    """The programs, their sizes, and for every state the steps up to the error that torch raises."""
    states = [
        {"code": code, "line": line, "sizes": str(sizes)}
        for code, lines in PROGRAMS.items()
        for sizes, line in itertools.product(range(len(SIZES[code])), [AS_WRITTEN, *others(lines)])
    ]
    return {"programs": PROGRAMS, "sizes": SIZES, "cases": [{"state": state, **trace(state)} for state in states]}


def others(lines: list[list[str]]) -> list[str]:
    """The names of the lines that can stand in the place of another: step and number, as in `4.1`."""
    return [f"{step}.{number}" for step, line in enumerate(lines, start=1) for number in range(1, len(line))]


def written(state: dict[str, str]) -> list[tuple[str, str]]:
    """The lines of a state, each as its code and the letters of its shape."""
    lines = [line for line, *_ in PROGRAMS[state["code"]]]
    if state["line"] != AS_WRITTEN:
        step, other = map(int, state["line"].split("."))
        _, _, letters = lines[step - 1].partition(MARK)
        line = PROGRAMS[state["code"]][step - 1][other]
        lines[step - 1] = line if MARK in line else line + MARK + letters
    return [(code, letters) for code, _, letters in (line.partition(MARK) for line in lines)]


def sizes_of(state: dict[str, str]) -> dict[str, Any]:
    """What the letters and the names in the code of a state stand for."""
    sizes = dict(SIZES[state["code"]][int(state["sizes"])])
    if "out_width" in sizes:
        sizes |= {"width": sizes["E"], "num_heads": sizes["H"], "D": sizes["out_width"] // sizes["H"]}
    return sizes


class Trail(TorchFunctionMode):  # type: ignore[misc]  # mypy does not read torch
    """Notes the shapes on the way of an expression, also where torch raises."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in ("__get__", "__invert__", "bitwise_not"):  # keys.mT, ~mask: what it meets is of interest
            return function(*args, **(kwargs or {}))
        if args:
            self.note(args[0])
        if name in SIGNS:
            other = args[1].T if name == "linear" else args[1]
            self.words.append(f"{SIGNS[name]} {shape_of(other)}")
        result = function(*args, **(kwargs or {}))
        self.note(result)
        return result

    def note(self, value: Any) -> None:
        """Add the shape of a tensor, where it is not the one noted last."""
        shape = str(shape_of(value)) if isinstance(value, torch.Tensor) else ""
        if shape and (not self.words or self.words[-1].removeprefix("→ ") != shape):
            self.words.append(f"→ {shape}" if self.words else shape)


def shape_of(value: torch.Tensor | nn.Linear) -> tuple[int, ...]:
    """The sizes of a tensor; of a layer those of the matrix that its input meets."""
    return tuple((value.weight.T if isinstance(value, nn.Linear) else value).shape)


def trace(state: dict[str, str]) -> dict[str, Any]:
    """The shapes on the way of each line, the letters of its last shape, and the error that ends them, if any."""
    names = {"torch": torch, "nn": nn, "einsum": torch.einsum, **sizes_of(state)}
    steps: list[str] = []
    letters: list[str] = []
    for code, wanted in written(state):
        trail = Trail()
        try:
            value = take(code, wanted, names, trail)
        except (RuntimeError, ValueError) as error:
            steps.append(" ".join(trail.words))
            return {"steps": steps, "letters": letters, "error": f"{type(error).__name__}: {error}"}
        steps.append(" ".join(trail.words))
        letters.append(lettered(value, wanted, names) if wanted else "")
    return {"steps": steps, "letters": letters, "error": ""}


def take(code: str, letters: str, names: dict[str, Any], trail: Trail) -> Any:
    """Run a line among `names`; return the tensor or the layer that it makes."""
    name, sign, _ = code.partition(" = ")
    if not sign and not code.startswith("if "):
        kind = {"dtype": torch.bool} if name == "is_real" else {}
        names[name] = torch.ones(eval(letters, names), **kind)
    else:
        with warnings.catch_warnings(action="ignore"), trail:  # .T on more than two axes is deprecated
            exec(code, names)
    if isinstance(names.get(name), nn.Linear):
        trail.words[:] = [str(shape_of(names[name]))]  # not how it was initialised
    trail.note(names.get(name))
    return names.get(name)


def lettered(value: torch.Tensor | nn.Linear, wanted: str, names: dict[str, Any]) -> str:
    """The shape of a value in letters; where the letter that the page writes is not true, the number stands."""
    letters = wanted[1:-1].split(", ")
    sizes = shape_of(value)
    known = [letter if eval(letter, names) == size else str(size) for letter, size in zip(letters, sizes)]
    return ", ".join([*known, *map(str, sizes[len(known) :])])
