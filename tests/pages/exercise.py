"""What every exercise owes its reader. A page's test file makes `TestExercise` of it."""

import functools

from tests.pages import properties as p


@functools.cache
def executed(slug, cell):
    """The names of the program of a cell, and what it prints."""
    return p.run_cell(slug, cell)


class Exercise:
    """The tests of an exercise: give the slug of the page, the name of its check, and answers by what they do.

    On a page with several, PART tells them apart: "-mask" for `exercise-mask`, `solution-mask` and {#exercise-mask}.
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

    def test_the_page_states_how_many_wrong_answers_the_check_was_tried_on(self, language):
        assert len(self.WRONG) >= 10
        assert len(self.WRONG) in p.numbers_of_the_exercise(self.SLUG, language, self.PART)
