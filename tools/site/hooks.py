"""What MkDocs calls while it builds the site. Each hook is thin: the work is done by functions elsewhere in tools/."""

import functools
import gc
import logging
import re
import sys
from contextlib import contextmanager
from html import escape, unescape
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import urljoin

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs puts only the folder of this file there, and only while it loads it

from jinja2 import ChoiceLoader, PackageLoader
from mkdocs import utils
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.utils.meta import get_data

from tools import markdown as pages
from tools import notebooks
from tools.cells.labels import refuse_misfit
from tools.cells.shapes import refuse_mistakes
from tools.cells.source import SourceError, read_cells, read_text, resolve
from tools.site import (
    badges,
    body,
    checks,
    curriculum,
    explorers,
    front,
    labs,
    linked,
    once,
    pictures,
    plain,
    search,
    symbols,
)
from tools.site.cells import Fences, refuse_undrawn, with_cells
from tools.site.checks import shown
from tools.site.mathematics import to_mathml
from tools.site.policy import with_policy
from tools.site.terms import Terms

# static-i18n makes every file anew and so loses what mkdocs-jupyter made of a notebook:
# without this, its raw JSON is published as the page.
if ".ipynb" not in utils.markdown_extensions:
    utils.markdown_extensions += (".ipynb",)

for chatty in ("static_i18n", "jupyter"):
    logging.getLogger(f"mkdocs.plugins.mkdocs_{chatty}").setLevel(logging.WARNING)

HOME = "index"
GLOSSARY, MAP, SYMBOLS, VERIFIED = "glossary", "map", "symbols", "verified"
# The pages that end with more than their text; in a site without this theme they are their text.
TEMPLATES = {HOME: "home.html"} | {slug: f"{slug}.html" for slug in (GLOSSARY, MAP, SYMBOLS, VERIFIED)}

SOCIAL = "assets/social-{}.png"  # the picture beside a link to the site, by language

LENT = PackageLoader("material")  # icons and words; the frame of a page is our own

startup = {}
templates = once.Templates()
kept = once.Kept()
fences = Fences()


@contextmanager
def plain_errors():
    """Our own errors as the single line that MkDocs prints without a traceback."""
    try:
        yield
    except SourceError as error:
        raise PluginError(str(error)) from None


def on_startup(command, dirty):
    startup.update(port=command == "serve", preview=command == "serve")
    if command == "build":
        gc.disable()  # to look for cycles takes a build more time than the 16 MB are worth that it frees


@event_priority(-200)
def on_config(config):
    """After static-i18n has put in the words of the language that is built now."""
    i18n = config.plugins["i18n"]
    del config.theme.dirs[1:]  # or MkDocs would publish what Material brings
    said = {language.locale: (language.extra or {}).get("text") or {} for language in i18n.config.languages}
    with plain_errors():
        checks.check_words(said)
    config.mdx_configs["toc"]["permalink_title"] = config.extra["text"]["permalink"]
    any_language = {"name": "*", "class": "highlight", "format": fences.draw}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [any_language]}
    languages = [language.locale for language in i18n.config.languages]
    glossary = Path(shown(ROOT / "languages/glossary.csv"))
    with plain_errors():
        config.extra["source"] = read_text(config.config_file_path)
        source = languages, read_text(glossary)
        new = functools.partial(Terms, glossary, i18n.current_language, languages)
        config.extra["terms"] = kept(("terms", i18n.current_language), source, new)
        pictures_csv = Path(shown(ROOT / "languages/pictures.csv"))
        config.extra["records"] = badges.records(Path(shown(ROOT / "verified")))
        config.extra["words_of_pictures"] = body.words_of_pictures(pictures_csv, i18n.current_language)
    if startup.pop("port", False):  # only once: a preview that builds again holds its port itself
        with plain_errors():
            checks.check_port(*config.dev_addr)
    if not i18n.building:
        with plain_errors():
            checks.check_pages(config.nav, config.docs_dir, i18n.build_languages)
            checks.check_glossary(config.nav, shown(config.docs_dir), glossary, config.extra["terms"])


def source_of(page):
    """The file that a page is written in; the Markdown of a lab lies beside its notebook."""
    path = Path(shown(page.file.abs_src_path))
    markdown = path.with_suffix(".md")
    return markdown if markdown.is_file() else path


def is_notebook(page):
    return page.file.src_uri.endswith(".ipynb")


