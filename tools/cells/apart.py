"""Run each program in a process of its own: a fork of one that has loaded torch and has run no program.

So nothing that a cell changes in torch reaches another, and no cell ends the tests, not by a crash nor by never ending.
"""

import ast
import contextlib
import multiprocessing
import os
import re
import signal
import warnings
from pathlib import Path

import torch

from tools.cells.elsewhere import move_elsewhere
from tools.cells.execute import Run, attempt
from tools.cells.source import Cell, SourceError

SECONDS = 120  # that a cell may take; the slowest takes ten on a busy machine
FORK = multiprocessing.get_context("fork")


class Nursery:
    """A process that is forked before any test has run, and of which each program is a fork."""

    def __init__(self):
        self.pipe, theirs = FORK.Pipe()
        if os.fork() == 0:
            self.pipe.close()
            serve(theirs)
        theirs.close()

    def run(self, path: Path, cells: list[Cell], again: bool = False) -> Run:
        """Run cells on the CPU; `SourceError` says which one failed, and at which line.

        `again` starts from another random state, and on another machine as far as the cells can see.
        """
        self.pipe.send((path, cells, again))
        said = cells[0]
        while not isinstance(answer := self.pipe.recv(), int):
            said = answer
        if isinstance(said, Run):
            return said
        raise said if isinstance(said, SourceError) else SourceError(sudden_end(said, answer))


def serve(pipe):
    """Run what is asked for, each in a fork, and say how it ended; leave when nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the fork, and for those who ask
    os.environ["MPLBACKEND"] = "agg"
    with contextlib.suppress(EOFError, OSError):
        while True:
            path, cells, again = pipe.recv()
            load(cells)
            fork = FORK.Process(target=run_and_say, args=(pipe, path, cells, again))
            fork.start()
            fork.join()
            pipe.send(fork.exitcode)
    os._exit(0)


def load(cells):
    """Import what cells import, and the compiler if they need it: once, not in each fork for seconds."""
    with contextlib.suppress(Exception), warnings.catch_warnings(action="error"):  # the cell shall fail, or warn
        for cell in cells:
            nodes = ast.walk(ast.parse(cell.code))
            imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
            exec(compile(ast.Module(imports, []), cell.path, "exec"), {})
            if re.search(r"\b(flex_attention|torch\.compile)\(", cell.code):
                torch.compile(torch.sin)


def run_and_say(pipe, path, cells, again):
    """Run cells in this process; say which begins and, in the end, the run or the error."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if again and not any(cell.measures for cell in cells):
        move_elsewhere()

    def begin(cell):
        pipe.send(cell)
        signal.alarm(SECONDS)  # it ends this process

    try:
        done = attempt(path, cells, seed=2 if again else 1, begin=begin)
        # Most of what a program defines cannot leave its process.
        done.namespace = {name: value for name, value in done.namespace.items() if type(value) is int}
    except SourceError as error:
        done = error
    signal.alarm(0)
    pipe.send(done)
    os._exit(0)


def sudden_end(cell, status):
    """The sentence about a process that ended in a cell."""
    if status == -signal.SIGALRM:
        end = f"is not done after {SECONDS} seconds; let it end sooner"
    else:
        way = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        end = f"ends Python {way}; let it run to its end"
    return f"{cell.path}:{cell.fence}: the cell {cell.name!r} {end}"
