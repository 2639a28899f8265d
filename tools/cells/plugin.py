"""pytest-codeblocks, made strict: `pytest --codeblocks snippets [--device cuda] [--update] [--record]`

Every cell of a snippet file is one test, named after it, and each file has one more, `notebook`, which runs its cells
one after the other as the download does. A cell runs as its program, in a fresh namespace, twice on the CPU with
different seeds before it; its print is compared with what the page shows (see `compare`).
"""

import datetime
import linecache
import os
import platform
from pathlib import Path

import pytest
import torch
from pytest_codeblocks import plugin as codeblocks

from tools.cells import compare
from tools.cells.execute import CellError, run
from tools.cells.randomness import DISPATCH_KEYS, draw_on_the_cpu
from tools.cells.record import read_record, write_atomically, write_record
from tools.cells.shapes import ShapeError
from tools.cells.source import SourceError, digest, program_cells, read_cells, read_includes, with_outputs

RULE_BROKEN = (CellError, ShapeError, SourceError)
verified, prints = pytest.StashKey[dict](), pytest.StashKey[dict]()


def pytest_addoption(parser):
    group = parser.getgroup("cells")
    group.addoption(
        "--device", default="cpu", help="where the cells make their tensors: cpu, cuda, or sim (a pretend one)"
    )
    group.addoption("--update", action="store_true", help="write what the cells print into the snippet files")
    group.addoption("--record", action="store_true", help="write what passed into verified/<device>.json")


def pytest_configure(config):
    config.stash[verified], config.stash[prints] = {}, {}
    device = config.option.device
    if device == "cpu":
        return
    if config.option.update:
        raise pytest.UsageError(f"--update writes what the CPU prints; leave out --device {device}")
    config.random_kernels = usable(device)


def usable(device):
    """Make a device ready for cells; `pytest.UsageError` where it is not there, since nothing may pass unseen."""
    kind = device.partition(":")[0]
    if kind not in DISPATCH_KEYS:
        raise pytest.UsageError(f"--device {device}: give one of cpu, {', '.join(DISPATCH_KEYS)}")
    if kind == "sim":
        from tools.cells import sim  # noqa: F401  registers the pretend accelerator with torch
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise pytest.UsageError(f"--device {device}: torch {torch.__version__} says: {error}") from None
    torch.backends.cudnn.enabled = False  # it rounds to TF32 and draws dropout masks of its own
    return draw_on_the_cpu(kind)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    found = yield
    return [
        SnippetFile.from_parent(parent, path=file.path) if isinstance(file, codeblocks.MarkdownFile) else file
        for file in found
    ]


class SnippetFile(codeblocks.MarkdownFile):
    """A snippet file. Its place below `snippets/` is the slug of its page."""

    def collect(self):
        self.file = Path(os.path.relpath(self.path))  # as people name it in messages
        try:
            self.cells = read_cells(self.file)
            if self.config.option.record:
                read_record(self.record_path())
        except SourceError as error:
            raise self.CollectError(str(error)) from None
        blocks = [block.obj for block in super().collect()]
        if [(b.lineno, b.code, b.expected_output) for b in blocks] != [(c.fence, c.code, c.output) for c in self.cells]:
            raise self.CollectError(f"{self.file}: pytest-codeblocks reads other blocks here than tools.cells.source")
        for cell, block in zip(self.cells, blocks):
            yield CellTest.from_parent(self, name=cell.name, obj=block, cell=cell)
        yield NotebookTest.from_parent(self, name="notebook")

    @property
    def root(self):
        """The folder that holds `snippets/` and `docs/`."""
        return next(folder.parent for folder in self.file.parents if folder.name == "snippets")

    @property
    def slug(self):
        return self.file.relative_to(self.root / "snippets").with_suffix("").as_posix()

    def run(self, cells, seed):
        return run(self.file, cells, self.config.option.device, seed)

    def pages(self):
        """The page of this file in each language that has it."""
        return sorted(self.root.glob(f"docs/*/{self.slug}.md"))

    def record_path(self):
        return self.root / "verified" / f"{self.config.option.device.partition(':')[0]}.json"

    def refuse_difference(self, cell, output):
        """`CellError` where `output` is not what the page shows below `cell`."""
        expected, got = cell.output or "", output.getvalue()
        if self.config.option.device != "cpu":
            expected, got = map(compare.forget_device, (expected, got))
        if compare.same(expected, got):
            return
        lines, first = compare.difference(expected, got)
        line = (output.origins[first : first + 1] or [None])[0] or cell.fence
        where = f"{self.file}:{line}: {linecache.getline(str(self.file), line).strip()}"
        if cell.shared:
            raise CellError(
                f"{where}\nA cell without an output may not print; this one prints:\n\n{got}\n{self.mend()}"
            )
        raise CellError(f"{where}\nThe page shows (-), the code prints (+):\n\n{lines}\n\n{self.mend()}")

    def mend(self):
        return f"Mend the code, or take over what it prints: nox -s update -- {self.slug}"


