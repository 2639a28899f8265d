"""pytest-codeblocks, made strict: `pytest --codeblocks snippets [--device cuda] [--update] [--record]`

Every cell of a snippet file is one test, named after it, and each file has one more, `notebook`, which runs its cells
one after the other as the download does. So each cell runs twice on the CPU, after different seeds: as its program in
a fresh namespace, and in the notebook. Its print is compared with what the page shows (see `compare`). A cell that
needs another device than the one at hand is skipped, and listed with its reason.
"""

import contextlib
import functools
import linecache
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pytest_codeblocks import plugin as codeblocks

from tools.cells import compare
from tools.cells.apart import Nursery
from tools.cells.execute import CellError, Run, attempt, compiled
from tools.cells.labels import refuse_misfit
from tools.cells.randomness import DISPATCH_KEYS, draw_on_the_cpu
from tools.cells.record import read_record, write_atomically, write_record
from tools.cells.source import (
    SourceError,
    digest,
    folder_of,
    program_cells,
    read_cells,
    read_includes,
    slug_of,
    with_outputs,
)
from tools.cells.summary import facts, job_summary
from tools.markdown import file_of_text

LEGEND = {"B", "H", "Hkv", "T", "Tq", "Tk", "D", "E", "V"}
passed, prints, ended = pytest.StashKey[dict](), pytest.StashKey[dict](), pytest.StashKey[int]()
nursery = pytest.StashKey[Nursery]()


def pytest_addoption(parser):
    group = parser.getgroup("cells")
    group.addoption(
        "--device", default="cpu", help="where the cells make their tensors: cpu, cuda, or sim (a pretend one)"
    )
    group.addoption("--update", action="store_true", help="write what the cells print into the snippet files")
    group.addoption("--record", action="store_true", help="write what passed into verified/<device>.json")


def pytest_configure(config):
    config.stash[passed], config.stash[prints], config.stash[ended] = {}, {}, 0
    config.option.reportchars += "s"  # list what was not run
    device = config.option.device
    if (config.option.record or config.option.update) and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--update and --record write files from one process; leave out -n")
    if device == "cpu":
        config.stash[nursery] = Nursery()
        return
    if device == "sim" and config.option.record:
        raise pytest.UsageError("--record: the pretend accelerator proves nothing to a reader; leave out --device sim")
    check_device(device)
    make_ready(config)


def pytest_unconfigure(config):
    if nursery in config.stash:
        config.stash[nursery].close()


def make_ready(config):
    """Make the device of a run the default one, on which cells print what the CPU prints."""
    torch.set_default_device(config.option.device)
    torch.backends.cudnn.enabled = False  # it rounds to TF32 and draws dropout masks of its own
    config.random_kernels = draw_on_the_cpu(kind_of(config.option.device))


@contextlib.contextmanager
def as_readers_have_it(config):
    """Torch as it comes: no default device, with cuDNN, and with random kernels of its own."""
    config.random_kernels._destroy()
    torch.backends.cudnn.enabled = True
    torch.set_default_device(None)
    try:
        yield
    finally:
        make_ready(config)


def kind_of(device):
    """The kind of a device: cuda for cuda:0."""
    return device.partition(":")[0]


