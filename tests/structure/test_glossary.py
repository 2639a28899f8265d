"""Each translation says the terms that the glossary chose for its language, and no word that it avoids."""

import re
from pathlib import Path

import pytest

from tests.configuration import LANGUAGES, PAGES, ROOT, in_both, page_file
from tests.structure.conftest import refused
from tools.cells.source import SourceError
from tools.languages.glossary import Glossary, prose_of, refuse_other_terms
from tools.languages.markdown import parse, read

PROJECT = Glossary(ROOT / "languages/glossary.csv")


def test_a_translation_says_the_terms_of_the_glossary(translation, every_page):
    translated = [page for page in PAGES if translation in page_file(translation, page).parts]
    every_page(lambda page: refuse_other_terms(*in_both(page, translation), translation, PROJECT), translated)


def test_a_term_for_readers_is_introduced_where_the_glossary_says(refuse):
    refuse(f"{PROJECT.path}:{term.line}: {fault}" for term in PROJECT.terms if term.says("en") for fault in wrong(term))


def wrong(term):
    name, _, section = term.cells["where"].partition("#")
    parts = prose_of(read(page_file("en", name)))
    if section not in parts:
        yield f"{name} has no section {section!r}"
    if not any(term == named for part in parts.values() for _, _, named in PROJECT.english(part)):
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


@pytest.fixture
def glossary(tmp_path, monkeypatch):
    """Read a glossary of these rows."""
    monkeypatch.chdir(tmp_path)

    def glossary(*rows, header=HEADER):
        Path("glossary.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
        return Glossary(Path("glossary.csv"))

    return glossary


def faults(glossary, english, other, language="it"):
    """What the checker says of an English text and its translation, a line for each fault."""
    pages = parse(english, Path("en.md")), parse(other, Path(f"{language}.md"))
    message = refused(lambda _: refuse_other_terms(*pages, language, glossary(*ROWS)), "")
    return message.split("\n") if message else []


def lacks(chosen, term, line=1, said_in=1):
    return f"it.md:{line}: found nothing, wanted {chosen!r} for {term!r} (en.md:{said_in})"


AVOIDED = "found 'pesatura', wanted 'peso' for 'weight' (glossary.csv:2)"
NEEDLESS = "it.md:1: the exception 'top/weight' excuses nothing, or gives no reason; take it out"
EXCUSED = "---\nglossary:\n  top/weight: The text is about apples.\n---\n\n# Uno\n\nLa massa."
FORMS = "Two weights, matrices, attention\nweights, a kernel, a masked row."
FORME = "Due pesi, le matrici, i pesi\ndell’attenzione, un kernel, una riga nascosta."
TARGETS = '[A page](weight.md#weight)\n\n--8<-- "masks/weight.md:weight"\n\n??? weight "Why?"\n\n    transformers'
CODE = "`weight`\n\n```python\nweight = 1\n```\n\n$\\text{weight}$ and $$\nweight\n$$"
SECTION = "# Title\n\n## Weights {#weights}\n\nThe\nmatrix and the row."
CASES = [  # inflection, names, code, quotes and what is excused are no fault
    (FORMS, FORME, []),
    (f"{CODE}\n\n{TARGETS}\n\n## Heavy {{#weight}}", "## Niente {#weight}", []),
    ("[The weight of words](https://a.org)", "[The pesatura of words](https://a.org)", []),
    ("*weight*", "*pesatura*", []),
    ("| lost weight | x |\n|---|---|", "| lost weight | x |\n|---|---|", []),
    ("# The weight", EXCUSED, []),
    (SECTION, "# Matrice\n\n## I pesi {#weights}\n\nLa\ntabella e la riga.", [lacks("matrice", "matrix", 3, 6)]),
    ("# One", "# Uno\n\nUna pesa**tura**.", [f"it.md:3: {AVOIDED}"]),
    ("# One", "# Uno\n\nTanto,\ndue pesature.", [f"it.md:4: {AVOIDED.replace('tura', 'ture', 1)}"]),
    ("# One", "---\ndescription: Una pesatura.\n---\n\n# Uno", [f"it.md:2: {AVOIDED}"]),
    ("a weight", "l’appeso", [lacks("peso", "weight")]),
    ("kernel", "kernels", [lacks("kernel", "kernel")]),
    ("Transformer", "transformer", [lacks("Transformer", "Transformer")]),
    ("![A row](b.svg)", "![Una fila](b.svg)", [lacks("riga", "row")]),
    ("# The weight of a row", EXCUSED, [lacks("riga", "row", 5)]),
    ("# The apple", EXCUSED, [NEEDLESS]),
    ("# The weight", EXCUSED.replace("The text is about apples.", ""), [NEEDLESS]),
]


@pytest.mark.parametrize(("english", "italian", "wanted"), CASES)
def test_a_term_that_is_missing_or_avoided_is_named_with_its_lines(glossary, english, italian, wanted):
    assert faults(glossary, english, italian) == wanted


def test_chinese_has_no_gaps_and_other_words_with_the_character(glossary):
    assert faults(glossary, "one row", "第 0 行", "zh") == []
    [fault] = faults(glossary, "one row", "再运行一次", "zh")
    assert fault == "zh.md:1: found nothing, wanted '行' for 'row' (en.md:1)"


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (["row,row,riga"], HEADER, "glossary.csv:2: has not one cell for each column"),
        (["a,row,,行,,,", ROWS[0]], HEADER, "glossary.csv:2: the column 'it' is empty; write it for 'a'"),
        (["row,row,riga,行,,,", "line,row (a line),riga,行,,,"], HEADER, "glossary.csv:3: 'row' stands in line 2, too"),
        (["row,row,r,行,a#c,.,,。"], "id,en,it,zh,where,says_en,says_it,says_zh", "column 'says_it' is empty"),
        ([f"{ROWS[0]},重", f"{ROWS[1]},"], f"{HEADER},ja", "glossary.csv:3: the column 'ja' is empty"),
    ],
)
def test_a_row_that_is_no_term_is_named_with_its_line(glossary, rows, header, message):
    with pytest.raises(SourceError, match=re.escape(message)):
        glossary(*rows, header=header)


def test_a_new_language_may_be_empty(glossary):
    glossary(*(f"{row}," for row in ROWS), header=f"{HEADER},ja")
