"""Break the code of the pages in small ways and see whether their tests notice.

    nox -s mutants                      every page whose code or tests have changed since it was counted
    nox -s mutants -- foundations/causal      this page, in any case

A mutant is one small change inside a function or class that readers copy, in a shared cell or in the solution of the
exercise: an operator, a comparison, a number, an axis, a name of another role, a call or a statement left out. It is an
edit of the text at one place, made by `tests/pages/changes.py`; all else in the cell keeps its bytes. Left alone are
code outside of functions, since its printed output checks it; the check of an exercise, `check...`, which is tried on
wrong answers; sizes that only shape comments read; and on which device a tensor lies, which `--device` checks.

The tests of its page alone, `tests/pages/...`, try a mutant. It is caught by the first test that fails after the
changed cell has run, be it in that test or before, when the file was imported. A test that fails before the cell has
run has found its text, not its fault, and does not count. So that no test counts that looks at the text of a cell later
on, two controls must pass all tests, or the page is not counted: its cells reprinted by `ast.unparse`, and its cells
with other spaces and no comments. Whatever does not end within a limit is stopped, and counted apart.

The result is `tests/pages/mutants.md`. It lists what no test catches, each with a reason that a person writes there in
place of `?`. `tests/structure/test_mutants.py` lets one in twenty live on a page, or three, and asks for these
reasons, and for counts that are those of the code and the tests as they are.
"""

import ast
import gc
import hashlib
import importlib
import io
import math
import os
import pickle
import re
import signal
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from tests.pages import properties
from tests.pages.changes import changed_texts
from tools.cells.execute import run
from tools.cells.source import Cell, SourceError, read_cells, slug_of

REPORT = properties.ROOT / "tests/pages/mutants.md"
NO_REASON = "?"
HEAD = """\
# Mutants

Written by `nox -s mutants`; only the reasons are written by people. A mutant is one small change in a function or class
of a page, as `tests/pages/mutants.py` says. The tests of that page alone catch it, or it is stopped because it does not
end, or it stands below. The digest is that of the mutants and of the tests.

| page | mutants | caught | stopped | share | digest |
|---|---|---|---|---|---|""".splitlines()
SURVIVORS = """
## Not caught

| page | cell | code | changed to | why no test can or need catch it |
|---|---|---|---|---|""".splitlines()


@dataclass(frozen=True)
class Mutant:
    """A cell with one change: its lines `old` then read `new`, the first time or the `nth` that they stand there."""

    slug: str
    cell: str
    old: str
    new: str
    code: str
    nth: int = 1

    @property
    def name(self) -> tuple:
        return self.slug, self.cell if self.nth == 1 else f"{self.cell} ({self.nth})", self.old, self.new


# -- making them ---------------------------------------------------------------------------------


def difference(old, new):
    """The lines in which two texts differ, of each as one line without shape comments."""
    texts = [properties.SHAPE_COMMENT.sub("", text).split("\n") for text in (old, new)]
    while texts[0] and texts[1] and texts[0][0] == texts[1][0]:
        texts = [lines[1:] for lines in texts]
    while texts[0] and texts[1] and texts[0][-1] == texts[1][-1]:
        texts = [lines[:-1] for lines in texts]
    return tuple(" ".join(map(str.strip, lines)) for lines in texts)


def mutated_cells(slug: str) -> list[Cell]:
    """Its own: what it shows of another page is counted there."""
    path = properties.ROOT / f"snippets/{slug}.md"
    cells = [cell for cell in read_cells(path) if cell.path == str(path)]
    shared = [cell for cell in cells if cell.shared and not cell.name.startswith("check")]
    return [*shared, *(cell for cell in cells if cell.name.startswith("solution"))]


