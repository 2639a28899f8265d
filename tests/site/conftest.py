import pytest

from tests.browser import site


@pytest.fixture
def project(tmp_path):
    """A copy of what the site is built from, to spoil."""
    return site.copy_project(tmp_path / "project")
