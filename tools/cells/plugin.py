"""pytest-codeblocks, made strict: `pytest --codeblocks snippets [--device cuda] [--update] [--record]`

Every cell of a snippet file is one test, named after it, and each file has one more, `Notebook`, which runs its cells
one after the other as the download does. So each cell runs twice on the CPU, after different seeds: as its program in
a fresh namespace, and in the notebook. Its print is compared with what the page shows (see `compare`). A cell that
needs another device than the one at hand is skipped, and listed with its reason.
"""

import functools
import itertools
import linecache
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from pytest_codeblocks import plugin as codeblocks

from tools.cells import compare
from tools.cells.accelerator import Accelerator, kind_of
from tools.cells.apart import Nursery
from tools.cells.execute import Output, Run
from tools.cells.labels import refuse_misfit
from tools.cells.record import facts, read_record, write_atomically, write_record
from tools.cells.shapes import shape_comments
from tools.cells.source import Cell, SourceError, digest, folder_of, program_cells, read_cells, slug_of, with_outputs

LEGEND = {"B", "H", "Hkv", "T", "Tq", "Tk", "D", "E", "V"}
RUNNER = pytest.StashKey[Nursery | Accelerator]()
Collecting = Generator[None, list[pytest.Collector], list[pytest.Collector]]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cells")
    group.addoption("--device", default="cpu", help="where the cells make their tensors: cpu, or cuda")
    group.addoption("--update", action="store_true", help="write what the cells print into the snippet files")
    group.addoption("--record", action="store_true", help="write what passed into verified/<device>.json")


def pytest_configure(config: pytest.Config) -> None:
    option, device = config.option, config.option.device
    option.reportchars += "s"  # list what was not run
    if (option.record or option.update) and getattr(option, "numprocesses", None):
        raise pytest.UsageError("--update and --record write files from one process; leave out -n")
    if device == "sim" and option.record:
        raise pytest.UsageError("--record: the pretend accelerator proves nothing to a reader; leave out --device sim")
    try:
        config.stash[RUNNER] = Nursery() if device == "cpu" else Accelerator(device)
    except ValueError as error:
        raise pytest.UsageError(f"--device {device}: {error}") from None


# -- collecting ----------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Dir) -> Collecting:
    """Only snippets hold cells: the blocks of other Markdown files are commands for people."""
    files = [file for file in (yield) if not isinstance(file, codeblocks.MarkdownFile)]
    if file_path.suffix == ".md" and "snippets" in (folder.name for folder in file_path.parents):
        files.append(SnippetFile.from_parent(parent, path=file_path))
    return files


