"""Dropout on attention weights: the page's code against PyTorch's own dropout, and the page's statistics."""

import math

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.models.swin import modeling_swin

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "practice/dropout"
PAGE, SOLUTION, CLASS = (p.page_code(SLUG, cell) for cell in ("reduce", "solution", "class"))


def masked_case(case):
    """Scores of which some are -inf, none of them in key 0, with values, kept weights and a rate."""
    scores = 2 * case.randn(case.B, case.Tq, case.Tk)
    visible = case.randn(case.B, case.Tq, case.Tk) <= 0.5
    visible[..., 0] = True
    keep = case.randn(case.B, case.Tq, case.Tk) > -0.5
    rate = (case.seed % 9) / 10
    return scores.masked_fill(~visible, -torch.inf), case.randn(case.B, case.Tk, case.D), keep, rate


CASES = p.sizes(B=3, Tq=4, Tk=5, D=3).map(masked_case)
MODULES = p.sizes(B=3, T=6, H=3, D=4)

# -- references ----------------------------------------------------------------------------------


def softmax_by_hand(scores):
    return [math.exp(score) / sum(map(math.exp, scores)) for score in scores]


def by_loops(scores, values, keep, rate, training):
    """One Python float at a time: a kept weight counts 1/(1 - p) times, a dropped one not at all."""
    contexts = torch.zeros(*scores.shape[:2], values.shape[2], dtype=torch.float64)
    for b, item in enumerate(scores.tolist()):
        for i, row in enumerate(item):
            for j, weight in enumerate(softmax_by_hand(row)):
                factor = float(keep[b, i, j]) / (1 - rate) if training else 1.0
                contexts[b, i] += factor * weight * values[b, j]
    return contexts


def the_draw_of_torch(weights, rate, seed):
    """What `F.dropout` makes of weights, and which of them it kept: the same draw on ones."""
    p.seed_modules(seed)
    dropped = F.dropout(weights, rate)
    p.seed_modules(seed)
    return dropped, F.dropout(torch.ones_like(weights), rate) > 0


@pytest.mark.parametrize("training", [True, False])
def test_the_solution_is_what_loops_compute(training):
    p.equals_reference(lambda case: SOLUTION.attend(*case, training), lambda case: by_loops(*case, training), CASES)


def agrees_with_torch(drop):
    """The page's `drop` with the draw of `F.dropout` gives what `F.dropout` gives."""

    def prove(case):
        weights = torch.softmax(case[0], dim=-1)
        dropped, keep = the_draw_of_torch(weights, case[3], seed=case[0].numel())
        p.close(drop(weights, keep, case[3]), dropped)

    p.for_all(CASES, prove)


def test_drop_with_the_draw_of_torch_is_dropout_of_torch():
    agrees_with_torch(PAGE.drop)


def heads(x, number):
    """(B, T, E) as (B, H, T, D)."""
    return torch.stack(x.chunk(number, dim=-1), dim=1)


def causal_reference(module, inputs):
    """The module without its dropouts, by `F.scaled_dot_product_attention` and plain products."""
    layers = (module.to_queries, module.to_keys, module.to_values)
    number = module.to_queries.out_features // module.head_dim
    roles = [heads(inputs @ layer.weight.T + layer.bias, number) for layer in layers]
    context = F.scaled_dot_product_attention(*roles, is_causal=True)
    return torch.cat([*context.unbind(1)], dim=-1) @ module.to_output.weight.T + module.to_output.bias


def built(case, rate):
    p.seed_modules(case.seed)
    module = CLASS.DropoutAttention(case.H * case.D, case.H, dropout=rate).double()
    return module, case.randn(case.B, case.T, case.H * case.D)


def in_evaluation(case):
    """The module, whatever its rate does in training, and its inputs."""
    case.module, case.inputs = built(case, 0.5)
    case.module.eval()
    return case


def test_in_evaluation_the_module_is_causal_attention_of_several_heads():
    def ours(case):
        return case.module(case.inputs)

    def theirs(case):
        return causal_reference(case.module, case.inputs)

    p.equals_reference(ours, theirs, MODULES.map(in_evaluation))
    p.gradients_equal(ours, theirs, lambda case: [case.inputs, *case.module.parameters()], MODULES.map(in_evaluation))


def test_in_training_it_drops_the_weights_by_one_draw_and_the_output_by_the_next():
    def prove(case):
        module, inputs = built(case, 0.3)
        queries, keys, values = (
            heads(layer(inputs), case.H) for layer in (module.to_queries, module.to_keys, module.to_values)
        )
        visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        scores = (queries @ keys.mT / math.sqrt(case.D)).masked_fill(~visible, -math.inf)
        p.seed_modules(case.seed + 1)
        context = F.dropout(scores.softmax(-1), 0.3) @ values
        wanted = F.dropout(module.to_output(torch.cat([*context.unbind(1)], dim=-1)), 0.3)
        p.seed_modules(case.seed + 1)
        p.close(module(inputs), wanted)

    p.for_all(MODULES, prove)


@pytest.mark.parametrize("bias", [False, True])
def test_the_projections_have_a_bias_or_none_has(bias):
    names = [name for name, _ in CLASS.DropoutAttention(6, 2, bias=bias).named_parameters()]
    assert sum(name.endswith("bias") for name in names) == 4 * bias


