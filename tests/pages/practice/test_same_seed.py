"""Same seed, other device: the page's Philox and rounding against published and independent ones, and its tables."""

import functools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "practice/same-seed"
PAGE = p.page_code(SLUG, "modules")

# -- generators ----------------------------------------------------------------------------------

ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [  # tests/kat_vectors of DEShawResearch/random123, the lines "philox4x32 10"
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
# What others print of CUDA after seed 0: tests/unittest/trt/model/redrafter/test_unpack_gen_data.py of TensorRT-LLM
# (the first five also in pytorch#47347), and the call after it in a public example.
PRINTED = [
    "0.3990 0.5167 0.0249 0.9401 0.9459 0.7967 0.4150 0.8203 0.2290 0.9096 0.1183 0.0752",
    "0.9722 0.7910 0.4690 0.3300 0.3345 0.3783 0.7640 0.6405 0.1103",
]


def test_philox_gives_the_known_answers():
    for counter, key, words in KNOWN_ANSWERS:
        assert PAGE.philox(counter, key) == words


def test_by_counter_gives_what_others_print_of_cuda():
    for call, printed in enumerate(PRINTED):
        ours = PAGE.by_counter(len(printed.split()), 0, call)
        assert " ".join(f"{number:.4f}" for number in ours.tolist()) == printed
        assert ours.device.type == "cpu"
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
        assert torch.equal(torch.rand(700, generator=cpu_generator(seed), device="cpu"), wanted)
    assert np.random.RandomState(0).get_state()[1].shape == (624,)


def test_on_the_cpu_two_draws_are_one_but_for_16_normal_numbers():
    for draw, parts, equal in (
        (torch.rand, (2, 30), True),
        (torch.randn, (2, 13), True),
        (torch.randn, (2, 14), False),
    ):
        generator = cpu_generator(0)
        found = torch.cat([draw(size, generator=generator) for size in parts])
        assert torch.equal(found, draw(sum(parts), generator=cpu_generator(0))) == equal


def test_the_message_of_the_failing_test_is_that_of_torch():
    cell = executed(SLUG, "streams")[0]
    with pytest.raises(AssertionError, match=r"^Tensor-likes are not close!\s+.*\s+Greatest absolute difference: 0\.8"):
        torch.testing.assert_close(cell.on_cuda, cell.on_cpu)


# -- rounding ------------------------------------------------------------------------------------


def rounded(numbers, bits):
    """To the nearest float32 with so many bits after the leading one, halves away from 0: by its bits."""
    lost = 23 - bits
    whole = numbers.float().view(torch.int32) + (1 << lost >> 1)
    return (whole & -(1 << lost)).view(torch.float32).to(numbers.dtype)


def test_round_to_rounds_to_the_nearest():
    def prove(case):
        numbers = 10 * case.randn(case.T, case.E)
        for bits in (23, 16, 10, 7, 2):
            halfway = 1 + torch.arange(3, 19, 2, dtype=torch.float64) * 2.0 ** -(bits + 1)
            for given in (numbers, numbers.abs().float(), halfway.float() if bits < 23 else numbers[0]):
                ours = PAGE.round_to(given, bits)
                assert ours.dtype == given.dtype
                assert torch.equal(ours, rounded(given, bits))

    p.for_all(p.sizes(T=5, E=4), prove)


def test_bits_are_those_of_bfloat16_and_float16():
    numbers = torch.randn(500, generator=cpu_generator(0))
    for dtype, bits in ((torch.bfloat16, 7), (torch.float16, 10), (torch.float32, 23)):
        assert torch.finfo(dtype).eps == 2.0**-bits
        assert torch.equal(PAGE.round_to(numbers, bits), numbers.to(dtype).float())


def test_attend_rounds_the_factors_of_both_products():
    def prove(case):
        tokens = case.randn(case.T, case.E)
        for bits in (23, 10, 7, 4):
            roles = rounded(tokens, bits)
            exponentials = torch.exp(torch.einsum("ie,je->ij", roles, roles))
            weights = rounded(exponentials / exponentials.sum(dim=1, keepdim=True), bits)
            p.close(PAGE.attend(tokens, bits), torch.einsum("ij,je->ie", weights, roles), 1e-6)

    p.for_all(p.sizes(T=6, E=4), prove)


def test_with_23_bits_the_contexts_are_those_of_the_weighted_average():
    before = p.page_code("foundations/weighted-average", "contexts")
    assert torch.equal(PAGE.inputs, before.inputs)
    p.close(PAGE.attend(PAGE.inputs, 23), before.context, 1e-6)


def test_a_uniform_weight_over_32768_keys_is_below_the_normal_numbers_of_float16():
    assert f"{1 / 32768:.0e} {torch.finfo(torch.float16).tiny:.0e}" == "3e-05 6e-05"


def test_tf32_is_off_for_matrix_products_and_on_for_convolutions():
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32


# -- the probe -----------------------------------------------------------------------------------


def test_the_difference_is_the_largest_gap_in_three_dtypes():
    roles = torch.tensor([[1.0, 2.0, -4.0], [0.5, 2.0, -1.0]])
    assert PAGE.difference(lambda x, shift: x, lambda x, shift: x + shift, roles) == [2.0, 2.0, 2.0]
    gaps = PAGE.difference(lambda x: x / 3 * 3 - x, lambda x: x / 7 * 7 - x, [torch.arange(1.0, 90.0)])
    assert gaps[0] > gaps[1] > gaps[2]


def test_the_second_function_runs_on_the_device_and_the_first_on_the_cpu():
    devices = []

    def watched(numbers):
        devices.append(numbers.device.type)
        return torch.zeros(3, device="cpu")

    assert PAGE.difference(watched, watched, [torch.ones(3)], device="meta") == [0, 0, 0]
    assert devices == ["cpu", "meta"] * 3


def test_by_hand_is_sdpa():
    def prove(case):
        roles = [case.randn(1, case.H, case.T, case.D) for _ in range(3)]
        for scale in (None, 0.29, 0.0):
            p.close(PAGE.by_hand(*roles, scale), F.scaled_dot_product_attention(*roles, scale=scale))

    p.for_all(p.sizes(H=3, T=6, D=4), prove)


def probe_gaps(name, **options):
    cell = executed(SLUG, "probe")[0]
    other = cell.others.get(name, lambda *roles: cell.by_hand(*roles, **options))
    return cell.difference(cell.by_hand, other, cell.roles)


def test_rounding_shrinks_by_about_2_to_the_29():
    assert torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps == 2**29
    assert f"{2**29:.0e}" == "5e+08"
    gaps = probe_gaps("SDPA")
    assert 2**26 < gaps[1] / gaps[2] < 2**32
    assert gaps[0] > 1e-3


def test_a_bug_stays_and_hides_in_bfloat16():
    half, single, double = probe_gaps("scale 0.29")
    assert single == pytest.approx(double, rel=1e-3)
    assert double < half < 1e-2
    assert f"{1 / math.sqrt(12):.4f}" == "0.2887"
    half, single, double = probe_gaps("four digits", scale=0.2887)
    assert half < 1e-2
    assert f"{single:.0e} {double:.0e}" == "6e-05 6e-05"


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
    "0.0000": answering(0.0, 0.002),
    "0.1000": answering(0.1, torch.nan),
    "refused": refusing,
}


