"""What torch gives for the states of the explorers: `nox -s update` writes verified/explorers/<name>.json

A site is built without torch, so its figures begin with these numbers; the tests ask the browser for the same states.
The states and the code that the figures show stand in explorers.yml and shape_tracer.yml.
"""

import functools
import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tools.cells.record import write_atomically
from tools.cells.source import read_cells, read_text
from tools.figures.shape_tracer import shape_tracer

FOLDER = Path("verified/explorers")
INNERMOST = re.compile(r"(?<=\[)\n[^][{}]*(?=\])")
SHOWN = yaml.safe_load(read_text(Path(__file__).with_suffix(".yml")))
PAINTER, QUERY, METER = (SHOWN[name] for name in ("mask-painter", "one-query", "leak-meter"))


def states(shown):
    """The states of an explorer, the first one first."""
    return [shown["first"] | chosen for chosen in ({}, *shown["others"])]


def numbers(tensor):
    """A tensor as lists, its numbers with the nine digits that tell one float32 from the next."""
    if tensor.dim():
        return [numbers(row) for row in tensor]
    return float(f"{tensor.item():.9g}")


# --- the mask painter -----------------------------------------------------------------------------

TOKENS = torch.tensor(PAINTER["tokens"])
SCORES = TOKENS @ TOKENS.T
T, D = TOKENS.shape


def mask_painter():
    """The scores of six tokens, masks of every kind, and what the calls of several libraries make of them."""
    cases = [painted(state) for state in states(PAINTER)]
    shown = {"words": PAINTER["words"], "scores": numbers(SCORES)}
    shown |= {name: PAINTER[name] for name in ("entries", "reasons")}
    return {**shown, "libraries": [called(library, cases) for library in PAINTER["libraries"]], "cases": cases}


def painted(state):
    """The mask of a state with its code, and what the chosen call makes of the scores."""
    [library] = (library for library in PAINTER["libraries"] if library["name"] == state["library"])
    masked = run(masking(state))["masked"]
    weights, output = attend(library, masked)
    found = {"visible": (~masked).int().tolist(), "weights": numbers(weights), "output": numbers(output)}
    code = f"{masking(state)}\n{library['code']}"
    return {"state": state, "code": code, "sums": numbers(weights.sum(dim=-1)), **found}


def attend(library, masked):
    """The weights and the contexts of a call. Few calls return their weights; all of them weigh an identity matrix."""
    columns = torch.eye(T).split(D, dim=1)
    calls = (run(library["code"], masked, library["axes"], values) for values in (*columns, TOKENS))
    *weights, context = (call["context"].view(T, D) for call in calls)
    return torch.cat(weights, dim=1), context


