"""What is done to the body of a page: small functions, each of which changes its tree."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mkdocs.structure.toc import AnchorLink

from tools.cells.source import SourceError
from tools.languages.pictures import in_words
from tools.site.files import text
from tools.site.outputs import legend
from tools.site.tree import Node, append, parse, put_behind, replace, wrap

SHORT = re.compile("(?=.*[ -]).{1,24}")  # a browser ends a line at these two
BROAD = 600  # a wider picture goes on beside the screen of a phone
OF_THE_FILE = ("height", "width", "xmlns")


def explain_tints(body: Node, words: str) -> None:
    """Say what the tints mean: below the first tinted output, or in the section that tells how to read a page."""
    if first := body.css_first("h2#reading ~ ul, .output:has(span)"):
        put_behind(first, f'<p class="legend" data-pagefind-ignore>{legend(words)}</p>')


def older(headings: Iterable[AnchorLink], behind: Sequence[str]) -> Iterator[AnchorLink]:
    """Those headings of a table of contents, at every depth, below which the original is newer."""
    for heading in headings:
        if heading.id in behind or (heading.level == 1 and "top" in behind):
            yield heading
        yield from older(heading.children, behind)


def scroll_tables(body: Node) -> None:
    """Put each table into a box of its own, which a reader can move sideways where it is wider than the screen."""
    for table in body.css("table"):
        wrap(table, "div", class_="wide", tabindex="0")


def keep_code(body: Node) -> None:
    """Let no line end inside a short piece of code: -inf does not become - and inf."""
    for code in body.css(":not(pre) > code"):
        if not code.attributes and SHORT.fullmatch(code.text()):
            code.attrs["class"] = "kept"


def offer_commands(body: Node, words: Mapping[str, str]) -> None:
    """Give each command the words for the button that copies it."""
    for code in body.css(".language-sh code"):
        code.attrs["data-copy-label"], code.attrs["data-copied"] = words["copy_command"], words["command_copied"]


def say_counted(body: Node, counts: Sequence[Sequence[str]]) -> None:
    """Say below each promise what was counted for it."""
    for promise, sentences in zip(body.css("h2#promises ~ ol:first-of-type > li"), counts):
        append(promise, "".join(f"<small>{html.escape(sentence)}</small>" for sentence in sentences))


def inline_pictures(body: Node, assets: Path, words: Mapping[str, str]) -> None:
    """Make each SVG picture part of the page, so that its ink follows the page's colours; its words become `words`."""
    for image in body.css('img[src*="assets/"][src$=".svg"]'):
        path = Path(assets, image.attrs.sget("src").rpartition("assets/")[2])
        if path.is_file():
            replace(image, picture(path, image.attrs.sget("alt"), words))


def picture(path: Path, name: str, words: Mapping[str, str]) -> str:
    """An SVG picture as part of a page."""
    svg = parse(in_words(text(path), words)).css_first("svg")
    if not svg or svg.css("script") or any(key.startswith("on") for node in svg.traverse() for key in node.attributes):
        raise SourceError(f"{path}:1: not an SVG picture, or one with a script; save it as a plain SVG")
    for key in OF_THE_FILE:
        if key in svg.attrs:
            del svg.attrs[key]
    broad = float(svg.attrs.sget("viewBox", "0 0 0 0").split()[2]) > BROAD
    svg.attrs["class"] = "picture broad" if broad else "picture"
    svg.attrs["role"], svg.attrs["aria-label"] = "img", name
    return svg.html or ""


def enlarge_words(body: Node) -> None:
    """Tell the style sheet how wide each picture is, and let its words be as high as that asks for, at least."""
    for svg in body.css("svg[viewBox]"):
        svg.attrs["style"] = f"--wide:{svg.attrs.sget('viewBox').split()[2]}"
    for word in body.css("svg [font-size]"):
        word.attrs["style"] = f"font-size:max({word.attrs.sget('font-size').removesuffix('px')}px,var(--least,0px))"
        del word.attrs["font-size"]
