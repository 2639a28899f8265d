import pytest
import torch

from tests.pages.exercise import Exercise


def pytest_generate_tests(metafunc):
    """`right`, `wrong`: each answer to an exercise."""
    if metafunc.cls and issubclass(metafunc.cls, Exercise):
        for name in {"right", "wrong"} & set(metafunc.fixturenames):
            metafunc.parametrize(name, getattr(metafunc.cls, name.upper()))


@pytest.fixture
def on_the_cpu():
    """What a test says of the CPU alone, it says there whatever `--device` is."""
    device = torch.get_default_device()
    torch.set_default_device(None)
    yield
    torch.set_default_device(None if device.type == "cpu" else device)
