"""Every page says on which pages it builds: the nearest of those before it, and in English alone."""

import pytest

from tests.configuration import PAGES, ROOT, SLUGS
from tools.markdown import read

SAID = {page: read(ROOT / f"docs/en/{page}.md").front.get("builds_on") for page in PAGES}
FIRST = next(page for page in PAGES if page in SLUGS)


def beneath(page):
    """All that a page builds on, near and far."""
    return {other for base in SAID.get(page) or () for other in (base, *beneath(base))}


def test_a_page_with_cells_says_on_what_it_builds_and_no_other_does(page):
    mend = "write" if page in SLUGS else "take out"
    assert (SAID[page] is not None) == (page in SLUGS), f"docs/en/{page}.md:1: {mend} `builds_on: [chapter/page]`"


@pytest.mark.parametrize("name", [page for page in PAGES if SAID[page] is not None])
def test_a_page_builds_on_the_nearest_pages_before_it(name):
    """What they build on is beneath it already, and would draw an arc that says nothing."""
    said = SAID[name]
    assert [base for base in said if base not in PAGES[: PAGES.index(name)]] == []
    assert [base for base in said if any(base in beneath(other) for other in said)] == []
    assert len(set(said)) == len(said)
    assert said or name == FIRST


def test_a_translation_takes_it_from_the_english_page(page, translation):
    assert "builds_on" not in read(ROOT / f"docs/{translation}/{page}.md").front
