"""Same seed, other device: the page's Philox and rounding against published and independent ones, and its tables."""

import contextlib
import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from tests.pages import properties as p
from tests.pages.bugs import Bugs
from tests.pages.exercise import Exercise

SLUG = "foundations/same-seed"
PAGE, SOLUTION = p.page_code(SLUG, "modules"), p.page_code(SLUG, "solution")

# -- generators ----------------------------------------------------------------------------------

ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [  # tests/kat_vectors of DEShawResearch/random123, the lines "philox4x32 10"
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
PRINTED = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096, 0.1183, 0.0752]
PRINTED_NEXT = [0.9722, 0.7910, 0.4690, 0.3300, 0.3345, 0.3783, 0.7640, 0.6405, 0.1103]


def gives_the_known_answers(code):
    for counter, key, words in KNOWN_ANSWERS:
        assert code.philox(counter, key) == words


def gives_what_others_print_of_cuda(code):
    """The first call after seed 0 in a test of TensorRT-LLM, and the call after it in a public example."""
    for call, printed in enumerate((PRINTED, PRINTED_NEXT)):
        ours = code.by_counter(len(printed), 0, call).tolist()
        assert [f"{number:.4f}" for number in ours] == [f"{number:.4f}" for number in printed]
    assert torch.equal(code.by_counter(3, 0), code.by_counter(3, 0, call=0))


def takes_all_64_bits_of_the_seed(code):
    for low, high in ((5, 0), (0, 5), (7, 2**31), (ONES, 1)):
        words = [code.philox((3, 0, i, 0), (low, high))[0] for i in range(4)]
        wanted = torch.tensor(words, dtype=torch.float64).add(0.5).div(2.0**32)
        p.close(code.by_counter(4, high * 2**32 + low, call=3).double(), wanted, 1e-7)


def test_the_cpu_takes_24_bits_of_the_words_of_the_mersenne_twister():
    for seed in (0, 1, 123):
        words = np.random.RandomState(seed).randint(0, 2**32, size=700, dtype=np.uint32)
        wanted = torch.from_numpy((words & (2**24 - 1)) / 2.0**24).float()
        generator = torch.Generator().manual_seed(seed)
        assert torch.equal(torch.rand(700, generator=generator, device="cpu"), wanted)
    assert np.random.RandomState(0).get_state()[1].shape == (624,)


def test_two_numbers_and_three_are_five_on_the_cpu_alone():
    generator = torch.Generator().manual_seed(0)
    parts = torch.cat([torch.rand(2, generator=generator), torch.rand(3, generator=generator)])
    assert torch.equal(parts, torch.rand(5, generator=generator.manual_seed(0)))
    assert not torch.equal(torch.cat([PAGE.by_counter(2, 0), PAGE.by_counter(3, 0, 1)]), PAGE.by_counter(5, 0))


OF_PHILOX = [gives_the_known_answers, gives_what_others_print_of_cuda, takes_all_64_bits_of_the_seed]
PHILOX_BUGS = {
    "nine rounds": ({"range(10)": "range(9)"}, OF_PHILOX[:2]),
    "words swapped": ({"return a, b, c, d": "return c, d, a, b"}, OF_PHILOX[:2]),
    "key not bumped": ({"left + 0x9E3779B9": "left"}, OF_PHILOX[:2]),
    "second key not bumped": ({"right + 0xBB67AE85": "right"}, OF_PHILOX[:2]),
    "thread in the first word": ({"(call, 0, i, 0)": "(i, 0, call, 0)"}, OF_PHILOX[1:]),
    "seed cut to 32 bits": ({"seed >> 32": "0"}, [takes_all_64_bits_of_the_seed]),
    "second word taken": ({"key)[0] for": "key)[1] for"}, OF_PHILOX[1:]),
    "31 bits": ({"(word + 0.5) / 2**32": "word % 2**31 / 2**31"}, OF_PHILOX[1:]),
}


