"""The typography of the prose: it keeps the signs that `languages/rules.*.yml` want."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tools.languages import rules
from tools.languages.markdown import Page, parse
from tools.languages.rules import OBJECTS, Rule

MARKS = {"code": "`", "formula": "$"}
NO_WORDS = re.compile(r'(\{\w+\}|https?://[^\s)]+|\w+="[^"\n]*")')
LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
AROUND = 8  # characters that a message shows on each side of a violation


def parts(page: Page) -> Iterator[tuple[int, str, bool]]:
    """What a reader sees of a page, and the asterisks: each part with its line, and whether no rule looks into it."""
    yield from parts_of_words(page.line_of("description"), str(page.front.get("description", "")))
    for block in page.blocks:
        yield block.line, "\n\n", False
        for piece in block.pieces:
            if piece.kind == "words":
                yield from parts_of_words(piece.line, piece.text)
            elif piece.kind in MARKS:
                yield piece.line, f"{MARKS[piece.kind]}{piece.text}{MARKS[piece.kind]}", True
            elif piece.kind in ("mark", "end of mark", "break"):
                yield piece.line, piece.text or "\n", False


def parts_of_words(line: int, words: str) -> Iterator[tuple[int, str, bool]]:
    for number, part in enumerate(NO_WORDS.split(words)):
        yield line, part, number % 2 == 1


def prose_of(page: Page) -> tuple[str, list[int], dict[int, str]]:
    """The parts of a page as one text, the line of each of its characters, and what each object in it stands for."""
    prose, lines, objects = "", list[int](), dict[int, str]()
    for line, part, is_object in parts(page):
        if is_object:
            character = OBJECTS[len(objects)]
            objects[character], part = part, chr(character)
        prose += part
        lines += [line] * len(part)
    return prose, lines, objects


def check(text: str, language: str, path: Path = Path("the text")) -> list[tuple[int, str, str]]:
    """The violations in a text, in order, each as its line, the old text and the new, with some characters around."""
    known, (prose, lines, objects) = rules.read(language), prose_of(parse(text, path))
    marked = prose if known.line_breaks else LINE_BREAK.sub(" ", prose)
    places = [index for index, character in enumerate(marked) if character != "*"]
    faults = [(places[at], old, new) for at, old, new in violations(marked.replace("*", ""), known.signs)]
    faults += violations(marked, known.emphasis)
    return [(lines[at], old.translate(objects), new.translate(objects)) for at, old, new in sorted(faults)]


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
