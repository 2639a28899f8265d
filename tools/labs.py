"""Execute the labs and write their notebooks: `python -m tools.labs snippets/labs/see-the-masks.md ...`

A lab is a page whose cells draw figures: prose in docs/<language>/labs/<name>.md, cells in snippets/labs/<name>.md. Its
cells are executed once, in a Jupyter kernel; every language gets the same code, prints and figures. A figure is drawn
in English, and its words become those of languages/pictures.csv. Below the line that shows a cell, the page says what
its figure shows, for those who cannot see it:

    ![The causal mask is a staircase.](#masks)
"""

import json
import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from xml.sax.saxutils import quoteattr

import nbformat
import torch
from nbclient import NotebookClient

from tools.cells import compare
from tools.cells.record import write_atomically
from tools.cells.source import SourceError, digest, read_cells, read_text, resolve, slug_of
from tools.cells.summary import facts
from tools.markdown import file_of_text
from tools.notebooks import ALTERNATIVE, dump, notebook, noted
from tools.site.body import in_words, words_of_pictures

SVG = "image/svg+xml"
INK = "#747d87"  # where no page gives an ink: as far from white paper as from dark
LANGUAGE = re.compile(r"^ +- locale: *([\w-]+)", re.M)
COLOURED = re.compile(r"\x1b\[[\d;]*m")
FAILED_AT = re.compile(r"Cell In\[(\d+)\], line (\d+)")
REFERENCE = re.compile(r'((?:url\(|href=")#)([\w-]+)')
PLACE = re.compile(r' (?:d|x|y|transform)="[^"]*"')
RECTANGLE = re.compile(r"M (\S+) (\S+) L (\S+) \2 L \3 (\S+) L \1 \4 L \1 \2 (?:z )?")
MEASURE = re.compile(r"(?:#[0-9a-f]{6}\b|-?\d+(?:\.\d+)?)(?=[^<>]*>)")  # in a tag; a number in the text is a word

WORDS = Path("languages/pictures.csv")
FONT = Path(__file__).parent.resolve() / "site/pictures.otf"

# It runs before the first cell and stands in no notebook. Words stay text: the reader's own fonts draw them. They are
# laid out with the fonts that every machine has, those of matplotlib and our own for Chinese.
SETUP = f"""
import matplotlib
from matplotlib import font_manager
from matplotlib_inline.backend_inline import set_matplotlib_formats

fonts = font_manager.fontManager
fonts.ttflist = [font for font in fonts.ttflist if font.fname.startswith(matplotlib.get_data_path())]
fonts.addfont({str(FONT)!r})
ink = ["axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color", "xtick.color", "ytick.color"]
clear = ["axes.facecolor", "figure.facecolor", "legend.facecolor", "savefig.facecolor"]
matplotlib.rcParams.update(dict.fromkeys(ink, "{INK}") | dict.fromkeys(clear, "none"))
matplotlib.rcParams.update({{"svg.fonttype": "none", "svg.hashsalt": "labs"}})
edges = ["figure.constrained_layout.h_pad", "figure.constrained_layout.w_pad"]
matplotlib.rcParams.update(dict.fromkeys(edges, 0.1))  # inches, since Chinese is higher than what is drawn
facts = dict.fromkeys(["Creator", "Date", "Format", "Type"])
set_matplotlib_formats("svg", bbox_inches=None, metadata=facts)
"""


def build(snippet):
    """Execute a lab and write its notebook in every language; return its figures."""
    cells, pages = read_cells(snippet), find_pages(snippet)
    prints, figures = execute(cells)
    refuse_differences(cells, prints)
    measured = measurements(cells)
    stored, then = read_figures(notebook_path(pages[0])), read_measurements(notebook_path(pages[0]))
    if same_figures(stored, figures, measured) and same_programs(then, measured):
        figures, measured = stored, then  # another machine rounds otherwise, and takes another time
    made = {notebook_path(page): make(page, figures, measured) for page in pages}
    for path, text in made.items():
        if not path.is_file() or read_text(path) != text:
            write_atomically(path, text)
    return figures


