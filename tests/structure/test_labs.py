"""The labs: their notebooks hold what the code shows, come from pages and cells, and agree in all languages."""

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest

from tests.cells.project import ROOT, cell
from tools import labs
from tools.cells.compare import same
from tools.cells.source import SourceError, read_cells

SVG = "{http://www.w3.org/2000/svg}"
FOLDED = {"jupyter": {"source_hidden": True}}
LABS = sorted(path.relative_to(ROOT) for path in ROOT.glob("snippets/labs/*.md"))


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module", params=LABS, ids=lambda path: path.stem)
def lab(request):
    """A lab, executed: its snippet file, what its cells print and draw, and the seconds of a processor that it took."""
    before = seconds()
    return request.param, *labs.execute(read_cells(ROOT / request.param)), seconds() - before


def seconds():
    """How long processors have worked for the children of this process that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def notebooks(snippet):
    return {page: json.loads(labs.notebook_path(page).read_text("utf-8")) for page in labs.find_pages(snippet)}


def stored(snippet):
    """The stored figures, in the words of the first language, and where those were drawn that measure."""
    path = labs.notebook_path(labs.find_pages(snippet)[0])
    return labs.read_figures(path), labs.read_measurements(path)


def printed(made):
    """The stored prints of a notebook by the names of its cells."""
    return {
        cell["id"]: "".join(output["text"] for output in cell["outputs"] if output["output_type"] == "stream")
        for cell in made["cells"]
        if cell["cell_type"] == "code"
    }


def test_the_stored_prints_are_what_the_code_prints(lab):
    snippet, prints, _, _ = lab
    for page, made in notebooks(snippet).items():
        stored = printed(made)
        assert stored.keys() == prints.keys()
        wrong = [name for name in prints if not same(stored[name], prints[name])]
        assert not wrong, f"{labs.notebook_path(page)}: the code prints something else in {wrong}"


def test_the_stored_figures_are_what_the_code_draws(lab):
    snippet, _, drawn, _ = lab
    measured = labs.measurements(read_cells(snippet))
    figures, then = stored(snippet)
    same = labs.same_figures(figures, drawn, measured), labs.same_programs(then, measured)
    assert same == (True, True), f"run nox -s labs -- labs/{snippet.stem}"


def test_a_lab_takes_less_than_a_minute(lab):
    assert 1 < lab[-1] < 60


@pytest.mark.parametrize("snippet", LABS, ids=lambda path: path.stem)
def test_each_axis_with_ticks_has_a_label(snippet):
    figures, _ = stored(snippet)
    groups = [
        part for drawn in figures.values() for svg in drawn for part in ElementTree.fromstring(svg).iter(f"{SVG}g")
    ]
    axes = [(texts(part), texts(part, "tick")) for part in groups if part.get("class") == "axis"]
    assert any(ticks for _, ticks in axes)
    assert [ticks for said, ticks in axes if ticks and said == ticks] == []


def texts(group, kind=None):
    """What the texts of a group say, or those of its parts of a kind."""
    parts = [part for part in group.iter(f"{SVG}g") if part.get("class") == kind] if kind else [group]
    return [text.text for part in parts for text in part.iter(f"{SVG}text")]


@pytest.mark.parametrize("snippet", LABS, ids=lambda path: path.stem)
def test_a_notebook_is_what_its_page_and_cells_make(snippet):
    """So every language has the figures of the first, with words of its own."""
    for page in labs.find_pages(snippet):
        path = labs.notebook_path(page)
        fresh = labs.make(page, *stored(snippet)) == path.read_text("utf-8")
        assert fresh, f"{path} is older than {page} or {snippet}: run nox -s labs -- labs/{snippet.stem}"


@pytest.mark.parametrize("snippet", LABS, ids=lambda path: path.stem)
def test_every_language_has_all_cells(snippet):
    expected = [(found.name, found.code.rstrip("\n"), found.output or "") for found in read_cells(snippet)]
    for page, made in notebooks(snippet).items():
        code = [part for part in made["cells"] if part["cell_type"] == "code"]
        shown = [(part["id"], part["source"], printed(made)[part["id"]]) for part in code]
        assert shown == expected, f"{page}: other cells than {snippet}"


@pytest.mark.parametrize("snippet", LABS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_says_nothing_of_the_run(snippet):
    for made in notebooks(snippet).values():
        nbformat.validate(made)
        counts = [part["execution_count"] for part in made["cells"] if part["cell_type"] == "code"]
        assert set(counts) == {None}
        assert all(part["metadata"] in ({}, FOLDED) for part in made["cells"])


@pytest.mark.parametrize("snippet", LABS, ids=lambda path: path.stem)
def test_a_figure_keeps_to_itself_and_takes_the_ink_of_the_page(snippet):
    for page in labs.find_pages(snippet):
        pictures = [svg for found in labs.read_figures(labs.notebook_path(page)).values() for svg in found]
        ids = [name for svg in pictures for name in re.findall(r' id="([^"]+)"', svg)]
        assert pictures
        assert len(ids) == len(set(ids)), "two things on the page have one id"
        for svg in pictures:
            for stranger in ("<style", "http", "<?xml", "<metadata", "<image"):
                assert stranger not in svg.replace('xmlns="http://www.w3.org/2000/svg"', ""), stranger
            assert "fill: var(--ink, " in svg
            assert {name for _, name in labs.REFERENCE.findall(svg)} == set(re.findall(r' id="([^"]+)"', svg))


# --- what people do wrong, on a small lab ----------------------------------------------------------

DRAW = """\
figure, axes = plt.subplots()
axes.set(title="二十三", xlabel="keys", ylabel="< queries")
print(len(axes.plot([1, 2])), "line", *os.listdir())
plt.show()
"""
FONTS = """\
import os
import re

