"""Every language says the same: the same sections, cells, formulas, links and pictures, in the same order."""

import re
from pathlib import Path

import pytest

from tests.configuration import ROOT, in_both, page_file, pages
from tools.cells.source import SourceError
from tools.languages.glossary import read_glossary, words_of
from tools.languages.markdown import parse, read
from tools.languages.translations import parts, refuse_difference, refuse_english

ENGLISH = """---
description: A page.
---

# Title

One $x_i$, a [link](other.md#a), `$y$` in code.

![A picture](../../assets/a.svg)

## Section {#section}

--8<-- "foundations/causal.md:leak"

$$
A = B
$$

??? question "Why?"

    - Because.

```sh
nox -s serve
```

| a | b |
|---|---|
| 1 | 2 |

The mask of `is_causal=True`.
"""


def test_a_translation_has_the_parts_of_the_english_page(translation, every_page):
    every_page(lambda page: refuse_difference(*in_both(page, translation)))


def test_every_section_has_an_id_and_every_page_a_description_for_search_results(language, every_page):
    def look(page):
        found = read(page_file(language, page))
        first, *headings = [text for _, text in parts(found)["heading"]]
        assert first == "#", f"{found.path}: a page begins with its title, `# Title`"
        assert all(re.fullmatch(r"##+ [a-z][a-z0-9-]*", heading) for heading in headings), found.path
        description = found.front.get("description", "")
        assert 20 <= len(description) <= 155, f"{found.path}:2: write `description: ...`, a sentence"

    every_page(look)


def test_a_translation_has_no_words_in_english(translation, every_page):
    """But for the terms that it takes from English."""
    terms = read_glossary(ROOT / "languages/glossary.csv")
    ours, theirs = ("en", "also_en"), (translation, f"also_{translation}")
    kept = {form.lower() for term in terms for form in {*term.forms(*ours)} & {*term.forms(*theirs)}}
    every_page(lambda page: refuse_english(*in_both(page, translation), kept))


# Words that stand in most sentences of a language and in those of no other.
COMMON = {
    "en": "the|of|and|is|are|was|that|with|which|this|these|from|it|its|for|by|be|not|have|when|where|than",
    "it": "il|la|le|gli|di|del|della|dei|delle|che|è|con|una|un|sono|da|nel|nella|al|alla|più|questo|questa",
}
QUOTED = re.compile('“[^”]*”|«[^»]*»|《[^》]*》|["][^"]*["]')


def foreign(page, language):
    """The sentences of a page in another language, each with its line; quotes, names in italics and links are none."""
    texts = [(block.line, words_of(block, with_names=False)) for block in page.blocks]
    for line, text in [(2, page.front.get("description", "")), *texts]:
        for sentence in re.split("[.;:?!。；：？！]", QUOTED.sub("", text)):
            others = [common for other, common in COMMON.items() if other != language]
            if any(len(re.findall(rf"\b(?:{common})\b", sentence, re.I)) > 1 for common in others) or (
                language != "zh" and re.search("[\u4e00-\u9fff]{4}", sentence)
            ):
                yield line, " ".join(sentence.split())


def test_no_sentence_is_in_another_language(language, refuse):
    refuse(
        f"{page.path}:{line}: {sentence!r} is in another language; translate it"
        for page in pages(language)
        if language in page.path.parts  # it may show the English one
        for line, sentence in foreign(page, language)
    )


@pytest.mark.parametrize(
    ("around", "sentence"),
    [
        ("it", "The weights of a row are not normalised"),
        ("zh", "The weights of a row are not normalised"),
        ("zh", "I pesi della riga sono nulli"),
        ("en", "I pesi della riga sono nulli"),
        ("en", "一行的权重"),
    ],
)
def test_a_sentence_in_another_language_is_found_unless_it_is_quoted(around, sentence):
    mine = {"en": "The row is right.", "it": "La riga è giusta.", "zh": "这一行正确。"}[around]
    assert [*foreign(parse(f"# A\n\n{mine} {sentence}: `a`.", Path("a.md")), around)] == [(3, sentence)]
    for quoted in (f"“{sentence}”", f"*{sentence}*", f"[{sentence}](https://a.org)"):
        assert [*foreign(parse(f"# A\n\n{mine} {quoted}.", Path("a.md")), around)] == []


def beside(italian):
    """The English page and this one."""
    return parse(ENGLISH, Path("en.md")), parse(italian, Path("it.md"))


ITALIAN = {
    "A page": "Una pagina",
    "# Title": "# Titolo",
    "One $x_i$, a [link]": "Un $x_i$, un [link]",
    "in code": "nel codice",
    "A picture": "Una figura",
    "## Section": "## Sezione",
    "Why?": "Perché?",
    "Because.": "Siccome.",
    "The mask of": "La maschera di",
}


def in_italian(*kept):
    """The page in Italian, but for some of its words."""
    text = ENGLISH
    for english in ITALIAN.keys() - {*kept}:
        text = text.replace(english, ITALIAN[english])
    return text


def test_a_translation_with_its_parts_and_no_word_in_english_is_right():
    refuse_difference(*beside(in_italian()))
    refuse_english(*beside(in_italian()), set())
    refuse_english(*beside(in_italian("# Title")), {"title"})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{#section}", "{#sezione}", "it.md:11: the heading here is '## sezione'"),
        ('--8<-- "foundations/causal.md:leak"', "", "it.md:1: the cell here is 'nothing'"),
        ("$x_i$", "$x_j$", "it.md:7: the formula here is 'x_j'"),
        ("other.md#a", "other.md", "it.md:7: the link here is 'other.md'"),
        ("assets/a.svg", "assets/b.svg", "the picture"),
        ("description:", "descrizione:", "the front matter key"),
        (" of `is_causal=True`", "", "it.md:1: the section 'section' lacks the code 'is_causal=True'; compare "),
        ("One $x_i$", "`One` $x_i$", "it.md:7: the section 'top' adds the code 'One'; compare "),
    ],
)
def test_a_difference_is_named_with_its_line(old, new, message):
    assert old in ENGLISH
    with pytest.raises(SourceError) as error:
        refuse_difference(*beside(ENGLISH.replace(old, new)))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ("A page", "it.md:2: still in English; translate 'a page.'"),
        ("# Title", "it.md:5: still in English; translate 'title'"),
        ("A picture", "it.md:9"),
        ("Why?", "it.md:19"),
    ],
)
def test_words_left_in_english_are_named_with_their_line(kept, message):
    with pytest.raises(SourceError, match=message):
        refuse_english(*beside(in_italian(kept)), set())
