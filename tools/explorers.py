"""What torch gives for the states of the explorers: `nox -s update` writes verified/explorers/<name>.json

A site is built without torch, so its figures begin with these numbers; the tests ask the browser for the same states. A
state is what the controls of a figure say, as texts. The first one is that in which a page shows the figure.
"""

import json
import math
import re
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tools.cells.record import write_atomically
from tools.cells.source import SourceError, read_cells, read_text
from tools.shape_tracer import shape_tracer

FOLDER = Path("verified/explorers")
INNERMOST = re.compile(r"(?<=\[)\n[^][{}]*(?=\])")


def numbers(tensor):
    """A tensor as lists, its numbers with the nine digits that tell one float32 from the next."""
    if tensor.dim():
        return [numbers(row) for row in tensor]
    return float(f"{tensor.item():.9g}")


# --- the mask painter -----------------------------------------------------------------------------

WORDS = ["Your", "journey", "starts", "with", "one", "step"]
TOKENS = torch.tensor(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)
T, D = TOKENS.shape

# Each reason to hide a key is a line of code, with the number that a reader chose; the figure shows the lines that ran.
REASONS = {
    "causal": ["places > places[:, None]"],
    "window": ["places > places[:, None]", "places <= places[:, None] - {size}"],
    "prefix": ["(places > places[:, None]) & (places >= {size})"],
    "documents": ["places // {share} != places[:, None] // {share}"],
    "left": ["places < {pads}"],
    "right": ["places >= T - {pads}"],
}

# By name: the words on masks/combining, what the entries of its mask say, the axes before (T, D), the code.
LIBRARIES = {
    "softmax": (
        "softmax, -inf",
        "ignore",
        "",
        "scores = scores.masked_fill(masked, -torch.inf)\ncontext = torch.softmax(scores, dim=-1) @ values",
    ),
    "softmax-lowest": (
        "softmax, finfo.min",
        "ignore",
        "",
        "lowest = torch.finfo(scores.dtype).min\n"
        "scores = scores.masked_fill(masked, lowest)\n"
        "context = torch.softmax(scores, dim=-1) @ values",
    ),
    "sdpa": (
        "SDPA, boolean",
        "attend",
        "BH",
        "context = F.scaled_dot_product_attention(\n    queries, keys, values, attn_mask=~masked\n)",
    ),
    "sdpa-inf": (
        "SDPA, -inf",
        "inf",
        "BH",
        "bias = torch.zeros(T, T).masked_fill(masked, -torch.inf)\n"
        "context = F.scaled_dot_product_attention(\n    queries, keys, values, attn_mask=bias\n)",
    ),
    "sdpa-lowest": (
        "SDPA, finfo.min",
        "lowest",
        "BH",
        "lowest = torch.finfo(queries.dtype).min\n"
        "bias = torch.zeros(T, T).masked_fill(masked, lowest)\n"
        "context = F.scaled_dot_product_attention(\n    queries, keys, values, attn_mask=bias\n)",
    ),
    "mha-weights": (
        "MHA, weights True",
        "ignore",
        "B",
        "context, weights = mha(queries, keys, values, attn_mask=masked)",
    ),
    "mha": (
        "MHA, weights False",
        "ignore",
        "B",
        "context, _ = mha(\n    queries, keys, values, attn_mask=masked, need_weights=False\n)",
    ),
    "flex": (
        "FlexAttention",
        "attend",
        "BH",
        "block_mask = create_block_mask(\n"
        "    lambda b, h, q, k: ~masked[q, k], None, None, T, T\n"
        ")\n"
        "context = flex_attention(queries, keys, values, block_mask=block_mask)",
    ),
}

PAINTED = {"pattern": "causal", "size": "2", "documents": "1", "pads": "2", "side": "left", "cells": "000000000"}
MASKS = [
    {},
    {"pads": "0"},
    {"pads": "3", "side": "right"},
    {"pattern": "full", "pads": "6"},
    {"pattern": "full", "pads": "1", "side": "right"},
    {"pattern": "window", "size": "3", "pads": "0"},
    {"pattern": "window", "size": "1", "pads": "0", "documents": "2"},
    {"pattern": "prefix", "size": "4", "pads": "1", "side": "right"},
    {"pattern": "causal", "documents": "3", "pads": "0"},
    {"pattern": "full", "documents": "2", "pads": "4"},
    {"pattern": "hand", "cells": "802f0b440"},
    {"pattern": "hand"},
]


