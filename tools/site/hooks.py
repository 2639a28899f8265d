"""What MkDocs calls while it builds the site. Each hook is thin: the work is done by functions elsewhere in tools/."""

import logging
import sys
from functools import partial
from html import escape
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # MkDocs puts only the folder of this file there

import yaml
from jinja2 import ChoiceLoader, PackageLoader
from mkdocs import utils
from mkdocs.exceptions import Abort
from mkdocs.plugins import event_priority

from tools.cells.source import SourceError
from tools.languages.markdown import ALL
from tools.site import badges, body, curriculum, explorers, files, front, home, labs, plain, search, symbols
from tools.site.cells import Fences, refuse_undrawn, with_cells
from tools.site.files import ROOT, relative
from tools.site.head import finished
from tools.site.mathematics import to_mathml
from tools.site.pages import read_edition
from tools.site.terms import Terms

# static-i18n makes anew what mkdocs-jupyter made of a notebook: without this, its raw JSON is published as the page.
if ".ipynb" not in utils.markdown_extensions:
    utils.markdown_extensions += (".ipynb",)  # type: ignore[assignment]  # MkDocs says how many there are

for chatty in ("static_i18n", "jupyter"):
    logging.getLogger(f"mkdocs.plugins.mkdocs_{chatty}").setLevel(logging.WARNING)

GLOSSARY, MUSEUM = "glossary", "practice/museum"
# What stands below the text of some pages; in a site without this theme they are their text.
ENDS = {
    "map": lambda edition: {"rows": curriculum.rows(edition)},
    "symbols": lambda edition: {"symbols": symbols.index(edition.in_nav.values())},
    "verified": lambda edition: {"table": badges.table(edition.in_nav.values())},
}
TEMPLATES = {"index": "home.html"} | {slug: f"{slug}.html" for slug in (*ENDS, GLOSSARY)}

fences = Fences()
templates = files.Templates()
now = SimpleNamespace()  # what is known in this build, and of the language that is built now


def on_startup(command, dirty):
    now.preview = command == "serve"


def on_build_error(error):
    """Our own errors are a line without a traceback."""
    if isinstance(error, SourceError):
        raise Abort(str(error)) from None


@event_priority(-200)
def on_config(config):
    """After static-i18n has put in the words of the language that is built now."""
    i18n = config.plugins["i18n"]
    if not i18n.building:
        files.forget()
        home.refuse_unknown(config.extra["repository"])
        now.citation = yaml.safe_load(relative(ROOT / "CITATION.cff").read_text("utf-8"))
    del config.theme.dirs[1:]  # or MkDocs would publish what Material brings
    config.mdx_configs["toc"]["permalink_title"] = config.extra["text"]["permalink"]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fences.of_any_language]}
    now.language, now.languages = i18n.current_language, [language.locale for language in i18n.config.languages]
    now.terms = Terms(relative(ROOT / "languages/glossary.csv"), now.language, now.languages)
    now.pictures = body.words_of_pictures(relative(ROOT / "languages/pictures.csv"), now.language)
    now.explorers = explorers.words(relative(ROOT / "languages/explorers.csv"), now.language)


@event_priority(-200)
def on_nav(nav, config, files):
    """After static-i18n has put in the names of the chapters in the language that is built now."""
    now.edition = read_edition(nav, config, files, now.language)
    for item in nav.items:
        item.title = escape(item.title) if item.children else item.title


def here(page):
    return now.edition.pages[page.file.src_uri]


def on_page_read_source(page, config):
    known = here(page)
    return labs.with_places(known.source) if known.is_lab else known.source.text


def on_page_markdown(markdown, page, config, files):
    known = here(page)
    page.meta["template"] = TEMPLATES.get(known.slug, "main.html")
    fences.begin(known.cells, known.ran_on, config.extra["text"])
    return with_cells(markdown, config.mdx_configs["pymdownx.snippets"])


def on_page_content(html, page, config, files):
    known, drawn = here(page), []
    page.title = escape(known.title)
    if known.is_lab:
        drawn, html = labs.figures(html), labs.rendered(page, config, files)
    html = body.whole_code(body.scrolling_tables(to_mathml(html, known.source.path)))
    if known.slug != GLOSSARY and known.behind != ALL:
        html = now.terms.link(html, utils.get_relative_url(now.edition.in_nav[GLOSSARY].url, page.url))
    refuse_undrawn(html, known.source.path, known.cells)
    html = labs.with_figures(body.explain_tints(html, config.extra["text"]["legend"]), drawn, known.source.path)
    words = {} if known.behind == ALL else now.pictures
    return body.inline_pictures(html, relative(ROOT / "docs/assets"), words)


def on_env(env, config, files):
    env.loader = ChoiceLoader([env.loader, PackageLoader("material")])  # icons and words; the frame is our own
    env.trim_blocks = env.lstrip_blocks = True
    env.bytecode_cache = templates
    env.filters["spaced"] = plain.spaced
    env.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    now.env, now.attention = env, front.attention(now.edition.in_nav)
    now.counts = front.counted(now.edition.in_nav.values(), len(now.languages), config.extra["text"])
    now.draw = explorers.drawing(env, relative(ROOT / "verified/explorers"), now.explorers)


def on_page_context(context, page, config, nav):
    """What a page says of others, and what lies beside it: here every page has its title and its sections."""
    known, edition = here(page), now.edition
    museum = utils.get_relative_url(edition.in_nav[MUSEUM].url, page.url)
    content, scripts = explorers.show(page.content, known.source.path, partial(now.draw, museum=museum))
    content = front.say_counted(content, now.counts)
    context.update(here=known, edition=edition, terms=now.terms, content=content, explorers=scripts)
    context.update(bases=curriculum.bases(known, edition.in_nav), older=list(body.older(page.toc, known.behind)))
    if repository := config.extra["repository"]:
        context.update(home=home.links(repository, known), bibtex=home.bibtex(now.citation, known.address))
    context.update(ENDS[known.slug](edition) if known.slug in ENDS else {}, attention=now.attention, counts=now.counts)
    plain.write_beside(page.file.abs_dest_path, now.env, context)
    return context


@event_priority(-50)
def on_post_page(output, page, config):
    return finished(output, page.canonical_url, now.preview)


def on_post_template(output_content, template_name, config):
    """404.html would be written once per language, always to the same place: keep the first."""
    if template_name != "404.html":
        return output_content
    return finished(output_content, "", now.preview) if config.plugins["i18n"].is_default_language_build else ""


@event_priority(-200)
def on_post_build(config):
    """After the last language."""
    if not config.plugins["i18n"].building:
        Path(config.site_dir, "sitemap.xml.gz").unlink()  # no robot asks for it
        files.join([Path(config.site_dir, path) for path in config.extra_css])
        files.minify(Path(config.site_dir, "assets"))
        search.index(config.site_dir, relative(ROOT / "languages/aliases.csv"))
