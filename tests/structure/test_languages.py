"""Every language says the same: the same sections, cells, formulas, links and pictures, in the same order."""

import re
from functools import cache

import pytest

from tests.configuration import ROOT, page_file
from tools.cells.source import SourceError
from tools.glossary import read_glossary
from tools.markdown import read
from tools.translations import parts, refuse_difference, refuse_english

ENGLISH = """---
description: A page.
---

# Title

One $x_i$, a [link](other.md#a), `$y$` in code.

![A picture](../../assets/a.svg)

## Section {#section}

--8<-- "masks/causal.md:leak"

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


def test_a_translation_has_the_parts_of_the_english_page(page, translation):
    refuse_difference(page_file("en", page), page_file(translation, page))


def test_every_section_has_an_id_and_no_id_comes_twice(page, language):
    headings = [text for _, text in parts(read(page_file(language, page)))["heading"]]
    assert headings[0] == "#"
    assert headings.count("#") == 1
    assert all(re.fullmatch(r"##+ [a-z][a-z0-9-]*", heading) for heading in headings[1:])
    assert len(set(headings)) == len(headings)


def test_a_page_has_a_description_that_fits_a_search_result(page, language):
    found = read(page_file(language, page))
    assert 20 <= len(found.front.get("description", "")) <= 155, f"{found.path}:2: write `description: ...`, a sentence"


def test_a_translation_has_no_words_in_english(page, translation):
    refuse_english(page_file("en", page), page_file(translation, page), kept(translation))


@cache
def kept(language):
    """The terms that a language takes from English."""
    return {
        form.lower()
        for term in read_glossary(ROOT / "languages/glossary.csv")
        for form in set(term.forms("en", "also_en")) & set(term.forms(language, f"also_{language}"))
    }


def test_no_line_breaks_between_han_characters(page):
    """A browser draws a line break as a space, also between two Han characters."""
    han = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
    for block in read(page_file("zh", page)).blocks:
        said = "".join("\n" if piece.kind == "break" else piece.text for piece in block.pieces)
        assert not re.search(f"{han}\n", said), f"{page_file('zh', page)}:{block.line}: one paragraph is one line"


@pytest.fixture
def pages(tmp_path):
    def write(translation):
        (tmp_path / "en.md").write_text(ENGLISH, encoding="utf-8")
        (tmp_path / "it.md").write_text(translation, encoding="utf-8")
        return tmp_path / "en.md", tmp_path / "it.md"

    return write


def test_other_words_are_no_difference(pages):
    italian = ENGLISH.replace("One", "Un").replace("A picture", "Una figura").replace("Because", "Perché")
    refuse_difference(*pages(italian.replace("| 1 | 2 |", "| uno | due |").replace("Section", "Sezione")))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{#section}", "{#sezione}", "it.md:11: the heading here is '## sezione'"),
        ('--8<-- "masks/causal.md:leak"', "", "it.md: the cell here is 'nothing'"),
        ("$x_i$", "$x_j$", "it.md:7: the formula here is 'x_j'"),
        ("other.md#a", "other.md", "it.md:7: the link here is 'other.md'"),
        ("assets/a.svg", "assets/b.svg", "the picture"),
        ("??? question", "!!! question", "the admonition"),
        ("| 1 | 2 |\n", "", "the table row"),
        ("description:", "descrizione:", "the front matter key"),
        ("nox -s serve", "nox -s docs", "the code block"),
        (" of `is_causal=True`", "", "it.md: the section 'section' lacks the code 'is_causal=True'; compare "),
        ("One $x_i$", "`One` $x_i$", "it.md:7: the section 'top' adds the code 'One'; compare "),
        ("    - Because.", "    Because.", "the list item"),
    ],
)
def test_a_difference_is_named_with_its_line(pages, old, new, message):
    assert old in ENGLISH
    with pytest.raises(SourceError) as error:
        refuse_difference(*pages(ENGLISH.replace(old, new)))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Una pagina", "A page", "it.md:2: still in English; translate 'a page.'"),
        ("# Titolo", "# Title", "it.md:5: still in English; translate 'title'"),
        ("## Sezione", "## Section", "it.md:11"),
        ("Una figura", "A picture", "it.md:9"),
        ("Perché?", "Why?", "it.md:19"),
        ("Siccome.", "Because.", "it.md:21"),
    ],
)
def test_words_left_in_english_are_named_with_their_line(pages, old, new, message):
    italian = ENGLISH
    for english, word in ITALIAN.items():
        italian = italian.replace(english, word)
    refuse_english(*pages(italian), set())
    with pytest.raises(SourceError) as error:
        refuse_english(*pages(italian.replace(old, new)), set())
    assert message in str(error.value)
    refuse_english(*pages(italian.replace("# Titolo", "# Title")), {"title"})
