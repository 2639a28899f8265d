"""Run each program in a process of its own: a fork of one that has loaded torch and has run no program.

So nothing that a cell changes in torch reaches another, and no cell ends the tests, not by a crash nor by never ending.
"""

import ast
import contextlib
import faulthandler
import importlib
import os
import pickle
import re
import signal
import tempfile
import traceback
import warnings
from multiprocessing import Pipe
from pathlib import Path

import torch

from tools.cells.elsewhere import move_elsewhere
from tools.cells.execute import Run, attempt
from tools.cells.source import Cell, SourceError

SECONDS = 120  # that a cell may take; the slowest takes ten on a busy machine
DUMPED = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)  # by faulthandler


class Nursery:
    """A process that is forked before any test has run, and of which each program is a fork."""

    def __init__(self):
        self.pipe, theirs = Pipe()
        self.process = os.fork()
        if self.process == 0:
            self.pipe.close()
            serve(theirs)
        theirs.close()

    def run(self, path: Path, cells: list[Cell], again: bool = False) -> Run:
        """Run cells on the CPU; `SourceError` says which one failed, and at which line.

        `again` starts from another random state, and on another machine as far as the cells can see.
        """
        self.pipe.send((path, cells, again, SECONDS))
        result = self.pipe.recv()
        if isinstance(result, SourceError):
            raise result
        return result

    def close(self):
        self.pipe.close()
        os.waitpid(self.process, 0)


def serve(pipe):
    """Run what is asked for, until nobody can ask any more; then leave."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the fork, and for those who ask
    os.environ["MPLBACKEND"] = "agg"
    with contextlib.suppress(EOFError, OSError):
        while True:
            path, cells, again, seconds = pipe.recv()
            load(cells)
            pipe.send(run_in_fork(path, cells, again, seconds))
    os._exit(0)


def load(cells):
    """Import what cells import, and the compiler if they need it: once, not in each fork for seconds."""
    with contextlib.suppress(Exception), warnings.catch_warnings(action="error"):  # the cell shall fail, or warn
        for cell in cells:
            for node in ast.walk(ast.parse(cell.code)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                for name in [node.module] if isinstance(node, ast.ImportFrom) else names:
                    importlib.import_module(name)
            if re.search(r"\b(flex_attention|torch\.compile)\(", cell.code):
                torch.compile(torch.sin)


def run_in_fork(path, cells, again, seconds):
    """The run of cells in a fork of this process, or the `SourceError` that ended it."""
    with tempfile.TemporaryDirectory() as folder:
        notes, result = Path(folder, "notes"), Path(folder, "result")
        notes.touch()
        process = os.fork()
        if process == 0:
            try:
                tempfile.tempdir = folder
                result.write_bytes(pickle.dumps(run_noted(notes, path, cells, again, seconds)))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status == 0 and result.exists():
            return pickle.loads(result.read_bytes())
        return SourceError(sudden_end(notes.read_text("utf-8"), status, cells, seconds))


def run_noted(notes, path, cells, again, seconds):
    """Run cells, and note which begin, and where this process is when it crashes or a cell takes too long."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if again and not any(cell.measures for cell in cells):
        move_elsewhere()
    with open(notes, "w", encoding="utf-8") as file:
        faulthandler.enable(file)

        def begin(cell):
            print("begins", cell.name, file=file, flush=True)
            faulthandler.dump_traceback_later(seconds, exit=True, file=file)

        done = attempt(path, cells, seed=2 if again else 1, begin=begin)
        faulthandler.cancel_dump_traceback_later()
    if isinstance(done, Run):  # most of what a program defines cannot leave its process
        done.namespace = {name: value for name, value in done.namespace.items() if type(value) is int}
    return done


def sudden_end(notes, status, cells, seconds):
    """The sentence about a process that ended before its cells did: in which cell, and where if that is known."""
    begun = re.findall("^begins (.+)$", notes, re.MULTILINE)
    cell = next((cell for cell in cells if cell.name in begun[-1:]), cells[0])
    files = {cell.path for cell in cells}
    line = next((line for file, line in DUMPED.findall(notes) if file in files), cell.fence)
    if "Timeout (" in notes:
        end = f"is not done after {seconds} seconds; let it end sooner"
    elif status < 0:
        end = f"ends Python by {signal.Signals(-status).name}; let it run to its end"
    else:
        end = f"ends Python with status {status}; let it run to its end"
    return f"{cell.path}:{line}: the cell {cell.name!r} {end}"
