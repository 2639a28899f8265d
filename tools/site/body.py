"""What is done to the HTML of a page's body: small functions from HTML to HTML."""

import html
import re
from pathlib import Path

from tools.cells.source import OUTPUT_MARK, SourceError, read_text
from tools.site.checks import shown
from tools.site.outputs import tint

OUTPUT = re.compile(
    rf'{OUTPUT_MARK}\s*<div class="language-text highlight"><pre><span></span><code>(.*?)</code></pre></div>', re.S
)
CELL = re.compile(
    r'<div class="language-python .*?</code></pre></div>(?:\s*<div class="output .*?</code></pre></div>)?', re.S
)
PICTURE = re.compile(r'<img alt="([^"]*)" src="[^"]*?assets/([\w./-]+\.svg)"[^>]*>')
PLOT = re.compile(r'<div class="plot">.*?</div>', re.S)
STYLE = re.compile(r' style="([^"]*)"')
LINE = re.compile(r' d="[^"]*"')
TOO_FINE = re.compile(r"(\.\d)\d+")
DECLARATION = re.compile(r"([\w-]+):\s*([^;]+)")
SCRIPT = re.compile(r"<script|\son\w+\s*=", re.I)
ROOT_ATTRIBUTE = re.compile(r'\s(?:aria-label|class|height|role|width|xmlns)="[^"]*"')


def show_outputs(body, label):
    """Each printed output as a box that joins its code; the search leaves it out."""

    def box(match):
        return (
            f'<div class="output no-copy" role="group" aria-label="{html.escape(label)}" data-pagefind-ignore>'
            f"<pre><code>{tint(html.unescape(match[1]))}</code></pre></div>"
        )

    # In a folded block Python-Markdown takes a cell with an output for a paragraph.
    body = OUTPUT.sub(box, body)
    return body.replace('<p><div class="language-', '<div class="language-').replace("</pre></div></p>", "</pre></div>")


def scrolling_tables(body):
    """Each table of a page in a box of its own, which a reader can move sideways where it is wider than the screen."""
    return body.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")


def say_devices(body, sentences):
    """Below the cells of a page, one after the other, what is said of where they ran; nothing below most."""
    sentences = iter(sentences)

    def said(match):
        sentence = next(sentences, None)  # a lab has none
        return match[0] + (f'<p class="ran-on">{html.escape(sentence)}</p>' if sentence else "")

    return CELL.sub(said, body)


def inline_pictures(body, assets):
    """Each SVG picture as part of the page, so that its ink follows the page's colours."""

    def inline(match):
        path = Path(assets, match[2])
        if not path.is_file():
            return match[0]
        drawing = re.search(r"<svg\b([^>]*)(>.*</svg>)", read_text(path), re.S)
        if not drawing or SCRIPT.search(drawing[0]):
            raise SourceError(f"{shown(path)}:1: not an SVG picture, or one with a script; save it as a plain SVG")
        attributes = ROOT_ATTRIBUTE.sub("", drawing[1])
        return f'<svg class="picture" role="img" aria-label="{match[1]}"{attributes}{drawing[2]}'

    return PICTURE.sub(inline, body)


def plain_plots(body):
    """Each plot of a lab with attributes in place of styles, which a strict policy of the site does not allow.

    A tenth of a point is enough for a line.
    """

    def attributes(style):
        return "".join(f' {name}="{value.strip()}"' for name, value in DECLARATION.findall(style[1]))

    def rounded(line):
        return TOO_FINE.sub(r"\1", line[0])

    return PLOT.sub(lambda match: LINE.sub(rounded, STYLE.sub(attributes, match[0])), body)
