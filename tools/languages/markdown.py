"""The one reader of Markdown and of the front matter above it: what a page is made of, and where it stands.

`read(path)` gives a `Page`: its front matter, the questions in it, its sections, and its blocks in order. A block that
holds text has its pieces: words, line breaks, code, formulas, links, pictures.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.attrs import attrs_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from tools.cells.source import INCLUDE, SourceError, nearest, read_text, split_lines

TOP = "top"  # the section above the first heading with an id
ALL = "all"  # `behind: all` in the front matter: the page has no text of its own yet
ASKS = "asks"  # the questions above a page, which are a section of their own
ALIASES = "aliases"  # what askers type and the page does not say
# Fields with nothing to translate.
OF_ONE_LANGUAGE = (ALIASES, "behind", "builds_on", "exercises", "glossary", "made_from", "overview")
ID = re.compile(r" *\{#([\w-]+)\}$")
# Tokens that are blocks without a text of their own; below, what is not called here as its token is.
BLOCKS = ("admonition_open", "cell", "code_block", "fence", "html_block", "list_item_open", "math_block", "tr_open")
KINDS = {
    "admonition_title": "title",
    "em": "mark",
    "fence": "code block",
    "hardbreak": "break",
    "html_block": "html",
    "image": "picture",
    "math": "formula",
    "math_block": "formula",
    "softbreak": "break",
    "strong": "mark",
    "td": "table cell",
    "text": "words",
    "th": "table cell",
    "tr": "table row",
}


@dataclass(frozen=True)
class Piece:
    """A part of the text of a block: its `text` is words, code, TeX, asterisks, or where a link or a picture leads.

    What a link, a picture or a mark of emphasis holds follows as pieces of their own, up to "end of link" and the like.
    """

    kind: str
    line: int
    text: str
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Block:
    """A part of a page on lines of its own, from `line` to before `end`, in a section, perhaps in a folded block.

    Its `text` is the same in every language: the code or TeX of a block, `masks/padding:leak` of a cell, the level and
    the id of a heading, the marker and the kind of an admonition. What it says in words is in its pieces.
    """

    kind: str
    line: int
    end: int
    text: str
    section: str
    folded: bool
    pieces: tuple[Piece, ...] = ()

    @property
    def words(self) -> str:
        """What it says, without marks and line breaks."""
        texts = (" " if piece.kind == "break" else piece.text for piece in self.pieces if piece.kind in READ)
        return " ".join("".join(texts).split())


READ = ("words", "code", "formula", "break")


@dataclass(frozen=True)
class Section:
    """A part of a page from a heading with an id to before the next one; `text` is its Markdown."""

    title: str
    line: int
    text: str


@dataclass(frozen=True)
class Entry:
    """A question or an alias above a page, in its language, and the id of the section that answers, or `top`.

    Both stand in the search, the questions on a page of their own, too. An alias is what people type and the page does
    not say; those of the English page, among them the messages of torch, hold for every language.

        asks:
          - top: My model sees the future; its loss is too good to be true.
        aliases:
          - formula: tril or triu
    """

    section: str
    words: str
    line: int

    @property
    def html(self) -> str:
        return str(reader().renderInline(self.words))

    @property
    def block(self) -> Block:
        """What it is for all that looks at the words of a page, which shows none of it: a folded block."""
        [text] = reader().parseInline(self.words)
        text.map = [self.line - 1, self.line]
        return Block("question", *place(text), self.section, ASKS, True, tuple(read_pieces(text)))


@dataclass(frozen=True)
class Page:
    """A page as it is written; lines count from 1."""

    path: Path
    text: str
    front: Mapping[str, Any] = field(hash=False)
    first_line: int  # of the body, which stands below the front matter
    asks: tuple[Entry, ...]
    aliases: tuple[Entry, ...]
    blocks: tuple[Block, ...]
    sections: Mapping[str, Section] = field(hash=False)

    @property
    def body(self) -> str:
        """The Markdown below the front matter."""
        return "\n".join(self.text.split("\n")[self.first_line - 1 :])

    def line_of(self, key: str) -> int:
        """The line of a field above the page; the first where it is not there."""
        front = self.text.split("\n")[: self.first_line]
        return next((number for number, line in enumerate(front, 1) if line.startswith(f"{key}:")), 1)

    @property
    def title(self) -> str:
        return self.sections[TOP].title

    def of(self, *kinds: str) -> Iterator[Block]:
        """The blocks of some kinds, in order."""
        return (block for block in self.blocks if block.kind in kinds)

    def pieces(self, *kinds: str) -> Iterator[tuple[Block, Piece]]:
        """The pieces of some kinds, in order, each with its block."""
        return ((block, piece) for block in self.blocks for piece in block.pieces if piece.kind in kinds)


def read(path: Path | str) -> Page:
    """The page that a file holds; `SourceError` where it cannot be read."""
    return parse(read_text(path), Path(path))


@functools.lru_cache(maxsize=512)
def parse(text: str, path: Path) -> Page:
    """The page that a text is; `path` is named in messages."""
    tokens = reader().parse(text)
    written, first_line = "", 1
    if tokens and tokens[0].type == "front_matter":
        written, first_line = tokens[0].content, place(tokens[0])[1]
    elif text.startswith("---\n"):
        raise SourceError(f"{path}:1: the front matter has no end; close it with --- on a line of its own")
    front = read_front(written, path)
    asks, aliases = (tuple(read_entries(written, path, name)) for name in (ASKS, ALIASES))
    blocks = (*(entry.block for entry in asks), *read_blocks(tokens))
    sections = read_sections(text, path, first_line, blocks)
    for entry in (*asks, *aliases):
        if entry.section not in sections:
            says = f"no section of the page has the id {entry.section!r}, to answer {entry.words!r}"
            raise SourceError(f"{path}:{entry.line}: {says}{nearest(entry.section, sections)}")
    return Page(path, text, front, first_line, asks, aliases, blocks, sections)


def file_of_text(path: Path) -> Path:
    """The file whose text a page shows: its own, or the English page until it is translated."""
    return english(path) if read(path).front.get("behind") == ALL else path


def english(path: Path) -> Path:
    """The file of the same page in English."""
    docs = next(folder for folder in path.parents if folder.name == "docs")
    return docs / "en" / Path(*path.relative_to(docs).parts[1:])


def read_front(text: str, path: Path) -> dict[str, Any]:
    """The fields above a page."""
    try:
        front = yaml.load(f"\n{text}", yaml.CSafeLoader)  # the first line of a page is ---
    except yaml.YAMLError as error:
        raise SourceError(f"{path}:1: the front matter is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(front, dict | None):
        raise SourceError(f"{path}:1: the front matter holds no fields; write, for example, `description: ...`")
    return front or {}


def read_entries(front: str, path: Path, name: str) -> Iterator[Entry]:
    """The entries of a field above a page; `SourceError` for what is none."""
    fields = yaml.compose(f"\n{front}", yaml.CSafeLoader)
    entries = next((node for key, node in (fields.value if fields else ()) if key.value == name), None)
    for entry in entries.value if isinstance(entries, yaml.SequenceNode) else filter(None, [entries]):
        match entry:
            case yaml.MappingNode(value=[(yaml.ScalarNode(value=section), yaml.ScalarNode(value=words))]):
                yield Entry(section, words, entry.start_mark.line + 1)
            case _:
                says = f"an entry of `{name}` is a section and words, `- formula: Do I scale?`"
                raise SourceError(f"{path}:{entry.start_mark.line + 1}: {says}")


class Reader(MarkdownIt):
    """Markdown as the site has it; a link leads where it is written to lead, wherever that is."""

    def validateLink(self, url: str) -> bool:
        return True

    def normalizeLink(self, url: str) -> str:
        return url


@functools.cache
def reader() -> Reader:
    made = Reader("commonmark", {"html": True})
    made.enable("table").use(front_matter_plugin).use(admon_plugin).use(attrs_plugin)
    made.use(dollarmath_plugin, allow_labels=False)
    made.block.ruler.before("fence", "cell", cell, {"alt": ["paragraph", "blockquote", "list"]})
    made.core.ruler.before("inline", "heading_ids", heading_ids)
    return made


def cell(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The line that shows a cell, `--8<-- "masks/padding.md:leak"`, or the block that shows a section of a file."""
    lines = [state.getLines(number, number + 1, 0, False).strip() for number in range(start, min(start + 3, end))]
    is_section = lines[0] == "```python" and lines[2:] == ["```"]
    include = INCLUDE.fullmatch(lines[1] if is_section else lines[0])
    if include and not silent:
        token = state.push("cell", "", 0)
        state.line = start + (3 if is_section else 1)
        token.content, token.map = f"{include[1] or include[2]}:{include[3]}", [start, state.line]
    return bool(include)


