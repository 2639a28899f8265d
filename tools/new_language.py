"""Add a language, with every page in English until somebody translates it: `nox -s new_language -- ja 日本語`"""

import argparse
import csv
import io
import json
import re
import sys
from pathlib import Path

import material

from tools.cells.record import write_atomically
from tools.cells.source import SourceError, read_text
from tools.freshness import ALL, DOCS
from tools.translations import BUILDS_ON, FRONT_MATTER

CONFIGURATION = Path("mkdocs.yml")
GLOSSARY = Path("languages/glossary.csv")
WORDS = [Path("languages/pictures.csv"), Path("languages/explorers.csv")]
ENGLISH = re.compile(r"( *- locale: en\n.*?)(?= *- locale: )", re.S)
NAMES = re.compile(r" *nav_translations:\n.*?(?= *extra:\n)", re.S)  # of chapters and boxes, in a translation
NAME = re.compile(r"^( {12}(\w)([\w -]*):) .*$", re.M)
LANGUAGES_END = re.compile(r"\n\n(?=markdown_extensions:)")
WORDS_OF_MATERIAL = Path(material.__file__).parent / "templates/partials/languages"
STYLE = """# The style of {name}

A page is written anew from the same cells, not from the English sentences: the same claims, in the same order, about
the same numbers. `glossary.csv` has the terms; here stands the rest. `style.it.md` and `style.zh.md` are examples.

## Voice

## Terms that stay English, and why

## Glosses at first use

## Punctuation

## Good and bad, from these pages
"""


def add(code, name):
    """Write everything that the site needs to show a language; `SourceError` before anything is written."""
    refuse(code, name)
    for path in DOCS.glob("en/**/*.md"):
        write_atomically(DOCS / code / path.relative_to(DOCS / "en"), untranslated(path))
    for path in DOCS.glob("en/**/*.ipynb"):
        write_atomically(DOCS / code / path.relative_to(DOCS / "en"), read_text(path))
    write_atomically(style_of(code), STYLE.format(name=name))
    write_atomically(GLOSSARY, with_columns(GLOSSARY, code, f"says_{code}", f"avoid_{code}"))
    for path in WORDS:
        write_atomically(path, with_columns(path, code))
    write_atomically(CONFIGURATION, configuration(code, name))  # last: until then the site does not know the language


def style_of(code):
    return Path(f"languages/style.{code}.md")


def refuse(code, name):
    """`SourceError` for a language that cannot be added, or of which something is there."""
    known = sorted(path.stem for path in WORDS_OF_MATERIAL.glob("*.html"))
    if code not in known:
        raise SourceError(f"Material for MkDocs has no words in {code!r}; it knows {', '.join(known)}")
    if not name.strip() or "\n" in name:
        raise SourceError(f"{name!r} is no name; write that of the language in its own letters, such as 日本語")
    columns = read_text(GLOSSARY).partition("\n")[0].split(",")
    there = {
        DOCS / code: (DOCS / code).exists(),
        style_of(code): style_of(code).exists(),
        f"the column {code!r} of {GLOSSARY}": code in columns,
        f"the locale {code!r} of {CONFIGURATION}": f"- locale: {code}\n" in read_text(CONFIGURATION),
    }
    if found := [str(thing) for thing, exists in there.items() if exists]:
        raise SourceError(f"{', '.join(found)}: there already; take it away first, or go on with the language as it is")


def configuration(code, name):
    """mkdocs.yml with one more language, whose words are the English ones."""
    text = read_text(CONFIGURATION)
    block = (
        ENGLISH.search(text)[1]
        .replace("locale: en\n", f"locale: {code}\n")
        .replace("name: English\n", f"name: {json.dumps(name, ensure_ascii=False)}\n")
    )
    names = NAME.sub(lambda name: f"{name[1]} {name[2].upper()}{name[3]}", NAMES.search(text)[0])
    block = re.sub(r" *default: true\n", "", block).replace("          extra:\n", f"{names}          extra:\n", 1)
    return LANGUAGES_END.sub(lambda _: f"\n{block.rstrip()}\n\n", text, count=1)


def with_columns(path, *names):
    """A CSV file with more columns, to be filled in."""
    head, *rows = csv.reader(io.StringIO(read_text(path)))
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(
        [[*head, *names], *([*row, *("" for _ in names)] for row in rows)]
    )
    return written.getvalue()


def untranslated(english):
    """A page without a body, which shows the English text."""
    front = BUILDS_ON.sub("", f"{FRONT_MATTER.match(read_text(english))[1]}\n")
    return f"---\n{front}behind: {ALL}\n---\n"


def main(arguments):
    parser = argparse.ArgumentParser(prog="nox -s new_language --", description=__doc__.partition(":")[0])
    parser.add_argument("code", help="such as ja, or pt-BR")
    parser.add_argument("name", help="in its own letters, such as 日本語")
    options = parser.parse_args(arguments)
    add(options.code, options.name)
    print(
        f"{options.name} is there. Next: translate its words in mkdocs.yml and its columns in languages/*.csv, write "
        f"languages/style.{options.code}.md, then page after page in docs/{options.code}; each time, "
        f"nox -s translations -- --accept masks/causal --lang {options.code}"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SourceError as error:
        sys.exit(str(error))
