"""Einsum: the page's function, mask and module against PyTorch, and mistakes that sizes let pass."""

import einops
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "practice/einsum"
PAGE = p.page_code(SLUG, "attend")
MASK, FORWARD = p.page_code(SLUG, "solution-mask"), p.page_code(SLUG, "solution-forward")
SIZES = p.sizes(B=2, H=3, T=4, D=3, E=5)
ROLES = ("query", "key", "value")

# -- the function and the module, and what PyTorch makes of the same numbers ------------------------


def function_case(case):
    matrices = case.randn(3, case.H, case.E, case.D)
    case.arguments = (case.randn(case.B, case.T, case.E), *matrices, case.randn(case.H, case.D, case.E))
    return case


def module_case(case):
    case.module = FORWARD.EinsumAttention(case.H, case.E, case.D).double()
    for parameter in case.module.parameters():
        parameter.data = case.randn(*parameter.shape)
    case.inputs = case.randn(case.B, case.T, case.E)
    return case


def module_case_as_wide_as_its_heads(case):
    case.E = case.H * case.D
    return module_case(case)


FUNCTIONS, MODULES = SIZES.map(function_case), SIZES.map(module_case)


def by_sdpa(inputs, matrices, W_output, biases=(0, 0, 0), b_output=0, **options):
    """Head by head, but for `F.scaled_dot_product_attention` itself."""
    roles = [torch.stack([inputs @ head for head in matrix], dim=1) + bias for matrix, bias in zip(matrices, biases)]
    context = F.scaled_dot_product_attention(*roles, **options)
    return sum(context[:, h] @ head for h, head in enumerate(W_output)) + b_output


def function_by_sdpa(case):
    inputs, *matrices, W_output = case.arguments
    return by_sdpa(inputs, matrices, W_output)


def module_by_sdpa(case):
    matrices, biases = ([getattr(case.module, f"{kind}_{role}") for role in ROLES] for kind in "Wb")
    return by_sdpa(case.inputs, matrices, case.module.W_output, biases, case.module.b_output, is_causal=True)


def module_by_multihead_attention(case):
    """`nn.MultiheadAttention`, which needs E = H D, with the same weights in its own layout."""
    theirs = nn.MultiheadAttention(case.E, case.H, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([getattr(case.module, f"W_{role}").mT.flatten(0, 1) for role in ROLES]),
            "in_proj_bias": torch.cat([getattr(case.module, f"b_{role}").flatten() for role in ROLES]),
            "out_proj.weight": case.module.W_output.flatten(0, 1).T,
            "out_proj.bias": case.module.b_output,
        }
    )
    masked = torch.ones(case.T, case.T, dtype=torch.bool).triu(diagonal=1)
    return theirs(case.inputs, case.inputs, case.inputs, attn_mask=masked)[0]


def test_the_function_equals_sdpa_head_by_head_with_its_gradients():
    def attend(case):
        return PAGE.attend(*case.arguments)

    p.equals_reference(attend, function_by_sdpa, FUNCTIONS)
    p.gradients_equal(attend, function_by_sdpa, lambda case: case.arguments, FUNCTIONS)


def test_the_module_equals_multihead_attention():
    cases = SIZES.map(module_case_as_wide_as_its_heads)
    p.equals_reference(lambda case: case.module(case.inputs), module_by_multihead_attention, cases)


def test_the_module_has_the_gradients_of_sdpa():
    p.gradients_equal(
        lambda case: case.module(case.inputs),
        module_by_sdpa,
        lambda case: [case.inputs, *case.module.parameters()],
        MODULES,
    )


def test_a_token_moves_its_own_row_and_the_later_ones():
    def function(case):
        visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: case.module(tokens[None])[0], case.inputs[0], visible

    p.reaches_exactly(function, MODULES)


def test_the_module_keeps_no_state():
    p.stateless(lambda case: (case.module, [case.inputs], [-3 * case.inputs]), MODULES)


def test_the_module_is_finite_for_large_scores():
    p.finite_rows(lambda case: case.module(1e3 * case.inputs), MODULES)


def test_what_a_reader_takes_home_follows_the_device():
    tokens = torch.empty(2, 4, 5, device="meta")
    assert FORWARD.EinsumAttention(2, 5, 3).to("meta")(tokens).shape == (2, 4, 5)
    matrices = [tokens.new_empty(3, 5, 6)] * 3
    assert PAGE.attend(tokens, *matrices, tokens.new_empty(3, 6, 5)).shape == (2, 4, 5)
    project = p.page_code(SLUG, "matmul").project
    assert project(tokens, matrices[0]).shape == (2, 3, 4, 6)


