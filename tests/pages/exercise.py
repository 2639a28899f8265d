"""Answers to an exercise that no machine thinks of. A page's test file makes `TestExercise` of it."""

import functools
from types import SimpleNamespace

from tests.pages import properties as p


@functools.cache
def executed(slug: str, cell: str) -> tuple[SimpleNamespace, str]:
    """The names of the program of a cell, and what it prints."""
    return p.run_cell(slug, cell)


class Exercise:
    """Give the slug of the page, the name of its check, and answers by what they do.

    On a page with several, PART tells them apart: "-mask" for `exercise-mask`, `solution-mask` and {#exercise-mask}.
    """

    SLUG, CHECK, RIGHT, WRONG, PART = None, None, {}, {}, ""

    def solution(self):
        return executed(self.SLUG, f"solution{self.PART}")

    def verdict(self, answer):
        return p.verdict(getattr(self.solution()[0], self.CHECK), answer)

    def test_a_right_answer_is_accepted(self, right):
        assert self.verdict(self.RIGHT[right]) == self.solution()[1]

    def test_a_wrong_answer_is_rejected_in_one_line(self, wrong):
        assert p.is_rejection(self.verdict(self.WRONG[wrong]))
