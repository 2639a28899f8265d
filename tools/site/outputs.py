"""Tint the numbers of a printed tensor by their value, so that a mask or a weight matrix reads as a heatmap.

Only classes are written; theme/assets/site.css gives them their colours:

    plus1 ... plus8     above zero, by strength      nil    0, -inf, False
    minus1 ... minus8   below zero, by strength      odd    nan, inf
"""

import html
import math
import re

LEVELS = 8
HUGE = 1e4  # a fill like -1e9 must not turn every other number pale
TENSOR = re.compile(r"\btensor\(\[")
TRUTH = {"True": "plus3", "False": "nil"}
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)|True|False")


def tint(text):
    """The HTML of a printed text; the numbers of its tensors stand in spans, its characters stay the same."""
    parts, done = [], 0
    for opening in TENSOR.finditer(text):
        if opening.start() >= done:
            end = closing_bracket(text, opening.end())
            parts += [html.escape(text[done : opening.end()]), tint_numbers(text[opening.end() : end])]
            done = end
    return "".join([*parts, html.escape(text[done:])])


def closing_bracket(text, at):
    """Where the bracket that was opened just before `at` closes."""
    depth = 1
    while depth and at < len(text):
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        at += 1
    return at


def tint_numbers(text):
    words = [match[0] for match in NUMBER.finditer(text)]
    width = max(map(len, words), default=0)
    sizes = [abs(float(word)) for word in words if word not in TRUTH]
    largest = max((size for size in sizes if size < HUGE), default=0)

    def span(match):
        # The spaces that align a column belong to its tint, the one behind a comma does not.
        padding, word = match[1], match[2]
        outside = max(0, len(padding) - (width - len(word)))
        tone = TRUTH.get(word) or tone_of(float(word), largest)
        return f'{padding[:outside]}<span class="{tone}">{padding[outside:]}{word}</span>'

    return re.sub(f"( *)({NUMBER.pattern})", span, html.escape(text))


def tone_of(number, largest):
    """The class of a number in a tensor whose largest magnitude is `largest`."""
    if math.isnan(number) or number == math.inf:
        return "odd"
    if number in (0, -math.inf):
        return "nil"
    level = LEVELS if abs(number) >= largest else math.ceil(LEVELS * abs(number) / largest)
    return f"{'plus' if number > 0 else 'minus'}{level}"
