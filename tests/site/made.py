"""Pages as the site knows them, and their bodies, for tests of what is made of them."""

from pathlib import Path

from tools.languages.markdown import parse
from tools.site import tree
from tools.site.pages import Edition, SitePage


def page(slug, title, **fields):
    """A page of which only that is said that a test needs."""
    known = {
        "description": "",
        "url": f"{slug}/",
        "address": f"https://site/{slug}/",
        "source": parse(f"# {title}\n", Path(f"docs/en/{slug}.md")),
        "notebook": None,
        "markdown": "",
        "minutes": 1,
        "ran_on": {},
        "figures": {},
        "badges": {},
    }
    nothing = dict.fromkeys(("asked", "behind", "builds_on", "cells", "own_cells"), ())
    return SitePage(slug=slug, title=title, **nothing | known | fields)


def edition(*chapters, loose=()):
    """The edition of some pages; a chapter is its title and its pages."""
    in_nav = [*loose, *(one for _, pages in chapters for one in pages)]
    return Edition({f"en/{one.slug}.md": one for one in in_nav}, {one.slug: one for one in in_nav}, chapters, loose)


def after(change, html, *arguments):
    """What a function makes of the body of a page."""
    body = tree.parse(html)
    change(body, *arguments)
    return tree.written(body)
