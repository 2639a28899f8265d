"""Softmax: the page's functions against PyTorch and plain loops, its prints, and the axis that lets the future in."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/softmax"
PAGE = p.page_code(SLUG, "leak")
SCORES = [sum(x * y for x, y in zip(token, [0.55, 0.87, 0.66])) for token in PAGE.inputs.double().tolist()]
ROWS = p.sizes(B=3, Tq=4, Tk=6).map(lambda case: 3 * case.randn(case.B, case.Tq, case.Tk))
BATCHES = p.sizes(B=3, E=4).map(lambda case: case.randn(case.B, PAGE.T, case.E))

# -- references ----------------------------------------------------------------------------------


def shares(row):
    """The softmax of a list, one Python float at a time."""
    total = sum(math.exp(score - max(row)) for score in row)
    return [math.exp(score - max(row)) / total for score in row]


def by_the_formula(scores):
    rows = [shares(row) for row in scores.flatten(0, -2).tolist()]
    return torch.tensor(rows, dtype=scores.dtype).view_as(scores)


def by_sdpa(scores):
    """Queries that are scores, against keys and values that are the rows of an identity: the context is the weights."""
    eye = torch.eye(scores.shape[-1], dtype=scores.dtype).expand(len(scores), -1, -1)
    return F.scaled_dot_product_attention(scores, eye, eye, scale=1.0)


def by_logsumexp(scores):
    return torch.exp(scores - scores.logsumexp(dim=-1, keepdim=True))


def causal(batch):
    """For each item of a batch: the contexts and the weights of each row, from the tokens up to its own."""
    contexts, weights = torch.zeros_like(batch), batch.new_zeros(*batch.shape[:2], batch.shape[1])
    for item, i in itertools.product(range(len(batch)), range(batch.shape[1])):
        past = batch[item, : i + 1].tolist()
        row = shares([sum(x * y for x, y in zip(past[-1], key)) for key in past])
        weights[item, i, : i + 1] = torch.tensor(row, dtype=batch.dtype)
        contexts[item, i] = torch.tensor([sum(a * x for a, x in zip(row, column)) for column in zip(*past)])
    return contexts, weights


@pytest.mark.parametrize("reference", [by_the_formula, by_sdpa, by_logsumexp])
@pytest.mark.parametrize("ours", ["softmax_naive", "softmax_stable"])
def test_both_functions_compute_what_an_independent_reference_computes(ours, reference):
    p.equals_reference(getattr(PAGE, ours), reference, ROWS)


def test_along_the_keys_the_page_attends_as_sdpa_with_a_causal_mask():
    def prove(batch):
        context, weights = PAGE.attend(batch, dim=-1)
        p.close(context, F.scaled_dot_product_attention(batch, batch, batch, is_causal=True, scale=1.0))
        p.close(weights, causal(batch)[1])

    p.for_all(BATCHES, prove)


# -- what holds for a softmax along the last axis ------------------------------------------------


def equals_torch(softmax):
    p.equals_reference(softmax, lambda scores: torch.softmax(scores, dim=-1), ROWS)


def a_row_at_a_time(softmax):
    rows = ROWS.map(lambda scores: scores[0])
    p.steps_equal_whole(lambda scores, i: softmax(scores[i : i + 1]), softmax, rows)


def blind_to_a_constant(softmax):
    p.equals_reference(lambda scores: softmax(scores + 5), softmax, ROWS)


def stateless(softmax):
    p.stateless(lambda scores: (softmax, [scores], [scores.flip(-1)]), ROWS)


def finite_for_large_scores(softmax):
    p.finite_rows(lambda scores: softmax(1e3 * scores), ROWS)


def finite_for_low_scores(softmax):
    p.finite_rows(lambda scores: softmax(scores - 1e3), ROWS)


def finite_for_high_scores(softmax):
    p.finite_rows(lambda scores: softmax(scores + 1e3), ROWS)


PROPERTIES = [
    equals_torch,
    a_row_at_a_time,
    blind_to_a_constant,
    stateless,
    finite_for_large_scores,
    finite_for_low_scores,
    finite_for_high_scores,
]
FAR = [finite_for_large_scores, finite_for_low_scores, finite_for_high_scores]


@pytest.mark.parametrize("holds", PROPERTIES)
def test_the_stable_softmax_has_the_property(holds):
    holds(PAGE.softmax_stable)


def test_the_naive_softmax_fails_at_both_ends_and_nowhere_else():
    assert [holds for holds in PROPERTIES if p.catches(holds, PAGE.softmax_naive)] == FAR


# -- what holds for causal attention in a batch --------------------------------------------------


def equals_sdpa(attend):
    def sdpa(batch):
        return F.scaled_dot_product_attention(batch, batch, batch, is_causal=True, scale=1.0)

    p.equals_reference(lambda batch: attend(batch)[0], sdpa, BATCHES)


def rows_sum_to_one(attend):
    p.equals_reference(
        lambda batch: attend(batch)[1].sum(dim=-1), lambda batch: torch.ones_like(batch[..., 0]), BATCHES
    )


def no_weight_above_the_diagonal(attend):
    p.equals_reference(lambda batch: attend(batch)[1].triu(1), lambda batch: 0 * attend(batch)[1], BATCHES)


def row_0_is_token_0(attend):
    p.equals_reference(lambda batch: attend(batch)[0][:, 0], lambda batch: batch[:, 0], BATCHES)


def no_row_moves_with_a_later_token(attend):
    def function(batch):
        may_move = torch.ones(PAGE.T, PAGE.T, dtype=torch.bool).tril()
        return lambda tokens: attend(tokens[None])[0][0], batch[0], may_move

    p.reaches_exactly(function, BATCHES)


def stateless_in_a_batch(attend):
    p.stateless(lambda batch: (attend, [batch], [batch.flip(1)]), BATCHES)


ATTENTION = [
    equals_sdpa,
    rows_sum_to_one,
    no_weight_above_the_diagonal,
    row_0_is_token_0,
    no_row_moves_with_a_later_token,
    stateless_in_a_batch,
]
AXIS = [equals_sdpa, rows_sum_to_one, row_0_is_token_0, no_row_moves_with_a_later_token]


@pytest.mark.parametrize("holds", ATTENTION)
def test_attention_along_the_keys_has_the_property(holds):
    holds(lambda batch: PAGE.attend(batch, -1))


def test_the_wrong_axis_keeps_the_triangle_perfect_and_breaks_the_rest():
    def along_the_queries(batch):
        return PAGE.attend(batch, 1)

    assert [holds for holds in ATTENTION if p.catches(holds, along_the_queries)] == AXIS


def test_along_the_queries_every_row_moves_with_the_last_token_and_every_column_sums_to_one():
    def prove(batch):
        _, weights = PAGE.attend(batch, 1)
        p.close(weights.sum(dim=1), torch.ones_like(batch[..., 0]))
        jacobian = torch.autograd.functional.jacobian(lambda last: attend_with(batch, last), batch[:1, -1:])
        assert (jacobian.abs().amax(dim=(1, 2, 3, 4)) > 0).all()

    def attend_with(batch, last):
        return PAGE.attend(torch.cat([batch[:1, :-1], last], dim=1), 1)[0][0]

    p.for_all(BATCHES, prove)


# -- the claims of the page ----------------------------------------------------------------------


def test_the_data_of_the_page_are_those_of_the_page_before_and_the_same_reversed():
    before = p.page_code("foundations/weighted-average", "context")
    assert torch.equal(PAGE.inputs, before.inputs)
    assert PAGE.inputs.shape == (PAGE.T, PAGE.E)
    assert torch.equal(PAGE.scores, before.scores)
    assert torch.equal(PAGE.batch[0], before.inputs)
    assert torch.equal(PAGE.batch[1], torch.stack(list(reversed(list(before.inputs)))))


def test_the_nudge_moves_the_last_token_of_each_sequence_and_nothing_else():
    step = PAGE.nudged - PAGE.batch
    assert (step[:, :-1] == 0).all()
    p.close(step[:, -1], torch.ones(2, 3), 1e-6)


def test_at_temperature_1_the_weights_are_those_of_the_page_before_bit_for_bit():
    weights = p.page_code(SLUG, "temperature").weights
    assert torch.equal(weights[1], p.page_code("foundations/weighted-average", "context").weights)
    assert torch.equal(weights[1], torch.softmax(PAGE.scores, dim=-1))


def test_at_an_infinite_temperature_the_context_is_the_plain_mean():
    weights = p.page_code(SLUG, "temperature").weights[3]
    assert (weights == weights[0]).all()
    torch.testing.assert_close(weights[None] @ PAGE.inputs, PAGE.inputs.mean(dim=0, keepdim=True))


def test_the_scale_of_sdpa_is_one_over_the_temperature():
    code = p.page_code(SLUG, "temperature")
    for temperature, weights in zip(code.temperatures.tolist(), code.weights):
        context = F.scaled_dot_product_attention(*[PAGE.inputs] * 3, scale=1 / temperature)
        torch.testing.assert_close(context[1:2], weights[None] @ PAGE.inputs)


def test_the_entropies_are_those_of_torch_and_two_tokens_hold_99_percent_of_the_sharpest_row():
    code = p.page_code(SLUG, "temperature")
    logits = PAGE.scores / code.temperatures[:, None]
    torch.testing.assert_close(code.entropies, torch.distributions.Categorical(logits=logits).entropy())
    assert f"{code.weights[0].topk(2).values.sum():.2f}" == "0.99"
    assert (code.weights[:3].argsort() == PAGE.scores.argsort()).all()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 88.7), (torch.float16, 11.1)])
def test_above_the_limit_of_the_page_an_exponential_overflows(dtype, limit):
    assert torch.tensor(limit - 0.1, dtype=dtype).exp().isfinite()
    assert torch.tensor(limit + 0.1, dtype=dtype).exp().isinf()
    assert abs(math.log(torch.finfo(dtype).max) - limit) < 0.05


def test_the_sum_of_the_stable_softmax_lies_between_1_and_the_number_of_keys():
    def prove(scores):
        sums = torch.exp(100 * (scores - scores.amax(dim=-1, keepdim=True))).sum(dim=-1)
        assert ((sums >= 1) & (sums <= scores.shape[-1])).all()

    p.for_all(ROWS, prove)


def test_between_87_and_104_the_weight_is_subnormal_and_a_machine_that_flushes_makes_it_zero():
    tiny = torch.finfo(torch.float32).tiny
    below, above, gone = torch.softmax(torch.tensor([[87.3, 0.0], [87.4, 0.0], [104.0, 0.0]]), dim=-1)[:, 1].double()
    assert gone == 0
    assert below >= tiny > above > 0
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush")
    try:
        assert torch.softmax(torch.tensor([87.4, 0.0]), dim=-1).tolist() == [1, 0]
    finally:
        torch.set_flush_denormal(False)


def test_one_finite_score_has_weight_1_and_none_is_nan():
    row = torch.tensor([3.0, -torch.inf, -torch.inf])
    assert torch.softmax(row, dim=-1).tolist() == [1, 0, 0]
    assert torch.softmax(row[1:], dim=-1).isnan().all()


def test_the_gradient_is_the_formula_never_exceeds_a_quarter_and_dies_with_a_one():
    def prove(scores):
        row = scores[0, 0]
        weights = PAGE.softmax_stable(row)
        jacobian = torch.autograd.functional.jacobian(PAGE.softmax_stable, row)
        p.close(jacobian, weights[:, None] * (torch.eye(len(row), dtype=row.dtype) - weights))
        assert (jacobian.abs() <= 0.25 + 1e-12).all()

    p.for_all(ROWS, prove)
    dead = torch.autograd.functional.jacobian(lambda row: torch.softmax(row, dim=-1), torch.tensor([110.0, 0.0]))
    assert (dead == 0).all()
    assert torch.softmax(torch.tensor([110.0, 0.0]), dim=-1).log()[1] == -torch.inf
    assert F.cross_entropy(torch.tensor([[110.0, 0.0]]), torch.tensor([1])) == 110


@pytest.mark.parametrize(("shape", "axis"), [((2, 4, 4), 0), ((2, 3, 4, 4), 1)])
def test_without_dim_the_softmax_of_f_warns_and_takes_the_batch_or_the_heads(shape, axis):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        found = F.softmax(scores)
    assert torch.equal(found, torch.softmax(scores, dim=axis))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_back_moves_a_last_digit_at_most_and_the_gradient_gains_more(dtype):
    generator = torch.Generator().manual_seed(0)
    scores, upstream = (3 * torch.randn(2, 50, 300, generator=generator)).to(dtype)
    exact, _, reference = weights_and_gradient(scores.double(), upstream.double())
    plain, (plain_error, plain_grad), _ = weights_and_gradient(scores, upstream, exact, reference)
    upcast, (upcast_error, upcast_grad), _ = weights_and_gradient(scores, upstream, exact, reference, torch.float32)
    ulp = torch.finfo(dtype).eps * plain.double() + torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert ((plain.double() - upcast.double()).abs() <= ulp).all()
    assert plain_error == pytest.approx(upcast_error, rel=0.1)
    assert upcast_grad < 0.75 * plain_grad


def weights_and_gradient(scores, upstream, exact=None, reference=None, dtype=None):
    """Weights that are rounded to the dtype of the scores, their errors and those of the gradient, and the gradient."""
    scores = scores.clone().requires_grad_()
    weights = torch.softmax(scores, dim=-1, dtype=dtype).to(scores.dtype)
    weights.backward(upstream)
    errors = None
    if exact is not None:
        errors = [float((a.double() - b).abs().max()) for a, b in ((weights.detach(), exact), (scores.grad, reference))]
    return weights.detach(), errors, scores.grad


def test_doubling_and_adding_are_each_seen_by_one_of_the_two_ways():
    def divided(scores):
        return scores / scores.sum()

    scores = PAGE.scores.double()
    p.close(divided(2 * scores), divided(scores))
    assert divided(scores + 5).std() < 0.5 * divided(scores).std()


def test_a_hundred_million_added_in_float32_leaves_six_equal_weights():
    assert (torch.softmax(PAGE.scores + 1e8, dim=-1) == torch.tensor(1 / 6)).all()
    assert torch.nextafter(torch.tensor(1e8), torch.tensor(2e8)) - 1e8 == 8


def test_one_query_along_the_queries_takes_the_sum_of_the_values_whatever_the_scores():
    generator = torch.Generator().manual_seed(0)
    scores, values = torch.randn(4, 1, 6, generator=generator), torch.randn(4, 6, 3, generator=generator)
    weights = torch.softmax(scores, dim=-2)
    assert (weights == 1).all()
    torch.testing.assert_close(weights @ values, values.sum(dim=-2, keepdim=True))


# -- the exercise --------------------------------------------------------------------------------

AXES = p.sizes(B=3, H=4, Tq=5, Tk=6, dim=(-4, 3)).map(lambda c: (c.randn(c.B, c.H, c.Tq, c.Tk), c.dim))


def along_any_axis(softmax):
    p.equals_reference(lambda case: softmax(*case), lambda case: torch.softmax(case[0], dim=case[1]), AXES)


def large_along_any_axis(softmax):
    p.finite_rows(lambda case: softmax(1e3 * case[0], case[1]), AXES)


def test_the_solution_works_along_any_axis_of_tensors_of_rank_1_to_4():
    softmax = executed(SLUG, "solution")[0].softmax
    along_any_axis(softmax)
    large_along_any_axis(softmax)
    p.equals_reference(
        lambda case: softmax(case[0][0, 0, 0], 0), lambda case: by_the_formula(case[0][0, 0, :1])[0], AXES
    )


def right(scores, dim):
    return torch.softmax(scores, dim=dim)


def divided(positive, dim):
    return positive / positive.sum(dim=dim, keepdim=True)


def shifted(scores, dim):
    return scores - scores.amax(dim=dim, keepdim=True)


def loops(scores, dim):
    found = torch.empty_like(scores)
    for place in itertools.product(*(range(size) for size in scores.movedim(dim, -1).shape[:-1])):
        found.movedim(dim, -1)[place] = torch.tensor(shares(scores.movedim(dim, -1)[place].tolist()))
    return found


def overwritten(scores, dim):
    scores[scores == -torch.inf] = -1e9
    return right(scores, dim)


def limited(scores):
    return scores.clamp(max=80)


RIGHT = {
    "torch.softmax": right,
    "largest score subtracted": lambda s, d: divided(shifted(s, d).exp(), d),
    "logsumexp": lambda s, d: (s - s.logsumexp(d, keepdim=True)).exp(),
    "axis moved to the end": lambda s, d: divided(shifted(s.movedim(d, -1), -1).exp(), -1).movedim(-1, d),
    "one slice after the other": loops,
    "float64 inside": lambda s, d: right(s.double(), d).float(),
    "normalize": lambda s, d: F.normalize(shifted(s, d).exp(), p=1, dim=d),
}
WRONG = {
    "returns None": lambda s, d: None,
    "a nested list": lambda s, d: right(s, d).tolist(),
    "a numpy array": lambda s, d: right(s, d).numpy(),
    "weights and sums": lambda s, d: (right(s, d), right(s, d).sum(d)),
    "raises": lambda s, d: s @ s,
    "float64": lambda s, d: right(s.double(), d),
    "bfloat16 inside": lambda s, d: right(s.bfloat16(), d).float(),
    "an axis more": lambda s, d: right(s, d)[None],
    "axis moved and left there": lambda s, d: right(s, d).movedim(d, -1),
    "nothing subtracted": lambda s, d: divided(s.exp(), d),
    "nan made 0": lambda s, d: divided(s.exp(), d).nan_to_num(),
    "scores limited to 80": lambda s, d: divided(limited(s).exp(), d),
    "largest of the whole tensor": lambda s, d: divided((s - s.max()).exp(), d),
    "largest along the last axis": lambda s, d: divided(shifted(s, -1).exp(), d),
    "axis of the largest lost": lambda s, d: divided((s - s.amax(dim=d)).exp(), d),
    "lowest subtracted": lambda s, d: divided((s - s.amin(dim=d, keepdim=True)).exp(), d),
    "mean subtracted": lambda s, d: divided((s - s.mean(dim=d, keepdim=True)).exp(), d),
    "a constant of 1000 subtracted": lambda s, d: divided((s - 1000).exp(), d),
    "subtracted in place": lambda s, d: divided(s.sub_(s.amax(dim=d, keepdim=True)).exp(), d),
    "minus infinity overwritten in place": overwritten,
    "minus infinity made 0": lambda s, d: right(s.nan_to_num(neginf=0.0), d),
    "the last axis always": lambda s, d: right(s, -1),
    "axis 1 always": lambda s, d: right(s, 1),
    "the last axis for a negative one": lambda s, d: right(s, max(d, -1)),
    "sign of the axis lost": lambda s, d: right(s, abs(d)),
    "sum along the last axis": lambda s, d: divided(shifted(s, d).exp(), -1),
    "sum of the whole tensor": lambda s, d: right(s.flatten(), 0).view_as(s),
    "not divided": lambda s, d: shifted(s, d).exp(),
    "divided by the sum of the scores": divided,
    "logarithms": lambda s, d: s.log_softmax(d),
    "powers of two": lambda s, d: divided(shifted(s, d).exp2(), d),
    "best score only": lambda s, d: (shifted(s, d) == 0).float(),
    "sigmoid": lambda s, d: s.sigmoid(),
    "a little added to the sum": lambda s, d: shifted(s, d).exp() / (shifted(s, d).exp().sum(d, keepdim=True) + 0.1),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_softmax", RIGHT, WRONG
