import os
import sys
from pathlib import Path

import pytest
from mkdocs.config import load_config

from tools.cells.source import read_cells
from tools.site.checks import nav_pages

ROOT = Path(os.path.relpath(Path(__file__).parents[2]))  # relative, as people name files in messages


def configuration():
    path = list(sys.path)
    try:
        return load_config(str(ROOT / "mkdocs.yml"))
    finally:
        sys.path[:] = path


CONFIG = configuration()
LANGUAGES = [language.locale for language in CONFIG.plugins["i18n"].config.languages]
PAGES = [page.rsplit(".", 1)[0] for page in nav_pages(CONFIG.nav)]
SLUGS = sorted(path.relative_to(ROOT / "snippets").with_suffix("").as_posix() for path in ROOT.glob("snippets/**/*.md"))


def pytest_generate_tests(metafunc):
    """`page`: a slug of the nav; `slug`: one with cells; `language`: each; `translation`: each but English."""
    values = {"page": PAGES, "slug": SLUGS, "language": LANGUAGES, "translation": LANGUAGES[1:]}
    for name in values.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, values[name])


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def cells(root, slug):
    return read_cells(root / f"snippets/{slug}.md")
