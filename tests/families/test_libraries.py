"""The kit on attention of timm, diffusers and x-transformers: the adapters that the page shows, and the findings."""

import sys
import types

import pytest
import torch

from snippets.attention_adapters import diffusers_attention, timm_attention
from snippets.attention_probes import check


@pytest.fixture(autouse=True, scope="module")
def torchvision_without_operators():
    """The wheel on PyPI is built for CUDA; beside a torch without it, its operators do not load, and timm uses none."""
    name = "torchvision._meta_registrations"
    if torch.version.cuda is None and name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def decoder(**options):
    from x_transformers import Decoder

    model = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)

    def cache():
        held = None

        def feed(chunk):
            nonlocal held
            options = {} if held is None else {"cache": held, "cache_age": chunk.shape[1]}
            rows, held = model(chunk, return_hiddens=True, **options)
            return rows

        return feed

    def padding(tokens, is_real):
        return model(tokens, mask=is_real)

    return {"call": model, "width": 32, "causal": True, "module": model, "padding": padding, "cache": cache}


HEALTHY = {
    "timm": timm_attention,
    "diffusers": diffusers_attention,
    "x-transformers": decoder,
    "rotary": lambda: decoder(rotary_pos_emb=True),
    "ALiBi, which keeps its bias": lambda: decoder(alibi_pos_bias=True),
    "grouped heads": lambda: decoder(attn_kv_heads=2, attn_flash=True),
}
FINDINGS = {
    "timm, unfused": (lambda: timm_attention(fused=False), {"empty"}),
    "diffusers, norm of q and k": (lambda: diffusers_attention(qk_norm="layer_norm"), {"reference"}),
    "diffusers, no scale": (lambda: diffusers_attention(scale_qk=False), {"reference"}),
    "x-transformers, shifted": (lambda: decoder(shift_tokens=1), {"steps", "pads_left"}),
    "x-transformers, forgetting": (lambda: decoder(attn_data_dependent_alibi=True), {"steps"}),
    "x-transformers, top k": (
        lambda: decoder(attn_sparse_topk=4),
        {"prefix", "pads_right", "pads_left", "steps"},
    ),
    "x-transformers, MLP of positions": (lambda: decoder(dynamic_pos_bias=True), {"formats"}),
}


@pytest.mark.parametrize("make", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_attention_raises_no_alarm(make):
    report = check(**make())
    assert not report.failed, report


@pytest.mark.parametrize(("make", "probes"), FINDINGS.values(), ids=FINDINGS)
def test_the_kit_finds_what_the_page_lists(make, probes):
    report = check(**make())
    assert report.failed.keys() == probes, report
