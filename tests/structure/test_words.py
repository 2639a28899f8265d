"""The words that stand in no page: those of mkdocs.yml, and those inside the pictures."""

import itertools
import re
from functools import cache
from html import unescape
from xml.etree import ElementTree

from tests.configuration import CONFIG, LANGUAGES, ROOT, SLUGS, flat
from tools.labs.notebooks import SVG, stored_figures
from tools.languages.glossary import Glossary, read_rows
from tools.languages.pictures import words_of_pictures

PLACES = re.compile(r"\{(\w+)\}|<(\w+)")  # what a sentence has filled in, and its tags
SAME = {"it": {"output"}}  # Italian says it, too
ENGLISH = {"original"}  # the name of a link to an English page, marked as English
EXPLORERS = ROOT / "languages/explorers.csv"
PICTURES = sorted(ROOT.glob("docs/assets/*.svg"))
TABLE = ROOT / "languages/pictures.csv"
WORDS = words_of_pictures(TABLE, "en")
# A fixed phrase, too.
SAME_IN_EXPLORERS = {
    "it": {
        "attend",
        "bug",
        "comma",
        "ignore",
        "kv_prefill",
        "layout",
        "padded",
        "pick_kernel",
        "query",
        "shape",
        "window",
    }
}
SAME_IN_PICTURES = {
    "it": {"decoder", "encoder", "query", "layer 1", "layer 2", "loss", "output", *(f"token {n}" for n in range(4))}
}
LABS = [slug for slug in SLUGS if slug.startswith("labs/")]
KEPT = {
    "labs/break-it-find-it": (
        "future()|reads()|prefix()|batch()|pads_right()|pads_left()|empty()|steps()|memory()|state()|modes()|"
        "gradients()|formats()|reference()"
    ),
    "labs/see-the-masks": "causal|padding|window|prefix|documents|lost|Your|journey|starts|with|one|step|<pad>",
    "labs/what-it-costs": (
        "explicit|SDPA|FlexAttention|OLMo 2 7B|OLMo 3 7B|MiniMax-M2|gpt-oss 120b|Gemma 3 1B|DeepSeek-V3|Mistral Small 4"
    ),
}
LETTERS = re.compile("[A-Za-z]{2,}")
ENGLISH_TEXT = "\n".join(page.read_text("utf-8") for page in ROOT.glob("docs/en/**/*.md"))


def test_the_words_of_the_site_are_there_in_every_language_with_the_same_places(translation):
    ours, theirs = (flat(LANGUAGES[language].extra["text"]) for language in ("en", translation))
    assert {key for key in theirs if "." not in key} == ours.keys()  # with a dot, a word of Material
    assert {key for key in ours if sorted(PLACES.findall(ours[key])) != sorted(PLACES.findall(theirs[key]))} == set()
    assert {key for key in ours if ours[key] == theirs[key]} == SAME.get(translation, set()) | ENGLISH


def test_every_chapter_and_every_kind_of_admonition_has_a_name_in_every_language(translation):
    kinds, language = set(re.findall(r"^ *(?:!!!|\?\?\?\+?) ([\w-]+)", ENGLISH_TEXT, re.M)), LANGUAGES[translation]
    chapters = {name for item in CONFIG.nav if isinstance(item, dict) for name in item}
    unnamed = chapters - (language.nav_translations or {}).keys()
    assert unnamed == set(), "name these in nav_translations in mkdocs.yml"
    assert kinds - (language.admonition_translations or {}).keys() == set(), "and these in admonition_translations"


def words_in(picture):
    """Each text of a picture that has a word; a name of the code, <text class="code">, stays as it is."""
    for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text"):
        words = "".join(text.itertext())
        if LETTERS.search(words) and not text.get("class", "").startswith("code"):
            yield words


@cache
def written(slug):
    """Every text with a word in the figures of a lab, as they are drawn."""
    figures = itertools.chain.from_iterable(stored_figures(ROOT / f"docs/en/{slug}.ipynb").values())
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", "".join(figure.data[SVG] for figure in figures))
    return {unescape(text) for text in texts if LETTERS.search(text)}


def test_a_text_in_a_figure_of_a_lab_stands_in_the_table_or_is_kept():
    """A token, a name of the code and a unit are the same in every language."""
    for lab in LABS:
        assert written(lab) - WORDS.keys() == set(filter(None, KEPT.get(lab, "").split("|"))), lab


def test_every_picture_is_on_a_page():
    assert [picture.name for picture in PICTURES if f"/{picture.name})" not in ENGLISH_TEXT] == []


def test_every_word_of_the_pictures_is_in_one_and_has_its_translation(translation):
    in_pictures = {piece for picture in PICTURES for piece in words_in(picture)}
    assert WORDS.keys() - set().union(*map(written, LABS)) <= in_pictures <= WORDS.keys()
    translated = words_of_pictures(TABLE, translation)
    assert WORDS.keys() - translated.keys() == set()
    assert {word for word in WORDS if translated[word] == word} == SAME_IN_PICTURES.get(translation, set())


def test_the_words_of_pictures_and_explorers_are_the_terms_of_the_glossary(translation):
    glossary = Glossary(ROOT / "languages/glossary.csv")
    translated = {row["en"]: row[translation] for row in read_rows(EXPLORERS)}
    for word, words in [*words_of_pictures(TABLE, translation).items(), *translated.items()]:
        prose = [(1, words)]
        for _, _, term in glossary.english([(1, word)]):
            assert any(glossary.chosen(prose, translation, term)), f"{word}: wanted {term.cells[translation]}"
        assert not any(glossary.avoided(prose, translation)), f"{word}: {words} is to be avoided"


def test_every_word_of_the_explorers_is_used_and_there_once_in_every_language(translation):
    rows = read_rows(EXPLORERS)
    for row in rows:
        assert row[translation], row["key"]
        assert sorted(PLACES.findall(row[translation])) == sorted(PLACES.findall(row["en"])), row["key"]
    assert {row["key"] for row in rows if row[translation] == row["en"]} == SAME_IN_EXPLORERS.get(translation, set())
    users = [*ROOT.glob("theme/explorers/*.html"), *ROOT.glob("verified/explorers/*.json")]
    used = "".join(path.read_text("utf-8") for path in users)
    keys, bugs = {row["key"] for row in rows}, set(re.findall(r'"bug": "(.+?)"', used))
    assert len(keys) == len(rows)
    assert {*re.findall(r"\bwords\.(\w+)", used), *bugs} <= keys <= {*re.findall(r"\w+", used), *bugs}
