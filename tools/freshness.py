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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools import configuration
from tools.cells.record import write_atomically
from tools.cells.source import SourceError, nearest
from tools.markdown import ALL, TOP, Page, parse, read

DOCS = Path("docs")
NO_WORDS = ("behind", "builds_on", "glossary", "made_from")  # fields that hold nothing to translate


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


@dataclass(frozen=True)
class State:
    """The English sections that a page lacks, has from an older text, and has as they are; and those it declares."""

    missing: list[str]
    behind: list[str]
    current: list[str]
    declared: list[str]

    @property
    def stale(self) -> list[str]:
        return [*self.missing, *self.behind]

    @property
    def undeclared(self) -> list[str]:
        return [name for name in self.stale if name not in self.declared]

    @property
    def needless(self) -> list[str]:
        return [name for name in self.declared if name not in self.stale]


# --- reading --------------------------------------------------------------------------------------


def digests(page: Page) -> dict[str, str]:
    """A digest of the words of each section of a page; the fields above it belong to the first."""
    said = {name: section.text for name, section in page.sections.items()}
    fields = {key: page.front[key] for key in page.front if key not in NO_WORDS}
    said[TOP] = f"---\n{fields_as_text(fields)}---\n{said[TOP]}"
    return {name: hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12] for name, text in said.items()}


def declared_behind(page: Page) -> str | list[str]:
    """The sections that a page declares to be behind, or `ALL`; `SourceError` where it does so in another way."""
    behind = page.front.get("behind", [])
    if behind != ALL and not (isinstance(behind, list) and all(isinstance(name, str) for name in behind)):
        line = page.lines_of_front["behind",]
        raise SourceError(f"{page.path}:{line}: `behind` is {behind!r}; write `behind: [one, two]`, or `behind: all`")
    return behind


def made_from(page: Page) -> Mapping[str, str]:
    """The digests of the English that a page was made from; `SourceError` where they are none."""
    stored = page.front.get("made_from", {})
    if not isinstance(stored, dict):
        line = page.lines_of_front["made_from",]
        raise SourceError(f"{page.path}:{line}: `made_from` is {stored!r}; nox -s translations -- --accept writes it")
    return stored


def state(page: Translation) -> State:
    """What a translated page was made from, beside the English as it is now."""
    translated, now = read(page.path), digests(read(page.english))
    stored, declared = made_from(translated), declared_behind(translated)
    return State(
        missing=[name for name in now if name not in stored],
        behind=[name for name in now if name in stored and stored[name] != now[name]],
        current=[name for name in now if stored.get(name) == now[name]],
        declared=list(now) if declared == ALL else list(declared),
    )


def refuse_undeclared(page: Translation) -> None:
    """`SourceError` where the English of a page has changed and it does not say so, or says so without need."""
    found, translated = state(page), read(page.path)
    if declared_behind(translated) == ALL and translated.body.strip():
        raise SourceError(
            f"{page.path}:1: has a text, but `behind: all` shows the English one; once it is whole, {page.accepting}"
        )
    if found.undeclared and "made_from" not in translated.front:
        raise SourceError(f"{page.path}:1: nothing says from which English it was made; nox -s update stamps new pages")
    if found.undeclared:
        names = ", ".join(found.undeclared)
        raise SourceError(
            f"{page.path}:1: the English of {names} has changed; mend these sections, then {page.accepting}; "
            f"or tell its readers, in the front matter: behind: [{names}]"
        )
    if found.needless:
        names, line = ", ".join(found.needless), translated.lines_of_front["behind",]
        raise SourceError(f"{page.path}:{line}: {names} is as the English is; take it out of `behind`")


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


def accept(page: Translation) -> None:
    """Record that a page says what the English says now; `SourceError` where it says nothing."""
    refuse_empty(page)
    translated = read(page.path)
    kept = {key: value for key, value in translated.front.items() if key not in ("behind", "made_from")}
    write(translated, kept | {"made_from": digests(read(page.english))})


def write(page: Page, front: Mapping[str, Any]) -> None:
    write_atomically(page.path, f"---\n{fields_as_text(front)}---\n{page.body}")


