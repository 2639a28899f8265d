"""From which English each section of a translated page was made: `nox -s translations`

The front matter of a translated page holds a digest of each English section. `top` is what stands above the first one.

    made_from:
      "top": "3f2a9c01b2aa"
      "formula": "77b1e0d4c2f9"

Where the English has changed since, CI fails, or the page names the section, and its readers are told:

    behind: [formula]

`behind: all` stands on a page without a body: it shows the English text until somebody translates it.
"""

import argparse
import difflib
import hashlib
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools import configuration
from tools.cells.record import write_atomically
from tools.cells.source import SourceError
from tools.markdown import ALL, OF_ONE_LANGUAGE, TOP, Page, parse, read

DOCS = Path("docs")


@dataclass(frozen=True)
class Translation:
    """A page in another language than English."""

    slug: str
    language: str
    docs: Path = DOCS

    @property
    def path(self) -> Path:
        return self.docs / self.language / f"{self.slug}.md"

    @property
    def english(self) -> Path:
        return self.docs / "en" / f"{self.slug}.md"

    @property
    def accepting(self) -> str:
        """The command that records that it says what the English says."""
        return f"nox -s translations -- --accept {self.slug} --lang {self.language}"


# --- reading --------------------------------------------------------------------------------------


def digests(page: Page) -> dict[str, str]:
    """A digest of the words of each section of a page; the fields above it belong to the first."""
    said = {name: section.text for name, section in page.sections.items()}
    fields = {key: page.front[key] for key in page.front if key not in OF_ONE_LANGUAGE}
    said[TOP] = f"---\n{fields_as_text(fields)}---\n{said[TOP]}"
    return {name: hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12] for name, text in said.items()}


def written(page: Translation) -> Page:
    """The page as it stands; `SourceError` where it is not there."""
    if not page.path.is_file():
        raise SourceError(f"{page.path} is missing; write it, or let it show the English: front matter, behind: all")
    return read(page.path)


def declared_behind(page: Page) -> str | list[str]:
    """The sections that a page declares to be behind, or `ALL`; `SourceError` where it does so in another way."""
    behind = page.front.get("behind", [])
    if behind != ALL and not (isinstance(behind, list) and all(isinstance(name, str) for name in behind)):
        at = f"{page.path}:{page.line_of('behind')}"
        raise SourceError(f"{at}: `behind` is {behind!r}; write `behind: [one, two]`, or `behind: all`")
    return behind


def stale(page: Translation) -> list[str]:
    """The English sections that a page was not made from as they are now, or not at all."""
    stored = written(page).front.get("made_from") or {}
    return [name for name, digest in digests(read(page.english)).items() if stored.get(name) != digest]


def refuse_undeclared(page: Translation) -> None:
    """`SourceError` where the English of a page has changed and it does not say so, or says so without need."""
    translated, behind = written(page), stale(page)
    declared = declared_behind(translated)
    if declared == ALL:
        if translated.body.strip():
            shown = "has a text, but `behind: all` shows the English one"
            raise SourceError(f"{page.path}:1: {shown}; once it is whole, {page.accepting}")
        return
    undeclared = [name for name in behind if name not in declared]
    if undeclared and "made_from" not in translated.front:
        raise SourceError(f"{page.path}:1: nothing says from which English it was made; nox -s update stamps new pages")
    if undeclared:
        names = ", ".join(undeclared)
        raise SourceError(
            f"{page.path}:1: the English of {names} has changed; mend these sections, then {page.accepting}; "
            f"or tell its readers, in the front matter: behind: [{names}]"
        )
    if needless := [name for name in declared if name not in behind]:
        at = f"{page.path}:{translated.line_of('behind')}"
        raise SourceError(f"{at}: {', '.join(needless)} is as the English is; take it out of `behind`")


# --- writing --------------------------------------------------------------------------------------


class Quoted(str):
    """A text that YAML has between quotes, even where it need not."""


class Dumper(yaml.SafeDumper):
    """Writes front matter in one style: a list on one line, quotes where they are needed, and these are double."""

    def choose_scalar_style(self) -> str:
        style = super().choose_scalar_style()
        return '"' if style == "'" else style


