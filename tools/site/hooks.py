"""What MkDocs calls while it builds the site. Each hook is thin: the work is done by functions elsewhere in tools/."""

import logging
import sys
from functools import partial
from html import escape
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urljoin

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # MkDocs puts only the folder of this file there

import yaml
from jinja2 import ChoiceLoader, PackageLoader
from mkdocs import utils
from mkdocs.exceptions import Abort
from mkdocs.plugins import event_priority

from tools.cells.source import SourceError
from tools.languages.markdown import ALL
from tools.languages.pictures import words_of_pictures
from tools.site import badges, curriculum, explorers, files, front, home, plain, search, symbols
from tools.site import body as change
from tools.site.cells import FENCE, drawings, fill, with_places
from tools.site.files import ROOT, relative
from tools.site.head import policy, without_indents
from tools.site.mathematics import to_mathml
from tools.site.pages import read_edition
from tools.site.terms import Terms
from tools.site.tree import parse, written

# static-i18n makes anew what mkdocs-jupyter made of a notebook: without this, its raw JSON is published as the page.
if ".ipynb" not in utils.markdown_extensions:
    utils.markdown_extensions += (".ipynb",)  # type: ignore[assignment]  # MkDocs says how many there are

logging.getLogger("mkdocs.plugins.mkdocs_static_i18n").setLevel(logging.WARNING)

GLOSSARY, MUSEUM = "glossary", "practice/museum"
# What stands below the text of some pages; in a site without this theme they are their text.
ENDS = {
    "map": lambda edition: {"rows": curriculum.rows(edition)},
    "symbols": lambda edition: {"symbols": symbols.index(edition.in_nav.values())},
    "verified": lambda edition: {"table": badges.table(edition.in_nav.values())},
}
TEMPLATES = {"index": "home.html"} | {slug: f"{slug}.html" for slug in (*ENDS, GLOSSARY)}

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
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [FENCE]}
    now.language, now.languages = i18n.current_language, [language.locale for language in i18n.config.languages]
    now.terms = Terms(relative(ROOT / "languages/glossary.csv"), now.language, now.languages)
    now.pictures = words_of_pictures(relative(ROOT / "languages/pictures.csv"), now.language)
    now.explorers = explorers.words(relative(ROOT / "languages/explorers.csv"), now.language)


@event_priority(-200)
def on_nav(nav, config, files):
    """After static-i18n has put in the names of the chapters in the language that is built now."""
    now.edition = read_edition(nav, config, files, now.language)
    for item in nav.items:
        item.title = escape(item.title) if item.children else item.title


def here(page):
    return now.edition.pages[page.file.src_uri]


@event_priority(-200)
def on_pre_page(page, config, files):
    """After mkdocs-jupyter, which would draw a lab by itself; here it is drawn as other pages are."""
    vars(page).pop("render", None)


def on_page_read_source(page, config):
    """A lab is read from the Markdown beside its notebook, and a page without a text from the English one."""
    return with_places(here(page).source)


def on_page_markdown(markdown, page, config, files):
    known = here(page)
    page.title, page.meta["template"] = escape(known.title), TEMPLATES.get(known.slug, "main.html")


def on_env(env, config, files):
    env.loader = ChoiceLoader([env.loader, PackageLoader("material")])  # icons and words; the frame is our own
    env.trim_blocks = env.lstrip_blocks = True
    env.bytecode_cache = templates
    env.filters |= {"policy": policy, "spaced": plain.spaced, "whole": lambda link, base: urljoin(base, link)}
    env.globals["preview"] = now.preview
    env.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    now.env, now.attention = env, front.attention(now.edition.in_nav)
    now.counts = front.counted(now.edition.in_nav.values(), len(now.languages), config.extra["text"])
    now.draw = explorers.drawing(env, relative(ROOT / "verified/explorers"), now.explorers)


def on_page_context(context, page, config, nav):
    """What a page says of others, and what lies beside it: here every page has its title and its sections."""
    known, edition = here(page), now.edition
    content, scripts = drawn(page, known, config.extra["text"])
    context.update(here=known, edition=edition, terms=now.terms, content=content, explorers=scripts)
    context.update(bases=curriculum.bases(known, edition.in_nav), older=list(change.older(page.toc, known.behind)))
    if repository := config.extra["repository"]:
        context.update(home=home.links(repository, known), bibtex=home.bibtex(now.citation, known.address))
    context.update(ENDS[known.slug](edition) if known.slug in ENDS else {}, attention=now.attention, counts=now.counts)
    plain.write_beside(page.file.abs_dest_path, now.env, context)
    return context


def drawn(page, known, words):
    """The body of a page, and the scripts of its explorers."""
    glossary, museum = (utils.get_relative_url(now.edition.in_nav[slug].url, page.url) for slug in (GLOSSARY, MUSEUM))
    body, path = parse(page.content), known.source.path
    fill(body, drawings(known.source, known.cells, known.figures, known.ran_on, words), path)
    to_mathml(body, path)
    change.offer_commands(body, words)
    change.scroll_tables(body)
    change.keep_code(body)
    if known.slug != GLOSSARY and known.behind != ALL:
        now.terms.link(body, glossary)
    change.explain_tints(body, words["legend"])
    change.inline_pictures(body, relative(ROOT / "docs/assets"), {} if known.behind == ALL else now.pictures)
    change.enlarge_words(body)
    change.say_counted(body, now.counts)
    scripts = explorers.show(body, path, partial(now.draw, museum=museum))
    return written(body), scripts


@event_priority(-50)
def on_post_page(output, page, config):
    return without_indents(output)


def on_post_template(output_content, template_name, config):
    """404.html would be written once per language, always to the same place: keep the first."""
    if template_name != "404.html":
        return output_content
    return without_indents(output_content) if config.plugins["i18n"].is_default_language_build else ""


@event_priority(-200)
def on_post_build(config):
    """After the last language."""
    if not config.plugins["i18n"].building:
        Path(config.site_dir, "sitemap.xml.gz").unlink()  # no robot asks for it
        files.join([Path(config.site_dir, path) for path in config.extra_css])
        files.minify(Path(config.site_dir, "assets"))
        search.index(config.site_dir, relative(ROOT / "languages/aliases.csv"))
