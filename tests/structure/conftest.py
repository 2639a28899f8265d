import pytest

from tests.configuration import LANGUAGES, PAGES, ROOT, SLUGS
from tools.cells.source import SourceError, read_cells


def pytest_generate_tests(metafunc):
    """`page`: a slug of the nav; `slug`: one with cells; `language`: each; `translation`: each but English."""
    translations = LANGUAGES.keys() - {"en"}
    values = {"page": PAGES, "slug": {*SLUGS} & {*PAGES}, "language": LANGUAGES, "translation": translations}
    for name in values:
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, sorted(values[name]))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """A `SourceError` says all there is to say."""
    try:
        return (yield)
    except SourceError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def refuse():
    """Fail with these sentences, one a line, where there are any."""

    def refuse(sentences):
        if found := sorted(sentences):
            pytest.fail("\n".join(found), pytrace=False)

    return refuse


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def cells(root, slug):
    return read_cells(root / f"snippets/{slug}.md")
