"""What an author may write, however odd, is built, shown to the letter, and runs nothing."""

import json
import re

import pytest

from tests.browser import site
from tests.browser.conftest import open_tab
from tests.browser.test_search import search
from tests.cells.project import cell
from tests.configuration import text as words

TITLE = """<script>alert(1)</script></title> & "quotes" code and 🚀"""
CHAPTER = """</title><script>alert(4)</script> & "masks" """.strip()
DESCRIPTION = """</title><script>alert(2)</script> & "quotes" """.strip()
CELLS = {"markup": ('print("</code><script>alert(3)</script>")\n', "</code><script>alert(3)</script>\n")}
PAGE = f"""---
description: '{DESCRIPTION}'
---

# `<script>alert(1)</script></title>` & "quotes" `code` and 🚀

{"".join(f'--8<-- "hostile.md:{name}"{chr(10)}{chr(10)}' for name in CELLS)}
{"w" * 10000} softmax
"""


@pytest.fixture(scope="session")
def hostile(once):
    """A site with one more page in English."""
    return once("hostile", make) / "site"


def make(folder):
    project = site.copy_project(folder)
    snippet = "\n".join(cell(name, *parts) for name, parts in CELLS.items())
    for name, text in {"snippets/hostile": snippet, "docs/en/hostile": PAGE}.items():
        (project / f"{name}.md").write_text(text, encoding="utf-8")
    settings, last = (project / "mkdocs.yml").read_text("utf-8"), "      - masks/multihead-attention.md\n"
    settings = settings.replace(last, f"{last}      - hostile.md\n", 1)
    settings = settings.replace("  - Masks:\n", f"  - '{CHAPTER}':\n", 1)
    (project / "mkdocs.yml").write_text(settings, encoding="utf-8")
    site.build(project / "site", root=project, ONLY_LANGUAGE="en", REPOSITORY_URL="", SITE_ARCHIVE="all.zip")


def test_every_place_shows_the_title_to_the_letter_and_no_script_runs(hostile, chromium):
    with site.serve(hostile) as server, open_tab(chromium, server) as tab:
        opened = tab.page
        opened.on("dialog", lambda dialog: tab.faults.append(f"a script ran: {dialog.message}"))
        tab.open("hostile/")
        assert opened.title().startswith(f"{TITLE} - ")
        assert opened.locator("h1").inner_text().startswith(TITLE)
        assert TITLE in opened.locator(".md-nav--primary a").all_inner_texts()
        assert opened.locator(".md-nav--primary [open] summary").inner_text() == CHAPTER
        assert opened.locator(".place li").first.inner_text() == CHAPTER
        assert opened.locator("meta[name=description]").get_attribute("content") == DESCRIPTION
        assert opened.locator(".output").last.inner_text().strip() == CELLS["markup"][1].strip()
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
        search(opened, "quotes")
        assert TITLE in opened.locator(".search__page strong").all_inner_texts()
        tab.open("map/")
        assert CHAPTER in opened.locator("h2").all_inner_texts()
        tab.open("verified/")
        assert TITLE in opened.locator(".verified th").all_inner_texts()


def test_what_machines_read_has_the_title_and_the_cells_to_the_letter(hostile):
    listed = f"- [{TITLE}]({site.SITE_URL}hostile/index.md): {DESCRIPTION}\n"
    assert listed in (hostile / "llms.txt").read_text("utf-8")
    for path in ("llms.txt", "map/index.md"):
        assert f"\n## {CHAPTER}\n" in (hostile / path).read_text("utf-8")
    made = json.loads((hostile / "hostile/hostile.ipynb").read_text("utf-8"))
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    said = [("".join(cell["source"]) + "\n", "".join(cell["outputs"][0]["text"])) for cell in code]
    assert said == list(CELLS.values())


def test_a_site_without_a_repository_has_no_link_to_one_and_nothing_to_cite(hostile):
    for page in hostile.rglob("*.html"):
        html = page.read_text("utf-8")
        assert not re.search(r'class="facts home"|colab\.research|id="cite"', html), page


def test_a_site_links_to_its_archive_once_it_is_told_of_one(hostile, built):
    for page in ("hostile/index.html", "map/index.html"):
        assert f'<a href="{site.SITE_URL}all.zip">{words("en", "offline")}</a>' in (hostile / page).read_text("utf-8")
    assert [page for page in built.rglob("*.html") if ".zip" in page.read_text("utf-8").partition("<body>")[2]] == []
