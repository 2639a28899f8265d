"""Every link of the built site, in whatever file it stands, leads to a file and to a place in it."""

import json
import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from selectolax.lexbor import LexborHTMLParser

from tests.browser import site
from tools.languages import markdown

ASKED_FOR_BY_NAME = (
    r"404\.html|robots\.txt|(\w+/)?llms\.txt|pagefind/.*|assets/(math\.LICENSE\.txt|(explorers/shapes|find|found)\.js)"
)
ELSEWHERE = ("data:", "http://", "https://", "mailto:")


def html(text):
    """The links of a page, and the names of its places."""
    tree = LexborHTMLParser(text)
    links = [node.attributes.get("href", node.attributes.get("src")) for node in tree.css("[href], [src]")]
    return links, {"", *(node.attributes["id"] for node in tree.css("[id]"))}


def prose(text):
    """The links of Markdown, and the names of the places in its HTML."""
    parsed = markdown.parse(text, Path("a page"))
    pieces = [block.text for block in parsed.of("html")] + [piece.text for _, piece in parsed.pieces("html")]
    links, places = html("".join(pieces))
    return links + [piece.text for _, piece in parsed.pieces("link", "picture")], places


def notebook(text):
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return prose("\n\n".join("".join(cell["source"]) for cell in cells))


READERS = {
    ".html": html,
    ".ipynb": notebook,
    ".md": prose,
    ".txt": lambda text: (prose(text)[0] + re.findall(r"^Sitemap: (.*)", text, re.M), {""}),
    ".css": lambda text: (re.findall(r"url\([\"']?([^\"')]+)", text), {""}),
}


def followed(folder):
    """What leads nowhere, by the file its links; and the files that no link leads to."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    text = {name: path.read_text("utf-8") for name, path in files.items() if path.suffix in READERS}
    read = {name: READERS[Path(name).suffix](words) for name, words in text.items()}
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


def test_every_link_leads_to_a_file_and_a_place_and_every_file_is_there_for_a_link(built):
    broken, lonely = followed(built)
    assert broken == {}
    assert [name for name in sorted(lonely) if not re.fullmatch(ASKED_FOR_BY_NAME, name)] == []


@pytest.mark.parametrize(
    ("name", "text", "links"),
    [
        ("index.html", '<a href="there/#here"><a href="https://example.org/attention/it/there/#h%C3%A9">', []),
        ("index.html", '<a href="there/#nowhere"><a href="#nowhere">', ["there/#nowhere", "#nowhere"]),
        ("it/there/index.html", '<a href="../../there/"><a href="../../../">', ["../../../"]),
        ("index.md", "[x](https://example.org/attention/there/#no) `a[0](x)`", [f"{site.SITE_URL}there/#no"]),
        ("assets/site.css", "a { src: url(no.woff2) } b { src: url(../there/index.html) }", ["no.woff2"]),
        ("a.ipynb", '{"cells": [{"cell_type": "markdown", "source": ["[x](#no) [y](no.svg)"]}]}', ["#no", "no.svg"]),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, name, text, links):
    pages = {"there/index.html": '<h1 id="here">', "it/there/index.html": '<h1 id="hé">', name: text}
    for path, content in pages.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, "utf-8")
    broken, _ = followed(tmp_path)
    assert broken == ({name: links} if links else {})
