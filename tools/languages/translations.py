"""Whether a translation has the parts of the English page, the same ones in the same order, and no words in English."""

import re
from collections.abc import Iterator
from itertools import zip_longest

from tools.cells.source import SourceError
from tools.languages.markdown import OF_ONE_LANGUAGE, Page, Piece

BLOCKS = ("question", "heading", "cell", "code block", "admonition", "table row", "list item")
PIECES = ("formula", "picture", "link")
FIELD = "front matter key"
SENTENCES = ("question", "heading", "title", "paragraph")


def parts(page: Page) -> dict[str, list[tuple[int, str]]]:
    """For each kind of part those of a page in order, each as its line and what is the same in every language."""
    by_kind: dict[str, list[tuple[int, str]]] = {kind: [] for kind in (FIELD, *BLOCKS, *PIECES)}
    by_kind[FIELD] = [(page.line_of(key), key) for key in page.front if key not in OF_ONE_LANGUAGE]
    for block in page.blocks:
        if block.kind in by_kind:
            by_kind[block.kind].append((block.line, block.text))
        for piece in block.pieces:
            if piece.kind in PIECES:
                by_kind[piece.kind].append((piece.line, leads_to(piece)))
    return by_kind


def leads_to(piece: Piece) -> str:
    """The TeX of a formula; where a link or a picture leads, with the attributes behind it."""
    others = (f"{key}={value}" for key, value in piece.attributes.items() if key not in ("alt", "href", "src"))
    return " ".join([piece.text, *others])


def code(page: Page) -> dict[str, dict[str, int]]:
    """For each section of a page the code in its sentences, with the first line of each piece."""
    lines: dict[str, dict[str, int]] = {name: {} for name in page.sections}
    for block, piece in page.pieces("code"):
        lines[block.section].setdefault(" ".join(piece.text.split()), piece.line)
    return lines


def refuse_difference(original: Page, translation: Page) -> None:
    """`SourceError` naming the first part that a translation lacks, adds or changes."""
    ours, theirs = parts(original), parts(translation)
    for kind in ours:
        for one, other in zip_longest(ours[kind], theirs[kind], fillvalue=(1, "nothing")):
            if one[1] != other[1]:
                here, there = f"{translation.path}:{other[0]}", f"{original.path}:{one[0]}"
                raise SourceError(f"{here}: the {kind} here is {other[1]!r}; in {there} it is {one[1]!r}")
    refuse_other_code(original, translation)


def refuse_other_code(original: Page, translation: Page) -> None:
    ours, theirs = code(original), code(translation)
    for name in ours:
        for piece in ours[name].keys() ^ theirs[name].keys():
            here, there = theirs[name].get(piece, 1), ours[name].get(piece, 1)
            says = f"the section {name!r} {'lacks' if piece in ours[name] else 'adds'} the code {piece!r}"
            raise SourceError(f"{translation.path}:{here}: {says}; compare {original.path}:{there}")


def refuse_english(original: Page, translation: Page, kept: set[str]) -> None:
    """`SourceError` naming the first description, title, picture or paragraph that a translation has in English.

    `kept` are the terms, in small letters, that its language takes from English.
    """
    english = {words for _, words in sentences(original)}
    for line, words in sentences(translation):
        if words in english and words not in kept:
            raise SourceError(f"{translation.path}:{line}: still in English; translate {words!r}")


def sentences(page: Page) -> Iterator[tuple[int, str]]:
    """What each part of a page says, in small letters and without code and formulas, with its line."""
    texts = [(page.line_of("description"), str(page.front.get("description", "")))]
    for block in page.of(*SENTENCES):
        texts.append((block.line, " ".join(piece.text for piece in block.pieces if piece.kind == "words")))
    for line, words in texts:
        if re.search(r"[^\W\d_]", words):
            yield line, " ".join(words.lower().split())
