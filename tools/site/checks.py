"""What must hold before anything is built, and before a page is read."""

import os
import re
import socket
from collections import Counter
from pathlib import Path

from tools.cells.source import SourceError, nearest, read_text
from tools.markdown import read
from tools.translations import CODE, FENCE, FRONT_MATTER, PARTS, blank, line_of

LINKED = ("glossary.md", "verified.md")  # from every page with terms, from every page with cells
UNCLOSED = re.compile(r"^ *(```|~~~)(?:\w|$)|--8<--", re.M)
TARGET = re.compile(r"\]\([^)\s]*\)")
COMMENT = re.compile(r"<!--.*?-->", re.S)
TITLE = re.compile(r"^# \S", re.M)
HEADING = re.compile(r"^#+ .*", re.M)
BLOCK = re.compile(r"^( *)(?:!!!|\?\?\?\+?) .*$", re.M)
TAG = re.compile(r"<(/?)([a-z][a-z0-9]*)((?:\s[^<>]*)?)>", re.I)
PLACES = re.compile(r"\{(\w*)\}")
HANDLER = re.compile(r"\son\w+\s*=", re.I)
VOID = {"area", "br", "col", "hr", "img", "input", "source", "wbr"}


def check_port(host, port):
    """`SourceError` where another program has the port that the preview wants."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SourceError(
                f"port {port} of {host} cannot be used ({error.strerror}); "
                f"choose another: nox -s serve -- -a {host}:{port + 1}, or mkdocs serve -a {host}:{port + 1}"
            ) from None
        except OverflowError:
            raise SourceError(f"there is no port {port}; give one from 1024 to 65535") from None


def check_pages(nav, docs, languages):
    """`SourceError` where a page of the nav is not there in a language, which MkDocs would fill with English."""
    for page in LINKED:
        if page not in nav_pages(nav):
            raise SourceError(f"mkdocs.yml: the nav lacks {page}, to which other pages lead; add it")
    english = Path(docs, "en")
    pages = [path.relative_to(english).as_posix() for path in english.rglob("*")]
    for page, count in Counter(nav_pages(nav)).items():
        if count > 1:
            raise SourceError(f"mkdocs.yml: the nav names {page} {count} times; name each page once")
        if page not in pages:
            raise SourceError(f"mkdocs.yml: the nav names {page}, and docs/en has no such page{nearest(page, pages)}")
        for language in languages:
            path = Path(docs, language, page)
            if not path.is_file():
                raise SourceError(
                    f"{shown(path)} is missing: every page of the nav stands in every language "
                    f"(one language alone: nox -s serve -- --lang {languages[0]})"
                )


def nav_pages(item):
    """The files that a nav names."""
    if isinstance(item, str):
        return [item]
    return [page for part in (item.values() if isinstance(item, dict) else item) for page in nav_pages(part)]


def check_words(said):
    """`SourceError` where the words that mkdocs.yml has for the site in each language are not the same ones.

    `said` are these words by language. Those with a dot are Material's.
    """
    english = flat(said["en"])
    for language, words in said.items():
        theirs, where = flat(words), f"mkdocs.yml: extra.text of {language!r}"
        if missing := sorted(english.keys() - theirs.keys()):
            raise SourceError(f"{where} lacks {missing[0]!r}; write it as in 'en', in words of that language")
        for key, word in theirs.items():
            if not isinstance(word, str):
                raise SourceError(f"{where}: {key!r} is no text; put it between quotes")
            if "." not in key and key not in english:
                raise SourceError(f"{where}: {key!r} is none of the words of 'en'{nearest(key, english)}")
        for key, word in english.items():
            places, wanted = (sorted(PLACES.findall(text)) for text in (theirs[key], word))
            if places != wanted:
                raise SourceError(
                    f"{where}: {key!r} has the places {places}, in 'en' it has {wanted}; make them the same"
                )


def flat(words):
    """Words by their keys, those of a group by `group key`."""
    return {
        f"{key} {part}".strip(): word
        for key, value in words.items()
        for part, word in (value.items() if isinstance(value, dict) else [("", value)])
    }


def check_glossary(nav, docs, path, terms):
    """`SourceError` where a term is introduced by no page of the nav, or by no section of it."""
    sections = {page.rpartition(".")[0]: None for page in nav_pages(nav)}
    for entry in terms.entries:
        slug, _, section = entry.where.partition("#")
        where = f"{path}: {entry.id!r} is introduced on {slug!r}"
        if slug not in sections:
            raise SourceError(f"{where}, which the nav lacks; mend its `where`{nearest(slug, sections)}")
        english = Path(docs, "en", f"{slug}.md")
        if not sections[slug]:
            check_text(english)
            sections[slug] = read(english).sections
        if section not in sections[slug]:
            raise SourceError(f"{where}, which has no section {section!r}{nearest(section, sections[slug])}")


def check_text(path):
    """`SourceError` where a page lacks its title, its description or the id of a section.

    So, too, where something on it is not closed and would swallow what follows, and where it holds a script.
    """
    text, front = read_text(path), read(path).front

    def refuse(position, message):
        raise SourceError(f"{path}:{line_of(text, position)}: {message}")

    if text.startswith("---\n") and not front:
        refuse(0, "the front matter is empty or has no closing ---; write, for example, `description: ...` and ---")
    if front.get("description") in (None, ""):
        refuse(0, "the page has no description; write `description: ...`, a sentence, between --- and --- at its top")
    if not isinstance(front["description"], str):
        refuse(0, "the description is not a text; put it between quotes")
    for block in FENCE.finditer(text):
        if UNCLOSED.search(block[0], block[0].index("\n"), len(block[0].rstrip(" `~"))):
            refuse(block.start(), "the block that begins here is not closed where it ends; close it with ``` on a line")
    prose = FENCE.sub(blank, FRONT_MATTER.sub(blank, text))
    if found := re.search("^ *(?:```|~~~)", prose, re.M):
        refuse(found.start(), "the block that begins here is not closed; close it with ``` alone on a line")
    if not TITLE.search(prose):
        refuse(0, "the page has no title; write it as `# Title`")
    for block in BLOCK.finditer(prose):
        if block[0].count('"') % 2:
            refuse(block.start(), "the title of this block is not closed; write it between two straight quotes")
        if not re.compile(rf"(?:\n[ \t]*)*\n{block[1]}(?: {{4}}|\t)").match(text, block.end()):
            refuse(block.start(), "the text of this block is not below it, indented by four spaces")
    prose = TARGET.sub(blank, COMMENT.sub(blank, CODE.sub(blank, prose)))
    for heading in HEADING.finditer(prose):
        if heading[0].startswith("##") and not re.search(r"\{#(?!cell-)[a-z][a-z0-9-]*\}$", heading[0]):
            refuse(
                heading.start(),
                "a heading ends with an id that all languages share, written as {#row-zero}: small letters, digits "
                "and -, not cell-..., and nothing behind it",
            )
        if PARTS["formula"].search(heading[0]):
            refuse(heading.start(), "menus show a heading, too, and no formula can stand there; write text or code")
    prose = PARTS["formula"].sub(blank, prose)
    if found := re.search(r"(?<!\\)\$", prose):
        refuse(
            found.start(),
            r"the formula that begins here is not closed; close it with $ on its line, or write \$ for the sign itself",
        )
    check_tags(prose, refuse)


def check_tags(prose, refuse):
    """Call `refuse` where HTML in a text is not closed, or is a script."""
    if "<!--" in prose:
        refuse(prose.index("<!--"), "the comment that begins here is not closed; close it with -->")
    opened = []
    for tag in TAG.finditer(prose):
        closes, name = tag[1], tag[2].lower()
        if name == "script" or HANDLER.search(tag[3]):
            refuse(tag.start(), f"a page holds no script; to show it, write `{tag[0]}` between backticks")
        if closes and (not opened or opened.pop()[0] != name):
            refuse(tag.start(), f"{tag[0]} closes nothing here; take it out, or close what stands inside first")
        if not closes and name not in VOID and not tag[3].endswith("/"):
            opened.append((name, tag.start()))
    if opened:
        refuse(opened[-1][1], f"<{opened[-1][0]}> is not closed; close it, or write it between backticks")


def shown(path):
    """A path as people write it."""
    return os.path.relpath(path)
