"""The prose keeps the signs of its language."""

import csv
import re

import pytest
import yaml

from tests.configuration import LANGUAGES, ROOT, flat, pages
from tools.cells.source import SourceError
from tools.languages import rules
from tools.languages.glossary import read_glossary
from tools.languages.typography import check

CASES = ROOT / "tests/structure/typography.csv"  # what is wrong, or nothing, and what is right


def test_a_page_keeps_the_signs_of_its_language(language, refuse):
    refuse(
        f"{page.path}:{line}: found {old!r}, wanted {new!r}"
        for page in pages(language)
        if language in page.path.parts  # it may show the English one
        for line, old, new in check(page.text, language, page.path)
    )


def test_the_words_of_the_site_and_the_glossary_keep_them_too(language, refuse):
    site = LANGUAGES[language]
    words = {**flat(site.extra["text"]), **(site.nav_translations or {}), **(site.admonition_translations or {})}
    words |= {term.id: term.says(language) for term in read_glossary(ROOT / "languages/glossary.csv")}
    refuse(f"{key!r} of {language!r}: {found}" for key in words if (found := check(words[key], language)))


def test_a_violation_says_what_was_found_and_what_was_wanted(language):
    """Code and formulas are shown as they are written."""
    cases = [row for row in csv.DictReader(CASES.open(encoding="utf-8")) if row["language"] == language]
    for row in cases:
        assert check(row["right"], language) == []
        if row["wrong"]:
            [(line, old, new)] = check(row["wrong"], language)
            assert (line, seen(row["wrong"]).replace(old, new)) == (1, seen(row["right"]))
    assert cases, f"{CASES} has none in {language}"


def seen(text):
    """As messages show it: links without their targets."""
    return re.sub(r"\[(.*)\]\(a\.md\)", r"\1", text)


def test_each_article_has_a_gender():
    _, *articles = yaml.safe_load((ROOT / "languages/rules.it.yml").read_text("utf-8"))["articles"]
    for feminine, masculine, *_ in articles:
        assert check(f"{masculine} query", "it") == [(1, f"{masculine} query", f"{feminine} query")]
        assert check(f"{feminine} query", "it") == []


PAGE = """---
description: {0}
template: e'.html
---

# {1} {{#e-perche}}

--8<-- "foundations/causal.md:leak"

$$
e' , !
$$

Una `e' ,` e $e'$ in [{2}](../e'(a).md#e'), https://example.org/e'!

!!! warning "{3}"
    ![{4}](e'.svg)

| a   |  {5}   |
|-----|--------|
"""


def test_prose_is_read_wherever_it_stands_and_nothing_else():
    assert check(PAGE.format(*["È così"] * 6), "it") == []
    faults = check(PAGE.format(*["E' così"] * 6), "it")
    assert [line for line, _, _ in faults] == [2, 6, 14, 16, 17, 19]
    assert all(new == old.replace("E' così", "È così") for _, old, new in faults)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sings: {a: b}", "rules.it.yml: there is no field 'sings'; is it 'signs'?"),
        ("signs: {<HEN>: b}\nparts: {HAN: a}", "rules.it.yml: there is no part <HEN>; is it 'HAN'?"),
        ("signs: {'(': b}", "rules.it.yml: '(' is no pattern: "),
        ("signs: [", "rules.it.yml: "),
    ],
)
def test_what_is_no_rule_is_named_with_its_file(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(rules, "FOLDER", tmp_path)
    (tmp_path / "rules.it.yml").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=re.escape(message)):
        rules.read.__wrapped__("it")
    with pytest.raises(SourceError, match=r"rules\.fr\.yml: there is no such file"):
        rules.read("fr")
