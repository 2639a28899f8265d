"""Rotary positions: both layouts against transformers, the way from one to the other, and rotations that are none."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers import DeepseekV3Config, GlmConfig, GPTJConfig, GPTNeoXConfig, LlamaConfig, Mistral4Config
from transformers.core_model_loading import PermuteForRope
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere import modeling_cohere
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.ernie4_5 import modeling_ernie4_5
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.glm import modeling_glm
from transformers.models.glm4_moe import modeling_glm4_moe
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama import modeling_llama
from transformers.models.llama4 import modeling_llama4
from transformers.models.mistral import modeling_mistral
from transformers.models.phi import modeling_phi
from transformers.models.qwen3 import modeling_qwen3

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "position/rope"
PAGE, PARTIAL, SOLUTION = (p.page_code(SLUG, cell) for cell in ("bug", "partial", "solution"))
PROBE, NEUTRAL = p.page_code(SLUG, "probe"), p.page_code(SLUG, "neutral")
both_layouts = pytest.mark.parametrize("turn", [PAGE.rotate, PAGE.rotate_pairs])


def with_heads(case):
    """Heads of even width, in float64, positions of each text in any order, and the cosines and sines of a formula."""
    case.D *= 2
    case.heads = case.randn(case.B, case.H, case.T, case.D)
    generator = torch.Generator("cpu").manual_seed(case.seed)
    case.positions = torch.randint(1000, (case.B, case.T), generator=generator).to(case.heads.device)
    case.base = (10_000.0, 500_000.0, 100.0)[case.seed % 3]
    speeds = torch.tensor([case.base ** (-2 * k / case.D) for k in range(case.D // 2)], dtype=torch.float64)
    case.angles = case.positions[..., None] * speeds
    case.table = case.angles.cos(), case.angles.sin()
    case.turned = lambda turn: turn(case.heads, case.positions[:, None], case.base)
    return case


CASES = p.sizes(B=3, T=7, H=4, D=5).map(with_heads)

# -- both layouts against others; gradients and the class in float64 are in references.py --------


@pytest.mark.parametrize(("turn", "interleaved"), [(PAGE.rotate, False), (PAGE.rotate_pairs, True)])
def test_the_operator_for_onnx_runs_without_an_export_in_both_layouts(turn, interleaved):
    def prove(case):
        turned = torch.onnx.ops.rotary_embedding(case.heads, *case.table, interleaved=interleaved)
        p.close(case.turned(turn), turned, 1e-10)

    p.for_all(CASES, prove)


def test_rotate_is_that_of_llama_with_the_speeds_of_its_config():
    def prove(case):
        options = {"rope_type": "default", "rope_theta": case.base}
        config = LlamaConfig(head_dim=case.D, num_attention_heads=1, rope_parameters=options)
        table = modeling_llama.LlamaRotaryEmbedding(config)(case.heads, case.positions)
        p.close(case.turned(PAGE.rotate), modeling_llama.apply_rotary_pos_emb(case.heads, case.heads, *table)[0], 1e-3)

    p.for_all(CASES, prove)


def test_rotate_pairs_is_the_complex_product_of_llama_4():
    def prove(case):
        heads = case.heads.float().transpose(1, 2)
        theirs = modeling_llama4.apply_rotary_emb(heads, heads, torch.complex(*case.table).to(torch.complex64))[0]
        p.close(case.turned(PAGE.rotate_pairs), theirs.transpose(1, 2).double(), 1e-4)

    p.for_all(CASES, prove)


def test_deepseek_v3_takes_pairs_and_returns_the_order_of_halves():
    def prove(case):
        table = [half.repeat(1, 1, 2) for half in case.table]
        theirs = modeling_deepseek_v3.apply_rotary_pos_emb_interleave(case.heads, case.heads, *table)[0]
        ours = case.turned(PAGE.rotate_pairs)
        p.close(torch.cat([ours[..., ::2], ours[..., 1::2]], dim=-1), theirs, 1e-10)

    p.for_all(CASES, prove)


@both_layouts
def test_half_precision_gets_angles_in_float32_and_only_the_result_is_rounded(turn):
    def prove(case):
        for dtype in (torch.float16, torch.bfloat16):
            half = turn(case.heads.to(dtype), case.positions[:, None], case.base)
            wanted = turn(case.heads.to(dtype).float(), case.positions[:, None], case.base)
            assert half.dtype == dtype
            assert torch.equal(half, wanted.to(dtype))

    p.for_all(CASES, prove)


def test_an_odd_width_raises():
    for turn in PAGE.rotate, PAGE.rotate_pairs:
        with pytest.raises(ValueError, match=r"^a head of width 5 cannot be split into pairs$"):
            turn(torch.ones(1, 1, 2, 5), torch.arange(2))


@pytest.mark.parametrize("shape", [(5,), (1,), (), (3, 2), (3, 4, 2), (1, 1, 2), (3, 1, 1)])
def test_positions_that_are_not_those_of_the_tokens_raise(shape):
    message = f"positions must have the shape (2,) or (3, 1, 2), not {shape}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        PAGE.rotate(torch.ones(3, 4, 2, 6), torch.zeros(shape))


def test_one_token_and_five_positions_raise():
    with pytest.raises(ValueError, match=r"\(1,\) or \(1, 1, 1\), not \(5,\)$"):
        PAGE.rotate(torch.ones(1, 1, 1, 6), torch.arange(5))


@both_layouts
def test_rotations_compile_to_the_same_numbers_whatever_the_length(turn):
    compiled = torch.compile(turn, backend="aot_eager", fullgraph=True, dynamic=True)
    for T in (1, 6):
        heads = torch.randn(2, 3, T, 8, generator=torch.Generator().manual_seed(T), dtype=torch.bfloat16)
        assert torch.equal(compiled(heads, torch.arange(T)), turn(heads, torch.arange(T)))


# -- a score depends on the distance alone -------------------------------------------------------


def test_float32_angles_are_why_a_shift_of_a_million_shows():
    def gap(turn):
        return (PROBE.scores(turn, 1_000_000) - PROBE.scores(turn, 0)).abs().max()

    assert gap(lambda heads, at: PAGE.rotate(heads.double(), at)) < 1e-6 < 0.01 < gap(PAGE.rotate)
    million = torch.tensor(1e6)
    assert torch.nextafter(million, torch.tensor(torch.inf)) - million == 0.0625


def along_the_heads(heads, at, base):
    return PAGE.rotate(heads.transpose(1, 2), at[: heads.shape[1]], base).transpose(1, 2)


SHIFT = {"mixed": lambda heads, at, base: PROBE.mixed(heads, at)}
SWAP = {"nothing": lambda heads, at, base: heads, "heads": along_the_heads}
NEITHER = {
    "right": PAGE.rotate,
    "one speed": lambda heads, at, base: PAGE.rotate(heads, at, 1.0),
    "base": lambda heads, at, base: PAGE.rotate(heads, at, 50 * base),
    "exponent": lambda heads, at, base: PAGE.rotate(heads, at, base**0.5),
    "direction": lambda heads, at, base: PAGE.rotate(heads, -at, base),
}


@pytest.mark.parametrize("name", [*SHIFT, *SWAP, *NEITHER])
def test_which_probe_finds_which_mistake(name, monkeypatch):
    code = p.page_code(SLUG, "order")
    attention = code.attention.double()
    monkeypatch.setitem(type(attention).forward.__globals__, "rotate", (SHIFT | SWAP | NEITHER)[name])
    outputs = attention(code.inputs.double())
    shifted = (attention(code.inputs.double(), start=100) - outputs).abs().max()
    swapped = (outputs[0, -1] - outputs[1, -1]).abs().max()
    assert (shifted > 1e-3) == (name in SHIFT) == (shifted > 1e-9)
    assert (swapped < 1e-9) == (name in SWAP)


def test_the_shift_finds_queries_rotated_alone_and_values_that_do_not_show_in_scores():
    q, k, v = torch.randn(3, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def context(shift, rotated):
        at = torch.arange(5) + shift
        parts = [PAGE.rotate(part, at) if name in rotated else part for name, part in (("q", q), ("k", k), ("v", v))]
        return F.scaled_dot_product_attention(*parts, is_causal=True)

    torch.testing.assert_close(context(100, "qk"), context(0, "qk"))
    for wrong in "q", "qkv":
        assert (context(100, wrong) - context(0, wrong)).abs().max() > 0.1


# -- the class, and from one layout to the other -------------------------------------------------


def test_without_a_base_it_has_the_numbers_of_many_heads():
    many = p.page_code("foundations/many-heads", "book-wide")
    torch.testing.assert_close(NEUTRAL.attention(NEUTRAL.tokens[None]), many.attention(many.inputs.view(1, 3, 6)))


def test_to_halves_is_the_permutation_of_transformers_and_the_solution_its_way_back():
    def prove(case):
        config = LlamaConfig(num_attention_heads=case.H, hidden_size=case.H * case.D)
        for rows in (case.randn(case.H * case.D, 3), case.randn(case.H * case.D)):
            theirs = PermuteForRope()._permute_for_rope(rows, config)
            assert torch.equal(PAGE.to_halves(rows, case.H), theirs)
            assert torch.equal(SOLUTION.back(theirs, case.H), rows)

    p.for_all(CASES, prove)


def test_rows_that_are_no_pairs_of_heads_raise():
    for rows, heads in (24, 5), (18, 2):
        with pytest.raises(ValueError, match=f"^{rows} rows are no pairs of {heads} heads$"):
            PAGE.to_halves(torch.arange(rows), heads)


def test_with_a_head_of_4_there_and_back_are_the_same():
    for D, same in (4, True), (6, False), (8, False):
        rows = torch.arange(3 * D)
        there = PAGE.to_halves(rows, 3)
        assert torch.equal(PAGE.to_halves(there, 3), rows) == same


# -- partial rotation ----------------------------------------------------------------------------


def test_the_default_part_is_a_quarter_in_gpt_neox_and_a_half_in_glm():
    assert GPTNeoXConfig().rope_parameters["partial_rotary_factor"] == 0.25
    assert GlmConfig().rope_parameters["partial_rotary_factor"] == 0.5


def test_rotate_part_is_that_of_gpt_neox():
    options = {"rope_theta": 1e4, "partial_rotary_factor": 0.25, "rope_type": "default"}
    config = GPTNeoXConfig(hidden_size=48, num_attention_heads=3, rope_parameters=options)
    heads, positions = torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(0)), torch.arange(5)
    table = modeling_gpt_neox.GPTNeoXRotaryEmbedding(config)(heads, positions[None])
    theirs = modeling_gpt_neox.apply_rotary_pos_emb(heads, heads, *table)[0]
    torch.testing.assert_close(PARTIAL.rotate_part(heads, positions, 4), theirs)


def test_proportional_speeds_are_counted_over_the_whole_head():
    options = {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
    speeds, _ = ROPE_INIT_FUNCTIONS["proportional"](LlamaConfig(head_dim=16, rope_parameters=options), "cpu")
    torch.testing.assert_close(speeds, torch.cat([1e4 ** -(torch.arange(0, 4, 2) / 16), torch.zeros(6)]))


# -- the claims of the page ----------------------------------------------------------------------


def test_torch_nn_has_no_rotary_function():
    names = [name.lower() for module in (torch, F, nn) for name in dir(module)]
    assert not [name for name in names if "rotary" in name or name == "rope"]


HALVES = modeling_llama, modeling_mistral, modeling_qwen3, modeling_gemma3, modeling_gpt_neox, modeling_phi
PAIRS = modeling_cohere, modeling_glm, modeling_ernie4_5


def test_each_of_these_models_rotates_halves_or_pairs_as_the_table_says():
    row = torch.arange(1.0, 9)
    for model in (*HALVES, modeling_glm4_moe):
        assert model.rotate_half(row).tolist() == [-5, -6, -7, -8, 1, 2, 3, 4]
    for model in PAIRS:
        assert model.rotate_half(row).tolist() == [-2, 1, -4, 3, -6, 5, -8, 7]
    assert GPTJConfig().rotary_dim == 64
    assert DeepseekV3Config().rope_interleave
    assert Mistral4Config().rope_interleave


def test_at_least_150_of_the_205_models_that_rotate_know_no_pairs():
    """`::2` also cuts other things, so a folder without it and without the other names has halves alone."""
    folders = [path for path in Path(transformers.models.__file__).parent.iterdir() if path.is_dir()]
    sources = ["".join(path.read_text() for path in folder.glob("modeling_*.py")) for folder in folders]
    rotate = [
        source for source in sources if re.search(r"def (rotate_half|rotate_every_two|apply_rotary)\w*\(", source)
    ]
    pairs = re.compile(r"::2\]|def rotate_every_two|view_as_complex|def apply_rotary_pos_emb_interleave")
    assert (len(rotate), sum(not pairs.search(source) for source in rotate) >= 150) == (205, True)


def test_a_model_in_bfloat16_rounds_speeds_in_a_buffer():
    rope = modeling_llama.LlamaRotaryEmbedding(LlamaConfig())
    before = rope.inv_freq.clone()
    assert (rope.bfloat16().inv_freq.float() != before).any()


# -- the exercise: answers that no machine thinks of ----------------------------------------------


def convert(state, num_heads, num_kv_heads, layers=("queries", "keys"), back=SOLUTION.back):
    """Right unless another argument says otherwise."""
    counts = {"queries": num_heads, "keys": num_kv_heads, "values": num_kv_heads, "output": 1}
    found = dict(state)
    for name, rows in state.items():
        layer = name.rpartition("to_")[2].split(".")[0]
        if layer in layers:
            found[name] = back(rows, counts[layer])
    return found


def through_lists(*given):
    return {name: torch.tensor(rows.tolist(), dtype=rows.dtype) for name, rows in convert(*given).items()}


RIGHT = {"copies of all": lambda *given: {name: rows.clone() for name, rows in convert(*given).items()}}
WRONG = {
    "through lists": through_lists,
    "the wrong way": lambda *given: convert(*given, back=PAGE.to_halves),
    "values, too": lambda *given: convert(*given, layers=["queries", "keys", "values"]),
    "keys by the heads of queries": lambda state, heads, _: convert(state, heads, heads),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_pairs", RIGHT, WRONG
