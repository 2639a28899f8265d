"""A page as a notebook: its prose in cells of text, its cells with their stored outputs.

Admonitions become quotes and folded text becomes HTML, which every viewer of notebooks shows; the cells of a folded
block are hidden. The site's own marks are left out. The notebook without solutions has an empty cell for each. A file
that cells import is written by a hidden cell above the first of them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from pathlib import Path
from textwrap import dedent
from typing import Any

from markdown_it import MarkdownIt
from nbformat import NotebookNode, from_dict, v4

from tools.cells.source import Cell, SourceError, files_beside, read_text, split_lines
from tools.languages.markdown import Block, Page

SVG = "image/svg+xml"
NOTHING: Mapping[str, Any] = {}
Figures = Mapping[str, Sequence[NotebookNode]]  # outputs by the names of the cells that drew them
Link = Callable[[str], str]  # what becomes of the target of a link
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def notebook(
    page: Page,
    cells: Sequence[Cell],
    link: Link = str,
    figures: Figures = NOTHING,
    ran_on: Mapping[str, str] = NOTHING,
    solved: bool = True,
) -> NotebookNode:
    """The notebook of a page.

    `cells` are those that it shows, in order; `link` says what becomes of the target of each link; by the names of
    cells, `figures` are outputs that follow their prints, and `ran_on` sentences that follow them. If it is not
    `solved`, the title of each solution stands above an empty cell.
    """
    lines, texts = prose(page, link), count()
    at = {block.line: (cell, block.folded) for block, cell in zip(page.of("cell"), cells)}
    for line in [line for line, (cell, _) in at.items() if cell.is_section]:
        section, _ = at.pop(line)
        lines[line : line + 3] = [f"```python\n{section.code}```", None, None]
    for block in () if solved else solutions(page):
        inside = range(block.line + 1, block.end)
        lines[block.line : block.end] = [
            f"**{title(split_lines(page.text)[block.line - 1])}**",
            *(None for _ in inside),
        ]
        at = {number: shown for number, shown in at.items() if number not in inside}
        at[inside[0]] = Cell(f"yours_{inside[0]}", "", None, inside[0]), False
    made: list[dict[str, Any]] = []
    written: set[Path] = set()
    for is_cell, numbers in groupby(range(page.first_line, len(lines)), at.__contains__):
        if is_cell:
            for number in numbers:
                files = {*files_beside(at[number][0])} - written
                made += map(file_cell, sorted(files))
                made += code_cells(*at[number], figures, ran_on)
                written |= files
        elif text := joined(lines[number] for number in numbers):
            made.append(text_cell(text, f"text_{next(texts)}"))
    return from_dict({"cells": made, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5})


def solutions(page: Page) -> list[Block]:
    """The folded solutions of a page, to an exercise or to a part of it."""
    return [block for block in page.of("admonition") if block.text == "??? success"]


def text_cell(text: str, name: str) -> dict[str, Any]:
    """A cell of text; the functions of nbformat that make cells check each, which takes longer than all else."""
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}


def file_cell(path: Path) -> dict[str, Any]:
    """A cell that writes a file beside the notebook, which cells below import."""
    metadata = {"jupyter": {"source_hidden": True}}
    source = f"%%writefile {path.name}\n{read_text(path)}".rstrip("\n")
    made = {"cell_type": "code", "id": path.stem, "metadata": metadata, "source": source}
    return made | {"execution_count": None, "outputs": []}


def code_cells(cell: Cell, folded: bool, figures: Figures, ran_on: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A cell and its outputs; a text below says where it ran, if that is said of it."""
    # One that needs a device fails elsewhere, and the notebook runs on.
    metadata: dict[str, object] = {"tags": ["raises-exception"]} if cell.needs else {}
    metadata |= {"jupyter": {"source_hidden": True}} if folded else {}
    outputs = [{"output_type": "stream", "name": "stdout", "text": cell.output}] if cell.output else []
    outputs += figures.get(cell.name, [])
    made = {"cell_type": "code", "id": cell.name, "metadata": metadata, "source": cell.code.rstrip("\n")}
    yield made | {"execution_count": None, "outputs": outputs}
    if cell.name in ran_on:
        yield text_cell(ran_on[cell.name], f"ran_on_{cell.name}")


