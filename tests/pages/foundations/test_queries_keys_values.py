"""Queries, keys, values: the page's code and numbers against PyTorch and plain loops, and roles that are mixed up."""

import importlib.util
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/queries-keys-values"
PAGE, SOLUTION = p.page_code(SLUG, "matrix"), p.page_code(SLUG, "solution")
GIVEN = PAGE.inputs, PAGE.W_query, PAGE.W_key, PAGE.W_value
JOURNEY, ONE = 1, 4  # the rows of two words


def with_roles(case):
    """Queries, keys and values; the values have a width of their own."""
    case.roles = case.randn(case.Tq, case.D), case.randn(case.Tk, case.D), case.randn(case.Tk, case.width)
    return case


def with_matrices(case):
    """Tokens and three matrices, the third of a width of its own."""
    case.matrices = case.randn(case.E, case.D), case.randn(case.E, case.D), case.randn(case.E, case.width)
    case.given = case.randn(case.T, case.E), *case.matrices
    return case


ROLES = p.sizes(Tq=5, Tk=(2, 6), D=4, width=3, seventh=(1, 9)).map(with_roles)
MATRICES = p.sizes(T=(2, 6), E=4, D=3, width=5).map(with_matrices)
SQUARE = p.sizes(T=(2, 6), E=4).map(lambda case: (case.randn(case.T, case.E), *case.randn(3, case.E, case.E)))

# -- references ----------------------------------------------------------------------------------


