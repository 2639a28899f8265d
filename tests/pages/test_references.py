"""Each row of `tests/pages/references.py`: the same results, the same gradients, and no trace of a call."""

import pytest
import torch

from tests.pages import properties as p
from tests.pages.references import ROWS

each_row = pytest.mark.parametrize("row", ROWS, ids=str)


@each_row
def test_results_and_gradients_are_those_of_the_reference(row):
    def prove(pair):
        leaves = [one.requires_grad_() for one in pair.given if one.is_floating_point()]
        leaves += pair.module.parameters() if pair.module else []
        ours, theirs = (p.as_tuple(compute(*pair.given)) for compute in (pair.ours, pair.theirs))
        assert len(ours) == len(theirs)
        for mine, reference in zip(ours, theirs):
            p.close(mine, reference)
        sums = (sum(result.sin().sum() for result in results) for results in (ours, theirs))
        for mine, reference in zip(*(torch.autograd.grad(total, leaves, materialize_grads=True) for total in sums)):
            p.close(mine, reference, 1e-9)

    p.for_all(row.pairs(), prove)


@each_row
def test_a_call_changes_neither_its_arguments_nor_the_next_call(row):
    def function(pair):
        return pair.ours, pair.given, [one.flip(0) for one in pair.given]

    p.stateless(function, row.pairs())


@each_row
def test_large_scores_stay_finite(row):
    def large(pair):
        given = [1000 * one if one.is_floating_point() else one for one in pair.given]
        return torch.cat([result.flatten() for result in p.as_tuple(pair.ours(*given))])

    p.finite_rows(large, row.pairs())
