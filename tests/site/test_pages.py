"""A page that would swallow a part of itself, or run a script, is refused with its line and the mend."""

import re
from types import SimpleNamespace

import pytest

from tools.cells.source import SourceError
from tools.notebooks import stored_figures
from tools.site.body import inline_pictures, words_of_pictures
from tools.site.checks import check_glossary, check_pages, check_text, check_words
from tools.site.once import Kept
from tools.site.policy import with_policy

HEAD = "---\ndescription: A page.\n---\n\n# Title\n\n"


@pytest.fixture
def check(tmp_path):
    def check(text):
        path = tmp_path / "page.md"
        path.write_text(text, encoding="utf-8")
        check_text(path)

    return check


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("---\ndescription: A page.\n---\n", 1, "the page has no title"),
        ("# Title\n", 1, "the page has no description; write"),
        ("---\ndescripton: A page.\n---\n# Title\n", 1, "the page has no description; write"),
        ("---\ndescription: A page.\n\n# Title\n", 1, "the front matter has no end"),
        ("---\ndescription:\n---\n# Title\n", 1, "the page has no description; write"),
        ("---\ndescription: 3\n---\n# Title\n", 1, "the description is not a text"),
        (f"{HEAD}```python\nx = 1\n", 7, "the block that begins here is not closed"),
        (f"{HEAD}```python\nx = 1\n\n```python\ny = 2\n```\n", 7, "is not closed where it ends"),
        (f'{HEAD}```text\n\n--8<-- "masks/causal.md:leak"\n\n```\n', 7, "is not closed where it ends"),
        (f"{HEAD}??? note\nNot indented.\n", 7, "the text of this block is not below it"),
        (f'{HEAD}!!! warning "Open\n\n    Text.\n', 7, "the title of this block is not closed"),
        (f"{HEAD}Text.\n\n## B\n", 9, "a heading ends with an id"),
        (f"{HEAD}## B {{#b}} \n", 7, "and nothing behind it"),
        (f"{HEAD}### B {{#cell-b}}\n", 7, "a heading ends with an id"),
        (f"{HEAD}A formula $x^2 here.\n", 7, "the formula that begins here is not closed"),
        (f"{HEAD}<div>\n\nOpen.\n", 7, "<div> is not closed"),
        (f"{HEAD}Text.\n\n</article>\n", 9, "</article> closes nothing"),
        (f"{HEAD}<!-- open\n", 7, "the comment that begins here is not closed"),
        (f"{HEAD}<script>alert(1)</script>\n", 7, "a page holds no script; .* `<script>` between backticks"),
        (f'{HEAD}<b onclick="alert(1)">Here.</b>\n', 7, "a page holds no script"),
        (f"{HEAD}## About $x$ {{#x}}\n", 7, "no formula can stand"),
        (f"{HEAD}## A {{#a}}\n\n## B {{#a}}\n", 9, "a second section has the id 'a'"),
    ],
)
def test_a_slip_is_named_with_its_line_and_the_mend(check, text, line, said):
    with pytest.raises(SourceError, match=rf"page\.md:{line}: .*{said}"):
        check(text)


def test_what_only_looks_like_a_slip_is_left_alone(check):
    check(
        f"{HEAD}`<script>`, \\$5, `$x`, <https://example.org>, $a <b$, 1 < 2 > 0, a<br>b, <!-- a <div> -->\n\n"
        "```html\n<div>\n<script>\n```\n\n!!! note\n\n\tWith a tab.\n\n??? tip\n\n    ```python\n    x = 1\n    ```\n\n"
        '<p dir="rtl">العربية</p>\n\n``echo $HOME``\n\n[here](https://example.org/?a=$b)\n'
    )


def test_a_nav_without_a_page_that_others_lead_to_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"the nav lacks glossary\.md"):
        check_pages(["index.md", "verified.md"], tmp_path, [])


