"""Causal masks: the bug that lets the future in, and what the page says of PyTorch and of GPT-2 in transformers."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from transformers import GPT2Config, GPT2Model

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/causal"
PAGE = p.page_code(SLUG, "module")
LIMIT = 6
SURVIVORS = {
    "a matrix has two axes: 1 is the last": ["weights = torch.softmax(scores, dim=1)"],
    "queries and keys have one width": ["D = self.to_keys.out_features"],
}


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


# -- the probe, and the bug that it finds ----------------------------------------------------------


@pytest.mark.parametrize("function", ["attend", "forgetful"])
def test_the_probe_finds_the_filled_tensor_that_is_thrown_away(function):
    attend = getattr(names("thrown-away"), function)

    def probed(case):
        visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: attend(tokens, visible)[0], case.randn(case.T, case.E), visible

    leaks = p.catches(p.reaches_exactly, probed, p.sizes(T=(2, LIMIT), E=3))
    assert leaks == (function == "forgetful")


def gpt_2(part, causal):
    """GPT-2 of transformers, tiny, or a block of it, with its causal mask or without, as a function of embeddings."""
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 8, "vocab_size": 11}
    model = GPT2Model(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")).double().eval()
    for block in model.h:
        block.attn.is_causal = causal
    return model.h[0] if part == "block" else lambda tokens: model(inputs_embeds=tokens).last_hidden_state


@pytest.mark.parametrize("part", ["block", "model"])
@pytest.mark.parametrize(
    ("causal", "features", "finds_a_leak"),
    [(True, 0, False), (False, slice(None), False), (False, 0, True)],
    ids=["causal", "leaking, all features", "leaking, one feature"],
)
@torch.no_grad()
def test_in_gpt_2_a_leak_is_found_by_a_nudge_of_one_feature_only(part, causal, features, finds_a_leak):
    model, tokens = gpt_2(part, causal), torch.randn(1, LIMIT, 16, dtype=torch.float64)
    nudged = tokens.clone()
    nudged[0, -1, features] += 1
    earlier = (model(nudged) - model(tokens))[0, :-1].abs().amax(dim=-1)
    assert (earlier > 1e-9).all() if finds_a_leak else (earlier < 1e-12).all()


# -- the module ----------------------------------------------------------------------------------


def test_a_checkpoint_fits_another_length_unless_the_mask_is_in_it():
    short, long = (PAGE.CausalAttention(3, 2, length) for length in (8, 9))
    long.load_state_dict(short.state_dict())
    short.register_buffer("visible", short.visible)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict"):
        long.load_state_dict(short.state_dict())
    long.load_state_dict(short.state_dict(), strict=False)
    long.register_buffer("visible", long.visible)
    for strict in True, False:
        with pytest.raises(RuntimeError, match="size mismatch for visible"):
            long.load_state_dict(short.state_dict(), strict=strict)


def test_a_sequence_beyond_the_limit_is_refused():
    with pytest.raises(ValueError, match=f"{LIMIT + 1} tokens, but context_length is {LIMIT}"):
        PAGE.CausalAttention(3, 2, LIMIT)(torch.randn(4, LIMIT + 1, 3))


def test_dropout_takes_the_weights_while_training_and_nothing_in_eval():
    torch.manual_seed(0)
    plain, dropping = (PAGE.CausalAttention(3, 2, LIMIT, **options) for options in ({}, {"dropout": 0.5}))
    dropping.load_state_dict(plain.state_dict())
    words = torch.randn(4, LIMIT, 3)
    scores = dropping.to_queries(words) @ dropping.to_keys(words).mT / 2**0.5
    weights = scores.masked_fill(~PAGE.visible, -torch.inf).softmax(dim=-1)
    torch.manual_seed(1)
    dropped = F.dropout(weights, 0.5) @ dropping.to_values(words)
    torch.manual_seed(1)
    assert torch.allclose(dropping(words), dropped, atol=1e-6)
    assert torch.equal(dropping.eval()(words), plain(words))


# -- what the page says of torch, of the page before, and of its picture -----------------------------


def test_where_all_is_visible_the_contexts_are_those_of_the_page_before():
    before = p.page_code("foundations/weighted-average", "contexts")
    assert torch.equal(PAGE.inputs, before.inputs)
    assert torch.equal(names("reduce").full, before.context)
    _, causal = PAGE.attend(PAGE.inputs, PAGE.visible)
    for weights in (before.weights, causal):
        assert f"{weights[1, 1] / weights[1, 0]:.2f}" == "1.72"


def test_the_seeded_head_is_that_of_the_page_before():
    v2 = p.page_code("foundations/one-head", "v2").SelfAttention_v2
    torch.manual_seed(789)
    head, cell = v2(3, 2), names("three-ways")
    assert torch.equal(head.W_query.weight, cell.to_queries.weight)
    assert torch.equal(head.W_key.weight, cell.to_keys.weight)


def test_the_bars_of_the_picture_are_the_scores_and_the_weights_of_token_3():
    picture = (p.ROOT / "docs/assets/causal-wall.svg").read_text(encoding="utf-8")
    scores, weights = (
        torch.tensor([float(height) for height in re.findall(rf'<rect class="{ink}".* height="([\d.]+)"', picture)])
        for ink in ("muted", "accent")
    )
    assert torch.allclose(scores / 62, (PAGE.inputs @ PAGE.inputs.T)[3], atol=1e-3)
    assert torch.allclose(weights / 200, PAGE.attend(PAGE.inputs, PAGE.visible)[1][3, :4], atol=1e-3)


def test_of_36_scores_15_are_thrown_away():
    assert (PAGE.visible.numel(), (~PAGE.visible).sum()) == (36, 15)


def test_without_the_diagonal_row_0_is_nan():
    context, _ = PAGE.attend(PAGE.inputs, PAGE.visible.tril(diagonal=-1))
    assert context[0].isnan().all()
    assert context[1:].isfinite().all()


def test_minus_infinity_among_the_weights_comes_out_as_minus_infinity_or_nan():
    values = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    weights = torch.tensor([[0.5, -torch.inf]])
    assert (weights @ values).tolist() == [[-math.inf, -math.inf]]
    assert (weights @ values.flip(0))[0, 1].isnan()


# -- the exercise --------------------------------------------------------------------------------


@pytest.mark.parametrize("attn_mask", [lambda q, k: names("solution").causal_mask(q, k), causal_lower_right])
def test_the_solution_and_the_bias_of_torch_give_the_newest_rows(attn_mask):
    def newest(case):
        queries, keys, values = case.randn(3, 1, 1, case.Tq + case.earlier, case.D)
        full = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        mask = attn_mask(case.Tq, case.Tq + case.earlier)
        p.close(
            F.scaled_dot_product_attention(queries[:, :, case.earlier :], keys, values, attn_mask=mask),
            full[:, :, case.earlier :],
        )

    p.for_all(p.sizes(Tq=4, earlier=(0, 3), D=3), newest)


def triangle(q, k, device=None):
    return torch.ones(q, k, dtype=torch.bool, device=device).tril(k - q)


def top_left(q, k, device=None):
    return torch.ones(q, k, dtype=torch.bool, device=device).tril()


RIGHT = {
    "rows of a square": lambda q, k, device: top_left(k, k, device)[k - q :],
    "positions compared": lambda q, k, device: (
        torch.arange(k, device=device) <= torch.arange(k - q, k, device=device)[:, None]
    ),
    "what is not above": lambda q, k, device: ~torch.ones(q, k, dtype=torch.bool, device=device).triu(k - q + 1),
}
WRONG = {
    "a nested list": lambda q, k, device: triangle(q, k).tolist(),
    "a bias": lambda q, k, device: torch.zeros(q, k, device=device).masked_fill(~triangle(q, k, device), -torch.inf),
    "top left between one query and all": lambda q, k, device: (top_left if 1 < q < k else triangle)(q, k, device),
    "64 keys at most": lambda q, k, device: top_left(64, 64, device)[k - q : k, :k],
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_mask", RIGHT, WRONG
