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
import functools
import hashlib
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools import translations
from tools.cells.record import write_atomically
from tools.cells.source import SourceError, nearest, read_text
from tools.translations import BUILDS_ON, FRONT_MATTER

DOCS = Path("docs")
ALL = "all"
WRITTEN_BY_ACCEPT = re.compile(r"^(?:made_from|behind):.*\n(?:[ -].*\n)*", re.M)


@dataclass(frozen=True)
class Translation:
    """A page in another language than English."""

    slug: str
    language: str
    docs: Path = DOCS

    @property
    def path(self):
        return self.docs / self.language / f"{self.slug}.md"

    @property
    def english(self):
        return self.docs / "en" / f"{self.slug}.md"


@dataclass(frozen=True)
class State:
    """The English sections that a page lacks, has from an older text, and has as they are; and those it declares."""

    missing: list
    behind: list
    current: list
    declared: list

    @property
    def stale(self):
        return [*self.missing, *self.behind]

    @property
    def undeclared(self):
        return [name for name in self.stale if name not in self.declared]

    @property
    def needless(self):
        return [name for name in self.declared if name not in self.stale]


# --- reading --------------------------------------------------------------------------------------


def front_matter(path):
    """The fields above a page; `SourceError` where they are not what translations need."""
    found = FRONT_MATTER.match(read_text(path))
    return fields(found[1], path) if found else {}


@functools.cache
def fields(text, path):
    """The fields that a text holds as YAML; `SourceError` where one is not what it must be."""
    try:
        front = yaml.load(text, yaml.CSafeLoader) or {}
    except yaml.YAMLError as error:
        line = error.problem_mark.line + 2 if hasattr(error, "problem_mark") else 1
        said = getattr(error, "problem", None) or error.reason
        raise SourceError(f"{path}:{line}: the front matter is not YAML: {said}") from None
    if not isinstance(front, dict):
        raise SourceError(f"{path}:1: the front matter holds no fields; write, for example, `description: ...`")
    behind, made_from = front.get("behind", []), front.get("made_from", {})
    if behind != ALL and not (isinstance(behind, list) and all(isinstance(name, str) for name in behind)):
        raise SourceError(f"{path}:1: `behind` is {behind!r}; write `behind: [one, two]`, or `behind: all`")
    if not isinstance(made_from, dict):
        raise SourceError(f"{path}:1: `made_from` is {made_from!r}; nox -s translations -- --accept writes it")
    return front


def is_untranslated(path):
    """Whether a page has no text of its own and shows the English one."""
    return front_matter(path).get("behind") == ALL


def text_of(path):
    """The file whose text a page shows: its own, or the English page until it is translated."""
    if not is_untranslated(path):
        return path
    docs = next(folder for folder in path.parents if folder.name == DOCS.name)
    return docs / "en" / Path(*path.relative_to(docs).parts[1:])


def sections(text, path):
    """The sections of a page by their ids, each with its heading; `SourceError` where two have one id."""
    text = BUILDS_ON.sub("", text)
    bounds = translations.sections(text)
    names = [name for name, _, _ in bounds]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SourceError(f"{path}:1: two sections have the id {twice[0]!r} (`top` is what stands above the first)")
    return {name: text[start:end] for name, start, end in bounds}


def body(path):
    return FRONT_MATTER.sub("", read_text(path)).strip()


def digest(section):
    return hashlib.sha256(" ".join(section.split()).encode()).hexdigest()[:12]


def digests(path):
    return {name: digest(section) for name, section in sections(read_text(path), path).items()}


def state(page):
    """What a translated page was made from, beside the English as it is now."""
    front, now = front_matter(page.path), digests(page.english)
    made_from, declared = front.get("made_from") or {}, front.get("behind") or []
    return State(
        missing=[name for name in now if name not in made_from],
        behind=[name for name in now if name in made_from and made_from[name] != now[name]],
        current=[name for name in now if made_from.get(name) == now[name]],
        declared=list(now) if declared == ALL else declared,
    )


def refuse_undeclared(page):
    """`SourceError` where the English of a page has changed and it does not say so, or says so without need."""
    found = state(page)
    if is_untranslated(page.path) and body(page.path):
        mend = f"nox -s translations -- --accept {page.slug} --lang {page.language}"
        raise SourceError(
            f"{page.path}:1: has a text, but `behind: all` shows the English one; once it is whole, {mend}"
        )
    if found.undeclared:
        names = ", ".join(found.undeclared)
        raise SourceError(
            f"{page.path}:1: the English of {names} has changed; mend these sections, then "
            f"nox -s translations -- --accept {page.slug} --lang {page.language}; "
            f"or tell its readers, in the front matter: behind: [{names}]"
        )
    if found.needless:
        names = ", ".join(found.needless)
        raise SourceError(f"{page.path}:1: {names} is as the English is; take it out of `behind` in the front matter")


