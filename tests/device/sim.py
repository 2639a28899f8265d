"""A pretend accelerator in pure Python, to test `--device` on machines without one (`--device sim`).

Its tensors say `device='sim:0'`, are refused beside CPU tensors, and take the code paths of CUDA where PyTorch asks
whether a device is an accelerator: fused dropout, the suffix when printing, kernels of the backend. Each wraps a hidden
CPU tensor on which its kernels run. Its random kernels draw from a generator of their own, as CUDA's do, so a number
that is not drawn by `tools/cells/accelerator.py` differs.

It rests on `_setup_privateuseone_for_python_backend` of torch 2.13. It does not pretend fused RNN cells (they exist in
C++ only), FlexAttention, asynchronous execution, or operators that change a shape in place: torch has one inside of
`vector @ matrix`.
"""

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

SEEDED = torch.Tag.nondeterministic_seeded
COPIES = {"_to_copy", "copy_", "_copy_from"}
ALLOCATIONS = {"empty.memory_format", "empty_strided", "tril_indices", "triu_indices"}
SEQUENCES = {"arange", "arange.start", "arange.start_step", "eye", "eye.m", "linspace", "logspace"}
generator = torch.Generator().manual_seed(0xD1CE)


class Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def get_rng_state(self, device=None):
        return generator.get_state()

    def set_rng_state(self, state, device=None):
        generator.set_state(state)


_setup_privateuseone_for_python_backend("sim", Backend())
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)


class SimTensor(torch.Tensor):
    """A tensor on the pretend accelerator; `hidden` is the CPU tensor that holds its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, hidden):
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            hidden.size(),
            strides=hidden.stride(),
            storage_offset=hidden.storage_offset(),
            dtype=hidden.dtype,
            device="sim:0",
        )
        tensor.hidden = hidden
        return tensor

    @property
    def data(self):
        return super().data

    @data.setter
    def data(self, other):  # so `module.double()` converts its parameters
        torch._C.TensorBase.data.__set__(self, other)
        self.hidden = other.hidden

    def tolist(self):
        return self.hidden.tolist()

    def untyped_storage(self):
        return self.hidden.untyped_storage()

    def __format__(self, spec):
        return format(self.hidden, spec)

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if operator._opname not in COPIES:
            refuse_cpu_tensors(operator, tree_leaves((args, kwargs)))
        if operator._opname == "copy_":
            return copy(*args, **kwargs)
        if SEEDED in operator.tags:  # composite operators must reach the leaf whose kernel may be replaced
            return operator.redispatch(KEYS, *args, **kwargs)
        return run_hidden(operator, *args, **kwargs)


SimTensor.__name__ = "tensor"  # the word that a printed tensor begins with


def refuse_cpu_tensors(operator, values):
    for value in values:
        if type(value) is torch.Tensor and value.dim() and not value.is_meta:
            raise RuntimeError(
                f"Expected all tensors on one device, but {operator} found some on sim:0 and some on cpu"
            )


def hidden(value):
    return value.hidden if isinstance(value, SimTensor) else value


def copy(target, source, non_blocking=False):
    hidden(target).copy_(hidden(source))
    return target


def run_hidden(operator, *args, **kwargs):
    """Run an operator on the hidden tensors; wrap what it returns."""
    if operator._opname == "_fused_sdp_choice":
        return torch.nn.attention.SDPBackend.MATH.value
    elsewhere = kwargs.get("device") is not None and torch.device(kwargs["device"]).type != "sim"
    if "device" in kwargs and not elsewhere:
        kwargs = kwargs | {"device": torch.device("cpu")}
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, SimTensor)]
    args, kwargs = tree_map_only(SimTensor, hidden, (args, kwargs))
    if SEEDED in operator.tags:
        if operator._opname == "native_dropout":
            return tuple(map(SimTensor, own_dropout(*args)))
        args, kwargs = with_own_generator(operator, args, kwargs)
    result = operator(*args, **kwargs)
    if elsewhere:
        return tree_map_only(torch.Tensor, torch.clone, result)
    known = {id(tensor.hidden): tensor for tensor in tensors}  # an in-place operator returns its argument
    return tree_map_only(torch.Tensor, lambda t: known[id(t)] if id(t) in known else SimTensor(t), result)


def own_dropout(inputs, p, train):
    keep = torch.empty_like(inputs).bernoulli_(1 - p, generator=generator) if train else torch.ones_like(inputs)
    return inputs * keep / (1 - p if train else 1), keep.bool()


def with_own_generator(operator, args, kwargs):
    args, kwargs = tree_map_only(torch.Generator, lambda _: generator, (args, kwargs))
    takes_one = any(argument.name == "generator" for argument in operator._schema.arguments)
    if takes_one and generator not in args and kwargs.get("generator") is None:
        kwargs = kwargs | {"generator": generator}
    return args, kwargs


def register(name):
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    if operator is not None and (SEEDED in operator.tags or name in ALLOCATIONS | SEQUENCES):
        library.impl(name, lambda *args, **kwargs: run_hidden(operator, *args, **kwargs), "PrivateUse1")


library = torch.library.Library("aten", "IMPL")
registrations = torch._C._dispatch_get_registrations_for_dispatch_key("CPU")
for name in {name.removeprefix("aten::") for name in registrations if name.startswith("aten::")} | SEQUENCES:
    register(name)
library.impl("_copy_from", lambda source, target, non_blocking=False: copy(target, source), "PrivateUse1")