def prose(page: Page, link: Link) -> list[str | None]:
    """The lines of a page, from 1 on, as a notebook has them; None for those that it lacks."""
    lines: list[str | None] = [*linked(page, link)]
    for block in page.of("heading"):
        if name := block.text.partition(" ")[2]:
            words, _, _ = (lines[block.line] or "").rpartition("{#")
            lines[block.line] = f'{words.rstrip()} <a id="{name}"></a>'
    for block, _ in described(page):
        lines[block.line : block.end] = [None] * (block.end - block.line)
    cells = {block.line for block in page.of("cell")}
    for block in page.of("admonition"):
        end = next(number for number in range(block.end, block.line, -1) if lines[number - 1])
        numbers = range(block.line, end)
        show = fold if block.text.startswith("???") and cells.isdisjoint(numbers) else quote
        lines[block.line : end] = show([line or "" for line in lines[block.line : end]])
    return lines


def linked(page: Page, link: Link) -> list[str]:
    """The lines of a page, from 1 on, whose links and pictures lead where `link` says."""
    lines = ["", *split_lines(page.text)]
    for block, piece in page.pieces("link", "picture"):
        for number in range(block.line, block.end):
            lines[number] = lines[number].replace(f"]({piece.text})", f"]({link(piece.text)})")
        if "id" in piece.attributes:  # an explorer; here it is a link to the page that has it
            lines[block.line] = lines[block.line].partition("){")[0] + ")"
    return lines


def described(page: Page) -> Iterator[tuple[Block, str]]:
    """Of a lab, the paragraphs that say what a figure shows, `![It rises.](#curve)`, and the cell that draws it."""
    for block in page.of("paragraph"):
        if block.pieces[0].kind == "picture" and block.pieces[0].text.startswith("#"):
            yield block, block.pieces[0].text[1:]


def title(line: str) -> str:
    """The title of an admonition that begins with a line, or its kind."""
    return line.partition('"')[2].rpartition('"')[0] or line.split()[1].capitalize()


def quote(lines: Sequence[str]) -> list[str | None]:
    """An admonition as a quote, each line in its place."""
    first, *others = lines
    gap = "\n>" if any(others[:1]) else ""
    return [f"> **{title(first)}**{gap}", *(f"> {line[4:]}".rstrip() for line in others)]


def fold(lines: Sequence[str]) -> list[str | None]:
    """A folded block as HTML that notebooks fold, too, in place of its first line."""
    summary, inside = MarkdownIt().renderInline(title(lines[0])), dedent("\n".join(lines[1:])).strip()
    parts = f"<details>\n<summary>{summary}</summary>", inside, "</details>"
    return ["\n\n".join(filter(None, parts)), *[None] * (len(lines) - 1)]


def joined(lines: Iterable[str | None]) -> str:
    """Lines as a text, without those at its ends that are empty, in a quote or not."""
    text = "\n".join(line for line in lines if line is not None)
    return re.sub(r"\A(?:>?\n)+|\A>?\Z|(?:\n>?)+\Z", "", text)


def stored_figures(path: Path) -> dict[str, list[NotebookNode]]:
    """The figures in the notebook of a lab, by the names of the cells that drew them; none where there is no file."""
    try:
        cells = v4.reads(read_text(path)).cells if path.is_file() else []
    except (ValueError, AttributeError):
        raise SourceError(f"{path}:1: not a notebook; write it anew: nox -s update -- labs/{path.stem}") from None
    outputs = {
        cell.id: [output for output in cell.get("outputs", []) if SVG in output.get("data", {})] for cell in cells
    }
    return {name: figures for name, figures in outputs.items() if figures}


def dump(made: NotebookNode) -> str:
    """A notebook as the text of its file."""
    return f"{v4.writes(made)}\n"
