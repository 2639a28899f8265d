"""What is done to the HTML of a page's body: small functions from HTML to HTML."""

import html
import re
from itertools import chain, count, zip_longest
from pathlib import Path

from tools.cells.source import SourceError, read_includes, read_text
from tools.glossary import read_rows
from tools.notebooks import PLACE
from tools.site.checks import shown
from tools.site.once import block
from tools.site.outputs import legend, show
from tools.translations import PARTS

CELL = (
    '<div class="cell-{}"></div>'  # the place of a cell, by its number; Markdown puts those that are indented into <p>
)
# What begins with one certain sign is found fast.
SHOWN = re.compile(rf"<(?:p><)?{CELL.format('([0-9]+)').removeprefix('<')}(?:</p>)?\n?((?:\s*{PLACE})*)")
TINTED = re.compile(
    r'<h2 id="reading">.*?</ul>|<div class="output (?:(?!</pre>).)*<span class="(?:(?!</pre>).)*</pre></div>', re.S
)
PICTURE = re.compile(r'<img alt="([^"]*)" src="[^"]*?assets/([\w./-]+\.svg)"[^>]*>')
WORD = re.compile(r'(<text\b(?![^>]* class="code\b)[^>]*>)([^<]+)(?=</text>)')  # code is the same in every language
DATE = re.compile(r"\d{4}-\d\d-\d\d")
THREAD = re.compile(r">[^<]*[\w-]#\d+(?=</a>)")
SEAM = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<!&)(?=#)")
SHORT_CODE = re.compile(r"<code>(?=[^<]*[ -])([^<]{1,24})</code>")  # a browser ends a line at these two alone
WIDTH = re.compile(r'viewBox="\S+ \S+ (\S+)')
BROAD = 600  # a wider picture would have words too small for a phone
STYLE = re.compile(r' style="([^"]*)"')
LINE = re.compile(r' d="[^"]*"')
TOO_FINE = re.compile(r"(?<=\.\d)\d+")
DECLARATION = re.compile(r"([\w-]+):\s*([^;]+)")
INDENT = re.compile(r"\n +")
SCRIPT = re.compile(r"<script|\son\w+\s*=", re.I)
GAP = "\0"  # no file has one
ROOT_ATTRIBUTE = re.compile(r'\s(?:aria-label|class|height|role|width|xmlns)="[^"]*"')


def change_text(body, markup, change):
    """A page's body whose text has become what `change` makes of it, a `GAP` for each `markup`.

    The first group of `markup` is all of it.
    """
    parts, step = markup.split(body), markup.groups + 1
    text = change(GAP.join(parts[::step])).split(GAP)
    return "".join(chain.from_iterable(zip_longest(text, parts[1::step], fillvalue="")))


def with_cell_places(markdown):
    """The Markdown of a page, in it a place for each cell that it shows; a place is a paragraph of its own."""
    numbers = count()
    return PARTS["cell"].sub(lambda include: f"\n{include[1]}{CELL.format(next(numbers))}\n", markdown)


def show_cells(body, path, cells, ran_on, text):
    """The cells of a page in their places; below each and its figures what is said of where it ran, nothing below most.

    `ran_on` are these sentences by the names of cells, `text` the words of the language. `SourceError` where the page,
    written in `path`, lacks the place of a cell.
    """
    if missing := set(range(len(cells))) - {int(place[1]) for place in SHOWN.finditer(body)}:
        line = read_includes(path)[min(missing)].line
        raise SourceError(f"{path}:{line}: no cell can stand here; indent the line like the text around it")

    def filled(place):
        cell = cells[int(place[1])]
        code = block(cell.code, "python").replace('">', f'" id="cell-{cell.name}">', 1)
        sentence = ran_on.get(cell.name)
        below = f'<p class="ran-on">{dated(sentence)}</p>' if sentence else ""
        return code + output(cell, text) + place[2] + below

    return SHOWN.sub(filled, body)


def dated(sentence):
    """A sentence as HTML in which a line does not end inside a date."""
    return DATE.sub(r"<time>\g<0></time>", html.escape(sentence))


def output(cell, text):
    """What a cell prints as a box that joins its code; the search leaves it out."""
    if not cell.output:
        return ""
    said = [text["output"], *(text[axis].format(names=" ".join(named)) for axis, named in cell.names.items() if named)]
    return (
        f'<div class="output no-copy" role="group" aria-label="{html.escape(" · ".join(said))}" '
        f"data-pagefind-ignore><pre>{show(cell.output, **cell.names)}</pre></div>"
    )


def explain_tints(body, words):
    """What the tints mean: below the first tinted output of a page, or in the section that tells how to read a page."""
    return TINTED.sub(rf'\g<0><p class="legend" data-pagefind-ignore>{legend(words)}</p>', body, count=1)


def older(sections, behind):
    """Those sections of a table of contents, at every depth, whose original is newer."""
    for section in sections:
        if section.id in behind or (section.level == 1 and "top" in behind):
            yield section
        yield from older(section.children, behind)


def scrolling_tables(body):
    """Each table of a page in a box of its own, which a reader can move sideways where it is wider than the screen."""
    return body.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")


def line_ends(body):
    """A line may end at a seam of a thread such as AnnotatedTransformer#1.

    It does not end inside a polarity such as True = attend, nor inside a short piece of code.
    """
    body = body.replace("True = ", "True\u00a0=\u00a0")
    body = THREAD.sub(lambda thread: SEAM.sub("<wbr>", thread[0]), body)
    return SHORT_CODE.sub(r'<code class="kept">\1</code>', body)


def words_of_pictures(path, language):
    """What the English words inside pictures become in a language; those without a translation stay as they are."""
    return {row["en"]: row[language] for row in read_rows(path) if row.get(language)}


def in_words(drawing, words):
    """An SVG drawing whose texts have become `words`."""

    def translated(match):
        word = html.unescape(match[2])
        return f"{match[1]}{html.escape(words.get(word, word), quote=False)}"

    return WORD.sub(translated, drawing)


def inline_pictures(body, assets, words):
    """Each SVG picture as part of the page, so that its ink follows the page's colours; its words become `words`."""

    def inline(match):
        path = Path(assets, match[2])
        if not path.is_file():
            return match[0]
        drawing = re.search(r"<svg\b([^>]*)(>.*</svg>)", INDENT.sub("\n", read_text(path)), re.S)
        if not drawing or SCRIPT.search(drawing[0]):
            raise SourceError(f"{shown(path)}:1: not an SVG picture, or one with a script; save it as a plain SVG")
        attributes = ROOT_ATTRIBUTE.sub("", drawing[1])
        width = WIDTH.search(attributes)
        broad = " broad" if width and float(width[1]) > BROAD else ""
        return (
            f'<svg class="picture{broad}" role="img" aria-label="{match[1]}"{attributes}{in_words(drawing[2], words)}'
        )

    return PICTURE.sub(inline, body)


def show_figures(body, figures):
    """The figures of a lab in their places, with attributes in place of styles, which a strict policy does not allow.

    A tenth of a point is enough for a line.
    """
    figures = iter(figures)

    def attributes(style):
        return "".join(f' {name}="{value.strip()}"' for name, value in DECLARATION.findall(style[1]))

    def rounded(line):
        return TOO_FINE.sub("", line[0])

    def shown(place):
        return place[0].replace("><", f">{LINE.sub(rounded, STYLE.sub(attributes, next(figures)))}<")

    return re.sub(PLACE, shown, body)
