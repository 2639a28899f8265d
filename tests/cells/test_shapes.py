"""Shape comments are executed, and a comment that cannot be checked is an error."""

import pytest
import torch

from tools.cells.shapes import CHECK, LAST, checker, compiled
from tools.cells.source import Cell, SourceError

SIZES = "B, H, T, D = 2, 3, 4, 5\n"


def run(source):
    """Run a cell with its shape comments; return the lines of the comments that were executed."""
    namespace, executed, lies = {"torch": torch, LAST: lambda line, value: value}, set(), []
    namespace[CHECK] = checker(namespace, executed, lies)
    exec(compiled(Cell("cell", SIZES + source, None, 1, path="cell.md")), namespace)
    if lies:
        raise SourceError(lies[0])
    return executed


TRUE = [
    "x = torch.ones(2, 3)  # (B, H)",
    "x = torch.ones(15)  # (H * D,)",
    "x = torch.tensor(1.0)  # ()",
    "x = torch.ones(\n    2,\n    3,\n)  # (B, H)",
    "x, y = torch.ones(2, 2, 3)  # (B, H)",
    "x: object = torch.ones(2)  # (2,)",
    "x = torch.ones(2)\nx += 1  # (B,)",
    "def f(T):\n    return torch.ones(T)  # (T,)\n\n\nf(7)",
    "def f(x):\n    B, T = x.shape\n    y = x.mT  # (T, B)\n    return y, y  # (T, B)\n\n\nf(torch.ones(6, 7))",
    "class M:\n    def f(self, x):\n        self.x = x  # (T,)\n\n\nM().f(torch.ones(4))",
]

LIES = [
    ("x = torch.ones(2, 3)  # (H, B)", r"\(H, B\) = \(3, 2\), the code makes \(2, 3\)"),
    ("x = torch.ones(2, 3)  # (B, H, T)", r"the code makes \(2, 3\)"),
    ("x, y = torch.ones(2, 3), torch.ones(3, 2)  # (B, H)", r"the code makes \(3, 2\)"),
    ("x = torch.ones(2)  # (Tq,)", "Tq, which is no integer here"),
    ("x = torch.ones(2)  # (torch,)", "torch, which is no integer here"),
    ("x = 3  # (B,)", "the code makes no tensor, but int"),
    ("def f():\n    return torch.ones(2)  # (T,)\n\n\nf()", r"the code makes \(2,\)"),
]

NOT_CHECKABLE = [
    "def make():\n    return  # (2,)\n",
    "torch.ones(2)  # (B,)",
    "for _ in range(2):  # (B,)\n    pass",
    "x = torch.ones(  # (B,)\n    2\n)",
    "# (B,)\nx = 1",
    "x = torch.ones(2)  # (B H)",
    "x = torch.ones(2)  # (9,) and (B,)",
    "x = torch.ones(2)  # (len('ab'),)",
    "x = torch.ones(2, 2)\nx[0] = torch.ones(2)  # (B, B)",
    "x = y = torch.ones(2)  # (B,)",
]


@pytest.mark.parametrize("source", TRUE)
def test_a_true_comment_is_executed(source):
    assert len(run(source)) == source.count("#")


@pytest.mark.parametrize(("source", "message"), LIES)
def test_a_lie_is_caught(source, message):
    with pytest.raises(SourceError, match=message):
        run(source)


@pytest.mark.parametrize("source", NOT_CHECKABLE)
def test_a_comment_that_cannot_be_checked_is_an_error(source):
    with pytest.raises(SourceError, match=r"^cell\.md:\d+: "):
        run(source)


MODULE = """
class M(torch.nn.Module):
    def forward(self, x):
        y = x.mT  # (T, B)
        return y @ x  # (T, T)
"""


def test_checked_code_compiles_and_exports_and_counts_only_where_it_runs():
    run(MODULE + '\ntorch.compile(M(), fullgraph=True, backend="eager")(torch.ones(2, 4))')
    assert run(MODULE + "\ntorch.export.export(M(), (torch.ones(2, 4),), strict=True)") == set()
    assert len(run(MODULE + "\nM()(torch.ones(2, 4))")) == 2
    with pytest.raises(SourceError, match=r"the code makes \(4, 2\)"):
        run(MODULE.replace("T, B", "B, T") + "\nM()(torch.ones(2, 4))")
