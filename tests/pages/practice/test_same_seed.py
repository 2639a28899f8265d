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
from tests.pages.exercise import Exercise

SLUG = "practice/same-seed"
PAGE = p.page_code(SLUG, "modules")

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


def test_philox_gives_the_known_answers():
    for counter, key, words in KNOWN_ANSWERS:
        assert PAGE.philox(counter, key) == words


def test_by_counter_gives_what_others_print_of_cuda():
    """The first call after seed 0 in a test of TensorRT-LLM, and the call after it in a public example."""
    for call, printed in enumerate((PRINTED, PRINTED_NEXT)):
        ours = PAGE.by_counter(len(printed), 0, call).tolist()
        assert [f"{number:.4f}" for number in ours] == [f"{number:.4f}" for number in printed]
    assert torch.equal(PAGE.by_counter(3, 0), PAGE.by_counter(3, 0, call=0))


def test_by_counter_takes_all_64_bits_of_the_seed():
    for low, high in ((5, 0), (0, 5), (7, 2**31), (ONES, 1)):
        words = [PAGE.philox((3, 0, i, 0), (low, high))[0] for i in range(500)]
        wanted = torch.tensor(words, dtype=torch.float64).add(0.5).div(2.0**32)
        assert PAGE.by_counter(500, high * 2**32 + low, call=3).tolist() == wanted.float().tolist()


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


def test_round_to_rounds_to_the_nearest():
    def prove(case):
        numbers = 10 * case.randn(case.T, case.E)
        for bits in (23, 16, 10, 7, 2):
            edges = ties(bits) if bits < 23 else torch.tensor([0.1, -0.1], dtype=torch.float64)
            for given in (numbers, numbers.float(), edges, edges.float()):
                ours = PAGE.round_to(given, bits)
                assert ours.dtype == given.dtype
                assert torch.equal(ours, rounded(given, bits))

    p.for_all(p.sizes(T=5, E=4), prove)


def test_bits_are_those_of_bfloat16_and_float16():
    numbers = torch.randn(500, generator=torch.Generator().manual_seed(0))
    for dtype, bits in ((torch.bfloat16, 7), (torch.float16, 10), (torch.float32, 23)):
        assert torch.finfo(dtype).eps == 2.0**-bits
        assert torch.equal(PAGE.round_to(numbers, bits), numbers.to(dtype).float())


def test_attend_rounds_the_factors_of_both_products():
    def prove(case):
        tokens = case.randn(case.T, case.E)
        for bits in (23, 10, 7, 4):
            roles = rounded(tokens, bits)
            scores = torch.einsum("ie,je->ij", roles, roles)
            weights = torch.exp(scores) / torch.exp(scores).sum(dim=1, keepdim=True)
            p.close(PAGE.attend(tokens, bits), torch.einsum("ij,je->ie", rounded(weights, bits), roles), 1e-6)

    p.for_all(p.sizes(T=6, E=4), prove)


# -- the probe -----------------------------------------------------------------------------------


def test_the_difference_is_the_largest_gap_in_three_dtypes():
    seen = []

    def first(numbers, shift):
        seen.append((numbers.dtype, shift.dtype))
        return numbers

    numbers, shift = torch.tensor([1.0, 2.0, -4.0]), torch.tensor([0.5, 2.0, -1.0])
    assert PAGE.difference(first, lambda numbers, shift: numbers + shift, numbers, shift) == [2.0, 2.0, 2.0]
    dtypes = [torch.bfloat16, torch.float32, torch.float64]
    assert seen == [(dtype, dtype) for dtype in dtypes]
    third = PAGE.difference(lambda numbers: numbers / 3, lambda numbers: numbers * 0 + 1 / 3, torch.ones(1))
    assert third[0] == third[1] == third[2] == 0
    shrinking = PAGE.difference(lambda x: x / 3 * 3 - x, lambda x: x / 7 * 7 - x, torch.arange(1.0, 90.0))
    assert shrinking[0] > shrinking[1] > shrinking[2]


def roles_and_masks(case):
    roles = [case.randn(1, 1, case.T, case.D) for _ in range(3)]
    visible = case.randn(case.T, case.T) > 0
    visible[:, 0] = True
    return roles, [None, visible, case.randn(case.T, case.T), torch.zeros(case.T, case.T).double()]


def test_by_hand_is_sdpa():
    def prove(case):
        roles, masks = roles_and_masks(case)
        for attn_mask in masks:
            for scale in (None, 0.29, 1.0):
                wanted = F.scaled_dot_product_attention(*roles, attn_mask=attn_mask, scale=scale)
                p.close(PAGE.by_hand(*roles, attn_mask, scale), wanted)
        p.close(PAGE.by_hand(*roles), F.scaled_dot_product_attention(*roles))

    p.for_all(p.sizes(T=6, D=4), prove)


def refused(backend, roles):
    try:
        PAGE.fused(backend, *roles)
    except RuntimeError as error:
        return str(error).startswith("No viable backend")
    return False


def test_fused_asks_the_kernel_that_it_is_told():
    def prove(case):
        roles, masks = roles_and_masks(case)
        roles, masks = [role.cpu() for role in roles], [None, *(attn_mask.cpu() for attn_mask in masks[1:])]
        for attn_mask in masks:
            for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
                ours = PAGE.fused(backend, *roles, attn_mask)
                p.close(ours, F.scaled_dot_product_attention(*roles, attn_mask=attn_mask))
        for backend in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            assert refused(backend, roles)

    p.for_all(p.sizes(T=6, D=4), prove)


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
VISIBLE = torch.tensor([[False] * 3, [True] * 3, [True, False, True]])


