"""The page of a lab: mkdocs-jupyter draws the figures of its notebook, all else is drawn as on every other page.

nbconvert's text would cost readers boxes, folds around cells, formulas without a script, the ids of headings and links
that were checked; so the text is that of the Markdown beside the notebook.
"""

import html
import re
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure import files, pages
from mkdocs_jupyter.config import settings

from tools.cells.source import SourceError, split_lines
from tools.labs.notebooks import described
from tools.languages import markdown
from tools.site.body import readable

settings.templates_dir = str(Path(__file__).parent / "notebook")  # its own put 600 KB of styles and scripts on a page

PLACE = '<div class="plot"></div>'  # of a figure, which Markdown need not read
FIGURE = re.compile(r'<img [^>]*src="data:image/svg\+xml;base64,([^"]+)"')
RAN_ON = re.compile(rf'(<p class="ran-on">.*?</p>)((?:\s*{PLACE})+)')  # it stands below the figures


def with_places(page: markdown.Page) -> str:
    """The Markdown of a lab, in it a place for each figure that it describes."""
    lines = split_lines(page.text)
    for block, _ in described(page):
        lines[block.line - 1 : block.end - 1] = [PLACE, *[""] * (block.end - block.line - 1)]
    return "\n".join(lines)


def rendered(page: pages.Page, config: MkDocsConfig, all_files: files.Files) -> str:
    """The Markdown of a page as HTML, whose headings and links MkDocs then knows, as it does those of other pages."""
    pages.Page.render(page, config, all_files)
    return page.content or ""


def figures(drawn: str) -> list[str]:
    """The figures in what mkdocs-jupyter drew, as SVG that can take the page's ink."""
    return [b64decode(html.unescape(found)).decode() for found in FIGURE.findall(drawn)]


def with_figures(body: str, drawn: Sequence[str], path: Path) -> str:
    """The body of a page with its figures in their places; `SourceError` where the page in `path` has other places."""
    if body.count(PLACE) != len(drawn):
        lab = f"labs/{Path(path).stem}"
        raise SourceError(
            f"{path}: its notebook has other figures than the page; write it anew: nox -s update -- {lab}"
        )
    left = iter(drawn)
    return re.sub(PLACE, lambda place: place[0].replace("><", f">{readable(next(left))}<"), RAN_ON.sub(r"\2\1", body))
