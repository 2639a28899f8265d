"""One slug is the key of everything: a page, its cells, its tests and its line in the nav."""

import re
import tomllib

from tests.configuration import PAGES, ROOT
from tools.cells.source import slug_of
from tools.languages import configuration

TESTS = "tests/pages/masks/test_a_b.py"
OR_ENGLISH = ", or let it show the English one: front matter, `behind: all`"


def missing(root):
    """What a page still lacks, and what belongs to none: a sentence for each."""
    site = configuration.read(root / "mkdocs.yml")
    cells = {slug_of(path): path for path in root.glob("snippets/**/*.md")}
    yield from (f"{cells[slug]}: the nav lacks this page; add {slug}.md" for slug in cells.keys() - set(site.slugs))
    yield from missing_tests(root / "tests/pages", {slug for slug in cells if not slug.startswith("labs/")})
    for file in site.files:
        if file.endswith(".ipynb") != file.startswith("labs/"):
            yield f"{root / 'mkdocs.yml'}: {file}: a lab is named as .ipynb, every other page as .md"
    for language in site.languages:
        yield from missing_pages(root / "docs" / language, site)
    for folder in (root / "docs").iterdir():
        if folder.name not in (*site.languages, "assets"):
            yield f"{folder}: is neither a language of mkdocs.yml nor the assets that they share"


def missing_tests(folder, slugs):
    paths = {
        folder / re.sub("[^/]+$", lambda name: f"test_{name[0].replace('-', '_')}.py", slug): slug
        for slug in sorted(slugs)
    }
    yield from (f"{path}: write here what {slug} claims" for path, slug in paths.items() if not path.is_file())
    for path in {*folder.glob("*/test_*.py")} - paths.keys():  # those of all pages stand beside the chapters
        yield f"{path}: there are no cells that it could test; is it named like its page?"


def missing_pages(folder, site):
    wanted = {*site.files, *(f"{slug}.md" for slug in site.slugs)}  # the text of a lab lies beside its notebook
    write = "write this page of the nav" + (OR_ENGLISH if folder.name != "en" else "")
    for path in (folder / file for file in sorted(wanted)):
        if not path.is_file():
            yield f"{path}: {'nox -s update writes this notebook' if path.suffix == '.ipynb' else write}"
    for path in folder.rglob("*.*"):
        if path.relative_to(folder).as_posix() not in wanted:
            yield f"{path}: the nav of mkdocs.yml has no such page; add it, or take the file away"


def test_every_page_is_whole(refuse):
    refuse(missing(ROOT))


def test_what_a_page_lacks_and_what_belongs_to_none_is_said_in_a_line(tmp_path):
    nav = "nav: [masks/a-b.md]\nplugins: [i18n: {languages: [locale: en, locale: it]}]\n"
    (tmp_path / "mkdocs.yml").write_text(nav, encoding="utf-8")
    english, italian, cells = "docs/en/masks/a-b.md", "docs/it/masks/a-b.md", "snippets/masks/a-b.md"
    for name in (english, italian, cells, TESTS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(missing(tmp_path)) == []
    gone = {italian: f"write this page of the nav{OR_ENGLISH}", TESTS: "write here what masks/a-b claims"}
    for name in gone:
        (tmp_path / name).unlink()
    assert {*missing(tmp_path)} == {f"{tmp_path / name}: {fault}" for name, fault in gone.items()}
    more = ["docs/en/masks/c.md", "snippets/masks/c.md", "tests/pages/masks/test_d.py"]
    for name in more:
        (tmp_path / name).touch()
    named = {fault.partition(": ")[0] for fault in missing(tmp_path)}
    assert named >= {f"{tmp_path / name}" for name in more}


def test_names_are_meanings():
    assert [page for page in PAGES if not re.fullmatch(r"[a-z]+(-[a-z]+)*(/[a-z]+(-[a-z]+)*)*", page)] == []


def test_no_mark_of_a_merge_is_left(refuse):
    """Git leaves three of them in a file that two people changed; one alone reads as a heading or a rule."""
    paths = [path for folder in ("docs", "snippets", "languages", "tests") for path in (ROOT / folder).rglob("*.*")]
    refuse(
        f"{path}:{number}: a mark of a merge is left here; choose what holds, and take the mark out"
        for path in paths
        if path.suffix in (".md", ".csv", ".py", ".svg", ".txt", ".json") and "node_modules" not in path.parts
        for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1)
        if re.fullmatch(r"([<=>|])\1{6}( .*)?", line)
    )


def test_the_name_of_a_test_has_at_most_80_characters(refuse):
    refuse(
        f"{path}: {name} has {len(name)} characters; say it in 80"
        for path in ROOT.glob("tests/**/test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
        if len(name) > 80
    )


def test_everything_that_a_session_installs_is_pinned():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    asked = {re.match(r"[\w.-]+", requirement)[0] for group in groups.values() for requirement in group}
    assert asked <= set(pins)
