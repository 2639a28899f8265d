"""What the checks know of a language: `languages/rules.it.yml` and the like, each beside its style sheet.

A rule is a pattern and, behind the colon, what to write instead of what it matches; of two that meet, the first holds.
What its group `right` matches, or what would stay, is no violation. A file may have these fields:

- `parts`: names for parts of the patterns below, which then say `<HAN>`; a list is any one of its entries. `<OBJECT>`
  needs no entry: it is a code span, a formula or an address, which stands for a word.
- `signs`: the rules of the prose, which see no asterisks; `emphasis`: those that see them.
- `characters`: some, and as many to write instead.
- `articles`: first the parts with words that stay English, then the forms of each article: one for each of these parts,
  and those that suit none.
- `line_breaks`: whether the rules see those inside a paragraph; else each is a space.
- `endings`: of a word's end, a pattern for its forms; the first that fits.
- `scales`: the words for large numbers, with their powers of ten; one that begins with another stands above it.
- `common`: words that stand in most sentences of the language and in those of no other.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.cells.source import SourceError, nearest, read_text

FOLDER = Path(__file__).parents[2] / "languages"
FIELDS = "parts", "signs", "emphasis", "characters", "articles", "line_breaks", "endings", "scales", "common"
# Each code span, formula, address and {placeholder} becomes one of these characters: a word that no rule looks into.
OBJECTS = range(0xE000, 0xF900)
OBJECT = f"[{chr(OBJECTS[0])}-{chr(OBJECTS[-1])}]"
Rule = tuple[re.Pattern[str], str]


class Rules:
    """What a file says; its parts, characters and articles are in the rules."""

    def __init__(self, fields: Mapping[str, Any]):
        for name in fields.keys() - {*FIELDS}:
            raise ValueError(f"there is no field {name!r}{nearest(name, FIELDS)}")
        self.parts: dict[str, str | list[str]] = {"OBJECT": OBJECT, **fields.get("parts", {})}
        characters = (pair for row in fields.get("characters", {}).items() for pair in zip(*row))
        self.signs = self.rules([*fields.get("signs", {}).items(), *characters, *articles(fields)])
        self.emphasis = self.rules(fields.get("emphasis", {}).items())
        self.line_breaks: bool = fields.get("line_breaks", False)
        self.endings = self.rules((f"{end}$", forms) for end, forms in fields.get("endings", {}).items())
        self.scales: dict[str, int] = fields.get("scales", {})
        self.common: list[str] = fields.get("common", "").split()

    def rules(self, written: Iterable[tuple[str, str]]) -> list[Rule]:
        return [(re.compile(self.whole(pattern), re.MULTILINE), self.whole(instead)) for pattern, instead in written]

    def whole(self, text: str) -> str:
        """A text with the parts that it names."""
        return re.sub("<([A-Z]+)>", lambda name: self.part(name[1]), text)

    def part(self, name: str) -> str:
        if name not in self.parts:
            raise ValueError(f"there is no part <{name}>{nearest(name, self.parts)}")
        part = self.parts[name]
        return self.whole(part if isinstance(part, str) else "|".join(part))


def articles(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Rules for an article of the wrong gender or form before a word that stays English."""
    parts, *rows = fields.get("articles", [[]])
    for forms in rows:
        for right, part in zip(forms, parts):
            wrong, gap = "|".join({*forms} - {right}), "" if right.endswith("’") else " "
            yield rf"\b(?:{wrong}) ?(<{part}>)(?![\w-])", rf"{right}{gap}\1"


@functools.cache
def read(language: str) -> Rules:
    """What the checks know of a language; `SourceError` where its file is missing, or holds what is no rule."""
    path = FOLDER / f"rules.{language}.yml"
    if not path.is_file():
        raise SourceError(f"{path}: there is no such file; write it in the manner of rules.it.yml")
    try:
        return Rules(yaml.load(read_text(path), yaml.CSafeLoader))
    except re.error as error:
        raise SourceError(f"{path}: {error.pattern!r} is no pattern: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise SourceError(f"{path}: {error}") from None
