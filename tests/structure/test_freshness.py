"""Every translation was made from the English of today, or tells its readers which sections were not."""

import subprocess

import pytest

from tests.configuration import page_file
from tools import freshness
from tools.cells.source import SourceError
from tools.freshness import Translation, accept, changes, fields_as_text, refuse_undeclared, state
from tools.markdown import read

ENGLISH = """---
description: A page.
---

# Title

Hello.

## One {#one}

Say one.

```sh
# not a heading {#no}
```

## Two {#two}

Say two.
"""

MKDOCS = """nav: [index.md, masks/causal.md]
plugins: [i18n: {languages: [locale: en, locale: it]}]
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
    (tmp_path / "mkdocs.yml").write_text(MKDOCS, encoding="utf-8")
    made = Translation("masks/causal", "it")
    for path, text in {made.english: ENGLISH, made.path: ENGLISH.replace("Say", "Di’")}.items():
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        (path.parents[1] / "index.md").write_text(ENGLISH, encoding="utf-8")
    accept(made)
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "1"],
    ):
        subprocess.run(["git", *command], check=True)
    return made


def change(made, old, new):
    path = made.english
    path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")


def declare(made, names):
    text = made.path.read_text("utf-8")
    made.path.write_text(text.replace("made_from:", f"behind: {names}\nmade_from:"), encoding="utf-8")


def test_an_accepted_page_is_current_and_keeps_its_words(made):
    refuse_undeclared(made)
    assert state(made).current == ["top", "one", "two"]
    text = made.path.read_text("utf-8")
    assert text.startswith('---\ndescription: A page.\nmade_from:\n  "top": "')
    assert text.endswith(ENGLISH.replace("Say", "Di’").partition("---\n\n")[2])
    accept(made)
    assert made.path.read_text("utf-8") == text, "to accept twice changes nothing"


@pytest.mark.parametrize(
    ("old", "new"), [("Say one.", "Say\n  one.\n"), ("A page.\n", "A page.\nbuilds_on: [masks/padding]\n")]
)
def test_what_has_no_words_is_no_change(made, old, new):
    change(made, old, new)
    refuse_undeclared(made)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [("one.", "1.", "one"), ("## Two", "## Three", "two"), ("Hello", "Hi", "top"), ("A page", "The page", "top")],
)
def test_a_change_that_is_not_declared_is_named(made, old, new, name):
    change(made, old, new)
    with pytest.raises(SourceError) as error:
        refuse_undeclared(made)
    assert str(error.value).startswith(f"{made.path}:1: the English of {name} has changed; ")
    assert "nox -s translations -- --accept masks/causal --lang it" in str(error.value)
    assert f"behind: [{name}]" in str(error.value)


def test_a_new_section_is_missing(made):
    change(made, "## Two", "## New {#new}\n\nSay new.\n\n## Two")
    assert state(made).missing == ["new"]
    assert state(made).behind == []
    with pytest.raises(SourceError, match="the English of new has changed"):
        refuse_undeclared(made)


def test_a_declared_change_passes_until_it_is_accepted(made):
    change(made, "Say one", "Tell one")
    declare(made, "[one]")
    refuse_undeclared(made)
    accept(made)
    assert "behind" not in made.path.read_text("utf-8")
    refuse_undeclared(made)


def test_a_needless_declaration_is_refused(made):
    declare(made, "[two]")
    with pytest.raises(SourceError, match="two is as the English is; take it out of `behind`"):
        refuse_undeclared(made)


def test_a_page_that_is_not_translated_says_so_and_passes(made):
    made.path.write_text("---\ndescription: A page.\nbehind: all\n---\n", encoding="utf-8")
    refuse_undeclared(made)


def test_a_text_below_behind_all_would_be_lost_to_its_readers(made):
    made.path.write_text("---\ndescription: A page.\nbehind: all\n---\n\n# Titolo\n", encoding="utf-8")
    with pytest.raises(SourceError, match="has a text, but `behind: all` shows the English one"):
        refuse_undeclared(made)


def test_to_accept_takes_a_declaration_away_however_it_is_written(made):
    text = made.path.read_text("utf-8")
    for written in ("behind: [one]\n", "behind:\n  - one\n", "behind: [\n  one,\n  two\n]\n"):
        made.path.write_text(text.replace("made_from:", f"{written}made_from:"), encoding="utf-8")
        accept(made)
        assert made.path.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("made_from:", "behind: 3\nmade_from:", "`behind` is 3; write"),
        ("made_from:", "behind: probe\nmade_from:", "`behind` is 'probe'; write"),
        ("made_from:", "behind: {one: x}\nmade_from:", "`behind` is {'one': 'x'}; write"),
        ('made_from:\n  "top"', 'made_from: x\nother:\n  "top"', "`made_from` is 'x'"),
    ],
)
def test_a_field_that_is_not_what_it_must_be_is_named(made, old, new, message):
    text = made.path.read_text("utf-8")
    assert old in text
    made.path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SourceError) as error:
        refuse_undeclared(made)
    assert str(error.value).startswith(f"{made.path}:")
    assert message in str(error.value)


def test_an_id_that_yaml_takes_for_something_else_is_kept(made):
    change(made, "{#two}", "{#no}")
    accept(made)
    assert state(made).current == ["top", "one", "no"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Titolo\n", "has no front matter"),
        ("---\ndescription: A page.\nbehind: all\n---\n", "no text below it"),
    ],
)
def test_what_cannot_be_accepted_stays_as_it_is(made, text, message):
    made.path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=message):
        accept(made)
    assert made.path.read_text("utf-8") == text


@pytest.fixture
def new(made):
    """A translation that nobody has stamped or committed yet."""
    new = Translation("index", "it")
    new.path.write_text(ENGLISH.replace("Say", "Di’"), encoding="utf-8")
    return new


def test_a_new_page_is_stamped_once(new, made, capsys):
    before = made.path.read_text("utf-8")
    assert freshness.main(["--stamp"]) == 0
    assert capsys.readouterr().out == "docs/it/index.md: made from the English of today\n"
    refuse_undeclared(new)
    assert made.path.read_text("utf-8") == before
    freshness.main(["--stamp"])
    assert capsys.readouterr().out == ""


def test_a_page_that_is_stale_is_not_stamped(made):
    """Not even one whose record was taken out of its front matter."""
    change(made, "Say one", "Tell one")
    freshness.main(["--stamp"])
    assert state(made).behind == ["one"]
    text = made.path.read_text("utf-8")
    made.path.write_text(text.partition("made_from")[0] + "---\n\n# Titolo\n", encoding="utf-8")
    freshness.main(["--stamp"])
    assert "made_from" not in made.path.read_text("utf-8")


def test_a_stamp_leaves_out_what_a_new_page_declares(new):
    text = new.path.read_text("utf-8")
    new.path.write_text(text.replace("---\n\n", "behind: [two]\n---\n\n", 1), encoding="utf-8")
    freshness.main(["--stamp"])
    refuse_undeclared(new)
    assert state(new).missing == ["two"]


def test_a_page_that_a_language_lacks_is_listed(made, capsys):
    accept(Translation("index", "it"))
    made.path.unlink()
    assert freshness.main([]) == 1
    assert "docs/it/masks/causal.md is missing; write it" in capsys.readouterr().err
    with pytest.raises(SourceError, match="is missing"):
        freshness.main(["--accept", "masks/causal", "--lang", "it"])


def test_to_accept_words_that_nobody_touched_is_remarked(made, capsys):
    change(made, "Say one", "Tell one")
    change(made, "Say two", "Tell two")
    text = made.path.read_text("utf-8")
    made.path.write_text(text.replace("Di’ two", "Racconta two"), encoding="utf-8")
    assert freshness.main(["--accept", "masks/causal.md", "--lang", "it"]) == 0
    said = capsys.readouterr().out
    assert "note: you accept one of docs/it/masks/causal.md, whose words are those of the last commit" in said
    assert "you accept two" not in said


def test_the_changes_since_the_page_was_made_come_from_the_history(made):
    change(made, "Say one", "Tell one")
    lines = list(changes(made))
    assert lines[0] == f"--- one that {made.path} was made from"
    assert [line for line in lines[2:] if line[0] in "+-"] == ["-Say one.", "+Tell one."]


def test_the_command_lists_diffs_accepts_and_fails_where_something_is_undeclared(made, capsys):
    accept(Translation("index", "it"))
    assert freshness.main([]) == 0
    change(made, "Say one", "Tell one")
    assert freshness.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1].split() == ["masks/causal", "it", "2", "one"]
    assert freshness.main(["masks/causal", "--lang", "it"]) == 1
    assert "+Tell one." in capsys.readouterr().out.splitlines()
    assert freshness.main(["--accept", "masks/causal", "--lang", "it"]) == 0
    assert "+Tell one." in capsys.readouterr().out.splitlines()
    assert state(made).stale == []


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
def test_nothing_is_accepted_without_a_page_and_a_language(made, capsys, arguments):
    before = made.path.read_text("utf-8")
    with pytest.raises(SystemExit):
        freshness.main(arguments)
    assert "name the pages that you have mended, and their language" in capsys.readouterr().err
    assert made.path.read_text("utf-8") == before
