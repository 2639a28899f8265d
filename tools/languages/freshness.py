"""From which English each section of a translated page was made: `nox -s translations`

The front matter of a translated page holds a digest of each English section. `top` is what stands above the first one,
`asks` the questions in the front matter.

    made_from:
      "asks": "5d01c2f7a9be"
      "top": "3f2a9c01b2aa"
      "formula": "77b1e0d4c2f9"

Where the English has changed since, CI fails, or the page names the section, and its readers are told:

    behind: [formula]

`behind: all` stands on a page without a body: it shows the English text until somebody translates it.
"""

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.cells.record import write_atomically
from tools.cells.source import SourceError
from tools.languages import configuration
from tools.languages.markdown import ALL, ASKS, OF_ONE_LANGUAGE, TOP, Page, english, read


def digests(page: Page) -> dict[str, str]:
    """A digest of the words of each section of a page; the fields above it are of the top, but for `asks`."""
    texts = {name: section.text for name, section in page.sections.items()}
    texts[TOP] = f"---\n{fields_but((ASKS, *OF_ONE_LANGUAGE), page)}---\n{texts[TOP]}"
    return {name: hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12] for name, text in texts.items()}


def fields_but(names: Iterable[str], page: Page) -> str:
    """The lines above a page but for some fields."""
    above = "".join(f"{line}\n" for line in page.text.split("\n")[1 : max(1, page.first_line - 2)])
    return re.sub(rf"^(?:{'|'.join(names)}):.*\n(?: .*\n)*", "", above, flags=re.M)


def declared_behind(page: Page) -> str | list[str]:
    """The sections that a page declares to be behind, or `ALL`; `SourceError` where it does so in another way."""
    behind: str | list[str] = page.front.get("behind", [])
    if behind != ALL and not isinstance(behind, list):
        raise SourceError(f"{page.path}:1: `behind` is {behind!r}; write `behind: [one, two]`, or `behind: all`")
    return behind


def stale(path: Path) -> list[str]:
    """The English sections that a page was not made from as they are now, or not at all."""
    stored = read(path).front.get("made_from") or {}
    return [name for name, digest in digests(read(english(path))).items() if stored.get(name) != digest]


def refuse_undeclared(path: Path) -> None:
    """`SourceError` where the English of a page has changed and it does not say so, or says so without need."""
    page, behind = read(path), stale(path)
    declared = declared_behind(page)
    slug = english(path).with_suffix("").as_posix().removeprefix("docs/en/")
    accepting = f"nox -s translations -- --accept {slug} --lang {path.parts[1]}"
    if declared == ALL:
        if page.body.strip():
            fault = "has a text, but `behind: all` shows the English one"
            raise SourceError(f"{path}:1: {fault}; once it is whole, {accepting}")
        return
    if "made_from" not in page.front and not declared:
        raise SourceError(f"{path}:1: says nowhere from which English it was made; once it is whole, {accepting}")
    if undeclared := ", ".join(name for name in behind if name not in declared):
        fix = f"fix these sections, then {accepting}; or tell its readers, in the front matter: behind: [{undeclared}]"
        raise SourceError(f"{path}:1: the English of {undeclared} has changed (git log -p docs/*/{slug}.md); {fix}")
    if needless := ", ".join(name for name in declared if name not in behind):
        raise SourceError(f"{path}:1: {needless} is as the English is; take it out of `behind`")


def accept(path: Path) -> None:
    """Record that a page says what the English says now; `SourceError` where it is empty."""
    page = read(path)
    if not page.body.strip():
        raise SourceError(f"{path}:1: has no text below its front matter; write it first")
    fields = fields_but(("behind", "made_from"), page)
    made_from = "".join(f'  "{name}": "{digest}"\n' for name, digest in digests(read(english(path))).items())
    write_atomically(path, f"---\n{fields}made_from:\n{made_from}---\n{page.body}")


def main(arguments: list[str]) -> None:
    """List what translations lack, or accept some."""
    site = configuration.read()
    languages = [language for language in site.languages if language != "en"]
    parser = argparse.ArgumentParser(prog="nox -s translations --", description=__doc__.partition("\n")[0])
    told = "record that these pages say what the English says now, such as foundations/causal"
    parser.add_argument("--accept", nargs="+", metavar="PAGE", choices=site.slugs, help=told)
    parser.add_argument("--lang", choices=languages, help="in this language; in all where none is named")
    options = parser.parse_args(arguments)
    for language in [options.lang] if options.lang else languages:
        for slug in options.accept or site.slugs:
            path = Path("docs", language, f"{slug}.md")
            if options.accept:
                accept(path)
            elif names := lacks(path):
                print(f"{path}: {names}")


def lacks(path: Path) -> str:
    """What a page lacks: all of it, its text, or the names of some sections."""
    if not path.is_file():
        return "missing"
    return "not translated" if declared_behind(read(path)) == ALL else ", ".join(stale(path))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SourceError as error:
        sys.exit(str(error))
