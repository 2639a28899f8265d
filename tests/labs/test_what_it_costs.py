"""What the lab tells beside its prints: what is allocated, what is stored, and what the caches of real models take."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig

from tests.pages import properties as p

SLUG = "labs/what-it-costs"
PAGE = p.page_code(SLUG, "both")
GROWTH = p.page_code(SLUG, "growth")
TABLE = 2 * 1024 * 1024 * 4  # bytes of one table of scores of two heads


@pytest.mark.parametrize(("heads", "width", "tokens"), [(3, 5, 7), (2, 8, 1)])
def test_explicit_and_fused_are_the_causal_attention_of_any_sizes(heads, width, tokens):
    roles = PAGE.make_roles(tokens, B=2, H=heads, D=width)
    weights = torch.zeros(2, heads, tokens, tokens)
    for query in range(tokens):
        scores = (roles[0, :, :, query, None] * roles[1, :, :, : query + 1]).sum(dim=-1) / width**0.5
        weights[:, :, query, : query + 1] = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    for attend in (PAGE.explicit, PAGE.fused):
        assert torch.allclose(attend(*roles), weights @ roles[2], atol=1e-6)


def test_explicit_runs_where_its_inputs_are():
    assert PAGE.explicit(*PAGE.make_roles(4, "meta")).is_meta


def test_explicit_holds_two_tables_and_a_mask_at_its_peak_and_sdpa_no_table():
    explicit, fused = (PAGE.peak(attend, PAGE.make_roles(1024)) for attend in (PAGE.explicit, PAGE.fused))
    assert 2 * TABLE + 1024 * 1024 <= explicit < 2.1 * TABLE + 1024 * 1024
    assert fused < TABLE / 8
    assert PAGE.peak(PAGE.explicit, PAGE.make_roles(2048)) > 3.9 * explicit
    assert PAGE.peak(PAGE.fused, PAGE.make_roles(2048)) < 2.2 * fused


def test_a_longer_text_takes_more_seconds():
    assert 0 < PAGE.seconds(PAGE.fused, PAGE.make_roles(64)) < PAGE.seconds(PAGE.fused, PAGE.make_roles(1024))


def test_the_weights_are_stored_once_and_no_scores():
    stored = PAGE.stored(PAGE.explicit, 1024)
    [weights] = [tensor for tensor in stored if tensor.nbytes == TABLE]
    assert torch.allclose(weights.sum(dim=-1), torch.ones(2, 1024))


def test_dropout_makes_it_three_tables():
    old = "torch.softmax(scores, dim=-1) @ values"
    new = "torch.dropout(torch.softmax(scores, dim=-1), 0.1, True) @ values"
    page = p.page_code(SLUG, "both", bug=("ways", {old: new}))
    tables = [tensor.flatten() for tensor in page.stored(page.explicit, 1024) if tensor.nbytes == TABLE]
    assert len(tables) == 3
    assert any(torch.equal(one * other, product) for one, other, product in itertools.permutations(tables))


def test_sdpa_stores_roles_outputs_and_a_logarithm_for_each_head():
    roles = [role.clone().requires_grad_() for role in PAGE.make_roles(1024)]
    output = F.scaled_dot_product_attention(*roles, is_causal=True)
    assert PAGE.bytes_of(PAGE.stored(PAGE.fused, 1024)) == 4 * output.nbytes + 2 * 1024 * 4 == 1032 * 1024


def test_flex_attention_has_no_backward_pass_on_the_cpu():
    roles = [role.clone().requires_grad_() for role in PAGE.make_roles(128)]
    with pytest.raises(NotImplementedError, match="FlexAttention does not support backward on CPU"):
        PAGE.flex_causal(*roles)


def cached(model, tokens):
    """The bytes of the keys and values that a model of transformers stores for a text."""
    cache = model(torch.zeros(1, tokens, dtype=torch.long), use_cache=True).past_key_values
    return sum(part.nbytes for layer in cache.layers for part in (layer.keys, layer.values))


SMALL = {"hidden_size": 16, "intermediate_size": 8, "vocab_size": 10, "num_attention_heads": 4}


@pytest.mark.parametrize("tokens", [3, 8, 40])
def test_a_cache_with_windows_is_that_of_transformers(tokens):
    """transformers stores one token less than the window, since the newest one is added at each step."""
    config = Gemma3TextConfig(
        **SMALL, num_hidden_layers=6, num_key_value_heads=1, head_dim=4, sliding_window=9, dtype=torch.bfloat16
    )
    model = Gemma3ForCausalLM(config).to(torch.bfloat16).eval()
    assert config.layer_types.count("full_attention") == 1
    assert cached(model, tokens) == GROWTH.cache_bytes(tokens, 1, 5, 8, 2 * 1 * 4)


def test_a_cache_of_latents_is_that_of_transformers():
    config = DeepseekV3Config(
        **SMALL, num_hidden_layers=3, first_k_dense_replace=3, kv_lora_rank=6, qk_rope_head_dim=4, qk_nope_head_dim=4
    )
    model = DeepseekV3ForCausalLM(config).to(torch.bfloat16).eval()
    assert cached(model, 7) == GROWTH.cache_bytes(7, 3, 0, 0, 6 + 4)


def test_the_numbers_of_the_text():
    assert 32 * 4096**2 * 2 == 2**30
    assert 32 * 32768**2 * 2 == 64 * 2**30
    of = GROWTH.cache_bytes
    assert of(1, *GROWTH.models["OLMo 2 7B"]) == 512 * 2**10
    assert of(2**17, 8, 0, 0, 2 * 32 * 128) == 16 * 2**30
    assert of(2**17, 32, 0, 0, 2 * 8 * 128) == 16 * 2**30
    assert of(1, 32, 0, 0, 2 * 8 * 128) == 131072
    assert of(1, 126, 0, 0, 2 * 8 * 128) == 516096  # Llama 3.1 405B


@torch.no_grad()
def test_a_step_of_the_writer_gives_the_logits_of_the_whole_text():
    page = p.page_code(SLUG, "speed")
    model, text = page.Writer(vocabulary=7, num_layers=2, width=12, num_heads=3), torch.arange(10).view(2, 5) % 7
    whole, pasts = model(text)
    assert whole.shape == (2, 7)
    assert [past[0].shape for past in pasts] == [(2, 3, 5, 4)] * 2
    step, pasts = model(text[:, 4:], model(text[:, :4])[1])
    assert torch.allclose(step, whole, atol=1e-6)
    assert page.processor_seconds(model, [text[:, :1]]) > 0
