"""Write the search index of the built site: Pagefind, one index per language, fetched on the first search.

What is found is a section, so Pagefind reads a copy of the site in which each section is a page. It knows words by
their spaces, which 因果掩码, "l’attenzione" and `scores.masked_fill` lack, so the copy has one more space at each
boundary of these, marked by a word joiner. theme/assets/find.js parts a query likewise, and takes the marked spaces out
of what it shows.

The copy has, too, what askers say: the questions and aliases above each page, at the end of the section that answers.
Beside the index lie a list of all sections with their names, by which find.js puts what is found in order before it
fetches any text, and one of its words, among which it looks for a mistyped one.
"""

import gzip
import html
import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pagefind_bin import get_executable
from selectolax.lexbor import LexborHTMLParser

from tools.cells.source import SourceError
from tools.languages.markdown import TOP, Entry
from tools.site.tree import GAP, Node, change_texts, replace, texts

# What is worth less than a section that explains: a list that leads to it, what repeats it, what asks about it.
WORTH = {"exercise": 0.5, "recap": 0.5, "questions": 0.95}
WORTH_OF_A_LIST = 0.1
# Pagefind would leave these out itself, and take longer.
UNREAD = "a.headerlink, svg, wbr, span.c1"
# A formula whose signs do not stand in one line would say something else: 1/E for one over the root of E.
FORMULA = "math:has(mfrac, mover, mroot, msqrt, msubsup, msup, munder, munderover, mtable)"
HAN = r"[\u3000-\u9fff\uff00-\uffef]"  # and its punctuation
INSIDE = rf"[’'.](?<=[\w{GAP}].){GAP}*(?=[^\W\d])"
BESIDE = rf"{HAN}{GAP}*(?=[^\s{GAP}])|[^\s{GAP}]{GAP}*(?={HAN})"
BOUNDARY = {False: re.compile(INSIDE), True: re.compile(f"{INSIDE}|{BESIDE}")}
SPACE = "\u2060 "
UNSEEN = "\u2063"  # behind it stand words that are found, but not shown
QUOTE = "td:first-child > code, summary:has(> code)"
WORDS = re.compile(r"\b[a-z]{2,}\b|[<>]")
WORD = re.compile(rf"(?:(?!{HAN}|\d)\w)(?:(?!{HAN})\w){{2,}}")


@dataclass(frozen=True)
class Section:
    """A section: its id, "" above the first heading with one, its title, what it is worth, and what else names it."""

    name: str
    title: str
    worth: float
    names: Sequence[str]

    @property
    def file(self) -> str:
        """Its page in the copy."""
        return f"{self.name or 'index'}.html"


@dataclass(frozen=True)
class Page:
    url: str
    chapter: str
    sections: list[Section] = field(default_factory=list)

    def listed(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """What find.js reads of it; each section begins with the name of its text."""
        rows = [
            [keys[f"/{self.url}{one.name and one.file}"], one.name, one.title, one.worth, *one.names]
            for one in self.sections
        ]
        return {"url": self.url, "chapter": self.chapter, "sections": rows}


def index(site: Path | str, asked: Mapping[str, Sequence[Entry]], introduced: Mapping[str, Sequence[Entry]]) -> None:
    """Index every section of every built page that has a `data-pagefind-body`, with what is `asked` at its address, and
    the terms that are `introduced` there."""
    output, words = Path(site, "pagefind"), defaultdict[str, Counter[str]](Counter)
    pages = defaultdict[str, list[Page]](list)
    with TemporaryDirectory() as copy:
        for path in sorted(Path(site).rglob("*.html")):
            tree, folder = LexborHTMLParser(path.read_text("utf-8")), path.relative_to(site).parent
            url = f"{folder.as_posix()}/".removeprefix("./")
            for article in tree.css("article[data-pagefind-body]"):
                language = tree.css("html")[0].attrs.sget("lang")
                page = Page(url, article.attributes.get("data-chapter") or "")
                Path(copy, folder).mkdir(parents=True, exist_ok=True)
                for section, text in sections(article, asked.get(url, ()), introduced.get(url, ())):
                    Path(copy, folder, section.file).write_text(f'<html lang="{language}">{text}', encoding="utf-8")
                    words[language].update(words_of(text))
                    page.sections.append(section)
                pages[language].append(page)
        run_pagefind(copy, output)
    keys = fragments(output)
    for language, count in words.items():
        often = sorted((word for word in count if count[word] > 2), key=lambda word: (-count[word], word))
        Path(output, f"words.{language}.txt").write_text(" ".join(often), encoding="utf-8")
        text = json.dumps([page.listed(keys) for page in pages[language]], ensure_ascii=False, separators=(",", ":"))
        Path(output, f"sections.{language}.json").write_text(text, encoding="utf-8")


def run_pagefind(site: str, output: Path) -> None:
    command = [get_executable(), "--site", site, "--output-path", str(output)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SourceError(f"Pagefind could not write the search index: {done.stdout.strip()} {done.stderr.strip()}")
    for unused in output.glob("pagefind-[!e]*"):  # its own dialogs, and a worker
        unused.unlink()
    entry = output / "pagefind-entry.json"  # the only file whose order changes from run to run
    description = json.loads(entry.read_text("utf-8"))
    for language, index in description["languages"].items():
        if not index["wasm"]:  # a browser asks for it by its language, before it knows the description
            shutil.copy(output / "wasm.unknown.pagefind", output / f"wasm.{language}.pagefind")
            index["wasm"] = language
    (output / "wasm.unknown.pagefind").unlink(missing_ok=True)
    entry.write_text(json.dumps(description, sort_keys=True), encoding="utf-8")


def fragments(output: Path) -> dict[str, str]:
    """By the address of each page of the copy, the name under which Pagefind has kept its text."""
    texts = {path.stem: gzip.decompress(path.read_bytes()) for path in output.glob("fragment/*")}
    return {json.loads(text[text.index(b"{") :])["url"]: name for name, text in texts.items()}


def sections(article: Node, asked: Sequence[Entry], terms: Sequence[Entry]) -> Iterator[tuple[Section, str]]:
    """The sections of an article, each with what of it Pagefind is to read."""
    make_readable(article)
    page = ""
    for name, nodes in split(article).items():
        title = next((node.text() for node in nodes if node.tag in ("h1", "h2") and node.id), page)
        page = page or title
        worth = WORTH_OF_A_LIST if "data-list" in article.attributes else WORTH.get(name, 1.0)
        here = name or TOP
        asking = [entry.block.words for entry in asked if entry.section == here]
        called = [term.words for term in terms if term.section == here]
        meta = f'<p><span data-pagefind-meta="title">{html.escape(title)}</span></p>' if title else ""
        text = f"{meta}<article data-pagefind-body>{''.join(node.html or '' for node in nodes)}{unseen(asking)}"
        yield Section(name, title.replace(SPACE, ""), worth, [*asking, *called, *messages(nodes)]), text


def split(article: Node) -> dict[str, list[Node]]:
    """What stands below each heading with an id, and above the first, whatever holds them."""
    for holder in article.css(":not(article):has(h2[id])"):
        holder.unwrap()
    name, parts = "", defaultdict[str, list[Node]](list)
    for node in article.iter(include_text=True):
        name = node.id if node.tag == "h2" and node.id else name
        parts[name].append(node)
    return parts


def make_readable(article: Node) -> None:
    """Make an article what Pagefind is to read."""
    for output in article.css(".output"):
        replace(output, f"<p>{html.escape(sentences(output.text()), quote=False)}</p>")
    for formula in article.css(FORMULA):
        formula.replace_with("…")
    for unread in article.css(UNREAD):
        unread.decompose()
    article.unwrap_tags(["span"])
    for summary in article.css("summary"):  # a question, or a message of torch
        summary.attrs["data-pagefind-weight"] = "3"
    article.merge_text_nodes()  # those of spans that are gone
    change_texts([*texts(article)], space_words, Node.replace_with)


def sentences(output: str) -> str:
    """The lines of an output that are sentences, as messages of torch are; numbers are not looked for."""
    # The signs count for what stands as <All keys matched successfully>.
    return " ".join(line for line in output.splitlines() if is_sentence(line, 4))


def is_sentence(text: str, words: int) -> bool:
    return len(WORDS.findall(text)) > words


def messages(nodes: Sequence[Node]) -> list[str]:
    """The messages that a section explains: the code that begins a row, and titles that quote some."""
    quotes = (quote.text().replace(SPACE, "") for node in nodes if node.is_element_node for quote in node.css(QUOTE))
    return [quote for quote in quotes if is_sentence(quote, 3)]


def space_words(text: str) -> str:
    """Texts with a marked space at each boundary; the last word of a block gets none."""
    return BOUNDARY[bool(re.search(HAN, text))].sub(rf"\g<0>{SPACE}", text)


def unseen(words: Sequence[str]) -> str:
    """Words that are found, but not shown, as HTML at the end of a section."""
    text = html.escape(space_words(". ".join(words)), quote=False)
    return f'<p data-pagefind-weight="10">{UNSEEN} {text}.</p>' if words else ""


def words_of(page: str) -> set[str]:
    """The words among which a mistyped one is looked for."""
    return set(WORD.findall(LexborHTMLParser(page).text(separator=" ").replace(SPACE, "").lower()))
