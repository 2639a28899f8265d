"""The numbers in the prose: the same in every language, and those that the cells of the page print."""

import itertools
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.configuration import LANGUAGES, PAGES, ROOT, in_both, page_file, pages
from tools.cells.source import read_cells, resolve
from tools.languages import rules
from tools.languages.glossary import read_rows
from tools.languages.markdown import TOP, Page, parse, read

SCALES = {word: power for language in LANGUAGES for word, power in rules.read(language).scales.items()}
UNITS = {"毫秒": "ms"} | {unit: unit for unit in ["KiB", "MiB", "GiB", "kB", "MB", "GB", "ms", "µs", "%"]}
GAP = "[ \u00a0\u202f\n]"
NUMBER = re.compile(
    rf"((?:minus |meno |负 ?|(?<![\w)])[-−])?)(\d+(?:[\u00a0\u202f,]\d{{3}}(?!\d))*(?:\.\d+)*)"
    rf"(?:{GAP}({'|'.join(SCALES)})(?!th))?(?:{GAP}?({'|'.join(UNITS)}))?"
)
MONTH = re.compile(r"(?<=\d{4} 年) \d+ 月")  # other languages have a word for it
POLARITY = {"attend": "attend", "ignore": "ignore", "参与": "attend", "忽略": "ignore"}
MEANING = re.compile(rf"(?:True\W+(?:=|means|significa|vuol dire|表示)\W*|\A)({'|'.join(POLARITY)})(?![a-z])")
APART = ("heading", "cell", "code block", "formula", "admonition", "list item", "table row")
INSTEAD = {"words": str, "break": lambda _: "\n"}
Text = tuple[int, str]  # the line of a paragraph or of a cell of a table, and its words without code and formulas


def stretches(page: Page) -> Iterator[list[Text]]:
    """The texts of a page, its description first, between those parts that every language has: mostly one paragraph."""
    stretch = [(page.line_of("description"), page.front.get("description", ""))]
    for block in page.blocks:
        if block.kind in APART:
            yield stretch
            stretch = []
        if block.pieces:
            words = "".join(INSTEAD.get(piece.kind, lambda _: "\0")(piece.text) for piece in block.pieces)
            stretch.append((block.line, MONTH.sub("", words)))
    yield stretch


def texts(page: Page) -> Iterator[Text]:
    return itertools.chain.from_iterable(stretches(page))


def pairs(original: Page, translation: Page) -> Iterator[tuple[Text, Text]]:
    """The texts that say the same: each with its own, and a stretch with its own where it has more paragraphs."""
    for ours, theirs in zip(stretches(original), stretches(translation)):
        if len(ours) != len(theirs):
            ours, theirs = ([(side[0][0], "\n\n".join(words for _, words in side))] for side in (ours, theirs) if side)
        yield from zip(ours, theirs)


def numbers(text: Text) -> dict[str, int]:
    """The numbers of a text as every language writes them, sign, digits, unit, in order, each with its first line."""
    line, words = text
    lines: dict[str, int] = {}
    for match in NUMBER.finditer(words):
        sign, digits, scale, unit = match.groups(default="")
        value = re.sub("[\u00a0\u202f,]", "", digits)
        value = f"{Decimal(value).scaleb(SCALES[scale]):f}" if scale else value
        number = f"{'-' if sign else ''}{value}{UNITS.get(unit, '')}"
        lines.setdefault(number, line + words.count("\n", 0, match.start()))
    return lines


def differences(original: Page, translation: Page) -> Iterator[str]:
    """Where a text has other numbers or another polarity than in English, or its decimals in another order."""
    if [block.kind for block in original.of(*APART)] != [block.kind for block in translation.of(*APART)]:
        return  # tests/structure/test_languages.py names the part
    for english, text in pairs(original, translation):
        ours, theirs = numbers(english), numbers(text)
        there = f"{original.path}:{english[0]}"
        for number in ours.keys() ^ theirs.keys():
            line, says = (theirs[number], "adds") if number in theirs else (text[0], "lacks")
            yield f"{translation.path}:{line}: {says} {number}; make it say what {there} says"
        meant, means = ({POLARITY[word] for word in MEANING.findall(words)} for _, words in (english, text))
        if meant and means and meant != means:
            yield f"{translation.path}:{text[0]}: True means {means} here, and {meant} in {there}; correct one of them"
        one, other = ([number for number in side if "." in number] for side in (ours, theirs))
        if one != other and set(one) == set(other):
            yield f"{translation.path}:{text[0]}: says {other} in this order; {there} says {one}"


def test_a_paragraph_or_a_cell_of_a_table_has_the_same_numbers_in_every_language(translation, refuse):
    refuse(fault for page in PAGES for fault in differences(*in_both(page, translation)))


