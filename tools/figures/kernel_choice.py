"""Which kernels of SDPA take a call: on the CPU torch itself is asked, for a GPU the conditions in its source are."""

from typing import Any

import torch
from torch.nn.attention import SDPBackend

from tools.figures.pages import Numbers, State, names_of, states

SLUG = "kernels/which-kernel"
KERNELS = ["cudnn", "flash", "efficient", "math"]
ORDERS = {  # the kernels that torch tries, by device
    "cpu": ["flash", "math"],
    "7.5": ["flash", "efficient", "math"],
    "8.0": ["flash", "efficient", "math"],
    "9.0": ["cudnn", "flash", "efficient", "math"],
}
GPUS = [device for device in ORDERS if device != "cpu"]
MASKS = ["(T, T)", "(H, T, T)"]
WIDE = ["float32", "float64"]  # dtypes of more than 16 bits

# Which kernel refuses, why, and what the controls then say: all of it.
RULES: list[tuple[str, str, dict[str, list[str]]]] = [
    *((kernel, "pick_axes_3", {"axes": ["3"]}) for kernel in KERNELS[:-1]),
    ("flash", "pick_mask_axes", {"device": ["cpu"], "mask": ["(H, T, T)"]}),
    ("flash", "pick_dropout", {"device": ["cpu"], "dropout": ["0.1"]}),
    ("flash", "pick_capability", {"device": ["7.5"]}),
    ("flash", "pick_half", {"device": GPUS, "dtype": WIDE}),
    ("flash", "pick_mask", {"device": GPUS, "mask": MASKS}),
    ("flash", "pick_causal", {"device": GPUS, "mask": ["is_causal, Tq < Tk"]}),
    ("flash", "pick_width_256", {"device": GPUS, "width": ["320"]}),
    ("efficient", "pick_bfloat16", {"device": ["7.5"], "dtype": ["bfloat16"]}),
    ("efficient", "pick_float64", {"dtype": ["float64"]}),
    ("efficient", "pick_width_8", {"dtype": ["bfloat16", "float16"], "width": ["100"]}),
    ("efficient", "pick_gqa", {"heads": ["enable_gqa"]}),
    ("cudnn", "pick_half", {"dtype": WIDE}),
    ("cudnn", "pick_mask_axes", {"mask": ["(H, T, T)"]}),
    ("cudnn", "pick_width_8", {"width": ["100"]}),
    ("cudnn", "pick_width_limit", {"width": ["320"]}),
    ("cudnn", "pick_sixteenth", {"dropout": ["0.1"]}),
]


def kernel_choice() -> Numbers:
    """The conditions, and for some calls the kernels that take them."""
    rules = [{"kernel": kernel, "why": why, "when": when} for kernel, why, when in RULES]
    cases = [{"state": state, "why": reasons(state), "runs": runs(state)} for state in states("kernel-choice")]
    return {"kernels": KERNELS, "orders": ORDERS, "rules": rules, "cases": cases}


def reasons(state: State) -> dict[str, list[str]]:
    """Why each kernel refuses a call, by the conditions."""
    found: dict[str, list[str]] = {kernel: [] for kernel in KERNELS}
    for kernel, why, when in RULES:
        if all(state[control] in values for control, values in when.items()):
            found[kernel].append(why)
    return found


def runs(state: State) -> list[int]:
    """Of each kernel 1 if it takes the call, 0 if it refuses, -1 if this device does not try it."""
    refused, tried = reasons(state), ORDERS[state["device"]]
    if state["device"] == "cpu":
        return [int(taken(kernel, state)) if kernel in tried else -1 for kernel in KERNELS]
    return [int(not refused[kernel]) if kernel in tried else -1 for kernel in KERNELS]


def taken(kernel: str, state: State) -> bool:
    """Whether a kernel of the CPU takes the call: torch is asked."""
    backend = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}[kernel]
    roles, options = call(state)
    return names_of(SLUG)["refusal"](backend, *roles, **options) is None


def call(state: State) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Queries, keys, values and options of a state."""
    H, T = 4, 6
    heads = torch.ones(2, H, T, int(state["width"]), dtype=getattr(torch, state["dtype"]), device="cpu")
    if state["axes"] == "3":
        heads = heads[0]
    grouped = state["heads"] == "enable_gqa"
    keys = heads[..., :2, :, :] if grouped else heads
    queries = heads[..., :5, :] if state["mask"] == "is_causal, Tq < Tk" else heads
    visible = torch.ones(T, T, dtype=torch.bool, device="cpu").tril()
    masks: dict[str, dict[str, Any]] = {"none": {}, "(T, T)": {"attn_mask": visible}}
    masks |= {"(H, T, T)": {"attn_mask": visible.expand(H, T, T)}}
    options = masks.get(state["mask"], {"is_causal": True})
    return [queries, keys, keys], {**options, "enable_gqa": grouped, "dropout_p": float(state["dropout"])}
