"""The words that stand in no page: those of mkdocs.yml, and those inside the pictures."""

import re
from xml.etree import ElementTree

import pytest

from tests.configuration import CONFIG, LANGUAGES, ROOT, SLUGS
from tools.cells.source import read_cells
from tools.translations import code

PLACES = re.compile(r"\{(\w+)\}|<(\w+)")  # what a sentence has filled in, and its tags
SAME = {"it": {"output"}}  # Italian says it, too
ENGLISH = {"original"}  # the name of a link to an English page, marked as English
PICTURES = sorted(ROOT.glob("docs/assets/*.svg"))
DATA = {
    "WO",
    "your",
    "now",
    "Tee",
    "weil",
    "er",
    "vorgestern",
    "kaufte",
    "because",
    "he",
    "bought",
    "tea",
    "the",
    "day",
    "before",
    "yesterday",
}


def flat(words):
    return {
        f"{key} {part}".strip(): word
        for key, value in words.items()
        for part, word in (value.items() if isinstance(value, dict) else [("", value)])
    }


def test_the_words_of_the_site_are_there_in_every_language_with_the_same_places(translation):
    ours, theirs = (flat(LANGUAGES[language].extra["text"]) for language in ("en", translation))
    assert {key for key in theirs if "." not in key} == ours.keys()  # with a dot, a word of Material
    assert {key for key in ours if sorted(PLACES.findall(ours[key])) != sorted(PLACES.findall(theirs[key]))} == set()
    assert {key for key in ours if ours[key] == theirs[key]} == SAME.get(translation, set()) | ENGLISH


def test_every_chapter_and_every_kind_of_admonition_has_a_name_in_every_language(translation):
    chapters = {name for item in CONFIG.nav if isinstance(item, dict) for name in item}
    kinds = set()
    for page in ROOT.glob("docs/en/**/*.md"):
        kinds |= set(re.findall(r"^ *(?:!!!|\?\?\?\+?) ([\w-]+)", page.read_text("utf-8"), re.M))
    assert chapters <= LANGUAGES[translation].nav_translations.keys()
    assert kinds <= LANGUAGES[translation].admonition_translations.keys()


def code_words():
    """Every word of the code and the outputs of all pages, and of the code in their sentences."""
    words = set()
    for page in ROOT.glob("docs/en/**/*.md"):
        words |= {word for pieces in code(page).values() for piece in pieces for word in re.findall("[A-Za-z]+", piece)}
    for slug in SLUGS:
        for cell in read_cells(ROOT / f"snippets/{slug}.md"):
            words |= set(re.findall(r"[A-Za-z]+", f"{cell.code} {cell.output or ''}"))
    return words


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_says_what_the_code_says_in_every_language(picture):
    """A picture is one for all languages; words of a language stand in its description and its caption."""
    said = set()
    for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text"):
        said |= set(re.findall(r"[A-Za-z]{2,}", "".join(text.itertext())))
    assert said - code_words() - DATA == set()
