"""The pages need neither our hooks nor our theme: stock Material and the plugins show every cell and every figure."""

import json
import subprocess
import sys

from selectolax.lexbor import LexborHTMLParser

from tests.browser import site

BUILD = """
import json, logging, sys
from mkdocs.commands.build import build
from mkdocs.config import load_config
logging.basicConfig(level=logging.WARNING)
build(load_config("mkdocs.yml", **json.loads(sys.argv[1])))
"""
STOCK = {"strict": True, "theme": {"name": "material"}, "hooks": [], "extra_css": [], "extra_javascript": []}
STOCK |= {"validation": {"links": {"not_found": "info"}}}  # a hook publishes attention_probes.py
IS_LAB = "labs/"


def build(folder, **changes):
    """Build the site from mkdocs.yml without what is our own in it, in a process that has loaded nothing of ours."""
    settings = STOCK | {"site_dir": str(folder)} | changes
    command = [sys.executable, "-c", BUILD, json.dumps(settings)]
    done = subprocess.run(command, cwd=site.ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


def blocks(folder):
    """The blocks of code and output of a built page, and its figures."""
    html = (folder / "index.html").read_text("utf-8")
    article = LexborHTMLParser(html).css_first("article")
    return [block.text().strip("\n") for block in article.css("pre")], article.css(".jp-RenderedSVG > [src]")


def differences(page, shown):
    """What a page lacks of its cells and their outputs, in their order."""
    wanted = [part.strip("\n") for cell in page.cells for part in (cell.code, cell.output) if part]
    found = [block for block in shown if block in wanted]
    return [] if found == wanted else [(str(page), wanted, found)]


def test_every_page_shows_its_cells_and_their_outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("ONLY_LANGUAGE", "zh")
    build(tmp_path, exclude_docs=IS_LAB)
    pages = [page for page in site.PAGES_WITH_CELLS if page.language == "zh" and not page.slug.startswith(IS_LAB)]
    lacking = [lack for page in pages for lack in differences(page, blocks(tmp_path / page.slug)[0])]
    assert len(pages) > 20
    assert lacking == []


def test_every_lab_shows_its_cells_their_outputs_and_its_figures(tmp_path):
    """Without static-i18n, which makes every file anew after mkdocs-jupyter has marked the notebooks as pages.

    It would publish them as they are (github.com/ultrabug/mkdocs-static-i18n/issues/198), whatever the order of the
    plugins, since they say themselves which comes first. So the languages are three folders of one site here.
    """
    labs = [page for page in site.TURNS_WITH_CELLS if page.slug.startswith(IS_LAB)]
    nav = [f"{lab}.ipynb" for lab in labs]
    others = "\n".join(["*.md", "*.ipynb", *(f"!/{file}" for file in nav)])
    build(tmp_path, nav=nav, exclude_docs=others, plugins=[{"mkdocs-jupyter": {"ignore": ["*.md"], "cache": False}}])
    for lab in labs:
        shown, figures = blocks(tmp_path / lab.language / lab.slug)
        assert differences(lab, shown) == []
        notebook = json.loads((site.ROOT / f"docs/{lab.language}/{lab.slug}.ipynb").read_text("utf-8"))
        outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
        assert len(figures) == sum("image/svg+xml" in output.get("data", {}) for output in outputs) > 0
    assert len(labs) == 5
