"""Every translation was made from the English of today, or tells its readers which sections were not."""

import subprocess

import pytest

from tests.configuration import page_file
from tools import freshness
from tools.cells.source import SourceError
from tools.freshness import Translation, accept, fields_as_text, refuse_undeclared, stale
from tools.markdown import read

MKDOCS = """nav: [index.md, masks/causal.md]
plugins: [i18n: {languages: [locale: en, locale: it]}]
"""
ENGLISH = """---
description: A page.
---

# Title

Hello.

## One {#one}

Say one.

## Two {#two}

Say two.
"""


def test_a_translation_was_made_from_the_english_of_today(root, translation, every_page):
    every_page(lambda page: refuse_undeclared(Translation(page, translation, root / "docs")))


def test_the_front_matter_of_a_page_is_written_in_one_style(language, every_page):
    """So `--accept` changes what it means to change, and no comment is lost that nobody reads."""

    def refuse_other_style(page):
        found = read(page_file(language, page))
        fields = fields_as_text(found.front)
        if found.text != f"---\n{fields}---\n{found.body}":
            raise SourceError(f"{found.path}: write the fields above it like this:\n{fields}")

    every_page(refuse_other_style)


# --- on small pages -------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A page that has been accepted, in a repository of its own."""
    monkeypatch.chdir(tmp_path)
    made = Translation("masks/causal", "it")
    (tmp_path / "mkdocs.yml").write_text(MKDOCS, encoding="utf-8")
    for path, text in {made.english: ENGLISH, made.path: ENGLISH.replace("Say", "Di’")}.items():
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        (path.parents[1] / "index.md").write_text(text, encoding="utf-8")
    accept(made)
    author = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "1"]):
        subprocess.run(["git", *command], check=True)
    return made


def change(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_an_accepted_page_is_current_and_keeps_its_words(made):
    refuse_undeclared(made)
    text = made.path.read_text("utf-8")
    assert text.startswith('---\ndescription: A page.\nmade_from:\n  "top": "')
    assert text.endswith(ENGLISH.replace("Say", "Di’").partition("---\n\n")[2])
    accept(made)
    assert made.path.read_text("utf-8") == text, "to accept twice changes nothing"


@pytest.mark.parametrize(
    ("old", "new"),
    [("Say one.", "Say\n  one."), ("A page.", "A page.\nbuilds_on: [masks/padding]"), ("A page.", '"A page."')],
)
def test_what_has_no_words_is_no_change(made, old, new):
    change(made.english, old, new)
    refuse_undeclared(made)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("one.", "1.", "one"),
        ("## Two", "## Three", "two"),
        ("Hello", "Hi", "top"),
        ("A page", "The page", "top"),
        ("## Two", "## New {#new}\n\nSay new.\n\n## Two", "new"),
    ],
)
def test_a_change_is_named_until_it_is_declared_or_accepted(made, old, new, name):
    change(made.english, old, new)
    with pytest.raises(SourceError, match=f"^{made.path}:1: the English of {name} has changed; .*behind: .{name}"):
        refuse_undeclared(made)
    change(made.path, "made_from:", f"behind: [{name}]\nmade_from:")
    refuse_undeclared(made)
    accept(made)
    assert "behind" not in made.path.read_text("utf-8")
    refuse_undeclared(made)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("behind: [two]", "two is as the English is; take it out of `behind`"),
        ("behind: all", "has a text, but `behind: all` shows the English one"),
        ("behind: probe", "`behind` is 'probe'; write"),
    ],
)
def test_a_page_that_says_it_is_behind_without_need_is_named(made, field, message):
    change(made.path, "made_from:", f"{field}\nmade_from:")
    with pytest.raises(SourceError, match=rf"^{made.path}:\d: .*{message}"):
        refuse_undeclared(made)


def test_a_page_that_says_nothing_cannot_be_accepted(made):
    made.path.write_text("---\ndescription: A page.\nbehind: all\n---\n", encoding="utf-8")
    with pytest.raises(SourceError, match="has no text below its front matter"):
        accept(made)
    refuse_undeclared(made)


# --- the command ----------------------------------------------------------------------------------


def test_a_new_page_is_stamped_once_and_without_what_it_declares(made, capsys):
    new = Translation("index", "it")
    change(new.path, "A page.", "A page.\nbehind: [two]")
    freshness.main(["--stamp"])
    freshness.main(["--stamp"])
    assert capsys.readouterr().out == "docs/it/index.md: made from the English of today\n"
    refuse_undeclared(new)
    assert stale(new) == ["two"]


def test_a_page_that_is_stale_is_not_stamped_even_without_its_record(made):
    change(made.english, "Say one", "Tell one")
    freshness.main(["--stamp"])
    assert stale(made) == ["one"]
    made.path.write_text(ENGLISH, encoding="utf-8")
    freshness.main(["--stamp"])
    assert "made_from" not in made.path.read_text("utf-8")


def test_the_command_lists_diffs_and_accepts(made, capsys):
    accept(Translation("index", "it"))
    assert freshness.main([]) == 0
    change(made.english, "Say one", "Tell one")
    change(made.english, "Say two", "Tell two")
    assert freshness.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1].split() == ["masks/causal", "it", "1", "one,", "two"]
    assert freshness.main(["--accept", "masks/causal.md", "--lang", "it"]) == 0
    said = capsys.readouterr().out
    assert "--- one that docs/it/masks/causal.md was made from" in said, "the history has it"
    assert "-Say one.\n+Tell one." in said
    assert stale(made) == []
    made.path.unlink()
    assert freshness.main([]) == 1
    assert "docs/it/masks/causal.md is missing; write it" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", ["masks/casual", "--lang en", "--accept", "--accept masks/causal"])
def test_a_page_and_a_language_are_named_and_there(made, arguments):
    with pytest.raises(SystemExit, match="2"):
        freshness.main(arguments.split())
