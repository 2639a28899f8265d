"""Run programs on an accelerator, so that they print what the CPU prints."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from tools.cells.execute import Run, attempt
from tools.cells.randomness import draw_on_the_cpu
from tools.cells.source import DEVICES, Cell


def kind_of(device: str) -> str:
    """The kind of a device: cuda for cuda:0."""
    return device.partition(":")[0]


class Accelerator:
    """A device that is there. All programs share this process: each alone would take seconds to set the device up."""

    def __init__(self, device: str) -> None:
        """`ValueError` where the device is not there, since nothing may pass unseen."""
        if kind_of(device) not in DEVICES:
            raise ValueError(f"give one of cpu, {', '.join(DEVICES)}")
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"torch {torch.__version__} says: {error}") from None
        self.device = device
        self.make_ready()

    def make_ready(self) -> None:
        """Make it the default device, which draws what the CPU draws."""
        torch.set_default_device(self.device)
        torch.backends.cudnn.enabled = False  # it rounds to TF32 and draws dropout masks of its own
        self.random_kernels: torch.library.Library | None = draw_on_the_cpu(kind_of(self.device))

    @contextlib.contextmanager
    def as_readers_have_it(self) -> Iterator[None]:
        """Torch as it comes: no default device, with cuDNN, and with random kernels of its own."""
        self.random_kernels = None
        torch.backends.cudnn.enabled = True
        torch.set_default_device(None)
        try:
            yield
        finally:
            self.make_ready()

    def run(self, path: Path, cells: list[Cell], elsewhere: bool = False) -> Run:
        """Run cells; a program whose last one needs this device, as a reader runs it. `SourceError` for what fails.

        `elsewhere` starts from another random state.
        """
        seed = 2 if elsewhere else 1
        if cells[-1].needs:
            with self.as_readers_have_it():
                return attempt(path, cells, seed=seed)
        return attempt(path, cells, device=self.device, seed=seed)
