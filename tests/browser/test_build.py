"""The build: the same bytes each time, without torch, and a badge only while it is true."""

import json
import shutil

import pytest
from bs4 import BeautifulSoup

from tests.browser import site
from tests.configuration import text
from tools.cells.record import read_record
from tools.cells.source import digest, read_cells
from tools.site.font import lacking

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
    soup = BeautifulSoup((built / page.path / "index.html").read_text("utf-8"), "html.parser")
    return [" ".join(badge.get_text().split()) for badge in soup.select(".facts__verified")]


def test_a_second_build_without_torch_gives_the_same_bytes(built, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_TORCH)
    again = tmp_path / "site"
    site.build(again, PYTHONPATH=str(tmp_path), PYTHONHASHSEED="4")
    first, second = files(built), files(again)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_the_font_has_every_character_of_every_formula(built):
    assert lacking(built) == set(), "cut the font anew, as tools/site/font.py says"


@pytest.mark.parametrize("page", site.PAGES, ids=str)
def test_a_page_says_of_its_cells_what_the_record_says(built, page):
    cells, wanted = read_cells(page.snippets) if page.snippets.is_file() else [], []
    for record in sorted(site.ROOT.glob("verified/*.json")):
        entry = read_record(record).get(page.slug, {"cells": {}})
        verified = [cell for cell in cells if entry["cells"].get(cell.name) == digest(cells, cell)]
        if verified:
            words = text(page.language, "verified")
            facts = {"verified": len(verified), "cells": len(cells), "device": record.stem.upper()}
            wanted.append(words.format(**facts, torch=entry["torch"], date=entry["date"]))
    assert badges(built, page) == wanted


@pytest.fixture(scope="session")
def half_verified(tmp_path_factory):
    """A site whose record holds for one page, for all but one cell of another, and for nothing of a third."""
    project = site.copy_project(tmp_path_factory.mktemp("project"))
    record = {}
    for slug in ("masks/causal", "cross/cross-attention", "foundations/weighted-average"):
        cells = read_cells(project / "snippets" / f"{slug}.md")
        record[slug] = {
            "date": "2026-11-20", "device": "a test", "torch": "2.13.0", "python": "3.11.7",
            "cells": {cell.name: digest(cells, cell) for cell in cells},
        }  # fmt: skip
    changed = read_cells(project / "snippets/cross/cross-attention.md")[-1]
    record["cross/cross-attention"]["cells"][changed.name] = "0" * 64
    record["foundations/weighted-average"]["cells"] = dict.fromkeys(
        record["foundations/weighted-average"]["cells"], "0" * 64
    )
    shutil.rmtree(project / "verified")
    (project / "verified").mkdir()
    (project / "verified/cpu.json").write_text(json.dumps(record), encoding="utf-8")
    site.build(project / "site", root=project)
    return project / "site"


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_a_badge_counts_down_and_goes_when_cells_change(half_verified, language):
    counts = {slug: len(read_cells(site.Page("en", slug).snippets)) for slug in site.SLUGS if slug != "index"}
    causal, cross = counts["masks/causal"], counts["cross/cross-attention"]

    def badge(verified, cells):
        facts = {"device": "CPU", "torch": "2.13.0", "date": "2026-11-20"}
        return [text(language, "verified").format(verified=verified, cells=cells, **facts)]

    assert badges(half_verified, site.Page(language, "masks/causal")) == badge(causal, causal)
    assert badges(half_verified, site.Page(language, "cross/cross-attention")) == badge(cross - 1, cross)
    assert badges(half_verified, site.Page(language, "foundations/weighted-average")) == []
    assert badges(half_verified, site.Page(language, "index")) == []
