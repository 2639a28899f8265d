"""Attention is a weighted average: the page's code against PyTorch, the three equations, and what the page claims."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/weighted-average"
SOLUTION, PAGE = p.page_code(SLUG, "solution"), p.page_code(SLUG, "columns")
CASES = p.sizes(Tq=5, Tk=6, E=4).map(lambda case: (case.randn(case.Tq, case.E), case.randn(case.Tk, case.E)))
TOKENS = p.sizes(T=(2, 6), E=4).map(lambda case: 2 * case.randn(case.T, case.E))

# -- references ----------------------------------------------------------------------------------


def by_the_equations(queries, inputs):
    """The three equations of the page, one Python float at a time."""
    contexts = []
    for query in queries.tolist():
        scores = [sum(x * y for x, y in zip(query, key)) for key in inputs.tolist()]
        total = sum(map(math.exp, scores))
        weights = [math.exp(score) / total for score in scores]
        contexts.append([sum(a * x for a, x in zip(weights, column)) for column in zip(*inputs.tolist())])
    return torch.tensor(contexts, dtype=torch.float64)


def sdpa(queries, inputs):
    return F.scaled_dot_product_attention(queries, inputs, inputs, scale=1.0)


def multihead_attention(queries, inputs):
    """`nn.MultiheadAttention` with one head, no projections and, since it divides by √E, queries that are larger."""
    width = inputs.shape[1]
    eye = torch.eye(width, dtype=torch.float64)
    attention = nn.MultiheadAttention(width, num_heads=1, bias=False, dtype=torch.float64)
    attention.load_state_dict({"in_proj_weight": eye.repeat(3, 1), "out_proj.weight": eye})
    return attention(queries * width**0.5, inputs, inputs)[0].detach()


REFERENCES = [by_the_equations, sdpa, multihead_attention]


@pytest.mark.parametrize("reference", REFERENCES)
def test_the_solution_is_what_an_independent_reference_computes(reference):
    p.equals_reference(lambda case: SOLUTION.attend(*case), lambda case: reference(*case), CASES)


@pytest.mark.parametrize("reference", REFERENCES)
def test_the_contexts_of_the_page_are_what_an_independent_reference_computes(reference):
    p.equals_reference(contexts, lambda tokens: reference(tokens, tokens), TOKENS)


def test_one_query_alone_gets_the_row_that_all_queries_together_give_it():
    p.equals_reference(lambda tokens: p.page_code(SLUG, "context", tokens=tokens).context, one_row, TOKENS)


def test_the_matrix_of_scores_holds_what_two_loops_compute():
    def prove(tokens):
        matrix = p.page_code(SLUG, "matrix", tokens=tokens.float())
        lists = tokens.float().tolist()
        loops = torch.tensor([[sum(x * y for x, y in zip(one, other)) for other in lists] for one in lists])
        p.close(matrix.scores, loops, 1e-5)
        assert torch.allclose(matrix.looped, matrix.scores)

    p.for_all(TOKENS, prove)


def contexts(tokens, bug=None):
    """The contexts that the page computes for all its tokens, here for other tokens."""
    return p.page_code(SLUG, "contexts", bug, tokens).context


def one_row(tokens):
    return sdpa(tokens[1:2], tokens)[0]


# -- what holds for `attend(queries, inputs)`, the solution of the exercise ------------------------


def equals_sdpa(attend):
    p.equals_reference(lambda case: attend(*case), lambda case: sdpa(*case), CASES)


def one_query_at_a_time(attend):
    p.steps_equal_whole(lambda case, i: attend(case[0][i : i + 1], case[1]), lambda case: attend(*case), CASES)


def the_average_of_ones_is_one(attend):
    """The last entry of every query is 0 and that of every token is 1, so it has no part in the scores."""

    def last_column(case):
        queries, inputs = case
        zeros, ones = torch.zeros_like(queries[:, :1]), torch.ones_like(inputs[:, :1])
        return attend(torch.cat([queries, zeros], dim=1), torch.cat([inputs, ones], dim=1))[:, -1]

    p.equals_reference(last_column, lambda case: torch.ones_like(case[0][:, 0]), CASES)


def blind_to_order(attend):
    p.equals_reference(lambda case: attend(case[0], case[1].flip(0)), lambda case: attend(*case), CASES)


def every_row_reaches_every_token(attend):
    def function(case):
        queries, inputs = case
        return lambda inputs: attend(queries, inputs), inputs, torch.ones(len(queries), len(inputs), dtype=torch.bool)

    p.reaches_exactly(function, CASES)


def a_query_moves_its_own_row(attend):
    def function(case):
        queries, inputs = case
        several = torch.cat([inputs, inputs + 1])  # with a single token the weight is 1, whatever the query
        return lambda queries: attend(queries, several), queries, torch.eye(len(queries), dtype=torch.bool)

    p.reaches_exactly(function, CASES)


def stateless(attend):
    p.stateless(lambda case: (attend, case, [tensor.flip(0) for tensor in case]), CASES)


def finite_for_large_scores(attend):
    p.finite_rows(lambda case: attend(1e4 * case[0], case[1]), CASES)


PROPERTIES = [
    equals_sdpa,
    one_query_at_a_time,
    the_average_of_ones_is_one,
    blind_to_order,
    every_row_reaches_every_token,
    a_query_moves_its_own_row,
    stateless,
    finite_for_large_scores,
]


@pytest.mark.parametrize("holds", PROPERTIES)
def test_the_solution_has_the_property(holds):
    holds(SOLUTION.attend)


# -- the claims of the page ----------------------------------------------------------------------

SQUARE_BUGS = {
    "weights transposed": ("contexts", {"weights @ inputs": "weights.T @ inputs"}),
    "softmax over the columns": ("contexts", {"inputs.T, dim=-1": "inputs.T, dim=0"}),
}


def with_ones(tokens):
    """Tokens with a last column of ones. It adds 1 to every score, which no weight notices."""
    return torch.cat([tokens, torch.ones_like(tokens[:, :1])], dim=1)


@pytest.mark.parametrize("bug", SQUARE_BUGS)
def test_values_of_one_show_the_column_sums_where_a_column_is_taken_for_an_average(bug):
    def prove(tokens):
        ones, sums = torch.ones(len(tokens), dtype=torch.float64), page_weights(tokens).sum(dim=0)
        p.close(contexts(with_ones(tokens))[:, -1], ones)
        p.close(contexts(with_ones(tokens), SQUARE_BUGS[bug])[:, -1], sums)

    p.for_all(TOKENS, prove)


@pytest.mark.parametrize("bug", SQUARE_BUGS)
def test_a_column_taken_for_an_average_fits_every_square_and_equals_no_reference(bug):
    with pytest.raises(AssertionError, match="not close"):
        p.equals_reference(lambda tokens: contexts(tokens, SQUARE_BUGS[bug]), lambda x: sdpa(x, x), TOKENS)


def test_a_transpose_too_many_raises_where_there_are_more_queries_than_tokens():
    attend = p.page_code(SLUG, "solution", ("solution", {"weights @": "weights.T @"})).attend
    attend(torch.randn(4, 3), torch.randn(4, 3))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        attend(torch.randn(5, 3), torch.randn(4, 3))


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_first_score_adds_up_as_the_page_writes_it(language):
    products = (PAGE.inputs[1] * PAGE.inputs[0]).tolist()
    line = " + ".join(f"{product:.4f}" for product in products) + f" = {sum(products):.4f}"
    assert line in (p.ROOT / "docs" / language / f"{SLUG}.md").read_text(encoding="utf-8")


def test_a_context_never_leaves_the_range_of_the_tokens():
    def prove(tokens):
        lowest, highest = tokens.aminmax(dim=0)
        found = contexts(tokens)
        assert ((lowest - 1e-12 <= found) & (found <= highest + 1e-12)).all()

    p.for_all(TOKENS, prove)


def test_every_row_of_weights_adds_up_to_one():
    p.equals_reference(lambda x: page_weights(x).sum(dim=-1), lambda x: torch.ones(len(x), dtype=torch.float64), TOKENS)


def test_the_range_of_the_tokens_does_not_betray_the_wrong_context_of_the_page():
    wrong, inputs = PAGE.wrong[1], PAGE.inputs
    assert ((inputs.amin(dim=0) <= wrong) & (wrong <= inputs.amax(dim=0))).all()


def test_the_scores_of_the_page_are_symmetric_and_its_weights_are_not():
    assert torch.equal(PAGE.scores, PAGE.scores.T)
    assert not torch.allclose(PAGE.weights, PAGE.weights.T, atol=0.01)


def test_no_weight_of_the_page_is_zero():
    assert (PAGE.weights > 0).all()


def test_a_number_added_to_all_scores_of_a_query_changes_no_weight():
    added = ("contexts", {"inputs @ inputs.T": "5 + inputs @ inputs.T"})
    p.equals_reference(lambda x: contexts(x, added), contexts, TOKENS)


def test_scale_zero_is_the_mean_and_a_large_scale_is_a_lookup():
    inputs = PAGE.inputs
    mean = F.scaled_dot_product_attention(inputs, inputs, inputs, scale=0.0)
    torch.testing.assert_close(mean, inputs.mean(dim=0).expand(6, 3))
    sharp = F.scaled_dot_product_attention(inputs, inputs, inputs, scale=10_000.0)
    assert torch.equal(sharp[1], inputs[1])


def page_weights(tokens):
    return p.page_code(SLUG, "contexts", tokens=tokens).weights


# -- the exercise --------------------------------------------------------------------------------


def weigh(queries, inputs):
    return torch.softmax(queries @ inputs.T, dim=-1)


def right(queries, inputs):
    return weigh(queries, inputs) @ inputs


def shifted(scores):
    return scores - scores.amax(dim=-1, keepdim=True)


def unit(vectors):
    return F.normalize(vectors, dim=-1)


RIGHT = {
    "two matrix products": right,
    "one call": sdpa,
    "one query after the other": lambda q, x: torch.stack([sum(a * t for a, t in zip(weigh(r, x), x)) for r in q]),
    "einsum": lambda q, x: torch.einsum("ij,jd->id", torch.einsum("id,jd->ij", q, x).softmax(-1), x),
    "the largest score subtracted": lambda q, x: F.normalize(shifted(q @ x.T).exp(), p=1, dim=-1) @ x,
    "columns, both times": lambda q, x: torch.softmax(x @ q.T, 0).T @ x,
}
WRONG = {
    "returns None": lambda q, x: None,
    "weights transposed": lambda q, x: weigh(q, x).T @ x,
    "raises": lambda q, x: q @ x,
    "context and weights": lambda q, x: (right(q, x), weigh(q, x)),
    "the weights": weigh,
    "the scores": lambda q, x: q @ x.T,
    "softmax over the queries": lambda q, x: torch.softmax(q @ x.T, dim=0) @ x,
    "softmax over all scores": lambda q, x: (q @ x.T).flatten().softmax(0).view(len(q), len(x)) @ x,
    "no softmax": lambda q, x: q @ x.T @ x,
    "divided by the sum of the scores": lambda q, x: q @ x.T / (q @ x.T).sum(-1, keepdim=True) @ x,
    "absolute scores": lambda q, x: (q @ x.T).abs() / (q @ x.T).abs().sum(-1, keepdim=True) @ x,
    "exponentials not divided": lambda q, x: (q @ x.T).exp() @ x,
    "exponentials that overflow": lambda q, x: (q @ x.T).exp() / (q @ x.T).exp().sum(-1, keepdim=True) @ x,
    "scaled": lambda q, x: F.scaled_dot_product_attention(q, x, x),
    "softmax twice": lambda q, x: weigh(q, x).softmax(-1) @ x,
    "plain mean": lambda q, x: x.mean(0).expand(len(q), -1),
    "best match only": lambda q, x: x[(q @ x.T).argmax(-1)],
    "divided by the number of tokens": lambda q, x: right(q, x) / len(x),
    "transposed where square": lambda q, x: weigh(q, x).T @ x if len(q) == len(x) else right(q, x),
    "scores reshaped, not transposed": lambda q, x: (x @ q.T).reshape(len(q), len(x)).softmax(-1) @ x,
    "averages of the queries": lambda q, x: right(q, q),
    "tokens ask": lambda q, x: right(x, x)[:1].expand(len(q), -1),
    "first query only": lambda q, x: right(q[:1], x).expand(len(q), -1),
    "causal": lambda q, x: F.scaled_dot_product_attention(q, x, x, scale=1.0, is_causal=True),
    "last token left out": lambda q, x: right(q, x[:-1]),
    "query added": lambda q, x: q + right(q, x),
    "distances": lambda q, x: torch.softmax(-torch.cdist(q, x), -1) @ x,
    "cosines": lambda q, x: weigh(unit(q), unit(x)) @ x,
    "float64": lambda q, x: right(q.double(), x.double()),
    "integers": lambda q, x: right(q, x).long(),
    "a list": lambda q, x: right(q, x).tolist(),
    "context transposed": lambda q, x: right(q, x).T,
    "squeezed": lambda q, x: right(q, x).squeeze(),
    "rounded weights": lambda q, x: (weigh(q, x) * 100).round() / 100 @ x,
    "sigmoid": lambda q, x: (q @ x.T).sigmoid() @ x,
    "negative scores cut off": lambda q, x: (q @ x.T).relu().softmax(-1) @ x,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG
