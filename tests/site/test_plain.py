"""Pages for machines that read: plain Markdown, and the list of all pages."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbformat import v4

from tests.configuration import LANGUAGES
from tools.cells.source import Cell
from tools.markdown import ALL, parse
from tools.notebooks import notebook
from tools.site import body, plain
from tools.site.badges import table
from tools.site.terms import Entry

URL = "https://site/a/b/"
TEXT = LANGUAGES["en"].extra["text"]
CELLS = [
    Cell("data", "x = '# y {#z} [a](b.md)'\n", None, 2, 4),
    Cell("show", "print(x)\n", "> **1**\n  2\n", 8, 13),
]
SOURCE = """# Title

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
PAGE = parse(SOURCE, Path("docs/en/a/b.md"))
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


def absolute(target):
    return "https://site/causal/" if target.startswith("../masks") else target


def test_a_page_has_its_prose_its_code_and_its_outputs_and_none_of_the_marks_of_the_site():
    assert plain.page(notebook(PAGE, CELLS, absolute), URL) == PLAIN


def test_a_page_without_cells_is_its_prose():
    assert plain.page(notebook(parse("# Title\n\nProse.\n", Path("a.md")), []), URL) == "# Title\n\nProse.\n"


def test_a_plot_of_a_lab_stands_as_its_name():
    figure = v4.new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": 'two "grids"'})
    made = notebook(PAGE, CELLS, absolute, {"show": [figure]})
    assert '```text\n> **1**\n  2\n```\n\n[picture: two "grids"]\n\nMore.\n' in plain.page(made, URL)


def test_where_a_cell_ran_stands_behind_its_output():
    made = notebook(PAGE, CELLS, ran_on={"show": "On a fast machine"})
    assert "```text\n> **1**\n  2\n```\n\nOn a fast machine\n\nMore.\n" in plain.page(made, URL)


def page(title, url, **meta):
    return SimpleNamespace(title=title, canonical_url=url, meta=meta, children=None)


def test_the_glossary_lists_its_terms_with_their_other_names_and_where_each_is_introduced():
    query = Entry("query", "query", "Looks.", {"it": "richiesta", "zh": "查询"}, "a/b#below")
    batch = Entry("batch", "批量", "许多。", {"en": "batch", "it": "batch"}, "a/b#top")
    token = Entry("token", "token", "A piece.", {}, "a/b#top")
    pages = [SimpleNamespace(slug="a/b", **vars(page("&lt;B&gt;", URL)))]
    assert plain.glossary([query, batch, token], pages) == (
        "- **query** (richiesta, 查询): Looks. [<B>](https://site/a/b/#below)\n"
        "- **批量** (batch): 许多。[<B>](https://site/a/b/)\n"
        "- **token**: A piece. [<B>](https://site/a/b/)\n"
    )


# --- what the records say -------------------------------------------------------------------------


def badge(device, verified, cells):
    facts = {"torch": "2.13.0", "date": "2026-11-20", "name": "A|B"}
    return {"device": device, "verified": verified, "cells": cells, **facts}


def verified(title, cells, *badges):
    """A page whose last cell needs CUDA."""
    cells = [*cells[:-1], replace(cells[-1], needs="cuda")] if cells else []
    ran_on = {cell.name: f"Said of {cell.name}." for cell in cells if cell.needs}
    return SimpleNamespace(cells_to_verify=cells, badges=badges, ran_on=ran_on, **vars(page(title, URL)))


