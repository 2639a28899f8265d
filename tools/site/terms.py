"""The glossary for readers: the first mention of a term on a page leads to its entry, and carries its sentence.

theme/assets/terms.js shows the sentence to whoever points at the link; theme/glossary.html lists the entries.
"""

import html
from collections import Counter, defaultdict
from collections.abc import Collection
from operator import itemgetter
from pathlib import Path
from typing import Any

from tools.languages.glossary import HAN, Finder, Term, read_glossary
from tools.languages.markdown import Entry
from tools.site.tree import Node, change_texts, replace, texts

NO_PROSE = {"a", "button", "code", "h1", "h2", "h3", "h4", "math", "pre", "summary", "svg"}
TWO_SENSES = {"memory"}  # of the encoder, and of the GPU


class Terms:
    """The terms of a glossary that have a sentence for the readers of a language, or in English while it has none."""

    def __init__(self, path: Path, language: str, others: Collection[str]) -> None:
        terms = read_glossary(path)
        self.language = language = language if any(term.says(language) for term in terms) else "en"
        explained = [term for term in terms if term.says(language)]
        self.entries = sorted((entry(term, language, others) for term in explained), key=itemgetter("place"))
        self.sentences = {term.id: term.says(language) for term in explained}
        owners = Counter(form for term in explained for form in term.forms(language))
        unclear = TWO_SENSES | {form for form, count in owners.items() if count > 1}
        clear = [term for term in explained if unclear.isdisjoint(term.forms(language))]
        # The terms without a sentence are found, too, so that "attention score" is not "attention".
        self.places = Finder([*(term for term in terms if term not in explained), *clear], language, language).places

    def link(self, body: Node, glossary: str) -> None:
        """Make the first mention of each term on a page a link to the page `glossary`."""
        change_texts([*texts(body, without=NO_PROSE)], lambda prose: self.linked(prose, glossary), replace)

    def linked(self, prose: str, glossary: str) -> str:
        """Some texts as HTML that differs from them where a term is."""
        pieces: list[str] = []
        done, linked = 0, set()
        for start, end, term in self.places(prose):
            if term.id in self.sentences and term.id not in linked:
                sentence = html.escape(self.sentences[term.id])
                link = f'<a class="term" href="{glossary}#{term.id}" title="{sentence}">{prose[start:end]}</a>'
                pieces += [html.escape(prose[done:start], quote=False), link]
                done = end
                linked.add(term.id)
        return "".join((*pieces, html.escape(prose[done:], quote=False)))


def introduced(path: Path, language: str, taken: Collection[str]) -> dict[str, list[Entry]]:
    """By pages, the terms that they introduce, each with its section, but for those that are `taken`."""
    pages = defaultdict[str, list[Entry]](list)
    for term in read_glossary(path):
        slug, _, section = term.cells["where"].partition("#")
        forms = term.forms(language)[:1] if section else []
        pages[slug] += [Entry(section, form, term.line) for form in forms if form.casefold() not in taken]
    return pages


def entry(term: Term, language: str, others: Collection[str]) -> dict[str, Any]:
    """A term as the readers of one language look it up; `names` are the other words of the other languages.

    Its place is that of its name; where that has no alphabet, that of the English one.
    """
    name = term.cells[language]
    names = {other: term.cells[other] for other in others if term.cells.get(other) not in (None, "", name)}
    place = (names["en"] if HAN.match(name) else name).lower()
    known = {"id": term.id, "name": name, "names": names, "says": term.says(language), "where": term.cells["where"]}
    return known | {"place": place, "letter": place[0].upper()}