def test_a_nav_that_names_a_page_twice_is_refused(tmp_path):
    (tmp_path / "en").mkdir()
    for name in ("glossary.md", "verified.md"):
        (tmp_path / "en" / name).touch()
    with pytest.raises(SourceError, match=r"the nav names glossary\.md 2 times"):
        check_pages(["glossary.md", "verified.md", {"Again": ["glossary.md"]}], tmp_path, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "lacks 'arc'; write it"),
        ({"arc": ""}, r"'arc' has the places \[\], in 'en' it has"),
        (
            {"arc": "{capitolo}"},
            r"'arc' has the places \['capitolo'\], in 'en' it has \['chapter'\]; make them the same",
        ),
        ({"arc": ["{chapter}"]}, "'arc' is no text; put it between quotes"),
        ({"arc": "{chapter}", "arcs": "archi"}, "'arcs' is none of the words of 'en'; is it 'arc'?"),
    ],
)
def test_words_that_differ_from_the_english_ones_are_named_with_their_language(words, said):
    words = words | {"group": {"one": "uno"}, "clipboard.copy": "a word of Material"}
    with pytest.raises(SourceError, match=f"mkdocs.yml: extra.text of 'it'.* {said}"):
        check_words({"en": {"arc": "{chapter}", "group": {"one": "one"}}, "it": words})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("masks/casual#leak", "'masks/casual', which the nav lacks; mend its `where`; is it 'masks/causal'?"),
        ("masks/causal#leaks", "'masks/causal', which has no section 'leaks'; is it 'leak'?"),
    ],
)
def test_a_term_that_no_section_introduces_is_refused(tmp_path, where, said):
    page = tmp_path / "en/masks/causal.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"{HEAD}## Leaks {{#leak}}\n", encoding="utf-8")
    terms = SimpleNamespace(entries=[SimpleNamespace(id="leak", where=where)])
    with pytest.raises(SourceError, match=re.escape(f"glossary.csv: 'leak' is introduced on {said}")):
        check_glossary(["masks/causal.md"], tmp_path, "glossary.csv", terms)


def test_a_mistake_on_a_page_is_not_blamed_on_a_term_that_it_introduces(tmp_path):
    (tmp_path / "en").mkdir()
    (tmp_path / "en/causal.md").write_text(f"{HEAD}## Leaks\n", encoding="utf-8")
    terms = SimpleNamespace(entries=[SimpleNamespace(id="leak", where="causal#leak")])
    with pytest.raises(SourceError, match=r"causal\.md:7: a heading ends with an id"):
        check_glossary(["causal.md"], tmp_path, "glossary.csv", terms)


@pytest.mark.parametrize("drawing", ["no picture", "<svg><script>alert(1)</script></svg>"])
def test_a_picture_that_is_none_or_holds_a_script_is_refused(tmp_path, drawing):
    (tmp_path / "a.svg").write_text(drawing, encoding="utf-8")
    with pytest.raises(SourceError, match=r"a\.svg:1: not an SVG picture, or one with a script"):
        inline_pictures('<img alt="A" src="../assets/a.svg">', tmp_path, {})


def test_a_word_of_the_pictures_with_a_comma_too_many_is_refused(tmp_path):
    (tmp_path / "pictures.csv").write_text("en,it\nkeys,chiavi,no\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"pictures\.csv:2: found 3 cells, wanted 2; put a cell"):
        words_of_pictures(tmp_path / "pictures.csv", "it")


@pytest.mark.parametrize(("text", "said"), [("{}", ":1: not a notebook"), ('{"cells": [\n<<<<', ":2: not a notebook")])
def test_a_notebook_that_no_lab_wrote_is_refused(tmp_path, text, said):
    (tmp_path / "lab.ipynb").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=f"{said}.*nox -s update"):
        stored_figures(tmp_path / "lab.ipynb")


def test_a_policy_allows_the_scripts_of_the_theme_and_none_of_the_article():
    page = '<meta charset="utf-8"><script>theme()</script><article>{}</article>'
    assert with_policy(page.format("<script>page()</script>")).count("sha256-") == 1
    assert with_policy(page.format("</article><script>page()</script>")).count("sha256-") == 1


def test_what_is_kept_is_made_anew_only_from_another_source():
    kept, made = Kept(), []
    for source in ("a", "a", "b", "a"):
        assert kept("page", source, lambda source=source: made.append(source) or source) == source
    assert made == ["a", "b", "a"]
