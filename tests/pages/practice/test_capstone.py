"""One attention with all options, against a loop over queries; what its page says of it and of the kit."""

import itertools
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

from snippets import attention_probes as kit
from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "practice/capstone"
PAGE = p.page_code(SLUG, "solution")
sdpa = F.scaled_dot_product_attention

# -- the class, in all its options -----------------------------------------------------------------


def drawn(**fixed):
    """Modules with every combination of options, inputs, and which keys are real; a row may have none."""

    def build(case, causal, cross, bias, wide):
        options = {"causal": causal and not cross, "cross": cross, "bias": bias, "wide": wide} | fixed
        case = SimpleNamespace(**vars(case) | options)
        case.E, case.width = case.H * case.D, case.D + case.wide
        case.inputs = case.randn(case.B, case.T, case.E)
        case.memory = case.randn(case.B, case.Tk, case.E + 2) if case.cross else None
        case.source = case.memory if case.cross else case.inputs
        case.is_real = case.randn(*case.source.shape[:2]) > -0.4
        p.seed_modules(case.seed)
        given = {"causal": case.causal, "bias": case.bias, "head_dim": case.width if case.wide else None}
        given["memory_width"] = case.E + 2 if case.cross else None
        case.attention = PAGE.UnifiedAttention(case.E, case.H, **given).double().eval()
        for parameter in case.attention.parameters():  # larger than torch's, or the weights are nearly equal
            nn.init.normal_(parameter)
        return case

    return st.builds(build, p.sizes(B=3, H=3, T=4, Tk=5, D=3), *[st.booleans()] * 4)


def ours(case, **options):
    return case.attention(case.inputs, case.memory, case.is_real, **options)


def one_query_at_a_time(case):
    """A softmax over the keys that the query sees, and nothing else; outputs and weights."""
    attention = case.attention
    sides = (attention.to_queries, case.inputs), (attention.to_keys, case.source), (attention.to_values, case.source)
    queries, keys, values = (torch.stack(layer(tokens).split(case.width, dim=-1), dim=1) for layer, tokens in sides)
    context, weights = torch.zeros_like(queries), torch.zeros(*queries.shape[:3], keys.shape[2], dtype=torch.float64)
    for item, head, i in itertools.product(*map(range, queries.shape[:3])):
        seen = [j for j in range(keys.shape[2]) if case.is_real[item, j] and (not case.causal or j <= i)]
        if seen:
            scores = keys[item, head, seen] @ queries[item, head, i] / case.width**0.5
            weights[item, head, i, seen] = scores.softmax(dim=0)
            context[item, head, i] = weights[item, head, i, seen] @ values[item, head, seen]
    return attention.to_output(torch.cat(context.unbind(1), dim=-1)), weights


@pytest.mark.parametrize("need_weights", [False, True])
def test_results_and_gradients_are_those_of_one_query_at_a_time(need_weights):
    def prove(case):
        outputs, weights = ours(case, need_weights=need_weights)
        p.close(outputs, one_query_at_a_time(case)[0])
        if need_weights:
            p.close(weights, one_query_at_a_time(case)[1])
        else:
            assert weights is None

    def leaves(case):
        return [case.inputs, *case.attention.parameters()] + ([case.memory] if case.cross else [])

    p.for_all(drawn(), prove)
    p.gradients_equal(
        lambda case: ours(case, need_weights=need_weights)[0],
        lambda case: one_query_at_a_time(case)[0],
        leaves,
        drawn(),
    )


@pytest.mark.parametrize(("causal", "cached"), [(False, 0), (True, 0), (True, 2)])
def test_without_padding_the_fused_kernel_gets_no_mask_but_for_a_causal_step(causal, cached, monkeypatch):
    given = []
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **o: given.append(o) or sdpa(*a, **o))
    cache = PAGE.Cache(5)
    attention, inputs = PAGE.UnifiedAttention(8, 2, causal=causal), torch.randn(3, 5, 8)
    attention(inputs[:, :cached], cache=cache)
    attention(inputs[:, cached:], cache=cache)
    if cached:
        assert given[-1].keys() == {"attn_mask", "dropout_p"}
    else:
        assert given[-1] == {"dropout_p": 0.0, "is_causal": causal}


def test_with_a_cache_the_newest_rows_are_those_of_all_and_is_real_covers_the_cache():
    def prove(case):
        first, cache = case.seed % case.T, PAGE.Cache(case.T)
        case.attention(case.inputs[:, :first], is_real=case.is_real[:, :first], cache=cache)
        newest = case.attention(case.inputs[:, first:], is_real=case.is_real, cache=cache)[0]
        p.close(newest, ours(case)[0][:, first:])

    p.for_all(drawn(causal=True, cross=False), prove)


