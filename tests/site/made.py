"""Pages as the site knows them, and their bodies, for tests of what is made of them."""

import dataclasses
from pathlib import Path

from tools.languages.markdown import parse
from tools.site import tree
from tools.site.pages import Edition, SitePage


def page(slug, title, **fields):
    """A page of which only that is said that a test needs."""
    nothing = dict.fromkeys((field.name for field in dataclasses.fields(SitePage)), ())
    known = {"url": f"{slug}/", "source": parse(f"# {title}\n", Path(f"docs/en/{slug}.md")), "badges": {}}
    return SitePage(**nothing | known | fields | {"slug": slug, "title": title})


def edition(*chapters, loose=()):
    """The edition of some pages; a chapter is its title and its pages."""
    in_nav = [*loose, *(one for _, pages in chapters for one in pages)]
    return Edition({f"en/{one.slug}.md": one for one in in_nav}, {one.slug: one for one in in_nav}, chapters, loose)


def after(change, html, *arguments):
    """What a function makes of the body of a page."""
    body = tree.parse(html)
    change(body, *arguments)
    return tree.written(body)


def files(folder):
    """What the files of a folder hold; those that Python keeps for itself are left out."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path: path.read_bytes() for path in paths}
