import pytest
import torch

from tests.pages.exercise import Exercise
from tests.pages.spoil import SPOILS


def pytest_generate_tests(metafunc):
    """`right`, `wrong`: each answer to an exercise; `name`, `spoil`: each way to spoil its solution."""
    if not (metafunc.cls and issubclass(metafunc.cls, Exercise)):
        return
    exercise = metafunc.cls
    values = {"right": exercise.RIGHT, "wrong": exercise.WRONG}
    if "spoil" in metafunc.fixturenames:
        metafunc.parametrize(("name", "spoil"), SPOILS.items(), ids=SPOILS)
    for name in values.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, values[name])


@pytest.fixture
def on_the_cpu():
    """What a test says of the CPU alone, it says there whatever `--device` is."""
    device = torch.get_default_device()
    torch.set_default_device(None)
    yield
    torch.set_default_device(None if device.type == "cpu" else device)