def test_the_parameters_are_drawn_with_a_spread_for_their_width_and_biases_are_zero():
    p.seed_modules(0)
    state = FORWARD.Projections(num_heads=3, width=64, head_dim=40).state_dict()
    shapes = {f"W_{role}": (3, 64, 40) for role in ROLES} | {"W_output": (3, 40, 64)}
    shapes |= {f"b_{role}": (3, 1, 40) for role in ROLES} | {"b_output": (64,)}
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == shapes
    for name, tensor in state.items():
        if name.startswith("b"):
            assert not tensor.any()
        else:
            assert abs(tensor.mean()) < 0.01
            assert abs(tensor.std() * 8 - 1) < 0.05


def test_the_mask_gives_the_sum_with_the_mask_of_nn_transformer():
    def prove(case):
        scores = case.randn(case.B, case.H, case.T, case.T)
        bias = nn.Transformer.generate_square_subsequent_mask(case.T, dtype=torch.float64)
        assert torch.equal(MASK.apply_causal_mask(scores), scores + bias)

    p.for_all(SIZES, prove)


# -- the claims of the page ----------------------------------------------------------------------


def test_the_rules_of_einsum_hold():
    x, y = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    torch.testing.assert_close(torch.einsum("bqd,bkd->kqb", x, y), (x @ y.mT).permute(2, 1, 0))
    torch.testing.assert_close(torch.einsum("bqd,bkd->b", x, y), (x @ y.mT).sum(dim=(1, 2)))
    square = torch.randn(3, 3)
    assert torch.equal(torch.einsum("dd->d", square), square.diagonal())
    torch.testing.assert_close(torch.einsum("dd,bd->bd", square, x[0, :, :3]), x[0, :, :3] * square.diagonal())


def test_einops_hands_its_contraction_to_torch(monkeypatch):
    seen, einsum = [], torch.einsum
    monkeypatch.setattr(torch, "einsum", lambda equation, *tensors: seen.append(equation) or einsum(equation, *tensors))
    found = einops.einsum(torch.ones(2, 3), torch.ones(3, 4), "row column, column other -> row other")
    assert found.shape == (2, 4)
    assert len(seen) == 1


def test_with_the_head_axis_after_the_tokens_only_the_letters_change():
    queries, keys = torch.randn(2, 4, 3, 5), torch.randn(2, 6, 3, 5)
    scores = torch.einsum("...qhd,...khd->...hqk", queries, keys)
    torch.testing.assert_close(scores, queries.transpose(1, 2) @ keys.transpose(1, 2).mT)


def test_rearrange_divides_the_width_by_heads_and_a_view_mixes_tokens():
    split = p.page_code(SLUG, "split")
    width = split.projected.shape[-1] // split.H
    for head in range(split.H):
        assert torch.equal(split.heads[:, head], split.projected[..., head * width : (head + 1) * width])
    rows = split.viewed[0, 0].reshape(-1, 4)
    assert torch.equal(rows[:3].flatten(), split.projected[0, 0]), "head 0 of the view holds all of token 0"


def test_without_the_k_of_the_values_each_token_reads_itself_whatever_the_weights():
    def prove(case):
        weights = case.randn(case.B, case.H, case.T, case.T).softmax(dim=-1)
        values = case.randn(case.B, case.H, case.T, case.D)
        p.close(torch.einsum("bhqk->bhq", weights), torch.ones_like(weights[..., 0]))
        p.close(torch.einsum("bhqk,bhqd->bhqd", weights, values), values)

    p.for_all(SIZES, prove)


def test_the_reduction_gives_the_numbers_of_the_first_page():
    before = p.page_code("foundations/weighted-average", "contexts")
    ours = p.page_code(SLUG, "reduce")
    assert torch.equal(ours.tokens, before.inputs)
    torch.testing.assert_close(ours.context, before.context)


def test_the_bias_of_the_keys_changes_nothing():
    def prove(case):
        before = case.module(case.inputs)
        case.module.b_key.data += 3
        p.close(case.module(case.inputs), before, tolerance=1e-8)

    p.for_all(MODULES, prove)


