"""One slug is the key of everything: a page, its cells, its tests and its line in the nav."""

import re
import tomllib

from tests.configuration import CONFIG, LANGUAGES, PAGES, SLUGS
from tools.site.checks import nav_pages


def test_the_nav_and_the_pages_of_a_language_agree(root, language):
    folder = root / f"docs/{language}"
    pages = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    sources = {page.replace(".ipynb", ".md") for page in nav_pages(CONFIG.nav)}  # that of a lab lies beside it
    assert pages == {*nav_pages(CONFIG.nav), *sources}


def test_the_nav_names_each_page_once():
    assert len(PAGES) == len(set(PAGES))


def test_docs_holds_the_languages_and_the_assets_they_share(root):
    assert {path.name for path in (root / "docs").iterdir()} == {*LANGUAGES, "assets"}


def test_every_snippet_file_has_a_page():
    assert set(SLUGS) <= set(PAGES)


def test_every_page_with_cells_has_tests_and_every_test_a_page(root):
    """A lab has some only where it tells more than its cells print."""
    tested = {path.relative_to(root / "tests/pages").as_posix() for path in root.glob("tests/pages/**/test_*.py")}
    labs = {slug for slug in SLUGS if slug.startswith("labs/")}
    assert tested == {test_file(slug) for slug in set(SLUGS) - labs}
    told = {path.relative_to(root / "tests").as_posix() for path in root.glob("tests/labs/test_*.py")}
    assert told <= set(map(test_file, labs))


def test_file(slug):
    chapter, _, name = slug.rpartition("/")
    return f"{chapter}/test_{name.replace('-', '_')}.py"


test_file.__test__ = False


def test_names_are_meanings(page):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*(/[a-z]+(-[a-z]+)*)*", page)


def test_labs_are_published_as_notebooks():
    for page in nav_pages(CONFIG.nav):
        assert page.endswith(".ipynb") == page.startswith("labs/")


def test_everything_that_a_session_installs_is_pinned(root):
    groups = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    pins = re.findall(r"^([\w.-]+)==", (root / "constraints.txt").read_text("utf-8"), re.M)
    asked = {re.match(r"[\w.-]+", requirement)[0] for group in groups.values() for requirement in group}
    assert asked <= set(pins)


def test_no_file_holds_the_marks_of_a_merge_conflict(root):
    """Git writes them, and YAML, Markdown and CSV may read over them."""
    assert [fault for path in files(root) for fault in marks(path)] == []


def files(root):
    """The files of the project: those beside this one's folders, and all below them but what tools leave there."""
    folders = ("docs", "languages", "snippets", "tests", "theme", "tools", "verified", ".ci", ".github")
    below = (path for folder in folders for path in (root / folder).rglob("*") if path.is_file())
    yield from (path for path in root.iterdir() if path.is_file())
    yield from (path for path in below if not {"__pycache__", "node_modules"} & set(path.parts))


def marks(path):
    text = path.read_bytes().decode("utf-8", "replace")
    for found in re.finditer(r"^(?:<{7} |={7}$|>{7} |\|{7} ).*", text, re.M):
        yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]!r} is left of a merge; choose one side"


def test_a_mark_of_a_merge_is_named_with_its_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,en\n" + "<" * 7 + " ours\nrow,row\n" + "=" * 7 + "\nrow,line\n" + ">" * 7 + " theirs\n")
    assert [fault.partition(" is left")[0] for fault in marks(path)] == [
        f"{path}:2: '{'<' * 7} ours'",
        f"{path}:4: '{'=' * 7}'",
        f"{path}:6: '{'>' * 7} theirs'",
    ]
