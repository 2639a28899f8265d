"""What torch gives for the states of the explorers: `nox -s update` writes verified/explorers/<name>.json

A site is built without torch, so its figures begin with these numbers; the tests ask the browser for the same states.
The states and the code that the figures show stand in explorers.yml and shape_tracer.yml.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.attention.flex_attention import create_mask

from tools.cells.record import write_atomically
from tools.cells.source import read_cells, read_text
from tools.figures.dropout_draws import dropout_draws
from tools.figures.grouped_heads import grouped_heads
from tools.figures.head_out import head_out
from tools.figures.head_width import head_width
from tools.figures.kernel_choice import kernel_choice
from tools.figures.kv_grid import kv_grid
from tools.figures.last_digits import last_digits
from tools.figures.one_sentence import one_sentence
from tools.figures.pages import Numbers, State, names_of, numbers, run, settings, states
from tools.figures.planted_bug import planted_bug
from tools.figures.qkv_rows import qkv_rows
from tools.figures.rope_clocks import rope_clocks
from tools.figures.shape_tracer import shape_tracer
from tools.figures.three_roles import three_roles
from tools.figures.word_lines import word_lines

FOLDER = Path("verified/explorers")
INNERMOST = re.compile(r"(?<=\[)\n[^][{}]*(?=\])")


# --- the mask painter -----------------------------------------------------------------------------


def mask_painter() -> Numbers:
    """The scores of six tokens, masks of every kind, and what the calls of several libraries make of them."""
    painter, cases = settings("mask-painter"), [painted(state) for state in states("mask-painter")]
    libraries = [called(library, cases) for library in painter["libraries"]]
    named = {name: painter[name] for name in ("words", "entries", "masks")}
    return {**named, "scores": numbers(tokens() @ tokens().T), "libraries": libraries, "cases": cases}


def tokens() -> torch.Tensor:
    """The vectors of the words, which are queries, keys and values."""
    return torch.tensor(settings("mask-painter")["tokens"])


def painted(state: State) -> Numbers:
    """The program of a state, and what its call makes of the scores."""
    libraries = {library["name"]: library for library in settings("mask-painter")["libraries"]}
    library = libraries[state["library"]]
    head, mask = head_of(library), masking(state, settings("mask-painter")["masks"][library["mask"]])
    names = run(head + mask)
    visible = sees(names) if library["mask"] == "function" else names["visible"]
    weights, output = attend(library, names)
    code = f"{head}{mask}\n{library['code']}\nprint(context)"
    case = {"state": state, "code": code, "sums": numbers(weights.sum(dim=-1))}
    return case | {"visible": visible.int().tolist(), "weights": numbers(weights), "output": numbers(output)}


def head_of(library: Mapping[str, Any]) -> str:
    """What the program of a call begins with: imports, inputs, and what else it needs before its mask."""
    head: str = settings("mask-painter")["heads"][library["head"]]
    return f"{head.replace('{inputs}', written())}T = {len(tokens())}\n"


def written() -> str:
    """The code of the vectors."""
    rows = "".join(f"    {vector},\n" for vector in settings("mask-painter")["tokens"])
    return f"inputs = torch.tensor([\n{rows}])"


def attend(library: Mapping[str, Any], names: Numbers) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the contexts of a call. Few calls return their weights; all of them weigh an identity matrix."""
    T, D = tokens().shape
    parts = [part.reshape(names["values"].shape) for part in (*torch.eye(T).split(D, dim=1), tokens())]
    calls = (run(library["code"], **names | {"values": part}) for part in parts)
    *weights, context = (call["context"].view(T, D) for call in calls)
    return torch.cat(weights, dim=1), context


def sees(names: Numbers) -> torch.Tensor:
    """The mask of a program that has it as a function."""
    return create_mask(names["mask_mod"], None, None, names["T"], names["T"], "cpu")[0, 0]


