"""The build: the same bytes each time, without torch, a badge only while it is true, and Markdown for machines."""

import json
import re
from urllib.parse import urljoin

import pytest
from bs4 import BeautifulSoup

from tests.browser import site
from tests.cells.project import cell
from tests.configuration import CONFIG, text
from tools.cells.record import read_record
from tools.cells.source import digest, read_cells
from tools.site.font import lacking
from tools.translations import CODE, FENCE

LINK = re.compile(r"\[(.*?)\]\(.*?\)")
NO_TORCH = """
import sys
from importlib.abc import MetaPathFinder

class NoTorch(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "matplotlib"):
            raise ImportError(f"the site must build without {name}")

sys.meta_path.insert(0, NoTorch())
"""


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def badges(built, page):
    soup = site.soup(built, page)
    return [" ".join(badge.get_text().split()) for badge in soup.select(".facts__verified")]


def test_a_second_build_on_another_day_and_without_torch_gives_the_same_bytes(built, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_TORCH)
    again = tmp_path / "site"
    site.build(again, PYTHONPATH=str(tmp_path), PYTHONHASHSEED="4", SOURCE_DATE_EPOCH="1800000000")
    first, second = files(built), files(again)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_the_font_has_every_character_of_every_formula(built):
    assert lacking(built) == set(), "cut the font anew, as tools/site/font.py says"


def test_the_site_publishes_no_file_of_material(built):
    assert [path.name for path in (built / "assets").iterdir() if path.is_dir()] == ["explorers"]


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_a_page_says_of_its_cells_what_the_record_says(built, page):
    cells, wanted = read_cells(page.snippets) if page.snippets.is_file() else [], []
    for record in sorted(site.ROOT.glob("verified/*.json")):
        found = read_record(record).get(page.slug, {"cells": {}})
        verified = [cell for cell in cells if found["cells"].get(cell.name) == digest(cells, cell)]
        if verified:
            words = text(page.language, "verified")
            facts = {"verified": len(verified), "cells": len(cells), "device": record.stem.upper()}
            wanted.append(" ".join(words.format(**facts, torch=found["torch"], date=found["date"]).split()))
    assert badges(built, page) == wanted


def table(built, language):
    """The rows of the page that lists every page: by the title of a page, its counts."""
    html = (built / site.Page(language, "verified").path / "index.html").read_text("utf-8")
    rows = BeautifulSoup(html, "html.parser").select(".verified tr")
    return {row.th.get_text(): [count.contents[0].strip() for count in row("td")] for row in rows}


def title(page):
    return re.search("^# (.*)", page.source.read_text("utf-8"), re.M)[1].replace("`", "")


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_one_page_lists_every_page_with_its_count_on_the_cpu(built, language):
    """All verified: the record of the CPU is that of these cells, or a test of the structure fails."""
    said, rows = text(language, "share"), table(built, language)
    pages = [page for page in site.PAGES_WITH_CELLS if page.language == language]
    for page in pages:
        cells = read_cells(page.snippets)
        here = len([cell for cell in cells if not cell.needs])
        assert rows[title(page)][0] == said.format(verified=here, cells=len(cells))
    assert len(rows) == len(pages) + 2, "head and foot"


RUN = ("ran", "print(1)\n", "1\n", "needs cuda: a test")
WAIT = ("waits", "print(2)\n", None, "needs cuda: a test")


@pytest.fixture(scope="session")
def half_verified(tmp_path_factory):
    """A site whose record holds for one page, for all but one cell of another, and for nothing of a third.

    The first has two cells more, which need CUDA; one of them has run there. In Italian two sections of the second are
    behind, and in Chinese a fourth page is not translated.
    """
    project = site.copy_project(tmp_path_factory.mktemp("project"))
    path = project / "snippets/masks/causal.md"
    path.write_text(path.read_text("utf-8") + "\n" + "\n".join(cell(*parts) for parts in (RUN, WAIT)), "utf-8")
    for page in project.glob("docs/*/masks/causal.md"):
        shown = "".join(f'\n--8<-- "masks/causal.md:{name}"\n' for name in (RUN[0], WAIT[0]))
        page.write_text(page.read_text("utf-8") + shown, "utf-8")
    records = {"cpu": {}, "cuda": {}}
    for slug in ("masks/causal", "cross/cross-attention", "foundations/weighted-average"):
        records["cpu"][slug] = entry(project, slug, lambda cell: not cell.needs)
    changed = read_cells(project / "snippets/cross/cross-attention.md")[-1]
    records["cpu"]["cross/cross-attention"]["cells"][changed.name] = "0" * 64
    none = dict.fromkeys(records["cpu"]["foundations/weighted-average"]["cells"], "0" * 64)
    records["cpu"]["foundations/weighted-average"]["cells"] = none
    records["cuda"]["masks/causal"] = entry(project, "masks/causal", lambda cell: cell.name == RUN[0])
    declare_behind(project / "docs/it/cross/cross-attention.md", "[top, probe]")
    (project / "docs/zh/foundations/softmax.md").write_text("---\nbehind: all\n---\n", "utf-8")
    for device, record in records.items():
        (project / f"verified/{device}.json").write_text(json.dumps(record), encoding="utf-8")
    site.build(project / "site", root=project)
    return project / "site"