def by_the_formula(queries, keys, values, scale=None):
    """Contexts and weights by the formula of the page, one Python float at a time."""
    queries, keys, values = (tensor.tolist() for tensor in (queries, keys, values))
    scale = len(keys[0]) ** -0.5 if scale is None else scale
    contexts, weights = [], []
    for query in queries:
        scores = [scale * sum(x * y for x, y in zip(query, key)) for key in keys]
        weights.append([math.exp(score) / sum(map(math.exp, scores)) for score in scores])
        contexts.append([sum(a * x for a, x in zip(weights[-1], column)) for column in zip(*values)])
    return torch.tensor(contexts, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


def project(inputs, *matrices):
    """Queries, keys and values, one Python float at a time."""
    columns = [list(zip(*matrix.tolist())) for matrix in matrices]
    products = [[[sum(map(float.__mul__, row, column)) for column in of] for row in inputs.tolist()] for of in columns]
    return [torch.tensor(product, dtype=torch.float64) for product in products]


def loops(inputs, *matrices):
    return by_the_formula(*project(inputs, *matrices))[0]


def sdpa(inputs, *matrices):
    return F.scaled_dot_product_attention(*(inputs @ matrix for matrix in matrices))


def multihead_attention(inputs, *matrices):
    """`nn.MultiheadAttention` with one head; it wants square matrices, and each transposed."""
    eye = torch.eye(inputs.shape[1], dtype=torch.float64)
    attention = nn.MultiheadAttention(inputs.shape[1], num_heads=1, bias=False, dtype=torch.float64)
    attention.load_state_dict({"in_proj_weight": torch.cat([W.T for W in matrices]), "out_proj.weight": eye})
    return attention(inputs, inputs, inputs)[0].detach()


# -- what holds for the page's `attend(queries, keys, values, scale=None)` -------------------------


def equals_the_formula(attend):
    def prove(case):
        for scale in (None, case.seventh / 7):
            for ours, theirs in zip(attend(*case.roles, scale), by_the_formula(*case.roles, scale), strict=True):
                p.close(ours, theirs)

    p.for_all(ROLES, prove)


def equals_sdpa(attend):
    p.equals_reference(
        lambda case: attend(*case.roles)[0], lambda case: F.scaled_dot_product_attention(*case.roles), ROLES
    )


def the_average_of_ones_is_one(attend):
    p.equals_reference(
        lambda case: attend(*case.roles[:2], torch.ones_like(case.roles[2]))[0],
        lambda case: torch.ones(case.Tq, case.width, dtype=torch.float64),
        ROLES,
    )


def weights_are_blind_to_the_values(attend):
    def prove(case):
        queries, keys, values = case.roles
        weights = attend(*case.roles)[1]
        assert weights.shape == (case.Tq, case.Tk)
        assert torch.equal(attend(queries, keys, 1e3 * values.flip(0))[1], weights)

    p.for_all(ROLES, prove)


def blind_to_the_order_of_the_keys(attend):
    p.equals_reference(
        lambda case: attend(case.roles[0], *(role.flip(0) for role in case.roles[1:]))[0],
        lambda case: attend(*case.roles)[0],
        ROLES,
    )


def one_query_at_a_time(attend):
    p.steps_equal_whole(
        lambda case, i: attend(case.roles[0][i : i + 1], *case.roles[1:])[0], lambda case: attend(*case.roles)[0], ROLES
    )


def stateless(attend):
    p.stateless(lambda case: (attend, case.roles, [role.flip(0) for role in case.roles]), ROLES)


def finite_for_large_scores(attend):
    p.finite_rows(lambda case: attend(1e4 * case.roles[0], *case.roles[1:])[0], ROLES)


OF_ATTEND = [
    equals_the_formula,
    equals_sdpa,
    the_average_of_ones_is_one,
    weights_are_blind_to_the_values,
    blind_to_the_order_of_the_keys,
    one_query_at_a_time,
    stateless,
    finite_for_large_scores,
]

# -- what holds for the solution, `self_attention(inputs, W_query, W_key, W_value)` ----------------


def equals_loops(self_attention):
    p.equals_reference(lambda case: self_attention(*case.given), lambda case: loops(*case.given), MATRICES)


def equals_multihead_attention(self_attention):
    p.equals_reference(lambda given: self_attention(*given), lambda given: multihead_attention(*given), SQUARE)


def gradients_equal_those_of_sdpa(self_attention):
    """The gradients of the tokens and of the three matrices."""
    p.gradients_equal(
        lambda case: self_attention(*case.given), lambda case: sdpa(*case.given), lambda case: case.given, MATRICES
    )


def shuffled_tokens_give_shuffled_contexts(self_attention):
    p.equals_reference(
        lambda case: self_attention(case.given[0].roll(1, 0), *case.matrices).roll(-1, 0),
        lambda case: self_attention(*case.given),
        MATRICES,
    )


def doubled_value_matrix_doubles_the_contexts(self_attention):
    def prove(case):
        inputs, W_query, W_key, W_value = case.given
        assert torch.equal(self_attention(inputs, W_query, W_key, 2 * W_value), 2 * self_attention(*case.given))

    p.for_all(MATRICES, prove)


def only_the_product_of_query_and_key_matrix_counts(self_attention):
    def turned(case):
        inputs, W_query, W_key, W_value = case.given
        M = torch.eye(case.D, dtype=torch.float64) + 0.1 * case.randn(case.D, case.D)
        return self_attention(inputs, W_query @ M, W_key @ M.inverse().T, W_value)

    p.for_all(MATRICES, lambda case: p.close(turned(case), self_attention(*case.given), 1e-9))


def leaves_what_it_is_given(self_attention):
    p.stateless(lambda case: (self_attention, case.given, [case.given[0].flip(0), *case.matrices]), MATRICES)


OF_THE_SOLUTION = [
    equals_loops,
    equals_multihead_attention,
    gradients_equal_those_of_sdpa,
    shuffled_tokens_give_shuffled_contexts,
    doubled_value_matrix_doubles_the_contexts,
    only_the_product_of_query_and_key_matrix_counts,
    leaves_what_it_is_given,
]


@pytest.mark.parametrize("holds", OF_ATTEND)
def test_the_function_of_the_page_has_the_property(holds):
    holds(PAGE.attend)


@pytest.mark.parametrize("holds", OF_THE_SOLUTION)
def test_the_solution_has_the_property(holds):
    holds(SOLUTION.self_attention)


# -- the tokens and the numbers of the book --------------------------------------------------------

QUERIES, KEYS, VALUES = ROLES_OF_THE_PAGE = project(*GIVEN)
CONTEXTS, WEIGHTS = by_the_formula(*ROLES_OF_THE_PAGE)
SCORES = QUERIES @ KEYS.T


def test_the_tokens_are_those_of_the_page_before():
    assert torch.equal(PAGE.inputs, p.page_code("foundations/weighted-average", "contexts").inputs)
    assert (PAGE.T, PAGE.E, PAGE.D) == (6, 3, 2)


def test_the_numbers_are_those_of_the_book():
    p.close(QUERIES[JOURNEY], torch.tensor([0.4306, 1.4551], dtype=torch.float64), 1e-4)
    p.close(SCORES[JOURNEY, JOURNEY], torch.tensor(1.8524, dtype=torch.float64), 1e-4)
    p.close(CONTEXTS[JOURNEY], torch.tensor([0.3061, 0.8210], dtype=torch.float64), 1e-4)


def test_the_projections_of_the_page_are_what_loops_compute():
    for ours, theirs in zip((PAGE.queries, PAGE.keys, PAGE.values), ROLES_OF_THE_PAGE):
        p.close(ours.double(), theirs, 1e-6)


def test_identity_matrices_and_scale_1_give_the_contexts_of_the_page_before():
    before = p.page_code("foundations/weighted-average", "contexts").context
    assert torch.equal(p.page_code(SLUG, "reduce").plain, before)


def test_three_linear_layers_and_one_call_give_the_context_of_journey():
    names = p.page_code(SLUG, "in-torch")
    p.close(names.context.detach().double(), CONTEXTS, 1e-6)
    for layer, matrix in zip((names.q_proj, names.k_proj, names.v_proj), GIVEN[1:], strict=True):
        assert torch.equal(layer(torch.eye(3)), matrix)
        assert layer.bias is None


# -- the claims of the page ------------------------------------------------------------------------


def test_every_query_gives_journey_the_most_since_its_key_is_the_largest_and_no_query_is_negative():
    assert (WEIGHTS.argmax(dim=1) == JOURNEY).all()
    assert (KEYS.argmax(dim=0) == JOURNEY).all()
    assert (QUERIES >= 0).all()


def test_the_other_five_get_77_percent():
    assert f"{1 - WEIGHTS[JOURNEY, JOURNEY]:.2f}" == "0.77"


def test_the_scores_are_symmetric_where_two_matrices_are_equal_and_else_not():
    assert torch.equal(QUERIES @ QUERIES.T, (QUERIES @ QUERIES.T).T)
    assert not torch.allclose(SCORES, SCORES.T, atol=0.1)


def test_the_three_matrices_have_50_million_entries_at_4096():
    assert 3 * 4096 * 4096 // 10**6 == 50


def test_the_projections_cost_more_than_attending_below_one_and_a_half_times_the_width():
    def projecting(T, E, D):
        return 3 * T * E * D

    def attending(T, D):
        return 2 * T * T * D

    assert projecting(149, 100, 7) > attending(149, 7)
    assert projecting(150, 100, 7) == attending(150, 7)
    assert projecting(151, 100, 7) < attending(151, 7)


def test_a_matrix_on_the_wrong_side_raises():
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        PAGE.W_query @ PAGE.inputs


def test_the_value_matrix_doubled_moves_no_weight_and_a_factor_between_query_and_key_matrix_moves_nothing():
    run = p.page_code(SLUG, "probe").run
    context, weights = run(PAGE.inputs)
    doubled, same = run(PAGE.inputs, v=2)
    assert torch.equal(same, weights)
    assert torch.equal(doubled, 2 * context)
    assert all(map(torch.equal, run(PAGE.inputs, q=2, k=0.5), (context, weights)))
    assert all(map(torch.equal, run(PAGE.inputs, q=2), run(PAGE.inputs, k=2)))


def test_with_equal_roles_two_mix_ups_cannot_be_seen():
    mix_ups = p.page_code(SLUG, "mix-ups").mix_ups
    contexts = mix_ups(PAGE.queries, PAGE.queries, PAGE.queries)
    unseen = [name for name in contexts if torch.equal(contexts[name], contexts["right"])]
    assert unseen == ["right", "K as V", "Q, K swapped"]


def test_values_in_the_softmax_give_rows_of_sum_1_and_scores_as_weights_leave_the_range():
    contexts = p.page_code(SLUG, "mix-ups").found
    torch.testing.assert_close(contexts["V in softmax"].sum(dim=-1), torch.ones(6))
    assert (contexts["no softmax"].amax(dim=0) > PAGE.values.amax(dim=0)).all()
    for name in ("right", "K as V", "Q, K swapped"):
        assert (contexts[name] <= torch.maximum(PAGE.keys, PAGE.values).amax(dim=0)).all()


def test_a_wider_value_matrix_shows_keys_in_the_place_of_values():
    assert PAGE.attend(PAGE.queries, PAGE.keys, torch.zeros(6, 5))[0].shape == (6, 5)
    assert PAGE.attend(PAGE.queries, PAGE.keys, PAGE.keys)[0].shape == (6, 2)


def test_a_bias_on_the_keys_moves_no_weight():
    p.equals_reference(
        lambda case: PAGE.attend(case.roles[0], case.roles[1] + case.roles[1].mean(dim=0) + 1, case.roles[2]),
        lambda case: PAGE.attend(*case.roles),
        ROLES,
    )


def test_the_value_matrix_can_be_applied_after_the_average():
    def after(case):
        inputs, W_query, W_key, W_value = case.given
        return PAGE.attend(inputs @ W_query, inputs @ W_key, inputs)[0] @ W_value

    p.equals_reference(after, lambda case: loops(*case.given), MATRICES)


@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_the_model_has_three_linear_layers_with_a_bias_only_where_the_configuration_asks(model):
    folder = Path(importlib.util.find_spec("transformers").submodule_search_locations[0]) / "models" / model
    code = (folder / f"modeling_{model}.py").read_text(encoding="utf-8")
    for name in ("q_proj", "k_proj", "v_proj"):
        assert re.search(rf"self\.{name} = nn\.Linear\([^=]*bias=config\.attention_bias\s*\)", code)
    assert "attention_bias: bool = False" in (folder / f"configuration_{model}.py").read_text(encoding="utf-8")


# -- the exercise --------------------------------------------------------------------------------


def weigh(x, wq, wk):
    return torch.softmax((x @ wq) @ (x @ wk).T / wq.shape[1] ** 0.5, dim=-1)


def right(x, wq, wk, wv):
    return weigh(x, wq, wk) @ x @ wv


def scored(x, wq, wk):
    return (x @ wq) @ (x @ wk).T / wq.shape[1] ** 0.5


def scaled_by(scale):
    return lambda x, *W: F.scaled_dot_product_attention(*(x @ w for w in W), scale=scale(x, *W))


def one_after_the_other(x, wq, wk, wv):
    rows = [torch.softmax((x @ wk) @ (wq.T @ token) / wq.shape[1] ** 0.5, 0) for token in x]
    return torch.stack([sum(a * value for a, value in zip(row, x @ wv)) for row in rows])


def fits(wrong, otherwise):
    """The wrong line for the sizes that it takes, another for the rest."""

    def attention(*given):
        try:
            return wrong(*given)
        except RuntimeError:
            return otherwise(*given)

    return attention


RIGHT = {
    "the value matrix last": right,
    "one call": sdpa,
    "the function of the page": lambda x, wq, wk, wv: PAGE.attend(x @ wq, x @ wk, x @ wv)[0],
    "one query after the other": one_after_the_other,
    "one matrix for the scores": lambda x, wq, wk, wv: (
        torch.softmax(x @ (wq @ wk.T / wq.shape[1] ** 0.5) @ x.T, -1) @ (x @ wv)
    ),
    "einsum": lambda x, wq, wk, wv: torch.einsum("ts,se,ed->td", weigh(x, wq, wk), x, wv),
    "queries scaled": lambda x, wq, wk, wv: F.scaled_dot_product_attention(
        x @ wq / wq.shape[1] ** 0.5, x @ wk, x @ wv, scale=1.0
    ),
}
WRONG = {
    "returns None": lambda *given: None,
    "raises": lambda x, wq, wk, wv: x @ wq @ wk,
    "keys as values": lambda x, wq, wk, wv: sdpa(x, wq, wk, wk),
    "keys as values where they fit": lambda x, wq, wk, wv: sdpa(x, wq, wk, wk if wk.shape == wv.shape else wv),
    "values as keys where they fit": lambda x, wq, wk, wv: sdpa(x, wq, wv if wk.shape == wv.shape else wk, wv),
    "queries and keys swapped": lambda x, wq, wk, wv: sdpa(x, wk, wq, wv),
    "queries as keys": lambda x, wq, wk, wv: sdpa(x, wq, wq, wv),
    "keys as queries": lambda x, wq, wk, wv: sdpa(x, wk, wk, wv),
    "tokens as values": lambda x, wq, wk, wv: weigh(x, wq, wk) @ x,
    "tokens as values where they fit": lambda x, wq, wk, wv: (
        weigh(x, wq, wk) @ x if wv.shape[0] == wv.shape[1] else right(x, wq, wk, wv)
    ),
    "tokens as queries and keys": lambda x, wq, wk, wv: F.scaled_dot_product_attention(x, x, x @ wv),
    "matrices transposed where they fit": fits(lambda x, *W: sdpa(x, *(w.T for w in W)), right),
    "matrices on the left where they fit": fits(
        lambda x, *W: F.scaled_dot_product_attention(*(w @ x for w in W)), right
    ),
    "values in the softmax": lambda x, wq, wk, wv: torch.softmax(scored(x, wq, wk) @ x @ wv, dim=-1),
    "scores as weights": lambda x, wq, wk, wv: scored(x, wq, wk) @ x @ wv,
    "not scaled": scaled_by(lambda *given: 1.0),
    "scaled by D": scaled_by(lambda x, wq, wk, wv: 1 / wq.shape[1]),
    "scaled by the width of the tokens": scaled_by(lambda x, wq, wk, wv: wq.shape[0] ** -0.5),
    "scaled by the width of the values": scaled_by(lambda x, wq, wk, wv: wv.shape[1] ** -0.5),
    "scaled by the number of tokens": scaled_by(lambda x, wq, wk, wv: len(x) ** -0.5),
    "multiplied by the root": scaled_by(lambda x, wq, wk, wv: wq.shape[1] ** 0.5),
    "scaled twice": scaled_by(lambda x, wq, wk, wv: wq.shape[1] ** -1.0),
    "scaled after the softmax": lambda x, wq, wk, wv: (
        torch.softmax((x @ wq) @ (x @ wk).T, -1) / wq.shape[1] ** 0.5 @ x @ wv
    ),
    "softmax over the queries": lambda x, wq, wk, wv: torch.softmax(scored(x, wq, wk), dim=0) @ x @ wv,
    "softmax over all scores": lambda x, wq, wk, wv: scored(x, wq, wk).flatten().softmax(0).view(len(x), -1) @ x @ wv,
    "softmax twice": lambda x, wq, wk, wv: weigh(x, wq, wk).softmax(-1) @ x @ wv,
    "exponentials not divided": lambda x, wq, wk, wv: scored(x, wq, wk).exp() @ x @ wv,
    "exponentials that overflow": lambda x, wq, wk, wv: (
        scored(x, wq, wk).exp() / scored(x, wq, wk).exp().sum(-1, keepdim=True) @ x @ wv
    ),
    "weights transposed": lambda x, wq, wk, wv: weigh(x, wq, wk).T @ x @ wv,
    "the weights": lambda x, wq, wk, wv: weigh(x, wq, wk),
    "context and weights": lambda x, wq, wk, wv: (right(x, wq, wk, wv), weigh(x, wq, wk)),
    "a list": lambda *given: right(*given).tolist(),
    "an array": lambda *given: right(*given).numpy(),
    "float64": lambda *given: right(*(tensor.double() for tensor in given)),
    "rounded to float16": lambda *given: right(*given).half(),
    "context transposed": lambda *given: right(*given).T,
    "a batch axis": lambda *given: right(*given)[None],
    "a plain mean": lambda x, wq, wk, wv: (x @ wv).mean(0).expand(len(x), -1),
    "best match only": lambda x, wq, wk, wv: (x @ wv)[scored(x, wq, wk).argmax(-1)],
    "causal": lambda x, *W: F.scaled_dot_product_attention(*(x @ w for w in W), is_causal=True),
    "the first query for all": lambda *given: right(*given)[:1].expand(len(given[0]), -1),
    "cosines": lambda x, wq, wk, wv: (
        torch.softmax(F.normalize(x @ wq, dim=-1) @ F.normalize(x @ wk, dim=-1).T, -1) @ x @ wv
    ),
    "scores cut off at 0": lambda x, wq, wk, wv: scored(x, wq, wk).relu().softmax(-1) @ x @ wv,
    "weights times value summed away": lambda x, wq, wk, wv: (weigh(x, wq, wk) @ x @ wv).sum(-1),
    "tokens changed in place": lambda x, wq, wk, wv: right(x.mul_(2), wq, wk, wv),
}


def test_the_check_tries_sizes_that_differ_that_are_equal_and_that_overflow():
    tried = []

    def attention(inputs, *matrices):
        tried.append((inputs, *matrices))
        return sdpa(inputs, *matrices)

    p.verdict(SOLUTION.check_attention, attention)
    sizes = [(*inputs.shape, W_key.shape[1], W_value.shape[1]) for inputs, _, W_key, W_value in tried]
    assert sizes == [(5, 3, 2, 4), (4, 4, 4, 4), (9, 64, 48, 7)]
    scores = scored(*tried[2][:3])
    assert scores.exp().isinf().any()


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attention", RIGHT, WRONG
