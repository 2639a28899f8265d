"""Each page as Markdown for machines that read: with its cells, its outputs and whole addresses.

What theme/markdown adds to some pages, and the list of all as https://llmstxt.org wants it, are templates.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment
from mkdocs import utils

from tools.cells.source import Cell, indent_of, read_includes, split_lines
from tools.labs.notebooks import linked
from tools.languages.markdown import Page

WIDE_SIGN = re.compile(r"[\u3000-\u303f\uff00-\uffef]$")


def page(
    source: Page, cells: Sequence[Cell], address: str, link: Callable[[str], str], ran_on: Mapping[str, str]
) -> str:
    """The Markdown of the page at an address: `link` makes other addresses whole, `ran_on` says where cells ran.

    A figure of a lab, `![It rises.](#curve)`, is in no file of its own: what it shows leads to the cell that draws it.
    """
    lines = linked(source, lambda target: f"{address}{target}" if target.startswith("#") else link(target))
    for include, cell in reversed([*zip(read_includes(source.path), cells, strict=True)]):
        indent = indent_of(lines[include.line])
        lines[include.line : include.end] = [f"{indent}{line}" for line in in_markdown(cell, ran_on)]
    body = "\n".join([*lines[source.first_line :], ""]).lstrip("\n")
    return re.sub(rf"^!(\[[^\]]+\]\({re.escape(address)}#)", r"\1cell-", body, flags=re.M)


def in_markdown(cell: Cell, ran_on: Mapping[str, str]) -> list[str]:
    """A cell as lines of Markdown, with its output and what is said of where it ran."""
    lines = ["```python", *split_lines(cell.code), "```"]
    lines += ["", "```text", *split_lines(cell.output), "```"] if cell.output else []
    return [*lines, "", ran_on[cell.name]] if ran_on.get(cell.name) else lines


def write_beside(path: str, env: Environment, context: Mapping[str, Any]) -> None:
    """Write what lies beside a page: its Markdown, its notebooks, and beside the first page the list of all."""
    here = context["here"]
    files = {"index.md": env.get_template("markdown/page.html").render(context)}
    files |= {here.notebook_name: here.notebook} if here.notebook else {}
    files |= {here.unsolved_name: here.unsolved} if here.unsolved else {}
    if here.slug == "index":
        files["llms.txt"] = env.get_template("markdown/llms.html").render(context)
    for name, content in files.items():
        utils.write_file(content.encode(), str(Path(path).with_name(name)))


def spaced(words: str) -> str:
    """Words that others follow, and the space between them; the last sign of a Chinese sentence has it already."""
    return words if WIDE_SIGN.search(words) else f"{words} "
