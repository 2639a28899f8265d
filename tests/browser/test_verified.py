"""What a page says of itself stays true where cells have changed, a cell needs CUDA, and languages are behind."""

import json
import re

import pytest

from tests.browser import site
from tests.cells.project import cell
from tests.configuration import text
from tools.cells.source import digest, read_cells
from tools.languages.markdown import read

RUN = ("ran", "print(1)\n", "1\n", "needs cuda: a test")
WAIT = ("waits", "print(2)\n", None, "needs cuda: a test")
FACTS = {"torch": "2.13.0", "date": "2026-11-20"}
NAME = "A100, driver 1.2"
COUNTS = {page.slug: len(read_cells(page.snippets)) for page in site.PAGES_WITH_CELLS if page.slug in site.FEW}
every_language = pytest.mark.parametrize("language", site.LANGUAGES)
HEAD, CROSS, AVERAGE = "foundations/one-head", "cross/cross-attention", "foundations/weighted-average"


@pytest.fixture(scope="session")
def half_verified(once):
    """A site whose record holds for one page, for all but one cell of another, and for nothing of a third.

    The first has two cells more, which need CUDA; one of them has run there. In Italian two sections of the second are
    behind, and in Chinese a fourth page is not translated.
    """
    return once("half-verified", make) / "site"


def make(folder):
    project = site.copy_project(folder)
    append(project / f"snippets/{HEAD}.md", "\n" + "\n".join(cell(*parts) for parts in (RUN, WAIT)))
    for page in project.glob(f"docs/*/{HEAD}.md"):
        append(page, "".join(f'\n--8<-- "{HEAD}.md:{name}"\n' for name in (RUN[0], WAIT[0])))
    records = {"cpu": {slug: entry(project, slug) for slug in (HEAD, CROSS, AVERAGE)}, "cuda": {}}
    changed = records["cpu"][CROSS]["cells"]
    changed[list(changed)[-1]] = "0" * 64
    records["cpu"][AVERAGE]["cells"] = dict.fromkeys(records["cpu"][AVERAGE]["cells"], "0" * 64)
    for name in (RUN[0], WAIT[0]):
        del records["cpu"][HEAD]["cells"][name]
    ran = entry(project, HEAD)
    records["cuda"][HEAD] = ran | {"cells": {RUN[0]: ran["cells"][RUN[0]]}}
    for device, record in records.items():
        (project / f"verified/{device}.json").write_text(json.dumps(record), encoding="utf-8")
    behind = project / f"docs/it/{CROSS}.md"
    behind.write_text(behind.read_text("utf-8").replace("made_from:", "behind: [top, probe]\nmade_from:", 1), "utf-8")
    (project / "docs/zh/foundations/softmax.md").write_text("---\nbehind: all\n---\n", "utf-8")
    site.build(project / "site", root=project)


def append(path, words):
    path.write_text(path.read_text("utf-8") + words, encoding="utf-8")


def entry(project, slug):
    """What a record says of a page of which all cells have passed."""
    cells = read_cells(project / "snippets" / f"{slug}.md")
    return {**FACTS, "device": NAME, "python": "3.11.7", "cells": {cell.name: digest(cells, cell) for cell in cells}}


@every_language
def test_a_badge_counts_down_and_goes_when_cells_change(half_verified, language):
    def badge(verified, cells, device="CPU"):
        return text(language, "verified").format(verified=verified, cells=cells, device=device, **FACTS)

    head, cross = COUNTS[HEAD], COUNTS[CROSS]
    both = [badge(head, head + 2), badge(1, head + 2, "CUDA")]
    for slug, said in {HEAD: both, CROSS: [badge(cross - 1, cross)], AVERAGE: [], "index": []}.items():
        badges = site.html(half_verified, site.Page(language, slug)).css(".facts__verified")
        assert [badge.text().split() for badge in badges] == [badge.split() for badge in said], slug


@every_language
def test_a_cell_that_needs_a_device_says_where_it_ran_or_that_it_did_not(half_verified, language):
    page = site.Page(language, HEAD)
    ran, waits = text(language, "ran_on").format(name=NAME, **FACTS), text(language, "not_run").format(device="CUDA")
    assert [one.text() for one in site.html(half_verified, page).css(".ran-on")] == [ran, waits]
    both = f"```python\nprint(1)\n```\n\n```text\n1\n```\n\n{ran}\n\n```python\nprint(2)\n```\n\n{waits}\n"
    assert (half_verified / page.path / "index.md").read_text("utf-8").endswith(both)
    notebook = json.loads((half_verified / page.path / "one-head.ipynb").read_text("utf-8"))
    assert ["".join(cell["source"]) for cell in notebook["cells"][-4:]] == ["print(1)", ran, "print(2)", waits]


@every_language
def test_the_list_of_all_pages_counts_what_holds_on_each_device(half_verified, language):
    page = site.Page(language, "verified")
    table, said = site.html(half_verified, page).css("table tr"), text(language, "share")
    rows = {row.css_first("th").text(): [count.child.text().strip() for count in row.css("td")] for row in table}
    counts = COUNTS | {HEAD: COUNTS[HEAD] + 2}
    verified = {HEAD: (COUNTS[HEAD], 1), CROSS: (COUNTS[CROSS] - 1, 0), AVERAGE: (0, 0)}
    for slug, numbers in verified.items():
        title = read(site.Page(language, slug).source).title
        assert rows[title] == [said.format(verified=number, cells=counts[slug]) for number in numbers]
    totals = [sum(numbers) for numbers in zip(*verified.values())]
    cells = sum(counts.values())
    assert rows[text(language, "total")] == [said.format(verified=number, cells=cells) for number in totals]
    assert len(rows) == len(counts) + 2, "head and foot"
    shown = (half_verified / page.path / "index.md").read_text("utf-8")
    assert len(re.findall(r"^\|.*", shown, re.M)) == len(rows) + 1
    assert all(f" {one} " in shown for row in rows.values() for one in row)


def test_a_page_names_the_sections_that_are_older_than_the_english(half_verified, built):
    page = site.Page("it", CROSS)
    title, probe = (read(page.source).sections[name].title for name in ("top", "probe"))
    note = site.html(half_verified, page).css_first(".behind")
    assert note.text().strip().startswith(text("it", "behind"))
    links = [(link.attributes["href"], link.text()) for link in note.css("a")]
    assert [words for _, words in links] == [title, probe, text("it", "original")]
    assert [href for href, _ in links[1:]] == ["#probe", "../../../cross/cross-attention/"]
    shown = (half_verified / page.path / "index.md").read_text("utf-8")
    assert shown.startswith(f"# {title}\n\n{text('it', 'behind')} [{title}](")
    assert not site.html(built, page).css(".behind")


def test_a_page_that_is_not_translated_shows_the_english_and_says_so(half_verified):
    page, english = site.Page("zh", "foundations/softmax"), site.Page("en", "foundations/softmax")
    shown, original = (site.html(half_verified, one).css_first("article") for one in (page, english))
    assert shown.css_first(".behind").text().strip() == text("zh", "untranslated")
    assert shown.css_first("h1").attributes["lang"] == "en"
    words = [part.text() for part in shown.css("div[lang=en] :is(p:not(.legend), h2)")]
    assert words == [part.text() for part in original.css("p:not(.legend, .facts *), h2")]
    markdown = (half_verified / page.path / "index.md").read_text("utf-8")
    assert markdown.startswith(f"# {read(english.source).title}\n\n{text('zh', 'untranslated')}\n\n")