def answering(*row):
    """A call whose row 0 is this under a mask, and (0.7, 0.3) without one; its other rows are nan."""

    def attend(inputs, attn_mask):
        context = torch.full_like(inputs, torch.nan).requires_grad_()
        first = torch.tensor([0.7, 0.3] if attn_mask.dtype == torch.bool and attn_mask.all() else row)
        return torch.where(torch.arange(3)[:, None] == 0, first.to(inputs.dtype), context)

    return attend


def refusing(inputs, attn_mask):
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


def test_the_outcome_of_a_call_is_one_word():
    for word, attend in ANSWERS.items():
        assert PAGE.outcome(attend, NUMBERS, VISIBLE) == word
        assert PAGE.outcome(attend, NUMBERS, torch.zeros(3, 3)) == word
        if not word.startswith("0."):
            assert PAGE.outcome(attend, NUMBERS.bfloat16(), VISIBLE) == word


def test_a_mask_is_spelt_in_three_ways():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        found = dict(PAGE.masks_of(VISIBLE, dtype))
        assert list(found) == ["boolean", "-inf", "finfo.min"]
        assert torch.equal(found["boolean"], VISIBLE)
        for name, low in (("-inf", -math.inf), ("finfo.min", torch.finfo(dtype).min)):
            assert found[name].dtype == dtype
            wanted = [[0.0 if sees else low for sees in row] for row in VISIBLE.tolist()]
            assert found[name].tolist() == wanted


def table(calls):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        PAGE.empty_row("cpu", calls)
    return printed.getvalue()


def test_the_table_has_a_line_for_each_dtype_and_mask():
    given = []

    def spy(inputs, attn_mask):
        given.append((inputs, attn_mask))
        return inputs * 0

    lines = table({"spy": spy, "refusing": refusing}).splitlines()
    assert lines[0] == "mask      dtype           spy  refusing"
    kinds = ("boolean", "-inf", "finfo.min")
    dtypes = ("float32", "bfloat16", "float16")
    assert lines[1:] == [f"{kind:10}{dtype:9}         0   refused" for dtype in dtypes for kind in kinds]
    assert [str(inputs.dtype)[6:] for inputs, _ in given] == [dtype for dtype in dtypes for _ in kinds]
    for inputs, attn_mask in given:
        assert inputs.shape == (1, 1, 16, 16)
        wanted = torch.tensor([i % 7 / 7 for i in range(256)], device="cpu").to(inputs.dtype)
        assert torch.equal(inputs.flatten(), wanted)
        masked = ~attn_mask if attn_mask.dtype == torch.bool else attn_mask < 0
        assert masked[0].all()
        assert not masked[1:].any()
        assert masked.shape == (16, 16)


def test_the_kernels_of_the_table_attend_and_answer_an_empty_row_as_the_page_says():
    numbers, visible = NUMBERS.cpu(), VISIBLE.cpu()
    wanted = F.scaled_dot_product_attention(numbers, numbers, numbers, attn_mask=visible)[..., 1:, :]
    for name in ("softmax", "math", "flash"):
        p.close(PAGE.kernels[name](numbers, visible)[..., 1:, :], wanted, 1e-6)
    words = {name: PAGE.outcome(attend, numbers, visible) for name, attend in PAGE.kernels.items()}
    assert words == {"softmax": "nan", "math": "0", "flash": "0", "efficient": "refused", "cudnn": "refused"}


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


def two_heads(numbers, attn_mask):
    heads = numbers[0].unflatten(-1, (2, 8)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=attn_mask).transpose(1, 2).flatten(2)


@pytest.mark.usefixtures("on_the_cpu")
def test_nn_mha_attends_with_two_heads_of_its_inputs():
    for dtype in (torch.float32, torch.float64):
        numbers, *masks = module_case(dtype)
        for options in ((True, True), (False, True), (False, False)):
            for attn_mask in masks:
                context = PAGE.mha(*options)(numbers, attn_mask)
                assert context.requires_grad == options[1]
                p.close(context.detach(), two_heads(numbers, attn_mask), 1e-5)
                assert torch.initial_seed() == 0


@pytest.mark.usefixtures("on_the_cpu")
def test_nn_mha_takes_three_paths():
    numbers, visible, _ = module_case()
    visible[0] = False
    masks = visible, torch.zeros(4, 4).masked_fill(~visible, -torch.inf)
    for options, boolean, added in (
        ((True, True), "nan", "nan"),
        ((False, True), "0", "0"),
        ((False, False), "nan", "0"),
    ):
        assert [PAGE.outcome(PAGE.mha(*options), numbers, attn_mask) for attn_mask in masks] == [boolean, added]


@pytest.mark.usefixtures("compiled_anew", "on_the_cpu")
def test_flex_hides_what_the_mask_hides():
    numbers, *masks = module_case()
    for attn_mask in masks:
        p.close(
            PAGE.flex(numbers, attn_mask), F.scaled_dot_product_attention(*[numbers] * 3, attn_mask=attn_mask), 1e-5
        )


@pytest.fixture
def compiled_anew():
    """TorchDynamo recompiles a function only so often in a process."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


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
