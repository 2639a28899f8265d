"""Causal masks: the page's function and module against PyTorch and plain loops, and the bugs that let the future in."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.bias import causal_lower_right

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "masks/causal"
PAGE, SOLUTION = p.page_code(SLUG, "module"), p.page_code(SLUG, "solution")
LIMIT = 8
KINDS = ["attend", "module"]  # the two cells of the page that compute causal attention
SIZES = p.sizes(B=3, T=6, E=3, D=4)
CACHED = p.sizes(Tq=4, earlier=(0, 3), D=3).map(lambda case: (case.Tq, case.randn(3, case.Tq + case.earlier, case.D)))

# -- the page's two ways to attend, as functions of a batch of tokens (B, T, E) --------------------


def cases(code, kind, same_width=False):
    """Draw `attend`, which takes a batch, the `batch`, what its tokens are in each role, and lengths of its items."""

    def build(case):
        case.batch = case.randn(case.B, case.T, case.E)
        case.lengths = [1 + (case.seed + item) % case.T for item in range(case.B)]
        if kind == "attend":
            case.attend = lambda batch: torch.stack([code.attend(x, corner(code.masked, x))[0] for x in batch])
            case.roles, case.scale = (nn.Identity(), nn.Identity(), nn.Identity()), 1.0
        else:
            p.seed_modules(case.seed)
            case.D = case.E if same_width else case.D
            case.attend = code.CausalAttention(case.E, case.D, LIMIT).double()
            case.roles, case.scale = (case.attend.to_queries, case.attend.to_keys, case.attend.to_values), None
        return case

    return SIZES.map(build)


def corner(masked, tokens):
    return masked[: len(tokens), : len(tokens)]


def roles_of(case):
    return [role(case.batch) for role in case.roles]


# -- references ----------------------------------------------------------------------------------


def by_the_formula(case):
    """One Python float at a time; the sum over j stops at i."""
    queries, keys, values = (tensor.tolist() for tensor in roles_of(case))
    scale = case.scale or case.D**-0.5
    contexts = []
    for item in range(case.B):
        for i, query in enumerate(queries[item]):
            scores = [scale * sum(x * y for x, y in zip(query, key)) for key in keys[item][: i + 1]]
            weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
            contexts.append([sum(a * x for a, x in zip(weights, column)) for column in zip(*values[item])])
    return torch.tensor(contexts, dtype=torch.float64).unflatten(0, (case.B, case.T))


def sdpa(case):
    return F.scaled_dot_product_attention(*roles_of(case), is_causal=True, scale=case.scale)


def multihead_attention(case):
    """`nn.MultiheadAttention` with one head of the tokens' width; it divides by √E, so that is put back."""
    eye = torch.eye(case.E, dtype=torch.float64)
    attention = nn.MultiheadAttention(case.E, num_heads=1, bias=False, batch_first=True, dtype=torch.float64)
    weights = [getattr(role, "weight", eye) for role in case.roles]
    weights[0] = weights[0] * ((case.scale or case.E**-0.5) * case.E**0.5)
    attention.load_state_dict({"in_proj_weight": torch.cat(weights), "out_proj.weight": eye})
    hidden = torch.ones(case.T, case.T, dtype=torch.bool).triu(diagonal=1)
    return attention(case.batch, case.batch, case.batch, attn_mask=hidden)[0]


@pytest.mark.parametrize("reference", [by_the_formula, sdpa, multihead_attention])
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_computes_what_an_independent_reference_computes(kind, reference):
    same_width = reference is multihead_attention
    p.equals_reference(lambda case: case.attend(case.batch), reference, cases(PAGE, kind, same_width))


def test_all_three_ways_to_mask_give_the_weights_of_the_softmax_over_the_past():
    three_ways = p.page_code(SLUG, "three-ways").three_ways

    def prove(case):
        scores = case.randn(case.T, case.T)
        past = [F.pad(scores[i, : i + 1].softmax(dim=0), (0, case.T - i - 1)) for i in range(case.T)]
        for weights in three_ways(scores):
            p.close(weights, torch.stack(past))

    p.for_all(p.sizes(T=6), prove)


