"""What the tests of pages share: a page's own code, whole or with a bug put in, and the properties of attention.

A property is written once, for any callable, and raises where it does not hold. It is tried on 40 drawn cases, the same
ones in every run.
"""

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tools.cells.compare import forget_device
from tools.cells.execute import run
from tools.cells.source import program_cells, read_cells

ROOT = Path(__file__).parents[2]
SHAPE_COMMENT = re.compile(r"  # \(.*\)$", re.MULTILINE)
INPUTS = re.compile("^inputs *=", re.MULTILINE)
EXAMPLES = settings(
    max_examples=40, derandomize=True, database=None, deadline=None, report_multiple_bugs=False, phases=[Phase.generate]
)
CAUGHT = (AssertionError, RuntimeError, TypeError, ValueError)  # it does not hold, or the code cannot run at all

# -- the page's own code -------------------------------------------------------------------------


def run_cell(slug, cell, bug=None, tokens=None):
    """Run the program of a cell on the default device (`--device`): everything it defines, and what it prints.

    `bug` is (cell, {old text: new text}): texts that stand in that cell once, and what stands there instead. `tokens`
    replaces the shared `inputs`. Shape comments are left out: they are true for the sizes of the page only, and a
    property has to catch a bug without them.
    """
    path = ROOT / "snippets" / f"{slug}.md"
    cells = read_cells(path)
    wanted = next(found for found in cells if found.name == cell)
    parts = [replace(part, code=SHAPE_COMMENT.sub("", part.code)) for part in program_cells(cells, wanted)]
    if bug:
        parts = with_bug(parts, *bug)
    if tokens is not None:
        parts = [with_tokens(part, tokens) if INPUTS.search(part.code) else part for part in parts]
    device = torch.get_default_device()
    result = run(path, parts, str(device))
    return SimpleNamespace(**result.namespace), forget_device(result.outputs[cell].getvalue(), device.type)


def page_code(slug, cell, bug=None, tokens=None):
    """The names that the program of a cell defines, as attributes."""
    return run_cell(slug, cell, bug, tokens)[0]


def with_bug(parts, cell, replacements):
    """The cells of a program, texts in one of them replaced; each must stand there once."""
    code = next(part.code for part in parts if part.name == cell)
    for old, new in replacements.items():
        if code.count(old) != 1:
            raise LookupError(f"{old!r} stands {code.count(old)} times in the cell {cell!r}")
        code = code.replace(old, new)
    return [replace(part, code=code) if part.name == cell else part for part in parts]


def with_tokens(part, tokens):
    """A shared cell whose `inputs` are others."""
    values = f"inputs = torch.tensor({tokens.tolist()}, dtype={tokens.dtype})\nT, E = inputs.shape\n"
    return replace(part, code=part.code + values)


def verdict(check, candidate):
    """What the check of an exercise prints about an answer."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        check(candidate)
    return printed.getvalue()


def is_rejection(printed):
    """Whether a check printed one line, written by a person, that starts with "not yet:"."""
    return re.fullmatch(r"not yet: \S[^\n]*\n", printed) is not None


def languages(slug):
    """The languages that have a page."""
    return sorted(page.relative_to(ROOT / "docs").parts[0] for page in ROOT.glob(f"docs/*/{slug}.md"))


# -- drawn cases ---------------------------------------------------------------------------------


def sizes(**largest: int | tuple[int, int]) -> st.SearchStrategy[SimpleNamespace]:
    """Draw a size between 1 and its bound, or within its (lowest, highest), for each name, and a seed."""
    bounds = {name: bound if isinstance(bound, tuple) else (1, bound) for name, bound in largest.items()}
    drawn = {name: st.integers(*bound) for name, bound in bounds.items()}
    return st.fixed_dictionaries({**drawn, "seed": st.integers(0, 10**6)}).map(seeded)


def seeded(drawn):
    """The drawn sizes as attributes, and `randn`, which draws float64 tensors from the drawn seed."""
    generator = torch.Generator().manual_seed(drawn["seed"])
    return SimpleNamespace(**drawn, randn=lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64))


def seed_modules(seed: int) -> None:
    """What `torch.manual_seed` does to the CPU; it seeds accelerators too, which takes longer than a whole case."""
    torch.default_generator.manual_seed(seed)


def for_all(cases, prove):
    """Call `prove` on drawn cases."""

    @EXAMPLES
    @given(cases)
    def proof(case):
        prove(case)

    proof()


def close(ours, theirs, tolerance=1e-12):
    """Equal but for the rounding of float64; nan equals nothing."""
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


# -- the properties: `cases` draws a case, and each callable takes a case --------------------------


def equals_reference(ours, reference, cases):
    """Ours gives what an independent reference gives."""
    for_all(cases, lambda case: close(ours(case), reference(case)))


def gradients_equal(ours, reference, leaves, cases):
    """Each of `leaves(case)`, inputs and parameters, gets from ours the gradient that the reference gives it."""

    def prove(case):
        tensors = [tensor.requires_grad_() for tensor in leaves(case)]
        sums = [compute(case).sin().sum() for compute in (ours, reference)]
        for mine, theirs in zip(*(torch.autograd.grad(total, tensors, materialize_grads=True) for total in sums)):
            close(mine, theirs, 1e-9)

    for_all(cases, prove)


def padded_equals_alone(padded, alone, cases):
    """Item b of a padded batch, `padded(case)[b]`, gives what it gives without its padding, `alone(case, b)`."""

    def prove(case):
        for item, rows in enumerate(padded(case)):
            close(rows, alone(case, item))

    for_all(cases, prove)


def reaches_exactly(function, cases):
    """A row moves with a token exactly where it may: the support of the Jacobian equals the mask, both ways.

    `function(case)` gives a callable from tokens to rows, the tokens, and the mask (rows, tokens), True = may.
    """

    def prove(case):
        attend, tokens, allowed = function(case)
        moves = torch.autograd.functional.jacobian(attend, tokens).abs().amax(dim=(1, 3)) > 1e-13
        assert torch.equal(moves, allowed), f"moves\n{moves}\nmay move\n{allowed}"

    for_all(cases, prove)


def stateless(function, cases):
    """A call changes neither its arguments, nor the module behind it, nor the next call.

    `function(case)` gives a callable, the arguments of a first call, and those of another call in between.
    """

    def prove(case):
        attend, first, between = function(case)
        held = [*first, *between, *tensors_of(attend)]
        copies = [tensor.clone() for tensor in held]
        before = as_tuple(attend(*first))
        attend(*between)
        assert all(map(torch.equal, as_tuple(attend(*first)), before))
        assert all(map(torch.equal, held, copies))

    for_all(cases, prove)


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def tensors_of(attend):
    """The parameters and buffers of a module; nothing for a function."""
    return [*attend.parameters(), *attend.buffers()] if isinstance(attend, torch.nn.Module) else []


def finite_rows(attend, cases):
    """No row is nan or infinite, however large the scores, visible or hidden, as long as one key is visible."""

    def prove(case):
        assert attend(case).isfinite().all()

    for_all(cases, prove)


def catches(holds, *code):
    """Whether a property finds fault with some code."""
    try:
        holds(*code)
    except CAUGHT:
        return True
    return False


class Operators(TorchDispatchMode):
    """Notes the names of the operators that run inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.add(operator.overloadpacket.__name__)
        return operator(*args, **(kwargs or {}))


def operators_of(call):
    """The names of the operators that a call runs."""
    with Operators() as seen:
        call()
    return seen.names
