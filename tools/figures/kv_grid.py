"""The grid of a KV cache: which keys each row sees in five calls, by three rules, and how far the logits are then."""

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

from tools.figures.pages import Numbers, names_of, numbers

SLUG = "cache/kv-cache"
WORDS = ["Your", "journey", "starts", "with", "one", "step", "and", "goes", "on"]
SIZES = [4, 2, 1, 1, 1]  # a prefill, a chunk, steps
CALLS = list(pairwise(accumulate(SIZES, initial=0)))  # the first token of each, and the first that it does not have
FRAMES = [4, 0, 1, 2, 3, 4]  # which call each shows

Rule = Callable[..., dict[str, Any]]  # from positions and places to options of SDPA


def kv_grid() -> Numbers:
    """The rule of the page and two wrong ones."""
    rules: dict[str, Rule] = {"visible_keys": names_of(SLUG)["choose_mask"]}
    rules |= {"is_causal": lambda *_: {"is_causal": True}, "none": lambda *_: {}}
    grids = [{"state": {"rule": name}, **grid(rule)} for name, rule in rules.items()]
    anew = list(accumulate(end for _, end in CALLS))  # rows that are computed without a cache
    return {"words": WORDS, "calls": CALLS, "frames": FRAMES, "anew": anew, "cases": grids}


def grid(rule: Rule) -> Numbers:
    """The keys that each row sees, then of each call how many leak or are lost, and the largest gap of its logits."""
    visible_keys = names_of(SLUG)["visible_keys"]
    seen = [seen_in(rule, *call) for call in CALLS]
    right = [visible_keys(torch.arange(*call), torch.arange(call[1])) for call in CALLS]
    return {
        "seen": [row for rows in seen for row in rows.int().tolist()],
        "leaks": [int((rows & ~wanted).sum()) for rows, wanted in zip(seen, right)],
        "lost": [int((wanted & ~rows).sum()) for rows, wanted in zip(seen, right)],
        "gaps": [numbers(rows.max()) for rows in gaps(rule).split(SIZES)],
    }


def seen_in(rule: Rule, start: int, end: int) -> torch.Tensor:
    """Which keys have a weight in a call whose scores are all the same."""
    places, cache = torch.arange(end), names_of(SLUG)["Cache"](end)
    options = rule(places[start:], places, cache)
    queries, keys, values = torch.zeros(end - start, 1), torch.zeros(end, 1), torch.eye(end)
    return F.scaled_dot_product_attention(queries, keys, values, **options) > 0


def gaps(rule: Rule) -> torch.Tensor:
    """How far each row of logits of the page's decoder is from that of the full pass, if its layers follow a rule."""
    page = names_of(SLUG)
    caches = [page["Cache"](len(WORDS)) for _ in page["decoder"].layers]
    with patch.dict(page, choose_mask=rule):
        logits = page["in_chunks"](page["decoder"], page["tokens"][:1], SIZES, caches)
    return torch.as_tensor((logits - page["full"][:1]).abs().amax(dim=(0, 2)))
