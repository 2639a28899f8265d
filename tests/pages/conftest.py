import pytest
import torch

from tests.pages import properties as p
from tests.pages.bugs import Bugs
from tests.pages.exercise import Exercise


def pytest_generate_tests(metafunc):
    """`right`, `wrong`: each answer to an exercise; `language`: each that has its page; `holds`, `bug`: of a table."""
    if metafunc.cls and issubclass(metafunc.cls, Exercise):
        exercise = metafunc.cls
        values = {"right": exercise.RIGHT, "wrong": exercise.WRONG, "language": p.languages(exercise.SLUG)}
    elif metafunc.cls and issubclass(metafunc.cls, Bugs):
        values = {"holds": metafunc.cls.PROPERTIES, "bug": metafunc.cls.BUGS}
    else:
        values = {}
    for name in values.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, values[name])


@pytest.fixture
def on_the_cpu():
    """What a test says of the CPU alone, it says there whatever `--device` is."""
    device = torch.get_default_device()
    torch.set_default_device(None)
    yield
    torch.set_default_device(None if device.type == "cpu" else device)


def pytest_configure(config):
    config.addinivalue_line("markers", "beyond_sim(reason): the pretend accelerator is known to fail this test")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if config.option.device == "sim" and (mark := item.get_closest_marker("beyond_sim")):
            item.add_marker(pytest.mark.xfail(reason=mark.args[0], strict=True))