# -- the report ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report():
    return p.page_code(SLUG, "report")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_weights_notice_each_mistake_whatever_the_seed_and_ones_none(report, seed):
    p.seed_modules(seed)
    drawn = [torch.randn_like(matrix) / 32**0.5 for matrix in report.drawn]
    for change in report.mistakes.values():
        for matrices, noticed in ((report.ones, False), (drawn, True)):
            right = PAGE.attend(report.inputs, *matrices)
            wrong = PAGE.attend(report.inputs, *change(*matrices))
            assert torch.allclose(wrong, right, atol=1e-3) is not noticed


def test_with_ones_the_scores_are_in_the_hundreds(report):
    queries = report.inputs @ report.ones[0][0]
    assert 100 < (queries @ queries.mT / 2).min() < 1000


# -- exercise 1 ----------------------------------------------------------------------------------


def future(scores, diagonal=1):
    return torch.ones_like(scores, dtype=torch.bool).triu(diagonal)


def filled(value):
    return lambda scores: scores.masked_fill(future(scores), value)


def cloned_and_filled(scores):
    masked = scores.clone()
    masked[future(scores)] = -torch.inf
    return masked


def positions(scores):
    i = torch.arange(scores.shape[-1], device=scores.device)
    return torch.where(i > i[:, None], torch.full_like(scores, -torch.inf), scores)


def in_place(scores):
    return scores.masked_fill_(future(scores), -torch.inf)


def past_the_gradient(scores):
    scores.data.masked_fill_(future(scores), -torch.inf)
    return scores * 1


def four_axes(scores):
    _batch, _head, _query, _key = scores.shape
    return filled(-torch.inf)(scores)


def first_head(scores):
    masked = scores.clone()
    masked[:1] = filled(-torch.inf)(scores[:1])
    return masked


def on_the_cpu(scores):
    T = scores.shape[-1]
    return scores.masked_fill(torch.ones(T, T, dtype=torch.bool, device="cpu").triu(1), -torch.inf)


RIGHT_MASKS = {
    "filled": filled(-torch.inf),
    "a copy filled": cloned_and_filled,
    "positions compared": positions,
    "added": lambda s: s + torch.full_like(s, -torch.inf).triu(1),
    "minus infinity, then the triangle": lambda s: s.masked_fill(~torch.ones_like(s).tril().bool(), -torch.inf),
}
WRONG_MASKS = {
    "returns None": lambda s: None,
    "a nested list": lambda s: filled(-torch.inf)(s).tolist(),
    "a numpy array": lambda s: filled(-torch.inf)(s).detach().float().numpy(),
    "raises": lambda s: s[s.shape[0]],
    "in place": in_place,
    "in place, past the gradient": past_the_gradient,
    "the mask alone": future,
    "a float mask alone": lambda s: torch.full_like(s, -torch.inf).triu(1),
    "filled with 0": filled(0.0),
    "filled with -1e-9": filled(-1e-9),
    "filled with -1e4": filled(-1e4),
    "filled with -1e9": filled(-1e9),
    "filled with the lowest number": lambda s: s.masked_fill(future(s), torch.finfo(s.dtype).min),
    "filled with infinity": filled(torch.inf),
    "filled with nan": filled(torch.nan),
    "multiplied by the triangle": lambda s: s.tril(),
    "multiplied by minus infinity": lambda s: s * torch.full_like(s, -torch.inf).triu(1),
    "token itself hidden": lambda s: s.masked_fill(future(s, 0), -torch.inf),
    "one token of the future visible": lambda s: s.masked_fill(future(s, 2), -torch.inf),
    "the past hidden": lambda s: s.masked_fill(future(s).mT, -torch.inf),
    "the past and itself hidden": lambda s: s.masked_fill(~future(s), -torch.inf),
    "nothing hidden": lambda s: s.clone(),
    "transposed": lambda s: filled(-torch.inf)(s.mT),
    "thrown away": lambda s: (filled(-torch.inf)(s), s)[1],
    "after the softmax": lambda s: filled(-torch.inf)(s.softmax(-1)),
    "softmax on top": lambda s: filled(-torch.inf)(s).softmax(-1),
    "scaled on top": lambda s: filled(-torch.inf)(s) / 2,
    "a batch axis too many": lambda s: filled(-torch.inf)(s)[None],
    "heads flattened": lambda s: filled(-torch.inf)(s).reshape(-1, *s.shape[-2:]),
    "four axes needed": four_axes,
    "first item alone": first_head,
    "a size that is written down": lambda s: s.masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf),
    "float32 always": lambda s: filled(-torch.inf)(s.float()),
    "cut off from the gradient": lambda s: filled(-torch.inf)(s.detach()),
    "a mask without a device": on_the_cpu,
    "a buffer of 8 tokens": lambda s: s.masked_fill(
        future(s.new_empty(8, 8))[: s.shape[-1], : s.shape[-1]], -torch.inf
    ),
}


