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
from transformers.models.gptj import modeling_gptj
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
SIZES = p.sizes(B=3, T=7, H=4, D=5)
NAMES = {"to_queries": "q_proj", "to_keys": "k_proj", "to_values": "v_proj", "to_output": "o_proj"}


def with_heads(case):
    """Heads of even width, in float64, and positions of each text in any order."""
    case.D *= 2
    case.heads = case.randn(case.B, case.H, case.T, case.D)
    case.positions = torch.randint(1000, (case.B, case.T), generator=torch.Generator("cpu").manual_seed(case.seed)).to(
        case.heads.device
    )
    case.base = (10_000.0, 500_000.0, 100.0)[case.seed % 3]
    return case


CASES = SIZES.map(with_heads)


def angles_of(case, positions):
    """Position times b^(-2k/D), in float64."""
    speeds = [case.base ** (-2 * k / case.D) for k in range(case.D // 2)]
    return positions.double()[..., None] * torch.tensor(speeds, dtype=torch.float64)


def table(case, repeated):
    """cos and sin of transformers, each angle twice, by the frequencies of its own class."""
    config = LlamaConfig(
        head_dim=case.D, num_attention_heads=1, rope_parameters={"rope_type": "default", "rope_theta": case.base}
    )
    rope = modeling_llama.LlamaRotaryEmbedding(config).to(case.heads.device)
    cos, sin = rope(case.heads, case.positions)
    if repeated:
        cos, sin = (half[..., : case.D // 2].repeat_interleave(2, dim=-1) for half in (cos, sin))
    return cos, sin


# -- both layouts against transformers -----------------------------------------------------------


@pytest.mark.parametrize("model", [modeling_llama, modeling_mistral, modeling_qwen3, modeling_gemma3])
def test_rotate_is_that_of_the_models_of_the_table_in_halves(model):
    def reference(case):
        return model.apply_rotary_pos_emb(case.heads, case.heads, *table(case, repeated=False))[1]

    def ours(case):
        return PAGE.rotate(case.heads, case.positions[:, None], case.base)

    p.for_all(CASES, lambda case: p.close(ours(case), reference(case), 1e-4))


@pytest.mark.parametrize("model", [modeling_cohere, modeling_glm, modeling_ernie4_5])
def test_rotate_pairs_is_that_of_the_models_of_the_table_in_pairs(model):
    half_given = model is not modeling_cohere  # GLM and ERNIE take the angles as Llama makes them, and repeat them

    def reference(case):
        return model.apply_rotary_pos_emb(case.heads, case.heads, *table(case, repeated=not half_given))[0]

    def ours(case):
        return PAGE.rotate_pairs(case.heads, case.positions[:, None], case.base)

    p.for_all(CASES, lambda case: p.close(ours(case), reference(case).double(), 1e-4))


def test_rotate_pairs_is_that_of_gpt_j_in_its_own_axes():
    def prove(case):
        if case.base != 10_000:
            return
        sin, cos = modeling_gptj.create_sinusoidal_positions(1000, case.D)[case.positions].chunk(2, dim=-1)
        theirs = modeling_gptj.apply_rotary_pos_emb(case.heads.transpose(1, 2), sin, cos).transpose(1, 2)
        p.close(PAGE.rotate_pairs(case.heads, case.positions[:, None]), theirs, 1e-4)

    p.for_all(CASES, prove)


def test_rotate_pairs_is_the_complex_product_of_llama_4():
    def prove(case):
        angles = angles_of(case, case.positions).float()
        turns = torch.polar(torch.ones_like(angles), angles)
        heads = case.heads.float().transpose(1, 2)
        theirs = modeling_llama4.apply_rotary_emb(heads, heads, turns)[0].transpose(1, 2)
        p.close(PAGE.rotate_pairs(case.heads.float(), case.positions[:, None], case.base), theirs, 1e-4)

    p.for_all(CASES, prove)


def test_deepseek_v3_takes_pairs():
    def prove(case):
        queries, keys = case.heads, case.heads.flip(-1)
        theirs = modeling_deepseek_v3.apply_rotary_pos_emb_interleave(queries, keys, *table(case, repeated=False))
        ours = [PAGE.rotate_pairs(one, case.positions[:, None], case.base) for one in (queries, keys)]
        p.close(ours[0] @ ours[1].mT, theirs[0] @ theirs[1].mT, 1e-3)
        p.close(torch.cat([ours[0][..., ::2], ours[0][..., 1::2]], dim=-1), theirs[0], 1e-4)

    p.for_all(CASES, prove)


def test_both_layouts_turn_by_complex_numbers_in_float64():
    def prove(case):
        angles = angles_of(case, case.positions[:, None])
        turns = torch.polar(torch.ones_like(angles), angles)
        turned = torch.complex(*case.heads.chunk(2, dim=-1)) * turns
        ours = PAGE.rotate(case.heads, case.positions[:, None], case.base)
        p.close(ours, torch.cat([turned.real, turned.imag], -1), 1e-10)
        turned = torch.view_as_complex(case.heads.unflatten(-1, (-1, 2))) * turns
        ours = PAGE.rotate_pairs(case.heads, case.positions[:, None], case.base)
        p.close(ours, torch.view_as_real(turned).flatten(-2), 1e-10)

    p.for_all(CASES, prove)


@pytest.mark.parametrize("turn", ["rotate", "rotate_pairs"])
def test_a_rotation_keeps_lengths_position_0_and_the_dtype(turn):
    turn = getattr(PAGE, turn)

    def prove(case):
        turned = turn(case.heads, case.positions[:, None], case.base)
        p.close(turned.norm(dim=-1), case.heads.norm(dim=-1), 1e-6)
        assert torch.equal(turn(case.heads, torch.zeros(case.T)), case.heads)
        for dtype in (torch.float16, torch.bfloat16):
            half = turn(case.heads.to(dtype), case.positions[:, None], case.base)
            assert half.dtype == dtype
            wanted = turn(case.heads.to(dtype).float(), case.positions[:, None], case.base)
            assert torch.equal(half, wanted.to(dtype)), "only the result is rounded"

    p.for_all(CASES, prove)


def test_an_odd_width_raises():
    for turn in PAGE.rotate, PAGE.rotate_pairs:
        with pytest.raises(ValueError, match=r"^a head of width 5 cannot be split into pairs$"):
            turn(torch.ones(1, 1, 2, 5), torch.arange(2))


@pytest.mark.parametrize("shape", [(5,), (1,), (), (3, 2), (3, 4, 2), (1, 1, 2), (3, 1, 1)])
def test_positions_that_are_not_those_of_the_tokens_raise(shape):
    heads = torch.ones(3, 4, 2, 6)
    message = re.escape(f"positions must have the shape (2,) or (3, 1, 2), not {shape}")
    for turn in PAGE.rotate, PAGE.rotate_pairs:
        with pytest.raises(ValueError, match=f"^{message}$"):
            turn(heads, torch.zeros(shape))


def test_one_token_and_five_positions_raise():
    with pytest.raises(ValueError, match=r"\(1,\) or \(1, 1, 1\), not \(5,\)$"):
        PAGE.rotate(torch.ones(1, 1, 1, 6), torch.arange(5))


# -- a score depends on the distance alone -------------------------------------------------------


@pytest.mark.parametrize("turn", ["rotate", "rotate_pairs"])
def test_scores_stay_when_all_positions_shift(turn):
    turn = getattr(PAGE, turn)

    def scores(case, shift):
        at = case.positions[:, None] + shift
        return turn(case.heads, at, case.base) @ turn(case.heads.flip(1), at, case.base).mT

    p.for_all(CASES, lambda case: p.close(scores(case, 100), scores(case, 0), 0.05))


def test_the_probe_fails_for_a_broken_rotation():
    def one_sign_wrong(heads, positions):
        angles = positions[:, None] * 10_000 ** -(torch.arange(0, 16, 2) / 16)
        first, second = heads.chunk(2, dim=-1)
        turned = first * angles.cos() - second * angles.sin(), second * angles.cos() - first * angles.sin()
        return torch.cat(turned, dim=-1)

    for turn in one_sign_wrong, PROBE.mixed:
        assert (PROBE.scores(turn, 100) - PROBE.scores(turn, 0)).abs().max() > 1


def test_float32_angles_are_why_a_shift_of_a_million_shows():
    def precise(heads, positions):
        angles = positions.double()[:, None] * 10_000 ** -(torch.arange(0, 16, 2).double() / 16)
        first, second = heads.double().chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    gap = (PROBE.scores(precise, 1_000_000) - PROBE.scores(precise, 0)).abs().max()
    assert gap < 1e-6 < 0.01 < (PROBE.scores(PAGE.rotate, 1_000_000) - PROBE.scores(PAGE.rotate, 0)).abs().max()


# -- the class -----------------------------------------------------------------------------------


def with_class(case):
    p.seed_modules(case.seed)
    case.E = case.H * case.D
    case.bias = bool(case.seed % 2)
    case.attention = PAGE.Attention(case.E, case.H, base=case.base, bias=case.bias).double()
    case.inputs = case.randn(case.B, case.T, case.E)
    return case


MODULES = CASES.map(with_class)


def llama(case):
    """LlamaAttention with our parameters, and what it returns."""
    config = LlamaConfig(
        hidden_size=case.E,
        num_attention_heads=case.H,
        num_key_value_heads=case.H,
        attention_bias=case.bias,
        rope_parameters={"rope_type": "default", "rope_theta": case.base},
        attn_implementation="sdpa",
    )
    theirs = modeling_llama.LlamaAttention(config, layer_idx=0).to(case.inputs)
    theirs.load_state_dict(
        {f"{NAMES[layer]}.{kind}": rows for layer, kind, rows in parameters(case.attention.state_dict())}
    )
    places = torch.arange(case.T, device=case.inputs.device)[None].expand(case.B, -1)
    angles = modeling_llama.LlamaRotaryEmbedding(config).to(case.inputs.device)(case.inputs, places)
    return theirs(case.inputs, angles, None)[0]


def parameters(state):
    return [(*name.split("."), rows) for name, rows in state.items()]


def by_others(case, state, **rotation):
    """What torch's own functions make of the parameters of `Attention`, rotated by an operator of torch, or not."""
    roles = [
        F.linear(case.inputs, state[f"to_{role}.weight"], state.get(f"to_{role}.bias"))
        for role in ("queries", "keys", "values")
    ]
    queries, keys, values = (torch.stack(role.chunk(case.H, dim=-1), dim=1) for role in roles)
    if rotation:
        angles = angles_of(case, torch.arange(case.T)).expand(case.B, -1, -1)
        table = angles.cos(), angles.sin()
        queries, keys = (torch.onnx.ops.rotary_embedding(role, *table, **rotation) for role in (queries, keys))
    context = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    joined = torch.cat(context.unbind(1), dim=-1)
    return F.linear(joined, state["to_output.weight"], state.get("to_output.bias"))


def test_the_class_is_that_of_torch_and_its_operator_for_onnx():
    def prove(case):
        p.close(case.attention(case.inputs), by_others(case, case.attention.state_dict(), interleaved=False), 1e-10)

    p.for_all(MODULES, prove)


def test_the_class_is_that_of_llama():
    p.for_all(MODULES, lambda case: p.close(case.attention(case.inputs), llama(case), 1e-6))


def test_without_a_base_it_is_causal_attention_and_has_the_numbers_of_many_heads():
    many = p.page_code("foundations/many-heads", "book-wide")
    torch.testing.assert_close(NEUTRAL.attention(NEUTRAL.tokens[None]), many.attention(many.inputs.view(1, 3, 6)))

    def prove(case):
        case.attention.base = None
        p.close(case.attention(case.inputs), by_others(case, case.attention.state_dict()))

    p.for_all(MODULES, prove)


def test_a_row_depends_on_itself_and_earlier_tokens_exactly():
    def function(case):
        allowed = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: case.attention(tokens[None])[0], case.inputs[0], allowed

    p.reaches_exactly(function, MODULES)


def test_heads_that_do_not_divide_the_width_raise():
    with pytest.raises(ValueError, match=r"^3 heads do not divide 10$"):
        PAGE.Attention(10, 3)


def test_what_a_reader_takes_home_runs_on_another_device():
    inputs = torch.ones(2, 5, 12, device="meta")
    assert PAGE.Attention(12, 3, base=10_000.0).to("meta")(inputs).shape == (2, 5, 12)
    assert PARTIAL.rotate_part(inputs[None], torch.arange(5, device="meta"), 4).shape == (1, 2, 5, 12)


# -- from one layout to the other ----------------------------------------------------------------


def test_to_halves_is_the_permutation_of_transformers():
    def prove(case):
        config = LlamaConfig(num_attention_heads=case.H, hidden_size=case.H * case.D)
        for rows in (case.randn(case.H * case.D, 3), case.randn(case.H * case.D)):
            theirs = PermuteForRope()._permute_for_rope(rows, config)
            assert torch.equal(PAGE.to_halves(rows, case.H), theirs)
            back = SOLUTION.to_pairs({"to_keys.weight": theirs}, 7, case.H)["to_keys.weight"]
            assert torch.equal(back, rows)

    p.for_all(CASES, prove)


def test_permuted_weights_give_the_outputs_of_the_other_layout():
    def prove(case):
        stored = {name: rows.clone() for name, rows in case.attention.state_dict().items()}
        right = by_others(case, stored, interleaved=True)
        state = dict(stored)
        for layer, kind, rows in parameters(stored):
            if layer in ("to_queries", "to_keys"):
                state[f"{layer}.{kind}"] = PAGE.to_halves(rows, case.H)
        case.attention.load_state_dict(state)
        p.close(case.attention(case.inputs), right, 1e-10)
        again = SOLUTION.to_pairs(state, case.H, case.H)
        assert all(torch.equal(again[name], rows) for name, rows in stored.items())

    p.for_all(MODULES, prove)


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


@pytest.mark.parametrize(("model", "name"), [(modeling_gpt_neox, "GPTNeoX"), (modeling_phi, "Phi")])
def test_rotate_part_is_that_of_gpt_neox_and_phi(model, name):
    config = getattr(transformers, f"{name}Config")(
        hidden_size=48,
        num_attention_heads=3,
        rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.25, "rope_type": "default"},
    )
    rope = getattr(model, f"{name}RotaryEmbedding")(config)
    heads, places = torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(0)), torch.arange(5)
    cos, sin = rope(heads, places[None])
    width = cos.shape[-1]
    assert width == 4
    if model is modeling_gpt_neox:
        theirs = model.apply_rotary_pos_emb(heads, heads, cos, sin)[0]
    else:
        theirs = torch.cat(
            [model.apply_rotary_pos_emb(heads[..., :4], heads[..., :4], cos, sin)[0], heads[..., 4:]], -1
        )
    torch.testing.assert_close(PARTIAL.rotate_part(heads, places, 4), theirs)


def test_proportional_frequencies_are_counted_over_the_whole_head():
    config = LlamaConfig(
        head_dim=16,
        rope_parameters={"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
    )
    frequencies, _ = ROPE_INIT_FUNCTIONS["proportional"](config, "cpu")
    rotated = 1e4 ** -(torch.arange(0, 4, 2) / 16)
    torch.testing.assert_close(frequencies, torch.cat([rotated, torch.zeros(6)]))


@pytest.mark.parametrize("turn", ["rotate", "rotate_pairs"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rotations_compile_to_the_same_numbers_whatever_the_length(turn, dtype):
    turn = getattr(PAGE, turn)
    compiled = torch.compile(turn, backend="aot_eager", fullgraph=True, dynamic=True)
    for T in (0, 1, 6):
        heads = torch.randn(2, 3, T, 8, generator=torch.Generator().manual_seed(T)).to(dtype)
        assert torch.equal(compiled(heads, torch.arange(T)), turn(heads, torch.arange(T)))


def test_rotated_values_stay_hidden_in_scores_and_show_in_outputs():
    """What the page says of the probe of a whole model."""
    q, k, v = torch.randn(3, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def context(shift, rotated):
        at = torch.arange(5) + shift
        values = PAGE.rotate(v, at) if rotated else v
        return F.scaled_dot_product_attention(PAGE.rotate(q, at), PAGE.rotate(k, at), values, is_causal=True)

    torch.testing.assert_close(context(100, rotated=False), context(0, rotated=False))
    assert (context(100, rotated=True) - context(0, rotated=True)).abs().max() > 0.1


# -- the claims of the page ----------------------------------------------------------------------


def test_torch_nn_has_no_rotary_function():
    assert not [
        name for module in (torch, F, nn) for name in dir(module) if "rotary" in name.lower() or name.lower() == "rope"
    ]


@pytest.mark.parametrize(("turn", "interleaved"), [(PAGE.rotate, False), (PAGE.rotate_pairs, True)])
def test_the_operator_for_onnx_runs_without_an_export_in_both_layouts(turn, interleaved):
    def prove(case):
        angles = angles_of(case, case.positions)
        turned = torch.onnx.ops.rotary_embedding(case.heads, angles.cos(), angles.sin(), interleaved=interleaved)
        p.close(turn(case.heads, case.positions[:, None], case.base), turned, 1e-10)

    p.for_all(CASES, prove)


def test_each_of_these_models_rotates_halves_or_pairs_as_the_table_says():
    row = torch.arange(1.0, 9)
    for model in (
        modeling_llama,
        modeling_mistral,
        modeling_qwen3,
        modeling_gemma3,
        modeling_gpt_neox,
        modeling_phi,
        modeling_glm4_moe,
    ):
        assert model.rotate_half(row).tolist() == [-5, -6, -7, -8, 1, 2, 3, 4]
    for model in (modeling_cohere, modeling_glm, modeling_ernie4_5):
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


def test_a_model_in_bfloat16_rounds_frequencies_in_a_buffer():
    rope = modeling_llama.LlamaRotaryEmbedding(LlamaConfig())
    before = rope.inv_freq.clone()
    assert (rope.bfloat16().inv_freq.float() != before).any()


def test_near_a_million_float32_steps_by_a_sixteenth():
    million = torch.tensor(1e6)
    assert torch.nextafter(million, torch.tensor(torch.inf)) - million == 0.0625


# -- the exercise --------------------------------------------------------------------------------


def convert(
    state, num_heads, num_kv_heads, layers=("to_queries", "to_keys"), heads=None, back=None, kinds=("weight", "bias")
):
    """Right unless another argument says otherwise."""
    back = back or (lambda rows, count: rows.unflatten(0, (count, 2, -1)).transpose(1, 2).flatten(0, 2))
    counts = heads or {"to_queries": num_heads, "to_keys": num_kv_heads, "to_values": num_kv_heads, "to_output": 1}
    found = dict(state)
    for name, rows in state.items():
        layer, kind = name.split(".")[-2:]
        if layer in layers and kind in kinds:
            found[name] = back(rows, counts[layer])
    return found


def by_index(state, num_heads, num_kv_heads):
    found = {}
    for name, rows in state.items():
        count = num_heads if "queries" in name else num_kv_heads
        if "queries" in name or "keys" in name:
            D = len(rows) // count
            order = [h * D + d // 2 + d % 2 * (D // 2) for h in range(count) for d in range(D)]
            rows = rows[order]
        found[name] = rows
    return found


def in_place(state, *counts):
    found = convert(state, *counts)
    for name, rows in found.items():
        if not rows.is_meta:
            state[name].copy_(rows)
    return found


def renames(state, *counts):
    return {name.partition(".")[2]: rows for name, rows in convert(state, *counts).items()}


def one_layer(number):
    def convert_layer(state, *counts):
        return state | convert({name: rows for name, rows in state.items() if name.startswith(f"{number}.")}, *counts)

    return convert_layer


def takes_out(state, *counts):
    found = convert(state, *counts)
    for name in [name for name in state if "queries" in name]:
        del state[name]
    return found


def adds_names(state, *counts):
    found = convert(state, *counts)
    state["converted"] = True
    return found


def changed(change):
    return lambda *given: {name: change(name, rows) for name, rows in convert(*given).items()}


def order_of_pairs(order):
    return lambda *given: convert(
        *given, back=lambda rows, count: order(rows.unflatten(0, (count, 2, -1)).transpose(1, 2)).flatten(0, 2)
    )


RIGHT = {
    "the solution's way": convert,
    "rows by their numbers": by_index,
    "copies of all": changed(lambda name, rows: rows.clone()),
}
WRONG = {
    "nothing": lambda *_: None,
    "the state as it is": lambda state, *_: state,
    "stops": lambda *_: 1 / 0,
    "a list": lambda *given: list(convert(*given).items()),
    "lists in a dict": changed(lambda name, rows: rows if rows.is_meta else rows.tolist()),
    "renamed": renames,
    "only what it converts": lambda state, *c: {
        n: r for n, r in convert(state, *c).items() if "ies" in n or "key" in n
    },
    "another dtype": changed(lambda name, rows: rows.float()),
    "from lists": changed(lambda name, rows: torch.tensor(rows.tolist(), dtype=rows.dtype)),
    "transposed": changed(lambda name, rows: rows.mT if rows.ndim == 2 else rows),
    "always float64": changed(lambda name, rows: rows.double()),
    "in place": in_place,
    "takes names out": takes_out,
    "adds a name": adds_names,
    "layer 0 alone": one_layer(0),
    "layer 2 alone": one_layer(2),
    "the wrong way": lambda *given: convert(*given, back=PAGE.to_halves),
    "queries alone": lambda *given: convert(*given, layers=("to_queries",)),
    "keys alone": lambda *given: convert(*given, layers=("to_keys",)),
    "values, too": lambda *given: convert(*given, layers=("to_queries", "to_keys", "to_values")),
    "all four": lambda *given: convert(*given, layers=tuple(NAMES)),
    "weights alone": lambda *given: convert(*given, kinds=("weight",)),
    "biases alone": lambda *given: convert(*given, kinds=("bias",)),
    "over the whole width": lambda *given: convert(*given, heads={"to_queries": 1, "to_keys": 1}),
    "keys by the heads of queries": lambda s, h, _: convert(s, h, h),
    "queries by the heads of keys": lambda s, _, hkv: convert(s, hkv, hkv),
    "two heads whatever is said": lambda s, *_: convert(s, 2, 2),
    "the second of a pair first": order_of_pairs(lambda pairs: pairs.flip(2)),
    "keys with pairs reversed": lambda s, *c: (
        by_index(s, *c) | {n: r.flip(0) for n, r in convert(s, *c).items() if "keys" in n}
    ),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_pairs", RIGHT, WRONG