def test_the_table_of_polarities_says_what_its_cell_prints(language, refuse):
    """The weight of the padding under a boolean mask is 0 in the column of the right polarity."""
    page = read(page_file(language, "masks/polarity"))
    meanings = [block for block in page.of("table cell") if block.section == "formula"][4::3]
    cells = [cell for cell in read_cells(ROOT / "snippets/masks/polarity.md") if cell.name in ("atlas", "more")]
    rows = [row for cell in cells for row in re.findall(r"^ *(\w+) ([01]\.0000)", cell.output, re.M)]
    assert len(meanings) == len(rows)
    refuse(
        f"{page.path}:{cell.line}: {cell.words} is not what a cell prints for {function}; correct the table"
        for cell, (function, hidden) in zip(meanings, rows)
        if [POLARITY[word] for word in MEANING.findall(cell.words)] != ["attend" if hidden == "0.0000" else "ignore"]
    )


# --- decimals ------------------------------------------------------------------------------------------


@cache
def printed(slug: str, cell: str) -> list[float]:
    """The decimals that a cell prints."""
    output = next(one.output for one in read_cells(ROOT / f"snippets/{slug}.md") if one.name == cell)
    return [float(number) for number in re.findall(r"\d+\.\d+", output)]


LARGEST = {str(kind): f"{math.log(torch.finfo(kind).max):.1f}" for kind in (torch.float16, torch.float32)}
AVERAGE, CAUSAL = "foundations/weighted-average", "foundations/causal"
COMPUTED = {  # page: {a decimal that none of its cells prints: how it follows from what a cell prints, or from torch}
    CAUSAL: {
        "0.2379": lambda: f"{printed(AVERAGE, 'context')[1]:.4f}",
        "1.72": lambda: f"{printed(CAUSAL, 'weights')[7] / printed(CAUSAL, 'weights')[6]:.2f}",
    },
    "foundations/softmax": {"88.7": lambda: LARGEST["torch.float32"], "11.1": lambda: LARGEST["torch.float16"]},
    "foundations/scale": {"0.005": lambda: f"{0.17518 / 32:.3f}"},
}
NUMBERS = ROOT / "tests/structure/numbers.csv"  # those of a page that nothing here computes, and where they come from
VERSION = re.compile(r"(?:Python|[tT]orch|transformers|attention|Llama|GLM-|ERNIE|[Vv]ersion|section|since|CC BY)\s*$")


def from_elsewhere(slug: str) -> set[str]:
    return {row["number"] for row in read_rows(NUMBERS) if row["page"] == slug}


def decimals(page: Page) -> Iterator[tuple[int, str]]:
    """Each decimal of the prose, as it is written, with its line; numbers of versions and sections are none."""
    for line, words in texts(page):
        for match in re.finditer(r"(?<![\w.])\d+\.\d+(?![\w.]*\.\d)", words):
            if not VERSION.search(words[: match.start()]):
                yield line + words.count("\n", 0, match.start()), match[0]


def powers(page: Page) -> Iterator[tuple[int, str]]:
    """Each power of ten in the formulas of a page, as 10^-6, with its line."""
    for block in page.blocks:
        for formula in (block, *block.pieces):
            if formula.kind == "formula":
                found = re.findall(r"(?<!\d)10\^\{?(-?\d+)\}?", formula.text)
                yield from ((formula.line, f"10^{power}") for power in found)


def is_printed(number: str, values: list[float]) -> bool:
    """Whether one of these values is written like this, rounded or in per cent."""
    slack = 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9
    return any(abs(abs(value) * scale - float(number)) <= slack for value in values for scale in (1, 100))