class TestMask(Exercise):
    SLUG, PART, CHECK, RIGHT, WRONG = SLUG, "-mask", "check_mask", RIGHT_MASKS, WRONG_MASKS


# -- exercise 2 ----------------------------------------------------------------------------------


def answer(forward):
    return type("EinsumAttention", (FORWARD.Projections,), {"forward": forward})


BY_MATMUL = """
def forward(self, inputs):
    B, T, E = inputs.shape
    H, E, D = self.W_query.shape
    tokens = inputs[:, None]
    queries = tokens @ self.W_query + self.b_query
    keys = tokens @ self.W_key + self.b_key
    values = tokens @ self.W_value + self.b_value
    scores = queries @ keys.mT / D**0.5
    masked = torch.ones(T, T, dtype=torch.bool, device=inputs.device).triu(diagonal=1)
    scores = scores.masked_fill(masked, -torch.inf)
    weights = scores.softmax(dim=-1)
    context = weights @ values
    return (context @ self.W_output).sum(dim=1) + self.b_output
"""


def by_matmul(*replaced):
    """An answer by matmul, in which texts are replaced: each an (old, new)."""
    text = BY_MATMUL
    for old, new in replaced:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    names = {"torch": torch}
    exec(text, names)
    return answer(names["forward"])


def by_fused_call(self, inputs):
    roles = [inputs[:, None] @ getattr(self, f"W_{role}") + getattr(self, f"b_{role}") for role in ROLES]
    context = F.scaled_dot_product_attention(*roles, is_causal=True)
    return torch.einsum("bhqd,hde->bqe", context, self.W_output) + self.b_output


