"""Pages for machines that read: plain Markdown, and the list of all pages."""

from types import SimpleNamespace

from tools.cells.source import Cell
from tools.notebooks import notebook
from tools.site import plain
from tools.site.terms import Entry

URL = "https://site/a/b/"
CELLS = [
    Cell("data", "x = '# y {#z} [a](b.md)'\n", None, 2, 4),
    Cell("show", "print(x)\n", "> **1**\n  2\n", 8, 13),
]
PAGE = """# Title

Prose with $x^2$, [a link](../masks/causal.md#row-zero), [home](https://example.org), [below](#below).

![Two tokens,
one arc.](../../assets/arc.svg)

--8<-- "a/b.md:data"

## A heading {#below}

!!! warning "It happened"
    A sentence.

    - A point.
      Its end.

```text
>>> 1
```

??? question "Why $x$?"

    Because.

    --8<-- "a/b.md:show"

    More.

??? note

??? question "Is `x < 1`?"

    No.

    - Never.

Last, where `x > 1`.
"""
PLAIN = """# Title

Prose with $x^2$, [a link](https://site/causal/), [home](https://example.org), [below](https://site/a/b/#below).

[picture: Two tokens,
one arc.]

```python
x = '# y {#z} [a](b.md)'
```

## A heading

**It happened**

A sentence.

- A point.
  Its end.

```text
>>> 1
```

**Why $x$?**

Because.

```python
print(x)
```

```text
> **1**
  2
```

More.

**Note**

**Is `x < 1`?**

No.

- Never.

Last, where `x > 1`.
"""


def test_a_page_has_its_prose_its_code_and_its_outputs_and_none_of_the_marks_of_the_site():
    assert plain.page(notebook(PAGE, CELLS, lambda target: "https://site/causal/"), URL) == PLAIN


def test_a_page_without_cells_is_its_prose():
    assert plain.page(notebook("# Title\n\nProse.\n", []), URL) == "# Title\n\nProse.\n"


def test_a_plot_of_a_lab_stands_as_its_name():
    svg = '<?xml version="1.0"?>\n<svg role="img" aria-label="two &quot;grids&quot;">\n<g>\n</g></svg>\n'
    outputs = [
        {"output_type": "stream", "text": ["1\n", "2\n"]},
        {"output_type": "display_data", "data": {"image/svg+xml": svg, "text/plain": 'two "grids"'}},
    ]
    made = {"metadata": {}, "cells": [{"cell_type": "code", "source": ["draw()\n", "x"], "outputs": outputs}]}
    wanted = '```python\ndraw()\nx\n```\n\n```text\n1\n2\n```\n\n[picture: two "grids"]\n'
    assert plain.page(made, URL) == wanted


def test_the_glossary_lists_its_terms_with_their_other_names():
    query = Entry("query", "query", "Looks.", {"it": "richiesta", "zh": "查询"}, "a/b#top")
    batch = Entry("batch", "批量", "Many.", {"en": "batch", "it": "batch"}, "a/b#top")
    token = Entry("token", "token", "A piece.", {}, "a/b#top")
    wanted = "- **query** (richiesta, 查询): Looks.\n- **批量** (batch): Many.\n- **token**: A piece.\n"
    assert plain.glossary([query, batch, token]) == wanted


def page(title, url, **meta):
    return SimpleNamespace(title=title, canonical_url=url, meta=meta, children=None)


def chapter(title, *children):
    return SimpleNamespace(title=title, children=list(children))


def test_the_list_names_every_page_by_chapter_and_first_those_outside_the_chapters():
    nav = [
        page("Home", "https://site/", description="The start."),
        chapter("Masks", page("Causal", URL, description="No future."), chapter("More", page("Padding", f"{URL}c/"))),
        page("Glossary", "https://site/glossary/", description="The terms."),
    ]
    assert plain.llms("Site", "What it is.", nav, "Pages") == (
        "# Site\n\n> What it is.\n\n"
        "## Pages\n\n"
        "- [Home](https://site/index.md): The start.\n"
        "- [Glossary](https://site/glossary/index.md): The terms.\n\n"
        "## Masks\n\n"
        "- [Causal](https://site/a/b/index.md): No future.\n"
        "- [Padding](https://site/a/b/c/index.md)\n"
    )