Dumper.add_representer(list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, True))
Dumper.add_representer(Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'))


def fields_as_text(front: Mapping[str, Any]) -> str:
    """The fields above a page as they are written."""
    fields = dict(front)
    if stored := fields.get("made_from"):
        fields["made_from"] = {Quoted(name): Quoted(digest) for name, digest in stored.items()}
    return yaml.dump(fields, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=float("inf"))


def accept(page: Translation, but: Collection[str] = ()) -> None:
    """Record that a page says what the English says now, but for some sections; `SourceError` where it is empty."""
    translated = written(page)
    if not translated.body.strip():
        raise SourceError(f"{page.path}:1: has no text below its front matter; write it first")
    front = {key: value for key, value in translated.front.items() if but or key not in ("behind", "made_from")}
    now = digests(read(page.english)).items()
    front["made_from"] = {name: digest for name, digest in now if name not in but}
    write_atomically(page.path, f"---\n{fields_as_text(front)}---\n{translated.body}")


def stamp(page: Translation) -> None:
    """Record of a new page from which English it was made, but for the sections that it declares.

    A page that had such a record in the last commit is not new; `accept` is for what a person has compared.
    """
    translated = written(page)
    committed = parse(git("show", f"HEAD:./{page.path.as_posix()}"), page.path)
    if declared_behind(translated) != ALL and "made_from" not in (*translated.front, *committed.front):
        accept(page, but=declared_behind(translated))
        print(f"{page.path}: made from the English of today")


# --- the history ----------------------------------------------------------------------------------


def changes(page: Translation) -> Iterator[str]:
    """How the English of the stale sections has changed since the page was made from it: a diff, as lines."""
    stored, now = written(page).front.get("made_from") or {}, read(page.english).sections
    for name in stale(page):
        old = past_section(page.english, name, stored.get(name))
        before = f"{name} that {page.path} was made from" if old else "nothing in the history of this clone"
        after = f"{name} in {page.english}"
        yield from difflib.unified_diff(old.splitlines(), now[name].text.splitlines(), before, after, lineterm="")


def past_section(path: Path, name: str, wanted: str | None) -> str:
    """The section of a page with a digest, from the history of the repository; "" where it is not there."""
    for commit in git("log", "--format=%H", "--", path).split():
        old = parse(git("show", f"{commit}:./{path.as_posix()}"), path)
        if digests(old).get(name) == wanted:
            return old.sections[name].text
    return ""


def git(*arguments: object) -> str:
    """What git prints; nothing where there is no git, or no such thing in its history."""
    try:
        return subprocess.run(["git", *map(str, arguments)], capture_output=True, encoding="utf-8", check=False).stdout
    except FileNotFoundError:
        return ""


# --- the command ----------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    site = configuration.read()
    parser = argparse.ArgumentParser(prog="nox -s translations --", description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="*", help="such as foundations/causal; all where none is named")
    parser.add_argument("--lang", choices=site.translations, help="all where none is named")
    parser.add_argument("--accept", action="store_true", help="record that these pages say what the English says now")
    parser.add_argument("--stamp", action="store_true", help="record it of new pages, which have no record yet")
    options = parser.parse_args(arguments)
    if options.accept and not (options.page and options.lang):
        parser.error("--accept: name the pages that you have mended, and their language: foundations/causal --lang it")
    slugs = [slug.removesuffix(".md") for slug in options.page] or sorted(site.slugs)
    if unknown := set(slugs) - set(site.slugs):
        parser.error(f"mkdocs.yml has no page {', '.join(sorted(unknown))}")
    languages = [options.lang] if options.lang else sorted(site.translations)
    pages = [Translation(slug, language) for slug in slugs for language in languages]
    if options.stamp:
        for page in pages:
            if page.path.is_file() and page.english.is_file():
                stamp(page)
        return 0
    for page in pages if options.page else []:
        print(*changes(page), sep="\n")
        if options.accept:
            accept(page)
    print(f"{'page':34}{'lang':6}{'current':>8}  missing or behind")
    faults = [fault for page in pages for fault in listed(page)]
    print(*faults, sep="\n", file=sys.stderr)
    return int(bool(faults))


def listed(page: Translation) -> Iterator[str]:
    """Print the line of a page; yield what is wrong with it."""
    try:
        behind, declared = stale(page), declared_behind(written(page))
        current = len(read(page.english).sections) - len(behind)
        names = "not translated" if declared == ALL else ", ".join(behind) or "-"
        told = "; its readers are told" if behind and (declared == ALL or set(behind) <= {*declared}) else ""
        print(f"{page.slug:34}{page.language:6}{current:8}  {names}{told}")
        refuse_undeclared(page)
    except SourceError as error:
        yield str(error)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SourceError as error:
        sys.exit(str(error))
