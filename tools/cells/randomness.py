"""Draw random numbers with the CPU's generator on every device, so that one seed prints one result everywhere.

CPU and CUDA generators are different algorithms. Here the random kernels of a device are replaced through
`torch.library`: each draws into CPU tensors of the same strides, since the order of the draws depends on them, and
moves the result. (A `TorchDispatchMode` would break flex_attention and torch.compile.)
"""

import warnings

import torch

DISPATCH_KEYS = {"cuda": "CUDA", "mps": "MPS", "xpu": "XPU", "sim": "PrivateUse1"}


def random_operators():
    """The operators that draw random numbers in a kernel of their own; rand, randn_like and nn.init end in these."""
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CPU"):
        namespace, _, name = name.partition("::")
        packet, _, overload = name.partition(".")
        if namespace != "aten" or any(word in name for word in ("dropout", "attention", "sdp")):
            continue
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if operator is not None and torch.Tag.nondeterministic_seeded in operator.tags:
            yield operator


def on_the_cpu(operator):
    """A kernel that runs `operator` on CPU copies of its arguments and moves the result to their device."""
    arguments = [argument.name for argument in operator._schema.arguments]
    written = [a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.is_write]
    in_place = operator._schema.returns[0].alias_info is not None

    def kernel(*args, **kwargs):
        given = dict(zip(arguments, args)) | kwargs
        tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        copies = {name: tensor.cpu() for name, tensor in tensors.items()}
        for name in written:
            copies[name] = cpu_twin(tensors[name])
        result = operator(**given | copies)
        for name in written:
            tensors[name].copy_(copies[name])
        return tensors[written[0]] if in_place else result.to(next(iter(tensors.values())).device)

    return kernel


def cpu_twin(tensor):
    """A CPU tensor with the values and the strides of `tensor`."""
    twin = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return twin.copy_(tensor)


def native_dropout(inputs, p, train):
    """Accelerators fuse dropout into this operator; draw its mask as the CPU's unfused dropout does."""
    if train is False:
        return inputs.clone(), torch.ones_like(inputs, dtype=torch.bool)
    keep = torch.empty_like(inputs, device="cpu").bernoulli_(1 - p)
    return inputs * (keep / (1 - p)).to(inputs.device), keep.bool().to(inputs.device)


def draw_on_the_cpu(device_type):
    """Replace the random kernels of a device; keep the returned library, which owns the replacements."""
    key = DISPATCH_KEYS[device_type]
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings(action="ignore"):  # PyTorch says that its own kernels are being replaced
        for operator in random_operators():
            library.impl(operator._name.removeprefix("aten::"), on_the_cpu(operator), key)
        library.impl("native_dropout", native_dropout, key)
    return library