import matplotlib.pyplot as plt
from matplotlib import font_manager

chinese = re.compile("CJK|Hei|Hiragino Sans|Song|Sun|Han Sans|Fallback")
fonts = sorted(filter(chinese.search, font_manager.get_font_names()))
plt.rcParams["font.family"] = ["sans-serif", *fonts]
"""
CELLS = [("start", FONTS), ("draw", DRAW, "1 line\n")]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A project with one small lab in two languages; returns how to write it."""
    monkeypatch.chdir(tmp_path)

    def write(cells, alternatives=("![A line.](#draw)",) * 2):
        lines = "\n\n".join(f'--8<-- "labs/a.md:{name}"' for name, *_ in cells)
        files = {f"docs/{lang}/labs/a.md": f"{lines}\n\n{text}\n" for lang, text in zip(("en", "zh"), alternatives)}
        files["mkdocs.yml"] = "plugins:\n  - i18n:\n      languages:\n        - locale: en\n        - locale: zh\n"
        files["languages/pictures.csv"] = "en,zh\nkeys,键\n< queries,< 查询\n"
        files["snippets/labs/a.md"] = "\n".join(cell(*parts) for parts in cells)
        for name, text in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, "utf-8")
        return Path("snippets/labs/a.md")

    return write


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """What the cells of the small lab print and draw."""
    path = tmp_path_factory.mktemp("lab") / "a.md"
    path.write_text("\n".join(cell(*parts) for parts in CELLS), "utf-8")
    return labs.execute(read_cells(path))


def test_a_lab_is_written_in_every_language_once(small, executed, monkeypatch):
    monkeypatch.setattr(labs, "execute", lambda *_: executed)
    snippet = small(CELLS, ("![A line that rises.](#draw)", "![一条上升的线，\n也叫“直线”。](#draw)"))
    labs.build(snippet)
    paths = [Path(f"docs/{language}/labs/a.ipynb") for language in ("en", "zh")]
    assert (
        'role="img" aria-label="A line that rises."'
        in json.loads(paths[0].read_text("utf-8"))["cells"][1]["outputs"][1]["data"][labs.SVG]
    )
    assert (
        json.loads(paths[1].read_text("utf-8"))["cells"][1]["outputs"][1]["data"]["text/plain"]
        == "一条上升的线， 也叫“直线”。"
    )
    assert all("](#draw)" not in path.read_text("utf-8") for path in paths)
    words = [re.findall(r"<text[^>]*>([^<]*\D)</text>", path.read_text("utf-8")) for path in paths]
    assert words == [["keys", "&lt; queries", "二十三"], ["键", "&lt; 查询", "二十三"]]
    before = [path.stat().st_mtime_ns for path in paths]
    labs.build(snippet)
    assert [path.stat().st_mtime_ns for path in paths] == before


def test_a_stored_figure_stays_while_only_its_rounding_differs(small, executed, monkeypatch):
    prints, figures = executed
    monkeypatch.setattr(labs, "execute", lambda *_: (prints, figures))
    snippet = small(CELLS)
    labs.build(snippet)
    stored = Path("docs/zh/labs/a.ipynb").read_bytes()
    (svg,) = figures["draw"]
    x = re.search(r'd="M (\d+\.\d\d)', svg)[1]
    for moved, kept in ((0.01, True), (0.2, False)):
        other = svg.replace(f"M {x}", f"M {float(x) + moved:.2f}", 1)
        assert other != svg
        monkeypatch.setattr(labs, "execute", lambda *_, other=other: (prints, {"draw": [other]}))
        labs.build(snippet)
        assert (Path("docs/zh/labs/a.ipynb").read_bytes() == stored) == kept


