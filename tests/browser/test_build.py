"""The build: the same bytes each time, without torch, every glyph of every formula, and Markdown for machines."""

import re
from html import unescape
from unicodedata import normalize
from xml.etree import ElementTree

from fontTools.ttLib import TTFont

from tests.browser import site
from tests.configuration import CONFIG, text
from tools.languages.markdown import read

MAPS = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9", "x": "http://www.w3.org/1999/xhtml"}
FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
CODE = re.compile(r"(`+).*?\1", re.S)
CUT = "cut the font anew, as theme/math_font.py says"
NO_TORCH = """
import sys
from importlib.abc import MetaPathFinder

class NoTorch(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "matplotlib"):
            raise ImportError(f"the site must build without {name}")

sys.meta_path.insert(0, NoTorch())
"""


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_build_on_another_day_and_without_torch_gives_the_same_bytes(built, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_TORCH)
    again = tmp_path / "site"
    site.build(again, PYTHONPATH=str(tmp_path), PYTHONHASHSEED="4", SOURCE_DATE_EPOCH="1800000000")
    first, second = files(built), files(again)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_the_font_has_every_character_of_every_formula(built):
    """A browser draws an identifier of one letter in italics: 𝑄 for Q, which are the same when normalized."""
    pages = "".join((built / page.path / "index.html").read_text("utf-8") for page in site.PAGES)
    formulas = "".join(re.findall("<math.*?</math>", pages, re.S))
    known = set(map(chr, TTFont(built / "assets/math.woff2").getBestCmap()))
    letters = set(re.findall("<mi>(.)</mi>", formulas))
    italic = {normalize("NFKC", letter) for letter in known if not letter.isascii()}
    rest = {sign for sign in unescape(re.sub("<mi>.</mi>|<[^>]*>", "", formulas)) if not sign.isspace()}
    assert {letter for letter in letters if normalize("NFKC", letter) not in italic} == set(), CUT
    assert (rest | {"√"}) - known == set(), CUT


def test_the_sitemap_has_every_page_with_all_its_alternates_and_no_date(built):
    tree = ElementTree.parse(built / "sitemap.xml")
    listed = [
        [
            entry.find("s:loc", MAPS).text,
            {link.get("hreflang"): link.get("href") for link in entry.findall("x:link", MAPS)},
        ]
        for entry in tree.findall("s:url", MAPS)
    ]
    urls = [{one: site.SITE_URL + site.Page(one, slug).path for one in site.LANGUAGES} for slug in site.SLUGS]
    wanted = [[url, all_urls | {"x-default": all_urls["en"]}] for all_urls in urls for url in all_urls.values()]
    assert sorted(listed, key=str) == sorted(wanted, key=str)
    assert tree.findall("s:url/s:lastmod", MAPS) == [], "no build knows the day of a change"


# --- Markdown for machines ------------------------------------------------------------------------


def test_beside_each_page_lies_its_plain_markdown_with_all_its_code_and_outputs(built):
    for page in site.PAGES:
        plain = (built / page.path / "index.md").read_text("utf-8")
        rest = " ".join(plain.split())  # those of a folded block are indented
        for one in page.cells:
            output = f"```text {one.output} ```" if one.output else ""
            _, cell, rest = rest.partition(" ".join(f"```python {one.code} ``` {output}".split()))
            assert cell, (page, one.name)
        without_code = FENCE.sub("", plain)
        left = r"--8<--|<[a-z!/].*?>|^---$|\]\((?!https?://)[^)]*\)"
        assert re.findall(left, CODE.sub("", without_code), re.M) == [], page
        written = re.findall(r"^#+ (.*)", without_code, re.M)
        headings = re.findall(r"^#+ (.*)", FENCE.sub("", read(page.source).body), re.M)
        assert written[: len(headings)] == headings, page


def test_one_file_lists_the_markdown_of_every_page_of_a_language_once(built):
    for language, config in site.LANGUAGES.items():
        listed = (built / site.Page(language, "index").path / "llms.txt").read_text("utf-8")
        assert listed.startswith(f"# {config.site_name or CONFIG.site_name}\n\n> {config.site_description}\n\n## ")
        chapters = [name for item in CONFIG.nav if isinstance(item, dict) for name in item if name != "Home"]
        words = [text(language, "nav"), *((config.nav_translations or {}).get(name, name) for name in chapters)]
        assert re.findall("^## (.*)", listed, re.M) == words
        pages = [page for page in site.PAGES if page.language == language]
        wanted = [(f"{site.SITE_URL}{page.path}index.md", read(page.source).front["description"]) for page in pages]
        assert sorted(re.findall(r"^- \[.+\]\((.+)\): (.+)$", listed, re.M)) == sorted(wanted)
