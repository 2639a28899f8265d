"""From which English each section of a translated page was made: `nox -s translations`

The front matter of a translated page holds a digest of each English section. `top` is what stands above the first one.

    made_from:
      top: "3f2a9c01b2aa"
      formula: "77b1e0d4c2f9"

Where the English has changed since, CI fails, or the page names the section, and its readers are told:

    behind: [formula]

`behind: all` stands on a page without a body: it shows the English text until somebody translates it.
"""

import argparse
import difflib
import hashlib
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools.cells.record import write_atomically
from tools.cells.source import SourceError, read_text
from tools.translations import FENCE, FRONT_MATTER, blank

DOCS = Path("docs")
TOP, ALL = "top", "all"
HEADING = re.compile(r"^#+ .*\{#([\w-]+)\}$", re.M)
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
    """The fields above a page; `SourceError` where they are not YAML."""
    found = FRONT_MATTER.match(read_text(path))
    try:
        return yaml.safe_load(found[1]) if found else {}
    except yaml.YAMLError as error:
        line = error.problem_mark.line + 2
        raise SourceError(f"{path}:{line}: the front matter is not YAML: {error.problem}") from None


def is_untranslated(path):
    """Whether a page has no text of its own and shows the English one."""
    return front_matter(path).get("behind") == ALL


def text_of(path):
    """The file whose text a page shows: its own, or the English page until it is translated."""
    if not is_untranslated(path):
        return path
    docs = next(folder for folder in path.parents if folder.name == DOCS.name)
    return docs / "en" / Path(*path.relative_to(docs).parts[1:])


def sections(text):
    """The sections of a page by their ids, each with its heading."""
    starts = [(0, TOP), *((match.start(), match[1]) for match in HEADING.finditer(FENCE.sub(blank, text)))]
    ends = [*(start for start, _ in starts[1:]), len(text)]
    return {name: text[start:end] for (start, name), end in zip(starts, ends)}


def digest(section):
    return hashlib.sha256(" ".join(section.split()).encode()).hexdigest()[:12]


def digests(path):
    return {name: digest(section) for name, section in sections(read_text(path)).items()}


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
    if is_untranslated(page.path) and FRONT_MATTER.sub("", read_text(page.path)).strip():
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
    """Record that a page says what the English says now."""
    text = read_text(page.path)
    front = FRONT_MATTER.match(text)
    fields = WRITTEN_BY_ACCEPT.sub("", f"{front[1]}\n")
    made_from = "".join(f'  {name}: "{value}"\n' for name, value in digests(page.english).items())
    write_atomically(page.path, f"---\n{fields}made_from:\n{made_from}---\n{text[front.end() :]}")


def changes(page):
    """How the English of the stale sections has changed since the page was made from it: a diff, as lines."""
    made_from, now = front_matter(page.path).get("made_from") or {}, sections(read_text(page.english))
    for name in state(page).stale:
        old = past_section(page.english, name, made_from.get(name))
        before = f"{name} that {page.path} was made from" if old else "nothing in the history of this clone"
        yield from difflib.unified_diff(
            old.splitlines(), now[name].splitlines(), before, f"{name} in {page.english}", lineterm=""
        )


def past_section(path, name, wanted):
    """The section of a page with a digest, from the history of the repository; "" where it is not there."""
    for commit in git("log", "--format=%H", "--", path).split():
        old = sections(git("show", f"{commit}:./{path.as_posix()}")).get(name, "")
        if digest(old) == wanted:
            return old
    return ""


def git(*arguments):
    done = subprocess.run(["git", *map(str, arguments)], capture_output=True, encoding="utf-8", check=False)
    return done.stdout


# --- the command ----------------------------------------------------------------------------------


def find_pages(slugs, language):
    """The translations that are asked for; `SourceError` where one is not there."""
    english = {path.relative_to(DOCS / "en").with_suffix("").as_posix() for path in DOCS.glob("en/**/*.md")}
    languages = sorted(path.parent.name for path in DOCS.glob("*/index.md") if path.parent.name != "en")
    for slug in slugs:
        refuse_unknown("page", slug, english)
    if language:
        refuse_unknown("language", language, languages)
    return [
        Translation(slug, name) for slug in slugs or sorted(english) for name in ([language] if language else languages)
    ]


def refuse_unknown(what, asked, known):
    if asked not in known:
        near = difflib.get_close_matches(asked, known, n=1, cutoff=0)
        raise SourceError(f"there is no {what} {asked}; did you mean {near[0]}?")


def main(arguments):
    parser = argparse.ArgumentParser(prog="nox -s translations --", description=__doc__.partition("\n")[0])
    parser.add_argument("page", nargs="*", help="such as masks/causal; all where none is named")
    parser.add_argument("--lang", help="such as it; all where none is named")
    parser.add_argument("--accept", action="store_true", help="record that these pages say what the English says now")
    options = parser.parse_args(arguments)
    if options.accept and not options.page:
        parser.error("--accept: name the pages that you have mended")
    pages = find_pages(options.page, options.lang)
    for page in pages if options.page else []:
        print(*changes(page), sep="\n")
    for page in pages if options.accept else []:
        accept(page)
    print(f"{'page':34}{'lang':6}{'current':>8}  missing or behind")
    undeclared = False
    for page in pages:
        found = state(page)
        undeclared |= bool(found.undeclared)
        marked = [name + (" (missing)" if name in found.missing else "") for name in found.stale]
        marked = ["not translated"] if is_untranslated(page.path) else marked
        note = "" if found.undeclared or not found.stale else "; its readers are told"
        print(f"{page.slug:34}{page.language:6}{len(found.current):8}  {', '.join(marked) or '-'}{note}")
    return int(undeclared)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SourceError as error:
        sys.exit(str(error))
