"""Softmax: the functions of the page against PyTorch and plain loops; what it says of `nan`, `dim` and bfloat16."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.pages import properties as p
from tests.pages.exercise import Exercise

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


@pytest.mark.parametrize("reference", [by_the_formula, by_sdpa])
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


def test_along_an_axis_of_size_1_all_weights_are_1():
    for shape, dim in ((1, 6), 0), ((4, 6, 1), -1):
        scores = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        assert (torch.softmax(scores, dim=dim) == 1).all()
        right = torch.softmax(scores.squeeze(-1), dim=-1)
        torch.testing.assert_close(right.sum(dim=-1), torch.ones(shape[0]))
        assert (right < 0.9).all()


def test_one_query_along_the_queries_takes_the_sum_of_the_values_whatever_the_scores():
    generator = torch.Generator().manual_seed(0)
    scores, values = torch.randn(4, 1, 6, generator=generator), torch.randn(4, 6, 3, generator=generator)
    weights = torch.softmax(scores, dim=-2)
    assert (weights == 1).all()
    torch.testing.assert_close(weights @ values, values.sum(dim=-2, keepdim=True))


# -- the exercise --------------------------------------------------------------------------------


def right(scores, dim):
    return torch.softmax(scores, dim=dim)


RIGHT = {
    "logsumexp": lambda scores, dim: (scores - scores.logsumexp(dim, keepdim=True)).exp(),
    "float64 inside": lambda scores, dim: right(scores.double(), dim).float(),
}
WRONG = {
    "bfloat16 inside": lambda scores, dim: right(scores.bfloat16(), dim).float(),
    "largest of the whole tensor": lambda scores, dim: F.normalize((scores - scores.max()).exp(), p=1, dim=dim),
    "minus infinity made -1e9": lambda scores, dim: right(scores.nan_to_num(neginf=-1e9), dim),
    "the last axis for a negative one": lambda scores, dim: right(scores, max(dim, -1)),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_softmax", RIGHT, WRONG
