"""Every link of the built site, in whatever file it stands, leads to a file and to a place in it."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from tests.browser import site
from tools.translations import CODE, FENCE

ADDRESSES = {"action", "cite", "data", "href", "poster", "src"}
TOLD = {("property", "og:image"), ("property", "og:url")}  # addresses in the content of a <meta>
ELSEWHERE = ("data:", "http://", "https://", "mailto:")


class Page(HTMLParser):
    """The links of a page, and the names of its places."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.places.add(value)
            elif name == "srcset":
                self.links += [candidate.split()[0] for candidate in value.split(",")]
            elif name in ADDRESSES or (name == "content" and TOLD & set(attributes)):
                self.links.append(value)


def markdown_links(text):
    return re.findall(r"\]\(([^)\s]+)", CODE.sub("", FENCE.sub("", text)))


def notebook(text):
    prose = "\n\n".join(
        "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
    )
    read = Page(CODE.sub("", prose))
    return read.links + markdown_links(prose), read.places


def page(text):
    read = Page(text)
    return read.links, read.places


READERS = {
    ".html": page,
    ".svg": page,
    ".ipynb": notebook,
    ".md": lambda text: (markdown_links(text), {""}),
    ".txt": lambda text: (markdown_links(text) + re.findall(r"^Sitemap: (.*)", text, re.M), {""}),
    ".css": lambda text: (re.findall(r"url\([\"']?([^\"')]+)", text), {""}),
    ".xml": lambda text: (re.findall(r"(?:<loc>|href=\")([^\"<]+)", text), {""}),
}


def followed(folder):
    """What leads nowhere, by the file its links; and the files that no link leads to."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    read = {
        name: READERS[path.suffix](path.read_text("utf-8")) for name, path in files.items() if path.suffix in READERS
    }
    broken, linked = {}, set()
    for name, (links, _) in read.items():
        for link in links:
            address, place = urldefrag(urljoin(site.SITE_URL + name, link))
            target = unquote(address.removeprefix(site.SITE_URL)) + ("index.html" if address.endswith("/") else "")
            _, places = read.get(target, ([], {""}))
            if target in files and unquote(place) in places:
                linked.add(target)
            elif address.startswith(site.SITE_URL) or not link.startswith(ELSEWHERE):
                broken.setdefault(name, []).append(link)
    return broken, files.keys() - linked


def test_every_link_leads_to_a_file_and_a_place_and_every_file_is_there_for_something(built):
    broken, lonely = followed(built)
    assert broken == {}
    asked_for_by_name = r"404\.html|robots\.txt|(\w+/)?llms\.txt|pagefind/.*|assets/math\.LICENSE\.txt"
    asked_for_by_name += r"|assets/(explorers/shapes|find)\.js"
    assert {name for name in lonely if not re.fullmatch(asked_for_by_name, name)} == set()


@pytest.mark.parametrize(
    ("name", "text", "links"),
    [
        ("index.html", '<a href="there/">', []),
        ("index.html", '<a href="there/#here">', []),
        ("index.html", '<a href="https://example.org/attention/it/there/#h%C3%A9">', []),
        ("index.html", '<meta property="og:image" content="no.png">', ["no.png"]),
        ("index.html", '<a href="there/#nowhere">', ["there/#nowhere"]),
        ("index.html", '<a href="#nowhere">', ["#nowhere"]),
        ("index.html", '<a href="there">', ["there"]),
        ("index.html", '<a href="/there/">', ["/there/"]),
        ("index.html", '<a href="it/there/#here">', ["it/there/#here"]),
        ("index.html", '<a href="https://example.org/attention/no/">', ["https://example.org/attention/no/"]),
        (
            "index.html",
            '<link rel="canonical" href="https://example.org/attention/no/">',
            ["https://example.org/attention/no/"],
        ),
        ("index.html", '<link rel="alternate" hreflang="it" href="no/">', ["no/"]),
        ("index.html", '<link rel="alternate" type="text/markdown" href="index.md">', ["index.md"]),
        ("index.html", '<a href="page.ipynb" download>', ["page.ipynb"]),
        ("index.html", '<script src="no.js"></script>', ["no.js"]),
        ("index.html", '<img src="no.svg" srcset="no-2.svg 2x, there/index.html 3x">', ["no.svg", "no-2.svg"]),
        ("index.html", '<video poster="no.png"></video><object data="no.svg"></object>', ["no.png", "no.svg"]),
        ("index.html", '<svg><use href="#nowhere"/></svg>', ["#nowhere"]),
        ("it/there/index.html", '<a href="../../there/"><a href="../../../">', ["../../../"]),
        ("404.html", '<a href="/attention/there/#here"><a href="/attention/no/">', ["/attention/no/"]),
        ("index.md", "[x](https://example.org/attention/there/#no)", ["https://example.org/attention/there/#no"]),
        ("index.md", "`a[0](x)`\n\n```python\na[0](x)\n```\n", []),
        (
            "llms.txt",
            "- [x](https://example.org/attention/no/index.md): y",
            ["https://example.org/attention/no/index.md"],
        ),
        (
            "robots.txt",
            "Sitemap: https://example.org/attention/sitemap.xml",
            ["https://example.org/attention/sitemap.xml"],
        ),
        ("sitemap.xml", "<loc>https://example.org/attention/no/</loc>", ["https://example.org/attention/no/"]),
        (
            "sitemap.xml",
            '<xhtml:link href="https://example.org/attention/no/"/>',
            ["https://example.org/attention/no/"],
        ),
        ("assets/site.css", "a { src: url(no.woff2) } b { src: url(../there/index.html) }", ["no.woff2"]),
        (
            "page.ipynb",
            '{"cells": [{"cell_type": "markdown", "source": ["[x](#no)\\n", "[y](no.svg)"]}]}',
            ["#no", "no.svg"],
        ),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, name, text, links):
    pages = {"there/index.html": '<h1 id="here">', "it/there/index.html": '<h1 id="hé">', name: text}
    for path, content in pages.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, "utf-8")
    broken, _ = followed(tmp_path)
    assert broken == ({name: links} if links else {})
