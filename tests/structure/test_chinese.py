"""A page in Chinese explains a term where it stands first, and puts a title into title marks."""

import re

import pytest

from tests.configuration import PAGES, ROOT, SLUGS, page_file
from tools.languages.glossary import Finder, read_glossary
from tools.languages.markdown import parse, read

# The terms that languages/style.zh.md names, and how the brackets behind the first of each on a page begin.
GLOSSES = ("token", "query", "key", "value", "probe", "memory")
FINDER = Finder(read_glossary(ROOT / "languages/glossary.csv"), "zh", "zh", "also_zh")
TERMS = {"因果掩码", "交叉注意力", "查询、键、值"}  # a title that is the name of its subject, too


def glossed_late(page):
    """Each term, and its line, whose brackets stand behind a use that is not its first; a title is no use."""
    uses = {name: [] for name in GLOSSES}
    for block in page.blocks:
        if block.kind in ("heading", "title", "question") or any(piece.kind == "picture" for piece in block.pieces):
            continue
        words = re.sub("《.*?》", lambda title: " " * len(title[0]), block.words)
        for _, end, term in FINDER.places(words):
            if term.id in uses:
                uses[term.id].append((block.line, words.startswith(f"（{term.id}", end)))
    for name, found in uses.items():
        if any(glossed for _, glossed in found) and not found[0][1]:
            yield found[0][0], name


def unmarked(page, titles):
    """Each link that says a whole title without 《》, or another text inside them: its line and its words."""
    for block in page.blocks:
        if block.kind == "table cell":
            continue
        for at, piece in enumerate(block.pieces):
            if piece.kind != "link":
                continue
            end = next(n for n in range(at, len(block.pieces)) if block.pieces[n].kind == "end of link")
            words = "".join(inside.text for inside in block.pieces[at + 1 : end])
            before = block.pieces[at - 1].text if at else ""
            target = re.sub(r"(\.md|\.ipynb)?(#.*)?$", "", piece.text).rpartition("/")[2]
            title = titles.get(target)
            short = title and title.partition("：")[0]
            right = (title, short) if before.endswith("《") else TERMS if words == title else (words,)
            if title and words not in right:
                yield piece.line, words


def titles():
    """The titles of the pages with cells, by the last part of their slugs."""
    return {slug.rpartition("/")[2]: read(page_file("zh", slug)).title for slug in SLUGS if slug in PAGES}


def test_an_english_term_stands_behind_the_first_use_of_the_chinese_one(refuse):
    refuse(
        f"{page_file('zh', name)}:{line}: the first such term, without its （{term}）; move that here"
        for name in PAGES
        for line, term in glossed_late(read(page_file("zh", name)))
    )


def test_the_title_of_a_page_stands_in_title_marks(refuse):
    known = titles()
    refuse(
        f"{page_file('zh', name)}:{line}: {words!r}: 《[whole title](page.md)》, or [subject](page.md)"
        for name in PAGES
        for line, words in unmarked(read(page_file("zh", name)), known)
    )


@pytest.mark.parametrize(
    ("text", "late"),
    [
        ("见《查询》。\n\n查询（query）。", []),
        ("一个查询看键。\n\n查询（query）和键（key）。", [(1, "query"), (1, "key")]),
        ("一个查询（query）看键（key）。\n\n再看查询。", []),
        ("# 查询的掩码\n\n一个查询（query）。", []),
        ("关键是数值。\n\n每个键（key）有一个值（value）。", []),
        ("![一个查询。](a.svg)\n\n一个查询（query）。", []),
        ("一个查询，没有加注。", []),
    ],
)
def test_a_late_gloss_is_found(text, late):
    assert list(glossed_late(parse(text, ROOT))) == late


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("见[种子相同](same.md)。", ["种子相同"]),
        ("见《[种子相同](../a/same.md#x)》。", []),
        ("见《[种子](same.md)》。", ["种子"]),
        ("见[种子](same.md)。", []),
        ("见《[掩码](long.ipynb)》。", []),
        ("见[因果掩码](causal.md)。", []),
    ],
)
def test_a_title_without_its_marks_is_found(text, faults):
    known = {"same": "种子相同", "long": "掩码：各种各样", "causal": "因果掩码"}
    assert [words for _, words in unmarked(parse(text, ROOT), known)] == faults
