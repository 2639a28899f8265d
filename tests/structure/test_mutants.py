"""The counts of `nox -s mutants` are those of the code and the tests as they are, and only what ran the code counts."""

import pytest

from tests.pages import mutants, properties
from tests.pages.changes import changed_texts

PAGES, REASONS = mutants.read_report()
CELLS = '''\
<!-- --8<-- [start:double] -->
```python
import torch


def double(x):
    """Twice, 两倍."""
    y = x*2  # (T,)
    return y
```
<!-- --8<-- [end:double] -->
'''
TESTS = """\
from tests.pages import properties as p

{above}

def test_a_claim():
    {claim}
"""
CODE, RUNS = "y = x*2", "assert p.page_code('a/b', 'double').double(2) == 4"
LOOKS = "assert '{}' in p.read_cells(p.ROOT / 'snippets/a/b.md')[0].code"


@pytest.mark.parametrize("counted", PAGES)
def test_one_mutant_in_twenty_may_live_or_three_and_each_has_a_reason(counted):
    made, caught, stopped, digest = PAGES[counted]
    again = f"nox -s mutants -- {counted}"
    assert digest == mutants.digest(counted), f"the code or tests of {counted} have changed since the count: {again}"
    survivors = [name for name in REASONS if name[0] == counted]
    assert len(survivors) == made - caught - stopped <= max(made / 20, 3)
    assert [name for name in survivors if REASONS[name] == mutants.NO_REASON] == []


def test_every_page_with_tests_is_counted():
    assert mutants.changed_pages(PAGES) == []


def test_the_report_is_written_as_it_was_read(tmp_path, monkeypatch):
    """A run for one page keeps the rows of all others, and every reason to the letter."""
    before = mutants.REPORT.read_text("utf-8")
    monkeypatch.setattr(mutants, "REPORT", tmp_path / "mutants.md")
    mutants.write_report(PAGES, REASONS)
    assert mutants.REPORT.read_text("utf-8") == before


# -- what is changed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("y = x**2+1", ["y = x**2 - 1", "y = x * 2+1", "y = x**3+1", "y = x**2+2"]),
        ("y = '两' < x[1:]", ["y = '两' <= x[1:]", "y = '两' < x[:]", "y = '两' < x[2:]"]),
        (
            "y = f(x,  2, dim = 3)",
            ["y = f(x, 2)", "y = f(2, x, dim=3)", "y = f(x,  3, dim = 3)", "y = f(x,  2, dim = 4)"],
        ),
        ("y = x and x or x", ["y = (x and x) and (x)", "y = (x or x) or x"]),
        (
            "if x:\n        y = x\n    elif y: x()",
            ["pass", "if x:\n        y = x\n    else: pass", "if x:\n        y = x\n    elif y: pass"],
        ),
    ],
)
def test_a_change_is_an_edit_of_the_text_at_one_place(line, changed):
    code = "def f(x):\n    {}  # (T,)\n    return y\n"
    assert [*changed_texts(code.format(line))] == [code.format(one) for one in changed]


# -- what counts ------------------------------------------------------------------------------------


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """What a test of a page notes of its cell with another text in place of `x*2`."""
    monkeypatch.setattr(properties, "ROOT", tmp_path)
    (tmp_path / "snippets/a").mkdir(parents=True)
    (tmp_path / "snippets/a/b.md").write_text(CELLS, "utf-8")
    (tmp_path / "tests/pages/a").mkdir(parents=True)

    def note(claim, text, above="", limit=60):
        mutants.tests_of("a/b").write_text(TESTS.format(claim=claim, above=above), "utf-8")
        [cell] = mutants.mutated_cells("a/b")
        [notes] = mutants.tried([mutants.Notes("a/b", {"double": cell.code.replace("x*2", text)})], limit)
        return notes

    return note


def test_a_fault_is_caught_and_an_edit_that_means_the_same_lives(noted):
    notes = noted(RUNS, "2 * x")
    assert (notes.status, notes.ran, notes.caught) == (0, True, False)
    assert noted(RUNS, "x*3").caught
    assert noted("pass", "x*3", above=RUNS).caught, "a fault may fail the import of the tests, too"


def test_a_failure_without_a_run_of_the_code_does_not_count(noted):
    notes = noted(LOOKS.format("x*2"), "x*3")
    assert (notes.ran, notes.caught) == (False, False)
    assert notes.status != 0


def test_what_does_not_end_is_stopped(noted):
    notes = noted(f"while {CODE.replace('y = x', '1')} > 0: {RUNS}", "x*2", limit=5)
    assert (notes.status, notes.caught) == (None, False)
    assert noted("import os; os._exit(0)", "x*2").status is None


def test_a_page_whose_tests_look_at_its_text_is_not_counted(noted):
    noted(f"{RUNS}; {LOOKS.format('x*2')}", "x*2")
    with pytest.raises(mutants.NotCounted, match=r"test_b\.py::test_a_claim fails when the cells are only written"):
        mutants.controls("a/b")
    noted("assert False", "x*2")
    with pytest.raises(mutants.NotCounted, match=r"test_b\.py::test_a_claim fails before anything is changed"):
        mutants.controls("a/b")


def test_the_mutants_of_a_page_are_counted(noted):
    noted(RUNS, "x*2")
    made = {mutant.new: (notes.status is not None, notes.caught) for mutant, notes in mutants.count("a/b")}
    assert made == {"y = x / 2": (True, True), "y = x*3": (True, True)}
