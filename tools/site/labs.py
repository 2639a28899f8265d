"""The page of a lab: mkdocs-jupyter draws the figures of its notebook, all else is drawn as on every other page.

nbconvert's text would cost readers boxes, folds around cells, formulas without a script, the ids of headings and links
that were checked; so the text is that of the Markdown beside the notebook.
"""

import html
import re
from base64 import b64decode
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs_jupyter.config import settings

settings.templates_dir = str(Path(__file__).parent / "notebook")  # its own put 600 KB of styles and scripts on a page

FIGURE = re.compile(r'<img [^>]*src="data:image/svg\+xml;base64,([^"]+)"')


def figures(drawn: str) -> list[str]:
    """The figures in what mkdocs-jupyter drew, as SVG that can take the page's ink."""
    return [b64decode(html.unescape(found)).decode() for found in FIGURE.findall(drawn)]


def text(page: Page, config: MkDocsConfig, files: Files) -> str:
    """The Markdown of a page as HTML, whose headings and links MkDocs then knows, as it does those of other pages."""
    Page.render(page, config, files)
    return page.content