def heading_ids(state: StateCore) -> None:
    """The id behind a heading, `{#formula}`, becomes its attribute and no word of it."""
    for heading, text in pairwise(state.tokens):
        if heading.type == "heading_open" and (match := ID.search(text.content)):
            heading.attrSet("id", match[1])
            text.content = text.content[: match.start()]


def read_blocks(tokens: list[Token]) -> Iterator[Block]:
    """The blocks of a page in order; that of a paragraph, a heading and the like has the pieces of its text."""
    section, folds = TOP, 0
    for before, token in pairwise([Token("", "", 0), *tokens]):
        if token.type.startswith("admonition_") and token.markup in ("???", "???+"):
            folds += (token.type == "admonition_open") - (token.type == "admonition_close")
        if before.type == "heading_open":
            section = str(before.attrs.get("id", section))
        if token.type in BLOCKS:
            text = f"{token.info} {token.content}".strip()
            if token.type == "admonition_open":
                text = f"{token.markup} {token.meta['tag']}"
            yield Block(kind_of(token), *place(token), text, section, folds > 0)
        elif token.type == "inline":
            text = f"{before.markup} {before.attrs.get('id', '')}".strip() if before.type == "heading_open" else ""
            yield Block(kind_of(before), *place(token), text, section, folds > 0, tuple(read_pieces(token)))