def stamp(page: Translation) -> bool:
    """Whether a page is new: then it records from which English it was made, but for the sections that it declares.

    A page that had such a record in the last commit is not new; `accept` is for what a person has compared.
    """
    translated = read(page.path)
    committed = parse(git("show", f"HEAD:./{page.path.as_posix()}"), page.path)
    if declared_behind(translated) == ALL or "made_from" in (*translated.front, *committed.front):
        return False
    refuse_empty(page)
    now, declared = digests(read(page.english)), declared_behind(translated)
    current = {name: digest for name, digest in now.items() if name not in declared}
    write(translated, {**translated.front, "made_from": current})
    return True


# --- the history ----------------------------------------------------------------------------------


def untouched(page: Translation) -> list[str]:
    """The stale sections of a page whose words are those of the last commit."""
    before = digests(parse(git("show", f"HEAD:./{page.path.as_posix()}"), page.path))
    now = digests(read(page.path))
    return [name for name in state(page).stale if now.get(name) == before.get(name)]


def changes(page: Translation) -> Iterator[str]:
    """How the English of the stale sections has changed since the page was made from it: a diff, as lines."""
    stored, now = made_from(read(page.path)), read(page.english).sections
    for name in state(page).stale:
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


def find_pages(slugs: list[str], language: str | None) -> list[Translation]:
    """The translations that are asked for, all where none is; `SourceError` where one is not there."""
    site = configuration.read()
    slugs = [slug.removesuffix(".md") for slug in slugs]
    for slug in slugs:
        if slug not in site.slugs:
            raise SourceError(f"there is no page {slug!r}{nearest(slug, site.slugs)}")
    if language and language not in site.translations:
        raise SourceError(f"there is no translation into {language!r}; mkdocs.yml has {', '.join(site.translations)}")
    languages = [language] if language else sorted(site.translations)
    return [Translation(slug, name) for slug in slugs or sorted(site.slugs) for name in languages]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nox -s translations --", description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="*", help="such as masks/causal; all where none is named")
    parser.add_argument("--lang", help="such as it; all where none is named")
    parser.add_argument("--accept", action="store_true", help="record that these pages say what the English says now")
    parser.add_argument("--stamp", action="store_true", help="record it of new pages, which have no record yet")
    options = parser.parse_args(arguments)
    if options.accept and not (options.page and options.lang):
        parser.error("--accept: name the pages that you have mended, and their language: masks/causal --lang it")
    pages = find_pages(options.page, options.lang)
    if options.stamp:
        stamp_new(pages)
        return 0
    for page in pages if options.page else []:
        refuse_missing(page)
        if options.accept:
            refuse_empty(page)
        print(*changes(page), sep="\n")
    for page in pages if options.accept else []:
        for name in untouched(page):
            print(f"note: you accept {name} of {page.path}, whose words are those of the last commit")
        accept(page)
    print(f"{'page':34}{'lang':6}{'current':>8}  missing or behind")
    faults = [fault for page in pages for fault in listed(page)]
    print(*faults, sep="\n", file=sys.stderr)
    return int(bool(faults))


def stamp_new(pages: list[Translation]) -> None:
    """Stamp the new ones of some pages, and name them."""
    for page in pages:
        if page.path.is_file() and page.english.is_file() and stamp(page):
            print(f"{page.path}: made from the English of today")


def listed(page: Translation) -> Iterator[str]:
    """Print the line of a page; yield what is wrong with it."""
    try:
        refuse_missing(page)
        found = state(page)
        marked = [name + (" (missing)" if name in found.missing else "") for name in found.stale]
        marked = ["not translated"] if declared_behind(read(page.path)) == ALL else marked
        note = "; its readers are told" if found.stale and not found.undeclared else ""
        print(f"{page.slug:34}{page.language:6}{len(found.current):8}  {', '.join(marked) or '-'}{note}")
        refuse_undeclared(page)
    except SourceError as error:
        yield str(error)


def refuse_empty(page: Translation) -> None:
    found = read(page.path)
    if not found.front or not found.body.strip():
        raise SourceError(f"{page.path}:1: has no front matter, or no text below it; write them first")


def refuse_missing(page: Translation) -> None:
    if not page.path.is_file():
        raise SourceError(f"{page.path} is missing; write it, or let it show the English: front matter, behind: all")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SourceError as error:
        sys.exit(str(error))
