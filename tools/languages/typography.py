"""The typography of the prose: it keeps the signs that `languages/rules.*.yml` want."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tools.languages import rules
from tools.languages.markdown import Page, Piece, parse
from tools.languages.rules import OBJECTS, Rule

NO_WORDS = re.compile(r'(\{\w+\}|https?://[^\s)]+|\w+="[^"\n]*")')
LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
AROUND = 8  # characters that a message shows on each side of a violation


class Prose:
    """What a reader sees of a page, and the asterisks; the line of each character; the source of each object."""

    def __init__(self, page: Page):
        self.text = ""
        self.lines: list[int] = []
        self.objects: dict[int, str] = {}
        self.line = page.line_of("description")
        self.add_words(str(page.front.get("description", "")))
        for block in page.blocks:
            self.line = block.line
            self.add("\n\n")
            for piece in block.pieces:
                self.line = piece.line
                self.add_piece(piece)

    def add(self, text: str) -> None:
        self.text += text
        self.lines += [self.line] * len(text)

    def add_piece(self, piece: Piece) -> None:
        if piece.kind == "words":
            self.add_words(piece.text)
        elif piece.kind in ("code", "formula"):
            self.add_object(f"`{piece.text}`" if piece.kind == "code" else f"${piece.text}$")
        elif piece.kind in ("mark", "end of mark", "break"):
            self.add(piece.text if piece.kind != "break" else "\n")

    def add_words(self, words: str) -> None:
        for number, part in enumerate(NO_WORDS.split(words)):
            (self.add_object if number % 2 else self.add)(part)

    def add_object(self, source: str) -> None:
        character = chr(OBJECTS[len(self.objects)])
        self.objects[ord(character)] = source
        self.add(character)


def check(text: str, language: str, path: Path = Path("the text")) -> list[tuple[int, str, str]]:
    """The violations in a text, in order, each as its line, the old text and the new, with some characters around."""
    prose, known = Prose(parse(text, path)), rules.read(language)
    marked = prose.text if known.line_breaks else LINE_BREAK.sub(" ", prose.text)
    places = [index for index, character in enumerate(marked) if character != "*"]
    faults = [(places[at], old, new) for at, old, new in violations(marked.replace("*", ""), known.signs)]
    faults += violations(marked, known.emphasis)
    sources = prose.objects
    return [(prose.lines[at], old.translate(sources), new.translate(sources)) for at, old, new in sorted(faults)]


def violations(prose: str, rules: list[Rule]) -> Iterator[tuple[int, str, str]]:
    """Each as its position, the old text and the new; where two rules meet, the first."""
    taken: set[int] = set()
    for pattern, wanted in rules:
        for match in pattern.finditer(prose):
            instead = unicodedata.normalize("NFC", match.expand(wanted))
            span = range(*match.span())
            if match.groupdict().get("right") is not None or instead == match[0] or not taken.isdisjoint(span):
                continue
            taken.update(span)
            before = prose[max(0, span.start - AROUND) : span.start].rpartition("\n")[2].lstrip()
            after = prose[span.stop : span.stop + AROUND].partition("\n")[0].rstrip()
            yield span.start, before + match[0] + after, before + instead + after
