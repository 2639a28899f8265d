"""The glossary for readers: the first mention of a term on a page leads to its entry, and carries its sentence.

theme/assets/terms.js shows the sentence to whoever points at the link; theme/glossary.html lists the entries.
"""

import html
import re
from collections import Counter
from dataclasses import dataclass

from tools.languages.glossary import HAN, Finder, read_glossary
from tools.site.body import change_text

NO_PROSE = re.compile(r"(<(?:(a|button|code|h[1-4]|math|pre|summary|svg)\b.*?</\2>|[^>]*>))", re.S)
TWO_SENSES = {"memory"}  # of the encoder, and of the GPU


@dataclass(frozen=True)
class Entry:
    """A term as the readers of one language look it up; `names` are the other words of the other languages."""

    id: str
    name: str
    says: str
    names: dict
    where: str

    @property
    def letter(self) -> str:
        return alphabetical(self)[0].upper()


class Terms:
    """The terms of a glossary that have a sentence for the readers of a language, or in English while it has none."""

    def __init__(self, path, language, others):
        terms = read_glossary(path)
        self.language = language = language if any(term.says(language) for term in terms) else "en"
        said = [term for term in terms if term.says(language)]
        entries = {term: entry(term, language, others) for term in said}
        self.entries = sorted(entries.values(), key=alphabetical)
        self.says = {term.id: term.says(language) for term in said}
        owners = Counter(form for term in said for form in term.forms(language))
        unclear = TWO_SENSES | {form for form, count in owners.items() if count > 1}
        clear = [term for term in said if unclear.isdisjoint(term.forms(language))]
        # The terms without a sentence are found, too, so that "attention score" is not "attention".
        self.places = Finder([*(term for term in terms if term not in said), *clear], language, language).places

    def link(self, body, glossary):
        """A page's body with the first mention of each term as a link to the page `glossary`."""
        return change_text(body, NO_PROSE, lambda prose: self.linked(prose, glossary))

    def linked(self, text, glossary):
        pieces, done, linked = [], 0, set()
        for start, end, term in self.places(text):
            if term.id in self.says and term.id not in linked:
                says = html.escape(self.says[term.id])
                link = f'<a class="term" href="{glossary}#{term.id}" title="{says}">{text[start:end]}</a>'
                pieces += text[done:start], link
                done = end
                linked.add(term.id)
        return "".join((*pieces, text[done:]))


def entry(term, language, others):
    name = term.cells[language]
    names = {other: term.cells[other] for other in others if term.cells.get(other) not in (None, "", name)}
    return Entry(term.id, name, term.says(language), names, term.cells["where"])


def alphabetical(entry):
    """By the name; where that has no alphabet, by the English one."""
    return (entry.names["en"] if HAN.match(entry.name) else entry.name).lower()
