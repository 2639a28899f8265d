"""Five numbers that two programs add: which digits of the sum depend on the order, and which on a bug."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

import torch

from tools.cells.source import read_cells
from tools.figures.pages import Numbers, run

SLUG = "practice/same-seed"
DECIMALS = {torch.bfloat16: 4, torch.float32: 8, torch.float64: 16}  # that tell one number from the next
DRAWN = "01234"
ORDERS = ["".join(order) for order in itertools.permutations(DRAWN)]
SECONDS = ["moved", "cuda", "bug"]
STATES = [("43210", "moved"), *itertools.product([DRAWN, "42130", "34102"], SECONDS)]  # the first one first

Result = tuple[str, str]  # a sum, and how far it is from that of the first program


def last_digits() -> Numbers:
    """For each second program its numbers, its sums in each dtype, and which of these each order gives."""
    seconds = {}
    for name, numbers in second_numbers().items():
        found = {order: results(numbers, order) for order in ORDERS}
        columns = [[*map(list, sorted(set(column)))] for column in zip(*found.values())]
        places = {
            order: "".join(str(column.index([*result])) for column, result in zip(columns, row))
            for order, row in found.items()
        }
        seconds[name] = {"numbers": [f"{number:.4f}" for number in numbers], "results": columns, "orders": places}
    cases = []
    for order, second in STATES:
        sums, gaps = zip(*results(second_numbers()[second], order))
        cases.append({"state": {"order": order, "second": second}, "sums": [*sums], "gaps": [*gaps]})
    first = [text for text, _ in results(second_numbers()["moved"], DRAWN)]
    dtypes = [str(dtype).removeprefix("torch.") for dtype in DECIMALS]
    return {"dtypes": dtypes, "first": first, "seconds": seconds, "cases": cases}


@functools.cache
def second_numbers() -> dict[str, list[float]]:
    """What the second program may add: the numbers that the page draws on the CPU, those of CUDA, or a mistyped one."""
    [cell] = [cell for cell in read_cells(Path(f"snippets/{SLUG}.md")) if cell.name == "streams"]
    page = run(cell.code, print=lambda *_: None)
    drawn = [round(number, 4) for number in page["on_cpu"].tolist()]
    return {"moved": drawn, "cuda": page["printed"], "bug": [*drawn[:-1], round(drawn[-1], 2)]}


def results(numbers: Sequence[float], order: str) -> list[Result]:
    """The sum in each dtype, one number after the other, and its difference from the first program's."""
    found = []
    for dtype, decimals in DECIMALS.items():
        total, first = added(numbers, order, dtype), added(second_numbers()["moved"], DRAWN, dtype)
        gap = abs(total - first)
        found.append((f"{total:.{decimals}f}", f"{gap:.0e}" if gap else "0"))
    return found


def added(numbers: Sequence[float], order: str, dtype: torch.dtype) -> float:
    """The sum of the numbers in that order."""
    terms = torch.tensor(numbers, dtype=dtype, device="cpu")
    return float(functools.reduce(torch.add, (terms[int(place)] for place in order)))
