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
        angles = PAGE.rotation_angles(case.positions, case.D, case.base)
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
    """The angles alone are float32: with those given, the rotation is exact."""

    def prove(case):
        angles = PAGE.rotation_angles(case.positions[:, None], case.D, case.base)
        turns = torch.polar(torch.ones_like(angles.double()), angles.double())
        first, second = case.heads.chunk(2, dim=-1)
        turned = torch.complex(first, second) * turns
        p.close(
            PAGE.rotate(case.heads, case.positions[:, None], case.base), torch.cat([turned.real, turned.imag], -1), 1e-6
        )

    p.for_all(CASES, prove)


def test_the_angles_are_those_of_the_formula():
    def prove(case):
        angles = PAGE.rotation_angles(case.positions, case.D, case.base)
        assert angles.dtype == torch.float32
        assert torch.equal(PAGE.rotation_angles(case.positions.double(), case.D, case.base), angles)
        for k in range(case.D // 2):
            wanted = case.positions.double() * case.base ** (-2 * k / case.D)
            torch.testing.assert_close(angles[..., k].double(), wanted, rtol=1e-5, atol=0)

    p.for_all(CASES, prove)


@pytest.mark.parametrize("turn", ["rotate", "rotate_pairs"])
def test_a_rotation_keeps_lengths_position_0_and_the_dtype(turn):
    turn = getattr(PAGE, turn)

    def prove(case):
        turned = turn(case.heads, case.positions[:, None], case.base)
        p.close(turned.norm(dim=-1), case.heads.norm(dim=-1), 1e-6)
        assert torch.equal(turn(case.heads, torch.zeros(case.T)), case.heads)
        half = turn(case.heads.bfloat16(), case.positions[:, None], case.base)
        assert half.dtype == torch.bfloat16
        wanted = turn(case.heads.bfloat16().float(), case.positions[:, None], case.base)
        assert torch.equal(half, wanted.bfloat16()), "only the result is rounded"

    p.for_all(CASES, prove)


def test_an_odd_width_raises():
    with pytest.raises(ValueError, match=r"^a width of 5 cannot be split into pairs$"):
        PAGE.rotate(torch.ones(2, 5), torch.arange(2))


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
        angles = PAGE.rotation_angles(positions, heads.shape[-1], 10_000)
        first, second = heads.chunk(2, dim=-1)
        turned = first * angles.cos() - second * angles.sin(), second * angles.cos() - first * angles.sin()
        return torch.cat(turned, dim=-1)

    for turn in one_sign_wrong, PROBE.mixed:
        assert (PROBE.score(turn, 100) - PROBE.score(turn, 0)).abs().max() > 1


def test_float32_angles_are_why_a_shift_of_a_million_shows():
    def precise(heads, positions):
        angles = positions.double()[:, None] * 10_000 ** -(torch.arange(0, 16, 2).double() / 16)
        first, second = heads.double().chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    gap = (PROBE.score(precise, 1_000_000) - PROBE.score(precise, 0)).abs().max()
    assert gap < 1e-6 < 0.01 < (PROBE.score(PAGE.rotate, 1_000_000) - PROBE.score(PAGE.rotate, 0)).abs().max()


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


def test_the_class_is_that_of_llama():
    p.for_all(MODULES, lambda case: p.close(case.attention(case.inputs), llama(case), 1e-6))


def test_without_a_base_it_is_causal_attention_and_has_the_numbers_of_many_heads():
    many = p.page_code("foundations/many-heads", "book-wide")
    torch.testing.assert_close(NEUTRAL.attention(NEUTRAL.tokens[None]), many.attention(many.inputs.view(1, 3, 6)))

    def reference(case):
        state = case.attention.state_dict()
        roles = [
            F.linear(case.inputs, state[f"to_{role}.weight"], state.get(f"to_{role}.bias"))
            for role in ("queries", "keys", "values")
        ]
        heads = [torch.stack(role.chunk(case.H, dim=-1), dim=1) for role in roles]
        scores = torch.einsum("bhid,bhjd->bhij", *heads[:2]) / case.D**0.5
        future = torch.ones(case.T, case.T, dtype=torch.bool).triu(1)
        context = scores.masked_fill(future, -torch.inf).softmax(dim=-1) @ heads[2]
        joined = torch.cat(context.unbind(1), dim=-1)
        return F.linear(joined, state["to_output.weight"], state.get("to_output.bias"))

    def prove(case):
        case.attention.base = None
        p.close(case.attention(case.inputs), reference(case))

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
    for module in PAGE.Attention(12, 3, base=10_000.0), PAGE.PairAttention(12, 3, base=10_000.0):
        assert module.to("meta")(inputs).shape == (2, 5, 12)
    assert PARTIAL.rotate_part(inputs, torch.arange(5, device="meta"), 4).shape == (2, 5, 12)


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
        pairs = PAGE.PairAttention(case.E, case.H, base=case.base, bias=case.bias).double()
        state = pairs.state_dict()
        for layer, kind, rows in parameters(dict(state)):
            if layer in ("to_queries", "to_keys"):
                state[f"{layer}.{kind}"] = PAGE.to_halves(rows, case.H)
        case.attention.load_state_dict(state)
        p.close(case.attention(case.inputs), pairs(case.inputs), 1e-10)
        again = SOLUTION.to_pairs(state, case.H, case.H)
        assert all(torch.equal(again[name], rows) for name, rows in pairs.state_dict().items())

    p.for_all(MODULES, prove)


def test_with_a_head_of_4_there_and_back_are_the_same():
    for D, same in (4, True), (6, False), (8, False):
        rows = torch.arange(3 * D)
        there = PAGE.to_halves(rows, 3)
        assert torch.equal(PAGE.to_halves(there, 3), rows) == same


def test_twice_is_the_wrong_direction_with_heads_of_8():
    rows = torch.arange(24)
    twice = PAGE.to_halves(PAGE.to_halves(rows, 3), 3)
    assert torch.equal(twice, SOLUTION.to_pairs({"to_keys.bias": rows}, 1, 3)["to_keys.bias"])


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
    rotated = PARTIAL.rotation_angles(torch.ones(1), 16, 1e4)[0, :2]
    torch.testing.assert_close(frequencies, torch.cat([rotated, torch.zeros(6)]))


def test_without_an_axis_for_heads_each_head_takes_the_positions_of_another_text():
    heads, positions = torch.randn(3, 3, 5, 8, generator=torch.Generator().manual_seed(0)), torch.arange(15).view(3, 5)
    wanted = [PAGE.rotate(heads[:, head], positions[head]) for head in range(3)]
    torch.testing.assert_close(PAGE.rotate(heads, positions), torch.stack(wanted, dim=1))


@pytest.mark.parametrize("turn", ["rotate", "rotate_pairs"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rotations_compile_to_the_same_numbers_whatever_the_length(turn, dtype):
    turn = getattr(PAGE, turn)
    compiled = torch.compile(turn, backend="aot_eager", fullgraph=True, dynamic=True)
    for T in (0, 1, 6):
        heads = torch.randn(2, 3, T, 8, generator=torch.Generator().manual_seed(T)).to(dtype)
        assert torch.equal(compiled(heads, torch.arange(T)), turn(heads, torch.arange(T)))


# -- the claims of the page ----------------------------------------------------------------------


def test_torch_nn_has_no_rotary_function():
    assert not [
        name for module in (torch, F, nn) for name in dir(module) if "rotary" in name.lower() or name.lower() == "rope"
    ]


@pytest.mark.parametrize(("turn", "interleaved"), [(PAGE.rotate, False), (PAGE.rotate_pairs, True)])
def test_the_operator_for_onnx_runs_without_an_export_in_both_layouts(turn, interleaved):
    def prove(case):
        angles = PAGE.rotation_angles(case.positions, case.D, case.base)
        turned = torch.onnx.ops.rotary_embedding(
            case.heads.float(), angles.cos(), angles.sin(), interleaved=interleaved
        )
        p.close(turn(case.heads.float(), case.positions[:, None], case.base), turned, 1e-5)

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


def test_the_exponent_over_D_is_the_square_root_of_the_base():
    wrong = 10_000.0 ** -(torch.arange(4) / 8)
    torch.testing.assert_close(PAGE.rotation_angles(torch.ones(1), 8, 100.0)[0], wrong)


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
