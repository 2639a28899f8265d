"""Pages for machines that read: the Markdown of a page with its cells, its outputs and whole addresses."""

from pathlib import Path

from tools.cells.source import OUTPUT_MARK
from tools.languages import markdown
from tools.site import plain

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
