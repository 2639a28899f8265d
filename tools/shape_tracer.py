"""The code of three pages, line by line, with the shapes that torch gives on the way: what the shape tracer shows.

A reader chooses one of some sizes and puts another line in the place of one; every such state is run here.
"""

import itertools
import warnings

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

# Behind a line stand the letters of its shape; of a layer it is the shape that its input meets. A name alone is a
# tensor that comes from outside. With a line stand others that a reader can put in its place.
PROGRAMS = {
    "shapes": [
        ["batch  # (B, T, E)"],
        ["matrix = torch.randn(E, H * D)  # (E, H * D)", "matrix = torch.randn(3, 20)"],
        ["projected = batch @ matrix  # (B, T, H * D)"],
        [
            "queries = projected.view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)",
            "queries = projected.view(B, H, T, D)",
        ],
        ["keys  # (B, H, T, D)", "keys  # (B, 2, T, D)"],
        ["values  # (B, H, T, D)"],
        ["bias  # (B, 1, 1, T)", "bias  # (B, T, T)", "bias  # (4, 4)"],
        [
            "scores = queries @ keys.mT / D**0.5 + bias  # (B, H, T, T)",
            "scores = queries @ keys / D**0.5 + bias",
            "scores = queries @ keys.T / D**0.5 + bias",
        ],
        ["weights = scores.softmax(dim=-1)  # (B, H, T, T)"],
        ["context = weights @ values  # (B, H, T, D)"],
        [
            "merged = context.transpose(1, 2).reshape(B, T, H * D)  # (B, T, H * D)",
            "merged = context.transpose(1, 2).view(B, T, H * D)",
            "merged = context.reshape(B, T, H * D)",
        ],
    ],
    "many-heads": [
        ["inputs  # (B, T, E)"],
        [
            'if out_width % num_heads: raise ValueError(f"{num_heads} heads cannot share {out_width}")',
            "D = out_width // num_heads",
        ],
        [
            "to_queries = nn.Linear(width, out_width, bias=False)  # (E, out_width)",
            "to_queries = nn.Linear(6, 6, bias=False)",
        ],
        ["wide = to_queries(inputs)  # (B, T, out_width)"],
        [
            "queries = wide.view(B, T, num_heads, -1).transpose(1, 2)  # (B, H, T, D)",
            "queries = wide.view(B, num_heads, T, -1)",
        ],
        ["keys  # (B, H, T, D)"],
        ["values  # (B, H, T, D)"],
        [
            "scores = queries @ keys.mT / D**0.5  # (B, H, T, T)",
            "scores = queries @ keys / D**0.5",
            "scores = queries @ keys.T / D**0.5",
        ],
        [
            "masked = scores.new_ones(T, T, dtype=torch.bool).triu(1)  # (T, T)",
            "masked = scores.new_ones(3, 3, dtype=torch.bool).triu(1)",
        ],
        ["scores = scores.masked_fill(masked, -torch.inf)  # (B, H, T, T)"],
        ["context = torch.softmax(scores, dim=-1) @ values  # (B, H, T, D)"],
        [
            "merged = context.transpose(1, 2).contiguous().view(B, T, H * D)  # (B, T, H * D)",
            "merged = context.transpose(1, 2).view(B, T, H * D)",
            "merged = context.reshape(B, T, H * D)",
        ],
        ["to_output = nn.Linear(out_width, out_width)  # (out_width, out_width)"],
        ["output = to_output(merged)  # (B, T, out_width)"],
    ],
    "cross-attention": [
        ["inputs  # (B, Tq, E)"],
        ["memory  # (B, Tk, memory_width)"],
        ["is_real  # (B, Tk)"],
        ["to_queries = nn.Linear(E, H * D)  # (E, H * D)", "to_queries = nn.Linear(8, 8)"],
        [
            "to_keys = nn.Linear(memory_width, H * D)  # (memory_width, H * D)",
            "to_keys = nn.Linear(E, H * D)  # (E, H * D)",
        ],
        ["to_values = nn.Linear(memory_width, H * D)  # (memory_width, H * D)"],
        ["to_output = nn.Linear(H * D, E)  # (H * D, E)"],
        ["asking = to_queries(inputs)  # (B, Tq, H * D)"],
        ["read = to_keys(memory)  # (B, Tk, H * D)"],
        ["queries = asking.view(B, Tq, H, D).transpose(1, 2)  # (B, H, Tq, D)"],
        [
            "keys = read.view(B, Tk, H, D).transpose(1, 2)  # (B, H, Tk, D)",
            "keys = read.view(B, Tq, H, D).transpose(1, 2)",
        ],
        ["values = to_values(memory).view(B, Tk, H, D).transpose(1, 2)  # (B, H, Tk, D)"],
        [
            "scores = queries @ keys.mT / D**0.5  # (B, H, Tq, Tk)",
            "scores = queries @ keys / D**0.5",
            "scores = queries @ keys.T / D**0.5",
        ],
        [
            "visible = is_real[:, None, None, :]  # (B, 1, 1, Tk)",
            "visible = is_real[:, None, :]  # (B, 1, Tk)",
            "visible = is_real  # (B, Tk)",
        ],
        ["scores = scores.masked_fill(~visible, -torch.inf)  # (B, H, Tq, Tk)"],
        ["weights = scores.softmax(dim=-1)  # (B, H, Tq, Tk)"],
        ["context = weights @ values  # (B, H, Tq, D)"],
        [
            "joined = context.transpose(1, 2).flatten(2)  # (B, Tq, H * D)",
            "joined = context.transpose(1, 2).view(B, Tq, H * D)",
            "joined = context.flatten(2)  # (B, H, Tq * D)",
        ],
        ["outputs = to_output(joined)  # (B, Tq, E)"],
    ],
}
# The sizes of the page, then others, of which some make a wrong line run without an error.
SIZES = {
    "shapes": [
        {"B": 2, "H": 4, "T": 6, "D": 5, "E": 3},
        {"B": 2, "H": 3, "T": 6, "D": 5, "E": 3},
        {"B": 2, "H": 4, "T": 5, "D": 5, "E": 3},
        {"B": 4, "H": 4, "T": 4, "D": 5, "E": 3},
    ],
    "many-heads": [
        {"B": 2, "H": 2, "T": 3, "E": 6, "out_width": 6},
        {"B": 2, "H": 4, "T": 3, "E": 6, "out_width": 6},
        {"B": 2, "H": 3, "T": 5, "E": 6, "out_width": 12},
        {"B": 2, "H": 1, "T": 3, "E": 4, "out_width": 6},
    ],
    "cross-attention": [
        {"B": 3, "H": 2, "Tq": 5, "Tk": 7, "D": 4, "E": 8, "memory_width": 12},
        {"B": 3, "H": 2, "Tq": 5, "Tk": 5, "D": 4, "E": 8, "memory_width": 12},
        {"B": 3, "H": 2, "Tq": 5, "Tk": 4, "D": 4, "E": 8, "memory_width": 8},
        {"B": 3, "H": 3, "Tq": 5, "Tk": 7, "D": 4, "E": 8, "memory_width": 12},
    ],
}
AS_WRITTEN = "0"
MARK = "  # "
SIGNS = {"matmul": "@", "__matmul__": "@", "linear": "@", "add": "+", "__add__": "+"}