# -- what holds for both ways --------------------------------------------------------------------


def equals_sdpa(code, kind):
    p.equals_reference(lambda case: case.attend(case.batch), sdpa, cases(code, kind))


def gradients_equal_those_of_sdpa(code, kind):
    def leaves(case):
        return [case.batch, *(case.attend.parameters() if kind == "module" else [])]

    p.gradients_equal(lambda case: case.attend(case.batch), sdpa, leaves, cases(code, kind))


def the_start_of_a_sequence_equals_that_start_alone(code, kind):
    """The items of a batch end at different lengths, and what comes after them is padding."""

    def padded(case):
        return [rows[:length] for rows, length in zip(case.attend(case.batch), case.lengths)]

    def alone(case, item):
        return case.attend(case.batch[item : item + 1, : case.lengths[item]])[0]

    p.padded_equals_alone(padded, alone, cases(code, kind))


def a_token_moves_its_own_row_and_the_later_ones(code, kind):
    def function(case):
        may_move = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: case.attend(tokens[None])[0], case.batch[0], may_move

    p.reaches_exactly(function, cases(code, kind))


def row_0_is_value_0(code, kind):
    p.equals_reference(
        lambda case: case.attend(case.batch)[:, 0], lambda case: roles_of(case)[2][:, 0], cases(code, kind)
    )


def stateless(code, kind):
    """Between two calls comes a batch whose last token is padding, all zeros."""

    def function(case):
        padded = case.batch.clone()
        padded[:, -1] = 0
        return case.attend, [case.batch], [padded]

    p.stateless(function, cases(code, kind))


def finite_for_large_scores(code, kind):
    p.finite_rows(lambda case: case.attend(1e3 * case.batch), cases(code, kind))


PROPERTIES = [
    equals_sdpa,
    gradients_equal_those_of_sdpa,
    the_start_of_a_sequence_equals_that_start_alone,
    a_token_moves_its_own_row_and_the_later_ones,
    row_0_is_value_0,
    stateless,
    finite_for_large_scores,
]

# -- what holds for the module -------------------------------------------------------------------


def the_checkpoint_fits_another_length(code, kind):
    state = code.CausalAttention(3, 2, LIMIT).state_dict()
    code.CausalAttention(3, 2, 2 * LIMIT).load_state_dict(state)


def the_mask_moves_along_and_stays_boolean(code, kind):
    attention = code.CausalAttention(3, 2, LIMIT).half()
    assert attention.masked.dtype == torch.bool
    assert attention.to("meta").masked.is_meta


def a_sequence_fits_up_to_the_limit_and_is_refused_beyond(code, kind):
    attention = code.CausalAttention(3, 2, LIMIT)
    assert attention(torch.randn(4, LIMIT, 3)).shape == (4, LIMIT, 2)
    with pytest.raises(ValueError, match=f"{LIMIT + 1} tokens, but context_length is {LIMIT}"):
        attention(torch.randn(4, LIMIT + 1, 3))


OF_THE_MODULE = [
    the_checkpoint_fits_another_length,
    the_mask_moves_along_and_stays_boolean,
    a_sequence_fits_up_to_the_limit_and_is_refused_beyond,
]

# -- the bugs ------------------------------------------------------------------------------------