def declare_behind(page, names):
    page.write_text(page.read_text("utf-8").replace("made_from:", f"behind: {names}\nmade_from:", 1), "utf-8")


def entry(project, slug, passed):
    """What a record says of a page of which some cells have passed."""
    cells = read_cells(project / "snippets" / f"{slug}.md")
    facts = {"date": "2026-11-20", "device": "A100, driver 1.2", "torch": "2.13.0", "python": "3.11.7"}
    return facts | {"cells": {cell.name: digest(cells, cell) for cell in cells if passed(cell)}}


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_a_badge_counts_down_and_goes_when_cells_change(half_verified, language):
    counts = {
        slug: len(read_cells(site.Page("en", slug).snippets)) for slug in ("masks/causal", "cross/cross-attention")
    }
    causal, cross = counts.values()

    def badge(verified, cells, device="CPU"):
        facts = {"device": device, "torch": "2.13.0", "date": "2026-11-20"}
        return " ".join(text(language, "verified").format(verified=verified, cells=cells, **facts).split())

    both = [badge(causal, causal + 2), badge(1, causal + 2, "CUDA")]
    assert badges(half_verified, site.Page(language, "masks/causal")) == both
    assert badges(half_verified, site.Page(language, "cross/cross-attention")) == [badge(cross - 1, cross)]
    assert badges(half_verified, site.Page(language, "foundations/weighted-average")) == []
    assert badges(half_verified, site.Page(language, "index")) == []


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_a_cell_that_needs_a_device_says_where_it_ran_or_that_it_did_not(half_verified, language):
    html = (half_verified / site.Page(language, "masks/causal").path / "index.html").read_text("utf-8")
    said = {
        sentence.get_text(): sentence.find_previous(class_="language-python").get_text().strip()
        for sentence in BeautifulSoup(html, "html.parser").select(".ran-on")
    }
    facts = {"name": "A100, driver 1.2", "torch": "2.13.0", "date": "2026-11-20"}
    ran, waits = text(language, "ran_on").format(**facts), text(language, "not_run").format(device="CUDA")
    assert said == {ran: "print(1)", waits: "print(2)"}
    listed = (half_verified / site.Page(language, "verified").path / "index.html").read_text("utf-8")
    causal = title(site.Page(language, "masks/causal"))
    rows = BeautifulSoup(listed, "html.parser").select(".waiting")
    waiting = [row for row in rows if row.a.get_text() == causal]
    assert [row.code.get_text() for row in waiting] == [RUN[0], WAIT[0]]
    assert [ran in waiting[0].get_text(), waits in waiting[1].get_text()] == [True, True]


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_list_of_all_pages_has_a_column_for_each_device_and_counts_what_holds(half_verified, language):
    rows, said = table(half_verified, language), text(language, "share")
    counts = {page.slug: len(read_cells(page.snippets)) for page in site.PAGES_WITH_CELLS if page.language == language}
    counts["masks/causal"] += 2
    causal, cross = counts["masks/causal"], counts["cross/cross-attention"]

    def shares(cells, *verified):
        return [said.format(verified=number, cells=cells) for number in verified]

    assert rows[text(language, "page")] == []
    assert rows[title(site.Page(language, "masks/causal"))] == shares(causal, causal - 2, 1)
    assert rows[title(site.Page(language, "cross/cross-attention"))] == shares(cross, cross - 1, 0)
    average = counts["foundations/weighted-average"]
    assert rows[title(site.Page(language, "foundations/weighted-average"))] == shares(average, 0, 0)
    assert rows[text(language, "total")] == shares(sum(counts.values()), causal - 2 + cross - 1, 1)


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_markdown_of_the_list_says_what_the_list_says(half_verified, built, language):
    page = site.Page(language, "verified")
    for folder in (half_verified, built):
        html, shown = site.soup(folder, page).article, (folder / page.path / "index.md").read_text("utf-8")
        head, _, *rows = [line.strip("| ").split(" | ") for line in re.findall(r"^\|.*", shown, re.M)]
        assert head == [cell.get_text() for cell in html.select("thead th")]
        wanted = [[cell.get_text(" ", strip=True) for cell in row(["th", "td"])] for row in html.select("tr")]
        assert [[LINK.sub(r"\1", cell).replace(" · ", " ", 1) for cell in row] for row in rows] == wanted[1:]
        waiting = ["".join(row.strings).replace("\xa0", " ") for row in html.select(".waiting")]
        listed = re.findall(r"^- (\[.*\]\(.*#cell-.*)", shown, re.M)
        assert [LINK.sub(r"\1", line).replace("` · ", "").replace("`", "") for line in listed] == waiting
        assert (text(language, "no_gpu") in shown) == (text(language, "no_gpu") in html.get_text())


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_markdown_of_a_page_and_its_notebook_say_where_a_cell_ran(half_verified, built, language):
    causal = half_verified / site.Page(language, "masks/causal").path
    facts = {"name": "A100, driver 1.2", "torch": "2.13.0", "date": "2026-11-20"}
    ran, waits = text(language, "ran_on").format(**facts), text(language, "not_run").format(device="CUDA")
    both = f"```python\nprint(1)\n```\n\n```text\n1\n```\n\n{ran}\n\n```python\nprint(2)\n```\n\n{waits}\n"
    assert (causal / "index.md").read_text("utf-8").endswith(both)
    assert [cell["source"] for cell in json.loads((causal / "causal.ipynb").read_text("utf-8"))["cells"][-4:]] == [
        "print(1)",
        ran,
        "print(2)",
        waits,
    ]
    lab = site.Page(language, "labs/what-it-costs")
    [measured] = site.soup(built, lab).select(".ran-on")
    shown = (built / lab.path / "index.md").read_text("utf-8")
    assert re.search(rf"^\[picture: .*\]\n\n{re.escape(measured.get_text())}$", shown, re.M)


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_markdown_of_the_first_page_says_what_was_counted(built, language):
    page = site.Page(language, "index")
    promises = site.soup(built, page).article.select("#promises + ol > li")
    counts = [[line.get_text() for line in promise("small")] for promise in promises]
    heading = re.search(r"^## (.*?) *\{#promises\}$", page.source.read_text("utf-8"), re.M)[1]
    _, _, rest = (built / page.path / "index.md").read_text("utf-8").partition(f"\n## {heading}\n")
    items = re.split(r"^\d\. ", rest.partition("\n## ")[0], flags=re.M)[1:]
    assert [re.findall("^   - (.*)", item, re.M) for item in items] == counts


