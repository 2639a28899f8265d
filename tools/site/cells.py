"""The cells of a page and the figures of a lab: its Markdown gets places, and its tree what stands there.

A place is a block of its own kind that holds the number of its line, so it stands wherever a block of code can.
"""

import functools
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name
from pygments.util import ClassNotFound

from tools.cells.source import Cell, SourceError, indent_of, read_includes, split_lines
from tools.labs.notebooks import described
from tools.languages.markdown import Page
from tools.site.outputs import show
from tools.site.tree import Node, replace

Figures = Mapping[str, Sequence[str]]  # of a lab as SVG, by the names of the cells that draw them

PLACE = "place"
FORMATTER = HtmlFormatter(nowrap=True)
PLAIN_TOKEN = re.compile(r'<span class="(?:n|o|p|w|fm|kc|vm|mi|mf)">([^<]*)</span>')
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def with_places(page: Page) -> str:
    """The text of a page, in it a place for each cell that it shows and for each figure that it describes."""
    lines = ["", *split_lines(page.text)]
    ends = {include.line: include.end for include in read_includes(page.path)}
    for line, end in (ends | {block.line: block.end for block, _ in described(page)}).items():
        indent = indent_of(lines[line])
        lines[line:end] = [f"{indent}```{PLACE}\n{indent}{line}\n{indent}```", *[""] * (end - line - 1)]
    return "\n".join(lines[1:])


def fence(source: str, language: str, *_: Any, **__: Any) -> str:
    """A block of a page as HTML."""
    return f'<div data-line="{source}"></div>' if language == PLACE else block(source, language)


FENCE = {"name": "*", "class": "highlight", "format": fence}  # for pymdownx.superfences, of any language


def fill(body: Node, drawings: Mapping[int, str], path: Path) -> None:
    """Put what is drawn into the places of the page in `path`; `SourceError` for a line that Markdown took for text."""
    places = {int(place.attrs.sget("data-line")): place for place in body.css("[data-line]")}
    for line, drawing in drawings.items():
        if line not in places:
            raise SourceError(f"{path}:{line}: no cell can stand here; indent the line like the text around it")
        replace(places[line], drawing)


def drawings(
    page: Page, cells: Sequence[Cell], figures: Figures, ran_on: Mapping[str, str], words: Mapping[str, str]
) -> dict[int, str]:
    """By its line what stands in each place of a page.

    `ran_on` are sentences that stand below some cells, by their names, and below the figures of these; `words` are
    those of the language.
    """
    includes, places = read_includes(page.path), [(name, block.line) for block, name in described(page)]
    pictures = [(name, figure) for name, each in figures.items() for figure in each]
    if [name for name, _ in places] != [name for name, _ in pictures]:
        fix = f"write it anew: nox -s update -- labs/{page.path.stem}"
        raise SourceError(f"{page.path}: its notebook has other figures than the page; {fix}")
    drawn = {include.line: draw(cell, words) for include, cell in zip(includes, cells, strict=True)}
    drawn |= {line: f'<div class="plot">{figure}</div>' for (_, line), (_, figure) in zip(places, pictures)}
    for name, line in ({include.name: include.line for include in includes} | dict(places)).items():
        if name in ran_on:
            sentence = DATE.sub(r"<time>\g<0></time>", html.escape(ran_on[name]))
            drawn[line] += f'<p class="ran-on">{sentence}</p>'
    return drawn


def draw(cell: Cell, words: Mapping[str, str]) -> str:
    """A cell as HTML, with its output if it has one."""
    tags = tuple((line, f'<mark class="{kind}" data-says="{html.escape(words[kind])}">') for line, kind in cell.marks)
    file = f' data-file="{Path(cell.path).name}"' if cell.is_section else ""
    code = block(cell.code, "python", tags).replace('">', f'" id="cell-{cell.name}"{file}>', 1)
    return code + output(cell, words) if cell.output else code


@functools.cache
def block(source: str, language: str, marks: Sequence[tuple[int, str]] = ()) -> str:
    """A block of code as HTML, without a span around each name, number, operator and bracket: these look like text.

    `marks` are numbers of lines, from 1, and the tag that begins each.
    """
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        language, lexer = "text", TextLexer()
    lines = PLAIN_TOKEN.sub(r"\1", highlight(source, lexer, FORMATTER)).splitlines(keepends=True)
    for number, tag in marks:
        lines[number - 1] = f"{tag}{lines[number - 1]}</mark>"
    code = "".join(lines)
    return f'<div class="language-{language} highlight"><pre><code>{code}</code></pre></div>'


def output(cell: Cell, words: Mapping[str, str]) -> str:
    """What a cell prints as a box that joins its code; the search leaves it out."""
    axes = (words[axis].format(names=" ".join(names)) for axis, names in cell.names.items() if names)
    known = f'role="group" aria-label="{html.escape(" · ".join([words["output"], *axes]))}" data-pagefind-ignore'
    return f'<div class="output no-copy" {known}><pre>{show(cell.output or "", **cell.names)}</pre></div>'