def on_env(env, config, files):
    """Templates without their indentation; the pictures beside a link to the site and on the screen of a phone."""
    env.loader = ChoiceLoader([env.loader, LENT])
    env.bytecode_cache = templates
    env.trim_blocks = env.lstrip_blocks = True
    env.filters["spaced"] = plain.spaced
    language, template = config.plugins["i18n"].current_language, env.get_template("partials/social.html")
    with plain_errors():
        said = explorers.words(Path(shown(ROOT / "languages/explorers.csv")), language)
    golden = Path(shown(ROOT / "verified/explorers"))
    drawn_from = *sorted(ROOT.glob("theme/explorers/*.html")), *sorted(golden.glob("*.json"))
    config.extra["explorers"] = said, [read_text(path) for path in drawn_from]
    config.extra["draw_explorer"] = explorers.drawing(env, golden, said)
    attention = front.attention(ROOT / "snippets")
    write(Path(config.site_dir, SOCIAL.format(language)), pictures.social(template, config, attention))
    icon = pictures.touch_icon(ROOT / "theme" / config.theme["favicon"])
    write(Path(config.site_dir, "assets/touch-icon.png"), icon)


@event_priority(-200)
def on_nav(nav, config, files):
    """After static-i18n has put in the names of the chapters in the language that is built now."""
    for item in nav.items:
        if item.children:
            item.title = escape(item.title)


@event_priority(-50)
def on_pre_page(page, config, files):
    """Check the page before it is read, and gather what its template says of its cells."""
    page.slug = page.file.norm_src_uri.rsplit(".", 1)[0]
    snippets = Path(shown(ROOT / "snippets"))
    with plain_errors():
        page.text_file = pages.file_of_text(source_of(page))
        checks.check_text(page.text_file)
        page.behind = pages.read(source_of(page)).front.get("behind", [])
        english = Path(shown(config.docs_dir), "en", f"{page.slug}.md")
        page.builds_on = pages.read(english).front.get("builds_on", [])
    path = snippets / f"{page.slug}.md"
    with plain_errors():
        page.cells = resolve(page.text_file, snippets)
        page.cells_to_verify = read_cells(path) if path.is_file() else []
        for cell in page.cells_to_verify:
            refuse_mistakes(cell)
            refuse_misfit(cell)
        verified = page.slug, page.cells_to_verify, config.extra["records"]
        page.badges = badges.badges(*verified)
        page.ran_on = badges.devices(*verified, config.extra["text"])


def on_page_markdown(markdown, page, config, files):
    """Read the page, and make its notebook to download and its plain Markdown for machines."""
    texts = markdown, page.meta, read_text(page.text_file), config.extra["source"]
    source = *texts, page.cells, page.ran_on, [file.src_uri for file in files]
    read = kept(("read", page.file.src_uri), source, lambda: read_page(markdown, page, config, files))
    markdown, page.meta, page.notebook, page.plain, measured = read
    template = TEMPLATES.get(page.slug, "main.html")
    page.meta = page.meta | {"description": escape(page.meta["description"]), "template": template}
    page.ran_on = page.ran_on | measured  # in place, the source of what is kept would change, too
    keep_rendered(page, source)
    page.notebook_name = f"{page.slug.rsplit('/', 1)[-1]}.ipynb"
    fences.begin(page.cells, page.ran_on, config.extra["text"])
    return markdown


def read_page(markdown, page, config, files):
    """Markdown and front matter, notebook, plain Markdown, what is said of the cells of a lab that measure."""

    def absolute(target):
        path, mark, anchor = target.partition("#")
        file = files.get_file_from_path(normpath(join(dirname(page.file.src_uri), path)))
        return f"{config.site_url}{file.url}{mark}{anchor}" if file else target

    meta, figures, measured = page.meta, {}, {}
    with plain_errors():
        text = pages.read(page.text_file)
        if is_notebook(page):
            figures = notebooks.stored_figures(Path(shown(page.file.abs_src_path)))
            measured = badges.measured(figures, config.extra["text"])
            markdown, meta = get_data(labs.with_places(text))
    if page.behind == pages.ALL:
        markdown, english = get_data(text.text)
        meta = english | meta
    made = notebooks.notebook(text, page.cells, absolute, figures, page.ran_on | measured)
    dumped = notebooks.dump(made) if page.cells else None
    options = config.mdx_configs["pymdownx.snippets"]
    return with_cells(markdown, options), meta, dumped, plain.page(made, page.canonical_url), measured


def keep_rendered(page, source):
    """Let MkDocs render a page only where it is made of something else than in the last build of a preview."""
    render = page.render

    def changes(config, files):
        before = dict(vars(page))
        render(config, files)
        changed = {name: value for name, value in vars(page).items() if before.get(name) is not value}
        return {name: value for name, value in changed.items() if name != "links_to_anchors"}  # in files of this build

    def rendered(config, files):
        vars(page).update(kept(("rendered", page.file.src_uri), source, lambda: changes(config, files)))

    page.render = rendered


