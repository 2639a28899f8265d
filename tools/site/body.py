"""What is done to the HTML of a page's body: small functions from HTML to HTML."""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

from mkdocs.structure.toc import AnchorLink

from tools.cells.source import SourceError
from tools.languages.glossary import read_rows
from tools.site.files import text
from tools.site.outputs import legend

TINTED = re.compile(
    r'<h2 id="reading">.*?</ul>|<div class="output (?:(?!</pre>).)*<span class="(?:(?!</pre>).)*</pre></div>', re.S
)
PICTURE = re.compile(r'<img alt="([^"]*)" src="[^"]*?assets/([\w./-]+\.svg)"[^>]*>')
DRAWING = re.compile(r"<svg\b([^>]*)(>.*</svg>)", re.S)
WORD = re.compile(r'(<text\b(?![^>]* class="code\b)[^>]*>)([^<]+)(?=</text>)')  # code is the same in every language
SHORT_CODE = re.compile(r"(?<!pre>)<code>(?=[^<]*[ -])([^<]{1,24})</code>")  # a browser ends a line at these two
WIDTH = re.compile(r'viewBox="\S+ \S+ (\S+)')
BROAD = 600  # a wider picture goes on beside the screen of a phone
FONT_SIZE = re.compile(r'font-size="([\d.]+)(?:px)?"')
SCRIPT = re.compile(r"<script|\son\w+\s*=", re.I)
GAP = "\0"  # no file has one
ROOT_ATTRIBUTE = re.compile(r'\s(?:aria-label|class|height|role|width|xmlns)="[^"]*"')


def change_text(body: str, markup: re.Pattern, change: Callable[[str], str]) -> str:
    """A page's body whose text has become what `change` makes of it, a `GAP` for each `markup`.

    The first group of `markup` is all of it.
    """
    parts, step = markup.split(body), markup.groups + 1
    changed = change(GAP.join(parts[::step])).split(GAP)
    return "".join(chain.from_iterable(zip_longest(changed, parts[1::step], fillvalue="")))


def explain_tints(body: str, words: str) -> str:
    """What the tints mean: below the first tinted output of a page, or in the section that tells how to read a page."""
    return TINTED.sub(rf'\g<0><p class="legend" data-pagefind-ignore>{legend(words)}</p>', body, count=1)


def older(headings: Iterable[AnchorLink], behind: Sequence[str]) -> Iterator[AnchorLink]:
    """Those headings of a table of contents, at every depth, below which the original is newer."""
    for heading in headings:
        if heading.id in behind or (heading.level == 1 and "top" in behind):
            yield heading
        yield from older(heading.children, behind)


def scrolling_tables(body: str) -> str:
    """Each table of a page in a box of its own, which a reader can move sideways where it is wider than the screen."""
    return body.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")


def whole_code(body: str) -> str:
    """A page on which no line ends inside a short piece of code: -inf does not become - and inf."""
    return SHORT_CODE.sub(r'<code class="kept">\1</code>', body)


def words_of_pictures(path: Path, language: str) -> dict[str, str]:
    """What the English words inside pictures become in a language; those without a translation stay as they are."""
    return {row["en"]: row[language] for row in read_rows(path) if row.get(language)}


def in_words(drawing: str, words: Mapping[str, str]) -> str:
    """An SVG drawing whose texts have become `words`."""

    def translated(match):
        word = html.unescape(match[2])
        return f"{match[1]}{html.escape(words.get(word, word), quote=False)}"

    return WORD.sub(translated, drawing)


def readable(drawing: str) -> str:
    """An SVG drawing that tells the style sheet its width, and whose words are as high as that asks for, at least."""
    drawing = WIDTH.sub(r'style="--wide:\1" \g<0>', drawing, count=1)
    return FONT_SIZE.sub(r'style="font-size:max(\1px,var(--least,0px))"', drawing)


def inline_pictures(body: str, assets: Path, words: Mapping[str, str]) -> str:
    """Each SVG picture as part of the page, so that its ink follows the page's colours; its words become `words`."""

    def inline(match):
        path = Path(assets, match[2])
        if not path.is_file():
            return match[0]
        drawing = DRAWING.search(text(path))
        if not drawing or SCRIPT.search(drawing[0]):
            raise SourceError(f"{path}:1: not an SVG picture, or one with a script; save it as a plain SVG")
        attributes = ROOT_ATTRIBUTE.sub("", drawing[1])
        width = WIDTH.search(attributes)
        broad = " broad" if width and float(width[1]) > BROAD else ""
        shown = f'<svg class="picture{broad}" role="img" aria-label="{match[1]}"{attributes}{drawing[2]}'
        return readable(in_words(shown, words))

    return PICTURE.sub(inline, body)
