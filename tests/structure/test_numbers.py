"""The numbers in the prose: the same in every language, and those that the cells of the page print."""

import math
import re
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.configuration import PAGES, ROOT, page_file
from tools.cells.source import read_cells, resolve
from tools.languages.markdown import TOP, Page, parse, read

SCALES = {"trillion": 12, "mila miliardi": 12, "万亿": 12, "billion": 9, "miliardi": 9, "亿": 8}
SCALES |= {"million": 6, "milioni": 6, "万": 4}
UNITS = {"毫秒": "ms"} | {unit: unit for unit in ["KiB", "MiB", "GiB", "kB", "MB", "GB", "ms", "µs", "%"]}
GAP = "[ \u00a0\u202f\n]"
NUMBER = re.compile(
    rf"((?:minus |meno |负 ?|(?<![\w)])[-−])?)(\d+(?:[\u00a0\u202f,]\d{{3}}(?!\d))*(?:\.\d+)*)"
    rf"(?:{GAP}({'|'.join(SCALES)})(?!th))?(?:{GAP}?({'|'.join(UNITS)}))?"
)
MONTH = re.compile(r"(?<=\d{4} 年) \d+ 月")  # other languages have a word for it


def texts(page: Page):
    """The description and each block, a mark in place of code and formulas, with its section and its line."""
    yield TOP, 2, page.front.get("description", "")
    for block in page.blocks:
        instead = {"words": str, "break": lambda _: "\n"}
        said = "".join(instead.get(piece.kind, lambda _: "\0")(piece.text) for piece in block.pieces)
        yield block.section, block.line, MONTH.sub("", said)


def numbers(page: Page):
    """Each number of a page as its section, its line, and how every language writes it: sign, digits, unit."""
    for section, line, text in texts(page):
        for found in NUMBER.finditer(text):
            sign, digits, scale, unit = found.groups(default="")
            value = re.sub("[\u00a0\u202f,]", "", digits)
            value = f"{Decimal(value).scaleb(SCALES[scale]):f}" if scale else value
            written = f"{'-' if sign else ''}{value}{UNITS.get(unit, '')}"
            yield section, line + text.count("\n", 0, found.start()), written


def by_section(page: Page):
    """For each section the line of each number, in the order in which they come first."""
    found = {name: {} for name in page.sections}
    for section, line, number in numbers(page):
        found[section].setdefault(number, line)
    return found


def differences(original: Page, translation: Page):
    """Where a section has other numbers than in English, or its decimals in another order: a sentence for each."""
    ours, theirs = by_section(original), by_section(translation)
    for name, section in translation.sections.items():
        if name not in ours:  # tests/structure/test_languages.py names it
            continue
        for number in ours[name].keys() ^ theirs[name].keys():
            here, says = (theirs[name][number], "adds") if number in theirs[name] else (section.line, "lacks")
            yield f"{translation.path}:{here}: the section {name!r} {says} {number}; compare {original.path}"
        one, other = ([number for number in found[name] if "." in number] for found in (ours, theirs))
        if one != other and set(one) == set(other):
            yield f"{translation.path}:{section.line}: {name!r} says {other} in this order; {original.path} says {one}"


def test_the_numbers_of_a_section_are_the_same_in_every_language(translation, refuse):
    pages = [(read(page_file("en", page)), read(page_file(translation, page))) for page in PAGES]
    refuse(fault for original, translated in pages for fault in differences(original, translated))


# --- decimals ------------------------------------------------------------------------------------------


@cache
def printed(slug: str, cell: str) -> list[float]:
    """The decimals that a cell prints."""
    output = next(found.output for found in read_cells(ROOT / "snippets" / f"{slug}.md") if found.name == cell)
    return [float(number) for number in re.findall(r"\d+\.\d+", output)]


