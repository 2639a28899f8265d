"""Pages for machines that read: the Markdown of a page with its cells, its outputs and whole addresses."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from jinja2 import Environment, FileSystemLoader

from tests.configuration import LANGUAGES, ROOT
from tests.site import made
from tools import markdown
from tools.cells.source import OUTPUT_MARK, Cell
from tools.markdown import ALL
from tools.site import body, plain
from tools.site.badges import table

PAGE = """---
description: A page.
---

# Title

[a link](../foundations/causal.md#row-zero), [below](#below), ![one
arc.](../../assets/arc.svg) `[code](is.md)`

--8<-- "a/b.md:data"

??? question "Why $x$?"

    --8<-- "a/b.md:show"

![It
rises.](#show)
"""
PLAIN = """# Title

[a link](https://site/../foundations/causal.md#row-zero), [below](https://site/#below), ![one
arc.](https://site/../../assets/arc.svg) `[code](is.md)`

```python
x = 1
```

??? question "Why $x$?"

    ```python
    print(x)
    ```
{empty}
    ```text
    1
    ```
{empty}
    Measured here

[It
rises.](https://site/#cell-show)
"""
CELLS = f"""<!-- --8<-- [start:data] -->
```python
x = 1
```
<!-- --8<-- [end:data] -->
<!-- --8<-- [start:show] -->
```python
print(x)
```
{OUTPUT_MARK}
```text
1
```
<!-- --8<-- [end:show] -->
"""


def test_a_page_has_its_cells_and_outputs_and_whole_addresses(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.md").write_text(CELLS, encoding="utf-8")
    page = markdown.parse(PAGE, Path("docs/en/a/b.md"))
    options = {"base_path": [str(tmp_path)]}
    assert plain.page(
        page, "https://site/", "https://site/".__add__, {"show": "Measured here"}, options
    ) == PLAIN.format(empty="    ")


# --- what its template adds -----------------------------------------------------------------------

ONE = Cell("one", "x = 1\n", None, 2)
NEEDING = Cell("far", "print(1)\n", "1\n", 8, needs="cuda", why="a test")
CONTENTS = [SimpleNamespace(id="title", title="T", level=1, children=[
    SimpleNamespace(id="b", title="B", level=2, children=[])
])]  # fmt: skip


def written(here, language="en", **known):
    env = Environment(loader=FileSystemLoader(ROOT / "theme"), trim_blocks=True, lstrip_blocks=True)
    env.filters["spaced"] = plain.spaced
    config = {"site_url": "https://site/", "extra": {"text": LANGUAGES[language].extra["text"]}}
    page = {"file": {"alternates": {"en": {"url": "en/"}}}}
    return env.get_template("markdown/page.html").render(here=here, config=config, page=page, **known)


@pytest.mark.parametrize(
    ("language", "behind", "wanted"),
    [
        ("en", ["b"], "The English original of these sections is newer: [B](https://site/a/#b) · {original}"),
        ("zh", ["top"], "{behind}[T](https://site/a/#title) · {original}"),
        ("zh", ALL, "{untranslated}"),
    ],
)
def test_a_page_that_is_behind_says_so_below_its_title(language, behind, wanted):
    text = LANGUAGES[language].extra["text"] | {"original": "[Read it in English](https://site/en/)"}
    late = made.page("a", "T", behind=behind, markdown="# T\n\nProse.\n")
    older = list(body.older(CONTENTS, behind))
    assert written(late, language, older=older) == f"# T\n\n{wanted.format(**text)}\n\nProse.\n"


def test_a_table_says_of_each_page_with_cells_what_ran_where():
    """What a record holds of other cells than those of today is no count."""

    def badge(device, verified, cells):
        facts = {"torch": "2.13.0", "date": "2026-11-20", "name": "A|B"}
        return {"device": device, "verified": verified, "cells": cells, **facts}

    ran = {"far": "Said of far."}
    badges = [badge("CPU", 1, 2), badge("CUDA", 1, 2)]
    causal = made.page("a/b", "Causal", own_cells=[ONE, NEEDING], badges=badges, ran_on=ran)
    shapes = made.page("c", "Shapes", own_cells=[ONE], badges=[badge("CUDA", 0, 1)])
    here = made.page("verified", "V", markdown="# V\n")
    assert written(here, table=table([here, causal, shapes])) == (
        "# V\n\n| Page | CPU | CUDA |\n| --- | --- | --- |\n"
        "| [Causal](https://site/a/b/) | 1 of 2 · torch 2.13.0 · 2026-11-20 · A\\|B "
        "| 1 of 2 · torch 2.13.0 · 2026-11-20 · A\\|B |\n"
        "| [Shapes](https://site/c/) | 0 of 1 | 0 of 1 |\n"
        "| All pages | 1 of 3 | 1 of 3 |\n\n"
        "- [Causal](https://site/a/b/#cell-far) · `far` · Said of far.\n"
    )
    shapes = made.page("c", "Shapes", own_cells=[ONE])
    assert written(here, table=table([shapes])).startswith(
        "# V\n\nNo GPU has run these pages yet.\n\n| Page |\n| --- |\n"
    )
