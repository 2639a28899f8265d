"""Break the code of the pages in small ways and print what no test notices.

    nox -s mutants                       every page
    nox -s mutants -- masks/padding      this page

A mutant is one small change, made by `tests/pages/changes.py`, of a function or class that readers copy from a shared
cell. The tests of its page try it, then those for all pages. Left alone are code outside of functions, whose printed
output is checked, the checks of exercises, and their solutions: `tests/pages/test_exercises.py` changes these.

What survives is printed with its file and line, unless the tests of the page give a reason in `SURVIVORS`: {reason:
[changed statement, ...]}. A reason that excuses nothing any more is printed, too.
"""

import ast
import gc
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest

from tests.pages.changes import changes
from tools.cells import source

ROOT = Path(__file__).parents[2]
SHARED = sorted(str(path) for path in (ROOT / "tests/pages").glob("test_*.py"))
PASSED = pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED
LOADED = (  # once, not for each mutant
    "tools.cells.plugin",
    "transformers.models.gpt2.modeling_gpt2",
    "tests.structure.test_anatomy",
    "tests.pages.references",
)
LIMIT = 300  # seconds for the tests of one mutant
Part = tuple[int, source.Cell | source.Include]


@dataclass(frozen=True)
class Mutant:
    """A page, one of its cells, and another code for it; without a name, the page as it is."""

    slug: str
    cell: str = ""
    code: str = ""
    where: str = ""
    text: str = ""


def mutants_of(slug: str) -> Iterator[Mutant]:
    path = ROOT / f"snippets/{slug}.md"
    for cell in source.read_cells(path):
        if cell.path == str(path) and cell.shared and not cell.name.startswith("check"):
            for change in changes(cell.code):
                where = f"snippets/{slug}.md:{cell.fence + change.line}"
                yield Mutant(slug, cell.name, change.code, where, change.text)


def tests_of(slug: str) -> Path:
    chapter, _, name = slug.rpartition("/")
    return ROOT / "tests/pages" / chapter / f"test_{name.replace('-', '_')}.py"


def reasons(slug: str, table: str) -> dict[str, str]:
    """What a table of the tests of a page, {reason: [changed statement, ...]}, excuses: {changed statement: reason}."""
    for node in ast.parse(tests_of(slug).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table:
            excused = ast.literal_eval(node.value)
            return {text: reason for reason, texts in excused.items() for text in texts}
    return {}


# -- trying them ---------------------------------------------------------------------------------


class QuickestFirst:
    """A plugin of pytest: tests run in the order of the `seconds` that they took before; it notes what they take."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration


def tried(mutant: Mutant, seconds: dict[str, float]) -> tuple[bool, dict[str, float]]:
    """Whether all tests pass on a mutant, and what they took, in a process that ends with this call."""
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    source.parts = with_mutant(mutant)
    gc.freeze()  # pytest looks for garbage, through all that is loaded
    order = QuickestFirst(seconds)
    options = "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"  # whose timer a fork loses
    for tests in [str(tests_of(mutant.slug))], [*SHARED, "-k", mutant.slug]:
        if pytest.main([*tests, *options], plugins=[order]) not in PASSED:
            return False, order.seconds
    return True, order.seconds


def stop(*_: object) -> None:
    raise TimeoutError(f"the tests of a mutant took {LIMIT} seconds")


def with_mutant(mutant: Mutant) -> Callable[..., tuple[Part, ...]]:
    """`parts` of `tools/cells/source.py`, but one cell of one page has other code."""
    parts, file = source.parts, (ROOT / f"snippets/{mutant.slug}.md").resolve()

    def changed(part: Part) -> Part:
        line, cell = part
        if isinstance(cell, source.Cell) and cell.name == mutant.cell:
            return line, replace(cell, code=mutant.code)
        return part

    def parts_with_mutant(path: str | Path, *given: Any) -> tuple[Part, ...]:
        whole = parts(path, *given)
        return tuple(map(changed, whole)) if Path(path).resolve() == file else whole

    return parts_with_mutant


def survivors(slug: str, pool: Pool) -> tuple[list[Mutant], list[Mutant]]:
    """The mutants of a page, and those among them that no test notices."""
    passed, seconds = pool.apply(tried, (Mutant(slug), {}))
    if not passed:
        raise source.SourceError(f"{tests_of(slug)}: a test fails on the page as it is; repair it first")
    mutants = list(mutants_of(slug))
    alive = pool.starmap(tried, [(mutant, seconds) for mutant in mutants], chunksize=1)
    return mutants, [mutant for mutant, (passed, _) in zip(mutants, alive) if passed]


def report(slug: str, pool: Pool) -> None:
    """Print what no test of a page notices and no reason excuses, and reasons that excuse nothing."""
    mutants, alive = survivors(slug, pool)
    excused, texts = reasons(slug, "SURVIVORS"), {mutant.text for mutant in alive}
    print(f"{slug}: {len(mutants) - len(alive)} of {len(mutants)} noticed", flush=True)
    for mutant in alive:
        if mutant.text not in excused:
            print(f"  {mutant.where}: {mutant.text}")
    for text in sorted(excused.keys() - texts):
        print(f"  {tests_of(slug).relative_to(ROOT)}: this is noticed, take it out of SURVIVORS: {text}")


def main(named: list[str]) -> None:
    pages = map(source.slug_of, sorted(ROOT.glob("snippets/**/*.md")))
    for module in LOADED:
        importlib.import_module(module)
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
        for slug in named or [page for page in pages if tests_of(page).is_file()]:
            report(slug, pool)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except source.SourceError as error:
        sys.exit(str(error))