LARGEST = f"{math.log(torch.finfo(torch.float32).max):.1f}"  # whose exponential float32 can hold
COMPUTED = {  # page: {a decimal that none of its cells prints: how it follows from what a cell prints, or from torch}
    "index": {"1.2970": lambda: f"{max(printed('foundations/weighted-average', 'columns')):.4f}"},
    "foundations/causal": {
        "0.2379": lambda: f"{printed('foundations/weighted-average', 'context')[1]:.4f}",
        "1.72": lambda: (
            f"{printed('foundations/causal', 'weights')[7] / printed('foundations/causal', 'weights')[6]:.2f}"
        ),
    },
    "foundations/softmax": {
        "88.7": lambda: LARGEST,
        "11.1": lambda: f"{math.log(torch.finfo(torch.float16).max):.1f}",
    },
    "foundations/scale": {"0.005": lambda: f"{0.17468 / 32:.3f}"},
    "practice/capstone": {"88.7": lambda: LARGEST},
}
FROM_ELSEWHERE = {  # page: {a decimal that nothing here computes: where it comes from}
    "foundations/softmax": {"151.29": "the report that the sentence links to"},
    "foundations/scale": {"0.86": "the report that the sentence links to", "0.04": "the same"},
    "foundations/many-heads": {"0.15": "the paper that the sentence links to"},
    "foundations/causal": {"1.7": "the paper that the sentence links to", "1.8": "the same paper"},
    "masks/polarity": {"0.41": "an answer that tests/pages/masks/test_polarity.py computes"},
    "practice/capstone": {"0.5": "a rate that the probe does not take"},
    "practice/look-inside": {"97.12": "the report that the sentence links to"},
    "labs/a-small-model-writes": {"2.07": "tests/labs/test_a_small_model_writes.py computes it"},
    "labs/watch-alignment": {"0.05": "tests/labs/test_watch_alignment.py computes it", "0.39": "the same"},
    "verified": {"1.3": "the tolerance of the runner, in millionths"},
}
VERSION = re.compile(r"(?:Python|[tT]orch|transformers|attention|Llama|GLM-|ERNIE|[Vv]ersion|section|since|CC BY)\s*$")


def decimals(page: Page):
    """Each decimal of the prose, as it is written, with its line; numbers of versions and sections are none."""
    for _, line, text in texts(page):
        for found in re.finditer(r"(?<![\w.])\d+\.\d+(?![\w.]*\.\d)", text):
            if not VERSION.search(text[: found.start()]):
                yield line + text.count("\n", 0, found.start()), found[0]


def is_printed(number: str, values: list[float]) -> bool:
    """Whether one of these values is written like this, rounded or in per cent."""
    slack = 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9
    return any(abs(abs(value) * scale - float(number)) <= slack for value in values for scale in (1, 100))