class SnippetFile(codeblocks.MarkdownFile):  # type: ignore[misc]  # pytest-codeblocks has no types
    """A snippet file. Its place below `snippets/` is the slug of its page.

    `prints` are the outputs that `--update` writes, by the names of the cells; `passed` are the names of tests.
    """

    def collect(self) -> "Iterator[Test]":
        self.device = kind_of(self.config.option.device)
        self.slug = slug_of(self.path)
        self.file = Path(os.path.relpath(self.path))  # as people name it in messages
        self.prints: dict[str, str] = {}
        self.passed: set[str] = set()
        try:
            self.cells = read_cells(self.file)
        except SourceError as error:
            raise self.CollectError(str(error)) from None
        blocks = [(block.obj.lineno, block.obj.code, block.obj.expected_output) for block in super().collect()]
        if blocks != [(cell.fence, cell.code, cell.output) for cell in self.cells if self.holds(cell)]:
            raise self.CollectError(f"{self.file}: pytest-codeblocks reads other blocks here than tools.cells.source")
        for cell in self.cells:
            test = CellTest.from_parent(self, name=cell.name)
            test.cell = cell
            if not self.runs_here(cell):
                test.add_marker(pytest.mark.skip(reason=f"{cell.name!r} needs {cell.needs}: {cell.why}"))
            yield test
        yield NotebookTest.from_parent(self, name="Notebook")

    def runs_here(self, cell: Cell) -> bool:
        return cell.needs in ("", self.device)

    def holds(self, cell: Cell) -> bool:
        """Whether a cell is written in this file; others it only shows."""
        return cell.path == str(self.file)

    def is_authority(self, cell: Cell) -> bool:
        """Whether this device says what a page shows: the one that a cell needs, the CPU for all others."""
        return self.device == (cell.needs or "cpu")

    def run(self, cells: list[Cell], elsewhere: bool = False) -> Run:
        runner: Nursery | Accelerator = self.config.stash[RUNNER]
        return runner.run(self.file, cells, elsewhere)

    @functools.cached_property
    def notebook(self) -> Run | SourceError:
        """The run of all cells one after the other, which is the second run of each; or the error that ended it."""
        try:
            return self.run([cell for cell in self.cells if not cell.needs], elsewhere=True)
        except SourceError as error:
            return error

    def cells_as_run(self) -> list[Cell]:
        """The cells that run on this device, with the outputs that `--update` is about to write."""
        here = [cell for cell in self.cells if self.runs_here(cell)]
        return [replace(cell, output=self.prints.get(cell.name, cell.output)) for cell in here]

    def entry(self) -> dict[str, Any]:
        """What a record says of this file: the cells that passed alone and as a notebook, here and today."""
        cells = self.cells_as_run()
        verified = {cell.name: digest(cells, cell) for cell in cells if {cell.name, "Notebook"} <= self.passed}
        return {**facts(self.config.option.device), "cells": verified}

    def refuse_difference(self, cell: Cell, output: Output, fix: str) -> None:
        """`SourceError` where `output` is not what the page shows below `cell`."""
        expected, got = cell.output or "", output.getvalue()
        if not self.is_authority(cell):
            got = compare.forget_device(got, self.device)
            fix = f"The CPU prints what the page shows; --device {self.config.option.device} does not."
        if compare.same(expected, got):
            return
        lines, first = compare.difference(expected, got)
        line = (output.origins[first : first + 1] or [None])[0] or cell.fence
        where = f"{cell.path}:{line}: {linecache.getline(cell.path, line).strip()}"
        if cell.shared:
            raise SourceError(f"{where}\nA cell without an output may not print; this one prints:\n\n{got}\n{fix}")
        raise SourceError(f"{where}\nThe page shows (-), the code prints (+):\n\n{lines}\n\n{fix}")


# -- testing -------------------------------------------------------------------------------------


class Test(pytest.Item):
    parent: SnippetFile

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name  # a test that is skipped must have a line

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *style: Any) -> Any:
        """The sentence of a broken rule, or the traceback into a cell; for an error of ours, what pytest says."""
        return str(excinfo.value) if isinstance(excinfo.value, SourceError) else super().repr_failure(excinfo, *style)


