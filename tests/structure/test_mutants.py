"""The report of `nox -s mutants` is that of these pages, and says why each mutant that lives may."""

import pytest

from tests.configuration import SLUGS
from tools import mutants

PAGES, REASONS = mutants.read_report()
TESTED = [slug for slug in SLUGS if mutants.tests_of(slug).is_file()]


@pytest.mark.parametrize("tested", TESTED)
def test_the_tests_of_a_page_catch_95_percent_of_its_mutants_and_the_rest_has_reasons(tested):
    assert tested in PAGES, f"run nox -s mutants -- {tested}"
    made, caught = PAGES[tested]
    names = {mutant.name for mutant in mutants.mutants_of(tested)}
    survivors = {name for name in REASONS if name[0] == tested}
    assert made == len(mutants.mutants_of(tested)), f"the code has changed: nox -s mutants -- {tested}"
    assert survivors <= names, f"the code has changed: nox -s mutants -- {tested}"
    assert made - caught == len(survivors)
    assert caught / made >= 0.95
    assert mutants.NO_REASON not in {REASONS[name] for name in survivors}


def test_the_report_is_written_as_it_was_read(tmp_path, monkeypatch):
    """A run for one page keeps the rows of all others, and every reason to the letter."""
    before = mutants.REPORT.read_text("utf-8")
    monkeypatch.setattr(mutants, "REPORT", tmp_path / "mutants.md")
    mutants.write_report(PAGES, REASONS)
    assert mutants.REPORT.read_text("utf-8") == before
