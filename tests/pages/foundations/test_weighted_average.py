"""Attention is a weighted average: the page's code against PyTorch, the three equations, and what the page claims."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/weighted-average"
SOLUTION, PAGE = p.page_code(SLUG, "solution"), p.page_code(SLUG, "columns")
TOKENS = p.sizes(T=(2, 6), E=4).map(lambda case: 2 * case.randn(case.T, case.E))


def counted(case):
    """Queries, tokens, and how often each token stands: from 0 to 3 times, the last one at least once."""
    counts = (2 * case.randn(case.Tk).abs()).long().clamp(max=3)
    counts[-1] += 1
    return case.randn(case.Tq, case.E), case.randn(case.Tk, case.E), counts


CASES = p.sizes(Tq=5, Tk=6, E=4).map(counted)

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


def repeated(inputs, counts):
    return inputs.repeat_interleave(counts, dim=0)


def contexts(tokens, bug=None):
    """The contexts that the page computes for all its tokens, here for other tokens."""
    return p.page_code(SLUG, "contexts", bug, tokens).context


@pytest.mark.parametrize("reference", REFERENCES)
def test_the_contexts_of_the_page_are_what_an_independent_reference_computes(reference):
    p.equals_reference(contexts, lambda tokens: reference(tokens, tokens), TOKENS)


@pytest.mark.parametrize("reference", REFERENCES)
def test_the_solution_is_what_a_reference_computes_for_the_repeated_tokens(reference):
    p.equals_reference(lambda case: attend(*case), lambda case: reference(case[0], repeated(*case[1:])), CASES)


def test_one_query_alone_gets_the_row_that_all_queries_together_give_it():
    p.equals_reference(
        lambda tokens: p.page_code(SLUG, "context", tokens=tokens).context,
        lambda tokens: sdpa(tokens[1:2], tokens)[0],
        TOKENS,
    )


def test_two_loops_give_the_matrix_of_scores():
    def prove(tokens):
        tokens = tokens.float()
        p.close(p.page_code(SLUG, "loops", tokens=tokens).looped, tokens @ tokens.T, 1e-5)

    p.for_all(TOKENS, prove)


# -- the solution ----------------------------------------------------------------------------------


def attend(queries, inputs, counts):
    """The solution, with the logarithm of the counts as exact as float64; the page takes integers."""
    return SOLUTION.attend(queries, inputs, counts.double())


def test_a_token_with_count_0_has_no_influence():
    def function(case):
        queries, inputs, counts = case
        mask = (counts > 0).expand(len(queries), -1)
        return lambda inputs: attend(queries, inputs, counts), inputs, mask

    p.reaches_exactly(function, CASES)


def test_the_solution_is_stateless_and_finite_for_large_scores():
    p.stateless(lambda case: (attend, case, [tensor.flip(0) for tensor in case[:1]] + [*case[1:]]), CASES)
    p.finite_rows(lambda case: attend(1e4 * case[0], *case[1:]), CASES)


def test_one_more_token_shrinks_all_old_weights_by_the_same_factor():
    tokens = PAGE.inputs
    before, after = (p.page_code(SLUG, "contexts", tokens=some).weights[1] for some in (tokens, tokens[[*range(6), 5]]))
    factor = after[:6] / before
    assert factor.max() < 1
    torch.testing.assert_close(factor, factor[:1].expand(6))


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
        sums = p.page_code(SLUG, "contexts", tokens=tokens).weights.sum(dim=0)
        p.close(contexts(with_ones(tokens))[:, -1], torch.ones_like(sums))
        p.close(contexts(with_ones(tokens), SQUARE_BUGS[bug])[:, -1], sums)

    p.for_all(TOKENS, prove)


@pytest.mark.parametrize("bug", SQUARE_BUGS)
def test_a_column_taken_for_an_average_fits_every_square_and_equals_no_reference(bug):
    with pytest.raises(AssertionError, match="not close"):
        p.equals_reference(lambda tokens: contexts(tokens, SQUARE_BUGS[bug]), lambda x: sdpa(x, x), TOKENS)


def test_with_more_queries_than_tokens_a_wrong_transpose_raises_but_no_wrong_dim():
    scores, inputs = torch.randn(5, 4), torch.randn(4, 3)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.softmax(scores, dim=-1).T @ inputs
    assert (torch.softmax(scores, dim=0) @ inputs).shape == (5, 3)


def test_both_tests_hold_for_every_average_and_for_the_weights_of_another_query():
    def prove(tokens):
        lowest, highest = tokens.aminmax(dim=0)
        weights = p.page_code(SLUG, "contexts", tokens=tokens).weights
        for used in (weights, weights.flip(0)):
            p.close(used.sum(dim=-1), torch.ones_like(used[0]))
            found = used @ tokens
            assert ((lowest - 1e-12 <= found) & (found <= highest + 1e-12)).all()

    p.for_all(TOKENS, prove)


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_first_score_adds_up_as_the_page_writes_it(language):
    products = (PAGE.inputs[1] * PAGE.inputs[0]).tolist()
    line = " + ".join(f"{product:.4f}" for product in products) + f" = {sum(products):.4f}"
    assert line in (p.ROOT / "docs" / language / f"{SLUG}.md").read_text(encoding="utf-8")


def test_the_scores_of_the_page_are_symmetric_and_its_weights_neither_that_nor_zero():
    assert torch.equal(PAGE.inputs @ PAGE.inputs.T, (PAGE.inputs @ PAGE.inputs.T).T)
    assert not torch.allclose(PAGE.weights, PAGE.weights.T, atol=0.01)
    assert (PAGE.weights > 0).all()


def test_a_number_added_to_all_scores_of_a_query_changes_no_weight():
    added = ("contexts", {"inputs @ inputs.T": "5 + inputs @ inputs.T"})
    p.equals_reference(lambda x: contexts(x, added), contexts, TOKENS)


def test_the_order_of_the_tokens_changes_no_context():
    p.equals_reference(lambda tokens: contexts(tokens.flip(0)).flip(0), contexts, TOKENS)


def test_scale_zero_gives_equal_weights_and_a_huge_scale_one_weight():
    scores = PAGE.inputs @ PAGE.inputs[1]
    torch.testing.assert_close(torch.softmax(0 * scores, dim=-1), torch.full((6,), 1 / 6))
    assert torch.softmax(10_000 * scores, dim=-1).tolist() == [0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_a_fused_kernel_wants_four_axes(on_the_cpu, axes):
    tokens = PAGE.inputs.cpu()[(None,) * (axes - 2)]
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        warnings.simplefilter("always")
        if axes == 4:
            F.scaled_dot_product_attention(tokens, tokens, tokens)
            return
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(tokens, tokens, tokens)
    words = "All fused kernels requires query, key and value to be 4 dimensional"
    assert any(words in str(warning.message) for warning in caught)


# -- the exercise --------------------------------------------------------------------------------


def scores(queries, inputs, counts):
    return queries @ inputs.T + counts.to(queries.dtype).log()


def right(queries, inputs, counts):
    return torch.softmax(scores(queries, inputs, counts), dim=-1) @ inputs


RIGHT = {
    "tokens repeated": lambda q, x, n: sdpa(q, repeated(x, n)),
    "one call with a bias": lambda q, x, n: F.scaled_dot_product_attention(q, x, x, n.to(q.dtype).log()[None], scale=1),
}
WRONG = {
    "zeros almost heeded": lambda q, x, n: right(q, x, n + 1e-9),
    "weights multiplied, not divided again": lambda q, x, n: (q @ x.T).softmax(-1) * n @ x,
    "exponentials that overflow": lambda q, x, n: F.normalize((q @ x.T).exp() * n, p=1, dim=-1) @ x,
    "float32": lambda q, x, n: right(q.float(), x.float(), n),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            ("float32", "contexts: The values for attribute 'dtype' do not match"),
            ("exponentials that overflow", "scores times 10000000000: contexts: "),
        ],
    )
    def test_the_message_names_the_difference(self, answer, said):
        assert said in self.verdict(WRONG[answer])


# -- changes of the page's code that need no test, and of the solution that are as good ------------

ACCEPTED = {
    "a matrix has two axes: 1 is the last": ["weights = torch.softmax(scores, dim=1)"],
}