def kind_of(token: Token) -> str:
    """The kind of the block or the piece that a token is, begins or ends."""
    name = re.sub("_(open|close|inline)$", "", token.type)
    kind = KINDS.get(name, name.replace("_", " "))
    return f"end of {kind}" if token.nesting < 0 else kind


def place(token: Token) -> tuple[int, int]:
    """The line that a token begins on, and the line behind it."""
    start, end = token.map or (0, 0)
    return start + 1, end + 1


def read_pieces(inline: Token) -> Iterator[Piece]:
    line = place(inline)[0]
    for token in flat(inline.children or []):
        text = str(token.attrs.get("href") or token.attrs.get("src") or token.content or token.markup)
        piece = Piece(kind_of(token), line, text, token.attrs)
        line += text.count("\n") + (piece.kind == "break")
        yield piece


def flat(tokens: list[Token]) -> Iterator[Token]:
    """Tokens in order, behind a picture those of what it says."""
    for token in tokens:
        yield token
        if token.type == "image":
            yield from flat(token.children or [])


def read_sections(text: str, path: Path, first_line: int, blocks: tuple[Block, ...]) -> dict[str, Section]:
    """The sections of a page by their ids; `SourceError` where two have one id."""
    lines = split_lines(text)
    headings = [block for block in blocks if block.kind == "heading"]
    title = next((heading.words for heading in headings if heading.text == "#"), "")
    starts = [(heading.section, heading.words, heading.line) for heading in headings if " " in heading.text]
    ends = [line for *_, line in starts] + [len(lines) + 1]
    questions = [block for block in blocks if block.kind == "question"]
    parts = [(ASKS, "", questions[0].line, questions[-1].end)] if questions else []
    parts += [(*start, end) for start, end in zip([(TOP, title, first_line), *starts], ends)]
    sections: dict[str, Section] = {}
    for name, words, line, end in parts:
        if name in sections:
            raise SourceError(f"{path}:{line}: a second section has the id {name!r}; take another")
        sections[name] = Section(words, line, "\n".join([*lines[line - 1 : end - 1], ""]))
    return sections
