"""The functions of a page run on the device of their inputs, whatever the default device is.

Every program of a page runs again with another default device within its functions, as long as they are given a tensor
or a module: what they make without `device=` then lies on another device than what they were given.
"""

import ast
import functools
from dataclasses import replace

import pytest
import torch

from tests.pages import properties as p
from tests.structure.test_anatomy import WRITTEN
from tools.cells.compare import forget_device
from tools.cells.execute import run
from tools.cells.source import program_cells, read_cells

OTHER = torch.device("meta")
NOT_HERE = {
    ("foundations/one-head", "solution"): "it makes a module and moves it, which no module on meta can",
    ("masks/combining", "compiled"): "it asks for one graph, and a decorated function makes more",
    ("kernels/which-kernel", "old-switch"): "it asks for one graph, too",
    ("kernels/flex-attention", "whole-model"): "it asks for one graph, too",
    ("kernels/flex-attention", "gradients"): "torch traces its functions, and finds no globals of a decorated one",
    ("labs/what-it-costs", "measure"): "the timer of torch makes tensors on the default device",
    ("labs/what-it-costs", "speed"): "so does the same timer",
}
CELLS = [
    (page, cell.name)
    for page in WRITTEN
    for cell in read_cells(p.ROOT / f"snippets/{page}.md")
    if cell.output and not cell.needs and (page, cell.name) not in NOT_HERE
]


def with_another_default(function):
    """Decorates a function of a page; one that is given no tensor makes its own data, on the default device."""

    @functools.wraps(function)
    def call(*arguments, **options):
        if not any(map(is_given, [*arguments, *options.values()])):
            return function(*arguments, **options)
        with OTHER:
            return function(*arguments, **options)

    return call


def is_given(argument):
    """Whether it is, or holds, a tensor that is not on the other device by itself."""
    if isinstance(argument, list | tuple):
        return any(map(is_given, argument))
    if isinstance(argument, torch.nn.Module):
        return any(map(is_given, argument.parameters()))
    return isinstance(argument, torch.Tensor) and argument.device != OTHER


def decorated(cell):
    """A cell without its shape comments, its functions and methods decorated; the check of an exercise as it is."""
    if cell.name.startswith("check"):
        return cell
    tree = ast.parse(cell.code)
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef) and not is_left(node)]
    for node in functions:
        node.decorator_list.append(ast.Name(with_another_default.__name__))
    imported = f"from {__name__} import {with_another_default.__name__}\n" if functions else ""
    return replace(cell, code=imported + ast.unparse(tree), path=f"{cell.path}:{cell.name}")  # its lines are others


def is_left(function):
    """Whether it makes a module, or is a rule of FlexAttention, which counts the arguments of a rule."""
    return function.name == "__init__" or {"b", "h"} <= {one.arg for one in function.args.args}


@pytest.mark.parametrize(("page", "name"), CELLS)
def test_functions_make_their_tensors_on_the_device_of_their_inputs(page, name):
    path, device = p.ROOT / f"snippets/{page}.md", torch.get_default_device()
    cells = read_cells(path)
    cell = next(cell for cell in cells if cell.name == name)
    program = [decorated(part) for part in program_cells(cells, cell)]
    printed = run(path, program, str(device)).outputs[name].getvalue()
    assert forget_device(printed, device.type) == cell.output
