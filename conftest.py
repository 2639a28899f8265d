import importlib

import pytest

pytest_plugins = ["tools.cells.plugin"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Give torch the pretend accelerator before the runner asks for it."""
    if config.option.device == "sim":
        importlib.import_module("tests.device.sim")
