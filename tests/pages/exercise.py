"""What every exercise owes its reader. A page's test file makes `TestExercise` of it."""

import functools
import re

from tests.pages import properties as p
from tests.pages.spoil import spoiled
from tools.cells.source import read_cells

AS_GOOD = {  # a spoiled answer that is right, or not the answer's own call that is spoiled
    ("cross/alignment", "hidden by -20.0"),  # weights lie between 0 and 1
    ("cross/alignment", "hidden by -10000.0"),
    ("foundations/scale", "exponentials that overflow"),  # those of the module that is measured
    ("practice/capstone", "exponentials that overflow"),
    ("practice/capstone", "hidden by -20.0"),
    ("practice/capstone", "hidden by -10000.0"),
}


@functools.cache
def executed(slug, cell):
    """The names of the program of a cell, and what it prints."""
    return p.run_cell(slug, cell)


class Exercise:
    """The tests of an exercise: give the slug of the page, the name of its check, and answers by what they do.

    On a page with several, PART tells them apart: "-mask" for `exercise-mask` and `solution-mask`.
    """

    SLUG, CHECK, RIGHT, WRONG, PART = None, None, {}, {}, ""

    def solution(self):
        return executed(self.SLUG, f"solution{self.PART}")

    def verdict(self, answer):
        return p.verdict(getattr(self.solution()[0], self.CHECK), answer)

    def test_the_solution_passes(self):
        assert self.solution()[1].startswith("correct: ")

    def test_the_starter_is_told_what_is_missing(self):
        assert p.is_rejection(executed(self.SLUG, f"exercise{self.PART}")[1])

    def test_a_right_answer_is_accepted(self, right):
        assert self.verdict(self.RIGHT[right]) == self.solution()[1]

    def test_a_wrong_answer_is_rejected_in_one_line(self, wrong):
        assert p.is_rejection(self.verdict(self.WRONG[wrong]))

    def test_a_spoiled_solution_is_rejected(self, name, spoil):
        acted = []
        cell = next(
            cell for cell in read_cells(p.ROOT / f"snippets/{self.SLUG}.md") if cell.name == f"solution{self.PART}"
        )
        answer = re.search(rf"^{self.CHECK}\((\w+)\)$", cell.code, re.MULTILINE)[1]
        said = self.verdict(spoiled(spoil, getattr(self.solution()[0], answer), acted))
        assert p.is_rejection(said) == (bool(acted) and (self.SLUG, name) not in AS_GOOD)
