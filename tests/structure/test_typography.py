"""The prose keeps the signs of its language."""

import re

from tests.configuration import LANGUAGES, PAGES, flat
from tools.languages.glossary import read_glossary
from tools.languages.typography import ARTICLES, check

ENGLISH = {
    "it's": "it’s",
    'a "peso"': "a “peso”",
    "76 % of it": "76% of it",
    "16MB": "16\u00a0MB",
    "10 000 tokens": "10\u00a0000 tokens",
}
ITALIAN = {
    "perche' no": "perché no",
    "e' vero": "è vero",
    "un po' di più": "un po’ di più",
    "é vero": "è vero",
    "ciò che puo dare": "ciò che può dare",
    "vede se stesso": "vede sé stesso",
    "un pò meno": "un po’ meno",
    'il "peso"': "il «peso»",
    "una riga – poi": "una riga, poi",
    "Funziona!": "Funziona.",
    "vale 0,95": "vale 0.95",
    "attenzione casuale": "attenzione causale",
    "i tokens": "i token",
    "il «peso": "il «»peso",
    "la token": "il token",
    "del output": "dell’output",
    "le queries": "le query",
    "il query": "la query",
}
CHINESE = {
    "词元token": "词元 token",
    "第0 行": "第 0 行",
    "看`tril` 吧": "看 `tril` 吧",
    "在 [掩码](a.md)里": "在[掩码](a.md)里",
    "形状(2, 3)": "形状 (2, 3)",
    "形状（2, 3）对": "形状 (2, 3) 对",
    "先看 ;再写": "先看；再写",
    "先看, 再写": "先看，再写",
    "到此. 再看": "到此。再看",
    "１ 行": "1 行",
    "`a`, `b` 都对": "`a`、`b` 都对",
    "对吗?": "对吗？",
    "到此为止.": "到此为止。",
    "等一等...": "等一等……",
    "词元(token)": "词元（token）",
    "掩 码": "掩码",
    "说「好」": "说“好”",
    "好！": "好。",
    "一行\n两行": "一行两行",
    "先**复制：**": "先**复制**：",
    "它*很*重": "它**很**重",
}
CASES = {"en": ENGLISH, "it": ITALIAN, "zh": CHINESE}
EXCEPTED = {  # by the style sheets
    "en": ["4 128-dimensional heads"],
    "it": [],
    "zh": ["*整句的图注。*", "看 *Tee*（茶）和 *one*", "1/(1 − p) 倍", "“Hi there!”", "编码器-解码器", "头 1：2 · 2"],
}


def test_a_page_keeps_the_signs_of_its_language(root, language, refuse):
    refuse(
        f"{path}:{line}: found {old!r}, wanted {new!r}"
        for path in (root / f"docs/{language}/{page}.md" for page in PAGES)
        for line, old, new in check(path.read_text("utf-8"), language, path)
    )


def test_the_words_of_the_site_and_the_glossary_keep_them_too(root, language, refuse):
    site = LANGUAGES[language]
    words = {**flat(site.extra["text"]), **(site.nav_translations or {}), **(site.admonition_translations or {})}
    words |= {term.id: term.says(language) for term in read_glossary(root / "languages/glossary.csv")}
    refuse(f"{key!r} of {language!r}: {found}" for key in words if (found := check(words[key], language)))


def test_a_violation_says_what_was_found_and_what_was_wanted(language):
    for bad, good in CASES[language].items():
        [(line, old, new)] = check(bad, language)
        assert (line, seen(bad).replace(old, new)) == (1, seen(good) if language == "zh" else good)
    assert [good for good in (*CASES[language].values(), *EXCEPTED[language]) if check(good, language)] == []


def seen(text):
    """As messages show it: links without their targets."""
    return re.sub(r"\[(.*)\]\(a\.md\)", r"\1", text)


def test_each_article_has_a_gender():
    for feminine, masculine, *_ in map(str.split, ARTICLES.split(",")):
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
RIGHT = ["È così"] * 6


def test_prose_is_read_wherever_it_stands_and_nothing_else():
    assert check(PAGE.format(*RIGHT), "it") == []
    for place in range(len(RIGHT)):
        wrong = [*RIGHT[:place], "E' così", *RIGHT[place + 1 :]]
        line = PAGE[: PAGE.index(f"{{{place}}}")].count("\n") + 1
        [(found_at, old, new)] = check(PAGE.format(*wrong), "it")
        assert (found_at, new) == (line, old.replace("E' così", "È così"))


def test_a_message_shows_code_and_formulas_as_they_are_written():
    assert check("先看 `a`,再说 $x$ 吧", "zh") == [(1, "先看 `a`,再说 $x$ 吧", "先看 `a`，再说 $x$ 吧")]
