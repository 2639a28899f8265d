"""Run the cells of a program in a fresh `__main__`, on a known global state, and capture what they print."""

import contextlib
import functools
import io
import linecache
import os
import random
import sys
import types
import warnings
from dataclasses import dataclass, field
from unittest import mock

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tools.cells.shapes import CHECK, ShapeError, checker, instrument
from tools.cells.source import read_cells

THREADS = torch.get_num_threads()


class CellError(AssertionError):
    """A cell breaks a rule of the house; the message says which, where, and how to mend it."""


class Output(io.StringIO):
    """Captured output that knows which line of the file printed each of its lines."""

    def __init__(self, filename):
        super().__init__()
        self.filename, self.origins = filename, []

    def write(self, text):
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        self.origins += [frame.f_lineno if frame else None] * text.count("\n")
        return super().write(text)


@dataclass
class Run:
    """What a run printed, cell by cell, and the lines of the shape comments it executed and has."""

    namespace: dict
    outputs: dict = field(default_factory=dict)
    executed: set = field(default_factory=set)
    comments: set = field(default_factory=set)


def run(path, cells, device="cpu", seed=1):
    """Run cells one after the other in one namespace; none may change what a shared cell before it defined."""
    filename, module = str(path), types.ModuleType("__main__")
    module.__file__ = filename
    result = Run(vars(module))
    source = at_their_lines(cells)
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    result.namespace[CHECK] = checker(result.namespace, result.executed)
    with contained(module), known_state(device, seed):
        shared = {}
        for cell in cells:
            before = dict(result.namespace)
            result.outputs[cell.name] = output = Output(filename)
            with contextlib.redirect_stdout(output):
                code, comments = compiled(cell, filename)
                exec(code, result.namespace)
            result.comments |= comments
            refuse_changes(shared, result.namespace, f"{filename}:{cell.fence}: the cell {cell.name!r}")
            if cell.shared:
                shared |= snapshot(before, result.namespace)
    return result


def load(path):
    """The shared names of a snippet file as attributes, for the tests of its page."""
    cells = [cell for cell in read_cells(path) if cell.shared]
    return types.SimpleNamespace(**run(path, cells).namespace)


def at_their_lines(cells):
    """The code of cells as one text in which every line has the number that it has in the file."""
    lines = [""] * max(cell.end for cell in cells)
    for cell in cells:
        code = cell.code.splitlines()
        lines[cell.fence : cell.fence + len(code)] = code
    return "\n".join(lines) + "\n"


@functools.cache
def compiled(cell, filename):
    """The code object of a cell, with its shape comments as checks, and the lines of these comments."""
    try:
        tree, lines = instrument("\n" * cell.fence + cell.code, filename)
    except ShapeError as error:
        raise CellError(f"{filename}:{error}") from None
    except SyntaxError as error:
        raise CellError(f"{filename}:{error.lineno}: SyntaxError: {error.msg}") from None
    return compile(tree, filename, "exec", dont_inherit=True), lines


@contextlib.contextmanager
def contained(module):
    """Keep what a program does to the interpreter: `__main__`, the environment, the working directory, warnings."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        with mock.patch.dict(os.environ), contextlib.chdir(os.curdir), warnings.catch_warnings():
            yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def known_state(device, seed):
    """Start from one global state of torch, whatever ran before, and leave PyTorch's defaults behind."""
    set_state(device, seed)
    if device == "cpu":
        warnings.simplefilter("error")  # a reader would see it between the printed numbers
    os.environ["MPLBACKEND"] = "agg"  # the figures of a lab open no window here, which plt.show() warns of
    warnings.filterwarnings("ignore", ".* is non-interactive, and thus cannot be shown")
    backend = contextlib.nullcontext() if device == "cpu" else sdpa_kernel(SDPBackend.MATH)
    try:
        with backend:  # fused attention kernels draw dropout masks of their own
            yield
    finally:
        set_state("cpu", seed)
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close("all")


def set_state(device, seed):
    torch.set_default_device(None if device == "cpu" else device)
    torch.set_default_dtype(torch.float32)
    torch.set_printoptions(profile="default")
    torch.set_grad_enabled(True)
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(THREADS)
    torch.default_generator.manual_seed(seed)  # 1 us; torch.manual_seed also seeds every accelerator and costs 0.1 ms
    random.seed(seed)
    numpy.random.seed(seed)


def tensors_in(value):
    """The tensors that a shared name holds: itself, those of a module, those in a list, tuple or dict."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from (*value.parameters(), *value.buffers())
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def snapshot(before, namespace):
    """The names that a cell defined, the objects behind them, and copies of their tensors."""
    new = {name: value for name, value in namespace.items() if name not in before and not name.startswith("__")}
    return {name: (value, [t.detach().clone() for t in tensors_in(value)]) for name, value in new.items()}


def refuse_changes(shared, namespace, who):
    """`CellError` where a cell changed what a shared cell before it defined."""
    for name, (value, copies) in shared.items():
        if namespace.get(name) is not value:
            raise CellError(f"{who} gives the shared name {name!r} a new value; use another name")
        now = list(tensors_in(value))
        if len(now) != len(copies) or not all(map(equal, now, copies)):
            raise CellError(f"{who} changes the shared tensor {name!r}; work on a copy ({name}.clone())")


def equal(a, b):
    """Whether two tensors hold the same numbers; nan equals nan."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