FILL, SOFTMAX = "scores = scores.masked_fill(masked, -torch.inf)", "weights = torch.softmax(scores, dim=-1)"
LATE = "weights = torch.softmax(scores, dim=-1) * hidden.logical_not()"
DIVIDED = "weights = weights / weights.sum(dim=-1, keepdim=True)"
BUFFER = 'self.register_buffer("masked", ones.triu(diagonal=1), persistent=False)'
CORNER = "masked = self.masked[:T, :T]"
LEAK = [
    equals_sdpa,
    the_start_of_a_sequence_equals_that_start_alone,
    a_token_moves_its_own_row_and_the_later_ones,
    row_0_is_value_0,
]
BUGS = {  # what the bug makes of the lines of both cells, and the properties that catch it
    "filled scores thrown away": ({FILL: "scores.masked_fill(masked, -torch.inf)"}, LEAK),
    "softmax over the queries": ({"dim=-1": "dim=-2"}, LEAK),
    "token itself hidden": ({"diagonal=1": "diagonal=0"}, [*LEAK, finite_for_large_scores]),
    "one token of the future visible": ({"diagonal=1": "diagonal=2"}, LEAK),
    "polarity inverted": ({"fill(masked": "fill(~masked"}, [*LEAK, finite_for_large_scores]),
    "filled with 0": ({"-torch.inf": "0.0"}, LEAK),
    "weights masked after the softmax": ({FILL: "hidden = masked", SOFTMAX: LATE}, LEAK),
    "weights masked and divided again": (
        {FILL: "hidden = masked", SOFTMAX: f"{LATE}; {DIVIDED}"},
        [finite_for_large_scores],
    ),
    "minus infinity in the weights": (
        {FILL: "hidden = masked", SOFTMAX: f"{SOFTMAX}.masked_fill(hidden, -torch.inf)"},
        [*LEAK, finite_for_large_scores],
    ),
}
BUGS_OF_THE_MODULE = {
    "weights cut from the gradient": ({SOFTMAX: f"{SOFTMAX}.detach()"}, [gradients_equal_those_of_sdpa]),
    "not scaled": ({" / D**0.5": ""}, [equals_sdpa]),
    "scaled by the width of a token": ({"D**0.5": "E**0.5"}, [equals_sdpa]),
    "keys as values": ({"weights @ values": "weights @ keys"}, [equals_sdpa, row_0_is_value_0]),
    "queries as keys": ({"queries @ keys.mT": "queries @ queries.mT"}, [equals_sdpa]),
    "lower corner of the buffer": ({CORNER: "masked = self.masked[-T:, :T]"}, LEAK),
    "buffer not cut": ({CORNER: "masked = self.masked"}, LEAK),
    "buffer changed in place": ({CORNER: f"{CORNER}; masked |= (inputs == 0).all(dim=-1).any(dim=0)"}, [stateless]),
    "mask in the checkpoint": ({"persistent=False": "persistent=True"}, [the_checkpoint_fits_another_length]),
    "mask a plain attribute": (
        {BUFFER: "self.masked = ones.triu(diagonal=1)"},
        [the_mask_moves_along_and_stays_boolean],
    ),
    "length not checked": ({"limit < T": "limit < 0"}, [a_sequence_fits_up_to_the_limit_and_is_refused_beyond]),
    "length off by one": ({"limit < T": "limit <= T"}, [a_sequence_fits_up_to_the_limit_and_is_refused_beyond]),
}
ALL_BUGS = {("attend", bug): BUGS[bug] for bug in BUGS}
ALL_BUGS |= {("module", bug): entry for bug, entry in (BUGS | BUGS_OF_THE_MODULE).items()}


