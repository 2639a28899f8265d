"""Einsum: the page's function, mask and module against PyTorch and plain loops, and mistakes that sizes let pass."""

import math
import re

import einops
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/einsum"
PAGE = p.page_code(SLUG, "attend")
MASK, FORWARD = p.page_code(SLUG, "solution-mask"), p.page_code(SLUG, "solution-forward")
SIZES = p.sizes(B=2, H=3, T=4, D=3, E=5)

# -- cases: `arguments` of the page's function, or a `module` with its `inputs` --------------------


def functions(code):
    def build(case):
        case.attend = code.attend
        matrices = case.randn(3, case.H, case.E, case.D)
        case.arguments = (case.randn(case.B, case.T, case.E), *matrices, case.randn(case.H, case.D, case.E))
        case.scale = 0.2 + case.seed % 7 / 5
        return case

    return SIZES.map(build)


def modules(code, same_width=False):
    def build(case):
        case.E = case.H * case.D if same_width else case.E
        case.module = code.EinsumAttention(case.H, case.E, case.D).double()
        for parameter in case.module.parameters():
            parameter.data = case.randn(*parameter.shape)
        case.inputs = case.randn(case.B, case.T, case.E)
        return case

    return SIZES.map(build)


# -- references ----------------------------------------------------------------------------------


def by_the_formula(inputs, matrices, biases, W_O, b_O, scale, causal):
    """One Python float at a time."""
    heads, width, head_dim = matrices[0].shape
    outputs = []
    for tokens in inputs.tolist():
        rows = [list(b_O) for _ in tokens]
        for h in range(heads):
            roles = [
                [
                    [sum(x * matrix[h][e][d] for e, x in enumerate(token)) + bias[h][0][d] for d in range(head_dim)]
                    for token in tokens
                ]
                for matrix, bias in zip([matrix.tolist() for matrix in matrices], biases)
            ]
            for i, query in enumerate(roles[0]):
                seen = range(i + 1 if causal else len(tokens))
                scores = [scale * sum(x * y for x, y in zip(query, roles[1][j])) for j in seen]
                total = sum(map(math.exp, scores))
                for d in range(head_dim):
                    context = sum(math.exp(score) / total * roles[2][j][d] for j, score in zip(seen, scores))
                    for e in range(width):
                        rows[i][e] += context * W_O[h, d, e].item()
        outputs.append(rows)
    return torch.tensor(outputs, dtype=torch.float64)


def function_by_the_formula(case):
    inputs, *matrices, W_O = case.arguments
    none = [torch.zeros(case.H, 1, case.D).tolist()] * 3
    return by_the_formula(inputs, matrices, none, W_O, [0.0] * case.E, case.scale, causal=False)


def function_by_sdpa(case):
    inputs, *matrices, W_O = case.arguments
    roles = [torch.stack([inputs @ head for head in matrix], dim=1) for matrix in matrices]
    context = F.scaled_dot_product_attention(*roles, scale=case.scale)
    return sum(context[:, h] @ W_O[h] for h in range(case.H))


def module_by_the_formula(case):
    parameters = dict(case.module.named_parameters())
    matrices, biases = ([parameters[f"{kind}_{role}"].detach() for role in "QKV"] for kind in "Wb")
    biases = [bias.tolist() for bias in biases]
    W_O, b_O = case.module.W_O.detach(), case.module.b_O.tolist()
    return by_the_formula(case.inputs, matrices, biases, W_O, b_O, case.D**-0.5, causal=True)


def module_by_multihead_attention(case):
    """`nn.MultiheadAttention`, which needs E = H D, with the same weights in its own layout."""
    parameters = dict(case.module.named_parameters())
    theirs = nn.MultiheadAttention(case.E, case.H, batch_first=True, dtype=torch.float64)
    matrices = [parameters[f"W_{role}"].transpose(1, 2).flatten(0, 1) for role in "QKV"]
    biases = [parameters[f"b_{role}"].flatten() for role in "QKV"]
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat(matrices),
            "in_proj_bias": torch.cat(biases),
            "out_proj.weight": parameters["W_O"].flatten(0, 1).T,
            "out_proj.bias": parameters["b_O"],
        }
    )
    hidden = torch.ones(case.T, case.T, dtype=torch.bool).triu(diagonal=1)
    return theirs(case.inputs, case.inputs, case.inputs, attn_mask=hidden)[0]


