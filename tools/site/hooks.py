"""What MkDocs calls while it builds the site. Each hook is thin: the work is done by functions elsewhere in tools/."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # MkDocs puts only the folder of this file there

from jinja2 import ChoiceLoader, Environment, PackageLoader
from mkdocs import utils
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from tools.cells.source import SourceError
from tools.languages.markdown import Entry
from tools.site import files, home, overview, plain, search
from tools.site.body import GLOSSARY, Drawing, older
from tools.site.cells import FENCE, with_places
from tools.site.files import ROOT, relative
from tools.site.head import policy, without_indents
from tools.site.pages import Edition, SitePage, i18n_of, read_edition, refuse_misspelt
from tools.site.terms import introduced

# static-i18n makes anew what mkdocs-jupyter made of a notebook: without this, its raw JSON is published as the page.
if ".ipynb" not in utils.markdown_extensions:
    utils.markdown_extensions += (".ipynb",)  # type: ignore[assignment]  # MkDocs says how many there are
logging.getLogger("mkdocs.plugins.mkdocs_static_i18n").setLevel(logging.WARNING)

# What some pages show besides their text; in a site without this theme they are their text.
ENDS: Mapping[str, Callable[[Edition], Mapping[str, Any]]] = {
    "exercises": lambda edition: {"chapters": list(overview.exercises(edition))},
    "map": lambda edition: {"rows": list(overview.rows(edition))},
    "symbols": lambda edition: {"symbols": overview.index(edition.in_nav.values())},
    "verified": lambda edition: overview.with_cells(edition.in_nav.values()),
}
TEMPLATES = {slug: f"{slug}.html" for slug in (*ENDS, GLOSSARY, "questions")} | {"index": "home.html"}


class Now:
    """What is known in this build: the last two of the language that is built now."""

    preview = False
    asked: dict[str, Sequence[Entry]]  # by addresses
    introduced: dict[str, Sequence[Entry]]
    edition: Edition
    drawing: Drawing


now = Now()


def on_startup(command: str, dirty: bool) -> None:
    now.preview = command == "serve"


def on_build_error(error: Exception) -> None:
    """Our own errors are a line without a traceback."""
    if isinstance(error, SourceError):
        raise Abort(str(error)) from None


@event_priority(-200)
def on_config(config: MkDocsConfig) -> None:
    """After static-i18n has put in the words of the language that is built now."""
    if not i18n_of(config).building:
        home.refuse_unknown(config.extra["repository"])
        now.asked, now.introduced = {}, {}
    del config.theme.dirs[1:]  # or MkDocs would publish what Material brings
    config.mdx_configs["toc"]["permalink_title"] = config.extra["text"]["permalink"]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [FENCE]}


@event_priority(-200)
def on_files(files: Files, config: MkDocsConfig) -> None:
    refuse_misspelt(relative(config.config_file_path), files.documentation_pages())
    for path in (ROOT / "snippets").glob("*.py"):  # files to download, which pages show section by section
        files.append(File.generated(config, path.name, abs_src_path=str(path)))


@event_priority(-200)
def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """After static-i18n has put in the names of the chapters in the language that is built now."""
    language = i18n_of(config).current_language
    now.edition = read_edition(nav, config, files, language)
    pages = now.edition.in_nav.values()
    taken = {entry.words.casefold() for page in pages for entry in page.asked}
    terms = introduced(relative(ROOT / "languages/glossary.csv"), language, taken)
    now.asked |= {page.url: page.asked for page in pages}
    now.introduced |= {page.url: terms[page.slug] for page in pages}
    for item in nav.items:
        item.title = escape(item.title) if item.children else item.title


def here(page: Page) -> SitePage:
    return now.edition.pages[page.file.src_uri]


@event_priority(-200)
def on_pre_page(page: Page, config: MkDocsConfig, files: Files) -> None:
    """After mkdocs-jupyter, which would draw a lab by itself; here it is drawn as other pages are."""
    vars(page).pop("render", None)


def on_page_read_source(page: Page, config: MkDocsConfig) -> str:
    """A lab is read from the Markdown beside its notebook, and a page without a text from the English one."""
    return with_places(here(page).source)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    page.title, page.meta["template"] = escape(here(page).title), TEMPLATES.get(here(page).slug, "main.html")


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> None:
    env.loader = ChoiceLoader([env.loader, PackageLoader("material")])  # icons and words; the frame is our own
    env.trim_blocks = env.lstrip_blocks = True
    env.filters |= {"policy": policy, "spaced": plain.spaced, "urljoin": urljoin}
    env.globals["preview"] = now.preview
    env.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    now.drawing = Drawing(now.edition, env, config)


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation) -> None:
    """What a page says of others, and what lies beside it: here every page has its title and its sections."""
    known, edition = here(page), now.edition
    content, scripts = now.drawing.article(known, page.content)
    context.update(here=known, edition=edition, terms=now.drawing.terms, content=content, explorers=scripts)
    context.update(bases=overview.bases(known, edition.in_nav), older=list(older(page.toc, known.behind)))
    context.update(repository=config.extra["repository"], home=home, citation=now.drawing.citation)
    context.update(ENDS[known.slug](edition) if known.slug in ENDS else {})
    plain.write_beside(page.file.abs_dest_path, now.drawing.env, context)


@event_priority(-50)
def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return without_indents(output)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """404.html would be written once per language, always to the same place: keep the first."""
    if template_name != "404.html":
        return output_content
    return without_indents(output_content) if i18n_of(config).is_default_language_build else ""


@event_priority(-200)
def on_post_build(config: MkDocsConfig) -> None:
    """After the last language."""
    if not i18n_of(config).building:
        Path(config.site_dir, "sitemap.xml.gz").unlink()  # no robot asks for it
        files.join([Path(config.site_dir, path) for path in config.extra_css])
        files.minify(Path(config.site_dir, "assets"))
        search.index(config.site_dir, now.asked, now.introduced)
