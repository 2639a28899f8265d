"""The body of a page: the HTML that Markdown gives is parsed, small functions change its tree, and it is written."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml
from jinja2 import Environment
from math_core import LatexError, LatexToMathML
from mkdocs import utils
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.toc import AnchorLink

from tools.cells.source import SourceError, read_text
from tools.languages.markdown import ALL
from tools.languages.pictures import in_words, words_of_pictures
from tools.site import explorers
from tools.site.cells import drawings, fill
from tools.site.files import ROOT, relative
from tools.site.outputs import legend
from tools.site.overview import counted
from tools.site.pages import Edition, SitePage, i18n_of
from tools.site.terms import Terms
from tools.site.tree import Node, parse, put, replace, written

GLOSSARY = "glossary"
SHORT = re.compile("(?=.*[ -]).{1,24}")  # a browser ends a line at these two
BEHIND = re.compile(r"^[^\s\w<>&]+")  # a formula, what no line may begin with
BROAD = 600  # a wider picture goes on beside the screen of a phone
OF_THE_FILE = ("height", "width", "xmlns")
CONVERTER = LatexToMathML(fancy_error=False)


class Drawing:
    """What draws the pages of the language that is built now."""

    def __init__(self, edition: Edition, env: Environment, config: MkDocsConfig) -> None:
        i18n = i18n_of(config)
        language, languages = i18n.current_language, [one.locale for one in i18n.config.languages]
        tables, numbers = relative(ROOT / "languages"), relative(ROOT / "verified/explorers")
        self.edition, self.env, self.words = edition, env, config.extra["text"]
        self.citation = yaml.safe_load(read_text(relative(ROOT / "CITATION.cff")))
        self.terms = Terms(tables / "glossary.csv", language, languages)
        self.pictures = words_of_pictures(tables / "pictures.csv", language)
        self.explorer = explorers.drawing(env, numbers, explorers.words(tables / "explorers.csv", language))
        self.counts = counted(edition.in_nav.values(), len(languages), self.words)

    def article(self, page: SitePage, rendered: str) -> tuple[str, list[str]]:
        """The article of a page, and the scripts of its explorers."""
        tree, path, own = parse(rendered), page.source.path, page.behind != ALL
        fill(tree, drawings(page.source, page.cells, page.figures, page.ran_on, self.words), path)
        to_mathml(tree, path)
        offer_commands(tree, self.words)
        scroll_tables(tree)
        keep_code(tree)
        if own and page.slug != GLOSSARY:
            self.terms.link(tree, self.way(page, GLOSSARY))
        explain_tints(tree, self.words["legend"])
        inline_pictures(tree, relative(ROOT / "docs/assets"), self.pictures if own else {})
        enlarge_words(tree)
        say_counted(tree, self.counts)
        draw = partial(self.explorer, way=partial(self.way, page), pages=self.edition.in_nav)
        scripts = explorers.show(tree, path, draw)
        return written(tree), scripts

    def way(self, page: SitePage, slug: str) -> str:
        """The address of a page, seen from another."""
        return utils.get_relative_url(self.edition.in_nav[slug].url, page.url)


def explain_tints(body: Node, words: str) -> None:
    """Say what the tints mean: below the first tinted output, or in the section that tells how to read a page."""
    if first := body.css_first("h2#reading ~ ul, .output:has(span)"):
        put(f'<p class="legend" data-pagefind-ignore>{legend(words)}</p>', Node.insert_after, first)


def older(headings: Iterable[AnchorLink], behind: Sequence[str]) -> Iterator[AnchorLink]:
    """Those headings of a table of contents, at every depth, below which the original is newer."""
    for heading in headings:
        if heading.id in behind or (heading.level == 1 and {"asks", "top"} & {*behind}):
            yield heading
        yield from older(heading.children, behind)


def to_mathml(body: Node, source: Path) -> None:
    """Make the formulas of a page MathML; `SourceError` names the line of one that is not TeX.

    The search leaves out what is displayed, not what belongs to a sentence; no line begins with the comma behind one.
    """
    for node in body.css(".arithmatex"):  # what pymdownx.arithmatex writes in its generic mode
        display, tex = node.tag == "div", node.text().strip()[2:-2].strip()
        formula, behind = mathml(tex, display, source), node.next
        if display:
            formula = formula.replace("<math", "<math data-pagefind-ignore", 1)
        elif behind and (text_behind := behind.text_content) and (rest := BEHIND.sub("", text_behind)) != text_behind:
            formula = f'<span class="kept">{formula}{html.escape(text_behind.removesuffix(rest))}</span>'
            behind.replace_with(rest)
        replace(node, formula)


def mathml(tex: str, display: bool, source: Path) -> str:
    """A formula as MathML."""
    try:
        return CONVERTER.convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        line = read_text(source).partition(tex.splitlines()[0])[0].count("\n") + 1
        message = str(error).partition(": ")[2].rstrip(".")
        raise SourceError(f"{source}:{line}: {message} in {' '.join(tex.split())}") from None


def scroll_tables(body: Node) -> None:
    """Put each table into a box of its own, which a reader can move sideways where it is wider than the screen."""
    for table in body.css("table"):
        replace(table, f'<div class="wide" tabindex="0">{table.html}</div>')


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
        put("".join(f"<small>{html.escape(sentence)}</small>" for sentence in sentences), Node.insert_child, promise)


def inline_pictures(body: Node, assets: Path, words: Mapping[str, str]) -> None:
    """Make each SVG picture part of the page, so that its ink follows the page's colours; its words become `words`."""
    for image in body.css('img[src*="assets/"][src$=".svg"]'):
        path = Path(assets, image.attrs.sget("src").rpartition("assets/")[2])
        if path.is_file():
            replace(image, picture(path, image.attrs.sget("alt"), words))


def picture(path: Path, name: str, words: Mapping[str, str]) -> str:
    """An SVG picture as part of a page; without a name it only adorns the words beside it."""
    svg = parse(in_words(read_text(path), words)).css_first("svg")
    if not svg or svg.css("script") or any(key.startswith("on") for node in svg.traverse() for key in node.attributes):
        raise SourceError(f"{path}:1: not an SVG picture, or one with a script; save it as a plain SVG")
    for key in OF_THE_FILE:
        if key in svg.attrs:
            del svg.attrs[key]
    broad = float(svg.attrs.sget("viewBox", "0 0 0 0").split()[2]) > BROAD
    svg.attrs["class"] = "picture broad" if broad else "picture"
    if name:
        svg.attrs["role"], svg.attrs["aria-label"] = "img", name
    else:
        svg.attrs["aria-hidden"] = "true"
    return svg.html or ""


def enlarge_words(body: Node) -> None:
    """Tell the style sheet how wide each picture is, and let its words be as high as that asks for, at least."""
    for svg in body.css("svg[viewBox]"):
        svg.attrs["style"] = f"--wide:{svg.attrs.sget('viewBox').split()[2]}"
    for word in body.css("svg [font-size]"):
        word.attrs["style"] = f"font-size:max({word.attrs.sget('font-size').removesuffix('px')}px,var(--least,0px))"
        del word.attrs["font-size"]
