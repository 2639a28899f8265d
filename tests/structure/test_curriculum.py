"""Every page says on which pages it builds: the nearest of those before it, and in English alone."""

from tests.configuration import PAGES, ROOT, SLUGS
from tools.markdown import read

SAID = {page: read(ROOT / f"docs/en/{page}.md").front.get("builds_on") for page in PAGES}


def beneath(page):
    """All that a page builds on, near and far."""
    return {other for base in SAID[page] for other in (base, *beneath(base))}


def test_every_page_with_cells_says_on_what_it_builds_and_no_other_does():
    assert {page for page, bases in SAID.items() if bases is not None} == set(SLUGS)


def test_a_page_builds_on_pages_that_come_before_it(slug):
    before = PAGES[: PAGES.index(slug)]
    assert [base for base in SAID[slug] if base not in before] == []


def test_all_but_the_first_build_on_another():
    assert [page for page in PAGES if SAID[page] == []] == [next(page for page in PAGES if page in SLUGS)]


def test_a_page_names_the_nearest_alone(slug):
    """What they build on is beneath it already, and would draw an arc that says nothing."""
    for base in SAID[slug]:
        others = set(SAID[slug]) - {base}
        assert len(others) == len(SAID[slug]) - 1, f"{base} is named twice"
        assert base not in {far for other in others for far in beneath(other)}, f"{base} is beneath another one"


def test_a_translation_takes_it_from_the_english_page(page, translation):
    assert "builds_on" not in read(ROOT / f"docs/{translation}/{page}.md").front