def mask_painter():
    """The scores of six tokens, masks of every kind with what they make of them, and what libraries return."""
    scores, roles = TOKENS @ TOKENS.T, (TOKENS * D**0.5, TOKENS, TOKENS)  # the libraries divide by the root of D
    cases, returned = [], {}
    for state in [PAINTED | chosen for chosen in MASKS]:
        code = masking(state)
        masked = run(code)["masked"]
        weights = torch.softmax(scores.masked_fill(masked, -torch.inf), dim=-1)
        output, empty = weights @ TOKENS, masked.all(dim=-1)
        for name, (_, _, axes, library) in LIBRARIES.items() if empty.any() else ():
            context = run(library, masked, scores, roles, len(axes))["context"].view(T, D)
            if not torch.allclose(context[~empty], output[~empty], atol=1e-6):
                raise SourceError(f"mask-painter: {name} does not agree with softmax in the state {state}")
            for first in context[empty, 0].tolist():
                returned.setdefault(name, set()).add(f"{first:.4f}")
        found = {"visible": (~masked).int().tolist(), "weights": numbers(weights), "output": numbers(output)}
        cases.append({"state": state, "code": code, "sums": numbers(weights.sum(dim=-1)), **found})
    libraries = [
        {"name": name, "label": label, "says": says, "code": library, "empty": the_only(returned[name])}
        for name, (label, says, _, library) in LIBRARIES.items()
    ]
    return {"words": WORDS, "scores": numbers(scores), "reasons": REASONS, "libraries": libraries, "cases": cases}


def the_only(values):
    [value] = values
    return value


