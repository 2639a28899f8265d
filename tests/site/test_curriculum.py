"""The map of the curriculum, on a few pages."""

from dataclasses import replace

import pytest

from tests.site.made import edition, page
from tools.cells.source import SourceError
from tools.site.overview import bases, rows

ONE = page("a/one", "One")
TWO = page("a/two", "Two", builds_on=["a/one"])
THREE = page("b/three", "Three", builds_on=["a/one", "a/two"])
EDITION = edition(("A", [ONE, TWO]), ("B", [THREE]), loose=[page("index", "Home")])


def test_the_map_has_a_line_for_each_chapter_and_page_with_both_directions():
    made = rows(EDITION)
    assert [(row.title, row.page) for row in made] == [
        ("A", None),
        ("One", ONE),
        ("Two", TWO),
        ("B", None),
        ("Three", THREE),
    ]
    assert [list(row.bases) for row in made] == [[], [], [ONE], [], [ONE, TWO]]
    assert [list(row.next_steps) for row in made] == [[], [TWO, THREE], [THREE], [], []]
    heights = [row.y for row in made]
    assert heights == sorted(set(heights))
    assert [row.arcs.count("M") for row in made] == [0, 0, 1, 0, 2]
    assert made[2].arcs.startswith(f"M150 {heights[2]}C")
    assert made[2].arcs.endswith(f" 150 {heights[1]}")


def test_a_page_builds_on_none_but_those_before_it():
    with pytest.raises(SourceError, match=r"docs/en/a/two\.md:1: builds_on names 'b/three'"):
        bases(replace(TWO, builds_on=["b/three"]), EDITION.in_nav)


def test_a_page_that_no_nav_names_may_build_on_any():
    assert bases(page("a/new", "New", builds_on=["b/three"]), EDITION.in_nav) == [THREE]