@pytest.mark.parametrize("word", ANSWERS)
def test_the_outcome_of_a_call_is_one_word(word):
    for attn_mask in (VISIBLE, torch.zeros(3, 3)):
        assert PAGE.outcome(ANSWERS[word], NUMBERS, attn_mask) == word


def test_the_calls_of_the_first_table_attend_under_every_mask():
    def prove(case):
        inputs = case.randn(1, 2, case.T, case.D).cpu()
        visible = (case.randn(case.T, case.T) > 0).cpu() | torch.eye(case.T, dtype=torch.bool, device="cpu")
        for attn_mask in (visible, case.randn(case.T, case.T).cpu()):
            wanted = F.scaled_dot_product_attention(*[inputs] * 3, attn_mask=attn_mask)
            for name in ("softmax", "math", "flash"):
                p.close(PAGE.kernels[name](inputs, attn_mask), wanted)

    p.for_all(p.sizes(T=6, D=4), prove)


def test_the_lowest_float16_swallows_a_score_in_float16_and_not_in_float32():
    lowest = torch.finfo(torch.float16).min
    assert lowest == -65504
    inward = torch.tensor(lowest + 0.0)
    assert torch.nextafter(inward, torch.tensor(0.0)) - inward == 1 / 256
    assert torch.tensor(lowest, dtype=torch.float16) + 3 == lowest
    assert torch.nextafter(inward.half(), torch.tensor(0.0).half()) == -65504 + 32


