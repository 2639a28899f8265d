"""Turn a page and its cells into a notebook, and put the figures of a notebook into the page of a lab."""

import html
import json
import re
import textwrap

from tools.cells.source import INCLUDE, SourceError, read_text
from tools.translations import CODE, FRONT_MATTER

SVG = "image/svg+xml"
PLACE = '<div class="plot"></div>'  # of a figure, which Markdown need not read
DESCRIPTION = re.compile(r"^description: *(.+)$", re.M)
ALTERNATIVE = re.compile(r"^!\[([^\]]+)\]\(#([a-z][a-z0-9-]*)\)\n*", re.M)  # in the page of a lab
FOLDED = re.compile(r'^\?\?\? +[\w-]+ +"(.*)"\n((?:(?: {4}.*)?\n)+)', re.M)
ADMONITION = re.compile(r'(?:!!!|\?\?\?\+?) +([\w-]+)(?: +"(.*)")?')
HEADING = re.compile(r"^(#+ .*?) *\{#([\w-]+)\}$", re.M)
ANCHOR = re.compile(r'^(#+ .*?) <a id="([\w-]+)"></a>$', re.M)
EMPTY_ENDS = re.compile(r"\A(?:>?\n)+|\n>?(?=\n*\Z)|\A>?\Z")
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s]+)(\))")
EXPLORER = re.compile(r"^(\[.*\]\(.*\))\{#[^}]+\}$", re.M)  # here it is a link to the page that has it


def notebook(page, cells, link=str):
    """The notebook of a page: its prose, and each of `cells` with its stored output where the page shows it.

    `page` is the Markdown of the page, `cells` what `tools.cells.source.resolve` found for it, and `link` says what
    becomes of the target of each relative link.
    """
    front = FRONT_MATTER.match(page)
    description = DESCRIPTION.search(front[1]) if front else None
    prose = f"{page[front.end() :] if front else page}\n"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": list(notebook_cells(FOLDED.sub(details, prose), hide_folded(prose, cells), link)),
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}
        | ({"description": description[1]} if description else {}),
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def details(block):
    """A folded block as HTML that notebooks fold; one with cells stays, since no cell can stand inside."""
    if INCLUDE.search(block[2]):
        return block[0]
    title = CODE.sub(r"<code>\2</code>", html.escape(block[1], quote=False))
    return f"<details>\n<summary>{title}</summary>\n\n{textwrap.dedent(block[2]).strip()}\n\n</details>\n\n"


def hide_folded(prose, cells):
    """Each cell, and whether it stands in a folded block."""
    hidden = {include[3] for block in FOLDED.finditer(prose) for include in INCLUDE.finditer(block[2])}
    return [(cell, cell.name in hidden) for cell in cells]


def notebook_cells(page, cells, link):
    cells, prose, texts = iter(cells), [], 0
    for line in [*quote_admonitions(page.splitlines()), None]:
        if line is None or INCLUDE.fullmatch(line):
            text = EMPTY_ENDS.sub("", "\n".join(prose))
            if text:
                yield text_cell(f"text_{texts}", text, link)
                texts += 1
            prose = []
            if line is not None:
                yield code_cell(*next(cells))
        else:
            prose.append(line)


def quote_admonitions(lines):
    """Admonitions, and folded blocks with cells, as quotes, which every notebook viewer shows."""
    inside = blank = False
    for line in lines:
        if not line.strip():
            blank = True
            continue
        inside = inside and line.startswith("    ")
        if blank:
            yield ">" if inside else ""
        opening = ADMONITION.fullmatch(line)
        if opening:
            yield f"> **{opening[2] or opening[1].capitalize()}**"
        elif INCLUDE.fullmatch(line):
            yield line
        else:
            yield f"> {line[4:]}" if inside else line
        inside, blank = inside or bool(opening), bool(opening)


def text_cell(name, text, link):
    text = EXPLORER.sub(r"\1", HEADING.sub(r'\1 <a id="\2"></a>', text))
    text = LINK.sub(lambda match: f"{match[1]}{link(match[2])}{match[3]}", text)
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}


def code_cell(cell, hidden):
    outputs = [{"name": "stdout", "output_type": "stream", "text": cell.output}] if cell.output else []
    # A cell that needs a device fails elsewhere, and the notebook runs on.
    needing = {"tags": ["raises-exception"]} if cell.needs else {}
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": cell.name,
        "metadata": needing | ({"jupyter": {"source_hidden": True}} if hidden else {}),
        "outputs": outputs,
        "source": cell.code.rstrip("\n"),
    }


def with_links(made, link):
    """A notebook whose relative links have become what `link` says."""
    cells = [
        text_cell(cell["id"], text_of(cell["source"]), link) if cell["cell_type"] == "markdown" else cell
        for cell in made["cells"]
    ]
    return made | {"cells": cells}


def with_sentences(made, said):
    """A notebook with a text below each cell of which `said`, by the names of cells, says where it ran."""
    cells = []
    for cell in made["cells"]:
        cells.append(cell)
        if cell["id"] in said:
            cells.append(text_cell(f"ran_on_{cell['id']}", said[cell["id"]], str))
    return made | {"cells": cells}


def dump(made):
    """A notebook as the text of its file."""
    return json.dumps(made, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def load(path):
    """The notebook of a file; `SourceError` where it is none that `nox -s labs` writes."""
    try:
        made = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}:{error.lineno}: not a notebook ({error.msg}); write it anew: nox -s labs") from None
    if not isinstance(made, dict) or "cells" not in made:
        raise SourceError(f"{path}:1: not a notebook (it has no cells); write it anew: nox -s labs")
    for cell in made["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] != "stream" and SVG not in output.get("data", {}):
                raise SourceError(f"{path}: {cell['id']!r} shows neither a print nor a figure; mend its cell")
    return made


def noted(made):
    """What a lab notes of its cells that measure, by their names: where and when their figures were drawn."""
    outputs = [(cell["id"], output) for cell in made["cells"] for output in cell.get("outputs", [])]
    return {name: output["metadata"]["measured"] for name, output in outputs if output.get("metadata")}


def with_places(text):
    """The Markdown of the page of a lab, in it a place for each figure."""
    return ALTERNATIVE.sub(f"{PLACE}\n\n", text)


def is_figure(output):
    return output["output_type"] != "stream"


def svg(output):
    """The figure that an output holds."""
    picture = text_of(output["data"][SVG])
    return picture[picture.index("<svg") :].rstrip()


def text_of(source):
    """A notebook keeps a text whole or as a list of lines."""
    return source if isinstance(source, str) else "".join(source)