class CellTest(codeblocks.TestBlock):
    """One cell, run as its program."""

    def __init__(self, name, parent, obj, cell):
        super().__init__(name, parent, obj)
        self.cell = cell

    def runtest(self):
        file, cell = self.parent, self.cell
        self.refuse_hidden()
        cells = program_cells(file.cells, cell)
        output = file.run(cells, seed=1).outputs[cell.name]
        if self.config.option.device == "cpu":
            again = file.run(cells, seed=2).outputs[cell.name]
            if not compare.same(output.getvalue(), again.getvalue()):
                raise CellError(
                    f"{file.file}:{cell.fence}: the cell {cell.name!r} prints something else each time; "
                    "put torch.manual_seed(...) above everything that draws"
                )
        if self.config.option.update and output.getvalue():
            self.config.stash[prints].setdefault(file.path, {})[cell.name] = output.getvalue()
        else:
            file.refuse_difference(cell, output)
        self.config.stash[verified].setdefault(file, []).append(cell.name)

    def refuse_hidden(self):
        """`CellError` where a page of the file, in any language, does not show the cell."""
        file, pages = self.parent, self.parent.pages()
        hiding = [page for page in pages if self.name not in (include.name for include in read_includes(page))]
        if not pages or hiding:
            page = hiding[0] if hiding else f"docs/en/{file.slug}.md"
            raise CellError(
                f"{file.file}:{self.cell.fence}: the cell {self.name!r} is on no page; show it in {page} "
                f'with the line --8<-- "{file.slug}.md:{self.name}"'
            )

    def repr_failure(self, excinfo):
        return failure_text(self, excinfo)

    def reportinfo(self):
        return self.path, self.cell.fence - 1, self.name


class NotebookTest(pytest.Item):
    """All cells of a file, one after the other in one namespace. Here every shape comment must be executed."""

    def runtest(self):
        file = self.parent
        if not file.cells:
            raise CellError(f"{file.file}: no cells; delete the file or write one")
        result = file.run(file.cells, seed=1)
        for cell in () if self.config.option.update else file.cells:
            file.refuse_difference(cell, result.outputs[cell.name])
        for line in sorted(result.comments - result.executed):
            raise CellError(f"{file.file}:{line}: no cell runs this line, so its shape comment is never checked")

    def repr_failure(self, excinfo):
        return failure_text(self, excinfo)

    def reportinfo(self):
        return self.path, None, self.name


def failure_text(item, excinfo):
    """One sentence for a broken rule, with the line of the file that it happened on; else a traceback into the file."""
    excinfo.traceback = excinfo.traceback.cut(path=item.path)
    if not isinstance(excinfo.value, RULE_BROKEN):
        style = "value" if isinstance(excinfo.value, SyntaxError) else "short"
        return pytest.Item.repr_failure(item, excinfo, style)
    if isinstance(excinfo.value, ShapeError):
        lines = [entry.lineno + 1 for entry in excinfo.traceback if Path(entry.path) == item.path]
        return f"{item.parent.file}:{lines[-1]}: {excinfo.value}"
    return str(excinfo.value)


def pytest_sessionfinish(session):
    config = session.config
    for path, outputs in config.stash[prints].items():
        write_atomically(path, with_outputs(path, outputs))
    if config.option.record:
        for file, names in config.stash[verified].items():
            record(file, names, config.option.device)


def record(file, names, device):
    """Write into `verified/<device>.json` that these cells of a file passed, here and today."""
    pages, cells = read_record(file.record_path()), read_cells(file.file)
    pages[file.slug] = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "device": device_name(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cells": {cell.name: digest(cells, cell) for cell in cells if cell.name in names},
    }
    write_record(file.record_path(), pages)


def device_name(device):
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}" if device == "cpu" else device
