"""A page is short enough to finish."""

import re

import pytest

from tests.configuration import PAGES, page_file
from tools.cells.source import INCLUDE
from tools.translations import FENCE, FRONT_MATTER, PARTS

MOST = 1400
FOLDED = re.compile(r"^\?\?\? .*\n(?:\n| {4}.*\n)*", re.M)
UNSEEN = re.compile(r"(?<=\])\([^)]*\)|\{#[^}]+\}")  # where a link goes, and the id of a heading or of an explorer
NO_SENTENCE = [
    FRONT_MATTER,
    FENCE,
    INCLUDE,
    FOLDED,
    *(PARTS[kind] for kind in ("table row", "picture", "formula")),
    UNSEEN,
]
WORD = re.compile(r"[A-Za-z][\w'’-]*")
EXERCISES = [page for page in PAGES if "{#exercise" in page_file("en", page).read_text("utf-8")]


def visible_words(text):
    """How many words the sentences of a page have before a reader unfolds anything."""
    for pattern in NO_SENTENCE:
        text = pattern.sub("", text)
    return len(WORD.findall(text))


@pytest.mark.parametrize("name", EXERCISES)
def test_a_page_with_an_exercise_is_short_enough_to_finish(name):
    assert visible_words(page_file("en", name).read_text("utf-8")) <= MOST


def test_words_are_counted_where_a_reader_meets_them_first():
    text = """---
description: not this
---

# Two words {#not-this}

![not this](picture.svg)

| not | this |

It's [`not_two`](not/this.md), $x$ but four.

--8<-- "not/this.md:one"

??? note "Not this"

    Not this.

$$
not
$$

The end.
"""
    assert visible_words(text) == 8
