import pytest

from tests.configuration import LANGUAGES, PAGES, ROOT, SLUGS
from tools.cells.source import read_cells


def pytest_generate_tests(metafunc):
    """`page`: a slug of the nav; `slug`: one with cells; `language`: each; `translation`: each but English."""
    values = {"page": PAGES, "slug": SLUGS, "language": LANGUAGES, "translation": sorted(LANGUAGES.keys() - {"en"})}
    for name in values:
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, sorted(values[name]))


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def cells(root, slug):
    return read_cells(root / f"snippets/{slug}.md")