def module_by_sdpa(case):
    parameters = dict(case.module.named_parameters())
    roles = [torch.stack([case.inputs @ head for head in parameters[f"W_{role}"]], dim=1) for role in "QKV"]
    roles = [tensor + parameters[f"b_{role}"] for tensor, role in zip(roles, "QKV")]
    context = F.scaled_dot_product_attention(*roles, is_causal=True)
    return sum(context[:, h] @ case.module.W_O[h] for h in range(case.H)) + case.module.b_O


# -- what holds for the function and for the module ----------------------------------------------


def the_function_equals_plain_loops(code):
    p.equals_reference(lambda case: case.attend(*case.arguments, case.scale), function_by_the_formula, functions(code))


def the_function_equals_sdpa_head_by_head(code):
    p.equals_reference(lambda case: case.attend(*case.arguments, case.scale), function_by_sdpa, functions(code))


def the_function_has_the_gradients_of_sdpa(code):
    p.gradients_equal(
        lambda case: case.attend(*case.arguments, case.scale),
        function_by_sdpa,
        lambda case: case.arguments,
        functions(code),
    )


FUNCTION = [
    the_function_equals_plain_loops,
    the_function_equals_sdpa_head_by_head,
    the_function_has_the_gradients_of_sdpa,
]


def the_module_equals_plain_loops(code):
    p.equals_reference(lambda case: case.module(case.inputs), module_by_the_formula, modules(code))


def the_module_equals_multihead_attention(code):
    p.equals_reference(
        lambda case: case.module(case.inputs), module_by_multihead_attention, modules(code, same_width=True)
    )


def the_module_has_the_gradients_of_sdpa(code):
    p.gradients_equal(
        lambda case: case.module(case.inputs),
        module_by_sdpa,
        lambda case: [case.inputs, *case.module.parameters()],
        modules(code),
    )


def a_token_moves_its_own_row_and_the_later_ones(code):
    def function(case):
        allowed = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: case.module(tokens[None])[0], case.inputs[0], allowed

    p.reaches_exactly(function, modules(code))


def stateless(code):
    p.stateless(lambda case: (case.module, [case.inputs], [-3 * case.inputs]), modules(code))


def finite_for_large_scores(code):
    p.finite_rows(lambda case: case.module(1e3 * case.inputs), modules(code))


def the_mask_follows_the_device(code):
    module = code.EinsumAttention(2, 5, 3).to("meta")
    assert module(torch.empty(2, 4, 5, device="meta")).shape == (2, 4, 5)


MODULE = [
    the_module_equals_plain_loops,
    the_module_equals_multihead_attention,
    the_module_has_the_gradients_of_sdpa,
    a_token_moves_its_own_row_and_the_later_ones,
    stateless,
    finite_for_large_scores,
    the_mask_follows_the_device,
]


@pytest.mark.parametrize("holds", FUNCTION)
def test_the_function_has_the_property(holds):
    holds(PAGE)


@pytest.mark.parametrize("holds", MODULE)
def test_the_module_has_the_property(holds):
    holds(FORWARD)


# -- the bugs ------------------------------------------------------------------------------------