def on_page_content(html, page, config, files):
    drawn = []
    if is_notebook(page):
        drawn, html = labs.figures(html), labs.rendered(page, config, files)
    page.title = escape(unescape(str(page.title)))  # from the nav or the front matter it may be anything
    made_of = html, drawn, page.behind, page.cells, page.cells_to_verify, page.ran_on
    source = *made_of, config.extra["source"], config.extra["terms"]
    html = kept(("finished", page.file.src_uri), source, lambda: finished_body(html, drawn, page, config, files))
    words = {} if page.behind == pages.ALL else config.extra["words_of_pictures"]
    with plain_errors():
        return body.inline_pictures(html, Path(config.docs_dir, "assets"), words)


def finished_body(html, drawn, page, config, files):
    with plain_errors():
        html = to_mathml(html, page.text_file)
    html = body.line_ends(body.scrolling_tables(html))
    if page.slug != GLOSSARY and page.behind != pages.ALL:
        [glossary] = [file for file in files.documentation_pages() if file.norm_src_uri == f"{GLOSSARY}.md"]
        html = config.extra["terms"].link(html, utils.get_relative_url(glossary.url, page.url))
    with plain_errors():
        refuse_undrawn(html, page.text_file, page.cells)
        return labs.with_figures(body.explain_tints(html, config.extra["text"]["legend"]), drawn, page.text_file)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_beside(page, name, text):
    write(Path(page.file.abs_dest_path).with_name(name), text.encode())


def on_page_context(context, page, config, nav):
    """What a page says of others, and what other sites are told of it: here every page has its title."""
    language, text = config.plugins["i18n"].current_language, config.extra["text"]
    page.social, page.locale = SOCIAL.format(language), linked.locale(language)
    page.linked_data = linked.data(page, language, config.site_name, config.site_url, page.slug == HOME)
    with plain_errors():
        context["bases"] = curriculum.bases(page, nav.pages)
        source = page.content, config.extra["explorers"]
        show = functools.partial(explorers.show, page.content, page.text_file, config.extra["draw_explorer"])
        page.content, page.explorers = kept(("explorers", page.file.src_uri), source, show)
        if page.slug == MAP:
            context["rows"] = curriculum.rows(nav)
    if page.slug == HOME:
        finish_home(page, config, nav)
    elif page.slug == MAP:
        page.plain += plain.curriculum(context["rows"], text["builds_on"])
    elif page.slug == SYMBOLS:
        context["symbols"] = symbols.index(nav.pages)
        page.plain += plain.symbols(context["symbols"])
    elif page.slug == GLOSSARY:
        page.plain += f"\n{plain.glossary(config.extra['terms'].entries, nav.pages)}"
    elif page.slug == VERIFIED:
        context["table"] = badges.table(nav.pages)
        page.plain += f"\n{plain.verified(context['table'], text)}"
    if page.behind:
        context["older"] = list(body.older(page.toc, page.behind))
        note = plain.behind(page, context["older"], text, linked.original(page, language, config.site_url))
        page.plain = plain.below_title(page.plain, note)


def finish_home(page, config, nav):
    """On the first page of a language, what all its pages add up to; beside it, their list."""
    words = config.site_name, config.site_description
    write_beside(page, "llms.txt", plain.llms(*words, nav.items, config.extra["text"]["nav"]))
    languages = len(config.plugins["i18n"].config.languages)
    counted = front.counted(nav.pages, languages, config.extra["text"])
    page.content = front.say_counted(page.content, counted)
    page.plain = plain.counted(page.plain, counted)
    page.attention = front.attention(ROOT / "snippets")


ALTERNATE = re.compile(r'\s*<link rel="alternate" href="([^"]*)"( hreflang="[^"]*">)')


def finished(html, alternate):
    """A page with `alternate` in place of its links to other languages, and with its policy.

    A preview has none, since it puts a script of its own into each page.
    """
    head, end, rest = html.partition("</head>")
    html = ALTERNATE.sub(alternate, head) + end + rest
    return html if startup.get("preview") else with_policy(html)


@event_priority(-50)
def on_post_page(output, page, config):
    write_beside(page, "index.md", page.plain)
    if page.notebook:
        write_beside(page, page.notebook_name, page.notebook)
    # Search engines want whole addresses.
    return finished(
        output, lambda link: f'<link rel="alternate" href="{urljoin(page.canonical_url, link[1])}"{link[2]}'
    )


def on_post_template(output_content, template_name, config):
    """404.html would be written once per language, always to the same place: keep the first."""
    if template_name == "404.html":
        return finished(output_content, "") if config.plugins["i18n"].is_default_language_build else ""
    return output_content


def on_pre_build(config):
    search.stop()


def on_shutdown():
    search.stop()


@event_priority(-200)
def on_post_build(config):
    """After the last language. A preview is shown before it can be searched."""
    if not config.plugins["i18n"].building:
        if startup.get("preview"):
            search.index_in_background(config.site_dir)
            return
        Path(config.site_dir, "sitemap.xml.gz").unlink()  # no robot asks for it
        with plain_errors():
            search.index(config.site_dir)
