"""The index of names is made without torch; here torch says whether it is right and whole."""

import ast

import pytest
import torch
from torch import nn

from tools.cells.source import program_cells
from tools.site.symbols import METHODS, NOBODY_ASKS, OWNERS, names

OBJECTS = {"Tensor": torch.zeros(1, 1), "nn.Module": nn.Module(), "nn.MultiheadAttention": nn.MultiheadAttention(4, 2)}
OF_PYTHON = {name for kind in (str, list, dict) for name in dir(kind)}  # no one can tell x.split from "x".split


@pytest.mark.parametrize("owner", METHODS)
def test_the_methods_of_the_index_are_methods_of_torch(owner):
    assert [name for name, known in OWNERS.items() if known == owner and not hasattr(OBJECTS[owner], name)] == []
    assert not {name for name, known in OWNERS.items() if known == owner} & OF_PYTHON


def test_a_name_has_one_owner():
    assert len(OWNERS) == sum(len(listed.split()) for listed in METHODS.values())


def test_every_method_of_torch_in_a_cell_is_in_the_index_or_nobody_asks_for_it(slug, cells):
    kept = {*OWNERS, *NOBODY_ASKS.split(), *OF_PYTHON}
    for cell in cells:
        nodes = [node for part in program_cells(cells, cell) for node in ast.walk(ast.parse(part.code))]
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        asked = {node.attr for node in ast.walk(ast.parse(cell.code)) if isinstance(node, ast.Attribute)}
        unknown = {name for name in asked - own - kept if any(hasattr(one, name) for one in OBJECTS.values())}
        unknown -= {name.rpartition(".")[2] for name in names(cells, cell)}
        assert not {name for name in unknown if not name.startswith("__")}, f"{slug}: {cell.name}"