PAIRS, MIX, JOIN = '"bhqd,bhkd->bhqk"', '"bhqk,bhkd->bhqd"', '"bhqd,hde->bqe"'
OF_BOTH = {
    "scores transposed": {PAIRS: '"bhqd,bhkd->bhkq"'},
    "the k of the values lost": {MIX: '"bhqk,bhqd->bhqd"'},
    "weights read by column": {MIX: '"bhkq,bhkd->bhqd"'},
    "softmax over the queries": {"dim=-1": "dim=-2"},
    "keys as values": {"weights, values": "weights, keys"},
    "queries as keys": {"queries, keys": "queries, queries"},
}
OF_THE_FUNCTION = OF_BOTH | {
    "not scaled": {"scores * scale": "scores"},
    "divided by the scale": {"scores * scale": "scores / scale"},
    "heads averaged": {"return einsum": "return einsum('bhqd,hde->hbqe', context, W_O).mean(dim=0); einsum"},
    "W_K for the queries": {'bhtd", inputs, W_Q': 'bhtd", inputs, W_K'},
    "W_V for the keys": {"inputs, W_K": "inputs, W_V"},
    "W_K for the values": {"inputs, W_V": "inputs, W_K"},
}
OF_THE_MODULE = OF_BOTH | {
    "not scaled": {" / D**0.5": ""},
    "scaled by the width": {"D**0.5": "E**0.5"},
    "no mask": {"masked_fill(masked, -torch.inf)": "clone()"},
    "masked with 0": {"-torch.inf": "0.0"},
    "one token of the future visible": {"diagonal=1": "diagonal=2"},
    "the past hidden": {"triu(diagonal=1)": "tril(diagonal=-1)"},
    "swapped projections": {"self.W_Q) + self.b_Q": "self.W_K) + self.b_Q", "self.W_K) + self.b_K": "self.W_Q)"},
    "no b_Q": {" + self.b_Q": ""},
    "no b_V": {" + self.b_V": ""},
    "no b_O": {" + self.b_O": ""},
    "heads reversed": {"context, self.W_O": "context.flip(1), self.W_O"},
}


@pytest.mark.parametrize("bug", OF_THE_FUNCTION)
def test_a_bug_of_the_function_is_caught_by_each_property(bug):
    code = p.page_code(SLUG, "attend", ("attend", OF_THE_FUNCTION[bug]))
    assert [holds for holds in FUNCTION if not p.catches(holds, code)] == []


@pytest.mark.parametrize("bug", OF_THE_MODULE)
def test_a_bug_of_the_module_is_caught_by_both_references(bug):
    code = p.page_code(SLUG, "solution-forward", ("solution-forward", OF_THE_MODULE[bug]))
    assert [holds for holds in MODULE[:2] if not p.catches(holds, code)] == []


@pytest.mark.parametrize("bug", ["no mask", "masked with 0", "one token of the future visible", "the past hidden"])
def test_a_bug_of_the_mask_is_seen_by_the_probe(bug):
    code = p.page_code(SLUG, "solution-forward", ("solution-forward", OF_THE_MODULE[bug]))
    assert p.catches(a_token_moves_its_own_row_and_the_later_ones, code)


@pytest.mark.parametrize(
    ("replacements", "holds"),
    [
        ({"torch.softmax(scores, dim=-1)": "scores.softmax(-1).detach()"}, the_module_has_the_gradients_of_sdpa),
        ({"masked = torch": "self.b_O.data.mul_(2); masked = torch"}, stateless),
        ({"torch.softmax(scores, dim=-1)": "scores.exp() / scores.exp().sum(-1, True)"}, finite_for_large_scores),
        (
            {"torch.ones_like(scores, dtype=torch.bool)": "torch.ones(T, T, device='cpu').bool()"},
            the_mask_follows_the_device,
        ),
    ],
)
def test_every_other_property_catches_a_bug(replacements, holds):
    assert p.catches(holds, p.page_code(SLUG, "solution-forward", ("solution-forward", replacements)))


# -- the parameters ------------------------------------------------------------------------------


def test_the_parameters_are_drawn_with_a_spread_for_their_width_and_the_biases_are_zero():
    p.seed_modules(0)
    state = FORWARD.Projections(num_heads=3, width=64, head_dim=40).state_dict()
    shapes = {"W_Q": (3, 64, 40), "W_K": (3, 64, 40), "W_V": (3, 64, 40), "W_O": (3, 40, 64)}
    shapes |= {"b_Q": (3, 1, 40), "b_K": (3, 1, 40), "b_V": (3, 1, 40), "b_O": (64,)}
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == shapes
    for name, tensor in state.items():
        if name.startswith("b"):
            assert not tensor.any()
        else:
            assert abs(tensor.mean()) < 0.01
            assert abs(tensor.std() * 8 - 1) < 0.05
    assert len({tensor[0, 0, 0].item() for name, tensor in state.items() if name.startswith("W")}) == 4
    assert not torch.equal(state["W_Q"][0], state["W_Q"][1]), "the heads start apart"


# -- the mask of the first exercise --------------------------------------------------------------


