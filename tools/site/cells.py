"""The cells of a page: pymdownx.snippets puts them into its Markdown, pymdownx.superfences asks here how they look."""

import functools
import html
import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from markdown import Markdown
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name
from pygments.util import ClassNotFound
from pymdownx.snippets import SnippetExtension, SnippetPreprocessor

from tools.cells.source import OUTPUT_MARK, Cell, SourceError, read_includes
from tools.site.files import relative, text
from tools.site.outputs import show

NOTHING: Mapping = {}
FORMATTER = HtmlFormatter(nowrap=True)
PLAIN_TOKEN = re.compile(r'<span class="(?:n|o|p|w|fm|kc|vm)">([^<]*)</span>')
DATE = re.compile(r"\d{4}-\d\d-\d\d")


class Snippets(SnippetPreprocessor):
    """Includes cells from files that were read already.

    The mark between a cell and its output goes, which would join them to a paragraph in a folded block. Below some
    cells, by their names, comes a sentence that is said of them.
    """

    said = NOTHING

    def read_lines(self, path):
        return text(relative(path)).split("\n")

    def process_snippet_lines(self, lines, target):
        shown = ["" if line == OUTPUT_MARK else line for line in lines]
        sentence = self.said.get(target["section"])
        return [*shown, "", sentence] if sentence else shown


def with_cells(markdown: str, options: Mapping, said: Mapping[str, str] = NOTHING) -> str:
    """The Markdown of a page with its cells in it, under the options that mkdocs.yml has for pymdownx.snippets."""
    snippets = Snippets(SnippetExtension(**options).getConfigs(), Markdown())
    snippets.said = said
    return "\n".join(snippets.run(markdown.split("\n")))


class Fences:
    """What draws the blocks of one page after the other; the cells of a page come in their order."""

    def __init__(self) -> None:
        self.begin([], {}, {})
        self.of_any_language = {"name": "*", "class": "highlight", "format": self.draw}  # for superfences

    def begin(self, cells: Sequence[Cell], ran_on: Mapping[str, str], text: Mapping) -> None:
        """The next blocks are those of a page with these cells.

        `ran_on` are sentences that stand below some of them, by their names; `text` are the words of the language.
        """
        self.above: Cell | None = None
        self.cells, self.ran_on, self.text = deque(cells), ran_on, text

    def draw(self, source, language, *args, **kwargs) -> str:
        """A block as HTML."""
        if language == "python" and self.cells and same(self.cells[0].code, source):
            self.above = cell = self.cells.popleft()
            code = block(source, language, self.marks(cell)).replace('">', f'" id="cell-{cell.name}">', 1)
            return code if cell.output else code + self.below(cell)
        if language == "text" and self.above and same(self.above.output, source):
            cell, self.above = self.above, None
            return output(cell, self.text) + self.below(cell)
        code = block(source, language)
        return self.command(code) if language == "sh" else code

    def command(self, code: str) -> str:
        """A drawn command with the words for the button that copies it."""
        label, said = html.escape(self.text["copy_command"]), html.escape(self.text["command_copied"])
        return code.replace("<code>", f'<code data-copy-label="{label}" data-copied="{said}">', 1)

    def marks(self, cell: Cell) -> tuple[tuple[int, str], ...]:
        """The marked lines of a cell, and what begins each; the style sheet shows the sign and says the words."""
        return tuple(
            (line, f'<mark class="{kind}" data-says="{html.escape(self.text[kind])}">')
            for kind, lines in cell.marks.items()
            for line in lines
        )

    def below(self, cell: Cell) -> str:
        """Where a cell ran, if that is said of it."""
        said = DATE.sub(r"<time>\g<0></time>", html.escape(self.ran_on.get(cell.name, "")))
        return f'<p class="ran-on">{said}</p>' if said else ""


def same(text: str | None, source: str) -> bool:
    """Whether a block shows this text; the lines of a block may have lost the spaces at their ends."""
    return text is not None and text.rstrip("\n") == source.rstrip("\n")


def refuse_undrawn(body: str, path: Path, cells: Sequence[Cell]) -> None:
    """`SourceError` where the HTML of the page that is written in `path` lacks a cell."""
    for include, cell in zip(read_includes(path, text), cells):
        if f'id="cell-{cell.name}"' not in body:
            raise SourceError(f"{path}:{include.line}: no cell can stand here; indent the line like the text around it")


@functools.cache
def block(source: str, language: str, marks: Sequence[tuple[int, str]] = ()) -> str:
    """A block of code as HTML, without a span around each name, operator and bracket: they have the colour of text.

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
    return f'<div class="language-{language} highlight"><pre><span></span><code>{code}</code></pre></div>'


def output(cell: Cell, text: Mapping) -> str:
    """What a cell prints as a box that joins its code; the search leaves it out."""
    said = [text["output"], *(text[axis].format(names=" ".join(named)) for axis, named in cell.names.items() if named)]
    return (
        f'<div class="output no-copy" role="group" aria-label="{html.escape(" · ".join(said))}" '
        f"data-pagefind-ignore><pre>{show(cell.output, **cell.names)}</pre></div>"
    )
