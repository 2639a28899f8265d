"""Which key head each query head reads, for each number of key heads, and what a wrong order does to the contexts."""

import torch
import torch.nn.functional as F

from tools.figures.pages import Numbers, names_of, numbers

SLUG = "cache/grouped"
HEADS, HEAD_DIM = 8, 64
DOUBLINGS = [1, 0, 2, 3]  # the first one first: two key heads
ORDERS = ["repeat_interleave", "repeat"]


def grouped_heads() -> Numbers:
    """All numbers of key heads that have groups of one size, in the order of torch and in tiles."""
    cases = [
        {"state": {"doublings": str(power), "order": order}, **grouped(2**power, order)}
        for power in DOUBLINGS
        for order in ORDERS
    ]
    return {"heads": HEADS, "head_dim": HEAD_DIM, "cases": cases}


def grouped(Hkv: int, order: str) -> Numbers:
    """What the heads read, what is cached and learned, and how far the context of each head is from that of SDPA."""
    reads = getattr(torch.arange(Hkv), order)(HEADS // Hkv)
    layers = names_of(SLUG)["GroupedLayers"](HEADS * HEAD_DIM, HEADS, num_kv_heads=Hkv, bias=False)
    shared = layers.to_keys.weight.numel() + layers.to_values.weight.numel()
    own = layers.to_queries.weight.numel() + layers.to_output.weight.numel()
    torch.manual_seed(0)
    queries = torch.randn(3, HEADS, 6, HEAD_DIM)
    keys, values = torch.randn(2, 3, Hkv, 6, HEAD_DIM).unbind()
    right = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
    found = F.scaled_dot_product_attention(queries, keys[:, reads], values[:, reads])
    gaps = (found - right).abs().amax(dim=(0, 2, 3))
    cached = keys[0, :, 0].numel() + values[0, :, 0].numel()
    sizes = {"cached": cached, "shared": shared, "own": own}
    return {"reads": reads.tolist(), **sizes, "gaps": numbers(gaps), "gap": numbers(gaps.max())}
