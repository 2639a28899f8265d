"""Compare what a page shows with what its code prints: text exactly, decimals to one unit of their last digit."""

import difflib
import math
import re

EXPONENT = r"e(?:\+|-(?!0+\b))\d{2,}"
DECIMAL = rf"\d+\.\d*(?:{EXPONENT})?|\d+{EXPONENT}"
NUMBER = re.compile(rf"[ \t]*((?:(?<![\w.])[-+]?|(?<=[\d.])[-+](?=[^ ]*j))(?:{DECIMAL}|\d+|inf|nan))(?=j?(?!\w|\.\d))")
RELATIVE = 1.3e-6  # the float32 tolerance of torch.testing.assert_close
REPR_DECIMALS = 7  # from here on, Python's repr of a float decides how many digits there are


def same(expected: str, got: str) -> bool:
    """Whether two prints agree.

    Text, brackets, line breaks, integers, signs, nan and inf must be equal. A decimal may differ by one unit of its
    last printed digit plus 1.3e-6 of itself, in scientific notation, too: a number that is only the rounding of larger
    ones differs from machine to machine. Spaces that pad a number do not count.
    """
    if NUMBER.sub("#", expected) != NUMBER.sub("#", got):
        return False
    return all(e == g or close(e, g) for e, g in zip(NUMBER.findall(expected), NUMBER.findall(got)))


def close(expected: str, got: str) -> bool:
    """Whether two printed decimals are one number, rounded."""
    e, g = float(expected), float(got)
    if not (math.isfinite(e) and math.isfinite(g) and alike(expected, got)):
        return False
    unit = min(filter(None, (last_digit(expected), last_digit(got))), default=0.0)
    return bool(unit) and abs(e - g) <= 1.001 * unit + RELATIVE * abs(e)


def alike(expected: str, got: str) -> bool:
    """Whether two decimals are written in the same way, so that a lost digit does not pass as rounding.

    PyTorch prints `1.` where all numbers of a tensor are whole, and picks scientific notation for a whole tensor.
    """
    if not all("." in number or "e" in number for number in (expected, got)):
        return False
    if ("e" in expected) != ("e" in got):
        return True
    e, g = decimals(expected), decimals(got)
    whole = 0 in (e, g) and "e" not in expected
    return e == g or whole or min(e, g) >= REPR_DECIMALS


def decimals(number: str) -> int:
    """How many digits of a number stand behind its point."""
    return len(number.partition("e")[0].partition(".")[2])


def last_digit(number: str) -> float:
    """The size of the last printed digit: 0.0001 for `0.2500`, 1e-09 for `1.2345e-05`, 0 for the whole `3.`"""
    exponent = number.partition("e")[2]
    return 10.0 ** (int(exponent or 0) - decimals(number)) if exponent or decimals(number) else 0.0


def forget_device(text: str, kind: str) -> str:
    """A print without `device='cuda:0'`, which an accelerator adds, and without the line breaks that this moves."""
    text = re.sub(rf",\s+device='{kind}(?::\d+)?'", "", text)
    return re.sub(r",\s+(?=(?:dtype|size|requires_grad|grad_fn)=)", ", ", text)


def difference(expected: str, got: str) -> tuple[str, int]:
    """A diff in which lines that agree count as equal, and the index of the first line that does not."""
    old, new = expected.splitlines(), got.splitlines()
    new = [e if same(e, g) else g for e, g in zip(old, new)] + new[len(old) :]
    first = next((i for i, (e, g) in enumerate(zip(old, new)) if e != g), min(len(old), len(new)))
    return "\n".join(line.rstrip("\n") for line in difflib.ndiff(old, new)), first
