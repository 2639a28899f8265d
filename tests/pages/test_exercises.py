"""What every exercise owes its reader: a check that takes its solution and no wrong answer.

Wrong answers are made from the solution, by `tests/pages/changes.py` and `tests/pages/spoil.py`. One that a check takes
is as good as the solution, and the tests of its page say why: `ACCEPTED` is {reason: [changed statement, or how it is
spoiled, ...]}. Answers that no machine thinks of stand there, too: see `tests/pages/exercise.py`.
"""

import contextlib
import io
import re
import signal
from collections.abc import Iterator

import pytest

from tests.configuration import SLUGS
from tests.pages import properties as p
from tests.pages.changes import changes
from tests.pages.exercise import executed
from tests.pages.mutants import reasons
from tests.pages.spoil import SPOILS, spoiled
from tools.cells.source import Cell, read_cells

SECONDS = 20  # of an answer; one that never ends is wrong, too
SOLUTIONS = [
    (slug, cell)
    for slug in SLUGS
    for cell in read_cells(p.ROOT / f"snippets/{slug}.md")
    if cell.name.startswith("solution")
]
PAGES = sorted({slug for slug, _ in SOLUTIONS})
each_exercise = pytest.mark.parametrize(
    ("slug", "cell"), SOLUTIONS, ids=[f"{slug} {cell.name}" for slug, cell in SOLUTIONS]
)


@each_exercise
def test_the_solution_passes(slug, cell):
    assert executed(slug, cell.name)[1].startswith("correct: ")


@each_exercise
def test_the_starter_is_told_what_is_missing(slug, cell):
    assert p.is_rejection(executed(slug, cell.name.replace("solution", "exercise"))[1])


@pytest.mark.parametrize("slug", PAGES)
def test_wrong_answers_made_from_the_solution_are_rejected(slug):
    cells = [cell for page, cell in SOLUTIONS if page == slug]
    accepted = {text for cell in cells for text in (*accepted_changes(slug, cell), *accepted_spoils(slug, cell))}
    assert accepted == reasons(slug, "ACCEPTED").keys()


def accepted_changes(slug: str, cell: Cell) -> Iterator[str]:
    """The changes of a solution that its check takes: it prints neither "not yet" nor a traceback."""
    for change in changes(cell.code):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(Exception), in_time():
            exec(p.SHAPE_COMMENT.sub("", change.code), vars(executed(slug, cell.name)[0]).copy())
            if not p.is_rejection(printed.getvalue()):
                yield change.text


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """`TimeoutError` for what takes longer than `SECONDS`."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def accepted_spoils(slug: str, cell: Cell) -> Iterator[str]:
    """The names of the ways to spoil a solution that its check takes, where they act on it."""
    check, answer = re.search(r"^(check\w*)\((\w+)\)$", cell.code, re.MULTILINE).groups()
    names = executed(slug, cell.name)[0]
    for name, spoil in SPOILS.items():
        acted = []
        said = p.verdict(getattr(names, check), spoiled(spoil, getattr(names, answer), acted))
        if acted and not p.is_rejection(said):
            yield name