def test_a_memory_is_projected_once_and_then_nothing_is_added():
    def prove(case):
        cache = PAGE.Cache(case.Tk)
        case.attention(case.inputs[:, :1], case.memory, case.is_real, cache)
        p.close(case.attention(case.inputs, case.memory[:, :0], case.is_real, cache)[0], ours(case)[0])

    p.for_all(drawn(causal=False, cross=True), prove)


def test_dropout_thins_the_weights_in_training_only_after_they_are_returned():
    attention, inputs = PAGE.UnifiedAttention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    torch.manual_seed(0)
    outputs, weights = attention(inputs, need_weights=True)
    p.close(weights.sum(dim=-1), torch.ones(2, 2, 5), 1e-5)
    torch.manual_seed(0)
    thinned = F.dropout(weights, 0.5) @ attention.split_heads(attention.to_values(inputs))
    p.close(outputs, attention.to_output(attention.merge_heads(thinned)), 1e-5)
    for given in ({}, {"is_real": torch.ones(2, 5) > 0}):
        assert not torch.equal(attention.train()(inputs, **given)[0], attention(inputs, **given)[0])
        assert torch.equal(attention.eval()(inputs, **given)[0], attention(inputs, **given)[0])


@pytest.mark.parametrize(
    ("options", "call", "error"),
    [
        ({"causal": True}, {"memory": torch.randn(3, 5, 8)}, "^a memory has no future: causal must be False$"),
        ({"num_heads": 3}, {}, "^3 heads do not divide 8$"),
        ({"head_dim": 0}, {}, "^head_dim=0: give at least 1$"),
        ({}, {"is_real": torch.ones(3, 1, 1, 5) > 0}, r"^is_real must be boolean, with shape \(3, 5\)$"),
        ({}, {"is_real": torch.ones(5) > 0}, r"with shape \(3, 5\)$"),
        ({}, {"is_real": torch.ones(3, 5)}, "must be boolean"),
    ],
)
def test_what_would_run_silently_raises(options, call, error):
    with pytest.raises(ValueError, match=error):
        PAGE.UnifiedAttention(**{"width": 8, "num_heads": 2} | options)(torch.randn(3, 5, 8), **call)


# -- what it says of the probes, and the exercise --------------------------------------------------


def test_each_probe_passes_for_one_of_the_two_modules():
    said = executed(SLUG, "verdict")[1]
    passed = [re.split(r",\s+", names.strip()) for names in re.findall(r"^passed (.+?)^left out", said, re.S | re.M)]
    assert "failed" not in said
    assert {name for names in passed for name in names} == {probe.name for probe in kit.PROBES}
    assert [("memory" in names) for names in passed] == [False, True]


def test_a_triangle_from_the_top_left_fails_steps_alone(monkeypatch):
    tril = torch.Tensor.tril
    monkeypatch.setattr(torch.Tensor, "tril", lambda self, shift=0: tril(self))
    mine = PAGE.UnifiedAttention(32, 4, causal=True)

    def new_cache():
        cache = PAGE.Cache(16)
        return lambda chunk: mine(chunk, cache=cache)

    given = {"module": mine, "padding": lambda tokens, is_real: mine(tokens, is_real=is_real), "cache": new_cache}
    assert kit.check(mine, width=32, causal=True, **given).failed.keys() == {"steps"}


def windowed(shift=True, hides=True):
    """An answer with one thing of the main part left out."""

    def attend(queries, keys, values, window, is_real=None):
        Tq, Tk = queries.shape[2], keys.shape[2]
        places = torch.arange(Tq)[:, None] + (Tk - Tq if shift else 0)
        visible = (places >= torch.arange(Tk)) & (places - torch.arange(Tk) < window)
        if is_real is not None and hides:
            visible = visible & is_real[:, None, None]
        return sdpa(queries, keys, values, attn_mask=visible | ~visible.any(dim=-1, keepdim=True))

    return attend


def test_the_check_stops_at_the_pads_after_the_middle_step():
    said = p.verdict(executed(SLUG, "solution")[0].check_window, windowed(shift=False, hides=False))
    assert said.startswith("not yet: window 2: pads_left: ")


RIGHT = {"by distance": windowed()}
WRONG = {"no padding": windowed(hides=False), "from the top left": windowed(shift=False)}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_window", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

ACCEPTED = {
    "keys and values have one length and one device": [
        "Tk = values.shape[2]",
        "visible = keys.new_ones(Tq, Tk, dtype=torch.bool)",
    ],
    "rows without a key must be finite, no more, and SDPA gives 0 on the CPU": [
        "has_key = visible.any(keepdim=True)",
        "return context",
        "return context.masked_fill(~has_key, 1)",
    ],
    "with what SDPA hides is not for an answer to choose": ["hidden by -10000.0"],
}
SURVIVORS = {"SDPA returns 0 for an empty row on the CPU, other kernels nan": ["# visible = visible | ~has_key"]}
