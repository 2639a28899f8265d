"""Tests of the pages: one test looks at all of them and names each fault, a sentence with file, line and fix."""

import pytest

from tests.configuration import LANGUAGES, PAGES, ROOT, SLUGS
from tools.cells.source import SourceError, read_cells


def pytest_generate_tests(metafunc):
    """`language`: each; `translation`: each but English."""
    for name, values in {"language": LANGUAGES.keys(), "translation": LANGUAGES.keys() - {"en"}}.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, sorted(values))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """A `SourceError` says all there is to say."""
    try:
        return (yield)
    except SourceError as error:
        sentence = str(error)
    pytest.fail(sentence, pytrace=False)


@pytest.fixture
def refuse():
    """Fail with these sentences, one a line, where there are any."""

    def refuse(sentences):
        if message := "\n".join(sorted(sentences)):
            pytest.fail(message, pytrace=False)

    return refuse


@pytest.fixture
def every_page(refuse):
    """Call a function with each page of the nav, and fail with what it refuses."""

    def every_page(look, pages=PAGES):
        refuse(sentence for page in pages if (sentence := refused(look, page)))

    return every_page


def refused(look, page):
    """What a function says against a page: the message of its `SourceError`, or of an assertion."""
    try:
        look(page)
    except SourceError as error:
        return str(error)
    except AssertionError as error:
        return f"{page}: {error}"


@pytest.fixture(scope="session")
def cells():
    """The cells of each snippet file of the nav, by its slug."""
    return {slug: read_cells(ROOT / f"snippets/{slug}.md") for slug in SLUGS if slug in PAGES}
