"""What a page is made of, whatever its language: a translation has the same parts in the same order."""

import re
from itertools import zip_longest

from tools.cells.source import INCLUDE, SourceError, read_text

FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.S)
FENCE = re.compile(r"^( *)(`{3,}|~{3,})[^`\n]*\n.*?^\1\2$", re.S | re.M)
OF_TRANSLATORS = "behind|glossary|made_from|typography"  # fields that only a translated page has
BUILDS_ON = re.compile(r"^builds_on: .*\n", re.M)  # that only an English page has; it holds no words
PARTS = {
    "front matter key": re.compile(rf"^(?!builds_on|{OF_TRANSLATORS})([\w-]+):", re.M),
    "heading": re.compile(r"^(#+) (?:.*?(\{#[\w-]+\}))?", re.M),
    "cell": re.compile(rf"^{INCLUDE.pattern}$", re.M),
    "code block": re.compile(r"^ *(?:```|~~~)(\w+)\n(.*?)^ *(?:```|~~~)$", re.M | re.S),
    "formula": re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+?)\$", re.S),
    "picture": re.compile(r"!\[[^\]]*\]\(([^)]+)\)"),
    "link": re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)]+)\)"),
    "admonition": re.compile(r"^( *(?:!!!|\?\?\?\+?) [\w-]+)", re.M),
    "table row": re.compile(r"^\|(?:[^|\n]*\|)+$", re.M),
    "list item": re.compile(r"^ *(?:[-*]|\d+\.) ", re.M),
}
HEADING = re.compile(r"^#+ .*\{#([\w-]+)\}$", re.M)
TOP = "top"
CODE = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\n).)+?)(?<!`)\1(?!`)", re.S)


def parts(path):
    """For each kind of part, the parts of a page in order, as (line, text) without the words of its language."""
    text = read_text(path)
    front = FRONT_MATTER.match(text)
    prose = FENCE.sub(blank, text)
    fields = {"front matter key": front[0] if front else "", "code block": text}
    formulas = re.sub(r"`[^`\n]*`", blank, prose)
    return {
        kind: [
            (line_of(text, match.start()), " ".join(filter(None, match.groups())))
            for match in pattern.finditer(fields.get(kind, formulas if kind == "formula" else prose))
        ]
        for kind, pattern in PARTS.items()
    }


def blank(match):
    """White space of the same lines and length, so that positions stay."""
    return re.sub(r"[^\n]", " ", match[0])


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def sections(text):
    """The start and the end of each section by its id; `TOP` is what stands above the first one."""
    starts = [(TOP, 0), *((match[1], match.start()) for match in HEADING.finditer(FENCE.sub(blank, text)))]
    ends = [start for _, start in starts[1:]] + [len(text)]
    return [(name, start, end) for (name, start), end in zip(starts, ends)]


def code(path):
    """For each section of a page the code in its sentences, with the first line of each piece."""
    text = FENCE.sub(blank, read_text(path))
    found = {}
    for name, start, end in sections(text):
        pieces = found.setdefault(name, {})
        for match in CODE.finditer(text, start, end):
            pieces.setdefault(" ".join(match[2].split()), line_of(text, match.start()))
    return found


def refuse_difference(original, translation):
    """`SourceError` naming the first part that a translation lacks, adds or changes."""
    ours, theirs = parts(original), parts(translation)
    for kind in PARTS:
        for one, other in zip_longest(ours[kind], theirs[kind], fillvalue=(None, "nothing")):
            if one[1] != other[1]:
                where = f"{translation}:{other[0]}" if other[0] else str(translation)
                there = f"{original}:{one[0]}" if one[0] else str(original)
                raise SourceError(f"{where}: the {kind} here is {other[1]!r}; in {there} it is {one[1]!r}")
    ours, theirs = code(original), code(translation)
    for name in ours:
        for piece in ours[name].keys() ^ theirs[name].keys():
            where = f"{translation}:{theirs[name][piece]}" if piece in theirs[name] else str(translation)
            there = f"{original}:{ours[name][piece]}" if piece in ours[name] else str(original)
            says = "lacks" if piece in ours[name] else "adds"
            raise SourceError(f"{where}: the section {name!r} {says} the code {piece!r}; compare {there}")