def find_pages(snippet):
    """The page of a lab in every language of mkdocs.yml."""
    slug = Path(snippet).relative_to("snippets")
    pages = [Path("docs", language) / slug for language in LANGUAGE.findall(read_text("mkdocs.yml"))]
    for page in pages:
        if not page.is_file():
            raise SourceError(f"{page} is missing: a lab stands in every language; translate {pages[0]}")
    return pages


def notebook_path(page):
    return page.with_suffix(".ipynb")


# --- executing ------------------------------------------------------------------------------------


def execute(cells):
    """Run cells in a kernel of their own, in an empty folder, as a reader runs a download.

    Return what each prints, and the SVG of its figures, by their names.
    """
    sources = [SETUP, *(cell.code for cell in cells)]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    quiet = ["--IPKernelApp.log_level=40"]
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        options = {"timeout": 600, "allow_errors": True, "extra_arguments": quiet, "resources": place}
        NotebookClient(made, kernel_name="python3", **options).execute()
    prints, figures = {}, {}
    for cell, ran in zip(cells, made.cells[1:]):
        for output in ran.outputs:
            if output.get("name") != "stdout" and SVG not in output.get("data", {}):
                raise SourceError(complaint(cells, cell, output))
        prints[cell.name] = "".join(output.get("text", "") for output in ran.outputs)
        pictures = [output.data[SVG] for output in ran.outputs if "data" in output]
        figures[cell.name] = [tidy(picture, f"{cell.name}-{n}") for n, picture in enumerate(pictures)]
    return prints, {name: found for name, found in figures.items() if found}


def complaint(cells, cell, output):
    """What is wrong with a cell that stops, or shows what is neither a print nor a figure."""
    if output.output_type == "error":
        count, line = FAILED_AT.findall(COLOURED.sub("", "\n".join(output.traceback)))[-1]
        failed = cells[int(count) - 2]  # the first cell of the kernel is SETUP
        where = f"{failed.path}:{failed.fence + int(line)}"
        return f"{where}: the cell {cell.name!r} stops with {output.ename}: {output.evalue}"
    text = output.get("text") or output.data.get("text/plain", "")
    return f"{cell.path}:{cell.fence}: the cell {cell.name!r} shows neither a print nor a figure, but {text.strip()!r}"


def refuse_differences(cells, prints):
    """`SourceError` where a cell of a lab prints something else than its page shows."""
    for cell in cells:
        expected, got = cell.output or "", prints[cell.name]
        if not compare.same(expected, got):
            raise SourceError(
                f"{cell.path}:{cell.fence}: the page shows (-), the cell {cell.name!r} prints (+):\n\n"
                f"{compare.difference(expected, got)[0]}\n\n"
                f"Mend the code, or take over what it prints: nox -s update -- {slug_of(cell.path)}"
            )


# --- figures --------------------------------------------------------------------------------------