def unprinted(page: Page, slug: str):
    """The decimals that no cell of a page prints and nothing explains: a sentence for each."""
    outputs = " ".join(cell.output or "" for cell in resolve(page.path, ROOT / "snippets"))
    values = [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", outputs)]
    known = {compute() for compute in COMPUTED.get(slug, {}).values()} | FROM_ELSEWHERE.get(slug, {}).keys()
    for line, number in decimals(page):
        if number not in known and not is_printed(number, values):
            yield f"{page.path}:{line}: no cell of the page prints {number}; fix it, or explain it in this test"


def test_a_decimal_in_the_prose_is_printed_by_a_cell_of_the_page(refuse):
    """In English; the other languages have the same numbers."""
    refuse(fault for page in PAGES for fault in unprinted(read(page_file("en", page)), page))


POWERS_FROM_ELSEWHERE = {  # page: {a power of ten that no cell has: where it comes from}
    "practice/einsum": {9: "an answer that its tests try"},
    "practice/same-seed": {8: "the power of two before it"},
    "foundations/softmax": {8: "numbers that its tests look at"},
    "masks/multihead-attention": {-14: "a gap that its tests look at"},
}
POWER = re.compile(r"(?<!\d)10\^\{?(-?\d+)\}?")


def unfounded_powers(page: Page, slug: str):
    """The powers of ten in the formulas of a page that stand in no cell of it: a sentence for each."""
    cells = " ".join(f"{cell.code} {cell.output}" for cell in resolve(page.path, ROOT / "snippets"))
    known = {int(power) for power in re.findall(r"\de([-+]?\d+)", cells)}
    formulas = ((block.line, piece.text) for block in page.blocks for piece in block.pieces if piece.kind == "formula")
    for line, formula in formulas:
        for power in map(int, POWER.findall(formula)):
            if power not in known and power not in POWERS_FROM_ELSEWHERE.get(slug, {}):
                yield f"{page.path}:{line}: no cell of the page has a number like 10^{power}; compare them"


def test_a_power_of_ten_in_a_formula_stands_in_a_cell_of_the_page(refuse):
    """In English; the other languages have the same formulas."""
    refuse(fault for page in PAGES for fault in unfounded_powers(read(page_file("en", page)), page))


def test_a_decimal_that_no_cell_prints_is_in_the_prose_and_what_it_is_said_to_be(refuse):
    for page in COMPUTED.keys() | FROM_ELSEWHERE:
        found = {number for _, number in decimals(read(page_file("en", page)))}
        computed = {number: compute() for number, compute in COMPUTED.get(page, {}).items()}
        refuse(f"{page}: {number} is {value} now" for number, value in computed.items() if number != value)
        needless = {*computed, *FROM_ELSEWHERE.get(page, {})} - found
        refuse(f"{page}: {number} is not in its prose; take it out of this test" for number in needless)


def test_the_page_of_versions_begins_with_the_torch_that_prints_the_pages(language):
    """Who pins another one runs all programs and writes down what differs, as CONTRIBUTING.md says."""
    pinned = re.search(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text("utf-8"), re.M)[1]
    assert re.findall(r"torch (\d+\.\d+)", read(page_file(language, "changelog")).sections[TOP].text)[0] == pinned


# --- planted -------------------------------------------------------------------------------------------

ENGLISH = """# Title

The ratio is 1.72, that of 36 scores to minus 0.5.

## Cost {#cost}

1 GiB, or 12\u00a0000 tokens in March 2021, and 2 times 100 million. From 0.3 to 0.6.
"""
CHINESE = """# 标题

比值是 1.72，36 个分数，−0.5。

## 代价 {#cost}

2021 年 3 月，12\u00a0000 个词元，或 1 GiB，2 乘 1 亿。从 0.3 到 0.6。
"""


def test_other_words_around_the_same_numbers_are_no_difference():
    assert list(differences(parse(ENGLISH, Path("en.md")), parse(CHINESE, Path("zh.md")))) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("36 个", "63 个", "zh.md:3: the section 'top' adds 63; compare en.md"),
        ("−0.5", "0.5", "zh.md:1: the section 'top' lacks -0.5; compare en.md"),
        ("1 GiB", "1 MiB", "zh.md:7: the section 'cost' adds 1MiB; compare en.md"),
        ("1 亿", "1 万", "zh.md:7: the section 'cost' adds 10000; compare en.md"),
        ("0.3 到 0.6", "0.6 到 0.3", "zh.md:5: 'cost' says ['0.6', '0.3'] in this order; en.md says ['0.3', '0.6']"),
    ],
)
def test_another_number_is_named_with_its_line(old, new, message):
    assert old in CHINESE
    translation = parse(CHINESE.replace(old, new), Path("zh.md"))
    assert message in list(differences(parse(ENGLISH, Path("en.md")), translation))


def test_what_no_cell_has_is_named_with_its_line():
    page = read(page_file("en", "foundations/causal"))
    for look, old, new in ((unprinted, "1.72", "1.27"), (unfounded_powers, "$10^{-6}$", "$10^{-9}$")):
        [fault] = look(parse(page.text.replace(old, new), page.path), "foundations/causal")
        assert re.match(r"docs/en/foundations/causal\.md:\d+: no cell of the page ", fault)