# --- accepting ------------------------------------------------------------------------------------


def accept(page):
    """Record that a page says what the English says now; `SourceError` where it cannot."""
    text, now = read_text(page.path), digests(page.english)
    refuse_empty(page)
    front = FRONT_MATTER.match(text)
    kept = WRITTEN_BY_ACCEPT.sub("", f"{front[1]}\n")
    made_from = "".join(f'  "{name}": "{value}"\n' for name, value in now.items())
    written = f"{kept}made_from:\n{made_from}"
    wanted = {key: value for key, value in fields(front[1], page.path).items() if key != "behind"} | {"made_from": now}
    try:
        right = fields(written, page.path) == wanted
    except SourceError:
        right = False
    if not right:
        raise SourceError(f"{page.path}:1: write `behind: [one, two]` on one line, so that it can be taken out")
    write_atomically(page.path, f"---\n{written}---\n{text[front.end() :]}")


def untouched(page):
    """The stale sections of a page whose words are those of the last commit."""
    before = sections(git("show", f"HEAD:./{page.path.as_posix()}"), page.path)
    now = sections(read_text(page.path), page.path)
    return [name for name in state(page).stale if now.get(name) == before.get(name)]


def changes(page):
    """How the English of the stale sections has changed since the page was made from it: a diff, as lines."""
    made_from, now = front_matter(page.path).get("made_from") or {}, sections(read_text(page.english), page.english)
    for name in state(page).stale:
        old = past_section(page.english, name, made_from.get(name))
        before = f"{name} that {page.path} was made from" if old else "nothing in the history of this clone"
        yield from difflib.unified_diff(
            old.splitlines(), now[name].splitlines(), before, f"{name} in {page.english}", lineterm=""
        )


def past_section(path, name, wanted):
    """The section of a page with a digest, from the history of the repository; "" where it is not there."""
    for commit in git("log", "--format=%H", "--", path).split():
        old = sections(git("show", f"{commit}:./{path.as_posix()}"), path).get(name, "")
        if digest(old) == wanted:
            return old
    return ""


def git(*arguments):
    """What git prints; nothing where there is no git, or no such thing in its history."""
    try:
        return subprocess.run(["git", *map(str, arguments)], capture_output=True, encoding="utf-8", check=False).stdout
    except FileNotFoundError:
        return ""


# --- the command ----------------------------------------------------------------------------------


def find_pages(slugs, language):
    """The translations that are asked for; `SourceError` where one is not there."""
    english = {path.relative_to(DOCS / "en").with_suffix("").as_posix() for path in DOCS.glob("en/**/*.md")}
    languages = sorted(path.parent.name for path in DOCS.glob("*/index.md") if path.parent.name != "en")
    if not english or not languages:
        raise SourceError("there are no pages in docs/en, or in no other language; run this at the top of the project")
    slugs = [slug.removesuffix(".md") for slug in slugs]
    for slug in slugs:
        if slug not in english:
            raise SourceError(f"there is no page {slug!r}{nearest(slug, english)}")
    if language and language not in languages:
        raise SourceError(f"there is no translation into {language!r}; docs/ holds {', '.join(languages)}")
    return [
        Translation(slug, name) for slug in slugs or sorted(english) for name in ([language] if language else languages)
    ]


def main(arguments):
    parser = argparse.ArgumentParser(prog="nox -s translations --", description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="*", help="such as masks/causal; all where none is named")
    parser.add_argument("--lang", help="such as it; all where none is named")
    parser.add_argument("--accept", action="store_true", help="record that these pages say what the English says now")
    options = parser.parse_args(arguments)
    if options.accept and not (options.page and options.lang):
        parser.error("--accept: name the pages that you have mended, and their language: masks/causal --lang it")
    pages = find_pages(options.page, options.lang)
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


def listed(page):
    """Print the line of a page; yield what is wrong with it."""
    try:
        refuse_missing(page)
        found = state(page)
        marked = [name + (" (missing)" if name in found.missing else "") for name in found.stale]
        marked = ["not translated"] if is_untranslated(page.path) else marked
        note = "; its readers are told" if found.stale and not found.undeclared else ""
        print(f"{page.slug:34}{page.language:6}{len(found.current):8}  {', '.join(marked) or '-'}{note}")
        refuse_undeclared(page)
    except SourceError as error:
        yield str(error)


def refuse_empty(page):
    if not FRONT_MATTER.match(read_text(page.path)) or not body(page.path):
        raise SourceError(f"{page.path}:1: has no front matter, or no text below it; write them first")


def refuse_missing(page):
    if not page.path.is_file():
        raise SourceError(f"{page.path} is missing; write it, or let it show the English: front matter, behind: all")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SourceError as error:
        sys.exit(str(error))
