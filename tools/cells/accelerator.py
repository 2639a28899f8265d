"""Run programs on an accelerator, so that they print what the CPU prints.

CPU and CUDA generators are different algorithms, so here every device draws with the CPU's. The random kernels of a
device are replaced through `torch.library`: each draws into CPU tensors of the same strides, since the order of the
draws depends on them, and moves the result. (A `TorchDispatchMode` would break flex_attention and torch.compile.)
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tools.cells.execute import Run, attempt
from tools.cells.source import DEVICES, Cell

# The operators that draw random numbers in a kernel of their own; rand, randn_like and nn.init end in these. A test
# compares them with what torch says of itself.
DRAWING = """
    _sample_dirichlet _standard_gamma bernoulli.out bernoulli_.Tensor bernoulli_.float binomial cauchy_ exponential_
    geometric_ log_normal_ multinomial multinomial.out normal.Tensor_Tensor normal.Tensor_Tensor_out normal.Tensor_float
    normal.Tensor_float_out normal.float_Tensor normal.float_Tensor_out normal_ poisson random_ random_.from random_.to
    randperm.generator_out rrelu_with_noise rrelu_with_noise.out rrelu_with_noise_ uniform_
"""


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


# -- random numbers ---------------------------------------------------------------------------------


def on_the_cpu(name: str) -> Callable[..., torch.Tensor]:
    """A kernel that runs an operator on CPU copies of its arguments and moves the result to their device."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    returned = 0 if packet.endswith("_") else "out" if overload.endswith("out") else None
    written = {returned, 1} if packet.startswith("rrelu") else {returned}  # its second argument is its noise

    def kernel(*args: Any, **kwargs: Any) -> torch.Tensor:
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        tensors = {key: value for key, value in given.items() if isinstance(value, torch.Tensor)}
        copies = {key: cpu_twin(value) if key in written else value.cpu() for key, value in tensors.items()}
        given |= copies
        result = operator(*(given[key] for key in range(len(args))), **{key: given[key] for key in kwargs})
        for key in written & tensors.keys():
            tensors[key].copy_(copies[key])
        return tensors[returned] if returned is not None else result.to(next(iter(tensors.values())).device)

    return kernel


def cpu_twin(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor with the values and the strides of `tensor`."""
    twin = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return twin.copy_(tensor)


def native_dropout(inputs: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Accelerators fuse dropout into this operator; draw its mask as the CPU's unfused dropout does."""
    if train is False:
        return inputs.clone(), torch.ones_like(inputs, dtype=torch.bool)
    keep = torch.empty_like(inputs, device="cpu").bernoulli_(1 - p)
    return inputs * (keep / (1 - p)).to(inputs.device), keep.bool().to(inputs.device)


def draw_on_the_cpu(device_type: str) -> torch.library.Library:
    """Replace the random kernels of a device, for as long as the returned library is kept."""
    key = DEVICES[device_type]
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings(action="ignore"):  # PyTorch says that its own kernels are being replaced
        for name in DRAWING.split():
            library.impl(name, on_the_cpu(name), key)
        library.impl("native_dropout", native_dropout, key)
    return library