def mutants_of(slug: str) -> list[Mutant]:
    """Every mutant of a page, each once."""
    found, names = {}, Counter()
    for cell in mutated_cells(slug):
        for code in changed_texts(cell.code):
            if code not in found:
                lines = difference(cell.code, code)
                names[cell.name, *lines] += 1
                found[code] = Mutant(slug, cell.name, *lines, code, names[cell.name, *lines])
    return list(found.values())


def digest(slug: str) -> str:
    """Of the mutants of a page and of its tests, but for their comments and their layout."""
    tests = ast.dump(ast.parse(tests_of(slug).read_text(encoding="utf-8")))
    return hashlib.sha256("\0".join([*(mutant.code for mutant in mutants_of(slug)), tests]).encode()).hexdigest()[:12]


def tests_of(slug: str) -> Path:
    chapter, _, name = slug.rpartition("/")
    return properties.ROOT / "tests/pages" / chapter / f"test_{name.replace('-', '_')}.py"


# -- trying it -----------------------------------------------------------------------------------


@dataclass
class Notes:
    """A plugin of pytest, and what it notes down while the tests of a page try other `codes` of its cells."""

    slug: str
    codes: dict  # cell: code
    seconds: dict = field(default_factory=dict)  # of each test; quick ones come first
    status: int | None = None  # that of pytest, None if it did not end
    ran: bool = False  # one of the codes, by now
    caught: bool = False
    failed: str = ""  # the first test that did

    @property
    def page(self):
        return properties.ROOT / f"snippets/{self.slug}.md"

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0))

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def pytest_exception_interact(self, node, call):
        """A test fails, or the file cannot be imported."""
        self.failed = self.failed or node.nodeid
        if self.ran and not isinstance(call.excinfo.value, properties.NotThere):
            self.caught = True
            node.session.shouldstop = "caught"

    def read_cells(self, path):
        return [
            replace(cell, code=self.codes.get(cell.name, cell.code)) if cell.path == str(self.page) else cell
            for cell in read_cells(path)
        ]

    def run(self, path, parts, *options):
        self.ran |= any(part.path == str(self.page) and part.name in self.codes for part in parts)
        return run(path, parts, *options)


def tried(waiting: list[Notes], limit: float = 600) -> list[Notes]:
    """What the tests note of each, as many at a time as there are processors; each may take `limit` seconds."""
    at_a_time = os.cpu_count() or 1
    with TemporaryDirectory() as folder:
        paths = [Path(folder, str(number)) for number in range(len(waiting))]
        for number, (notes, path) in enumerate(zip(waiting, paths)):
            if number >= at_a_time:
                os.wait()
            if os.fork() == 0:
                try_in_child(notes, path, limit)
        for _ in paths[:at_a_time]:
            os.wait()
        return [pickle.loads(path.read_bytes()) if path.exists() else notes for notes, path in zip(waiting, paths)]


def try_in_child(notes, path, limit):
    """Run the tests of a page in this process, which is a child with torch and pytest loaded; write what was noted."""
    try:
        signal.alarm(math.ceil(limit))
        gc.freeze()  # no looking for garbage through all that the parent has loaded
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        properties.read_cells, properties.run = notes.read_cells, notes.run
        options = "-p", "no:cacheprovider", "-p", "no:xdist"
        notes.status = int(pytest.main([str(tests_of(notes.slug)), *options], plugins=[notes]))
        path.write_bytes(pickle.dumps(notes))
    finally:
        os._exit(0)


class NotCounted(Exception):
    """The tests of a page fail although its code means the same; the message says which."""


def controls(slug: str) -> dict:
    """The seconds of each test of a page, which must pass on its cells written otherwise, and in the order of these."""
    cells, seconds = mutated_cells(slug), {}
    for change in (reprinted, respaced):
        [notes] = tried([Notes(slug, {cell.name: change(cell.code) for cell in cells}, seconds)])
        if notes.status != 0:
            raise NotCounted(refusal(slug, notes.failed))
        seconds = notes.seconds
    return seconds


