"""The names of rows and columns: they fit what is printed, or the cell is named with what does not fit."""

import pytest

from tools.cells.labels import refuse_misfit
from tools.cells.source import Cell, SourceError

MATRIX = "True\ntensor([[ 1.5,  0.0,  -inf],\n        [ 2.0, -1.0,   nan]], grad_fn=<MmBackward0>)\ntensor([1., 2.])\n"
CUBE = "tensor([[[1, 2, 3],\n         [4, 5, 6]],\n\n        [[7, 8, 9],\n         [0, 0, 0]]])\n"
TALL = "tensor([[1, 2, 3],\n        [4, 5, 6],\n        [7, 8, 9]])\n"
NO_MATRIX = "[[1, 2]]\ntensor([1., 2.]) [[1], [2]]\n"
ONE_ROW = "after: tensor([[True, False]])\n"
BROKEN = "tensor([[1.0000, 2.0000,\n         3.0000],\n        [4.0000, 5.0000,\n         6.0000]])\n"


def cell(output, needs="", rows="", columns=""):
    return Cell("show", "", output, 8, needs, "", tuple(rows.split()), tuple(columns.split()), path="masks.md")


@pytest.mark.parametrize("output", [MATRIX, CUBE, MATRIX + CUBE])
@pytest.mark.parametrize("names", [{"rows": "a b"}, {"rows": "a b", "columns": "c d e"}])
def test_names_that_fit_every_matrix_are_accepted(output, names):
    refuse_misfit(cell(output, **names))
    refuse_misfit(cell(ONE_ROW, rows="a", columns="b c"))
    refuse_misfit(cell(None, "cuda", rows="a"))  # it has not run there yet


MISFITS = {
    "too few rows": (cell(MATRIX, rows="a"), "names 1 rows, but a matrix that it prints has 2; give each one word"),
    "too many columns": (cell(CUBE, columns="a b c d"), "names 4 columns, but a matrix that it prints has 3"),
    "the second matrix": (cell(MATRIX + TALL, rows="a b"), "names 2 rows, but a matrix that it prints has 3"),
    "no matrix": (cell(NO_MATRIX, rows="a"), "shows no matrix; take the names out of its mark"),
    "rows broken over lines": (cell(BROKEN, columns="a b c"), "shows no matrix"),
    "no output": (cell(None, rows="a"), "shows no matrix"),
}


@pytest.mark.parametrize("fault", MISFITS)
def test_names_that_do_not_fit_are_named_with_the_line_of_their_mark(fault):
    one, words = MISFITS[fault]
    with pytest.raises(SourceError, match=f"^masks.md:7: the cell 'show' .*{words}"):
        refuse_misfit(one)
