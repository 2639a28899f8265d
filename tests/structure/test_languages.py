"""Every language says the same: the same sections, cells, formulas, links and pictures, in the same order."""

import re
from pathlib import Path

import pytest

from tests.configuration import LANGUAGES, PAGES, ROOT, in_both, page_file
from tools.cells.source import SourceError
from tools.languages import rules
from tools.languages.glossary import read_glossary, words_of
from tools.languages.markdown import parse, read
from tools.languages.translations import parts, refuse_difference, refuse_english


def test_a_translation_has_the_parts_of_the_english_page(translation, every_page):
    every_page(lambda page: refuse_difference(*in_both(page, translation)))


def test_every_section_has_an_id_and_every_page_a_description_for_search_results(language, every_page):
    def look(page):
        file = read(page_file(language, page))
        first, *headings = [text for _, text in parts(file)["heading"]]
        assert first == "#", f"{file.path}: a page begins with its title, `# Title`"
        assert all(re.fullmatch(r"##+ [a-z][a-z0-9-]*", heading) for heading in headings), file.path
        description = file.front.get("description", "")
        length = f"the description has {len(description)} characters; write a sentence of 20 to 155"
        assert 20 <= len(description) <= 155, f"{file.path}:{file.line_of('description')}: {length}"

    every_page(look)


def test_a_translation_has_no_words_in_english(translation, every_page):
    """But for the terms that it takes from English."""
    terms = read_glossary(ROOT / "languages/glossary.csv")
    ours, theirs = ("en", "also_en"), (translation, f"also_{translation}")
    kept = {form.lower() for term in terms for form in {*term.forms(*ours)} & {*term.forms(*theirs)}}
    every_page(lambda page: refuse_english(*in_both(page, translation), kept))


COMMON = {language: "|".join(common) for language in LANGUAGES if (common := rules.read(language).common)}
QUOTED = re.compile('“[^”]*”|«[^»]*»|《[^》]*》|["][^"]*["]')


def refuse_foreign(page, language):
    """`SourceError` for a sentence in another language that is no quote, no name in italics and no link elsewhere."""
    texts = [(block.line, words_of(block, with_names=False)) for block in page.blocks]
    for line, text in [(page.line_of("description"), page.front.get("description", "")), *texts]:
        for sentence in re.split("[.;:?!。；：？！]", QUOTED.sub("", text)):
            others = [common for other, common in COMMON.items() if other != language]
            if any(len(re.findall(rf"\b(?:{common})\b", sentence, re.I)) > 1 for common in others) or (
                language != "zh" and re.search("[\u4e00-\u9fff]{4}", sentence)
            ):
                raise SourceError(f"{page.path}:{line}: {sentence.strip()!r} is in another language; translate it")


def test_no_sentence_is_in_another_language(language, every_page):
    translated = [page for page in PAGES if language in page_file(language, page).parts]
    every_page(lambda page: refuse_foreign(read(page_file(language, page)), language), translated)


# --- planted -------------------------------------------------------------------------------------------

ENGLISH = """---
description: A page.
asks:
  - section: Do I use `is_causal`?
  - top: What else?
---
# Title
One $x_i$, a [link](other.md#a), `$y$` in code.
![A picture](../../assets/a.svg)
## Section {#section}
--8<-- "foundations/causal.md:leak"
??? question "Why?"
    - Because of `is_causal=True`.
"""
ITALIAN = """---
description: Una pagina.
asks:
  - section: Devo usare `is_causal`?
  - top: Che altro?
---
# Titolo
Un $x_i$, un [link](other.md#a), `$y$` nel codice.
![Una figura](../../assets/a.svg)
## Sezione {#section}
--8<-- "foundations/causal.md:leak"
??? question "Perché?"
    - A causa di `is_causal=True`.
"""


def compare(italian, kept=()):
    pages = parse(ENGLISH, Path("en.md")), parse(italian, Path("it.md"))
    refuse_difference(*pages)
    refuse_english(*pages, set(kept))
    refuse_foreign(pages[1], "it")


def test_a_translation_with_its_parts_and_no_word_in_english_is_right():
    compare(ITALIAN)
    compare(ITALIAN.replace("Titolo", "Title"), kept=["title"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## Sezione", "### Sezione", "it.md:10: the heading here is '### section'"),
        ('--8<-- "foundations/causal.md:leak"', "", "it.md:1: the cell here is 'nothing'"),
        ("- top: Che", "- section: Che", "it.md:5: the question here is 'section'; in"),
        ("$x_i$", "$x_j$", "it.md:8: the formula here is 'x_j'"),
        ("other.md#a", "other.md", "it.md:8: the link here is 'other.md'"),
        ("assets/a.svg", "assets/b.svg", "the picture"),
        ("description:", "descrizione:", "the front matter key"),
        (" di `is_causal=True`", "", "it.md:1: the section 'section' lacks the code 'is_causal=True'; compare "),
        ("Un $x_i$", "`Un` $x_i$", "it.md:8: the section 'top' adds the code 'Un'; compare "),
        ("Una pagina.", "A page.", "it.md:2: still in English; translate 'a page.'"),
        ("Che altro?", "What else?", "it.md:5: still in English; translate 'what else?'"),
        ("Titolo", "Title", "it.md:7: still in English; translate 'title'"),
        ("nel codice", "nel codice. It is in the code", "it.md:8: 'It is in the code' is in another language"),
        ("Perché?", "Why?", "it.md:12: still in English; translate 'why?'"),
    ],
)
def test_a_difference_is_named_with_its_line(old, new, message):
    assert old in ITALIAN
    with pytest.raises(SourceError, match=re.escape(message)):
        compare(ITALIAN.replace(old, new))


FOREIGN = [("zh", "The weights of a row"), *((around, "I pesi della riga sono nulli") for around in ("zh", "en"))]


@pytest.mark.parametrize(("around", "sentence"), FOREIGN)
def test_a_sentence_in_another_language_is_named_unless_it_is_a_quote_or_a_name(around, sentence):
    with pytest.raises(SourceError):
        refuse_foreign(parse(sentence, Path("a.md")), around)
    for name in (f"“{sentence}”", f"*{sentence}*", f"[{sentence}](https://a.org)"):
        refuse_foreign(parse(name, Path("a.md")), around)