def unfounded(page: Page, slug: str) -> Iterator[str]:
    """A sentence for each decimal and each power of ten that stands in no cell of a page and that nothing explains."""
    cells = resolve(page.path, ROOT / "snippets")
    outputs = " ".join(cell.output or "" for cell in cells)
    values = [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", outputs)]
    exponents = re.findall(r"\de([-+]?\d+)", " ".join([outputs, *(cell.code for cell in cells)]))
    unknown = [(line, power) for line, power in powers(page) if int(power[3:]) not in map(int, exponents)]
    unknown += [(line, number) for line, number in decimals(page) if not is_printed(number, values)]
    for line, number in unknown:
        if number not in COMPUTED.get(slug, {}).keys() | from_elsewhere(slug):
            yield f"{page.path}:{line}: no cell of the page has {number}; fix it, or explain it in this test"


def test_a_decimal_and_a_power_of_ten_stand_in_a_cell_of_the_page(refuse):
    """In English; the other languages have the same numbers and formulas."""
    refuse(fault for page in PAGES for fault in unfounded(read(page_file("en", page)), page))


def test_a_number_that_no_cell_prints_is_in_the_prose_and_what_it_is_said_to_be(refuse):
    for page in PAGES:
        english = read(page_file("en", page))
        computed = {number: compute() for number, compute in COMPUTED.get(page, {}).items()}
        refuse(f"{page}: {number} is {value} now" for number, value in computed.items() if number != value)
        unused = {*computed, *from_elsewhere(page)} - {number for _, number in (*decimals(english), *powers(english))}
        refuse(f"{page}: {number} is not in its prose; take it out of {NUMBERS}, or of this test" for number in unused)


# --- versions ------------------------------------------------------------------------------------------

PINNED = dict(re.findall(r"^(torch|transformers|einops)==(\d+\.\d+)", Path(ROOT, "constraints.txt").read_text(), re.M))
VERSIONED = re.compile(  # the words before and behind it that put it into another time
    r"(\b(?:since|until|up to|before|fixed in|20\d\d,|da|fino a|prima di|corretto in) |20\d\d 年，)?"
    rf"(?<![A-Za-z-])(?:py)?({'|'.join(PINNED)}) (\d+\.\d+)( on\b| 起| 及以前| 已修复| ?[(（]20\d\d)?",
    re.I,
)


def test_the_page_of_versions_begins_with_the_torch_that_prints_the_pages(language):
    """Who pins another one runs all programs and writes down what differs, as CONTRIBUTING.md says."""
    top = read(page_file(language, "changelog")).sections[TOP]
    assert re.search(r"torch (\d+\.\d+)", top.text)[1] == PINNED["torch"]


def outdated(page: Page) -> Iterator[str]:
    """The versions in the prose of a page that are neither installed nor said to be of another time."""
    for line, words in texts(page):
        for before, name, number, after in VERSIONED.findall(words.replace("\n", " ")):
            if number != PINNED[name.lower()] and not before and not after:
                yield f"{page.path}:{line}: {name} {number} is not {PINNED[name.lower()]}; correct it or say since when"


def test_a_version_in_the_prose_is_the_installed_one(language, refuse):
    """But in the changelog, and behind words such as since and until."""
    refuse(fault for page in pages(language) if page.path.stem != "changelog" for fault in outdated(page))


# --- planted -------------------------------------------------------------------------------------------

SAME = [
    ("The ratio is 1.72, that of 36 scores to minus 0.5.", "比值是 1.72，36 个分数，−0.5。"),
    ("1 GiB, or 12\u00a0000 in March 2021.", "2021 年 3 月，12\u00a0000 个，或 1 GiB。"),
    ("1 GiB, and 2 of 100 million.", "2 乘 1 亿，或 1 GiB。"),
    ("| a | b |\n|---|---|\n| 5 | 7 |", "| a | b |\n|---|---|\n| 5 | 7 |"),
    ("*True = attend* in 8 rows.\n\n9 columns.", "True = 参与（attend），共 8 行。9 列。"),
]
OTHER = [
    ("36 of 5", "63 和 5", "zh.md:3: adds 63; make it say what en.md:3 says"),
    ("minus 0.5", "0.5", "zh.md:3: lacks -0.5; make it say what en.md:3 says"),
    ("1 GiB", "1 MiB", "zh.md:3: adds 1MiB; make it say what en.md:3 says"),
    ("100 million", "1 万", "zh.md:3: adds 10000; make it say what en.md:3 says"),
    ("From 0.3 to 0.6", "从 0.6 到 0.3", "zh.md:3: says ['0.6', '0.3'] in this order; en.md:3 says ['0.3', '0.6']"),
    ("|a|b|\n|-|-|\n|5|7|", "|a|b|\n|-|-|\n|7|5|", "zh.md:5: adds 7; make it say what en.md:5 says"),
    ("8 rows.\n\n9 columns.", "9 行。\n\n8 列。", "zh.md:3: lacks 8; make it say what en.md:3 says"),
    ("True = attend", "True = 忽略", "zh.md:3: True means {'ignore'} here, and {'attend'} in en.md:3; correct one of"),
]


@pytest.mark.parametrize(("english", "chinese", "message"), [*((*pair, "") for pair in SAME), *OTHER])
def test_another_number_is_named_with_its_line_and_other_words_are_no_fault(english, chinese, message):
    pages = [parse(f"# A\n\n{text}\n", Path(f"{name}.md")) for name, text in (("en", english), ("zh", chinese))]
    sentences = "\n".join(differences(*pages))
    assert (message in sentences) if message else not sentences


def test_what_no_cell_has_is_named_with_its_line():
    page = read(page_file("en", CAUSAL))
    for old, new in (("1.72", "1.27"), ("$10^{-6}$", "$10^{-9}$")):
        [fault] = unfounded(parse(page.text.replace(old, new), page.path), CAUSAL)
        assert re.match(r"docs/en/foundations/causal\.md:\d+: no cell of the page has (1.27|10\^-9); ", fault)


def test_a_version_of_another_time_is_named_unless_it_says_so():
    [fault] = outdated(parse("# A\n\nSince\ntorch 1.0, from torch 9.1 on,\nin torch 9.2.", Path("a.md")))
    assert fault == f"a.md:3: torch 9.2 is not {PINNED['torch']}; correct it or say since when"
    assert len([*outdated(parse("# A\n\ntorch 9.1 起，PyTorch 9.2。", Path("a.md")))]) == 1