class CellTest(Test):
    """One cell, run as its program."""

    cell: Cell

    def runtest(self) -> None:
        file, cell = self.parent, self.cell
        cells = program_cells(file.cells_as_run(), cell)
        first = file.run(cells)
        refuse_equal_sizes(first.namespace, file.file)
        if file.is_authority(cell):
            notebook = None if cell.needs else file.notebook
            second = notebook if isinstance(notebook, Run) else file.run(cells, elsewhere=True)
            self.refuse_chance(first, second)
        output = first.outputs[cell.name]
        refuse_misfit(replace(cell, output=output.getvalue()))
        if cell.stands_alone:
            self.refuse_silence(first)
        if self.config.option.update and output.getvalue() and file.is_authority(cell) and file.holds(cell):
            with_outputs(file.file, {cell.name: output.getvalue()})  # refuses what a page cannot show
            file.prints[cell.name] = output.getvalue()
        else:
            update = f"nox -s gpu -- --update {cell.path}" if cell.needs else f"nox -s update -- {slug_of(cell.path)}"
            file.refuse_difference(cell, output, f"Fix the code, or take over what it prints: {update}")
        file.passed.add(cell.name)

    def refuse_silence(self, run: Run) -> None:
        """`SourceError` where a cell that stands alone prints nothing, or has an unchecked shape comment."""
        if not run.outputs[self.name].getvalue():
            raise self.cell.fault("prints nothing; let it show what it did")
        if lines := unchecked([self.cell], run):
            raise SourceError(f"{min(lines)}: the cell does not run this line; its shape comment is unchecked")

    def refuse_chance(self, one: Run, other: Run) -> None:
        """`SourceError` where two runs, from different random states, differ: in a print, or in what they draw next."""
        if not compare.same(one.outputs[self.name].getvalue(), other.outputs[self.name].getvalue()):
            fault = "prints something else each time, after other cells, or on another machine or day"
            fix = "put torch.manual_seed(...) above all that draws, and print what holds everywhere"
            raise self.cell.fault(f"{fault}; {fix}")
        if self.name in one.draws and one.draws[self.name] != other.draws[self.name]:
            raise self.cell.fault("draws random numbers without a seed of its own; put torch.manual_seed(...) first")


class NotebookTest(Test):
    """All cells of a file, one after the other in one namespace. Here every shape comment must be executed."""

    def runtest(self) -> None:
        file = self.parent
        cells = [cell for cell in file.cells_as_run() if not cell.needs]
        if not cells:
            raise SourceError(f"{file.file}: no cells that run everywhere; write one, or delete the file")
        if not isinstance(file.notebook, Run):
            raise file.notebook
        fix = f"So it does when it runs after the cells above it, as in the notebook of the page {file.slug}."
        for cell in cells:
            file.refuse_difference(cell, file.notebook.outputs[cell.name], fix)
        if lines := unchecked(filter(file.holds, cells), file.notebook):
            raise SourceError(f"{min(lines)}: no cell runs this line, so its shape comment is never checked")
        file.passed.add(self.name)


def unchecked(cells: Iterable[Cell], run: Run) -> set[str]:
    """Where shape comments of cells stand that a run has not executed."""
    return {f"{cell.path}:{line}" for cell in cells for line in shape_comments(cell)} - run.executed


def refuse_equal_sizes(namespace: Mapping[str, Any], path: Path) -> None:
    """`SourceError` where two letters of the legend stand for one number."""
    sizes = {name: namespace[name] for name in sorted(LEGEND) if type(namespace.get(name)) is int}
    for one, other in itertools.combinations(sizes, 2):
        if sizes[one] == sizes[other]:
            raise SourceError(f"{path}: {one} and {other} are both {sizes[one]}; a swapped axis could hide")


# -- writing what a run gave ----------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the summary of pytest
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
    """Below the summary: write what a run gave, or say that it stopped before the end and gave too little."""
    result = yield
    option = session.config.option
    if option.update or option.record:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldfail:
            write_files(session)
        else:
            writer = session.config.get_terminal_writer()
            writer.line("stopped before the end: snippets/ and verified/ are as they were", red=True)
    return result


def write_files(session: pytest.Session) -> None:
    """Write the outputs and the record, as `--update` and `--record` ask for them."""
    try:
        for file in {item.parent for item in session.items if isinstance(item, Test)}:
            if file.prints:
                write_atomically(file.file, with_outputs(file.file, file.prints))
            if session.config.option.record:
                add_entry(folder_of(file.file).parent / f"verified/{file.device}.json", file.slug, file.entry())
    except (SourceError, OSError) as error:
        pytest.exit(str(error), returncode=1)


def add_entry(path: Path, slug: str, entry: dict[str, Any]) -> None:
    """Write the entry of a page into a record, into which another run may be writing, too."""
    with FileLock(path.resolve().parents[1] / ".cache/record.lock"):
        write_record(path, read_record(path) | {slug: entry})