def masking(state):
    """The code of a mask that is True where a key is hidden."""
    if state["pattern"] == "hand":
        masked = [1 - int(bit) for bit in f"{int(state['cells'], 16):036b}"]
        rows = "".join(f"    {masked[start : start + T]},\n" for start in range(0, T * T, T))
        return f"T = {T}\nmasked = torch.tensor([\n{rows}]).bool()"
    chosen = [state["pattern"], *(["documents"] if state["documents"] != "1" else [])]
    chosen += [state["side"]] if state["pads"] != "0" else []
    values = {**state, "share": T // int(state["documents"])}
    lines = [line.format(**values) for name in chosen for line in PAINTER["reasons"].get(name, [])]
    first = f"T = {T}\nplaces = torch.arange(T)\nmasked = torch.zeros(T, T, dtype=torch.bool)"
    return "\n".join([first, *(f"masked = masked | ({line})" for line in lines)])


def called(library, cases):
    """A library as the figure shows it, with the one weight that it gives where a row has no key at all."""
    own = [case for case in cases if case["state"]["library"] == library["name"]]
    rows = [row for case in own for row, keys in zip(case["weights"], case["visible"]) if not any(keys)]
    [weight] = {f"{weight:.7g}" for row in rows for weight in row}
    return {name: library[name] for name in ("name", "label", "says", "code")} | {"empty": float(weight)}


def run(code, masked=None, axes=0, values=TOKENS):
    """The names that a piece of code leaves; it finds a mask, scores, and roles with as many more axes."""
    mha = nn.MultiheadAttention(D, num_heads=1, bias=False, batch_first=True).requires_grad_(False)
    eye = torch.eye(D)
    mha.load_state_dict({"in_proj_weight": eye.repeat(3, 1), "out_proj.weight": eye})
    known = {"torch": torch, "F": F, "T": T, "mha": mha, "masked": masked, "scores": SCORES}
    known |= {"queries": TOKENS[(None,) * axes] * D**0.5}  # the libraries divide by the root of D
    known |= {"keys": TOKENS[(None,) * axes], "values": values[(None,) * axes]}
    known |= {"create_block_mask": functools.partial(create_block_mask, device="cpu"), "flex_attention": flex_attention}
    with warnings.catch_warnings(action="ignore"):  # FlexAttention wants to be compiled
        exec(code, known)
    return known


# --- one query ------------------------------------------------------------------------------------


def one_query():
    """A query and five keys in the plane, which are the values, too."""
    return {"cases": [{"state": state, **attended(state)} for state in states(QUERY)]}


def attended(state):
    """The numbers on the way from a query to its context."""
    points = [[float(state[f"{name}{axis}"]) for axis in "xy"] for name in ("q", "k0", "k1", "k2", "k3", "k4")]
    query, keys = torch.tensor(points).split([1, 5])
    temperature = torch.tensor(2.0) ** float(state["temperature"])
    scores = keys @ query[0]
    scaled = scores / temperature
    weights = torch.softmax(scaled, dim=-1)
    entropy = torch.special.entr(weights).sum()
    found = {"temperature": temperature, "scores": scores, "scaled": scaled, "weights": weights}
    found |= {"context": weights @ keys, "entropy": entropy, "equals": entropy.exp()}
    return {name: numbers(tensor) for name, tensor in found.items()}


# --- the leak meter -------------------------------------------------------------------------------

NUDGED = {"causal": "causal-5", "padding": "padding-3"}  # what a figure begins with on the page of a call


@functools.cache
def names_of(slug):
    """What the shared cells of a page define."""
    names = {}
    for cell in read_cells(Path(f"snippets/{slug}.md")):
        if cell.shared:
            exec(cell.code, names)
    return names


def leak_meter():
    """How far each row moves in four calls, for the right module and for each bug of the museum, and who notices."""
    page, bugs = names_of("practice/museum"), {}
    page["exhibit"] = lambda bug, *bases, **methods: bugs.update({bug: (bases, methods)})
    right = measured(page, "none")
    cases = [right | {"state": {"bug": "none", "token": token}} for token in NUDGED.values()]
    rooms = [cell for cell in read_cells(Path("snippets/practice/museum.md")) if cell.name.startswith("room-")]
    for number, room in enumerate(rooms, start=1):
        exec(room.code, page)
        for line in room.output.splitlines():
            bug = line[:16].strip()
            _, probes = line[16:].split(maxsplit=1)
            cases.append(measured(page, bug, bugs[bug], number, probes))
    return {"meters": METER["meters"], "rooms": [room.name for room in rooms], "cases": cases}


def measured(page, bug, replaced=((), {}), room=0, probes=""):
    state = {"bug": bug, "token": NUDGED["causal"]}
    bases, methods = replaced
    found = moved(page, type("Broken", bases or (page["Pieces"],), methods))
    return {"state": state, "room": room, "probes": probes, **found}


def moved(page, build):
    """What the `moves` of the museum finds in the first item of a batch; nothing where the call raises."""
    causal, padding = names_of("foundations/causal"), names_of("masks/padding")
    eye, heads = torch.eye(3), padding["attention"]
    # `attend` of the page on causal masks does not divide by the root of D.
    one = with_matrices(build(width=3, num_heads=1, causal=True, bias=False), eye * 3**0.5, eye, eye, eye)
    two = with_matrices(build(width=8, num_heads=2, bias=False), *heads.to_qkv.weight.chunk(3), heads.to_output.weight)
    real = torch.tensor([[True, True, False]])
    module, inputs, _ = page["setup"](build, causal=True)
    cross, others, memory = page["setup"](build, memory_width=12)
    calls = {
        "causal": (lambda tokens: one(tokens)[0], causal["inputs"][None]),
        "padding": (
            lambda tokens: two(tokens, is_real=~padding["masked"][:1])[0],
            padding["embedding"][padding["ids"][:1]],
        ),
        "cross": (lambda tokens: cross(others[:1, :4], tokens, real.clone())[0], memory[:1, :3]),
        "cache": (lambda tokens: in_steps(module, page["Cache"](4), tokens), inputs[:1, :4]),
    }
    found = {}
    for name, (attend, tokens) in calls.items():
        try:
            found[name] = numbers(page["moves"](attend, tokens)[0])
        except RuntimeError:
            found[name] = None
    return found


def with_matrices(module, *matrices):
    """The module with matrices of a page in place of its own."""
    for parameter, matrix in zip(module.parameters(), matrices, strict=True):
        parameter.data = matrix
    return module.eval()


def in_steps(module, cache, tokens):
    """The outputs for two tokens at a time, with what the steps before have left in the cache."""
    return torch.cat([module(chunk, cache=cache)[0] for chunk in tokens.split(2, dim=1)], dim=1)


EXPLORERS = {
    "mask-painter": mask_painter,
    "one-query": one_query,
    "leak-meter": leak_meter,
    "shape-tracer": shape_tracer,
}


def golden(name: str) -> dict[str, Any]:
    """The numbers of an explorer, and which torch computed them."""
    return {"torch": torch.__version__.partition("+")[0], **EXPLORERS[name]()}


def same(one: Any, other: Any) -> bool:
    """Whether two sets of numbers are the same but for the rounding of another machine."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return one == other


def stored(name: str) -> dict[str, Any]:
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