RIGHT_FORWARDS = {
    "the solution": FORWARD.EinsumAttention,
    "by SDPA": answer(by_fused_call),
    "by matmul": by_matmul(),
    "without the bias of the keys, which changes nothing": by_matmul((" + self.b_key", "")),
}
SLIPS = {
    "heads not added": [(".sum(dim=1)", "")],
    "tokens added": [(".sum(dim=1)", ".sum(dim=(1, 2))")],
    "W_query and W_key swapped": [
        ("queries = tokens @ self.W_query", "queries = tokens @ self.W_key"),
        ("keys = tokens @ self.W_key", "keys = tokens @ self.W_query"),
    ],
    "W_key and W_value swapped": [
        ("keys = tokens @ self.W_key", "keys = tokens @ self.W_value"),
        ("values = tokens @ self.W_value", "values = tokens @ self.W_key"),
    ],
    "W_key twice": [("self.W_query +", "self.W_key +")],
    "keys as values": [("weights @ values", "weights @ keys")],
    "queries as keys": [("queries @ keys", "queries @ queries")],
    "no biases": [(f" + self.b_{name}", "") for name in (*ROLES, "output")],
    "no b_query": [(" + self.b_query", "")],
    "no b_value": [(" + self.b_value", "")],
    "no b_output": [(" + self.b_output", "")],
    "b_output once per head": [("self.b_output", "H * self.b_output")],
    "b_key with the queries": [("self.b_query", "self.b_key")],
    "weights split the wrong way": [("self.W_query +", "self.W_query.reshape(E, H, D).transpose(0, 1) +")],
    "heads of the values reversed": [("self.W_value", "self.W_value.flip(0)")],
    "heads of the context reversed": [("context @", "context.flip(1) @")],
    "one head for all": [("context @", "context[:, :1] @")],
    "W_output of one head for all": [("self.W_output", "self.W_output[:1]")],
    "W_output averaged": [("self.W_output", "self.W_output.mean(0)")],
    "heads averaged": [(".sum(dim=1)", ".mean(dim=1)")],
    "scores transposed": [("queries @ keys.mT", "keys @ queries.mT")],
    "scores summed over the heads": [("D**0.5", "D**0.5\n    scores = scores.sum(1, True)")],
    "the k of the values lost": [("weights @ values", "values")],
    "weights read by column": [("weights @ values", "weights.mT @ values")],
    "weights of one head for all": [("weights @ values", "weights[:, :1] @ values")],
    "not scaled": [(" / D**0.5", "")],
    "scaled by the width": [("D**0.5", "E**0.5")],
    "scaled twice": [("D**0.5", "D")],
    "multiplied by the root": [("/ D**0.5", "* D**0.5")],
    "no mask": [("scores.masked_fill(masked, -torch.inf)", "scores")],
    "mask thrown away": [("scores = scores.masked_fill", "scores.masked_fill")],
    "masked with 0": [("-torch.inf", "0.0")],
    "masked with -1e-9": [("-torch.inf", "-1e-9")],
    "token itself hidden": [("diagonal=1", "diagonal=0")],
    "one token of the future visible": [("diagonal=1", "diagonal=2")],
    "the past hidden": [("triu(diagonal=1)", "tril(diagonal=-1)")],
    "masked after the softmax": [
        ("scores.masked_fill(masked, -torch.inf)", "scores"),
        ("dim=-1)", "dim=-1).masked_fill(masked, 0.0)"),
    ],
    "softmax over the queries": [("dim=-1", "dim=-2")],
    "softmax over the heads": [("dim=-1", "dim=1")],
    "no softmax": [("softmax(dim=-1)", "nan_to_num(neginf=0.0)")],
    "the inputs added": [("return", "return inputs +")],
    "the first item for all": [("weights @ values", "weights @ values[:1]")],
    "a softmax that overflows": [("scores.softmax(dim=-1)", "scores.exp() / scores.exp().sum(-1, keepdim=True)")],
    "masked after the softmax, then renormalised": [
        ("scores.masked_fill(masked, -torch.inf)", "scores"),
        ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).masked_fill(masked, 0.0)"),
        ("context = weights", "weights = weights / weights.sum(-1, keepdim=True)\n    context = weights"),
    ],
    "weights detached": [("context = weights", "context = weights.detach()")],
    "values detached": [("weights @ values", "weights @ values.detach()")],
    "inputs detached": [("inputs[:, None]", "inputs.detach()[:, None]")],
    "masked with -20": [("-torch.inf", "-20.0")],
    "masked with -100": [("-torch.inf", "-100.0")],
    "masked with -1e9, which float16 lacks": [("-torch.inf", "-1e9")],
    "a mask without a device": [(", device=inputs.device", "")],
    "a window of 6 tokens": [("triu(diagonal=1)", "triu(diagonal=1) | torch.ones(T, T, dtype=torch.bool).tril(-6)")],
    "a buffer of 8 tokens": [("torch.ones(T, T, dtype", "torch.ones(8, 8, dtype"), ("(masked,", "(masked[:T, :T],")],
    "in float32": [("weights @ values", "(weights.float() @ values.float()).to(values)")],
    "the inputs set to 0 at the end": [("    return", "    inputs.data.zero_()\n    return")],
    "cut off from the gradient": [("B, T, E =", "self.requires_grad_(False)\n    B, T, E =")],
    "a bias that grows with each call": [("context = weights", "self.b_output.data += 0.1\n    context = weights")],
}
WRONG_FORWARDS = {
    "returns None": answer(lambda self, inputs: None),
    "returns a list": answer(lambda self, inputs: by_fused_call(self, inputs).tolist()),
    "raises": answer(lambda self, inputs: inputs[len(inputs)]),
    "no module": lambda num_heads, width, head_dim: lambda inputs: inputs,
    "returns the inputs": answer(lambda self, inputs: inputs),
    "in float64 always": answer(lambda self, inputs: FORWARD.EinsumAttention.forward(self.double(), inputs.double())),
} | {name: by_matmul(*replaced) for name, replaced in SLIPS.items()}


class TestForward(Exercise):
    SLUG, PART, CHECK, RIGHT, WRONG = SLUG, "-forward", "check_forward", RIGHT_FORWARDS, WRONG_FORWARDS


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "the matrices of the roles have one shape": ["H, E, D = W_key.shape"],
}
ACCEPTED = {
    "the matrices of the roles have one shape": ["H, E, D = self.W_key.shape"],
    "a bias of the keys adds one number to a whole row of scores, and the softmax cancels it": [
        "keys = einsum('bte,hed->bhtd', inputs, self.W_key) - self.b_key"
    ],
}
