"""One seed gives one tensor on the CPU and on the device, for everything in torch that draws random numbers.

`pytest tests/device --device sim` (or cuda). The pretend accelerator has a generator of its own, so a draw that is not
moved to the CPU's generator differs there, too.
"""

import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from torch import nn
from torch.distributions import Binomial, Dirichlet, Gamma
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from tools.cells.accelerator import DRAWING


def gradient(function):
    inputs = torch.ones(6, 6, requires_grad=True)
    function(inputs).sum().backward()
    return inputs.grad


CASES = {
    "rand": lambda: torch.rand(3, 2),
    "randn": lambda: torch.randn(3, 5),
    "randn, float64": lambda: torch.randn(40, dtype=torch.float64),
    "randn, bfloat16": lambda: torch.randn(40, dtype=torch.bfloat16).float(),
    "randint": lambda: torch.randint(0, 10, (5,)),
    "randperm": lambda: torch.randperm(20),
    "randn_like, transposed": lambda: torch.randn_like(torch.ones(30, 40).t()),
    "normal_, every other column": lambda: torch.zeros(6, 8)[:, ::2].normal_()._base,
    "trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(20, 20)),
    "xavier_uniform_": lambda: nn.init.xavier_uniform_(torch.empty(7, 5)),
    "bernoulli": lambda: torch.bernoulli(torch.full((4, 4), 0.3)),
    "bernoulli_ of a tensor": lambda: torch.empty(4, 4).bernoulli_(torch.full((4, 4), 0.3)),
    "multinomial": lambda: torch.multinomial(torch.ones(10), 5),
    "multinomial, replacement": lambda: torch.multinomial(torch.ones(2, 10), 50, replacement=True),
    "exponential_": lambda: torch.empty(9).exponential_(),
    "cauchy_": lambda: torch.empty(9).cauchy_(),
    "geometric_": lambda: torch.empty(9).geometric_(0.3),
    "log_normal_": lambda: torch.empty(9).log_normal_(),
    "poisson": lambda: torch.poisson(torch.full((9,), 3.0)),
    "normal of tensors": lambda: torch.normal(torch.zeros(9), torch.ones(9)),
    "normal of a tensor and a float": lambda: torch.normal(torch.zeros(9), 1.0),
    "a generator": lambda: torch.rand(3, generator=torch.Generator().manual_seed(5)),
    "gumbel_softmax": lambda: F.gumbel_softmax(torch.zeros(3, 4), hard=True),
    "rrelu": lambda: F.rrelu(-torch.ones(9), training=True),
    "Gamma": lambda: Gamma(torch.ones(5), torch.ones(5)).sample(),
    "Dirichlet": lambda: Dirichlet(torch.ones(5)).sample(),
    "Binomial": lambda: Binomial(10, torch.full((5,), 0.3)).sample(),
    "dropout": lambda: nn.Dropout(0.5)(torch.ones(6, 6)),
    "dropout, transposed": lambda: F.dropout(torch.ones(6, 5).t(), 0.3),
    "dropout, gradient": lambda: gradient(lambda x: F.dropout(x, 0.1)),
    "dropout, in place": lambda: F.dropout(torch.ones(6, 6), 0.5, inplace=True),
    "Dropout1d": lambda: nn.Dropout1d(0.5)(torch.ones(2, 6, 3)),
    "AlphaDropout": lambda: nn.AlphaDropout(0.5)(torch.ones(6, 6)),
    "vmap of dropout": lambda: torch.vmap(lambda x: F.dropout(x, 0.5), randomness="different")(torch.ones(3, 4)),
    "checkpoint of dropout": lambda: gradient(lambda x: checkpoint(nn.Dropout(0.5), x, use_reentrant=False)),
    "SDPA, dropout": lambda: F.scaled_dot_product_attention(*torch.rand(3, 1, 2, 4, 4), dropout_p=0.5),
    "MultiheadAttention": lambda: nn.MultiheadAttention(8, 2, dropout=0.5)(*[torch.randn(3, 1, 8)] * 3)[0],
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(torch.randn(2, 3, 8)),
    "DataLoader, shuffled": lambda: torch.cat([*DataLoader(torch.arange(10.0), batch_size=3, shuffle=True)]),
}


def drawn(case, device):
    torch.manual_seed(123)
    with torch.device(device), sdpa_kernel(SDPBackend.MATH):
        return case().detach().cpu()


@pytest.mark.parametrize("name", CASES)
def test_one_seed_gives_one_tensor(name, device):
    torch.testing.assert_close(drawn(CASES[name], "cpu"), drawn(CASES[name], device), rtol=1.3e-6, atol=1e-6)


def test_without_the_replacement_the_device_draws_its_own_numbers(device):
    """The tests above could not fail if the device drew like the CPU by itself."""
    program = f"""
        import torch
        {"import tests.device.sim" if device == "sim" else ""}
        here = torch.randn(3, 5, generator=torch.manual_seed(1))
        torch.manual_seed(1)
        print(torch.equal(here, torch.randn(3, 5, device={device!r}).cpu()))"""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


SEEDED = torch.Tag.nondeterministic_seeded
COMPOSED = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# Fused attention is switched off by `sdpa_kernel(SDPBackend.MATH)`, recurrent networks of cuDNN and MIOpen by
# `cudnn.enabled = False`; two belong to Apple's MPS, one to nested tensors, and no module calls `_fused_dropout`.
SWITCHED_OFF = ("attention", "sdp_choice", "mem_eff", "cudnn", "miopen", "_mps", "nested", "_fused_dropout")
ON_THE_CPU = set(torch._C._dispatch_get_registrations_for_dispatch_key("CPU"))


def draws(name):
    """Whether an operator carries the tag of those that draw, and is not composed of others."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    operator = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    composed = any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in COMPOSED)
    return name.startswith("aten::") and operator and SEEDED in operator.tags and not composed


def test_every_random_operator_is_replaced_or_composed_of_those_or_switched_off():
    """A CPU build of torch knows the operators of CUDA by name, and what draws carries a tag."""
    replaced = {f"aten::{name}" for name in DRAWING.split()}
    left = {name for name in torch._C._dispatch_get_all_op_names() if draws(name)}
    assert replaced < left & ON_THE_CPU, "what is replaced has a kernel on the CPU"
    left -= {"aten::native_dropout", *replaced}
    assert [name for name in left if not any(word in name for word in SWITCHED_OFF)] == []


class DrawsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        DrawsInBackward.thread = threading.get_ident()
        return torch.rand_like(gradient)


def test_the_thread_of_autograd_draws_the_same_numbers(device):
    """A device has a thread of its own for its backward pass, where a kernel in Python must run, too."""
    leaf = torch.ones(5, device=device, requires_grad=True)
    torch.manual_seed(4)
    DrawsInBackward.apply(leaf).sum().backward()
    assert DrawsInBackward.thread != threading.get_ident()
    assert torch.equal(leaf.grad.cpu(), torch.rand(5, generator=torch.Generator().manual_seed(4), device="cpu"))
