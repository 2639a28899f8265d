"""Run the cells of a program in a fresh `__main__`, on a known global state, and capture what they print."""

import contextlib
import io
import linecache
import os
import random
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tools.cells.shapes import CHECK, LAST, checker, compiled
from tools.cells.source import Cell, SourceError, at_their_lines, folder_of

THREADS = torch.get_num_threads()
Begin = Callable[[Cell], None]  # what a run calls with each cell before it runs
Held = dict[str, tuple[Any, list[torch.Tensor]]]  # objects and copies of their tensors, by the names of the objects


class Output(io.StringIO):
    """Captured output that knows which line of the file printed each of its lines."""

    def __init__(self, filename: str) -> None:
        super().__init__()
        self.filename = filename
        self.origins: list[int | None] = []

    def write(self, text: str) -> int:
        frame: types.FrameType | None = sys._getframe(1)
        while frame and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        self.origins += [frame.f_lineno if frame else None] * text.count("\n")
        return super().write(text)


@dataclass
class Run:
    """What a run printed, cell by cell, and where the shape comments stand that it executed.

    `draws` holds, for each cell that moved the random generator, the state in which it left it. `namespace` has what
    the cells define; that of a run in another process, the integers alone.
    """

    namespace: dict[str, Any]
    outputs: dict[str, Output] = field(default_factory=dict)
    draws: dict[str, bytes] = field(default_factory=dict)
    executed: set[str] = field(default_factory=set)


def attempt(path: Path, cells: list[Cell], **options: Any) -> Run:
    """The run of cells; `SourceError` tells a person of the one that failed: a broken rule, or its traceback."""
    try:
        return run(path, cells, **options)
    except (KeyboardInterrupt, SourceError):
        raise
    except BaseException as error:  # a skip and an exit are no Exception
        raise SourceError(as_told(error, {cell.path for cell in cells})) from None


def as_told(error: BaseException, files: set[str]) -> str:
    """The line of the cells at which an error came up, its words, and the way there through the cells."""
    way = traceback.extract_tb(error.__traceback__)
    way = traceback.StackSummary.from_list(frame for frame in way if frame.filename in files)
    where = f"{way[-1].filename}:{way[-1].lineno}: " if way else ""
    words = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([f"{where}{words}", "", *way.format()]).rstrip()