def tidy(svg, name):
    """A figure as a part of a page: the ink of the page, and no names or styles that reach beyond the figure."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r"<defs>\s*<style.*?</defs>|<!--.*?-->| font-family:[^;\"]*;| xmlns:xlink=\"[^\"]*\"", "", svg, flags=re.S
    )
    svg = svg.replace("xlink:href", "href").replace(INK, f"var(--ink, {INK})")
    names = {old: f"{name}-{n}" for n, (_, old) in enumerate(dict.fromkeys(REFERENCE.findall(svg)))}
    svg = re.sub(r' id="(?:matplotlib\.(axis)|[xy](tick))_\d+"', lambda part: f' class="{part[1] or part[2]}"', svg)
    svg = re.sub(r' id="([^"]+)"', lambda match: f' id="{names[match[1]]}"' if match[1] in names else "", svg)
    svg = REFERENCE.sub(lambda match: match[1] + names[match[2]], svg)
    svg = RECTANGLE.sub(rectangle, re.sub(r"\s+", " ", svg))
    svg = re.sub(r"\d+\.\d{3,}(?=[^<>]*>)", lambda match: f"{float(match[0]):.2f}", svg)
    svg = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', svg, count=2)
    style = ' font-family="sans-serif" stroke-linecap="butt" stroke-linejoin="round"'
    svg = svg.replace(">", f"{style}>", 1)
    return svg.replace("> <", ">\n<").strip()


def rectangle(corners):
    """A rectangle by its sides: those of a grid are all alike, and pack well."""
    left, top, right, bottom = map(float, corners.groups())
    return f"M {left:.2f} {top:.2f} h {right - left:.2f} v {bottom - top:.2f} h {left - right:.2f} z"


def same_figures(some, others, measured=()):
    """Whether two sets of figures are the same but for rounding: 0.02 of a point, 2 of 255 in a colour.

    In those of the cells in `measured` the same parts may lie elsewhere.
    """
    return some.keys() == others.keys() and all(
        len(some[name]) == len(others[name])
        and all(same_figure(one, other, name in measured) for one, other in zip(some[name], others[name]))
        for name in some
    )


def same_figure(one, other, measured=False):
    if measured:
        one, other = placeless(one), placeless(other)
    kinds = [MEASURE.sub(lambda match: "#" if match[0][0] == "#" else "0", svg) for svg in (one, other)]
    return kinds[0] == kinds[1] and all(map(close, MEASURE.findall(one), MEASURE.findall(other)))


def placeless(svg):
    return PLACE.sub(lambda place: re.sub(r"-?\d+(\.\d+)?", "0", place[0]), svg)


def close(one, other):
    if one[0] == "#":
        return all(abs(a - b) <= 2 for a, b in zip(bytes.fromhex(one[1:]), bytes.fromhex(other[1:])))
    return abs(float(one) - float(other)) <= 0.021


# --- notebooks ------------------------------------------------------------------------------------


def make(page, figures, measured):
    """The text of the notebook of a page, with these figures, and where those were drawn that measure."""
    page = file_of_text(page)
    text, words = read_text(page), words_of_pictures(WORDS, page.relative_to("docs").parts[0])
    alternatives = defaultdict(list)
    for alternative, name in ALTERNATIVE.findall(text):
        alternatives[name].append(" ".join(alternative.split()))
    made = notebook(ALTERNATIVE.sub("", text), resolve(page, "snippets"))
    for name in figures.keys() | alternatives.keys():
        if len(figures.get(name, [])) != len(alternatives[name]):
            raise SourceError(
                f"{page}: the cell {name!r} draws {len(figures.get(name, []))} figures and the page describes "
                f"{len(alternatives[name])}; write one line ![what it shows](#{name}) for each, below the cell"
            )
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            note = {"measured": measured[cell["id"]]} if cell["id"] in measured else {}
            drawn = zip(figures.get(cell["id"], []), alternatives[cell["id"]])
            cell["outputs"] += [figure_output(in_words(svg, words), alternative, note) for svg, alternative in drawn]
    return dump(made)


def figure_output(svg, alternative, note):
    """An output that shows a figure, and says what it shows."""
    label = f'<svg role="img" aria-label={quoteattr(alternative)} '
    data = {SVG: svg.replace("<svg ", label, 1), "text/plain": alternative}
    return {"data": data, "metadata": note, "output_type": "display_data"}


def read_figures(path):
    """The figures that a notebook holds, by the names of their cells; none where there is no notebook."""
    cells = json.loads(read_text(path))["cells"] if path.is_file() else []
    figures = defaultdict(list)
    for cell in cells:
        for output in cell.get("outputs", []):
            if output["output_type"] == "display_data":
                figures[cell["id"]].append(
                    re.sub(r' role="img" aria-label=(".*?"|\'.*?\')', "", output["data"][SVG], count=1)
                )
    return dict(figures)


def measurements(cells):
    """What is noted of the cells that measure, by their names: where and when they run now, and what."""
    here = facts("cuda" if torch.cuda.is_available() else "cpu")
    return {cell.name: here | {"program": digest(cells, cell)} for cell in cells if cell.measures}


def read_measurements(path):
    """What a notebook notes of its cells that measure; nothing where there is no notebook."""
    return noted(json.loads(read_text(path))) if path.is_file() else {}


def same_programs(some, others):
    """Whether two notes on cells that measure are of the same programs."""
    return {name: some[name]["program"] for name in some} == {name: others[name]["program"] for name in others}


def main(snippets):
    for snippet in snippets:
        start = time.perf_counter()
        try:
            figures = build(snippet)
        except SourceError as error:
            sys.exit(str(error))
        drawn = sum(map(len, figures.values()))
        print(f"{snippet}: {drawn} figures, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
