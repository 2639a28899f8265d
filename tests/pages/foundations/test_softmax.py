"""Softmax: the functions of the page against PyTorch and plain loops; what it says of `nan`, `dim` and bfloat16."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/softmax"
PAGE = p.page_code(SLUG, "nudge")
ROWS = p.sizes(B=3, Tq=4, Tk=6).map(lambda case: 3 * case.randn(case.B, case.Tq, case.Tk))

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
    eye = torch.eye(scores.shape[-1], dtype=scores.dtype).expand(len(scores), 1, -1, -1)
    return F.scaled_dot_product_attention(scores[:, None], eye, eye, scale=1.0)[:, 0]


def by_logsumexp(scores):
    return torch.exp(scores - scores.logsumexp(dim=-1, keepdim=True))


@pytest.mark.parametrize("reference", [by_the_formula, by_sdpa, by_logsumexp])
@pytest.mark.parametrize("ours", ["softmax_naive", "softmax_stable"])
def test_both_functions_compute_what_an_independent_reference_computes(ours, reference):
    p.equals_reference(getattr(PAGE, ours), reference, ROWS)


# -- what holds for a softmax along the last axis ------------------------------------------------


def equals_torch(softmax):
    p.equals_reference(softmax, lambda scores: torch.softmax(scores, dim=-1), ROWS)


def does_not_change_with_a_constant(softmax):
    p.equals_reference(lambda scores: softmax(scores + 5), softmax, ROWS)


def ratios_follow_differences(softmax):
    def ratios(scores):
        weights = softmax(scores)
        return weights[..., :1] / weights

    p.equals_reference(ratios, lambda scores: torch.exp(scores[..., :1] - scores), ROWS)


def no_row_depends_on_another(softmax):
    def function(scores):
        return softmax, scores[0], torch.eye(scores.shape[1], dtype=torch.bool)

    p.reaches_exactly(function, p.sizes(Tq=4, Tk=(2, 6)).map(lambda case: case.randn(1, case.Tq, case.Tk)))


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
    does_not_change_with_a_constant,
    ratios_follow_differences,
    no_row_depends_on_another,
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


def test_the_axis_of_the_queries_is_caught_by_the_probe_and_by_the_reference():
    failed = [holds for holds in PROPERTIES if p.catches(holds, lambda scores: torch.softmax(scores, dim=-2))]
    assert failed == [equals_torch, ratios_follow_differences, no_row_depends_on_another]


def test_the_functions_run_on_another_device_than_the_default():
    scores = torch.empty(2, 3, device="meta")
    for softmax in (PAGE.softmax_naive, PAGE.softmax_stable):
        assert softmax(scores).device == scores.device
    assert executed(SLUG, "solution")[0].softmax(scores, 0).device == scores.device


# -- the claims of the page ----------------------------------------------------------------------


def test_the_nudge_changes_one_score_and_along_the_keys_one_row():
    assert (PAGE.nudged - PAGE.batch).nonzero().tolist() == [[0, 2, 0]]
    for dim, rows in ((1, [0, 1, 2]), (-1, [2])):
        change = torch.softmax(PAGE.nudged, dim=dim) - torch.softmax(PAGE.batch, dim=dim)
        assert change[0].any(dim=-1).nonzero().flatten().tolist() == rows
        assert not change[1].any()


def test_along_dim_0_the_two_weights_at_one_place_add_up_to_1():
    torch.testing.assert_close(torch.softmax(PAGE.batch, dim=0).sum(dim=0), torch.ones(3, 3))


def test_divided_by_their_sum_the_scores_add_up_to_1_and_none_is_a_share():
    divided = PAGE.scores / PAGE.scores.sum()
    torch.testing.assert_close(divided.sum(), torch.tensor(1.0))
    assert not ((divided >= 0) & (divided <= 1)).any()


def test_the_scale_of_sdpa_is_one_over_the_temperature():
    q = torch.randn(1, 1, 4, 3, generator=torch.Generator().manual_seed(0))
    weights = torch.softmax(q @ q.mT / 0.5, dim=-1)
    torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q, scale=2.0), weights @ q)


def test_the_entropy_is_that_of_torch_and_infinite_temperature_the_plain_mean():
    row = p.page_code(SLUG, "temperature")
    entropy = torch.distributions.Categorical(logits=PAGE.scores / row.temperature).entropy()
    torch.testing.assert_close(row.entropy, entropy)
    assert row.temperature == math.inf
    assert (row.row == row.row[0]).all()


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


def test_a_dot_product_above_65504_is_inf_in_float16():
    tokens = torch.tensor([[200.0, 200.0]], dtype=torch.float16)
    assert (tokens @ tokens.mT).isinf().all()
    assert torch.finfo(torch.float16).max == 65504


def test_the_gradient_is_the_formula_at_most_a_quarter_and_0_with_a_weight_of_1():
    def prove(scores):
        row = scores[0, 0]
        weights = PAGE.softmax_stable(row)
        jacobian = torch.autograd.functional.jacobian(PAGE.softmax_stable, row)
        p.close(jacobian, weights[:, None] * (torch.eye(len(row), dtype=row.dtype) - weights))
        assert (jacobian.abs() <= 0.25 + 1e-12).all()

    p.for_all(ROWS, prove)
    dead = torch.autograd.functional.jacobian(lambda row: torch.softmax(row, dim=-1), torch.tensor([110.0, 0.0]))
    assert (dead == 0).all()


@pytest.mark.parametrize(("shape", "axis"), [((4,), 0), ((4, 4), 1), ((2, 4, 4), 0), ((2, 3, 4, 4), 1)])
def test_without_dim_the_softmax_of_f_warns_and_takes_the_axis_of_the_page(shape, axis):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        found = F.softmax(scores)
    assert torch.equal(found, torch.softmax(scores, dim=axis))
    with pytest.raises(TypeError):
        torch.softmax(scores)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_float32_inside_changes_few_weights_and_the_gradient_by_a_quarter(dtype, on_the_cpu):
    code = p.page_code(SLUG, "half")
    low, slopes = (3 * torch.randn(2, 128, 1000, generator=torch.Generator().manual_seed(1))).to(dtype)
    exact = code.weights_and_gradient(PAGE.softmax_stable, low.double(), slopes.double())
    kinds = (lambda s: torch.softmax(s, dim=-1)), (lambda s: torch.softmax(s, -1, dtype=torch.float32).to(dtype))
    plain, upcast = (code.weights_and_gradient(kind, low, slopes) for kind in kinds)
    assert (plain[0] != upcast[0]).sum() <= low.numel() / 10_000
    errors = [float((found - exact)[1].norm()) for found in (plain, upcast)]
    assert 0.65 < errors[1] / errors[0] < 0.85


def test_autocast_on_the_cpu_leaves_the_softmax_in_bfloat16(on_the_cpu):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = PAGE.batch @ PAGE.batch.mT
        assert scores.dtype == torch.softmax(scores, dim=-1).dtype == torch.bfloat16


def test_a_hundred_million_added_in_float32_leaves_equal_weights():
    assert (torch.softmax(PAGE.scores + 1e8, dim=-1) == torch.tensor(1 / 3)).all()
    assert torch.nextafter(torch.tensor(1e8), torch.tensor(2e8)) - 1e8 == 8


def test_one_query_along_the_queries_takes_the_sum_of_the_values_whatever_the_scores():
    generator = torch.Generator().manual_seed(0)
    scores, values = torch.randn(4, 1, 6, generator=generator), torch.randn(4, 6, 3, generator=generator)
    weights = torch.softmax(scores, dim=-2)
    assert (weights == 1).all()
    torch.testing.assert_close(weights @ values, values.sum(dim=-2, keepdim=True))


# -- the exercise --------------------------------------------------------------------------------

AXES = p.sizes(B=3, H=4, Tq=5, Tk=6, dim=(-4, 3)).map(lambda c: (c.randn(c.B, c.H, c.Tq, c.Tk), c.dim))


def test_the_solution_works_along_any_axis_for_large_scores_and_keeps_them():
    softmax = executed(SLUG, "solution")[0].softmax
    p.equals_reference(lambda case: softmax(*case), lambda case: torch.softmax(case[0], dim=case[1]), AXES)
    p.finite_rows(lambda case: softmax(1e3 * case[0], case[1]), AXES)
    p.stateless(lambda case: (lambda scores: softmax(scores, case[1]), [case[0]], [case[0].flip(-1)]), AXES)


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
    "float64 inside": lambda s, d: right(s.double(), d).float(),
    "normalize": lambda s, d: F.normalize(shifted(s, d).exp(), p=1, dim=d),
}
WRONG = {
    "returns None": lambda s, d: None,
    "numbers of Python in between": loops,
    "detached": lambda s, d: right(s, d).detach(),
    "sum detached": lambda s, d: shifted(s, d).exp() / shifted(s, d).exp().sum(d, keepdim=True).detach(),
    "largest score taken as a number": lambda s, d: divided((s - s.max().item()).exp(), d),
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
    "minus infinity made -100": lambda s, d: right(s.nan_to_num(neginf=-100.0), d),
    "minus infinity made -1e4": lambda s, d: right(s.nan_to_num(neginf=-1e4), d),
    "minus infinity made -1e9": lambda s, d: right(s.nan_to_num(neginf=-1e9), d),
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
