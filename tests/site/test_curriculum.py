"""The map of the curriculum, on a few pages."""

from types import SimpleNamespace

import pytest

from tools.cells.source import SourceError
from tools.site import plain
from tools.site.curriculum import bases, rows


def page(title, slug, builds_on=(), cells=()):
    url = f"https://site/{slug}/"
    return SimpleNamespace(
        title=title, slug=slug, builds_on=builds_on, cells_to_verify=cells, canonical_url=url, children=None
    )


@pytest.fixture
def nav():
    home, one = page("Home", "index"), page("One", "a/one")
    two, three = page("Two", "a/two", ["a/one"]), page("Three", "b/three", ["a/one", "a/two"])
    first, second = (
        SimpleNamespace(title=title, children=pages) for title, pages in (("A", [one, two]), ("B", [three]))
    )
    return SimpleNamespace(items=[home, first, second], pages=[home, one, two, three])


def test_the_map_has_a_line_for_each_chapter_and_page_with_both_directions(nav):
    _, one, two, three = nav.pages
    made = rows(nav)
    assert [(row.title, row.page) for row in made] == [
        ("A", None),
        ("One", one),
        ("Two", two),
        ("B", None),
        ("Three", three),
    ]
    assert [row.bases for row in made] == [[], [], [one], [], [one, two]]
    assert [row.next_steps for row in made] == [[], [two, three], [three], [], []]
    heights = [row.y for row in made]
    assert heights == sorted(set(heights))
    assert [row.arcs.count("M") for row in made] == [0, 0, 1, 0, 2]
    assert made[2].arcs.startswith(f"M150 {heights[2]}C")
    assert made[2].arcs.endswith(f" 150 {heights[1]}")


def test_the_map_in_markdown(nav):
    assert plain.curriculum(rows(nav), "On:") == (
        "\n## A\n\n- [One](https://site/a/one/)\n- [Two](https://site/a/two/) · On: [One](https://site/a/one/)\n"
        "\n## B\n\n- [Three](https://site/b/three/) · On: [One](https://site/a/one/) · [Two](https://site/a/two/)\n"
    )
    assert "- [Two](https://site/a/two/) · 前置：[One](https://site/a/one/)\n" in plain.curriculum(rows(nav), "前置：")


@pytest.mark.parametrize("slug", ["b/three", "a/two", "a/none"])
def test_a_page_builds_on_none_but_those_before_it(nav, slug):
    two = nav.pages[2]
    two.builds_on = [slug]
    with pytest.raises(SourceError, match=rf"docs/en/a/two\.md:1: builds_on names '{slug}'"):
        bases(two, nav.pages)