def test_the_mask_gives_the_sum_with_the_mask_of_nn_transformer():
    def prove(case):
        scores = case.randn(case.B, case.H, case.T, case.T)
        before = scores.clone()
        bias = nn.Transformer.generate_square_subsequent_mask(case.T, dtype=torch.float64)
        assert torch.equal(MASK.apply_causal_mask(scores), scores + bias)
        assert torch.equal(scores, before)

    p.for_all(SIZES, prove)


def test_the_mask_lets_the_gradient_of_the_visible_scores_through():
    scores = torch.randn(2, 4, 4, requires_grad=True)
    MASK.apply_causal_mask(scores).exp().sum().backward()
    assert torch.allclose(scores.grad, scores.exp().tril())


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


def test_the_reduction_gives_the_numbers_of_the_first_page():
    before = p.page_code("foundations/weighted-average", "contexts")
    ours = p.page_code(SLUG, "reduce")
    assert torch.equal(ours.tokens, before.inputs)
    torch.testing.assert_close(ours.context, before.context)


def test_the_reduction_notices_other_weights():
    bug = {"scores * scale": "0.9 * scores * scale"}
    assert p.run_cell(SLUG, "reduce", ("attend", bug))[1].endswith("False\n")


def test_the_probe_notices_items_that_meet():
    rows = p.run_cell(SLUG, "probe")[1].splitlines()
    assert ["False" in row for row in rows] == [False, True]
    assert "False" not in p.run_cell(SLUG, "probe", ("attend", {"weights, values": "weights, values.flip(0)"}))[1]


def test_the_sum_over_the_keys_of_the_weights_is_1():
    weights = p.page_code(SLUG, "matmul").weights
    torch.testing.assert_close(torch.einsum("bhqk->bhq", weights), torch.ones(weights.shape[:3]))


def test_the_bias_of_the_keys_changes_nothing():
    def prove(case):
        before = case.module(case.inputs)
        case.module.b_K.data += 3
        p.close(case.module(case.inputs), before, tolerance=1e-8)

    p.for_all(modules(FORWARD), prove)


def test_masked_fill_with_an_underscore_changes_the_tensor_of_the_caller():
    scores = torch.ones(2, 2)
    scores.masked_fill_(torch.ones(2, 2).triu(1).bool(), -torch.inf)
    assert scores.isinf().any()


# -- the report ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report():
    return p.run_cell(SLUG, "report")


def outcome(report, given, tolerance=1e-3):
    """For each mistake whether it is noticed, with the weights that are `given`."""
    right = report.run(given)["outputs"]
    found = {}
    for place, mistakes in enumerate(report.MISTAKES):
        for mistake in mistakes:
            outputs = report.run(given, mistake, place)["outputs"]
            found[mistake.strip()] = not torch.allclose(outputs, right, atol=tolerance)
    return found


def test_the_report_says_what_the_prose_says(report):
    assert re.findall(r"(\d+) of (\d+)", report[1]) == [("9", "28"), ("28", "28")]


def test_there_are_28_different_mistakes_in_five_places(report):
    names = report[0]
    assert len(outcome(names, names.ones)) == 28
    assert len(names.MISTAKES) == len(names.STEPS) == 5


def test_the_report_starts_from_a_forward_that_is_right(report):
    names = report[0]
    module = FORWARD.EinsumAttention(names.H, names.E, names.D)
    for given in (names.ones, names.drawn):
        module.load_state_dict(given)
        torch.testing.assert_close(names.run(given)["outputs"], module(names.inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_weights_notice_every_mistake_whatever_the_seed(report, seed):
    names = report[0]
    generator = torch.Generator().manual_seed(seed)
    given = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in names.drawn.items()}
    given |= {name: tensor / names.E**0.5 for name, tensor in given.items() if name.startswith("W")}
    assert [mistake for mistake, noticed in outcome(names, given).items() if not noticed] == []


def test_with_ones_queries_keys_values_and_heads_are_the_same_and_the_softmax_picks_one_key(report):
    names = report[0]
    right = names.run(names.ones)
    assert torch.equal(right["queries"], right["keys"])
    assert torch.equal(right["keys"], right["values"])
    assert torch.equal(right["queries"][:, :1].expand_as(right["queries"]), right["queries"])
    assert right["weights"][:, :, -1].amax(dim=-1).min() > 0.9999
    assert right["scores"][right["scores"].isfinite()].min() > 100
    noticed = outcome(names, names.ones)
    for passes in ("W_Q, W_K = W_K, W_Q", "scores = scores.mT", "scores = scores * D**0.5", "fill = 0.0"):
        assert not noticed[passes]


def test_the_bias_of_the_keys_alone_is_no_mistake_that_a_test_can_notice(report):
    names = report[0]
    right, without = names.run(names.drawn)["outputs"], names.run(names.drawn, "b_K = 0 * b_K", 0)["outputs"]
    assert torch.allclose(right, without, atol=1e-5)


# -- exercise 1 ----------------------------------------------------------------------------------


def future(scores, diagonal=1):
    return torch.ones_like(scores, dtype=torch.bool).triu(diagonal)


def filled(value):
    return lambda scores: scores.masked_fill(future(scores), value)


def cloned_and_filled(scores):
    masked = scores.clone()
    masked[future(scores)] = -torch.inf
    return masked


def row_by_row(scores):
    masked = scores.clone()
    for i in range(scores.shape[-1]):
        masked[..., i, i + 1 :] = -torch.inf
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
    "row by row": row_by_row,
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
}