@pytest.mark.parametrize("holds", PROPERTIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_the_property(kind, holds):
    holds(PAGE, kind)


@pytest.mark.parametrize("holds", OF_THE_MODULE)
def test_the_module_has_the_property(holds):
    holds(PAGE, "module")


@pytest.mark.parametrize(("kind", "bug"), ALL_BUGS)
def test_a_known_bug_is_caught_by_the_properties_that_the_table_names(kind, bug):
    replacements, catching = ALL_BUGS[kind, bug]
    code = p.page_code(SLUG, "module", (kind, replacements))
    assert catching
    assert [holds for holds in catching if not p.catches(holds, code, kind)] == []


@pytest.mark.parametrize("holds", PROPERTIES + OF_THE_MODULE)
def test_every_property_catches_a_bug(holds):
    assert any(holds in catching for _, catching in ALL_BUGS.values())


# -- the mask of the exercise: the newest queries on a cache of keys and values --------------------


def newest_rows(mask, case):
    Tq, (queries, keys, values) = case
    hidden = mask(Tq, keys.shape[0])
    return F.scaled_dot_product_attention(queries[-Tq:], keys, values, attn_mask=~hidden)


def cache_equals_full(mask):
    def full(case):
        Tq, roles = case
        return F.scaled_dot_product_attention(*roles, is_causal=True)[-Tq:]

    p.equals_reference(lambda case: newest_rows(mask, case), full, CACHED)


def token_by_token_equals_full(mask):
    def step(case, i):
        queries, keys, values = case[1][:, : i + 1]
        return newest_rows(mask, (1, (queries, keys, values)))

    p.steps_equal_whole(step, lambda case: F.scaled_dot_product_attention(*case[1], is_causal=True), CACHED)


def equals_the_bias_of_torch(mask):
    def bias(case):
        Tq, (queries, keys, values) = case
        lower_right = causal_lower_right(Tq, len(keys))
        rows = (tensor[None, None] for tensor in (queries[-Tq:], keys, values))
        return F.scaled_dot_product_attention(*rows, attn_mask=lower_right)[0, 0]

    p.equals_reference(lambda case: newest_rows(mask, case), bias, CACHED)


MASK_PROPERTIES = [cache_equals_full, token_by_token_equals_full, equals_the_bias_of_torch]
OFFSET = "num_keys - num_queries + 1"
MASK_BUGS = {
    "top left": ({OFFSET: "1"}, MASK_PROPERTIES),
    "token itself hidden": ({OFFSET: "num_keys - num_queries"}, MASK_PROPERTIES),
    "one token of the future visible": ({OFFSET: "num_keys - num_queries + 2"}, [cache_equals_full]),
    "wrong side": ({OFFSET: "num_queries - num_keys + 1"}, MASK_PROPERTIES),
    "polarity inverted": ({"return ones": "return ~ones"}, MASK_PROPERTIES),
}


@pytest.mark.parametrize("holds", MASK_PROPERTIES)
def test_the_solution_has_the_property(holds):
    holds(SOLUTION.causal_mask)


@pytest.mark.parametrize("bug", MASK_BUGS)
def test_a_known_bug_of_the_mask_is_caught(bug):
    replacements, catching = MASK_BUGS[bug]
    mask = p.page_code(SLUG, "solution", ("solution", replacements)).causal_mask
    assert [holds for holds in catching if not p.catches(holds, mask)] == []


# -- the claims of the page ----------------------------------------------------------------------


@pytest.mark.parametrize("bug", BUGS)
def test_the_probe_of_the_page_sees_the_bug(bug):
    assert p.run_cell(SLUG, "leak", ("attend", BUGS[bug][0]))[1].endswith("False\n")


def test_with_an_empty_mask_the_contexts_are_those_of_the_page_before():
    before = p.page_code("foundations/weighted-average", "contexts")
    assert torch.equal(PAGE.inputs, before.inputs)
    assert torch.equal(p.page_code(SLUG, "reduce").full, before.context)


def test_a_mask_keeps_the_proportion_of_the_weights_that_are_left():
    full = p.page_code("foundations/weighted-average", "contexts").weights
    _, causal = PAGE.attend(PAGE.inputs, PAGE.masked)
    for weights in (full, causal):
        assert f"{weights[1, 1] / weights[1, 0]:.2f}" == "1.72"


def test_the_bars_of_the_picture_are_the_scores_and_the_weights_of_token_3():
    picture = (p.ROOT / "docs/assets/causal-wall.svg").read_text(encoding="utf-8")
    scores, weights = (
        torch.tensor([float(height) for height in re.findall(rf'<rect class="{ink}".* height="([\d.]+)"', picture)])
        for ink in ("muted", "accent")
    )
    inputs = PAGE.inputs.cpu()
    assert torch.allclose(scores / 62, inputs[3] @ inputs.T, atol=1e-3)
    assert torch.allclose(weights / 200, PAGE.attend(PAGE.inputs, PAGE.masked)[1][3, :4].cpu(), atol=1e-3)


def test_of_36_scores_15_are_thrown_away():
    assert (PAGE.masked.numel(), PAGE.masked.sum()) == (36, 15)


def test_without_the_diagonal_row_0_is_nan():
    context, _ = PAGE.attend(PAGE.inputs, torch.ones_like(PAGE.masked).triu(diagonal=0))
    assert context[0].isnan().all()
    assert context[1:].isfinite().all()


def test_minus_infinity_among_the_weights_comes_out_as_minus_infinity_or_nan():
    values = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    weights = torch.tensor([[0.5, -torch.inf]])
    assert (weights @ values).tolist() == [[-math.inf, -math.inf]]
    assert (weights @ values.flip(0))[0, 1].isnan()


# -- the exercise --------------------------------------------------------------------------------


def triangle(q, k, offset=1, dtype=torch.bool):
    """True from `offset` keys beyond the place of the query on."""
    return torch.ones(q, k, dtype=dtype).triu(k - q + offset)


def top_left(q, k):
    return torch.ones(q, k, dtype=torch.bool).triu(1)


def nothing(q, k):
    return torch.zeros(q, k, dtype=torch.bool)


RIGHT = {
    "triangle": triangle,
    "rows of a square": lambda q, k: top_left(k, k)[k - q :],
    "positions compared": lambda q, k: torch.arange(k) > torch.arange(k - q, k)[:, None],
    "two loops": lambda q, k: torch.tensor([[j > i + k - q for j in range(k)] for i in range(q)]),
    "what is not below": lambda q, k: ~torch.ones(q, k, dtype=torch.bool).tril(k - q),
}
WRONG = {
    "returns None": lambda q, k: None,
    "a nested list": lambda q, k: triangle(q, k).tolist(),
    "raises": lambda q, k: top_left(q, k)[k + 1],
    "a square of the keys": lambda q, k: top_left(k, k),
    "transposed": lambda q, k: top_left(k, q).triu(k - q + 1),
    "a batch axis": lambda q, k: triangle(q, k)[None],
    "floats 0 and 1": lambda q, k: triangle(q, k, dtype=torch.float32),
    "floats 0 and minus infinity": lambda q, k: torch.zeros(q, k).masked_fill(triangle(q, k), -torch.inf),
    "integers": lambda q, k: triangle(q, k, dtype=torch.int64),
    "polarity inverted": lambda q, k: ~triangle(q, k),
    "top left": top_left,
    "token itself hidden": lambda q, k: triangle(q, k, offset=0),
    "one token of the future visible": lambda q, k: triangle(q, k, offset=2),
    "the wrong side": lambda q, k: torch.ones(q, k, dtype=torch.bool).triu(q - k + 1),
    "the past hidden": lambda q, k: torch.ones(q, k, dtype=torch.bool).tril(k - q - 1),
    "nothing hidden": nothing,
    "everything hidden": lambda q, k: ~nothing(q, k),
    "top left but for one query": lambda q, k: nothing(q, k) if q == 1 else top_left(q, k),
    "top left between one query and all": lambda q, k: top_left(q, k) if 1 < q < k else triangle(q, k),
    "rows flipped": lambda q, k: triangle(q, k).flip(0),
    "columns flipped": lambda q, k: triangle(q, k).flip(1),
    "offset k // q": lambda q, k: torch.ones(q, k, dtype=torch.bool).triu(k // q),
    "offset k - 1": lambda q, k: torch.ones(q, k, dtype=torch.bool).triu(k - 1),
    "an offset of three at most": lambda q, k: torch.ones(q, k, dtype=torch.bool).triu(min(k - q, 3) + 1),
    "six keys at most": lambda q, k: top_left(6, 6)[k - q : k, :k],
    "last row only": lambda q, k: torch.cat([nothing(q - 1, k), top_left(1, k).triu(k)]),
    "a numpy array": lambda q, k: triangle(q, k).numpy(),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_mask", RIGHT, WRONG