def test_a_page_names_the_sections_that_are_older_than_the_english(half_verified, built):
    page = site.Page("it", "cross/cross-attention")
    note = site.soup(half_verified, page).select_one(".behind")
    assert note.get_text().strip().startswith(text("it", "behind"))
    links = [(link["href"], link.get_text()) for link in note("a")]
    probe = re.search(r"^## (.*?) *\{#probe\}", page.source.read_text("utf-8"), re.M)[1]
    assert [words for _, words in links] == [title(page), probe, text("it", "original")]
    assert links[1][0] == "#probe"
    assert links[2][0] == "../../../cross/cross-attention/"
    here, top = site.SITE_URL + page.path, site.soup(half_verified, page).h1["id"]
    english = site.SITE_URL + site.Page("en", page.slug).path
    older = f"[{title(page)}]({here}#{top}) · [{probe}]({here}#probe) · [{text('it', 'original')}]({english})"
    start = f"# {title(page)}\n\n{text('it', 'behind')} {older}\n\n"
    assert (half_verified / page.path / "index.md").read_text("utf-8").startswith(start)
    assert 'class="behind"' not in (built / page.path / "index.html").read_text("utf-8")


def test_a_page_that_is_not_translated_shows_the_english_and_says_so(half_verified):
    page, english = site.Page("zh", "foundations/softmax"), site.Page("en", "foundations/softmax")
    soups = [site.soup(half_verified, one).article for one in (page, english)]
    assert soups[0].select_one(".behind").get_text().strip() == text("zh", "untranslated")
    assert soups[0].h1["lang"] == "en"
    markdown = (half_verified / page.path / "index.md").read_text("utf-8")
    assert markdown.startswith(f"# {title(english)}\n\n{text('zh', 'untranslated')}\n\n")
    assert soups[0].select(".picture text") == soups[1].select(".picture text")
    shown = [part.get_text() for part in soups[0].select("div[lang=en] :is(p:not(.legend), h2)")]
    assert shown == [part.get_text() for part in soups[1].select("p:not(.legend, .facts *), h2")]


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_beside_each_page_lies_its_plain_markdown_with_all_its_code_and_outputs(built, page):
    shown = (built / page.path / "index.md").read_text("utf-8")
    source = page.source.read_text("utf-8")
    rest = shown
    for one in page.cells:
        output = f"\n\n```text\n{one.output.rstrip()}\n```\n" if one.output else "\n"
        _, found, rest = rest.partition(f"\n```python\n{one.code.rstrip()}\n```{output}")
        assert found, one.name
    without_code = FENCE.sub("", shown)
    prose = CODE.sub("", without_code)
    assert re.findall(r"--8<--|\{#|^(?:!!!|\?\?\?|>).*|!\[|<[a-z!/].*?>|^---$", prose, re.M) == []
    headings = [re.sub(r" *\{#.*\}$", "", line) for line in re.findall(r"^#+ .*", FENCE.sub("", source), re.M)]
    written = re.findall("^#+ .*", without_code, re.M)
    assert written[: 1 if page.slug == "map" else None] == headings, "the map goes on with the chapters of the nav"
    assert re.findall(r"\]\((?!https?://)[^)]*\)", prose) == []


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_glossary_and_the_labs_say_in_markdown_what_they_show(built, language):
    page = site.Page(language, "glossary")
    html = site.soup(built, page)
    terms = [entry.h2.contents[0].strip() for entry in html.select(".entry")]
    shown = (built / page.path / "index.md").read_text("utf-8")
    assert re.findall(r"^- \*\*(.*?)\*\*(?: \(.*?\))?: .", shown, re.M) == terms
    here = site.SITE_URL + page.path
    places = [urljoin(here, entry.p.a["href"]) for entry in html.select(".entry")]
    assert re.findall(r"^- .*\]\((.*?)\)$", shown, re.M) == places
    lab = site.Page(language, "labs/see-the-masks")
    plots = re.findall(r"^!\[(.+)\]\(#", lab.source.read_text("utf-8"), re.M)
    assert re.findall(r"^\[picture: (.+)\]$", (built / lab.path / "index.md").read_text("utf-8"), re.M) == plots


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_one_file_lists_the_markdown_of_every_page_of_a_language_once(built, language):
    home = built / site.Page(language, "index").path
    shown = (home / "llms.txt").read_text("utf-8")
    config = site.LANGUAGES[language]
    assert shown.startswith(f"# {config.site_name or CONFIG.site_name}\n\n> {config.site_description}\n\n## ")
    chapters = [name for item in CONFIG.nav if isinstance(item, dict) for name in item if isinstance(item[name], list)]
    words = [text(language, "nav"), *((config.nav_translations or {}).get(chapter, chapter) for chapter in chapters)]
    assert re.findall("^## (.*)", shown, re.M) == words
    found = re.findall(r"^- \[(.+)\]\((.+)\): (.+)$", shown, re.M)
    pages = [page for page in site.PAGES if page.language == language]
    assert sorted(url for _, url, _ in found) == sorted(f"{site.SITE_URL}{page.path}index.md" for page in pages)
    for name, url, description in found:
        folder = built / url.removeprefix(site.SITE_URL).removesuffix("index.md")
        assert (folder / "index.md").is_file()
        html = BeautifulSoup((folder / "index.html").read_text("utf-8"), "html.parser")
        assert html.find("meta", {"name": "description"})["content"] == description
        assert html.select_one(".md-nav--primary [aria-current=page]").get_text().strip() == name


def test_the_sitemap_and_the_search_list_pages_and_not_their_markdown(built):
    assert re.findall(r"[^<>]*(?:\.md|\.txt)\b", (built / "sitemap.xml").read_text("utf-8")) == []
    indexed = json.loads((built / "pagefind/pagefind-entry.json").read_text("utf-8"))["languages"]
    counts = {language: known["page_count"] for language, known in indexed.items()}
    assert counts == dict.fromkeys(site.LANGUAGES, len(site.SLUGS))