class TestMask(Exercise):
    SLUG, PART, CHECK, RIGHT, WRONG = SLUG, "-mask", "check_mask", RIGHT_MASKS, WRONG_MASKS


# -- exercise 2 ----------------------------------------------------------------------------------


def changed(replacements):
    """The solution with texts replaced."""
    return p.page_code(SLUG, "solution-forward", ("solution-forward", replacements)).EinsumAttention


def answer(forward):
    return type("EinsumAttention", (FORWARD.Projections,), {"forward": forward})


def projected(self, inputs):
    return [inputs[:, None] @ getattr(self, f"W_{role}") + getattr(self, f"b_{role}") for role in "QKV"]


def by_sdpa(self, inputs):
    context = F.scaled_dot_product_attention(*projected(self, inputs), is_causal=True)
    return torch.einsum("bhqd,hde->bqe", context, self.W_O) + self.b_O


def by_matmul(self, inputs):
    queries, keys, values = projected(self, inputs)
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    weights = MASK.apply_causal_mask(scores).softmax(dim=-1)
    return (weights @ values).transpose(1, 2).flatten(2) @ self.W_O.flatten(0, 1) + self.b_O


def by_einops(self, inputs):
    pattern = "batch token width, head width dim -> batch head token dim"
    queries, keys, values = [
        einops.einsum(inputs, getattr(self, f"W_{role}"), pattern) + getattr(self, f"b_{role}") for role in "QKV"
    ]
    scores = einops.einsum(queries, keys, "b h q d, b h k d -> b h q k") * queries.shape[-1] ** -0.5
    weights = MASK.apply_causal_mask(scores).softmax(dim=-1)
    context = einops.einsum(weights, values, "b h q k, b h k d -> b q h d")
    merged = einops.rearrange(context, "b q h d -> b q (h d)")
    return merged @ einops.rearrange(self.W_O, "h d e -> (h d) e") + self.b_O


def no_class(num_heads, width, head_dim):
    return lambda inputs: inputs


