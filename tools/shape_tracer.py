"""The code of three pages, line by line, with the shapes on the way: what the shape tracer is compared with."""

import ast
import random
import warnings

import torch
from torch import nn

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
        ["mask  # (B, 1, 1, T)", "mask  # (B, T, T)", "mask  # (4, 4)"],
        [
            "scores = queries @ keys.mT / D**0.5 + mask  # (B, H, T, T)",
            "scores = queries @ keys / D**0.5 + mask",
            "scores = queries @ keys.T / D**0.5 + mask",
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
            "hidden = scores.new_ones(T, T, dtype=torch.bool).triu(1)  # (T, T)",
            "hidden = scores.new_ones(3, 3, dtype=torch.bool).triu(1)",
        ],
        ["scores = scores.masked_fill(hidden, -torch.inf)  # (B, H, T, T)"],
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
SIZES = {
    "shapes": {"B": 2, "H": 4, "T": 6, "D": 5, "E": 3},
    "many-heads": {"B": 2, "H": 2, "T": 3, "E": 6, "out_width": 6},
    "cross-attention": {"B": 3, "H": 2, "Tq": 5, "Tk": 7, "D": 4, "E": 8, "memory_width": 12},
}
MOST = {"B": 4, "H": 6, "T": 8, "Tq": 8, "Tk": 8, "D": 6, "E": 12, "memory_width": 12, "out_width": 12}
AS_WRITTEN = "0"
MARK = "  # "
CHOSEN = [
    {"code": "many-heads", "H": "4"},
    {"code": "shapes", "line": "2.1", "H": "3"},
    {"code": "shapes", "line": "7.1", "B": "4"},
    {"code": "cross-attention", "line": "11.1", "Tk": "5"},
]
DRAWN = 4  # sizes for each line that can be put in another's place


def shape_tracer():
    """The steps of each page's code, or of some with another line, up to the error that torch raises."""
    draw = random.Random(0)
    chosen = [{"code": code} for code in PROGRAMS] + CHOSEN
    for code, lines in PROGRAMS.items():
        others = [f"{step}.{i}" for step, line in enumerate(lines, 1) for i in range(1, len(line))]
        for other in [AS_WRITTEN, *others]:
            for _ in range(DRAWN):
                sizes = {name: draw.randint(1, MOST[name]) for name in SIZES[code]}
                if "out_width" in sizes and draw.random() < 0.7:
                    sizes["out_width"] = draw.choice(range(sizes["H"], MOST["out_width"] + 1, sizes["H"]))
                chosen.append({"code": code, "line": other, **sizes})
    states = [{"line": AS_WRITTEN, **SIZES[one["code"]], **one} for one in chosen]
    states = [{name: str(value) for name, value in state.items()} for state in states]
    return {"most": MOST, "programs": PROGRAMS, "cases": [{"state": state, **trace(state)} for state in states]}


def written(state):
    """The lines of a state, each with the letters of its shape."""
    lines = [line for line, *_ in PROGRAMS[state["code"]]]
    if state["line"] != AS_WRITTEN:
        step, other = map(int, state["line"].split("."))
        _, _, letters = lines[step - 1].partition(MARK)
        line = PROGRAMS[state["code"]][step - 1][other]
        lines[step - 1] = line if MARK in line else line + MARK + letters
    return [line.partition(MARK)[::2] for line in lines]


def sizes_of(state):
    """What the letters and the names in the code of a state stand for."""
    sizes = {name: int(value) for name, value in state.items() if name in MOST}
    if "out_width" in sizes:
        sizes |= {"width": sizes["E"], "num_heads": sizes["H"], "D": sizes["out_width"] // sizes["H"]}
    return sizes


def trace(state):
    names, steps = {"torch": torch, "nn": nn, **sizes_of(state)}, []
    for code, letters in written(state):
        trail = []
        steps.append(trail)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # .T on more than two axes is deprecated
                take(code, letters, names, trail)
        except (RuntimeError, ValueError) as error:
            return {"steps": [" ".join(trail) for trail in steps], "error": f"{type(error).__name__}: {error}"}
    return {"steps": [" ".join(trail) for trail in steps], "error": ""}


def take(code, letters, names, trail):
    """Run a line; `trail` has the shapes on the way, also where torch raises."""
    name, sign, expression = code.partition(" = ")
    if code.startswith("if "):
        exec(code, names)
    elif sign:
        names[name] = walk(ast.parse(expression, mode="eval").body, names, trail)
    else:
        shape = eval(letters, names)
        names[name] = torch.ones(shape, dtype=torch.bool if name == "is_real" else None)
        trail.append(str(shape))


def walk(node, names, trail):
    """What an expression gives."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult | ast.Add):
        left, right = walk(node.left, names, trail), walk(node.right, names, [])
        matmul = isinstance(node.op, ast.MatMult)
        trail.append(f"{'@' if matmul else '+'} {shape_of(right)}")
        value = left @ right if matmul else left + right
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        value = walk(node.left, names, trail) / run(node.right, names)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        layer, inputs = names[node.func.id], walk(node.args[0], names, trail)
        trail.append(f"@ {shape_of(layer)}")
        value = layer(inputs)
    else:
        owner = node.func if isinstance(node, ast.Call) else node
        if isinstance(owner, ast.Attribute | ast.Subscript) and ast.unparse(owner.value) not in ("torch", "nn"):
            names = names | {"it": walk(owner.value, names, trail)}
            owner.value = ast.Name("it", ast.Load())
        value = run(node, names)
    note(value, trail)
    return value


def run(node, names):
    return eval(compile(ast.fix_missing_locations(ast.Expression(node)), "<line>", "eval"), names)


def note(value, trail):
    if isinstance(value, torch.Tensor | nn.Linear):
        shape = shape_of(value)
        if not trail or trail[-1].removeprefix("→ ") != shape:
            trail.append(f"→ {shape}" if trail else shape)


def shape_of(value):
    return str(tuple((value.weight.T if isinstance(value, nn.Linear) else value).shape))