def shape_tracer() -> dict:
    """The programs, their sizes, and for every state the steps up to the error that torch raises."""
    states = [
        {"code": code, "line": line, "sizes": str(sizes)}
        for code, lines in PROGRAMS.items()
        for sizes, line in itertools.product(range(len(SIZES[code])), [AS_WRITTEN, *others(lines)])
    ]
    return {"programs": PROGRAMS, "sizes": SIZES, "cases": [{"state": state, **trace(state)} for state in states]}


def others(lines: list) -> list:
    """The names of the lines that can stand in the place of another: step and number, as in `4.1`."""
    return [f"{step}.{number}" for step, line in enumerate(lines, start=1) for number in range(1, len(line))]


def written(state: dict) -> list:
    """The lines of a state, each as its code and the letters of its shape."""
    lines = [line for line, *_ in PROGRAMS[state["code"]]]
    if state["line"] != AS_WRITTEN:
        step, other = map(int, state["line"].split("."))
        _, _, letters = lines[step - 1].partition(MARK)
        line = PROGRAMS[state["code"]][step - 1][other]
        lines[step - 1] = line if MARK in line else line + MARK + letters
    return [line.partition(MARK)[::2] for line in lines]


def sizes_of(state: dict) -> dict:
    """What the letters and the names in the code of a state stand for."""
    sizes = dict(SIZES[state["code"]][int(state["sizes"])])
    if "out_width" in sizes:
        sizes |= {"width": sizes["E"], "num_heads": sizes["H"], "D": sizes["out_width"] // sizes["H"]}
    return sizes


class Trail(TorchFunctionMode):
    """Notes the shapes on the way of an expression, also where torch raises."""

    def __init__(self):
        super().__init__()
        self.words = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
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

    def note(self, value):
        if not isinstance(value, torch.Tensor):
            return
        shape = shape_of(value)
        if not self.words or self.words[-1].removeprefix("→ ") != shape:
            self.words.append(f"→ {shape}" if self.words else shape)


def shape_of(value) -> str:
    return str(tuple((value.weight.T if isinstance(value, nn.Linear) else value).shape))


def trace(state: dict) -> dict:
    """The shapes on the way of each line, the letters of its last shape, and the error that ends them, if any."""
    names, steps, letters = {"torch": torch, "nn": nn, **sizes_of(state)}, [], []
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


def take(code: str, letters: str, names: dict, trail: Trail):
    """Run a line among `names`; return the tensor or the layer that it makes."""
    name, sign, _ = code.partition(" = ")
    if not sign and not code.startswith("if "):
        kind = {"dtype": torch.bool} if name == "is_real" else {}
        names[name] = torch.ones(eval(letters, names), **kind)
    else:
        with warnings.catch_warnings(action="ignore"), trail:  # .T on more than two axes is deprecated
            exec(code, names)
    if isinstance(names.get(name), nn.Linear):
        trail.words[:] = [shape_of(names[name])]  # not how it was initialised
    trail.note(names.get(name))
    return names.get(name)


def lettered(value, wanted: str, names: dict) -> str:
    """The shape of a value in letters; where the letter that the page writes is not true, the number stands."""
    letters = wanted[1:-1].split(", ")
    sizes = (value.weight.T if isinstance(value, nn.Linear) else value).shape
    known = [letter if eval(letter, names) == size else str(size) for letter, size in zip(letters, sizes)]
    return ", ".join([*known, *map(str, sizes[len(known) :])])
