"""Every translation was made from the English of today, or tells its readers which sections were not."""

import subprocess

import pytest

from tests.configuration import page_file
from tools import freshness
from tools.cells.source import SourceError
from tools.freshness import Translation, accept, fields_as_text, refuse_undeclared, state
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


def test_a_translation_was_made_from_the_english_of_today(root, page, translation):
    refuse_undeclared(Translation(page, translation, root / "docs"))


def test_the_front_matter_of_a_page_is_written_in_one_style(page, language):
    """So `--accept` changes what it means to change, and no comment is lost that nobody reads."""
    found = read(page_file(language, page))
    assert found.text == f"---\n{fields_as_text(found.front)}---\n{found.body}", (
        f"{found.path}: write the fields above it like this:\n{fields_as_text(found.front)}"
    )


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
    with pytest.raises(SourceError) as error:
        refuse_undeclared(made)
    assert str(error.value).startswith(f"{made.path}:1: the English of {name} has changed; ")
    assert "nox -s translations -- --accept masks/causal --lang it" in str(error.value)
    assert f"behind: [{name}]" in str(error.value)
    change(made.path, "made_from:", f"behind: [{name}]\nmade_from:")
    refuse_undeclared(made)
    accept(made)
    assert "behind" not in made.path.read_text("utf-8")
    refuse_undeclared(made)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("made_from:", "behind: [two]\nmade_from:", "two is as the English is; take it out of `behind`"),
        ("made_from:", "behind: all\nmade_from:", "has a text, but `behind: all` shows the English one"),
        ("made_from:", "behind: probe\nmade_from:", "`behind` is 'probe'; write"),
        ('made_from:\n  "top"', 'made_from: x\nother:\n  "top"', "`made_from` is 'x'"),
    ],
)
def test_a_field_that_is_not_what_it_must_be_is_named(made, old, new, message):
    change(made.path, old, new)
    with pytest.raises(SourceError) as error:
        refuse_undeclared(made)
    assert str(error.value).startswith(f"{made.path}:")
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["# Titolo\n", "---\ndescription: A page.\nbehind: all\n---\n"])
def test_a_page_that_says_nothing_cannot_be_accepted(made, text):
    made.path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match="has no front matter, or no text below it"):
        accept(made)
    assert made.path.read_text("utf-8") == text


# --- the command ----------------------------------------------------------------------------------


def test_a_new_page_is_stamped_once(made, capsys):
    new = Translation("index", "it")
    change(new.path, "A page.", "A page.\nbehind: [two]")
    before = made.path.read_text("utf-8")
    assert freshness.main(["--stamp"]) == 0
    assert capsys.readouterr().out == "docs/it/index.md: made from the English of today\n"
    refuse_undeclared(new)
    assert state(new).missing == ["two"], "a section that the page declares is left out"
    assert made.path.read_text("utf-8") == before
    freshness.main(["--stamp"])
    assert capsys.readouterr().out == ""


def test_a_page_that_is_stale_is_not_stamped_even_without_its_record(made):
    change(made.english, "Say one", "Tell one")
    freshness.main(["--stamp"])
    assert state(made).behind == ["one"]
    made.path.write_text(ENGLISH, encoding="utf-8")
    freshness.main(["--stamp"])
    assert "made_from" not in made.path.read_text("utf-8")


def test_the_command_lists_diffs_remarks_and_accepts(made, capsys):
    accept(Translation("index", "it"))
    assert freshness.main([]) == 0
    change(made.english, "Say one", "Tell one")
    change(made.english, "Say two", "Tell two")
    change(made.path, "Di’ two", "Racconta two")
    assert freshness.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1].split() == ["masks/causal", "it", "1", "one,", "two"]
    assert freshness.main(["--accept", "masks/causal.md", "--lang", "it"]) == 0
    said = capsys.readouterr().out
    assert "--- one that docs/it/masks/causal.md was made from" in said, "the history has it"
    assert "-Say one.\n+Tell one." in said
    assert "note: you accept one of docs/it/masks/causal.md, whose words are those of the last commit" in said
    assert "you accept two" not in said
    assert state(made).stale == []
    made.path.unlink()
    assert freshness.main([]) == 1
    assert "docs/it/masks/causal.md is missing; write it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["masks/casual"], "there is no page 'masks/casual'; is it 'masks/causal'?"),
        (["--lang", "en"], "there is no translation into 'en'; mkdocs.yml has it"),
    ],
)
def test_what_is_not_there_is_said_with_what_may_be_meant(made, arguments, message):
    with pytest.raises(SourceError, match=message):
        freshness.main(arguments)


@pytest.mark.parametrize("arguments", [["--accept"], ["--accept", "masks/causal"], ["--accept", "--lang", "it"]])
def test_nothing_is_accepted_without_a_page_and_a_language(made, arguments):
    with pytest.raises(SystemExit):
        freshness.main(arguments)