def run(path: Path, cells: list[Cell], device: str = "cpu", seed: int = 1, begin: Begin = lambda cell: None) -> Run:
    """Run cells one after the other in one namespace; none may change what a shared cell before it defined."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    result = Run(vars(module))
    lies: list[str] = []
    shared: Held = {}
    remember_source(cells)
    result.namespace[CHECK] = checker(result.namespace, result.executed, lies)
    result.namespace[LAST] = refuse_echo
    with contained(module, device, seed) as folder:
        for number, cell in enumerate(cells):
            begin(cell)
            use_device(device)  # whatever the cell before has set
            before = dict(result.namespace)
            torch.default_generator.manual_seed(1000 * seed + number)  # torch.manual_seed is 100 times slower
            start = torch.default_generator.get_state()
            result.outputs[cell.name] = output = Output(cell.path)
            try:
                execute_cell(cell, result.namespace, output, may_warn=device != "cpu" or bool(cell.needs))
            finally:
                if lies:
                    raise SourceError(lies[0]) from None
            end = torch.default_generator.get_state()
            if not torch.equal(start, end):
                result.draws[cell.name] = bytes(end.tolist())
            refuse_changes(cell, shared, result.namespace)
            if left := os.listdir(folder):
                raise cell.fault(f"leaves files behind: {', '.join(left)}; let it remove them")
            if cell.shared and not output.getvalue():  # one that prints only lacks its output
                shared |= snapshot(before, result.namespace)
    return result


def remember_source(cells: Sequence[Cell]) -> None:
    """Let tracebacks and `inspect.getsource` find the code of cells at its lines."""
    for file in {cell.path for cell in cells}:
        source = at_their_lines([cell for cell in cells if cell.path == file])
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file


def execute_cell(cell: Cell, namespace: dict[str, Any], output: Output, may_warn: bool) -> None:
    """Run the code of a cell; `SourceError` for what a reader would see beside its print: warnings, text on stderr."""
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)  # what Python says to developers of libraries alone
        warnings.filterwarnings("always", category=DeprecationWarning, module="__main__")
        warnings.filterwarnings("ignore", ".* is non-interactive, and thus cannot be shown")  # figures of a lab
        exec(compiled(cell), namespace)
    if warned and not may_warn:
        raise cell.fault(f"warns at line {warned[0].lineno} of {warned[0].filename}: {warned[0].message}")
    if errors.getvalue():
        raise cell.fault(f"writes to stderr: {errors.getvalue().strip()}")


def refuse_echo(where: str, value: object) -> None:
    """`SourceError` where the last line of a cell has a value, which a notebook would show below it."""
    if value is not None:
        raise SourceError(f"{where}: a notebook would show the value of this last line; assign or print it")


@contextlib.contextmanager
def contained(module: types.ModuleType, device: str, seed: int) -> Iterator[str]:
    """Start from one global state, whatever ran before, and keep what a program does to the interpreter.

    That is the state of torch, `__main__`, the environment, the working directory and its files. A program can import
    what lies in `snippets/`, as if it lay beside it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = module
    beside = folder_of(Path(module.__file__ or "").resolve())
    # Fused attention kernels draw dropout masks of their own.
    backend = contextlib.nullcontext() if device == "cpu" else sdpa_kernel(SDPBackend.MATH)
    with tempfile.TemporaryDirectory() as folder:
        try:
            set_state(device, seed)
            with mock.patch.dict(os.environ, MPLBACKEND="agg"), contextlib.chdir(folder), backend, importable(beside):
                yield folder
        finally:
            sys.modules["__main__"] = main
            if pyplot := sys.modules.get("matplotlib.pyplot"):
                pyplot.close("all")
            set_state(device, seed)


def importable(folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Let programs import the Python files in a folder."""
    return mock.patch.object(sys, "path", [str(folder), *sys.path])


def use_device(device: str) -> None:
    """Make it the default device; on the CPU there is none, as for most readers."""
    torch.set_default_device(None if device == "cpu" else device)


def set_state(device: str, seed: int) -> None:
    """Give torch, Python and NumPy the state in which every program begins."""
    use_device(device)
    torch.set_default_dtype(torch.float32)
    torch.set_printoptions(profile="default")
    torch.set_grad_enabled(True)
    torch.set_num_threads(THREADS)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    if "torch._dynamo" in sys.modules:  # it compiles a function a few times only, then no more
        torch.compiler.reset()


def snapshot(before: Mapping[str, Any], namespace: Mapping[str, Any]) -> Held:
    """The names that a cell defined, the objects behind them, and copies of their tensors."""
    new = {name: value for name, value in namespace.items() if name not in before and not name.startswith("__")}
    return {name: (value, copies(value)) for name, value in new.items()}


def copies(value: Any) -> list[torch.Tensor]:
    """Copies of a tensor and of its gradient, of those of a module, or of those in a list or a dictionary."""
    if isinstance(value, torch.Tensor):
        return [value.detach().clone(), *(copies(value.grad) if value.is_leaf else [])]
    if isinstance(value, torch.nn.Module):
        value = [*value.parameters(), *value.buffers()]
    elif isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for element in value for tensor in copies(element)]


def refuse_changes(cell: Cell, shared: Held, namespace: Mapping[str, Any]) -> None:
    """`SourceError` where a cell changed what a shared cell before it defined."""
    for name, (value, held) in shared.items():
        if namespace.get(name) is not value:
            raise cell.fault(f"gives the shared name {name!r} a new value; use another name")
        now = copies(value)
        if len(now) != len(held) or not all(map(equal, now, held)):
            raise cell.fault(f"changes the shared object {name!r}; work on a copy")


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same; nan equals nan."""
    if (a.shape, a.dtype, a.is_meta) != (b.shape, b.dtype, b.is_meta):
        return False
    return a.is_meta or bool(((a == b) | ((a != a) & (b != b))).all())
