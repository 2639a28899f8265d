"""The index of names, on small cells."""

import pytest

from tests.site.made import page
from tools.cells.source import Cell
from tools.site.symbols import index, names

IMPORTS = """import math
import torch
import torch.nn.functional as F
from einops import einsum
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
"""


def cell(name, code, output=None):
    return Cell(name, code, output, 2)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("torch.triu(F.relu(x))", {"torch.triu", "F.relu"}),
        ("print(F.dropout.__name__)", {"F.dropout"}),
        ("class A(nn.Module): pass", {"nn.Module", "A"}),
        ("class A:\n    @staticmethod\n    def make(): return A.other(nn.Identity())", {"A", "nn.Identity"}),
        ("def check(attend):\n    return torch.triu(attend)", {"torch.triu"}),
        ("with sdpa_kernel(SDPBackend.MATH): pass", {"nn.attention.sdpa_kernel", "nn.attention.SDPBackend.MATH"}),
        ("for i in range(3): print(x.item() + math.prod([2]), math, torch)", set()),
        ("triu(x), 'torch.triu', a.torch", set()),
    ],
)
def test_the_names_of_a_cell_are_those_that_it_imports_or_defines(code, wanted):
    assert names((cell("imports", IMPORTS), cell("use", code, "1\n"))) == dict.fromkeys(wanted, "use")


def test_the_index_goes_by_the_last_part_of_a_name_and_leaves_out_what_all_pages_use():
    tokens, use = cell("tokens", f"{IMPORTS}x = torch.ones(3)\n"), cell("use", "torch.ones(2), F.relu(x)\n", "1\n")
    one, other = (page(slug, slug, own_cells=cells) for slug, cells in (("a", [tokens, use]), ("b", [tokens])))
    third = page("c", "C", own_cells=[cell("own", "class Own: pass\n")])
    assert [(symbol.name, symbol.uses) for symbol in index([one, other, third, page("d", "D")])] == [
        ("torch.ones", [(one, "tokens"), (other, "tokens")]),
        ("Own", [(third, "own")]),
        ("F.relu", [(one, "use")]),
    ]
    assert [symbol.name for symbol in index([one, other])] == ["F.relu"]
