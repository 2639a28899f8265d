"""Every page says what it answers, and on which pages it builds: the nearest before it, and in English alone."""

from tests.configuration import PAGES, ROOT, SLUGS
from tools.languages.markdown import read

SAID = {page: read(ROOT / f"docs/en/{page}.md").front.get("builds_on") for page in PAGES}
FIRST = next(page for page in PAGES if page in SLUGS)


def beneath(page):
    """All that a page builds on, near and far."""
    return {other for base in SAID.get(page) or () for other in (base, *beneath(base))}


def test_a_page_with_cells_and_no_other_builds_on_the_nearest_pages_before_it(every_page):
    """What these build on is beneath it already, and would draw an arc that says nothing."""

    def look(page):
        said, at = SAID[page], f"docs/en/{page}.md:1: `builds_on: [chapter/page]`"
        asks = read(ROOT / f"docs/en/{page}.md").asks
        assert bool(asks) == (page in SLUGS), (
            f"docs/en/{page}.md:1: `asks:` stands above each page with cells, and no other"
        )
        assert (said is not None) == (page in SLUGS), f"{at} stands on a page with cells, and on no other"
        for base in said or ():
            assert base in PAGES[: PAGES.index(page)], f"{at} names pages before this one, and not {base}"
            assert not any(base in beneath(other) for other in said), f"{at}: {base} is beneath another of them"
        assert said or said is None or page == FIRST, f"{at} names nothing"
        assert len(set(said or ())) == len(said or ()), f"{at} names one twice"

    every_page(look)


def test_a_translation_takes_it_from_the_english_page(translation, refuse):
    paths = [ROOT / f"docs/{translation}/{page}.md" for page in PAGES]
    refuse(f"{path}:1: take out `builds_on`" for path in paths if "builds_on" in read(path).front)
