"""The explorers: figures that a reader can change, in place of links by which a page leads to itself.

    [Paint a mask](combining.md#mask-painter){#mask-painter}
    [Which widths can the heads share?](many-heads.md#shape-tracer){#shape-tracer state="code=many-heads"}

theme/explorers/<name>.html draws one from the numbers of verified/explorers/<name>.json, and
theme/assets/explorers/<name>.js makes it live.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment

from tools.cells.source import SourceError, read_text
from tools.languages.glossary import read_rows
from tools.site.outputs import largest, tone_of
from tools.site.tree import Node, replace

COMPUTING = {"mask-painter", "one-query", "six-tokens"}  # with the kernel
MOVING = {"kv-grid", "one-sentence", "rope-clocks", "three-roles"}  # in frames
PAINTING = {"mask-painter", "six-tokens"}  # of a mask

# An explorer by its page, its name, its state, its words, and what its template needs besides.
Draw = Callable[..., str]


def words(path: Path, language: str) -> dict[str, str]:
    """What the explorers say in a language, or in English while it has no words."""
    return {row["key"]: row.get(language) or row["en"] for row in read_rows(path)}


def show(body: Node, source: Path, draw: Draw) -> list[str]:
    """Put explorers into a page and return their scripts."""
    names = []
    for link in body.css("p > a[id]:only-child"):
        paragraph, name = link.parent, link.id or ""
        if not (paragraph and link.attrs.sget("href").endswith(f"#{name}") and paragraph.text() == link.text()):
            continue
        replace(paragraph, draw(source, name, link.attrs.sget("state"), link.inner_html or ""))
        names.append(name)
    kernel = ["kernel"] if COMPUTING.intersection(names) else []
    painting = ["painting"] if PAINTING.intersection(names) else []
    moving = ["moving"] if MOVING.intersection(names) else []
    return [*kernel, "explorer", *painting, *moving, *names] if names else []


def drawing(env: Environment, folder: Path, words: Mapping[str, str]) -> Draw:
    """What draws an explorer in a language that has these words; `folder` holds the numbers of each.

    `SourceError` names the page that asks for another.
    """
    env.filters.update(tone=tone_of, largest=largest)

    def draw(source: Path, name: str, state: str, legend: str, **more: Any) -> str:
        path = Path(folder, f"{name}.json")
        if not path.is_file():
            raise SourceError(f"{source}: no explorer is named {name!r}; {folder} has them all")
        golden, wanted = json.loads(read_text(path)), dict(parse_qsl(state))
        case = next((case for case in golden["cases"] if wanted.items() <= case["state"].items()), None)
        if not case:
            raise SourceError(f"{source}: {name} has no numbers for the state {state!r}; {path} names them all")
        template = env.get_template(f"explorers/{name}.html")
        return template.render(golden=golden, case=case, legend=legend, words=words, **more)

    return draw