def test_a_table_says_of_each_page_with_cells_what_ran_where():
    """What a record holds of other cells than those of today is no count."""
    causal = verified("Causal", CELLS, badge("CPU", 1, 2), badge("CUDA", 1, 2))
    shapes = verified("A|B", CELLS[:1], badge("CUDA", 0, 1))
    assert plain.verified(table([verified("Home", []), causal, shapes]), TEXT) == (
        "| Page | CPU | CUDA |\n| --- | --- | --- |\n"
        "| [Causal](https://site/a/b/) | 1 of 2 · torch 2.13.0 · 2026-11-20 · A\\|B "
        "| 1 of 2 · torch 2.13.0 · 2026-11-20 · A\\|B |\n"
        "| [A\\|B](https://site/a/b/) | 0 of 1 | 0 of 1 |\n"
        "| All pages | 1 of 3 | 1 of 3 |\n\n"
        "- [Causal](https://site/a/b/#cell-show) · `show` · Said of show.\n"
        "- [A|B](https://site/a/b/#cell-data) · `data` · Said of data.\n"
    )


def test_before_a_gpu_has_run_the_pages_it_is_said_that_none_has():
    home = verified("Home", [])
    causal = SimpleNamespace(**vars(page("Causal", URL)), cells_to_verify=CELLS[:1], badges=[], ran_on={})
    wanted = "| Page |\n| --- |\n| [Causal](https://site/a/b/) |\n| All pages |\n"
    assert plain.verified(table([home, causal]), TEXT) == f"No GPU has run these pages yet.\n\n{wanted}"


# --- a translation that is behind -----------------------------------------------------------------


def section(name, title, level, *children):
    return SimpleNamespace(id=name, title=title, level=level, children=children)


CONTENTS = [section("title", "T &amp; U", 1, section("a", "A", 2, section("b", "B", 3)), section("c", "C", 2))]


@pytest.mark.parametrize(
    ("language", "behind", "wanted"),
    [
        ("en", ["b"], "The English original of these sections is newer: [B](https://site/a/b/#b) · {original}"),
        ("zh", ["top", "c"], "{behind}[T & U](https://site/a/b/#title) · [C](https://site/a/b/#c) · {original}"),
        ("zh", ALL, "{untranslated}"),
    ],
)
def test_a_page_that_is_behind_says_so_below_its_title(language, behind, wanted):
    text = LANGUAGES[language].extra["text"]
    late = SimpleNamespace(behind=behind, **vars(page("T", URL)))
    older = list(body.older(CONTENTS, behind))
    said = plain.behind(late, older, text, "https://site/en/")
    assert said == wanted.format(**text | {"original": "[Read it in English](https://site/en/)"})
    assert plain.behind(late, older, text, "") == said.removesuffix(" · [Read it in English](https://site/en/)")
    assert plain.below_title("# T\n\nProse.\n", said) == f"# T\n\n{said}\n\nProse.\n"


def test_what_was_counted_stands_below_each_promise():
    text = "# Home\n\n- 1. a\n\n1. One\n   and\n2. Two\n\nEnd.\n"
    wanted = "# Home\n\n- 1. a\n\n1. One\n   and\n   - 3\n   - 4\n2. Two\n   - 5\n\nEnd.\n"
    assert plain.counted(text, [["3", "4"], ["5"]]) == wanted


# --- the list of all pages ------------------------------------------------------------------------


def chapter(title, *children):
    return SimpleNamespace(title=title, children=list(children))


def test_the_list_names_every_page_by_chapter_and_first_those_outside_the_chapters():
    nav = [
        page("Home", "https://site/", description="The start."),
        chapter(
            "Masks",
            page("Causal", URL, description="No future."),
            chapter("More", page("Padding", f"{URL}c/", description="No pads.")),
        ),
        page("Glossary", "https://site/glossary/", description="The terms."),
    ]
    assert plain.llms("Site", "What it is.", nav, "Pages") == (
        "# Site\n\n> What it is.\n\n"
        "## Pages\n\n"
        "- [Home](https://site/index.md): The start.\n"
        "- [Glossary](https://site/glossary/index.md): The terms.\n\n"
        "## Masks\n\n"
        "- [Causal](https://site/a/b/index.md): No future.\n"
        "- [Padding](https://site/a/b/c/index.md): No pads.\n"
    )