def test_heads_that_cannot_share_the_width_raise():
    with pytest.raises(ValueError, match=r"^3 heads do not divide 10$"):
        CLASS.DropoutAttention(10, 3)


def test_at_its_neutral_rate_it_is_the_attention_of_many_heads():
    before = p.page_code("foundations/many-heads", "attention").Attention(6, 2)
    ours = CLASS.DropoutAttention(6, 2)
    ours.load_state_dict(before.state_dict())
    inputs = torch.randn(2, 5, 6)
    torch.testing.assert_close(ours(inputs), before(inputs))


def test_gradients_of_dropped_weights_are_zero_and_those_of_kept_ones_are_scaled():
    weights = torch.rand(4, 5, dtype=torch.float64, requires_grad=True)
    keep = torch.arange(20).view(4, 5) % 3 > 0
    PAGE.drop(weights, keep, 0.2).sum().backward()
    p.close(weights.grad, keep.double() / 0.8)


# -- what the page says, and no cell prints --------------------------------------------------------


def test_the_pattern_of_the_page_is_that_of_the_notebook():
    """`keep` marks the twos of `Dropout(0.5)(ones(6, 6))`, seed 123, as rasbt/LLMs-from-scratch#57 quotes them."""
    printed = "220220 000202 222202 022002 020202 022220"
    assert PAGE.keep.tolist() == [[int(digit) // 2 for digit in row] for row in printed.split()]


def test_the_mean_of_many_real_draws_is_the_weights():
    p.seed_modules(0)
    mean = torch.stack([F.dropout(PAGE.weights, 0.2) for _ in range(10_000)]).mean(dim=0)
    torch.testing.assert_close(mean, PAGE.weights, rtol=0, atol=0.03)


def test_each_weight_is_dropped_on_its_own_not_a_fixed_share():
    p.seed_modules(0)
    kept = (F.dropout(torch.ones(1000, 36), 0.5) > 0).sum(dim=-1)
    assert kept.min() < 12
    assert kept.max() > 24


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_multihead_attention_returns_the_weights_after_dropout_in_training_alone(rate):
    p.seed_modules(0)
    mha = nn.MultiheadAttention(4, 1, dropout=rate, batch_first=True)
    queries, key = torch.randn(1, 64, 4), torch.randn(1, 1, 4)
    torch.testing.assert_close(mha(queries, key, key)[1].unique(), torch.tensor([0, 1 / (1 - rate)]))
    assert (mha.eval()(queries, key, key)[1] == 1).all()


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), modeling_swin.SwinDropPath(0.5)])
def test_without_gradients_dropout_and_stochastic_depth_still_draw_until_eval(layer):
    with torch.no_grad():
        assert not torch.equal(layer.train()(torch.ones(64, 2)), torch.ones(64, 2))
        assert torch.equal(layer.eval()(torch.ones(64, 2)), torch.ones(64, 2))


def test_a_new_module_trains_and_dropout_has_no_parameters():
    assert CLASS.DropoutAttention(4, 2, dropout=0.1).training
    assert list(nn.Dropout(0.1).parameters()) == []


OLD = {"GPT2Config": "attn_pdrop", "BertConfig": "attention_probs_dropout_prob"}
NEW = ["Llama", "Mistral", "Qwen3", "Gemma3Text", "Olmo3", "GptOss", "DeepseekV3"]


def test_the_defaults_of_transformers():
    assert {name: getattr(getattr(transformers, name)(), rate) for name, rate in OLD.items()} == dict.fromkeys(OLD, 0.1)
    rates = {name: getattr(transformers, f"{name}Config")().attention_dropout for name in NEW}
    assert rates == dict.fromkeys(NEW, 0.0)


# -- the exercise ---------------------------------------------------------------------------------


def filled(scores, values, keep, p, training):
    weights = scores.softmax(-1)
    if training:
        weights = weights.masked_fill(keep.logical_not(), 0.0).div(1 - p)
    return weights @ values


def trained(weigh):
    """An answer that is right in evaluation."""
    return lambda s, v, k, p, training: (weigh(s, k, p) if training else s.softmax(-1)) @ v


def renormalised(scores, keep, p):
    weights = scores.softmax(-1) * keep
    return weights / weights.sum(-1, keepdim=True)


def context_scaled(s, v, k, p, training):
    return (s.softmax(-1) * k) @ v / (1 - p) if training else s.softmax(-1) @ v


RIGHT = {"masked_fill": filled, "context scaled": context_scaled}
WRONG = {
    "drops scores": trained(lambda s, k, p: s.masked_fill(~k, -1e9).softmax(-1)),
    "renormalised": trained(renormalised),
    "factor in evaluation": lambda s, v, k, p, t: (s.softmax(-1) * (k if t else 1) / (1 - p)) @ v,
    "unstable": trained(lambda s, k, p: s.exp() / s.exp().sum(-1, keepdim=True) * k / (1 - p)),
}


def test_the_check_stops_at_training_after_the_middle_step():
    said = p.verdict(SOLUTION.check_attend, lambda s, v, k, p, training: s.softmax(-1) @ v)
    assert said.startswith("not yet: p = 0.25, training = True:")


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG
