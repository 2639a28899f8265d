"""Whether a translation says the terms that `languages/glossary.csv` chose for its language.

A row of the glossary is one term: `en`, `it` and `zh` hold its words, brackets explain. A term that readers look up has
one sentence in each of `says_en`, `says_it` and `says_zh`, and in `where` the section that introduces it, such as
`foundations/causal#formula`. Beside each language there may be three more columns, their entries parted by ";":

- `also_it`: other forms that are right: a plural that no rule reaches, a verb, a short form.
- `not_it`: words in which a form stands without meaning the term, as 键 in 关键.
- `avoid_it`: words for the term that no translated page may use.

Where a section of an English page says a term, the section of the translation with the same id has to say it, too; the
part above the first id is the section `top`. Names are no prose: words in italics, links to other sites, what a table
says in both languages. An exception stands in the front matter of the translation, with its reason:

    glossary:
      formula/key: This one is a key of the keyboard.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tools.cells.source import SourceError, read_text, split_lines
from tools.languages import rules
from tools.languages.markdown import Block, Page

HAN = re.compile("[\u4e00-\u9fff]")
Prose = list[tuple[int, str]]  # of each block its line, and its words, with white space in place of all else


@dataclass(frozen=True)
class Term:
    """A row of the glossary: its line, and its cells by column."""

    line: int
    cells: dict[str, str] = field(hash=False)

    @property
    def id(self) -> str:
        return self.cells["id"]

    def says(self, language: str) -> str:
        """The sentence for readers, or nothing."""
        return self.cells.get(f"says_{language}", "")

    def forms(self, *columns: str) -> list[str]:
        """What some columns hold, without explanations."""
        entries = ";".join(self.cells.get(column, "") for column in columns).split(";")
        return [form for entry in entries if (form := re.sub(r" ?\(.*?\)|（.*?）", "", entry).strip())]


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; `SourceError` for one that has too many cells, or too few."""
    rows = list(csv.DictReader(split_lines(read_text(path))))
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise SourceError(f'{path}:{line}: has not one cell for each column; put one with a comma into "..."')
    return rows


def read_glossary(path: Path) -> tuple[Term, ...]:
    """The terms of the glossary; `SourceError` for a row that is none."""
    terms = tuple(Term(line, row) for line, row in enumerate(read_rows(path), start=2))
    languages = [column for column in terms[0].cells if "_" not in column and column not in ("id", "where")]
    begun = [column for column in languages if any(term.cells[column] for term in terms)]  # a new language is empty
    lines: dict[str, int] = {}
    for term in terms:
        for_readers = ["where", *(f"says_{language}" for language in begun)] if term.says("en") else []
        for column in ("id", *begun, *for_readers):
            if not term.forms(column):
                raise SourceError(f"{path}:{term.line}: the column {column!r} is empty; write it for {term.id!r}")
        for name in (f"the id {term.id}", *term.forms("en", "also_en")):
            if name in lines:
                raise SourceError(f"{path}:{term.line}: {name!r} stands in line {lines[name]}, too; keep one of them")
            lines[name] = term.line
    return terms


def inflected(word: str, language: str) -> str:
    """A pattern for the forms of a word."""
    for ending, forms in rules.read(language).endings:
        if match := ending.search(word):
            return re.escape(word[: match.start()]) + match.expand(forms)
    return re.escape(word)


@cache
def pattern(form: str, language: str) -> re.Pattern[str]:
    """What finds a form. Its capitals count; each space may be a line break, or none beside a Han character."""
    *first, last = form.split(" ")
    first = [re.escape(word) if language == "en" else inflected(word, language) for word in first]
    start = "" if HAN.match(form[0]) else r"(?<!\w)"
    end = "" if HAN.match(form[-1]) else r"(?!\w)"
    gap = r"\s*" if HAN.search(form) else r"(?:\s+|(?<=’))"
    case = "i" if form.islower() else ""
    return re.compile(f"{start}(?{case}:{gap.join((*first, inflected(last, language)))}){end}")


def beginning(form: str) -> str:
    """The part of a form that no inflection changes, in small letters."""
    first = form.split(" ")[0]
    return first[: max(1, len(first) - 2)].lower()


class Finder:
    """Finds terms in sections of a language: the forms in `columns`, but where a `not_` form is as long."""

    def __init__(self, terms: Iterable[Term], language: str, *columns: str):
        self.language = language
        self.owners = {form: term for term in terms for form in term.forms(*columns)}
        others = [form for term in terms for form in term.forms(f"not_{language}")] if self.owners else []
        self.forms = {form: beginning(form) for form in (*others, *self.owners)}

    def places(self, text: str) -> Iterator[tuple[int, int, Term]]:
        """Each place in order, as its start, its end and the term; of two that overlap, the first, or the longest."""
        lower = text.lower()
        matches: list[tuple[int, int, bool, str]] = []
        for form, part in self.forms.items():
            finds, at = pattern(form, self.language), lower.find(part)
            while at >= 0:  # patterns are slow where they search
                if place := finds.match(text, at):
                    matches.append((at, -place.end(), form in self.owners, form))
                at = lower.find(part, at + 1)
        taken = 0
        for start, end, owned, form in sorted(matches):
            if start >= taken:
                taken = -end
                if owned:
                    yield start, taken, self.owners[form]

    def __call__(self, prose: Prose) -> Iterator[tuple[int, str, Term]]:
        """The same of a section, each as its line, its words and the term."""
        for line, words in prose:
            for start, end, term in self.places(words):
                yield line + words.count("\n", 0, start), words[start:end], term


class Glossary:
    """The terms of a file, and what finds them."""

    def __init__(self, path: Path):
        self.path, self.terms = path, read_glossary(path)
        self.finder = cache(Finder)

    def english(self, prose: Prose) -> Iterator[tuple[int, str, Term]]:
        return self.finder(self.terms, "en", "en", "also_en")(prose)

    def avoided(self, prose: Prose, language: str) -> Iterator[tuple[int, str, Term]]:
        return self.finder(self.terms, language, f"avoid_{language}")(prose)

    def chosen(self, prose: Prose, language: str, term: Term) -> Iterator[tuple[int, str, Term]]:
        return self.finder((term,), language, language, f"also_{language}")(prose)


def prose_of(page: Page, beside: Page | None = None) -> dict[str, Prose]:
    """What the sections of a page say, by their ids; beside a page in another language, without their names."""
    cells = beside.of("table cell") if beside else ()
    in_both = {cell.words for cell in cells if " " in cell.words}  # a single word of a table is to be translated
    prose: dict[str, Prose] = {name: [] for name in page.sections}
    for block in page.blocks:
        if block.pieces and block.words not in in_both:
            prose[block.section].append((block.line, words_of(block, beside is None)))
    return prose


def words_of(block: Block, with_names: bool) -> str:
    """The words of a block on their lines, perhaps without those in italics and of links to other sites."""
    words, names = "", [False]
    for piece in block.pieces:
        if piece.kind in ("link", "mark"):
            names.append(names[-1] or (not with_names and (piece.text == "*" or piece.text.startswith("http"))))
        elif piece.kind in ("end of link", "end of mark"):
            names.pop()
        elif piece.kind == "words" and not names[-1]:
            words += piece.text
        elif piece.kind in ("words", "code", "formula", "break"):
            words += "\n" if piece.kind == "break" else " " + "\n" * piece.text.count("\n")
    return words


def faults(original: Page, translation: Page, language: str, glossary: Glossary) -> Iterator[tuple[str, str]]:
    """What is wrong with the terms of a translation: a sentence for each, behind `section-id/term-id`."""
    ours, theirs, with_names = prose_of(original, translation), prose_of(translation, original), prose_of(translation)
    description = str(translation.front.get("description", ""))  # search engines show it
    theirs["description"] = [(translation.line_of("description"), description)]
    for name, prose in theirs.items():
        for line, words, term in glossary.avoided(prose, language):
            wanted, there = f"{term.cells[language]!r} for {term.cells['en']!r}", f"{glossary.path}:{term.line}"
            yield f"{name}/{term.id}", f"{translation.path}:{line}: found {words!r}, wanted {wanted} ({there})"
    for name in ours.keys() & with_names.keys():
        first = {term: (line, words) for line, words, term in reversed([*glossary.english(ours[name])])}
        for term, (line, words) in first.items():
            if not any(glossary.chosen(with_names[name], language, term)):
                wanted = f"wanted {term.cells[language]!r} for {' '.join(words.split())!r} ({original.path}:{line})"
                here = f"{translation.path}:{translation.sections[name].line}"
                yield f"{name}/{term.id}", f"{here}: found nothing, {wanted}"


def refuse_other_terms(original: Page, translation: Page, language: str, glossary: Glossary) -> None:
    """`SourceError` naming each term that a translation lacks or avoids, and each exception that excuses nothing."""
    excused = translation.front.get("glossary") or {}
    by_key = list(faults(original, translation, language, glossary))
    sentences = [sentence for key, sentence in by_key if key not in excused]
    for key, reason in excused.items():
        if key not in dict(by_key) or not reason:
            needless = f"the exception {key!r} excuses nothing, or gives no reason; take it out"
            sentences.append(f"{translation.path}:1: {needless}")
    if sentences:
        raise SourceError("\n".join(sentences))
