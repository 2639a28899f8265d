"""Run each program in a process of its own: a fork of one that has loaded torch and has run no program.

So nothing that a cell changes in torch reaches another, and no cell ends the tests, not by a crash nor by never ending.
"""

import ast
import contextlib
import datetime
import multiprocessing
import os
import platform
import re
import signal
import sys
import warnings
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import time_machine
import torch

from tools.cells.execute import Run, attempt
from tools.cells.source import Cell, SourceError

SECONDS = 120  # that a cell may take; the slowest takes ten on a busy machine
FORK = multiprocessing.get_context("fork")


class Nursery:
    """A process that is forked before any test has run, and of which each program is a fork."""

    def __init__(self) -> None:
        self.pipe, theirs = FORK.Pipe()
        if os.fork() == 0:
            self.pipe.close()
            serve(theirs)
        theirs.close()

    def run(self, path: Path, cells: list[Cell], elsewhere: bool = False) -> Run:
        """Run cells on the CPU; `SourceError` says which one failed, and at which line.

        `elsewhere` starts from another random state, on another machine and another day as far as the cells can see.
        """
        self.pipe.send((path, cells, elsewhere))
        latest: Cell | Run | SourceError = cells[0]
        while not isinstance(answer := self.pipe.recv(), int):
            latest = answer
        if isinstance(latest, Run):
            return latest
        raise latest if isinstance(latest, SourceError) else sudden_end(latest, answer)


def serve(pipe: Connection) -> NoReturn:
    """Run what is asked for, each in a fork, and say how it ended; leave when nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the fork, and for those who ask
    os.environ["MPLBACKEND"] = "agg"
    with contextlib.suppress(EOFError, OSError):
        while True:
            path, cells, elsewhere = pipe.recv()
            load(cells)
            fork = FORK.Process(target=run_and_tell, args=(pipe, path, cells, elsewhere))
            fork.start()
            fork.join()
            pipe.send(fork.exitcode)
    os._exit(0)


def load(cells: Iterable[Cell]) -> None:
    """Import what cells import, and the compiler if they need it: once, not in each fork for seconds."""
    with contextlib.suppress(Exception), warnings.catch_warnings(action="error"):  # the cell shall fail, or warn
        for cell in cells:
            nodes = ast.walk(ast.parse(cell.code))
            imports: list[ast.stmt] = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
            exec(compile(ast.Module(imports, []), cell.path, "exec"), {})
            if re.search(r"\b(flex_attention|torch\.compile)\(", cell.code):
                torch.compile(torch.sin)


def run_and_tell(pipe: Connection, path: Path, cells: list[Cell], elsewhere: bool) -> NoReturn:
    """Run cells in this process; tell which begins and, in the end, the run or the error."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if elsewhere and not any(cell.measures for cell in cells):
        move_elsewhere()

    def begin(cell: Cell) -> None:
        pipe.send(cell)
        signal.alarm(SECONDS)  # it ends this process

    result: Run | SourceError
    try:
        result = attempt(path, cells, seed=2 if elsewhere else 1, begin=begin)
        # Most of what a program defines cannot leave its process.
        result.namespace = {name: value for name, value in result.namespace.items() if type(value) is int}
    except SourceError as error:
        result = error
    signal.alarm(0)
    pipe.send(result)
    os._exit(0)


def sudden_end(cell: Cell, status: int) -> SourceError:
    """The error of a process that ended in a cell."""
    if status == -signal.SIGALRM:
        return cell.fault(f"is not done after {SECONDS} seconds; let it end sooner")
    way = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    return cell.fault(f"ends Python {way}; let it run to its end")


# -- another machine on another day: what a program prints of those, no page can promise ------------

ANSWERS: list[tuple[Any, str]] = [(os, "cpu_count"), (torch, "get_num_threads")]
ANSWERS += ((platform, name) for name in ("machine", "node", "platform", "processor", "python_version"))
ballast: list[bytes] = []


def move_elsewhere() -> None:
    """Let this process, for good, see another machine and another year, and find its objects at other addresses."""
    for owner, name in ANSWERS:
        setattr(owner, name, mock.Mock(return_value=other(getattr(owner, name)())))
    torch.__version__ = other(torch.__version__)
    sys.version = other(sys.version)
    ballast.extend(bytes(size) for size in range(0, 512, 8) for _ in range(300))
    time_machine.travel(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=400.2)).start()


def other(answer: Any) -> Any:
    """Another answer of its kind."""
    return answer + 1 if isinstance(answer, int) else type(answer)(f"{answer}.1")
