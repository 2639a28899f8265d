"""Execute the labs and write their notebooks: `python -m tools.labs.build snippets/labs/see-the-masks.md ...`

A lab is a page whose cells draw figures: prose in docs/<language>/labs/<name>.md, cells in snippets/labs/<name>.md. Its
cells are executed once, in a Jupyter kernel; every language gets the same code, prints and figures. A figure is drawn
in English, and its words become those of languages/pictures.csv. Below the line that shows a cell, the page says what
its figure shows, for those who cannot see it:

    ![The causal mask is a staircase.](#masks)

A stored figure stays until the program that drew it changes: another machine rounds otherwise, and takes another time.

fonts.otf is cut from Noto Serif CJK SC of github.com/notofonts/noto-cjk (SIL Open Font License, fonts.LICENSE.txt):

    pyftsubset NotoSerifCJK-Regular.ttc --font-number=2 --text="$(cat snippets/labs/*.md)" --unicodes=20-7E,A0-17F \\
        --layout-features=kern --no-hinting --notdef-outline --name-IDs=0,1,2,6,13 --drop-tables+=BASE,VORG,vhea,vmtx \\
        --no-recalc-timestamp --output-file=tools/labs/fonts.otf
"""

import html
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from nbclient import NotebookClient
from nbformat import NotebookNode, v4
from scour import scour

from tools.cells import compare
from tools.cells.record import facts, write_atomically
from tools.cells.source import Cell, SourceError, digest, files_beside, read_cells, resolve, slug_of
from tools.labs.notebooks import SVG, Figures, described, dump, notebook, stored_figures
from tools.languages import configuration, markdown
from tools.languages.pictures import in_words, words_of_pictures

INK = "#747d87"  # where no page gives an ink: as far from white paper as from dark
UNWANTED = re.compile(r"<defs>\s*<style.*?</defs>| font-family:[^;\"]*;", re.S)  # they reach beyond the figure
ROOT = '<svg font-family="sans-serif" stroke-linejoin="round" '
LABEL = re.compile('<svg role="img" aria-label="[^"]*" ')
HERE = Path(__file__).parent.resolve()

# It runs before the first cell and stands in no notebook. Words are laid out with the fonts that every machine has,
# those of matplotlib and our own for Chinese.
SETUP = f"""
import matplotlib
from matplotlib import font_manager
from matplotlib_inline.backend_inline import set_matplotlib_formats

fonts = font_manager.fontManager
fonts.ttflist = [font for font in fonts.ttflist if font.fname.startswith(matplotlib.get_data_path())]
fonts.addfont({str(HERE / "fonts.otf")!r})
matplotlib.style.use({str(HERE / "style.mplstyle")!r})
set_matplotlib_formats("svg", bbox_inches=None, metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"]))
"""


def build(snippet: Path) -> int:
    """Execute a lab and write its notebook in every language; return how many figures it has."""
    cells, pages = read_cells(snippet), pages_of(snippet)
    figures = kept(stored_figures(pages[0].with_suffix(".ipynb")), drawn(cells, run(cells)))
    for path, text in {page.with_suffix(".ipynb"): make(page, figures) for page in pages}.items():
        write_atomically(path, text)
    return sum(map(len, figures.values()))


def pages_of(snippet: Path) -> list[Path]:
    """The page of a lab in every language that has it."""
    pages = (Path("docs", language, f"{slug_of(snippet)}.md") for language in configuration.read().languages)
    return [page for page in pages if page.is_file()]


def run(cells: Sequence[Cell]) -> list[NotebookNode]:
    """Cells after a run in a kernel of their own, beside the files that they import, as a reader runs a download."""
    made = v4.new_notebook(cells=[v4.new_code_cell(source) for source in (SETUP, *(cell.code for cell in cells))])
    with tempfile.TemporaryDirectory() as folder:
        for path in {path for cell in cells for path in files_beside(cell)}:
            shutil.copy(path, folder)
        place = {"metadata": {"path": folder}}
        client = NotebookClient(made, kernel_name="python3", timeout=600, allow_errors=True, resources=place)
        client.extra_arguments = ["--IPKernelApp.log_level=40"]
        client.execute()
    return [*made.cells[1:]]