def check_device(device):
    """`pytest.UsageError` where a device is not there, since nothing may pass unseen."""
    kind = kind_of(device)
    if kind not in DISPATCH_KEYS:
        raise pytest.UsageError(f"--device {device}: give one of cpu, {', '.join(DISPATCH_KEYS)}")
    if kind == "sim":
        from tools.cells import sim  # noqa: F401  registers the pretend accelerator with torch
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise pytest.UsageError(f"--device {device}: torch {torch.__version__} says: {error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """Only snippets hold cells: the blocks of other Markdown files are commands for people."""
    found = [file for file in (yield) if not isinstance(file, codeblocks.MarkdownFile)]
    if file_path.suffix == ".md" and "snippets" in (folder.name for folder in file_path.parents):
        found.append(SnippetFile.from_parent(parent, path=file_path))
    return found


class SnippetFile(codeblocks.MarkdownFile):
    """A snippet file. Its place below `snippets/` is the slug of its page."""

    def collect(self):
        self.slug = slug_of(self.path)
        self.root = Path(os.path.relpath(folder_of(self.path).parent))  # relative, as people name files in messages
        self.file = self.root / f"snippets/{self.slug}.md"
        kind = kind_of(self.config.option.device)
        self.record_path = self.root / f"verified/{kind}.json"
        try:
            self.cells = read_cells(self.file)
            read_record(self.record_path)
        except SourceError as error:
            raise self.CollectError(str(error)) from None
        self.failing = []
        blocks = [(block.obj.lineno, block.obj.code, block.obj.expected_output) for block in super().collect()]
        if blocks != [(cell.fence, cell.code, cell.output) for cell in self.cells if self.holds(cell)]:
            raise self.CollectError(f"{self.file}: pytest-codeblocks reads other blocks here than tools.cells.source")
        self.cells_here = [cell for cell in self.cells if cell.needs in ("", kind)]
        self.cells_anywhere = [cell for cell in self.cells if not cell.needs]
        for cell in self.cells:
            if cell.needs and cell.needs not in DISPATCH_KEYS:
                known = ", ".join(DISPATCH_KEYS)
                raise self.CollectError(f"{cell.path}:{cell.fence - 1}: needs {cell.needs}: give one of {known}")
            if cell.measures and not self.slug.startswith("labs/"):
                where = f"{cell.path}:{cell.fence - 1}"
                raise self.CollectError(
                    f"{where}: only a lab has figures that measure; take 'measures' out of the mark"
                )
            test = CellTest.from_parent(self, name=cell.name, cell=cell)
            if cell not in self.cells_here:
                self.refuse_comments(cell)
                test.add_marker(pytest.mark.skip(reason=f"{cell.name!r} needs {cell.needs}: {cell.why}"))
            yield test
        yield NotebookTest.from_parent(self, name="notebook")

    def holds(self, cell):
        """Whether a cell is written in this file; others it only shows."""
        return cell.path == str(self.file)

    def refuse_comments(self, cell):
        """`CollectError` for a cell that does not run here and has a comment that is no shape, or is no Python."""
        try:
            compiled(cell)
        except CellError as error:
            raise self.CollectError(str(error)) from None

    def run(self, cells, seed):
        """Run cells, on the CPU in a process of their own; `CellError` for what fails.

        On an accelerator they share one process, since each would take seconds to set up the accelerator. Those of a
        program whose last one needs it run as a reader runs them.
        """
        device = self.config.option.device
        if device == "cpu":
            return self.config.stash[nursery].run(self.file, cells, seed)
        if cells[-1].needs:
            with as_readers_have_it(self.config):
                result = attempt(self.file, cells, seed=seed)
        else:
            result = attempt(self.file, cells, device, seed)
        if isinstance(result, CellError):
            raise result
        return result

    @functools.cached_property
    def notebook(self):
        """The run of all cells one after the other, which is the second run of each; or the error that ended it."""
        try:
            return self.run(self.cells_anywhere, seed=2)
        except CellError as error:
            return error

    def passed(self, name):
        self.config.stash[passed].setdefault(self, set()).add(name)

    def cells_as_run(self):
        """The cells that run on this device, with the outputs that `--update` is about to write."""
        fresh = self.config.stash[prints].get(self.file, {})
        return [replace(cell, output=fresh.get(cell.name, cell.output)) for cell in self.cells_here]

    def authority(self, cell):
        """Whether this device says what a page shows: the one that a cell needs, the CPU for all others."""
        return kind_of(self.config.option.device) == (cell.needs or "cpu")

    def refuse_difference(self, cell, output, mend):
        """`CellError` where `output` is not what the page shows below `cell`."""
        device, expected, got = self.config.option.device, cell.output or "", output.getvalue()
        if not self.authority(cell):
            got = compare.forget_device(got, kind_of(device))
            mend = f"The CPU prints what the page shows; --device {device} does not."
        if compare.same(expected, got):
            return
        lines, first = compare.difference(expected, got)
        line = (output.origins[first : first + 1] or [None])[0] or cell.fence
        where = f"{cell.path}:{line}: {linecache.getline(cell.path, line).strip()}"
        if cell.shared:
            raise CellError(f"{where}\nA cell without an output may not print; this one prints:\n\n{got}\n{mend}")
        raise CellError(f"{where}\nThe page shows (-), the code prints (+):\n\n{lines}\n\n{mend}")


class CellTest(codeblocks.TestBlock):
    """One cell, run as its program."""

    def __init__(self, name, parent, cell):
        super().__init__(name, parent)
        self.cell = cell

    def runtest(self):
        file, cell = self.parent, self.cell
        self.refuse_hidden()
        cells = program_cells(file.cells_as_run(), cell)
        first = file.run(cells, seed=1)
        refuse_equal_sizes(first.namespace, file.file)
        if file.authority(cell):
            second = file.notebook if isinstance(file.notebook, Run) and not cell.needs else file.run(cells, seed=2)
            self.refuse_chance(first, second)
        output = first.outputs[cell.name]
        refuse_misfit(replace(cell, output=output.getvalue()))
        if cell.stands_alone:
            self.refuse_silence(first)
        if self.config.option.update and output.getvalue() and file.authority(cell) and file.holds(cell):
            with_outputs(file.file, {cell.name: output.getvalue()})  # refuses what a page cannot show
            self.config.stash[prints].setdefault(file.file, {})[cell.name] = output.getvalue()
        else:
            update = f"nox -s gpu -- --update {cell.path}" if cell.needs else f"nox -s update -- {slug_of(cell.path)}"
            mend = f"Mend the code, or take over what it prints: {update}"
            file.refuse_difference(cell, output, mend)
        file.passed(cell.name)

    def refuse_hidden(self):
        """`CellError` where a page of the file, in any language, does not show the cell."""
        file, slug = self.parent, slug_of(self.cell.path)
        pages = sorted(file.root.glob(f"docs/*/{file.slug}.md"))
        for page in pages or [file.root / f"docs/en/{file.slug}.md"]:
            shown = [(i.slug, i.name) for i in read_includes(file_of_text(page))] if page.is_file() else []
            if (slug, self.name) not in shown:
                raise CellError(
                    f"{self.cell.path}:{self.cell.fence}: the cell {self.name!r} is on no page; show it in {page} "
                    f'with the line --8<-- "{slug}.md:{self.name}"'
                )

    def refuse_silence(self, done):
        """`CellError` where a cell that stands alone by its mark prints nothing, or has an unchecked shape comment."""
        cell = self.cell
        if not done.outputs[cell.name].getvalue():
            raise CellError(f"{cell.path}:{cell.fence}: the cell {cell.name!r} prints nothing; let it show what it did")
        if unchecked := compiled(cell)[1] - done.executed:
            raise CellError(f"{first(unchecked)}: the cell does not run this line; its shape comment is unchecked")

    def refuse_chance(self, first, again):
        """`CellError` where two runs, from different random states, differ: in a print, or in what they draw next."""
        name, where = self.name, f"{self.cell.path}:{self.cell.fence}: the cell {self.name!r}"
        if not compare.same(first.outputs[name].getvalue(), again.outputs[name].getvalue()):
            raise CellError(
                f"{where} prints something else each time, or after other cells; "
                "put torch.manual_seed(...) above all that draws"
            )
        if name in first.draws and first.draws[name] != again.draws[name]:
            raise CellError(f"{where} draws random numbers without a seed of its own; put torch.manual_seed(...) first")

    def repr_failure(self, excinfo):
        return failure_text(self, excinfo)

    def reportinfo(self):
        return self.path, self.cell.fence - 1, self.name


class NotebookTest(pytest.Item):
    """All cells of a file, one after the other in one namespace. Here every shape comment must be executed."""

    def runtest(self):
        file = self.parent
        if not file.cells_anywhere:
            raise CellError(f"{file.file}: no cells that run everywhere; write one, or delete the file")
        if not isinstance(file.notebook, Run):
            raise file.notebook
        mend = f"So it does when it runs after the cells above it, as in the notebook of the page {file.slug}."
        for cell in file.cells_as_run():
            if not cell.needs:
                file.refuse_difference(cell, file.notebook.outputs[cell.name], mend)
        unchecked = file.notebook.comments - file.notebook.executed
        if unchecked := {where for where in unchecked if where.startswith(f"{file.file}:")}:
            raise CellError(f"{first(unchecked)}: no cell runs this line, so its shape comment is never checked")
        file.passed(self.name)

    def repr_failure(self, excinfo):
        if failing := self.parent.failing:  # it would say the same once more
            return f"{self.parent.file}: the notebook fails, and so do cells of it: mend {', '.join(failing)} first"
        return failure_text(self, excinfo)

    def reportinfo(self):
        return self.path, None, self.name


def first(places):
    """Of places in a file, `file:line`, the one with the smallest line."""
    return min(places, key=lambda place: int(place.rpartition(":")[2]))


def refuse_equal_sizes(namespace, path):
    """`CellError` where two letters of the legend stand for one number."""
    letters = {}
    for name in sorted(LEGEND & namespace.keys()):
        if type(namespace[name]) is int:
            other = letters.setdefault(namespace[name], name)
            if other != name:
                raise CellError(f"{path}: {other} and {name} are both {namespace[name]}; a swapped axis could hide")


def failure_text(item, excinfo):
    """The sentence of a broken rule, or the traceback into a cell; for an error of ours, what pytest says."""
    if isinstance(excinfo.value, (CellError, SourceError)):
        return str(excinfo.value)
    return pytest.Item.repr_failure(item, excinfo)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """The notebook of a file knows which cells have failed; tests that ended are counted."""
    report = yield
    if isinstance(item, CellTest) and report.failed:
        item.parent.failing.append(item.name)
    if call.when == "teardown":
        item.config.stash[ended] += 1
    return report


def pytest_collection_finish(session):
    """A record is written of whole files: what is selected in part would wipe out the rest of its entry."""
    if session.config.option.record:
        tests = [item for item in session.items if isinstance(item, (CellTest, NotebookTest))]
        for file in dict.fromkeys(item.parent for item in tests):
            if len([item for item in tests if item.parent is file]) <= len(file.cells):
                raise pytest.UsageError(f"--record: {file.file} is selected in part; name the whole file")
            session.config.stash[passed][file] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the summary of pytest
def pytest_sessionfinish(session):
    """Below the summary: write what a run has found, or say that it stopped before the end and found too little."""
    result = yield
    config = session.config
    if config.stash[ended] == len(session.items):
        write_files(config)
    elif config.option.update or config.option.record:
        config.get_terminal_writer().line("stopped before the end: snippets/ and verified/ are as they were", red=True)
    return result


def write_files(config):
    """Write the record and the outputs, as `--record` and `--update` ask for them."""
    try:
        if config.option.record:
            for file, names in config.stash[passed].items():
                record(file, names, config.option.device)
        for path, outputs in config.stash[prints].items():
            write_atomically(path, with_outputs(path, outputs))
    except SourceError as error:
        pytest.exit(str(error), returncode=1)


def record(file, names, device):
    """Write into `verified/<device>.json` that these cells of a file passed alone and as a notebook, here and today."""
    pages, cells = read_record(file.record_path), file.cells_as_run()
    pages[file.slug] = {
        **facts(device),
        "cells": {cell.name: digest(cells, cell) for cell in cells if {cell.name, "notebook"} <= names},
    }
    write_record(file.record_path, pages)


def pytest_terminal_summary(terminalreporter):
    """On GitHub, what a job ran is a table above its log."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(job_summary(terminalreporter.stats, terminalreporter.config.option.device))
