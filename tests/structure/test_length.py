"""A page is short enough to finish."""

import re

from tests.configuration import PAGES, page_file
from tools.languages.markdown import Page, read

MOST = 1400
WORD = re.compile(r"[A-Za-z][\w'’-]*")


def visible_words(page: Page) -> int:
    """How many words the sentences of a page have before a reader unfolds anything."""
    texts = [block for block in page.of("heading", "paragraph", "title") if not block.folded]
    return sum(len(WORD.findall(piece.text)) for block in texts for piece in sentences(block))


def sentences(block):
    """The pieces of a text that a reader reads: no formula, nor what a picture says to those who do not see it."""
    seen = True
    for piece in block.pieces:
        seen = (seen and piece.kind != "picture") or piece.kind == "end of picture"
        if seen and piece.kind in ("words", "code"):
            yield piece


def test_a_page_with_an_exercise_is_short_enough_to_finish(refuse):
    english = [read(page_file("en", page)) for page in PAGES]
    counts = {page.path: visible_words(page) for page in english if "exercise" in page.sections}
    refuse(
        f"{path}: {count} words are visible at first, at most {MOST} may be"
        for path, count in counts.items()
        if count > MOST
    )
