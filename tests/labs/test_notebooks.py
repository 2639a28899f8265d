"""The labs: their notebooks hold what the code shows, come from pages and cells, and agree in all languages."""

import re
from pathlib import Path

import pytest
from nbformat import v4

from tests.cells.project import ROOT, cell
from tools.cells.source import SourceError, digest, read_cells
from tools.labs import build as labs
from tools.labs.notebooks import SVG, dump, stored_figures

SNIPPETS = sorted(path.relative_to(ROOT) for path in ROOT.glob("snippets/labs/*.md"))
STEADY = [path for path in SNIPPETS if not any(one.measures for one in read_cells(ROOT / path))]
every_lab = pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def stored(snippet):
    """The stored figures, in the words of the first language."""
    return stored_figures(labs.pages_of(snippet)[0].with_suffix(".ipynb"))


def texts(figures):
    svgs = {name: "".join(figure.data[SVG] for figure in found) for name, found in figures.items()}
    return {name: re.findall("<text[^>]*>([^<]*)", svg) for name, svg in svgs.items()}


@pytest.mark.parametrize("snippet", STEADY, ids=lambda path: path.stem)
def test_a_notebook_shows_what_a_reader_of_the_download_sees(snippet):
    """A lab that measures shows something else each time; what it prints, the runner compares."""
    cells = read_cells(snippet)
    assert texts(labs.drawn(cells, labs.run(cells))) == texts(stored(snippet))


@every_lab
def test_a_notebook_is_what_its_page_its_cells_and_its_figures_make(snippet):
    """So every language has the figures of the first, with words of its own, drawn by the programs of its cells."""
    cells = read_cells(snippet)
    programs = {one.name: digest(cells, one) for one in cells}
    old = {name for name, found in stored(snippet).items() for one in found if one.metadata.program != programs[name]}
    assert old == set(), f"nox -s update -- labs/{snippet.stem}"
    for page in labs.pages_of(snippet):
        fresh = labs.make(page, stored(snippet)) == page.with_suffix(".ipynb").read_text("utf-8")
        assert fresh, f"{page} or {snippet} is newer than its notebook: nox -s update -- labs/{snippet.stem}"


@every_lab
def test_a_figure_keeps_to_itself_and_takes_the_ink_of_the_page(snippet):
    pictures = [figure.data[SVG] for found in stored(snippet).values() for figure in found]
    ids = [name for svg in pictures for name in re.findall(r' id="([^"]+)"', svg)]
    assert pictures
    assert len(ids) == len(set(ids)), "two things on the page have one id"
    for svg in pictures:
        strange = r'<style|\sstyle=|<\?xml|<metadata|<image|http(?!://www\.w3\.org/2000/svg")'
        assert re.findall(strange, svg) == []
        assert 'fill="var(--ink, ' in svg
        assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', svg)) == set(re.findall(r'\bid="([^"]+)"', svg))


# --- what people do wrong, on a small lab ----------------------------------------------------------

DRAW = """\
figure, axes = plt.subplots()
axes.set(xlabel="keys", ylabel="< queries")
print(len(axes.plot([1, 2])), "line")
plt.show()
"""
CELLS = [("start", "import matplotlib.pyplot as plt\n"), ("draw", DRAW, "1 line\n")]
BAD = [
    ("stops", "1 / 0\n", "1\n", "division by zero"),
    ("warns", "import warnings\n\nwarnings.warn('old')\n", "1\n", "UserWarning: old"),
    ("shows", "print(1)\n7\n", "1\n", "7"),
    ("prints", "print(2)\n", "1\n", r"2\\n"),
]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The cells of the small lab, good and bad, after their run, by their names."""
    path = tmp_path_factory.mktemp("lab") / "snippets/a.md"
    path.parent.mkdir()
    path.write_text("\n".join(cell(*parts[:3]) for parts in (*CELLS, *BAD)), "utf-8")
    cells = read_cells(path)
    return dict(zip((one.name for one in cells), labs.run(cells)))


@pytest.fixture
def build(executed, tmp_path, monkeypatch):
    """Write the small lab and its notebooks, as if its cells had run anew; returns their outputs by language."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labs, "run", lambda cells: [executed[one.name] for one in cells])
    for folder in ("docs/en/labs", "docs/zh/labs", "languages", "snippets/labs"):
        Path(folder).mkdir(parents=True)
    Path("mkdocs.yml").write_text("nav: []\nplugins:\n  - i18n: {languages: [{locale: en}, {locale: zh}]}\n")
    Path("languages/pictures.csv").write_text("en,zh\nkeys,键\n< queries,< 查询\n", "utf-8")

    def built(cells, alternatives=("![A line.](#draw)",) * 2):
        Path("snippets/labs/a.md").write_text("\n".join(cell(*parts) for parts in cells), "utf-8")
        lines = "\n\n".join(f'--8<-- "labs/a.md:{name}"' for name, *_ in cells)
        for language, text in zip(("en", "zh"), alternatives):
            Path(f"docs/{language}/labs/a.md").write_text(f"{lines}\n\n{text}\n", "utf-8")
        labs.build(Path("snippets/labs/a.md"))
        notebooks = {lang: Path(f"docs/{lang}/labs/a.ipynb").read_text("utf-8") for lang in ("en", "zh")}
        return {lang: v4.reads(text).cells[1].outputs for lang, text in notebooks.items()}

    return built


def test_a_lab_is_written_in_every_language(build):
    outputs = build(CELLS, ("![A line that rises.](#draw)", "![一条上升的线，\n也叫“直线”。](#draw)"))
    assert 'role="img" aria-label="A line that rises."' in outputs["en"][1].data[SVG]
    assert outputs["zh"][1].data["text/plain"] == "一条上升的线， 也叫“直线”。"
    assert outputs["zh"][0].text == "1 line\n"
    words = [re.findall(r"<text[^>]*>([^<]*\D)</text>", shown[1].data[SVG]) for shown in outputs.values()]
    assert words == [["keys", "&lt; queries"], ["键", "&lt; 查询"]]
    assert "](#draw)" not in Path("docs/zh/labs/a.ipynb").read_text("utf-8")


def test_a_stored_figure_stays_until_its_program_changes(build, executed, monkeypatch):
    days = iter(range(10))  # each run has a day of its own
    monkeypatch.setattr(labs, "facts", lambda _: {"date": next(days)})
    measures = "measures: how long a line is"

    def day(code):
        return build([CELLS[0], ("draw", code, "1 line\n", measures)])["zh"][1].metadata.measured.date

    assert day(DRAW) == day(DRAW) == 0
    assert day(DRAW.replace("[1, 2]", "[1, 3]")) == 2
    Path("docs/en/labs/a.ipynb").write_text(dump(v4.new_notebook()), "utf-8")
    assert day(DRAW) == 3


def test_a_figure_without_a_text_alternative_is_named(build):
    counts = "draws 1 figures and the page describes 0"
    with pytest.raises(SourceError, match=rf"^docs/zh/labs/a\.md: the cell 'draw' .*{counts}"):
        build(CELLS, ("![a](#draw)", ""))
    assert not list(Path("docs").rglob("*.ipynb")), "nothing is written unless every language can be"


@pytest.mark.parametrize(("name", "code", "output", "said"), BAD)
def test_a_cell_that_shows_something_else_in_a_notebook_is_named(build, name, code, output, said):
    with pytest.raises(SourceError, match=rf"(?s)^snippets/labs/a\.md:2: .* '{name}' shows .*{said}.*update -- labs/a"):
        build([(name, code, output)], ("", ""))
