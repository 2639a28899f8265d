"""One slug is the key of everything: a page, its cells, its tests and its line in the nav."""

import re
import tomllib

import pytest

from tests.configuration import PAGES
from tools.languages import configuration

TESTS = "tests/pages/masks/test_a_b.py"
OR_ENGLISH = "or let it show the English one: front matter, `behind: all`"


def below(folder, pattern):
    """The slugs of the files below a folder."""
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob(pattern)}


def missing(root):
    """What a page still lacks, and what belongs to none: a sentence for each."""
    site = configuration.read(root / "mkdocs.yml")
    cells, nav = below(root / "snippets", "*.md"), root / "mkdocs.yml"
    for slug in cells.keys() - set(site.slugs):
        yield f"{cells[slug]}: the nav of mkdocs.yml lacks this page; add {slug}.md"
    yield from missing_tests(root, {slug for slug in cells if not slug.startswith("labs/")})
    for file in site.files:
        if file.endswith(".ipynb") != file.startswith("labs/"):
            yield f"{nav}: {file}: a lab is named as .ipynb, every other page as .md"
    for language in site.languages:
        yield from missing_pages(root / "docs" / language, site)
    for folder in (root / "docs").iterdir():
        if folder.name not in (*site.languages, "assets"):
            yield f"{folder}: is neither a language of mkdocs.yml nor the assets that they share"


def missing_tests(root, slugs):
    folder, wanted = root / "tests/pages", set()
    for slug in sorted(slugs):
        chapter, _, name = slug.rpartition("/")
        wanted.add(path := folder / chapter / f"test_{name.replace('-', '_')}.py")
        if not path.is_file():
            yield f"{path}: write here what {slug} claims"
    for path in {*folder.glob("*/test_*.py")} - wanted:  # those of all pages stand beside the chapters
        yield f"{path}: there are no cells that it could test; is it named like its page?"


def missing_pages(folder, site):
    wanted = {*site.files, *(f"{slug}.md" for slug in site.slugs)}  # the text of a lab lies beside its notebook
    for file in sorted(wanted):
        if not (folder / file).is_file() and file.endswith(".ipynb"):
            yield f"{folder / file}: nox -s update writes this notebook"
        elif not (folder / file).is_file():
            yield f"{folder / file}: write this page of the nav{'' if folder.name == 'en' else f', {OR_ENGLISH}'}"
    for path in folder.rglob("*.*"):
        if path.relative_to(folder).as_posix() not in wanted:
            yield f"{path}: the nav of mkdocs.yml has no such page; add it, or take the file away"


def test_every_page_is_whole(root, refuse):
    refuse(missing(root))


@pytest.fixture
def small(tmp_path):
    """A site of one page."""
    nav = "nav: [masks/a-b.md]\nplugins: [i18n: {languages: [locale: en, locale: it]}]\n"
    (tmp_path / "mkdocs.yml").write_text(nav, encoding="utf-8")
    for name in ("docs/en/masks/a-b.md", "docs/it/masks/a-b.md", "snippets/masks/a-b.md", TESTS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(missing(tmp_path)) == []
    return tmp_path


def test_what_a_page_lacks_and_what_belongs_to_none_is_said_in_a_line(small):
    gone = {
        "docs/it/masks/a-b.md": f"write this page of the nav, {OR_ENGLISH}",
        TESTS: "write here what masks/a-b claims",
    }
    for name in gone:
        (small / name).unlink()
    assert {*missing(small)} == {f"{small / name}: {fault}" for name, fault in gone.items()}
    more = {"docs/en/masks/c.md", "snippets/masks/c.md", "tests/pages/masks/test_d.py"}
    for name in more:
        (small / name).touch()
    assert {f"{small / name}" for name in more} <= {fault.partition(": ")[0] for fault in missing(small)}


def test_names_are_meanings():
    assert [page for page in PAGES if not re.fullmatch(r"[a-z]+(-[a-z]+)*(/[a-z]+(-[a-z]+)*)*", page)] == []


def test_no_mark_of_a_merge_is_left(root, refuse):
    """Git leaves three of them in a file that two people changed; one alone reads as a heading or a rule."""
    paths = [path for folder in ("docs", "snippets", "languages", "tests") for path in (root / folder).rglob("*.*")]
    refuse(
        f"{path}:{number}: a mark of a merge is left here; choose what holds, and take the mark out"
        for path in paths
        if path.suffix in (".md", ".csv", ".py", ".svg", ".txt", ".json") and "node_modules" not in path.parts
        for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1)
        if re.fullmatch(r"([<=>|])\1{6}( .*)?", line)
    )


def test_the_name_of_a_test_has_at_most_80_characters(root, refuse):
    refuse(
        f"{path}: {name} has {len(name)} characters; say it in 80"
        for path in root.glob("tests/**/test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
        if len(name) > 80
    )


def test_everything_that_a_session_installs_is_pinned(root):
    groups = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    pins = re.findall(r"^([\w.-]+)==", (root / "constraints.txt").read_text("utf-8"), re.M)
    asked = {re.match(r"[\w.-]+", requirement)[0] for group in groups.values() for requirement in group}
    assert asked <= set(pins)