# -- modules -------------------------------------------------------------------------------------


def module_case(dtype=torch.float32):
    numbers = torch.randn(1, 1, 4, 16, generator=cpu_generator(1)).to(dtype)
    visible = torch.tensor([[True, False, False, False], [True] * 4, [False, True, True, False], [True, False] * 2])
    return numbers, visible, torch.zeros(4, 4, dtype=dtype).masked_fill(~visible, -torch.inf)


@pytest.mark.usefixtures("on_the_cpu")
def test_nn_mha_attends_with_two_heads_of_its_inputs():
    for dtype in (torch.float32, torch.float64):
        numbers, *masks = module_case(dtype)
        heads = numbers[0].unflatten(-1, (2, 8)).transpose(1, 2)
        for options in ((True, True), (False, True), (False, False)):
            for attn_mask in masks:
                context = PAGE.mha(*options)(numbers, attn_mask)
                assert context.requires_grad == options[1]
                wanted = F.scaled_dot_product_attention(*[heads] * 3, attn_mask=attn_mask).transpose(1, 2).flatten(2)
                p.close(context.detach(), wanted, 1e-5)


@pytest.mark.usefixtures("on_the_cpu")
def test_flex_hides_what_the_mask_hides():
    torch.compiler.reset()  # TorchDynamo recompiles a function only so often in a process
    numbers, *masks = module_case()
    for attn_mask in masks:
        wanted = F.scaled_dot_product_attention(*[numbers] * 3, attn_mask=attn_mask)
        p.close(PAGE.flex(numbers, attn_mask), wanted, 1e-5)
    torch.compiler.reset()


# -- the exercise --------------------------------------------------------------------------------


def cpu_generator(seed):
    return torch.Generator().manual_seed(seed)


def plain(size, seed, device="cpu"):
    return torch.randn(size, generator=cpu_generator(seed)).to(device)


def globally(size, seed, device):
    """The middle step."""
    torch.manual_seed(seed)
    return torch.randn(size).to(device)


def on_the_device(size, seed, device):
    return plain(size, seed) if device == "cpu" else torch.empty(size, device=device).normal_()


RIGHT = {"a generator": plain, "in inference mode": torch.inference_mode()(plain)}
WRONG = {
    "manual_seed": globally,
    "a tensor that is kept": functools.cache(plain),
    "drawn on the device": on_the_device,
    "seed cut to 31 bits": lambda size, seed, device: plain(size, seed % 2**31, device),
}
SAID = {
    "manual_seed": "(2, 3), seed 7, cpu: the global generator has moved",
    "a tensor that is kept": "(2, 3), seed 7, cpu: two calls return one tensor",
    "drawn on the device": "(2, 3), seed 7, meta: it draws on the other device",
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_draw", RIGHT, WRONG

    @pytest.mark.parametrize("answer", SAID)
    def test_the_check_names_what_differs(self, answer):
        assert self.verdict(WRONG[answer]) == f"not yet: {SAID[answer]}\n"


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "a matrix has two axes: 1 is the last": ["weights = torch.softmax(tokens @ tokens.T, dim=1)"],
    "a number with a gradient is compared and printed as one without": [
        "return attend(inputs, attn_mask)[..., 0, :].flatten()"
    ],
    "`allclose` broadcasts the axes of 1 that are left": [
        "guesses = {'nan': torch.full_like(row, torch.nan), 'mean': inputs.mean(dim=-2), 'unmasked': row_0(torch.ones_like(attn_mask, dtype=torch.bool))}"  # noqa: E501
    ],
    "of four axes 2 is the last but one": [
        "guesses = {'nan': torch.full_like(row, torch.nan), 'mean': inputs.mean(dim=2).flatten(), 'unmasked': row_0(torch.ones_like(attn_mask, dtype=torch.bool))}"  # noqa: E501
    ],
    "the last line prints nan, too": ["if torch.allclose(row, guess, atol=0.005):"],
    "the same": ["if torch.allclose(row, guess, atol=0.005, equal_nan=False):"],
    "the cell `empty-modules` prints another column `eval`": ["module.to(inputs.device, inputs.dtype)"],
}