def masking(state):
    """The code of a mask that is True where a key is hidden."""
    if state["pattern"] == "hand":
        shown = f"{int(state['cells'], 16):036b}"
        rows = [", ".join(str(1 - int(bit)) for bit in shown[start : start + T]) for start in range(0, T * T, T)]
        inside = "".join(f"    [{row}],\n" for row in rows)
        return f"T = {T}\nmasked = torch.tensor([\n{inside}]).bool()"
    chosen = [state["pattern"], *(["documents"] if state["documents"] != "1" else [])]
    chosen += [state["side"]] if state["pads"] != "0" else []
    values = {**state, "share": T // int(state["documents"])}
    lines = [line.format(**values) for name in chosen for line in REASONS.get(name, [])]
    first = f"T = {T}\nplaces = torch.arange(T)\nmasked = torch.zeros(T, T, dtype=torch.bool)"
    return "\n".join([first, *(f"masked = masked | ({line})" for line in lines)])


def run(code, masked=None, scores=None, roles=(), axes=0):
    """The names that a piece of code leaves; it finds a mask, scores, and queries, keys and values with more axes."""
    mha = nn.MultiheadAttention(D, num_heads=1, bias=False, batch_first=True).requires_grad_(False)
    eye = torch.eye(D)
    mha.load_state_dict({"in_proj_weight": eye.repeat(3, 1), "out_proj.weight": eye})
    known = {"torch": torch, "F": F, "T": T, "mha": mha, "masked": masked, "scores": scores}
    known |= {"create_block_mask": on_the_cpu, "flex_attention": flex_attention}
    known |= {name: role[(None,) * axes] for name, role in zip(("queries", "keys", "values"), roles)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FlexAttention wants to be compiled
        exec(code, known)
    return known


def on_the_cpu(*arguments):
    return create_block_mask(*arguments, device="cpu")


# --- one query ------------------------------------------------------------------------------------

POINTS = {
    "q": (1.5, -0.5),
    "k0": (1.4, 0.2),
    "k1": (0.9, 1.3),
    "k2": (-0.4, 1.5),
    "k3": (-1.2, -0.3),
    "k4": (0.3, -1.4),
}
DRAWN = {"temperature": "0"} | {
    f"{name}{axis}": str(at) for name, place in POINTS.items() for axis, at in zip("xy", place)
}
QUERIES = [
    {},
    {"temperature": "0.5"},
    {"temperature": "-4"},
    {"temperature": "4"},
    {"temperature": "-1.5", "qx": "-1.7", "qy": "0.4"},
    {"qx": "0.0", "qy": "0.0"},
    {"temperature": "-4", "qx": "2.0", "qy": "2.0", "k0x": "2.0", "k0y": "2.0", "k3x": "-2.0", "k3y": "-2.0"},
    {f"k{key}{axis}": at for key in range(5) for axis, at in (("x", "0.7"), ("y", "-0.1"))},
]


def one_query():
    """A query and five keys in the plane, which are the values, too."""
    return {"cases": [{"state": state, **attended(state)} for state in [DRAWN | chosen for chosen in QUERIES]]}


def attended(state):
    query, *keys = [[float(state[f"{name}{axis}"]) for axis in "xy"] for name in POINTS]
    query, keys = torch.tensor(query), torch.tensor(keys)
    temperature = torch.tensor(2.0) ** float(state["temperature"])
    scores = keys @ query
    scaled = scores / temperature
    weights = torch.softmax(scaled, dim=-1)
    entropy = torch.special.entr(weights).sum()
    found = {"temperature": temperature, "scores": scores, "scaled": scaled, "weights": weights}
    found |= {"context": weights @ keys, "entropy": entropy, "equals": entropy.exp()}
    return {name: numbers(tensor) for name, tensor in found.items()}


# --- the leak meter -------------------------------------------------------------------------------

MUSEUM = "snippets/cross/capstone.md"
SENTENCE = ["Your", "journey", "starts", "with"]
METERS = {  # by name, what its rows and its columns stand for
    "causal": (SENTENCE, SENTENCE),
    "padding": (["<pad>", "one", "more", "step"],) * 2,
    "cross": (SENTENCE, ["un", "viaggio", "<pad>"]),
    "cache": (SENTENCE, SENTENCE),
}
NUDGED = {"padding ignored": "padding-0"}  # for all others the last token of the causal meter


def leak_meter():
    """How far each row moves in four calls, for the right module and for each bug of the museum, and who notices."""
    cells, page, bugs = read_cells(Path(MUSEUM)), {}, {}
    for cell in cells:
        if cell.shared:
            exec(cell.code, page)
    page["exhibit"] = lambda bug, **methods: bugs.update({bug: methods})
    cases = [measured(page, "none")]
    for number, room in enumerate((cell for cell in cells if cell.name.startswith("room-")), start=1):
        exec(room.code, page)
        for line in room.output.splitlines():
            bug = line[:16].strip()
            cases.append(measured(page, bug, bugs[bug], number, *line[16:].strip().split(" ", 1)))
    return {"meters": METERS, "cases": cases}


def measured(page, bug, methods=None, room=0, number="0", probes=""):
    state = {"bug": bug, "token": NUDGED.get(bug, "causal-3")}
    found = moved(page, type("Broken", (page["Attention"],), methods or {}))
    return {"state": state, "room": room, "number": number, "probes": probes, **found}


def moved(page, build):
    """What the `moves` of the page finds in the first item of its batch; nothing where the call raises."""
    padded, real = torch.tensor([[False, True, True, True]]), torch.tensor([[True, True, False]])
    module, inputs, _ = page["setup"](build, causal=True)  # one for three calls: what it keeps of a call would show
    cross, others, memory = page["setup"](build, memory_width=page["memory_width"])
    calls = {
        "causal": (lambda tokens: module(tokens)[0], inputs[:1, :4]),
        "padding": (lambda tokens: module(tokens, is_real=padded.clone())[0], inputs[:1, :4]),
        "cross": (lambda tokens: cross(others[:1, :4], tokens, real.clone())[0], memory[:1, :3]),
        "cache": (lambda tokens: in_steps(module, tokens), inputs[:1, :4]),
    }
    found = {}
    for name, (attend, tokens) in calls.items():
        try:
            found[name] = numbers(page["moves"](attend, tokens)[0])
        except RuntimeError:
            found[name] = None
    return found


def in_steps(module, tokens):
    """The outputs for two tokens at a time, with what the steps before have left."""
    past, rows = None, []
    for chunk in tokens.split(2, dim=1):
        outputs, past = module(chunk, cache=past)[:2]
        rows.append(outputs)
    return torch.cat(rows, dim=1)


EXPLORERS = {
    "mask-painter": mask_painter,
    "one-query": one_query,
    "leak-meter": leak_meter,
    "shape-tracer": shape_tracer,
}


def golden(name: str) -> dict:
    """The numbers of an explorer, and which torch computed them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine threads wait for each other a hundred times longer than they compute
    try:
        return {"torch": torch.__version__.partition("+")[0], **EXPLORERS[name]()}
    finally:
        torch.set_num_threads(threads)


def same(one, other) -> bool:
    """Whether two sets of numbers are the same but for the rounding of another machine."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return one == other


def stored(name: str) -> dict:
    """The numbers of an explorer as they were written last; none where they have not been."""
    path = FOLDER / f"{name}.json"
    return json.loads(read_text(path)) if path.is_file() else {}


def on_one_line(found):
    return re.sub(r"\n *", " ", found[0]).strip()


def main() -> None:
    for name in EXPLORERS:
        numbers = golden(name)
        if not same(numbers, stored(name)):
            text = json.dumps(numbers, ensure_ascii=False, indent=1)
            write_atomically(FOLDER / f"{name}.json", INNERMOST.sub(on_one_line, text) + "\n")


if __name__ == "__main__":
    main()
