"""What the site knows of its pages before any is drawn."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import urljoin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from nbformat import NotebookNode

from tools.cells.record import Entry, Record, badges, read_records, still_verified
from tools.cells.source import Cell, SourceError, nearest, read_text, resolve
from tools.labs import notebooks
from tools.languages import configuration, markdown
from tools.languages.slips import refuse_slips
from tools.site import plain
from tools.site.files import ROOT, own_cells, relative

WORD = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+")  # a Han character, or a word of letters
I18nFile = Any  # a file of MkDocs with what static-i18n puts on it: its locale, its path without the language


@dataclass(frozen=True)
class SitePage:
    """A page in one language.

    `source` is the page whose text it shows. `behind` names its sections whose English is newer, or is ALL.
    `exercises` are the minutes of each, by the ids of their sections.
    `asked` is what people ask of its sections. `own_cells` are those of its snippet file; `figures` are those of a lab
    as SVG, by the names of the cells that draw them. `badges` say what ran, `ran_on` where some of its cells did.
    `notebook`, `unsolved` (it without solutions) and `markdown` are what lies beside it. To read it takes about so many
    `minutes`.
    """

    slug: str
    title: str
    description: str
    url: str
    address: str
    source: markdown.Page
    behind: Sequence[str] | str
    builds_on: Sequence[str]
    exercises: Mapping[str, int]
    asked: Sequence[markdown.Entry]
    cells: Sequence[Cell]
    own_cells: Sequence[Cell]
    figures: Mapping[str, Sequence[str]]
    badges: Mapping[str, Entry]
    ran_on: Mapping[str, str]
    notebook: str | None
    unsolved: str | None
    markdown: str
    minutes: int

    @property
    def notebook_name(self) -> str:
        return f"{self.slug.rpartition('/')[2]}.ipynb"

    @property
    def unsolved_name(self) -> str:
        return self.notebook_name.replace(".", "-without-solutions.")


@dataclass(frozen=True)
class Edition:
    """The site in one language: its pages by their files, those of the nav by their slugs and by their chapters."""

    pages: Mapping[str, SitePage]
    in_nav: Mapping[str, SitePage]
    chapters: Sequence[tuple[str, Sequence[SitePage]]]
    loose: Sequence[SitePage]  # outside the chapters


def read_edition(nav: Navigation, config: MkDocsConfig, files: Files, language: str) -> Edition:
    """Read all pages of a language; `SourceError` where one is not as it must be, or not there."""
    records = read_records(relative(ROOT / "verified"))
    order: list[I18nFile] = [page.file for page in nav.pages]
    for file in order:
        if file.locale != language:  # static-i18n would show the English page
            rule = "every page of the nav stands in every language"
            alone = f"one language alone: nox -s serve -- --lang {file.locale}"
            raise SourceError(f"docs/{language}/{file.norm_src_uri} is missing: {rule} ({alone})")
    all_files = dict.fromkeys([*order, *files.documentation_pages()])
    pages = {file.src_uri: read_page(file, config, files, records) for file in all_files}

    def known(items: Iterable[Any]) -> list[SitePage]:
        return [pages[item.file.src_uri] for item in items if not item.children]

    chapters = [(item.title, known(item.children)) for item in nav.items if item.children]
    return Edition(pages, {page.slug: page for page in known(nav.pages)}, chapters, known(nav.items))


def i18n_of(config: MkDocsConfig) -> Any:
    """The plugin static-i18n, which has no types."""
    return config.plugins["i18n"]


def refuse_misspelt(mkdocs: Path, pages: Iterable[I18nFile]) -> None:
    """`SourceError` for a page of the nav that is not there; MkDocs takes it for a link."""
    known = [page.norm_src_uri for page in pages]
    for file in configuration.read(mkdocs).files:
        if file not in known:
            line = read_text(mkdocs).partition(file)[0].count("\n") + 1
            fix = f"write the name of a file in docs/en{nearest(file, known)}"
            raise SourceError(f"{mkdocs}:{line}: the nav names {file!r}, which is no page; {fix}")


def read_page(file: I18nFile, config: MkDocsConfig, files: Files, records: Mapping[str, Record]) -> SitePage:
    """What the site knows of a page."""
    slug, address = file.norm_src_uri.rpartition(".")[0], urljoin(config.site_url, file.url)
    words = config.extra["text"]
    written, source, english = texts(file, slug, config)
    cells = resolve(source.path, relative(ROOT / "snippets"))
    own, link = own_cells(relative(ROOT / f"snippets/{slug}.md")), linking(file, config, files)
    figures = notebooks.stored_figures(relative(file.abs_src_path)) if file.src_uri.endswith(".ipynb") else {}
    ran_on = places_of_runs(slug, own, records, words) | places_of_figures(figures, words)
    notebook = partial(notebooks.notebook, source, cells, link, figures, ran_on)
    return SitePage(
        slug=slug,
        title=(file.page.title if file.page else "") or source.title,
        description=written.front.get("description") or source.front["description"],
        url=file.url.removeprefix("./"),
        address=address,
        source=source,
        behind=written.front.get("behind", []),
        builds_on=english.front.get("builds_on", []),
        exercises=english.front.get("exercises", {}),
        asked=tuple(dict.fromkeys((*source.asks, *source.aliases, *english.aliases))),
        cells=cells,
        own_cells=own,
        figures={name: [output.data[notebooks.SVG] for output in outputs] for name, outputs in figures.items()},
        badges=badges(slug, own, records),
        ran_on=ran_on,
        notebook=notebooks.dump(notebook()) if cells else None,
        unsolved=notebooks.dump(notebook(solved=False)) if notebooks.solutions(source) else None,
        markdown=plain.page(source, cells, address, link, ran_on),
        minutes=minutes(source, config.extra["words_a_minute"]),
    )


def places_of_runs(
    slug: str, cells: Sequence[Cell], records: Mapping[str, Record], words: Mapping[str, str]
) -> dict[str, str]:
    """By the name of each cell that needs a device: a sentence that says whether, where and when it ran there."""
    sentences = {}
    for cell in (cell for cell in cells if cell.needs):
        entry = records.get(cell.needs, {}).get(slug)
        sentence = words["ran_on" if cell in still_verified(entry, cells, cell.needs) else "not_run"]
        known = {**(entry or {}), "name": entry and entry["device"], "device": cell.needs.upper()}
        sentences[cell.name] = sentence.format(**known)
    return sentences


def places_of_figures(figures: Mapping[str, Sequence[NotebookNode]], words: Mapping[str, str]) -> dict[str, str]:
    """By the name of each cell of a lab that measures: a sentence that says where and when its figures were drawn."""
    facts = {name: outputs[0].metadata.get("measured") for name, outputs in figures.items()}
    return {name: words["measured"].format(**known) for name, known in facts.items() if known}


def minutes(source: markdown.Page, words_a_minute: int) -> int:
    """How long a page takes, about: its words at the pace of a reader, and a minute for each cell; folds stay shut."""
    blocks = [block for block in source.blocks if not block.folded]
    words = sum(len(WORD.findall(block.words)) for block in blocks)
    return round(words / words_a_minute) + sum(block.kind == "cell" for block in blocks)


def texts(file: I18nFile, slug: str, config: MkDocsConfig) -> tuple[markdown.Page, markdown.Page, markdown.Page]:
    """A page as it is written, the page whose text it shows, and the English page; that of a lab is its Markdown."""
    path = relative(Path(file.abs_src_path).with_suffix(".md"))
    english = relative(f"{config.docs_dir}/en/{slug}.md")
    written = markdown.read(path)
    original = markdown.read(english) if english.is_file() else written
    source = original if written.front.get("behind") == markdown.ALL else written
    refuse_slips(source)
    return written, source, original


def linking(file: I18nFile, config: MkDocsConfig, files: Files) -> Callable[[str], str]:
    """What makes a whole address of the target of a link that leads from a page to another file."""

    def absolute(target: str) -> str:
        path, mark, anchor = target.partition("#")
        other = files.get_file_from_path(normpath(join(dirname(file.src_uri), path))) if path else None
        return f"{urljoin(config.site_url, other.url)}{mark}{anchor}" if other else target

    return absolute