SCORES = 'scores = einsum("bhqd,bhkd->bhqk", queries, keys) / D**0.5'
SOFT = "weights = torch.softmax(scores, dim=-1)"
FILL = "scores = scores.masked_fill(masked, -torch.inf)"
VALUES = 'values = einsum("bte,hed->bhtd", inputs, self.W_V) + self.b_V'
KEYS = 'keys = einsum("bte,hed->bhtd", inputs, self.W_K) + self.b_K'
RIGHT_FORWARDS = {
    "the solution": FORWARD.EinsumAttention,
    "by SDPA": answer(by_sdpa),
    "by matmul": answer(by_matmul),
    "by einops": answer(by_einops),
    "without the bias of the keys, which changes nothing": changed({" + self.b_K": ""}),
}
WRONG_FORWARDS = {
    "returns None": answer(lambda self, inputs: None),
    "returns a list": answer(lambda self, inputs: by_sdpa(self, inputs).tolist()),
    "raises": answer(lambda self, inputs: inputs[len(inputs)]),
    "no module": no_class,
    "returns the inputs": answer(lambda self, inputs: inputs),
    "heads not added": changed({JOIN: '"bhqd,hde->bhqe"'}),
    "tokens added": changed({JOIN: '"bhqd,hde->be"'}),
    "W_Q and W_K swapped": changed(
        {"self.W_Q) + self.b_Q": "self.W_K) + self.b_Q", "self.W_K) + self.b_K": "self.W_Q) + self.b_K"}
    ),
    "W_K and W_V swapped": changed({"self.W_K) +": "self.W_V) +", "self.W_V) + self.b_V": "self.W_K) + self.b_V"}),
    "W_K twice": changed({"self.W_Q) +": "self.W_K) +"}),
    "keys as values": changed({VALUES: "values = keys"}),
    "queries as keys": changed({KEYS: "keys = queries"}),
    "no biases": changed({" + self.b_Q": "", " + self.b_K": "", " + self.b_V": "", " + self.b_O": ""}),
    "no b_Q": changed({" + self.b_Q": ""}),
    "no b_V": changed({" + self.b_V": ""}),
    "no b_O": changed({" + self.b_O": ""}),
    "b_O once per head": changed({"self.b_O": "len(self.W_O) * self.b_O"}),
    "b_K with the queries": changed({"+ self.b_Q": "+ self.b_K"}),
    "weights split the wrong way": changed({"inputs, self.W_Q": "inputs, self.W_Q.reshape(E, H, D).transpose(0, 1)"}),
    "heads of the values reversed": changed({"self.W_V)": "self.W_V.flip(0))"}),
    "heads of the context reversed": changed({"context, self": "context.flip(1), self"}),
    "one head for all": changed({"context, self": "context[:, :1], self"}),
    "W_O of one head for all": changed({"self.W_O)": "self.W_O[:1].expand(H, D, E))"}),
    "W_O averaged": changed({"self.W_O)": "self.W_O.mean(0, True).expand(H, D, E))"}),
    "heads averaged": changed({"context, self": "context / H, self"}),
    "scores transposed": changed({PAIRS: '"bhqd,bhkd->bhkq"'}),
    "scores summed over the heads": changed({PAIRS: '"bhqd,bhkd->bqk"', SOFT: f"{SOFT}[:, None].expand(B, H, T, T)"}),
    "the k of the values lost": changed({MIX: '"bhqk,bhqd->bhqd"'}),
    "weights read by column": changed({MIX: '"bhkq,bhkd->bhqd"'}),
    "weights of one head for all": changed({"weights, values": "weights[:, :1], values"}),
    "not scaled": changed({" / D**0.5": ""}),
    "scaled by the width": changed({"D**0.5": "E**0.5"}),
    "scaled twice": changed({"D**0.5": "D"}),
    "multiplied by the root": changed({"/ D**0.5": "* D**0.5"}),
    "no mask": changed({FILL: "pass"}),
    "mask thrown away": changed({FILL: "scores.masked_fill(masked, -torch.inf)"}),
    "masked with 0": changed({"-torch.inf": "0.0"}),
    "masked with -1e-9": changed({"-torch.inf": "-1e-9"}),
    "token itself hidden": changed({"diagonal=1": "diagonal=0"}),
    "one token of the future visible": changed({"diagonal=1": "diagonal=2"}),
    "the past hidden": changed({"triu(diagonal=1)": "tril(diagonal=-1)"}),
    "masked after the softmax": changed({FILL: "pass", SOFT: f"{SOFT}.masked_fill(masked, 0.0)"}),
    "softmax over the queries": changed({"dim=-1": "dim=-2"}),
    "softmax over the heads": changed({"dim=-1": "dim=1"}),
    "no softmax": changed({SOFT: "weights = scores.nan_to_num(neginf=0.0)"}),
    "the inputs added": changed({"return einsum": "return inputs + einsum"}),
    "the first item for all": changed({VALUES: f"{VALUES}; values = values[:1].expand(B, H, T, D)"}),
    "cut off from the gradient": changed({"return einsum": "self = self.requires_grad_(False); return einsum"}),
    "a bias that grows with each call": changed({SCORES: f"{SCORES}; self.b_O.data += 0.1"}),
}


class TestForward(Exercise):
    SLUG, PART, CHECK, RIGHT, WRONG = SLUG, "-forward", "check_forward", RIGHT_FORWARDS, WRONG_FORWARDS