class TestPhilox(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "philox", OF_PHILOX, PHILOX_BUGS


# -- rounding ------------------------------------------------------------------------------------


def rounded(numbers, bits):
    """To the nearest number with so many bits after the leading one, halves away from 0: by arithmetic, not by bits."""
    fraction, exponent = torch.frexp(numbers.float().double())
    whole = torch.floor(fraction.abs() * 2 ** (bits + 1) + 0.5) / 2 ** (bits + 1)
    return torch.ldexp(whole * fraction.sign(), exponent).to(numbers.dtype)


def ties(bits):
    """Numbers halfway between two neighbours, of both signs."""
    steps = torch.arange(1, 9, dtype=torch.float64) * 2 + 1
    halfway = 1 + steps * 2.0 ** -(bits + 1)
    return torch.cat([halfway, -halfway, 1024 * halfway])


def rounds_to_the_nearest(code):
    def prove(case):
        numbers = 10 * case.randn(case.T, case.E)
        for bits in (23, 16, 10, 7, 2):
            edges = ties(bits) if bits < 23 else torch.tensor([0.1, -0.1], dtype=torch.float64)
            for given in (numbers, numbers.float(), edges, edges.float()):
                ours = code.round_to(given, bits)
                assert ours.dtype == given.dtype
                assert torch.equal(ours, rounded(given, bits))

    p.for_all(p.sizes(T=5, E=4), prove)


def test_bits_are_those_of_bfloat16_and_float16():
    numbers = torch.randn(500, generator=torch.Generator().manual_seed(0))
    for dtype, bits in ((torch.bfloat16, 7), (torch.float16, 10), (torch.float32, 23)):
        assert torch.finfo(dtype).eps == 2.0**-bits
        assert torch.equal(PAGE.round_to(numbers, bits), numbers.to(dtype).float())


def attends_with_rounded_factors(code):
    def prove(case):
        tokens = case.randn(case.T, case.E)
        for bits in (23, 10, 7, 4):
            roles = rounded(tokens, bits)
            scores = torch.einsum("ie,je->ij", roles, roles)
            weights = torch.exp(scores) / torch.exp(scores).sum(dim=1, keepdim=True)
            p.close(code.attend(tokens, bits), torch.einsum("ij,je->ie", rounded(weights, bits), roles), 1e-6)

    p.for_all(p.sizes(T=6, E=4), prove)


OF_ROUNDING = [rounds_to_the_nearest, attends_with_rounded_factors]
ROUNDING_BUGS = {
    "cut off": ({" + (1 << lost >> 1)": ""}, OF_ROUNDING),
    "one bit too many": ({"23 - bits": "22 - bits"}, OF_ROUNDING),
    "dtype lost": ({".to(numbers.dtype)": ""}, [rounds_to_the_nearest]),
    "tokens not rounded": ({"tokens = round_to(inputs, bits)": "tokens = inputs"}, [attends_with_rounded_factors]),
    "weights not rounded": ({"return round_to(weights, bits)": "return weights"}, [attends_with_rounded_factors]),
    "softmax over queries": ({"dim=-1": "dim=0"}, [attends_with_rounded_factors]),
}


class TestRounding(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "rounding", OF_ROUNDING, ROUNDING_BUGS


# -- the probe -----------------------------------------------------------------------------------


def reports_the_largest_gap_in_three_dtypes(code):
    seen = []

    def first(numbers, shift):
        seen.append((numbers.dtype, shift.dtype))
        return numbers

    numbers, shift = torch.tensor([1.0, 2.0, -4.0]), torch.tensor([0.5, 2.0, -1.0])
    assert code.difference(first, lambda numbers, shift: numbers + shift, numbers, shift) == [2.0, 2.0, 2.0]
    dtypes = [torch.bfloat16, torch.float32, torch.float64]
    assert seen == [(dtype, dtype) for dtype in dtypes]
    third = code.difference(lambda numbers: numbers / 3, lambda numbers: numbers * 0 + 1 / 3, torch.ones(1))
    assert third[0] == third[1] == third[2] == 0
    shrinking = code.difference(lambda x: x / 3 * 3 - x, lambda x: x / 7 * 7 - x, torch.arange(1.0, 90.0))
    assert shrinking[0] > shrinking[1] > shrinking[2]


def roles_and_masks(case):
    roles = [case.randn(1, 1, case.T, case.D) for _ in range(3)]
    visible = case.randn(case.T, case.T) > 0
    visible[:, 0] = True
    return roles, [None, visible, case.randn(case.T, case.T), torch.zeros(case.T, case.T).double()]


def by_hand_is_sdpa(code):
    def prove(case):
        roles, masks = roles_and_masks(case)
        for mask in masks:
            for scale in (None, 0.29, 1.0):
                wanted = F.scaled_dot_product_attention(*roles, attn_mask=mask, scale=scale)
                p.close(code.by_hand(*roles, mask, scale), wanted)
        p.close(code.by_hand(*roles), F.scaled_dot_product_attention(*roles))

    p.for_all(p.sizes(T=6, D=4), prove)


def refused(code, backend, roles):
    try:
        code.fused(backend, *roles)
    except RuntimeError as error:
        return str(error).startswith("No viable backend")
    return False


def fused_asks_the_kernel_that_it_is_told(code):
    def prove(case):
        roles, masks = roles_and_masks(case)
        roles, masks = [role.cpu() for role in roles], [None, *(mask.cpu() for mask in masks[1:])]
        for mask in masks:
            for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
                ours = code.fused(backend, *roles, mask=mask)
                p.close(ours, F.scaled_dot_product_attention(*roles, attn_mask=mask))
        for backend in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            assert refused(code, backend, roles)

    p.for_all(p.sizes(T=6, D=4), prove)


OF_PROBE = [reports_the_largest_gap_in_three_dtypes, by_hand_is_sdpa, fused_asks_the_kernel_that_it_is_told]
PROBE_BUGS = {
    "sign kept": ({".abs().max()": ".max()"}, [reports_the_largest_gap_in_three_dtypes]),
    "mean of the gaps": ({".abs().max()": ".abs().mean()"}, [reports_the_largest_gap_in_three_dtypes]),
    "never float64": ({"torch.float32, torch.float64": "torch.float32"}, [reports_the_largest_gap_in_three_dtypes]),
    "inputs not converted": ({"role.to(dtype) for": "role for"}, [reports_the_largest_gap_in_three_dtypes]),
    "no scale": ({"keys.mT * scale": "keys.mT"}, [by_hand_is_sdpa]),
    "polarity inverted": ({"masked_fill(~mask": "masked_fill(mask"}, [by_hand_is_sdpa]),
    "softmax over queries": ({"dim=-1": "dim=-2"}, [by_hand_is_sdpa]),
    "float mask left out": ({"scores + mask": "scores"}, [by_hand_is_sdpa]),
    "kernel not chosen": ({"sdpa_kernel(backend)": "torch.no_grad()"}, [fused_asks_the_kernel_that_it_is_told]),
    "mask not passed": ({"attn_mask=mask)": "attn_mask=None)"}, [fused_asks_the_kernel_that_it_is_told]),
}


class TestProbe(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "difference", OF_PROBE, PROBE_BUGS


def probe_gaps(name):
    cell = p.page_code(SLUG, "probe")
    return cell.difference(cell.by_hand, cell.others[name], *cell.roles)


@pytest.mark.parametrize("name", ["math kernel", "flash kernel"])
def test_rounding_shrinks_by_about_2_to_the_29(name):
    assert torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps == 2**29
    assert f"{2**29:.0e}" == "5e+08"
    gaps = probe_gaps(name)
    assert 2**26 < gaps[1] / gaps[2] < 2**32


def test_a_bug_stays_and_hides_in_bfloat16():
    half, single, double = probe_gaps("scale 0.29")
    assert single == pytest.approx(double, rel=1e-3)
    assert f"{1 / math.sqrt(12):.4f}" == "0.2887"
    assert double < half < 1e-2
    assert all(probe_gaps(name)[0] > 1e-3 for name in ("math kernel", "flash kernel"))


def test_the_two_kernels_differ_in_the_last_bits_and_both_are_right():
    roles = torch.randn(3, 1, 1, 48, 12, generator=torch.Generator().manual_seed(0), device="cpu")
    exact = PAGE.by_hand(*roles.double())
    kernels = [PAGE.fused(backend, *roles) for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)]
    assert not torch.equal(*kernels)
    assert all((context - exact).abs().max() < 2e-6 for context in kernels)


# -- rows without keys ---------------------------------------------------------------------------

NUMBERS = torch.tensor([[0.1, 0.2], [0.5, 0.2], [0.9, 0.8]])[None, None]
HIDDEN_ROW = torch.tensor([[False] * 3, [True] * 3, [True, False, True]])


def answering(*row):
    """A call whose row 0 is this under a mask, and (0.7, 0.3) without one; its other rows are nan."""

    def attend(inputs, mask):
        context = torch.full_like(inputs, torch.nan).requires_grad_()
        first = torch.tensor([0.7, 0.3] if mask.dtype == torch.bool and mask.all() else row)
        return torch.where(torch.arange(3)[:, None] == 0, first, context)

    return attend


def refusing(inputs, mask):
    raise RuntimeError("no kernel")


ANSWERS = {
    "nan": answering(torch.nan, torch.nan),
    "0": answering(0.0, -0.0),
    "mean": answering(0.504, 0.396),
    "unmasked": answering(0.704, 0.296),
    "0.5100": answering(0.51, 0.4),
    "0.0010": answering(0.001, 0.0),
    "0.0000": answering(0.0, 0.002),
    "0.1000": answering(0.1, torch.nan),
    "refused": refusing,
}


def decides_each_word(code):
    for word, attend in ANSWERS.items():
        assert code.outcome(attend, NUMBERS, HIDDEN_ROW) == word
        assert code.outcome(attend, NUMBERS, torch.zeros(3, 3)) == word


def spells_the_mask_in_three_ways(code):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        found = dict(code.masks_of(HIDDEN_ROW, dtype))
        assert list(found) == ["boolean", "-inf", "finfo.min"]
        assert torch.equal(found["boolean"], HIDDEN_ROW)
        for name, low in (("-inf", -math.inf), ("finfo.min", torch.finfo(dtype).min)):
            assert found[name].dtype == dtype
            wanted = [[0.0 if sees else low for sees in row] for row in HIDDEN_ROW.tolist()]
            assert found[name].tolist() == wanted


OF_OUTCOME = [decides_each_word, spells_the_mask_in_three_ways]
OUTCOME_BUGS = {
    "any nan": ({"row.isnan().all()": "row.isnan().any()"}, [decides_each_word]),
    "another row": ({"mask)[..., 0, :].detach().flatten()": "mask)[..., 1, :].detach().flatten()"}, OF_OUTCOME[:1]),
    "generous": ({"atol=5e-3": "atol=5e-2"}, [decides_each_word]),
    "sum for mean": ({"inputs.mean(dim=-2)": "inputs.sum(dim=-2)"}, [decides_each_word]),
    "mean of the columns": ({"inputs.mean(dim=-2)": "inputs.mean(dim=-1)"}, [decides_each_word]),
    "nothing visible": ({"torch.ones_like(mask": "torch.zeros_like(mask"}, [decides_each_word]),
    "polarity inverted": (
        {"masked_fill(~visible, -torch.inf)": "masked_fill(visible, -torch.inf)"},
        [spells_the_mask_in_three_ways],
    ),
    "minimum of float32": ({"torch.finfo(dtype)": "torch.finfo(torch.float32)"}, [spells_the_mask_in_three_ways]),
}


class TestOutcome(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "empty-row", OF_OUTCOME, OUTCOME_BUGS


def table(code, calls):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code.empty_row("cpu", calls)
    return printed.getvalue()


def prints_a_line_per_dtype_and_mask(code):
    given = []

    def spy(inputs, mask):
        given.append((inputs, mask))
        return inputs * 0

    lines = table(code, {"spy": spy, "refusing": refusing}).splitlines()
    assert lines[0] == "mask      dtype           spy  refusing"
    kinds = ("boolean", "-inf", "finfo.min")
    dtypes = ("float32", "bfloat16", "float16")
    assert lines[1:] == [f"{kind:10}{dtype:9}         0   refused" for dtype in dtypes for kind in kinds]
    assert [str(inputs.dtype)[6:] for inputs, _ in given] == [dtype for dtype in dtypes for _ in kinds]
    for inputs, mask in given:
        assert inputs.shape == (1, 1, 16, 16)
        wanted = torch.tensor([i % 7 / 7 for i in range(256)], device="cpu").to(inputs.dtype)
        assert torch.equal(inputs.flatten(), wanted)
        hidden = ~mask if mask.dtype == torch.bool else mask < 0
        assert hidden[0].all()
        assert not hidden[1:].any()
        assert hidden.shape == (16, 16)


def the_kernels_answer_as_the_page_says(code):
    lines = [line.split() for line in table(code, code.kernels).splitlines()]
    assert lines[0][2:] == ["softmax", "math", "flash", "efficient", "cudnn"]
    for kind, dtype, *words in lines[1:]:
        low = "unmasked" if dtype == "float16" else "mean"
        wanted = ["mean", low, low] if kind == "finfo.min" else ["nan", "0", "0"]
        assert words == [*wanted, "refused", "refused"]


OF_TABLE = [prints_a_line_per_dtype_and_mask, the_kernels_answer_as_the_page_says]
TABLE_BUGS = {
    "no row hidden": ({"visible[0] = False": "visible[0] = True"}, OF_TABLE),
    "a row of its own dtype": ({"numbers.to(device, dtype)": "numbers.to(device)"}, [OF_TABLE[0]]),
    "mask not passed": ({"mask=mask": "mask=None"}, [the_kernels_answer_as_the_page_says]),
}


class TestTable(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "empty-table", OF_TABLE, TABLE_BUGS


def test_the_lowest_float16_swallows_a_score_in_float16_and_not_in_float32():
    lowest = torch.finfo(torch.float16).min
    assert (lowest, torch.finfo(torch.float16).max) == (-65504, 65504)
    inward = torch.tensor(lowest + 0.0)
    step = torch.nextafter(inward, torch.tensor(0.0)) - inward
    assert step == 1 / 256
    assert torch.tensor(lowest, dtype=torch.float16) + 3 == lowest
    assert torch.nextafter(inward.half(), torch.tensor(0.0).half()) == -65504 + 32


# -- modules -------------------------------------------------------------------------------------


def module_case(dtype=torch.float32):
    numbers = torch.randn(1, 1, 4, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    visible = torch.tensor([[True, False, False, False], [True] * 4, [False, True, True, False], [True, False] * 2])
    return numbers, visible, torch.zeros(4, 4, dtype=dtype).masked_fill(~visible, -torch.inf)


def two_heads(numbers, mask):
    heads = numbers[0].unflatten(-1, (2, 8)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask).transpose(1, 2).flatten(2)


def mha_has_identity_projections(code):
    for dtype in (torch.float32, torch.float64):
        numbers, *masks = module_case(dtype)
        for options in ((True, True), (False, True), (False, False)):
            for mask in masks:
                context = code.mha(*options)(numbers, mask)
                assert context.requires_grad == options[1]
                p.close(context.detach(), two_heads(numbers, mask), 1e-5)
                assert torch.initial_seed() == 0


def mha_takes_three_paths(code):
    numbers, visible, _ = module_case()
    visible[0] = False
    masks = visible, torch.zeros(4, 4).masked_fill(~visible, -torch.inf)
    for options, boolean, added in (
        ((True, True), "nan", "nan"),
        ((False, True), "0", "0"),
        ((False, False), "nan", "0"),
    ):
        assert [code.outcome(code.mha(*options), numbers, mask) for mask in masks] == [boolean, added]


def flex_hides_what_the_mask_hides(code):
    numbers, *masks = module_case()
    for mask in masks:
        p.close(code.flex(numbers, mask), F.scaled_dot_product_attention(*[numbers] * 3, attn_mask=mask), 1e-5)


def flex_returns_0_for_an_empty_row(code):
    numbers, visible, _ = module_case()
    visible[0] = False
    assert code.outcome(code.flex, numbers, visible) == "0"


@pytest.fixture
def compiled_anew():
    """TorchDynamo recompiles a function only so often in a process."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("compiled_anew", "on_the_cpu")
@pytest.mark.parametrize(
    "holds",
    [
        mha_has_identity_projections,
        mha_takes_three_paths,
        flex_hides_what_the_mask_hides,
        flex_returns_0_for_an_empty_row,
    ],
)
def test_the_modules(holds):
    holds(PAGE)


MODULE_BUGS = {
    "values not projected by the identity": ("torch.eye(16).repeat(3, 1)", "torch.ones(48, 16)"),
    "output not projected by the identity": ("out_proj.weight.data = torch.eye(16)", "out_proj.weight.data *= 2"),
    "polarity inverted": ("~mask if", "mask if"),
    "one head": ("num_heads=2", "num_heads=1"),
    "always with gradients": ("set_grad_enabled(training)", "set_grad_enabled(True)"),
}


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("bug", MODULE_BUGS)
def test_a_bug_of_mha_is_caught(bug):
    code = p.page_code(SLUG, "mha", ("mha", dict([MODULE_BUGS[bug]])))
    assert p.catches(mha_has_identity_projections, code) or p.catches(mha_takes_three_paths, code)


# -- the prose -----------------------------------------------------------------------------------


def test_float32_drops_the_1_twice():
    large = torch.tensor(2.0**24)
    assert large + 1 == large
    assert large + 2 == 16777218


def test_between_1024_and_1025_there_is_no_number_of_10_bits():
    assert torch.nextafter(torch.tensor(1024.0).half(), torch.tensor(2000.0).half()) == 1025
    assert PAGE.round_to(torch.tensor([1024.5, 1024.49]), 10).tolist() == [1025, 1024]


def test_three_bits_fewer_are_eight_times_the_error():
    cell = p.page_code(SLUG, "formats")
    errors = {bits: (PAGE.attend(cell.double, bits) - cell.exact).abs().max() for bits in (10, 7)}
    assert 7.5 < errors[7] / errors[10] < 8.5
    assert torch.equal(PAGE.round_to(cell.double, 10), PAGE.inputs.half().double())


def test_with_23_bits_the_contexts_are_those_of_the_first_page():
    before = p.page_code("foundations/weighted-average", "contexts")
    assert torch.equal(PAGE.inputs, before.inputs)
    assert torch.equal(PAGE.round_to(PAGE.inputs, 23), PAGE.inputs)
    p.close(PAGE.attend(PAGE.inputs, 23), before.context, 1e-6)


def test_tf32_is_off_for_matrix_products_and_on_for_convolutions():
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32


# -- the exercise --------------------------------------------------------------------------------


def draws_the_numbers_of_the_cpu(code):
    def prove(case):
        for size in ((), (case.T,), (case.B, case.T, case.D)):
            wanted = torch.randn(size, generator=torch.Generator().manual_seed(case.seed), device="cpu")
            before = torch.get_rng_state()
            assert torch.equal(code.draw(size, case.seed, "cpu"), wanted)
            assert torch.equal(torch.get_rng_state(), before)
            moved = code.draw(size, case.seed, "meta")
            assert moved.is_meta
            assert moved.shape == size

    p.for_all(p.sizes(B=3, T=20, D=4), prove)


OF_DRAW = [draws_the_numbers_of_the_cpu]
DRAW_BUGS = {
    "not moved": ({".to(device)": ""}, OF_DRAW),
    "not seeded": ({".manual_seed(seed)": ""}, OF_DRAW),
    "global generator": ({"generator=generator, ": ""}, OF_DRAW),
}


class TestDraw(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "solution", OF_DRAW, DRAW_BUGS


def cpu_generator(seed):
    return torch.Generator().manual_seed(seed)


def plain(size, seed, **options):
    return torch.randn(size, generator=cpu_generator(seed), **options)


def globally(size, seed, device):
    torch.manual_seed(seed)
    return torch.randn(size).to(device)


def forked(size, seed, device):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.randn(size).to(device)


def restored(size, seed, device):
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    numbers = torch.randn(size)
    torch.set_rng_state(state)
    return numbers.to(device)


def copied(size, seed, device):
    return torch.empty(size, device=device).copy_(plain(size, seed))


def one_generator_for_all():
    generator = torch.Generator()
    return lambda size, seed, device: torch.randn(size, generator=generator, device="cpu").to(device)


def seeded_once():
    kept = {}
    return lambda size, seed, device: torch.randn(
        size, generator=kept.setdefault(seed, cpu_generator(seed)), device="cpu"
    ).to(device)


def remembered():
    kept = {}

    def draw(size, seed, device):
        return kept.setdefault((tuple(size), seed, str(device)), plain(size, seed).to(device))

    return draw


def one_by_one(size, seed, device):
    generator = cpu_generator(seed)
    numbers = [torch.randn((), generator=generator) for _ in range(math.prod(size))]
    return torch.stack(numbers).view(size).to(device)


def on_the_device(size, seed, device):
    if torch.device(device).type == "cpu":
        return plain(size, seed)
    return torch.randn(size, device=device)


RIGHT = {
    "generator": lambda size, seed, device: plain(size, seed).to(device),
    "fork_rng": forked,
    "state put back": restored,
    "normal_": lambda size, seed, device: torch.empty(size).normal_(generator=cpu_generator(seed)).to(device),
    "copy_": copied,
    "in inference mode": torch.inference_mode()(lambda size, seed, device: plain(size, seed).to(device)),
}
WRONG = {
    "none": lambda size, seed, device: None,
    "raises": lambda size, seed, device: 1 / 0,
    "takes no device": lambda size, seed: plain(size, seed),
    "a list": lambda size, seed, device: plain(size, seed).tolist(),
    "a numpy array": lambda size, seed, device: plain(size, seed).numpy(),
    "manual_seed": globally,
    "no seed": lambda size, seed, device: torch.randn(size, generator=torch.Generator()).to(device),
    "the global generator": lambda size, seed, device: torch.randn(size).to(device),
    "seed fixed at 0": lambda size, seed, device: plain(size, 0).to(device),
    "seed fixed at 7": lambda size, seed, device: plain(size, 7).to(device),
    "next seed": lambda size, seed, device: plain(size, seed + 1).to(device),
    "seed cut to 31 bits": lambda size, seed, device: plain(size, seed % 2**31).to(device),
    "not moved": lambda size, seed, device: plain(size, seed),
    "always meta": lambda size, seed, device: plain(size, seed).to("meta"),
    "draws on the device": on_the_device,
    "normal_ on the device": lambda size, seed, device: (
        plain(size, seed) if torch.device(device).type == "cpu" else torch.empty(size, device=device).normal_()
    ),
    "a generator of the device": lambda size, seed, device: torch.randn(
        size, generator=torch.Generator(device).manual_seed(seed), device=device
    ),
    "one generator, never seeded": one_generator_for_all(),
    "a generator that goes on": seeded_once(),
    "remembered": remembered(),
    "uniform": lambda size, seed, device: torch.rand(size, generator=cpu_generator(seed)).to(device),
    "float64": lambda size, seed, device: plain(size, seed, dtype=torch.float64).to(device),
    "float16": lambda size, seed, device: plain(size, seed).half().to(device),
    "flat": lambda size, seed, device: plain(size, seed).flatten().to(device),
    "a batch axis": lambda size, seed, device: plain(size, seed)[None].to(device),
    "backwards": lambda size, seed, device: plain(size[::-1], seed).T.to(device),
    "at least one axis": lambda size, seed, device: plain(size or (1,), seed).to(device),
    "one by one": one_by_one,
    "negated": lambda size, seed, device: -plain(size, seed).to(device),
    "rounded": lambda size, seed, device: plain(size, seed).bfloat16().float().to(device),
    "wants a gradient": lambda size, seed, device: plain(size, seed, requires_grad=True).to(device),
    "a text for a device": lambda size, seed, device: plain(size, seed).to(device.lower()),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_draw", RIGHT, WRONG
