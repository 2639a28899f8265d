"""The reader of Markdown finds what a page is made of, each part on its line."""

import re
from pathlib import Path

import pytest

from tools.cells.source import SourceError
from tools.languages.markdown import TOP, parse

PATH, JS = Path("docs/it/a.md"), "javascript:alert"
TEXT = """---
description: A PAGE.
made_from:
  "top": "12"
---

# Title of `code`

One $x_i$, a [link
here](other.md#a){#leak-meter state="x=1"}, `code`,
**of** two lines, and `$y$`.

![A *picture*](a.svg)

## Section {#section}

--8<-- "foundations/causal.md:leak"

??? question "Why?"

    - Because.

    --8<-- "foundations/causal.md:why"

$$
A = B
$$

```sh
# no heading {#no}
```

| a | b |
|---|---|
| 1 | <i>2</i> |

[Not safe](javascript:alert)

```python
--8<-- "attention_probes.py:moves"
```
"""
PAGE = parse(TEXT, PATH)


def test_every_part_of_a_page_stands_on_its_line_and_in_its_section():
    assert (PAGE.front, PAGE.first_line) == ({"description": "A PAGE.", "made_from": {"top": "12"}}, 6)
    assert PAGE.line_of("made_from") == 3
    assert [(block.kind, block.line, block.text) for block in PAGE.blocks if not block.pieces] == [
        ("cell", 17, "foundations/causal:leak"),
        ("admonition", 19, "??? question"),
        ("list item", 21, ""),
        ("cell", 23, "foundations/causal:why"),
        ("formula", 25, "A = B"),
        ("code block", 29, "sh # no heading {#no}"),
        ("table row", 33, ""),
        ("table row", 35, ""),
        ("cell", 39, "attention_probes.py:moves"),
    ]
    assert [block.words for block in PAGE.of("heading", "title")] == ["Title of code", "Section", "Why?"]
    assert {block.line for block in PAGE.blocks if block.folded} == {19, 21, 23}
    assert {block.section for block in PAGE.blocks if block.line < 15} == {TOP}
    sections = [(name, section.title, section.line) for name, section in PAGE.sections.items()]
    assert sections == [("top", "Title of code", 6), ("section", "Section", 15)]
    assert "".join(section.text for section in PAGE.sections.values()) == PAGE.body


def test_every_piece_of_a_sentence_stands_on_its_line():
    pieces = [(piece.kind, piece.line, piece.text) for _, piece in PAGE.pieces("formula", "link", "picture")]
    assert pieces == [("formula", 9, "x_i"), ("link", 9, "other.md#a"), ("picture", 13, "a.svg"), ("link", 37, JS)]
    assert [(piece.line, piece.text) for _, piece in PAGE.pieces("code")] == [(7, "code"), (10, "code"), (11, "$y$")]
    [paragraph] = [block for block in PAGE.of("paragraph") if block.line == 9]
    assert paragraph.words == "One x_i, a link here, code, of two lines, and $y$."
    assert [piece.line for piece in paragraph.pieces if "of" in piece.text] == [11]
    assert [piece.attributes["state"] for _, piece in PAGE.pieces("link") if "state" in piece.attributes] == ["x=1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\na: [\n---\n", "the front matter is not YAML: while parsing"),
        ("---\n- a\n---\n", ":1: the front matter holds no fields"),
        ("---\na: b\n", ":1: the front matter has no end"),
        ("# A\n\n## B {#b}\n\n## C {#b}\n", ":5: a second section has the id 'b'"),
        ("---\nasks: [a]\n---\n", ":2: an entry of `asks` is a section and words"),
        ("---\nasks:\n  - leek: Why?\n---\n\n# A\n\n## B {#leak}\n", ":3: no section of the page has the id 'leek'"),
        ("---\naliases:\n  - a: b\n  - a: b\n    c: d\n---\n", ":4: an entry of `aliases` is"),
    ],
)
def test_what_is_no_page_is_named_with_its_line(text, message):
    with pytest.raises(SourceError, match=f"^{PATH}.*{re.escape(message)}"):
        parse(text, PATH)
