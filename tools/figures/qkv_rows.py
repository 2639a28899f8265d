"""The rows of a fused QKV matrix: where a checkpoint stores them, and for what a program takes them."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from tools.figures.pages import Numbers, names_of, numbers

SLUG = "practice/fused-qkv"
SAME, FEWER = (2, 2, 4), (4, 2, 3)  # query heads, key heads and the width of a head: those of the page
STORED = {"heads": SAME, "blocks": SAME, "groups": FEWER, "unequal": FEWER}  # the first one first
CUTS = ["chunk", "split", "view"]


def qkv_rows() -> Numbers:
    """Each layout with each cut."""
    cases = [{"state": {"stored": stored, "cut": cut}, **loaded(stored, cut)} for stored in STORED for cut in CUTS]
    return {"cases": cases}


def loaded(stored: str, cut: str) -> Numbers:
    """Where the rows are stored and where they land, and how far the outputs are from the right ones."""
    H, Hkv, D = STORED[stored]
    sizes = [H * D, Hkv * D, Hkv * D]
    rows = torch.arange(sum(sizes))
    if stored in {"heads", "groups"}:
        roles = [role.view(Hkv, -1) for role in rows.split(sizes)]
        rows = torch.cat(roles, dim=1).flatten()
    taken = cut_rows(rows, cut, sizes, Hkv)
    slots = torch.cat(taken)
    lengths = [len(part) for part in taken]
    wrong = roles_of(sizes)[slots] != roles_of(lengths)
    names = [f"{role}{head}" for role, heads in zip("qkv", (H, Hkv, Hkv)) for head in range(heads)]
    astray = torch.stack([slots // D, roles_of(lengths)], dim=1)[wrong].unique_consecutive(dim=0)
    return {
        "names": names,
        "sizes": sizes,
        "view": f"view({'H' if Hkv == H else 'Hkv'}, {H // Hkv + 2}, D)",
        "taken": lengths,
        "places": rows.argsort().tolist(),
        "slots": slots.argsort().tolist(),
        "wrong": wrong[slots.argsort()].int().tolist(),
        "lands": [f"{names[head]}\u00a0→\u00a0{'QKV'[role]}" for head, role in astray.tolist()],
        **outputs(taken, STORED[stored]),
    }


def roles_of(sizes: list[int]) -> torch.Tensor:
    """0 for each row of the queries, 1 for the keys, 2 for the values."""
    return torch.arange(3).repeat_interleave(torch.tensor(sizes))


def cut_rows(rows: torch.Tensor, cut: str, sizes: list[int], Hkv: int) -> list[torch.Tensor]:
    """The rows that a program takes for queries, for keys and for values."""
    if cut == "chunk":
        return [*rows.chunk(3)]
    if cut == "split":
        return [*rows.split(sizes)]
    groups = rows.view(Hkv, sizes[0] // sizes[1] + 2, -1)
    return [groups[:, :-2].flatten(), groups[:, -2].flatten(), groups[:, -1].flatten()]


def outputs(taken: Sequence[torch.Tensor], heads: tuple[int, int, int]) -> Numbers:
    """The largest error of the outputs, or what torch raises."""
    (H, Hkv, D), inputs = heads, names_of(SLUG)["inputs"]
    B, T, E = inputs.shape
    torch.manual_seed(2)
    to_qkv, to_output = nn.Linear(E, (H + 2 * Hkv) * D), nn.Linear(H * D, E)

    def attend(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        roles = [F.linear(inputs, to_qkv.weight[rows], to_qkv.bias[rows]) for rows in parts]
        queries, keys, values = (role.view(B, T, n, D).transpose(1, 2) for role, n in zip(roles, (H, Hkv, Hkv)))
        context = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
        outputs: torch.Tensor = to_output(context.transpose(1, 2).flatten(2))
        return outputs

    right = attend(torch.arange((H + 2 * Hkv) * D).split([H * D, Hkv * D, Hkv * D]))
    try:
        return {"gaps": [numbers((attend(taken) - right).abs().max())], "error": ""}
    except RuntimeError as error:
        return {"gaps": [], "error": str(error)}
