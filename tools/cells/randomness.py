"""Draw random numbers with the CPU's generator on every device, so that one seed prints one result everywhere.

CPU and CUDA generators are different algorithms. Here the random kernels of a device are replaced through
`torch.library`: each draws into CPU tensors of the same strides, since the order of the draws depends on them, and
moves the result. (A `TorchDispatchMode` would break flex_attention and torch.compile.)
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from tools.cells.source import DEVICES

# The operators that draw random numbers in a kernel of their own; rand, randn_like and nn.init end in these. A test
# compares them with what torch says of itself.
DRAWING = """
    _sample_dirichlet _standard_gamma bernoulli.out bernoulli_.Tensor bernoulli_.float binomial cauchy_ exponential_
    geometric_ log_normal_ multinomial multinomial.out normal.Tensor_Tensor normal.Tensor_Tensor_out normal.Tensor_float
    normal.Tensor_float_out normal.float_Tensor normal.float_Tensor_out normal_ poisson random_ random_.from random_.to
    randperm.generator_out rrelu_with_noise rrelu_with_noise.out rrelu_with_noise_ uniform_
"""


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
