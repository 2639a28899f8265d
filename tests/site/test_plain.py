"""Pages for machines that read: the Markdown of a page with its cells, its outputs and whole addresses."""

from tools.cells.source import OUTPUT_MARK, resolve
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
    for path, text in {"snippets/a/b.md": CELLS, "page.md": PAGE}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    page, cells = markdown.read(tmp_path / "page.md"), resolve(tmp_path / "page.md", tmp_path / "snippets")
    written = plain.page(page, cells, "https://site/", "https://site/".__add__, {"show": "Measured here"})
    assert written == PLAIN.format(empty="    ")
