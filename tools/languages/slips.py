"""Slips on a page that would swallow what follows, or that readers would meet, and that MkDocs does not name."""

import re
from collections.abc import Iterator

from tools.cells.source import SourceError, split_lines
from tools.languages.markdown import Page

FENCE = re.compile(r" *(`{3,}|~{3,})")
NAME = re.compile(r"(?!cell-)[a-z][a-z0-9-]*")
ID = "small letters, digits and -, not cell-..., and nothing behind it"


def refuse_slips(page: Page) -> None:
    """`SourceError` for the first slip of a page, with its line and the fix."""
    lines = ["", *split_lines(page.text)]
    slips = [*of_the_whole(page), *of_blocks(page, lines), *of_headings(page), *of_formulas(page, lines)]
    for line, message in sorted(slips):
        raise SourceError(f"{page.path}:{line}: {message}")


def of_the_whole(page: Page) -> Iterator[tuple[int, str]]:
    if not isinstance(page.front.get("description"), str):
        yield 1, "the page has no description; write `description: ...`, a sentence, between --- and --- at its top"
    if not page.title:
        yield 1, "the page has no title; write it as `# Title`"


def of_blocks(page: Page, lines: list[str]) -> Iterator[tuple[int, str]]:
    for block in page.of("code block"):
        mark = FENCE.match(lines[block.line])
        if mark and (lines[block.end - 1].strip() != mark[1] or "--8<--" in block.text):
            yield block.line, f"the block that begins here is not closed where it ends; write {mark[1]} on a line there"
    for block in page.of("admonition"):
        if not any(lines[block.line + 1 : block.end]):
            yield block.line, "the text of this block is not below it, indented by four spaces"


def of_headings(page: Page) -> Iterator[tuple[int, str]]:
    for heading in page.of("heading"):
        marks, _, name = heading.text.partition(" ")
        if marks != "#" and not NAME.fullmatch(name):
            yield heading.line, f"a heading ends with an id that all languages share, written as {{#row-zero}}: {ID}"
        if any(piece.kind == "formula" for piece in heading.pieces):
            yield heading.line, "menus show a heading, too, and no formula can stand there; write text or code"


def of_formulas(page: Page, lines: list[str]) -> Iterator[tuple[int, str]]:
    for block in page.blocks:
        signs = sum(piece.text.count("$") for piece in block.pieces if piece.kind == "words")
        if signs > "\n".join(lines[block.line : block.end]).count(r"\$"):
            yield block.line, r"a formula here is not closed; close it with $, or write \$ for the sign itself"