def refusal(slug, failed):
    [before] = tried([Notes(slug, {})])
    if before.status != 0:
        return f"{before.failed or tests_of(slug)} fails before anything is changed; fix it first"
    return f"{failed or tests_of(slug)} fails when the cells are only written otherwise; it must not look at their text"


def reprinted(code):
    return ast.unparse(ast.parse(code)) + "\n"


def respaced(code):
    """Code with other spaces between its words and signs, and without comments."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return tokenize.untokenize((token.type, token.string) for token in tokens if token.type != tokenize.COMMENT)


def count(slug: str) -> list[tuple[Mutant, Notes]]:
    """The mutants of a page with what its tests note of each."""
    seconds = controls(slug)
    mutants, limit = mutants_of(slug), 60 + 3 * sum(seconds.values())
    return list(zip(mutants, tried([Notes(slug, {mutant.cell: mutant.code}, seconds) for mutant in mutants], limit)))


# -- telling of it -------------------------------------------------------------------------------


def read_report() -> tuple[dict, dict]:
    """The pages of the report as {slug: (mutants, caught, stopped, digest)}, and {survivor: reason}."""
    lines = REPORT.read_text(encoding="utf-8").splitlines() if REPORT.exists() else []
    rows = [
        [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
        if re.match(r"\| (?!page)", line)
    ]
    pages = {row[0]: (int(row[1]), int(row[2]), int(row[3]), row[5]) for row in rows if len(row) == 6}
    survivors = [row for row in rows if len(row) == 5]
    return pages, {(slug, cell, old[1:-1], new[1:-1]): reason for slug, cell, old, new, reason in survivors}


def write_report(pages: dict, reasons: dict):
    lines = [*HEAD]
    for slug, (made, caught, stopped, code) in sorted(pages.items()):
        lines.append(f"| {slug} | {made} | {caught} | {stopped} | {(caught + stopped) / max(made, 1):.1%} | {code} |")
    lines += SURVIVORS
    for (slug, cell, old, new), reason in sorted(reasons.items()):
        lines.append(f"| {slug} | {cell} | `{escaped(old)}` | `{escaped(new)}` | {escaped(reason)} |")
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def escaped(text):
    return text.replace("|", r"\|")


def changed_pages(pages: dict) -> list[str]:
    """The pages with tests that are not counted as they are now."""
    slugs = map(slug_of, sorted(properties.ROOT.glob("snippets/**/*.md")))
    return [slug for slug in slugs if tests_of(slug).is_file() and pages.get(slug, [""])[-1] != digest(slug)]


def main(named: list[str]) -> str | None:
    """Count pages, and write the report after each; return what stands in the way."""
    pages, reasons = read_report()
    slugs, refused = named or changed_pages(pages), []
    torch.set_num_threads(1)
    importlib.import_module("transformers.models.gpt2.modeling_gpt2")  # once, not in each child
    for slug in slugs:
        try:
            noted = count(slug)
        except NotCounted as error:
            print(f"{slug}: not counted: {error}")
            refused.append(slug)
            continue
        stopped = [notes.status is None for _, notes in noted].count(True)
        alive = [mutant.name for mutant, notes in noted if notes.status is not None and not notes.caught]
        pages[slug] = len(noted), len(noted) - len(alive) - stopped, stopped, digest(slug)
        reasons = {name: reason for name, reason in reasons.items() if name[0] != slug} | {
            name: reasons.get(name, NO_REASON) for name in alive
        }
        write_report(pages, reasons)
        print(f"{slug}: {len(noted) - len(alive)} of {len(noted)} caught, {stopped} of them stopped")
    for slug, cell, old, new in (name for name, reason in reasons.items() if reason == NO_REASON):
        print(f"{slug}, {cell}: no test catches, and no reason is given for\n    {old}\n    {new}")
    return f"not counted: {', '.join(refused)}" if refused else None


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SourceError as error:
        sys.exit(str(error))
