"""Tint the numbers of a printed tensor by their value, so that a mask or a weight matrix reads as a heatmap.

Only classes are written; theme/assets/site.css gives them their colours:

    plus1 ... plus8     above zero, by strength      nil    0, -inf, False
    minus1 ... minus8   below zero, by strength      odd    nan, inf

The names of rows and columns are attributes, which the style sheet shows: nobody selects or copies them.
"""

import html
import math
import re
from collections.abc import Iterable, Sequence
from itertools import repeat

from tools.cells.labels import MATRIX, first_row

LEVELS = 8
HUGE = 1e4  # a fill like -1e9 must not turn every other number pale
TENSOR = re.compile(r"(?<=\btensor\(\[)([^()=]*\])")  # what stands between its brackets
TRUTH = {"True": "plus3", "False": "nil"}
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)|True|False")


def tint(text: str) -> str:
    """The HTML of a printed text; the numbers of its tensors stand in spans, its characters stay the same."""
    parts = TENSOR.split(text)
    parts[::2] = map(html.escape, parts[::2])
    parts[1::2] = map(tint_numbers, parts[1::2])
    return "".join(parts)


def show(text: str, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> str:
    """The `<code>` of an output; its matrices have names beside their rows and above their columns."""
    if not (rows or columns):
        return f"<code>{tint(text)}</code>"
    tinted = MATRIX.sub(lambda matrix: with_names(matrix[0], rows, columns), tint(text))
    tinted = re.sub("^(?=[^<\n])", "<i></i>", tinted, flags=re.M)  # the other lines begin below their numbers
    beside, above = (max(map(len, names), default=0) for names in (rows, columns))
    # Names are written smaller than numbers: one as long as its column, to the next, leaves a space.
    upright = above > min(len(f"{first_row(matrix)[0]}, ") for matrix in MATRIX.findall(text))
    style = f"--beside:{beside};--above:{above}"
    return f'<code class="named{" upright" if upright else ""}" style="{style}">{tinted}</code>'


def with_names(matrix: str, rows: Sequence[str], columns: Sequence[str]) -> str:
    """A tinted matrix: a mark before each row has its name, the numbers of the first row those of the columns."""
    first, *rest = matrix.split("\n")
    before, bracket, numbers = first.rpartition("[")
    opening, *spans = numbers.split("<span ")
    numbers = "".join(f"<span {named('column', name)}{span}" for name, span in zip(columns or repeat(""), spans))
    lines = [before + bracket + opening + numbers, *rest]
    marked = "\n".join(f"<i {named('row', name)}></i>{line}" for name, line in zip(rows or repeat(""), lines))
    return marked.replace("<i ", '<i class="top" ', 1) if columns else marked


def named(axis: str, name: str) -> str:
    return f'data-{axis}="{html.escape(name)}" ' if name else ""


def tint_numbers(text: str) -> str:
    words = [match[0] for match in NUMBER.finditer(text)]
    width = max(map(len, words), default=0)
    size = largest(float(word) for word in words if word not in TRUTH)

    def span(match: re.Match[str]) -> str:
        # The spaces that align a column belong to its tint, the one behind a comma does not.
        padding, word = match[1], match[2]
        outside = max(0, len(padding) - (width - len(word)))
        tone = TRUTH.get(word) or tone_of(float(word), size)
        return f'{padding[:outside]}<span class="{tone}">{padding[outside:]}{word}</span>'

    return re.sub(f"( *)({NUMBER.pattern})", span, html.escape(text))


def largest(numbers: Iterable[float]) -> float:
    """The largest magnitude of numbers, but for those that stand for infinity."""
    return max((abs(number) for number in numbers if abs(number) < HUGE), default=0)


def tone_of(number: float, largest: float) -> str:
    """The class of a number in a tensor whose largest magnitude is `largest`."""
    if math.isnan(number) or number == math.inf:
        return "odd"
    if number in (0, -math.inf):
        return "nil"
    level = LEVELS if abs(number) >= largest else math.ceil(LEVELS * abs(number) / largest)
    return f"{'plus' if number > 0 else 'minus'}{level}"


def legend(words: str) -> str:
    """What the tints mean: `words` in which the numbers between braces are tinted as those of a tensor."""
    return re.sub(r"\{(.*?)\}", lambda numbers: f"<code>{tint_numbers(numbers[1])}</code>", words)
