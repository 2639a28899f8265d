"""What a page shows against what its code prints: which differences are rounding, and which are wrong numbers."""

import re

import pytest

from tools.cells.compare import difference, forget_device, same

TENSOR = "tensor([[ 0.1234, -0.5000],\n        [ 1.0000,  0.0000]])"

ROUNDING = [
    (TENSOR, TENSOR.replace("0.1234", "0.1235")),
    (TENSOR, TENSOR.replace(" 0.0000]", "-0.0000]")),
    ("tensor([1., 0.])", "tensor([1.0000, 0.0000])"),
    ("tensor([9.9999, 1.0000])", "tensor([10.0000,  1.0000])"),
    ("tensor([1.2345e-05, 1.0000e+00])", "tensor([1.2346e-05, 1.0000e+00])"),
    ("tensor([0.5403+0.8415j])", "tensor([0.5403+0.8416j])"),
    ("tensor([ 0.1000, -0.2000,\n         0.3000])", "tensor([0.1000, -0.2000,\n        0.3000])"),
    ("0.30000001192092896", "0.3000000417232513"),
    ("loss 0.6931 at step 3", "loss 0.6932 at step 3"),
    ("50.0%", "50.1%"),
]

WRONG = [
    (TENSOR, TENSOR.replace("0.1234", "0.1236")),
    (TENSOR, TENSOR.replace("-0.5000", " 0.5000")),
    (TENSOR, TENSOR.replace("],\n        [", ",\n         ")),
    (TENSOR, TENSOR.replace("],\n        [", "], [")),
    (TENSOR, TENSOR.replace("tensor(", "")),
    ("tensor([0., 1., 4095.])", "tensor([0., 2., 4095.])"),
    ("torch.Size([2, 3])", "torch.Size([2, 4])"),
    ("tensor([inf])", "tensor([-inf])"),
    ("tensor([nan, 1.0000])", "tensor([1.0000, nan])"),
    ("tensor([0.1000, 0.2000])", "tensor([0.1000, 0.2000, 0.3000])"),
    ("tensor([0.1000, 0.2000])", "tensor([[0.1000, 0.2000]])"),
    ("tensor([1.2345e-05])", "tensor([1.2347e-05])"),
    ("tensor([ 1.4799e+00, -1.2085e-04])", "tensor([ 1.4799e+00, -1.2049e-04])"),
    ("20.0 tensor([1.0000e+00, 2.0612e-09])", "20.0 tensor([1.0000e+00, 2.0612e-07])"),
    ("20.0 tensor([1.0000e+00, 2.0612e-09])", "20.0 tensor([ 1.0000e+00, -2.0612e-09])"),
    ("tensor([0.1], dtype=torch.float64)", "tensor([0.1])"),
    ("-0.0001", "0.0001"),
    ("1e-05", "3e-05"),
    ("True", "False"),
    ("version 2.13.0", "version 2.13.1"),
    ("layer2.weight", "layer3.weight"),
    ("a\nb", "a\nb\nc"),
    (" 1.00\n 9.50\n", " 1.00\n10.50\n"),
    ("T = 64: error 1.2e-07", "T = 64: error -8.3e-05"),
    ("step 5000 loss 0.1234", "step 5000 loss 0.1298"),
    ("tensor([999.0000, 0.0006])", "tensor([999.0000, -0.0006])"),
    ("0.0000", "00000"),
]


@pytest.mark.parametrize(("expected", "got"), ROUNDING)
def test_rounding_passes(expected, got):
    assert same(expected, got)


@pytest.mark.parametrize(("expected", "got"), WRONG)
def test_a_wrong_print_fails(expected, got):
    assert not same(expected, got)
    assert not same(got, expected)


PRINTS = [
    TENSOR,
    "tensor([1.2345e-05, 1.0000e+00])",
    "tensor([[0., 1.], [10., 100.]])",
    "tensor([0.1500, 0.0100, 200.0000])",
    "torch.Size([2, 10])",
    "max difference 1.2e-07 in 12 steps",
    "tensor([0.5403+0.8415j])",
]


@pytest.mark.parametrize("text", PRINTS)
def test_no_digit_can_be_deleted_and_no_sign_turned(text):
    """Also where the value stays, as in 0.1500 and 0.150: who types an output by hand loses digits in this way."""
    for sign in re.finditer(r"\d|[-+](?=\d)", text):
        other = text[: sign.start()] + {"-": "+", "+": "-"}.get(sign[0], "") + text[sign.end() :]
        assert not same(other, text), other


def test_only_the_device_is_forgiven_on_a_device():
    here = "tensor([0.1000], dtype=torch.float64)"
    there = "tensor([0.1000], device='cuda:0',\n       dtype=torch.float64)"
    assert forget_device(there, "cuda") == here
    assert not same(here, there)
    assert not same(here, forget_device(there, "sim"))
    assert not same(here, forget_device(there.replace("float64", "float32"), "cuda"))


def test_a_diff_holds_real_differences_only():
    printed = TENSOR.replace("0.1234", "0.1235").replace("1.0000", "1.0100")
    lines, first = difference(TENSOR, printed)
    assert first == 1
    assert "0.1235" not in lines
    assert "1.0100" in lines
