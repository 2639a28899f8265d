"""Every translation was made from the English of today, or tells its readers which sections were not."""

from pathlib import Path

import pytest

from tools.cells.source import SourceError
from tools.languages import freshness
from tools.languages.freshness import accept, refuse_undeclared
from tools.languages.markdown import english

MKDOCS = "nav: [masks/causal.md]\nplugins: [i18n: {languages: [locale: en, locale: it]}]\n"
ENGLISH = """---
description: A page.
asks:
  - one: Who answers?
---

# Title

Hello.

## One {#one}

Say one.
"""


def test_a_translation_was_made_from_the_english_of_today(translation, every_page):
    every_page(lambda page: refuse_undeclared(Path("docs", translation, f"{page}.md")))


# --- on small pages -------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A page that has been accepted."""
    monkeypatch.chdir(tmp_path)
    made = Path("docs/it/masks/causal.md")
    (tmp_path / "mkdocs.yml").write_text(MKDOCS, encoding="utf-8")
    for path, text in {english(made): ENGLISH, made: ENGLISH.replace("Say", "Di’")}.items():
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    accept(made)
    return made


def change(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_an_accepted_page_is_current_and_keeps_its_words(made):
    refuse_undeclared(made)
    text = made.read_text("utf-8")
    assert text.startswith('---\ndescription: A page.\nasks:\n  - one: Who answers?\nmade_from:\n  "asks": "')
    assert text.endswith(ENGLISH.replace("Say", "Di’").partition("---\n\n")[2])
    accept(made)
    assert made.read_text("utf-8") == text, "to accept twice changes nothing"


def test_what_has_no_words_is_no_change(made):
    change(english(made), "Say one.", "Say\n  one.")
    change(english(made), "A page.", "A page.\nbuilds_on: [masks/padding]\naliases:\n  - one: what is asked")
    refuse_undeclared(made)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("one.", "1.", "one"),
        ("## One", "## Two", "one"),
        ("A page", "The page", "top"),
        ("one: Who", "top: Who", "asks"),
        ("## One", "## New {#new}\n\nSay new.\n\n## One", "new"),
    ],
)
def test_a_change_is_named_until_it_is_declared_or_accepted(made, capsys, old, new, name):
    change(english(made), old, new)
    with pytest.raises(SourceError, match=f"^{made}:1: the English of {name} has changed .*behind: .{name}"):
        refuse_undeclared(made)
    change(made, "made_from:", f"behind: [{name}]\nmade_from:")
    refuse_undeclared(made)
    freshness.main([])
    freshness.main(["--accept", "masks/causal", "--lang", "it"])
    freshness.main([])
    assert capsys.readouterr().out == f"{made}: {name}\n"
    assert "behind" not in made.read_text("utf-8")
    refuse_undeclared(made)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("behind: [one]\nmade_from:", "one is as the English is; take it out of `behind`"),
        ("behind: all\nmade_from:", "has a text, but `behind: all` shows the English one"),
        ("behind: one\nmade_from:", "`behind` is 'one'; write"),
        ("new:", "says nowhere from which English it was made; once it is whole, nox -s"),
    ],
)
def test_a_page_that_says_it_is_behind_without_need_or_nothing_is_named(made, fields, message):
    change(made, "made_from:", fields)
    with pytest.raises(SourceError, match=f"^{made}:1: .*{message}"):
        refuse_undeclared(made)


def test_a_page_that_says_nothing_cannot_be_accepted(made):
    made.write_text("---\ndescription: A page.\nbehind: all\n---\n", encoding="utf-8")
    with pytest.raises(SourceError, match="has no text below its front matter"):
        accept(made)
    refuse_undeclared(made)
