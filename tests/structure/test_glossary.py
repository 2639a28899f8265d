"""Each translation says the terms that the glossary chose for its language, and no word that it avoids."""

import pytest

from tests.configuration import LANGUAGES, PAGES, ROOT, page_file
from tools.cells.source import SourceError
from tools.languages.glossary import Glossary, prose_of, refuse_other_terms
from tools.languages.markdown import read

PROJECT = Glossary(ROOT / "languages/glossary.csv")


def test_a_translation_says_the_terms_of_the_glossary(translation, every_page):
    translated = [page for page in PAGES if translation in page_file(translation, page).parts]
    every_page(
        lambda page: refuse_other_terms(page_file("en", page), page_file(translation, page), translation, PROJECT),
        translated,
    )


def test_a_term_for_readers_is_introduced_where_the_glossary_says(refuse):
    refuse(f"{PROJECT.path}:{term.line}: {fault}" for term in PROJECT.terms if term.says("en") for fault in wrong(term))


def wrong(term):
    name, _, section = term.cells["where"].partition("#")
    parts = prose_of(read(page_file("en", name)))
    if section not in parts:
        yield f"{name} has no section {section!r}"
    if not any(term == said for part in parts.values() for _, _, said in PROJECT.english(part)):
        yield f"{name} does not say {term.id!r}"
    for language in LANGUAGES:
        if len(term.says(language)) > 130 or term.says(language)[-1] not in ".。":
            yield f"`says_{language}` is no sentence of at most 130 characters"


# --- on small pages -------------------------------------------------------------------------------

HEADER = "id,en,it,zh,also_it,not_zh,avoid_it"
ROWS = [
    "weight,weight,peso,权重,,,pesatura",
    "attention-weight,attention weight,peso di attenzione,注意力权重,,,",
    "matrix,matrix,matrice,矩阵,,,",
    "masked,masked,mascherato,掩蔽,nascosto,,",
    "row,row,riga,行,,运行,",
    "kernel,kernel (of a GPU),kernel,内核,,,",
    "transformer,Transformer,Transformer,Transformer,,,trasformatore",
]
AVOIDED = "found 'pesatura', wanted 'peso' for 'weight' (glossary.csv:2)"


@pytest.fixture
def glossary(tmp_path):
    def write(*rows, header=HEADER):
        (tmp_path / "glossary.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
        return Glossary(tmp_path / "glossary.csv")

    return write


@pytest.fixture
def faults(tmp_path, glossary):
    """What the checker says of an English text and its translation, a line for each fault."""

    def check(english, other, language="it"):
        for name, text in (("en", english), (language, other)):
            (tmp_path / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
        try:
            refuse_other_terms(tmp_path / "en.md", tmp_path / f"{language}.md", language, glossary(*ROWS))
        except SourceError as error:
            return str(error).replace(f"{tmp_path}/", "").split("\n")
        return []

    return check


def test_a_term_that_is_missing_is_named_with_both_lines(faults):
    english = "# Title\n\n## Weights {#weights}\n\nThe\nmatrix and the row."
    italian = "# Matrice\n\n## I pesi {#weights}\n\nLa\ntabella e la riga."
    assert faults(english, italian) == ["it.md:3: found nothing, wanted 'matrice' for 'matrix' (en.md:6)"]


def test_an_avoided_word_is_named_wherever_it_stands(faults):
    assert faults("# One", "# Uno\n\nUna pesa**tura**,\ndue pesature.") == [
        f"it.md:3: {AVOIDED}",
        f"it.md:4: {AVOIDED.replace('tura', 'ture', 1)}",
    ]
    assert faults("# One", "---\ndescription: Una pesatura.\n---\n\n# Uno") == [f"it.md:2: {AVOIDED}"]


def test_inflection_and_other_right_forms_are_no_fault(faults):
    english = "Two weights, matrices, attention\nweights, a kernel, a masked row."
    assert faults(english, "Due pesi, le matrici, i pesi\ndell’attenzione, un kernel, una riga nascosta.") == []


@pytest.mark.parametrize(
    ("english", "italian", "wanted"),
    [
        ("a weight", "l’appeso", "peso"),
        ("kernel", "kernels", "kernel"),
        ("Transformer", "transformer", "Transformer"),
    ],
)
def test_another_word_is_no_form(faults, english, italian, wanted):
    [fault] = faults(english, italian)
    assert f"wanted '{wanted}'" in fault


def test_chinese_has_no_gaps_and_other_words_with_the_character(faults):
    assert faults("one row", "第 0 行", "zh") == []
    assert faults("one row", "再运行一次", "zh") == ["zh.md:1: found nothing, wanted '行' for 'row' (en.md:1)"]


def test_what_is_no_prose_has_no_terms(faults):
    code = "`weight`\n\n```python\nweight = 1\n```\n\n$\\text{weight}$ and $$\nweight\n$$"
    targets = '[A page](weight.md#weight)\n\n--8<-- "masks/weight.md:weight"\n\n??? weight "Why?"\n\n    transformers'
    assert faults(f"{code}\n\n{targets}\n\n## Heavy {{#weight}}", "## Niente {#weight}") == []
    assert faults("A weight", "Niente") != []


@pytest.mark.parametrize(
    "words", ["[The weight of words](https://a.org)", "*weight*", "| lost weight | x |\n|---|---|"]
)
def test_a_name_is_no_term(faults, words):
    assert faults(words, words) == []
    assert faults(words.replace("weight", "pesatura"), words.replace("weight", "pesatura")) == []


def test_words_of_links_and_pictures_are_prose(faults):
    assert len(faults("[The weight](a.md), ![A row](b.svg)", "[La massa](a.md), ![Una fila](b.svg)")) == 2


EXCUSED = "---\nglossary:\n  top/weight: The text is about apples.\n---\n\n# Uno\n\nLa massa."


def test_an_exception_excuses_its_term_in_its_section_and_nothing_else(faults):
    assert faults("# The weight", EXCUSED) == []
    assert len(faults("# The weight of a row", EXCUSED)) == 1
    assert len(faults("# The weight\n\n## Weight {#weight}", f"{EXCUSED}\n\n## Massa {{#weight}}")) == 1
    needless = "it.md:1: the exception 'top/weight' excuses nothing, or gives no reason; take it out"
    assert faults("# The apple", EXCUSED) == [needless]
    assert faults("# The weight", EXCUSED.replace("The text is about apples.", "")) == [needless]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["row,row,riga"], "glossary.csv:2: has not one cell for each column"),
        (["row,row,,行,,,,", "line,line,linea,线,,,,"], "glossary.csv:2: the column 'it' is empty; write it for 'row'"),
        (["row,row,riga,行,,,,", "line,row (a line),riga,行,,,,"], "glossary.csv:3: 'row' stands in line 2, too"),
        (["row,row,riga,行,a/b#c,One line.,,一行。"], "glossary.csv:2: the column 'says_it' is empty"),
    ],
)
def test_a_row_that_is_no_term_is_named_with_its_line(glossary, rows, message):
    with pytest.raises(SourceError) as error:
        glossary(*rows, header="id,en,it,zh,where,says_en,says_it,says_zh")
    assert message in str(error.value)


def test_a_new_language_has_once_it_is_begun_a_word_for_each_term(glossary):
    glossary(*(f"{row}," for row in ROWS), header=f"{HEADER},ja")
    with pytest.raises(SourceError, match=r"glossary\.csv:3: the column 'ja' is empty"):
        glossary(f"{ROWS[0]},重み", *(f"{row}," for row in ROWS[1:]), header=f"{HEADER},ja")
