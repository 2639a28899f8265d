"""Same seed, other device: rounding against an independent one, what repeats itself, and the table of empty rows."""

import functools
import inspect
import math
import pickle
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch.testing._comparison import default_tolerances
from torch.utils.data import DataLoader

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "practice/same-seed"
PAGE = p.page_code(SLUG, "kernels")


def test_the_cpu_draws_the_words_of_the_mersenne_twister():
    words = np.random.RandomState(123).randint(0, 2**32, size=700, dtype=np.uint32)
    wanted = torch.from_numpy((words & (2**24 - 1)) / 2.0**24).float()
    assert torch.equal(torch.rand(700, generator=cpu_generator(123), device="cpu"), wanted)
    assert np.random.RandomState(0).get_state()[1].shape == (624,)


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


def test_attend_rounds_the_factors_of_both_products():
    def prove(case):
        tokens = case.randn(case.T, case.E)
        for bits in (23, 10, 7, 4):
            roles = rounded(tokens, bits)
            exponentials = torch.exp(torch.einsum("ie,je->ij", roles, roles))
            weights = rounded(exponentials / exponentials.sum(dim=1, keepdim=True), bits)
            p.close(PAGE.attend(tokens, bits), torch.einsum("ij,je->ie", weights, roles), 1e-6)

    p.for_all(p.sizes(T=6, E=4), prove)


def test_what_torch_chooses_by_default():
    wanted = {torch.bfloat16: (1.6e-2, 1e-5), torch.float16: (1e-3, 1e-5), torch.float32: (1.3e-6, 1e-5)}
    assert {dtype: default_tolerances(dtype) for dtype in wanted} == wanted
    assert [torch.finfo(dtype).eps for dtype in wanted] == [2**-7, 2**-10, 2**-23]
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32


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


def test_a_bug_stays_and_hides_in_bfloat16():
    half, single, double = probe_gaps("scale 0.29")
    assert single == pytest.approx(double, rel=1e-3)
    assert double < half < 1e-2
    assert f"{1 / math.sqrt(12):.4f}" == "0.2887"
    half, single, double = probe_gaps("four digits", scale=0.2887)
    assert half < 1e-2
    assert f"{single:.0e} {double:.0e}" == "6e-05 6e-05"


@pytest.mark.usefixtures("on_the_cpu")
def test_without_inductor_the_compiled_code_rounds_as_eager():
    def rotate(first, second, cos, sin):
        return first * cos - second * sin

    numbers = torch.randn(4, 90, generator=cpu_generator(0), device="cpu").bfloat16()
    torch.compiler.reset()
    assert torch.equal(torch.compile(rotate, backend="aot_eager")(*numbers), rotate(*numbers))


def test_distances_are_measured_at_real_tokens():
    wanted = torch.tensor([[[3.0, 4.0], [1.0, 1.0]]])
    is_real = torch.tensor([[True, False]])
    assert PAGE.relative([wanted, wanted + 1], [wanted] * 2, is_real) == [0, round(2**0.5 / 5, 3)]


# -- other batches, other runs -------------------------------------------------------------------


@pytest.mark.usefixtures("on_the_cpu")
def test_a_step_at_4_is_a_32nd_and_swallows_a_hundredth():
    assert torch.tensor([4.01, 4.03125]).bfloat16().tolist() == [4, 4.03125]
    one = torch.tensor([4.0] + [0.01] * 7, dtype=torch.float64)
    in_parts = executed(SLUG, "parts")[0].in_parts
    assert in_parts(one, 1) == PAGE.round_to(one.sum(), 7)
    assert in_parts(torch.stack([one, one]), 8).tolist() == [4, 4]


