"""The explorers: figures that a reader can change, in place of links by which a page leads to itself.

    [Paint a mask](combining.md#mask-painter){#mask-painter}
    [Divide by the root of D](scale.md#one-query){#one-query state="temperature=0.5"}

theme/explorers/<name>.html draws one from the numbers of verified/explorers/<name>.json, and
theme/assets/explorers/<name>.js makes it live.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment

from tools.cells.source import SourceError, nearest, read_text
from tools.glossary import read_rows
from tools.site.outputs import tone_of

LINK = re.compile(r'<p><a href="[^"]*#([\w-]+)" id="\1"(?: state="([^"]*)")?>(.*?)</a></p>', re.S)

COMPUTING = {"mask-painter", "one-query"}  # with the kernel

Draw = Callable[[str, str, str], str]  # an explorer by its name, its state and its words


def words(path: Path, language: str) -> dict[str, str]:
    """What the explorers say in a language, or in English while it has no words."""
    return {row["key"]: row.get(language) or row["en"] for row in read_rows(path)}


def show(body: str, source: str, draw: Draw) -> tuple[str, list[str]]:
    """A page's body with its explorers, and their scripts.

    `SourceError` names the line of `source` that asks for one that cannot be drawn.
    """

    def drawn(link):
        try:
            return draw(*link.groups(""))
        except SourceError as error:
            text = read_text(Path(source))
            asked = re.search(rf"#{link[1]}\)\{{[^}}]*#{link[1]}\b|id=[\"']?{link[1]}\b", text)
            line = text.count("\n", 0, asked.start()) + 1
            raise SourceError(f"{source}:{line}: {error}") from None

    names = [link[1] for link in LINK.finditer(body)]
    kernel = ["kernel"] if COMPUTING.intersection(names) else []
    return LINK.sub(drawn, body), [*kernel, "explorer", *names] if names else []


def drawing(env: Environment, folder: Path, said: dict[str, str]) -> Draw:
    """What draws an explorer in a language whose words are `said`; `folder` holds the numbers of each."""
    env.filters.update(tone=tone_of, largest=largest)

    def draw(name, state, legend):
        path = Path(folder, f"{name}.json")
        if not path.is_file():
            known = [one.stem for one in Path(folder).glob("*.json")]
            raise SourceError(f"no explorer is named {name!r}{nearest(name, known)}")
        golden = json.loads(read_text(path))
        case = case_of(name, golden["cases"], dict(parse_qsl(html.unescape(state))))
        return env.get_template(f"explorers/{name}.html").render(golden=golden, case=case, legend=legend, words=said)

    return draw


def case_of(name: str, cases: list[dict[str, Any]], wanted: dict[str, str]) -> dict[str, Any]:
    """The first case of an explorer that agrees with what a page asks for."""
    for case in cases:
        if wanted.items() <= case["state"].items():
            return case
    known = sorted({f"{key}={value}" for case in cases for key, value in case["state"].items()})
    asked = [f"{key}={value}" for key, value in wanted.items()]
    missing = next((pair for pair in asked if pair not in known), "&".join(asked))
    fault = f"{name} has no numbers for the state {missing!r}{nearest(missing, known)}"
    raise SourceError(f"{fault}; verified/explorers/{name}.json names them all")


def largest(numbers: Iterable[float]) -> float:
    """The largest magnitude of those numbers that are finite."""
    return max((abs(number) for number in numbers if math.isfinite(number)), default=0)
