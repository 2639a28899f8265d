"""From the HTML that Markdown gives of a page to that of its article: its tree is parsed, changed and written here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jinja2 import Environment
from mkdocs import utils
from mkdocs.config.defaults import MkDocsConfig

from tools.languages.markdown import ALL
from tools.languages.pictures import words_of_pictures
from tools.site import body, explorers
from tools.site.cells import drawings, fill
from tools.site.files import ROOT, relative
from tools.site.mathematics import to_mathml
from tools.site.overview import counted
from tools.site.pages import Edition, I18n, SitePage
from tools.site.terms import Terms
from tools.site.tree import parse, written

GLOSSARY, MUSEUM = "glossary", "practice/museum"


def drawing(edition: Edition, env: Environment, config: MkDocsConfig) -> "Drawing":
    """What draws the pages of the language that is built now."""
    i18n: I18n = config.plugins["i18n"]
    tables, words = relative(ROOT / "languages"), config.extra["text"]
    language, languages = i18n.current_language, [one.locale for one in i18n.config.languages]
    labels = explorers.words(tables / "explorers.csv", language)
    return Drawing(
        edition,
        words,
        terms=Terms(tables / "glossary.csv", language, languages),
        pictures=words_of_pictures(tables / "pictures.csv", language),
        explorer=explorers.drawing(env, relative(ROOT / "verified/explorers"), labels),
        counts=counted(edition.in_nav.values(), len(languages), words),
    )


@dataclass(frozen=True)
class Drawing:
    """What draws the pages of one language: its words, its terms, the words of pictures, what it counts."""

    edition: Edition
    words: Mapping[str, Any]
    terms: Terms
    pictures: Mapping[str, str]
    explorer: explorers.Draw
    counts: Sequence[Sequence[str]]

    def article(self, page: SitePage, html: str) -> tuple[str, list[str]]:
        """The article of a page, and the scripts of its explorers."""
        tree, path, own = parse(html), page.source.path, page.behind != ALL
        fill(tree, drawings(page.source, page.cells, page.figures, page.ran_on, self.words), path)
        to_mathml(tree, path)
        body.offer_commands(tree, self.words)
        body.scroll_tables(tree)
        body.keep_code(tree)
        if own and page.slug != GLOSSARY:
            self.terms.link(tree, self.way(page, GLOSSARY))
        body.explain_tints(tree, self.words["legend"])
        body.inline_pictures(tree, relative(ROOT / "docs/assets"), self.pictures if own else {})
        body.enlarge_words(tree)
        body.say_counted(tree, self.counts)
        scripts = explorers.show(tree, path, partial(self.explorer, museum=self.way(page, MUSEUM)))
        return written(tree), scripts

    def way(self, page: SitePage, slug: str) -> str:
        """The address of a page, seen from another."""
        return utils.get_relative_url(self.edition.in_nav[slug].url, page.url)