def masking(state: State, form: Mapping[str, Any]) -> str:
    """The code of a mask, in the form in which a call takes it."""
    if state["pattern"] == "hand":
        rows = "".join(f"    {row},\n" for row in bits(state["cells"]))
        return str(form["painted"].format(rows=rows))
    chosen = [state["pattern"], *(["documents"] if state["documents"] != "1" else [])]
    chosen += [state["side"]] if state["pads"] != "0" else []
    values = {**state, "share": len(tokens()) // int(state["documents"])}
    lines = [line.format(**values) for name in chosen for line in form["reasons"].get(name, [])]
    return "".join([form["before"], *lines, form["after"]])


def bits(cells: str) -> list[list[int]]:
    """The entries of a painted mask, row by row, 1 where a query sees a key, of nine hexadecimal digits."""
    T = len(tokens())
    entries = [int(bit) for bit in f"{int(cells, 16):036b}"]
    return [entries[start : start + T] for start in range(0, T * T, T)]


def called(library: Mapping[str, Any], cases: Sequence[Numbers]) -> Numbers:
    """A library as the figure shows it, with the one weight that it gives where a row has no key at all."""
    own = [case for case in cases if case["state"]["library"] == library["name"]]
    rows = [row for case in own for row, keys in zip(case["weights"], case["visible"]) if not any(keys)]
    [weight] = {f"{weight:.7g}" for row in rows for weight in row}
    named = {name: library[name] for name in ("name", "label", "says", "mask", "code")}
    return named | {"head": head_of(library), "empty": float(weight)}


# --- six tokens -----------------------------------------------------------------------------------


def six_tokens() -> Numbers:
    """A program that masks the scores of six tokens, and the row of weights that it prints."""
    figure, painter = settings("six-tokens"), settings("mask-painter")
    head = f"import torch\n\n{written()}\n"
    named = {"words": painter["words"], "head": head, "code": figure["code"], "patterns": figure["patterns"]}
    return named | {"cases": [printed(state, head) for state in states("six-tokens")]}


def printed(state: State, head: str) -> Numbers:
    """What the program of a state makes and prints."""
    figure, shown = settings("six-tokens"), list[torch.Tensor]()
    rows = "".join(f"    {row},\n" for row in bits(state["cells"]))
    lines = figure["patterns"] | {"hand": f"visible = torch.tensor([\n{rows}]).bool()"}
    code = head + figure["code"].format(visible=lines[state["pattern"]], query=state["query"])
    made = run(code, print=shown.append)
    [row] = shown
    case = {"state": state, "code": code, "visible": made["visible"].int().tolist()}
    sums = row.sum(dim=0, keepdim=True)
    return case | {"weights": numbers(made["weights"]), "row": numbers(row), "sum": numbers(sums)}


# --- one query ------------------------------------------------------------------------------------


def one_query() -> Numbers:
    """A query and five keys in the plane, which are the values, too."""
    return {"cases": [{"state": state, **attended(state)} for state in states("one-query")]}


def attended(state: State) -> Numbers:
    """The numbers on the way from a query to its context."""
    points = [[float(state[f"{name}{axis}"]) for axis in "xy"] for name in ("q", "k0", "k1", "k2", "k3", "k4")]
    query, keys = torch.tensor(points).split([1, 5])
    temperature = torch.tensor(2.0) ** float(state["temperature"])
    scores = keys @ query[0]
    scaled = scores / temperature
    weights = torch.softmax(scaled, dim=-1)
    entropy = torch.special.entr(weights).sum()
    way = {"temperature": temperature, "scores": scores, "scaled": scaled, "weights": weights}
    way |= {"context": weights @ keys, "entropy": entropy, "equals": entropy.exp()}
    return {name: numbers(tensor) for name, tensor in way.items()}


# --- the leak meter -------------------------------------------------------------------------------

# What a figure begins with on the page of a call.
NUDGED = {"causal": "causal-5", "padding": "padding-3", "cross": "cross-2"}
Build = Callable[..., nn.Module]  # it makes a module of the museum


def leak_meter() -> Numbers:
    """How far each row moves in four calls, for the right module and for each bug of the museum, and who notices."""
    page = names_of("practice/museum")
    broken: dict[str, Build] = {}

    def exhibit(bug: str, base: type[nn.Module] = page["Pieces"], **methods: Callable[..., Any]) -> None:
        broken[bug] = type("Broken", (base,), methods)

    page["exhibit"] = exhibit
    right = {"room": 0, "probes": "", **moved(page, page["Pieces"])}
    cases = [{"state": {"bug": "none", "token": token}, **right} for token in NUDGED.values()]
    rooms = [cell for cell in read_cells(Path("snippets/practice/museum.md")) if cell.name.startswith("room-")]
    for number, room in enumerate(rooms, start=1):
        exec(room.code, page)
        for bug, probes in verdicts(room.output or "").items():
            state = {"bug": bug, "token": NUDGED["causal"]}
            cases.append({"state": state, "room": number, "probes": probes, **moved(page, broken[bug])})
    return {"meters": settings("leak-meter")["meters"], "rooms": [room.name for room in rooms], "cases": cases}


def verdicts(output: str) -> dict[str, str]:
    """By the names of bugs the probes that fail, as a room of the museum prints both; a row may go on below."""
    rows: dict[str, list[str]] = {}
    for line in output.splitlines():
        bug = line[:16].strip() or list(rows)[-1]
        rows[bug] = rows.get(bug, []) + line[16:].split()
    return {bug: " ".join(probes).removeprefix("none") for bug, probes in rows.items()}


def moved(page: Mapping[str, Any], build: Build) -> Numbers:
    """How far rows of the first item of a batch move with each token; nothing where the call raises."""
    rows: Numbers = {}
    for name, (attend, inputs) in calls(page, build).items():
        try:
            rows[name] = numbers(moves(attend, inputs)[0])
        except RuntimeError:
            rows[name] = None
    return rows


def calls(page: Mapping[str, Any], build: Build) -> dict[str, tuple[Callable[..., Any], torch.Tensor]]:
    """Four calls of modules, each with a mask of its own, which a bug may change, and the tokens that are nudged."""
    causal, padding = names_of("foundations/causal"), names_of("masks/padding")
    eye, heads = torch.eye(3), padding["attention"]
    # `attend` of the page on causal masks does not divide by the root of D.
    one = with_matrices(build(width=3, num_heads=1, causal=True, bias=False), eye * 3**0.5, eye, eye, eye)
    two = with_matrices(build(width=8, num_heads=2, bias=False), *heads.to_qkv.weight.chunk(3), heads.to_output.weight)
    padded, is_real = padding["embedding"][padding["ids"][:1]], padding["is_real"][:1]
    real = torch.tensor([[True, True, False]])
    module, inputs, _ = example(build, causal=True)
    cross, others, memory = example(build, memory_width=12)
    return {
        "causal": (lambda tokens: one(tokens)[0], causal["inputs"][None]),
        "padding": (lambda tokens: two(tokens, is_real=is_real.clone())[0], padded),
        "cross": (lambda tokens: cross(others[:1, :4], tokens, real.clone())[0], memory[:1, :3]),
        "cache": (lambda tokens: in_steps(module, page["Cache"](4), tokens), inputs[:1, :4]),
    }


def example(build: Build, **options: Any) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small module with inputs and a memory, always the same."""
    torch.manual_seed(0)
    module = build(width=8, num_heads=2, **options).eval()
    memory = torch.randn(3, 7, 12)
    return module, torch.randn(3, 5, 8), memory


def moves(attend: Callable[..., torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """How far each row moves if one feature of a token is nudged, (B, rows, tokens)."""
    columns = []
    for token in range(tokens.shape[1]):
        nudged = tokens.clone()
        nudged[:, token, 0] += 1
        columns.append((attend(nudged) - attend(tokens)).abs().amax(dim=-1))
    return torch.stack(columns, dim=-1)


def with_matrices(module: nn.Module, *matrices: torch.Tensor) -> nn.Module:
    """The module with matrices of a page in place of its own."""
    for parameter, matrix in zip(module.parameters(), matrices, strict=True):
        parameter.data = matrix
    return module.eval()


def in_steps(module: nn.Module, cache: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The outputs for two tokens at a time, with what the steps before have left in the cache."""
    return torch.cat([module(chunk, cache=cache)[0] for chunk in tokens.split(2, dim=1)], dim=1)


MAKERS = (
    *(mask_painter, six_tokens, one_query, leak_meter, shape_tracer, rope_clocks),
    *(one_sentence, kv_grid, three_roles, kernel_choice, head_width, word_lines, grouped_heads),
    *(dropout_draws, qkv_rows, planted_bug, last_digits, head_out),
)
EXPLORERS = {make.__name__.replace("_", "-"): make for make in MAKERS}


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
    return bool(one == other)


def stored(name: str) -> dict[str, Any]:
    """The numbers of an explorer as they were written last; none where they have not been."""
    path = FOLDER / f"{name}.json"
    return json.loads(read_text(path)) if path.is_file() else {}


def main() -> None:
    """Write the numbers of each explorer where they are not those that are stored."""
    for name in EXPLORERS:
        numbers = golden(name)
        if not same(numbers, stored(name)):
            text = json.dumps(numbers, ensure_ascii=False, indent=1)
            text = INNERMOST.sub(lambda row: re.sub(r"\n *", " ", row[0]).strip(), text)
            write_atomically(FOLDER / f"{name}.json", f"{text}\n")


if __name__ == "__main__":
    main()
