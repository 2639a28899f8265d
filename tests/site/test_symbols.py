"""The index of names, on small cells."""

import pytest

from tests.site.test_curriculum import page
from tools.cells.source import Cell
from tools.site import plain
from tools.site.symbols import index, names

IMPORTS = """import math
import torch
import torch.nn.functional as F
from einops import einsum
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
"""


def cell(name, code, output=None):
    return Cell(name, code, output, 2, 4)


def found(code):
    imports, use = cell("imports", IMPORTS), cell("use", code, "1\n")
    return set(names([imports, use], use))


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("torch.triu(x)", {"torch.triu"}),
        ("F.scaled_dot_product_attention(q, k, v, is_causal=True)", {"F.scaled_dot_product_attention", "is_causal="}),
        ("print(F.dropout.__name__)", {"F.dropout"}),
        ("class A(nn.Module): pass", {"nn.Module"}),
        ("nn.init.eye_(x)", {"nn.init.eye_"}),
        ("with sdpa_kernel(SDPBackend.MATH): pass", {"nn.attention.sdpa_kernel", "nn.attention.SDPBackend.MATH"}),
        ("einsum(x, 'a ->')", {"einops.einsum"}),
        ("torch.einsum('i,i', x, x)", {"torch.einsum"}),
        ("torch.ones(3).triu().mT", {"torch.ones", "Tensor.triu", "Tensor.mT"}),
        ("self.register_buffer('a', b, persistent=False)", {"nn.Module.register_buffer", "persistent="}),
        ("mha.in_proj_weight", {"nn.MultiheadAttention.in_proj_weight"}),
        ("torch.autograd.grad(a, b)", {"torch.autograd.grad"}),
        ("for i in range(3): print(torch.tensor(i).item() + math.prod([2]))", set()),
        ("def view(self, x): pass\nself.view(x)", set()),
        ("def view(x): return x.view(3)", {"Tensor.view"}),
        ("triu(x), 'torch.triu', a.causal", set()),
    ],
)
def test_the_names_of_a_cell_are_those_that_readers_look_up(code, wanted):
    assert found(code) == wanted


def test_what_only_another_cell_imports_means_nothing():
    first, second = cell("first", "from torch import nn\n", "1\n"), cell("second", "nn.Linear(1, 2)\n", "1\n")
    assert list(names([first, second], second)) == []


def test_the_index_goes_by_the_last_part_of_a_name_and_a_page_stands_once():
    tokens, use = cell("tokens", f"{IMPORTS}x = torch.ones(3)\n"), cell("use", "torch.ones(2).Triu, x.triu()\n", "1\n")
    one, other = page("One", "a/one", cells=[tokens, use]), page("Other", "a/other", cells=[tokens])
    made = index([one, other])
    assert [(symbol.name, symbol.uses) for symbol in made] == [
        ("torch.ones", [(one, ["tokens", "use"]), (other, ["tokens"])]),
        ("Tensor.triu", [(one, ["use"])]),
    ]
    assert plain.symbols(made) == (
        "\n- `torch.ones`: [One, tokens](https://site/a/one/#cell-tokens), [One, use](https://site/a/one/#cell-use), "
        "[Other, tokens](https://site/a/other/#cell-tokens)\n"
        "- `Tensor.triu`: [One, use](https://site/a/one/#cell-use)\n"
    )
