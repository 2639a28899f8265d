"""What a page may hold: its HTML has these elements and attributes, and leads to nothing but https and other pages."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import markdown
import nh3
from selectolax.lexbor import LexborHTMLParser

from tests.configuration import CONFIG, LANGUAGES, ROOT, flat, pages
from tools.cells.source import INCLUDE
from tools.languages.markdown import Page, parse

KINDS = {"note", "tip", "warning", "danger", "question", "success", "example", "info", "bug", "abstract", "quote"}
ELEMENTS = "a br code em img span strong details div h1 h2 h3 hr li ol p pre summary ul table tbody td th thead tr"


def unless_elsewhere(_: str, name: str, value: str) -> str | None:
    """The value of an attribute, but None for a picture of another site, and for a link there without https."""
    elsewhere = {"src": r"[/\\]{2}|\w+:", "href": r"[/\\]{2}"}
    return None if name in elsewhere and re.match(elsewhere[name], value) else value


MAY_HOLD = {
    "tags": set(ELEMENTS.split()),
    # of a link, also the place and the first state of an explorer
    "attributes": {"a": {"href", "id", "state"}, "img": {"src", "alt"}, "h1": {"id"}, "h2": {"id"}, "h3": {"id"}},
    "allowed_classes": {
        "div": {"admonition", "arithmatex", *KINDS},
        "details": KINDS,
        "p": {"admonition-title"},
        "pre": {"highlight"},
        "code": {"language-sh"},
        "span": {"arithmatex"},
    },
    "attribute_filter": unless_elsewhere,
    "url_schemes": {"https"},
    "link_rel": None,
}
WORDS_MAY_HOLD = MAY_HOLD | {"tags": {"a", "time"}, "attributes": {"a": {"href", "rel"}}, "allowed_classes": {}}
IN_PICTURES = {"circle", "defs", "g", "marker", "path", "rect", "svg", "text", "tspan"}
LEFT_OUT = {"pymdownx.snippets"}  # cells are shown as code, whatever they hold
SETTINGS = {"toc": {"permalink": False}, "pymdownx.highlight": {"use_pygments": False}}


@cache
def converter() -> markdown.Markdown:
    names = [name for name in CONFIG.markdown_extensions if name not in LEFT_OUT]
    settings = {name: CONFIG.mdx_configs.get(name, {}) | SETTINGS.get(name, {}) for name in names}
    return markdown.Markdown(extensions=names, extension_configs=settings)


def render(text: str) -> str:
    """What the site makes of Markdown."""
    return converter().reset().convert(text)


def foreign(html: str, allowed: dict) -> list[str]:
    """The elements of HTML that the list does not allow as they are."""
    return list((pieces(html) - pieces(nh3.clean(html, **allowed))).elements())


def pieces(html: str) -> Counter:
    elements = LexborHTMLParser(html).css("*")
    return Counter(f"<{element.tag} {sorted(element.attributes.items(), key=str)}>" for element in elements)


def faults(page: Page) -> list[str]:
    """What a page may not hold; its cells are left out."""
    text = re.sub(rf"( *```python\n)?{INCLUDE.pattern}(\n *```)?", "", page.body)
    return [f"{page.path}: no page may hold {piece}" for piece in foreign(render(text), MAY_HOLD)]


def test_a_page_holds_what_it_may(language, refuse):
    refuse(fault for page in pages(language) for fault in faults(page))


ALSO = {"pytorch-image-models": "timm", "annotated_deep_learning_paper_implementations": "labml"}
THREAD = re.compile(r"https://github\.com/([^/]+)/([^/]+)/(?:issues|pull|discussions)/(\d+)")


def links(page: Page) -> Iterator[tuple[int, str, str]]:
    """Each link of a page as its line, its words and its address."""
    for block in page.blocks:
        for at, link in enumerate(block.pieces):
            if link.kind == "link":
                inside = itertools.takewhile(lambda piece: piece.kind != "end of link", block.pieces[at + 1 :])
                words = (" " if piece.kind == "break" else piece.text for piece in inside)
                yield link.line, "".join(words), link.text


def says_its_address(words: str, address: str) -> bool:
    """Whether a thread, the number of a paper and a version in the words of a link are those of its address."""
    if named := re.search(r"([\w./-]*)#(\d+)\b", words):
        thread = THREAD.match(address.lower())
        owner, name, number = thread.groups() if thread else ("", "", "")
        return number == named[2] and named[1].lower() in ("", owner, name, f"{owner}/{name}", ALSO.get(name))
    paper = re.search(r"\b\d{4}\.\d{5}\b", words)
    version, released = re.search(r"\b\d+\.\d+\b", words), re.search(r"/v(\d+\.\d+)", address)
    return paper[0] in address if paper else not (version and released) or version[0] == released[1]


def test_a_link_leads_to_the_thread_the_paper_and_the_version_in_its_words(language, refuse):
    refuse(
        f"{page.path}:{line}: the link {words!r} leads to {address}; correct one of them"
        for page in pages(language)
        for line, words, address in links(page)
        if not says_its_address(words, address)
    )


QWEN, PAPER = "https://github.com/QwenLM/Qwen/issues/933", "https://arxiv.org/abs/1706.03762"
RIGHT = [("QwenLM/Qwen#933", QWEN), ("issue #933", QWEN), ("1706.03762", PAPER)]
WRONG = [("Qwen3#933", QWEN), ("Qwen#993", QWEN), ("Qwen#933", QWEN[:31]), ("1706.03726", PAPER), ("2.1", "a/v2.2.0")]


def test_what_a_link_says_and_where_it_leads_are_compared():
    assert [link for link in (*RIGHT, *WRONG) if says_its_address(*link)] == RIGHT


def test_the_words_of_the_site_hold_what_they_may(language):
    for key, words in flat(LANGUAGES[language].extra["text"]).items():
        assert foreign(words, WORDS_MAY_HOLD) == [], f"mkdocs.yml: {key!r} of {language!r}"


def no_pictures(assets: Path) -> Iterator[str]:
    """What in the assets, which the site hands on as they are, is no picture or does more than draw one."""
    for path in filter(Path.is_file, assets.rglob("*")):
        if path.suffix != ".svg":
            yield f"{path}: is no SVG picture; take it away"
            continue
        for element in ElementTree.parse(path).iter():
            kind = element.tag.rpartition("}")[2]
            strange = [] if kind in IN_PICTURES else [f"<{kind}>"]
            for name, value in element.attrib.items():
                if re.match("on|style|.*href", name) or re.search(r"url\((?!#)", value):
                    strange.append(f"{name}={value!r}")
            yield from (f"{path}: a picture may not hold {piece}; take it out" for piece in strange)


def test_a_picture_draws_and_does_nothing_else(refuse):
    """It becomes a part of the page; a style or a link in it would reach beyond it."""
    refuse(no_pictures(ROOT / "docs/assets"))


def test_what_is_no_picture_is_named(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "a.html").touch()
    (tmp_path / "more/b.svg").write_text('<svg><script/><rect fill="url(https://example.org)"/></svg>')
    words = ["a.html: is no", "more/b.svg: a picture may not hold <script>", "hold fill='url(https://example.org)';"]
    assert [
        fault for fault, piece in zip(sorted(no_pictures(tmp_path)), words, strict=True) if piece not in fault
    ] == []


ATTACKS = [
    "[a](<java&#115;cript:alert(1)>)",
    "[a](http://example.org)",
    "[a](/\\\\example.org)",
    '[a](b.md){onclick="alert(1)"}',
    '*a*{class="search"}',
    "![a](https://example.org/a.png)",
    '<div style="position: fixed; inset: 0">a</div>',
    "<style>main { display: none }</style>",
    "<script>alert(1)</script>",
    '??? note "<img src=x onerror=alert(1)>"\n\n    a',
    "| a | b |\n|---|---|\n| <object data='a'></object> | b |",
]


def test_what_no_page_may_hold_is_named():
    for attack in ATTACKS:
        page = parse(f"---\ndescription: A.\n---\n\n# Title\n\nText.\n\n{attack}\n", Path("a.md"))
        assert [fault for fault in faults(page) if fault.startswith("a.md: no page may hold <")], attack
