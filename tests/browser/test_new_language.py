"""A fourth language in one command: the site builds with it at once."""

import csv
import re
import subprocess
import sys

import pytest
import yaml
from bs4 import BeautifulSoup

from tests.browser import site


@pytest.fixture
def project(tmp_path):
    return site.copy_project(tmp_path)


def new_language(project, *arguments):
    command = [sys.executable, "-m", "tools.new_language", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, encoding="utf-8", check=False)


def block(project):
    """What mkdocs.yml says of Japanese."""
    text = (project / "mkdocs.yml").read_text("utf-8")
    [language] = yaml.safe_load(re.search(r" *- locale: ja\n.*?(?=\n\n)", text, re.S)[0])
    return language


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_a_fourth_language_is_there_in_english_and_says_so(project):
    before = files(project)
    done = new_language(project, "ja", "日本語")
    assert done.returncode == 0, done.stderr
    changed = {path.relative_to(project).as_posix() for path, data in before.items() if path.read_bytes() != data}
    tables = ("explorers", "glossary", "pictures")
    assert changed == {"mkdocs.yml", *(f"languages/{name}.csv" for name in tables)}

    said = site.build(project / "site", root=project)
    assert [line for line in said.splitlines() if not line.startswith("INFO ")] == []
    for slug in site.SLUGS:
        html = (project / "site/ja" / slug.removesuffix("index") / "index.html").read_text("utf-8")
        soup = BeautifulSoup(html, "html.parser")
        assert soup.html["lang"] == "ja"
        assert (
            soup.select_one(".behind").get_text().strip()
            == "This page is not translated yet. Here is the English text."
        )
        assert soup.select("div[lang=en] p")
    languages = [link.get_text() for link in soup.select(".md-select a")]
    assert languages == [*(language.name for language in site.LANGUAGES.values()), "日本語"]

    rows = list(csv.DictReader((project / "languages/glossary.csv").read_text("utf-8").splitlines()))
    assert {(row["ja"], row["says_ja"], row["avoid_ja"]) for row in rows} == {("", "", "")}
    japanese = block(project)
    names = {**japanese["nav_translations"], **japanese["admonition_translations"]}
    assert names == {key: key[0].upper() + key[1:] for key in names}
    assert {"Masks", "Cross-attention", "warning"} <= names.keys()
    assert "## Voice" in (project / "languages/style.ja.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["Fran: çais", '"Français', "[fr]", "A # B", "No", "日本語"])
def test_a_name_stays_what_it_is_whatever_yaml_thinks_of_it(project, name):
    assert new_language(project, "ja", name).returncode == 0
    language = block(project)
    assert (language["locale"], language["name"]) == ("ja", name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["it", "Italiano"],
            "docs/it, languages/style.it.md, the column 'it' of languages/glossary.csv, the locale 'it'",
        ),
        (["id", "Indonesia"], "the column 'id' of languages/glossary.csv: there already"),
        (["../languages/fr", "Français"], "Material for MkDocs has no words in '../languages/fr'"),
        (["ja", " "], "' ' is no name"),
        (["xx", "Xx"], "Material for MkDocs has no words in 'xx'; it knows af, ar,"),
        (["ja"], "required: name"),
    ],
)
def test_what_cannot_be_added_is_said_and_nothing_is_written(project, arguments, words):
    before = files(project)
    done = new_language(project, *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert files(project) == before