class Augmented(torch.utils.data.Dataset):
    """What an example draws from the generator of its worker, and from one of its own."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        own = torch.rand(1, generator=cpu_generator(index))
        return index, torch.rand(1).item(), random.random(), np.random.rand(), own.item()


@pytest.mark.usefixtures("on_the_cpu")
def test_workers_draw_by_their_number_and_an_example_by_its_index():
    def drawn(workers):
        loader = DataLoader(Augmented(), None, shuffle=True, generator=cpu_generator(0), num_workers=workers)
        return list(zip(*loader, strict=True))

    one, again, two = drawn(1), drawn(1), drawn(2)
    assert one == again
    assert [ours == theirs for ours, theirs in zip(one, two, strict=True)] == [True, False, False, False, True]


@pytest.mark.usefixtures("on_the_cpu")
def test_compiled_draws_are_those_of_eager_mode_only_if_they_fall_back():
    def draws():
        torch.manual_seed(0)
        return torch.rand(9, device="cpu")

    for fallback in (False, True):
        torch.compiler.reset()
        with torch._inductor.config.patch(fallback_random=fallback):
            assert torch.equal(torch.compile(draws)(), draws()) == fallback


@pytest.mark.usefixtures("on_the_cpu")
def test_generate_moves_the_generator_and_a_seed_sets_it_back():
    sizes = {"vocab_size": 90, "n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 1}
    model = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)).eval()
    model.generation_config.do_sample = True

    def texts(**options):
        return model.generate(torch.tensor([[3, 4]]), max_new_tokens=20, min_new_tokens=20, **options).tolist()

    hf.set_seed(0)
    first, second = texts(), texts()
    hf.set_seed(0)
    assert first == texts() != second
    assert texts(do_sample=False) == texts(do_sample=False)


def test_states_of_numpy_are_no_weights(tmp_path):
    torch.save(np.random.get_state(), tmp_path / "states")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "states")
    torch.load(tmp_path / "states", weights_only=False)
    assert "rng_state.pth" in inspect.getsource(hf.Trainer._save_rng_state)


def test_what_transformers_calls_full_determinism():
    source = inspect.getsource(hf.trainer_utils.enable_full_determinism)
    lines = "CUBLAS_WORKSPACE_CONFIG", 'FLASH_ATTENTION_DETERMINISTIC"] = "1"', "use_deterministic_algorithms(True"
    assert all(line in source for line in lines)
    assert "full_determinism" in hf.TrainingArguments.__dataclass_fields__
    assert "set_seed(self.args.seed)" in inspect.getsource(hf.Trainer.__init__)
    assert isinstance(hf.TrainingArguments.process_index, property)


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


@pytest.mark.usefixtures("on_the_cpu")
def test_the_calls_of_the_first_table_attend_under_every_mask():
    inputs, added = torch.randn(1, 2, 6, 4).double(), torch.randn(6, 6).double()
    for attn_mask in (added, (added > 0) | torch.eye(6, dtype=torch.bool)):
        wanted = F.scaled_dot_product_attention(*[inputs] * 3, attn_mask=attn_mask)
        for name in ("softmax", "math", "flash"):
            p.close(PAGE.kernels[name](inputs, attn_mask), wanted)


@pytest.mark.usefixtures("on_the_cpu")
def test_opt_with_pads_on_the_left_gives_nan_in_float16_if_it_adds_its_mask():
    sizes = {"vocab_size": 90, "hidden_size": 48, "ffn_dim": 72, "num_hidden_layers": 2, "word_embed_proj_dim": 48}
    model = hf.OPTModel(hf.OPTConfig(**sizes, num_attention_heads=4)).eval()
    for layer in model.decoder.layers:
        torch.nn.init.constant_(layer.self_attn.q_proj.bias, 3)
        torch.nn.init.constant_(layer.self_attn.k_proj.bias, -3)
    is_real = torch.arange(9) >= torch.tensor([[4], [0]])
    finite = {"float32 eager": True, "bfloat16 eager": True, "float16 eager": False, "float16 sdpa": True}
    for case in finite:
        dtype, attention = case.split()
        model.to(getattr(torch, dtype)).set_attn_implementation(attention)
        assert model(torch.arange(18).view(2, 9), is_real.long())[0][is_real].isfinite().all() == finite[case]


def test_the_lowest_float16_swallows_a_score_in_float16_and_not_in_float32():
    lowest = torch.tensor(torch.finfo(torch.float16).min)
    assert lowest.half() + 3 == lowest == -65504 != lowest + 3


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


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_draw", RIGHT, WRONG

    def test_after_the_middle_step_the_check_names_the_generator(self):
        assert self.verdict(globally) == "not yet: (2, 3), seed 7, cpu: the global generator has moved\n"


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
}
