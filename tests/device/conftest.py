import pytest


def pytest_ignore_collect(collection_path, config):
    """On the CPU there is nothing to compare: these tests run with `--device` only."""
    return True if config.option.device == "cpu" else None


@pytest.fixture
def device(request):
    return request.config.option.device