def test_a_measured_figure_stays_while_its_parts_its_words_and_its_program_do(small, executed, monkeypatch):
    prints, figures = executed
    days = iter(range(10))  # each build has a day of its own
    monkeypatch.setattr(labs, "facts", lambda _: {"date": next(days)})

    def day(svg, code=DRAW):
        """The day on which the stored figure was measured, after one more build."""
        monkeypatch.setattr(labs, "execute", lambda *_: (prints, {"draw": [svg]}))
        labs.build(small([CELLS[0], ("draw", code, "1 line\n", "measures: how long a line is")]))
        output = json.loads(Path("docs/zh/labs/a.ipynb").read_text("utf-8"))["cells"][1]["outputs"][1]
        return output["metadata"]["measured"]["date"]

    (svg,) = figures["draw"]
    moved = re.sub(r' d="M (\d+)', ' d="M 1', svg)
    assert moved != svg
    assert day(svg) == day(moved) == 0
    assert day(moved.replace(" L ", " L 1 1 L ", 1)) == 2
    assert day(moved.replace(">1.0<", ">1.5<")) == 3
    assert day(moved.replace("#1f77b4", "#c9601a")) == 4
    assert day(moved, DRAW.replace("[1, 2]", "[1, 3]")) == 5


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ('<path d="M 1.00 2"/>', '<path d="M 1.02 2"/>', True),
        ('<path d="M 1.00 2"/>', '<path d="M 1.03 2"/>', False),
        ('<path d="M 1 2"/>', '<path d="M 1 -2"/>', False),
        ('<path style="fill: #2f7fc4"/>', '<path style="fill: #2e7fc6"/>', True),
        ('<path style="fill: #2f7fc4"/>', '<path style="fill: #2f7fc7"/>', False),
        ('<path style="fill: #2f7fc4"/>', '<path style="fill: none"/>', False),
        ('<text x="1">0.01</text>', '<text x="1">0.02</text>', False),
        ('<text x="1">keys</text>', '<text x="1">queries</text>', False),
        ("<g><path/></g>", "<g><path/><path/></g>", False),
    ],
)
def test_two_figures_are_the_same_but_for_rounding(one, other, alike):
    assert labs.same_figure(one, other) == alike
    assert labs.same_figures({"draw": [one]}, {"draw": [other]}) == alike
    assert not labs.same_figures({"draw": [one]}, {"draw": [one, one]})
    assert not labs.same_figures({"draw": [one]}, {})


def test_a_missing_translation_is_named(small):
    snippet = small(CELLS)
    Path("docs/zh/labs/a.md").unlink()
    with pytest.raises(SourceError, match=r"^docs/zh/labs/a\.md is missing: .* translate docs/en/labs/a\.md"):
        labs.build(snippet)


@pytest.mark.parametrize(
    ("alternative", "counts"),
    [("", "draws 1 figures and the page describes 0"), ("![a](#draw)\n\n![b](#draw)", "describes 2")],
)
def test_a_figure_without_a_text_alternative_is_named(small, executed, monkeypatch, alternative, counts):
    monkeypatch.setattr(labs, "execute", lambda *_: executed)
    snippet = small(CELLS, ("![a](#draw)", alternative))
    with pytest.raises(SourceError, match=rf"^docs/zh/labs/a\.md: the cell 'draw' .*{counts}"):
        labs.build(snippet)
    assert not list(Path("docs").rglob("*.ipynb")), "nothing is written unless every language can be"


def test_another_print_is_named_with_its_line(small, executed, monkeypatch):
    monkeypatch.setattr(labs, "execute", lambda *_: executed)
    snippet = small([CELLS[0], ("draw", DRAW, "2 lines\n")])
    with pytest.raises(
        SourceError, match=r"(?s)^snippets/labs/a\.md:16: .*- 2 lines.*\+ 1 line.*nox -s update -- labs/a"
    ):
        labs.build(snippet)


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        ("print(1)\nhalve(0)\n", 5, "the cell 'bad' stops with ZeroDivisionError: division by zero"),
        ("import warnings\n\nwarnings.warn('old')\n", 10, "shows neither a print nor a figure, but .*old"),
        ("print(1)\n7\n", 10, "shows neither a print nor a figure, but '7'"),
    ],
)
def test_a_cell_that_fails_is_named_with_its_line(small, code, line, words):
    half = ("half", "def halve(x):\n\n    return 1 / x\n")
    with pytest.raises(SourceError, match=rf"^snippets/labs/a\.md:{line}: .*{words}"):
        labs.build(small([half, ("bad", code, "1\n")], ("", "")))