def drawn(cells: Sequence[Cell], ran: Sequence[NotebookNode]) -> Figures:
    """The figures of cells that ran; `SourceError` for what is neither a figure nor what the page says they print."""
    figures: dict[str, list[NotebookNode]] = {}
    for cell, done in zip(cells, ran):
        pictures = [output.data[SVG] for output in done.outputs if SVG in output.get("data", {})]
        others = [output for output in done.outputs if SVG not in output.get("data", {})]
        printed = "".join(output.get("text") or output.get("evalue") or output.data["text/plain"] for output in others)
        if not compare.same(cell.output or "", printed) or any(output.get("name") != "stdout" for output in others):
            fix = f"fix it, or run nox -s update -- {slug_of(cell.path)}"
            shows = "shows neither a figure in a notebook nor what the page says that it prints"
            raise cell.fault(f"{shows}, but {printed!r}; {fix}")
        if pictures:
            # Of one that measures, the machine and the day are noted, too.
            measured = {"measured": facts("cuda" if torch.cuda.is_available() else "cpu")} if cell.measures else {}
            note = {"program": digest(cells, cell)} | measured
            svgs = [tidy(picture, f"{cell.name}-{n}-") for n, picture in enumerate(pictures)]
            figures[cell.name] = [v4.new_output("display_data", {SVG: svg}, metadata=note) for svg in svgs]
    return figures


def tidy(svg: str, prefix: str) -> str:
    """A figure as a part of a page, whose ink it takes, small, with names of its own and nothing for the whole page."""
    svg = UNWANTED.sub("", svg[svg.index("<svg") :]).replace("<svg ", ROOT, 1)
    names = "--enable-id-stripping", "--shorten-ids", f"--shorten-ids-prefix={prefix}"
    options = scour.parse_args(["--strip-xml-prolog", "--indent=none", *names])
    svg = scour.scourString(svg, options).strip()
    svg = svg.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
    return re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', svg, count=2).replace(INK, f"var(--ink, {INK})")


def kept(stored: Figures, new: Figures) -> Figures:
    """The figures of a lab: the stored ones of each cell whose program is still that which drew them."""
    same = {name for name in new if programs(stored.get(name, [])) == programs(new[name])}
    return {name: stored[name] if name in same else new[name] for name in new}


def programs(figures: Sequence[NotebookNode]) -> list[str]:
    """The digests of the programs that drew figures."""
    return [figure.metadata.get("program") for figure in figures]


def make(path: Path, figures: Figures) -> str:
    """The text of the notebook of the page in a file, with these figures in the words of its language."""
    page = markdown.read(markdown.file_of_text(path))
    words = words_of_pictures(Path("languages/pictures.csv"), page.path.relative_to("docs").parts[0])
    told = descriptions(page, figures)
    translated = {name: [in_language(*pair, words) for pair in zip(figures[name], told[name])] for name in figures}
    return dump(notebook(page, resolve(page.path, "snippets"), figures=translated))


def descriptions(page: markdown.Page, figures: Figures) -> Mapping[str, Sequence[str]]:
    """What a page says that each figure shows, by the names of the cells; `SourceError` where one lacks its words."""
    told = defaultdict(list)
    for block, name in described(page):
        told[name].append(block.words)
    for name in figures.keys() | told.keys():
        if len(figures.get(name, [])) != len(told[name]):
            fault = f"draws {len(figures.get(name, []))} figures and the page describes {len(told[name])}"
            fix = f"write one line ![what it shows](#{name}) for each, below the cell"
            raise SourceError(f"{page.path}: the cell {name!r} {fault}; {fix}")
    return told


def in_language(figure: NotebookNode, alternative: str, words: Mapping[str, str]) -> NotebookNode:
    """A figure in the words of a language, which says what it shows."""
    label = f'<svg role="img" aria-label="{html.escape(alternative)}" '
    svg = LABEL.sub("<svg ", figure.data[SVG], count=1).replace("<svg ", label, 1)
    data = {SVG: in_words(svg, words), "text/plain": alternative}
    return v4.new_output("display_data", data, metadata=figure.metadata)


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            print(f"{name}: {build(Path(name))} figures", flush=True)
    except SourceError as error:
        sys.exit(str(error))
