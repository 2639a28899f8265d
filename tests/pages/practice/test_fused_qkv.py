"""Fused QKV: layers of transformers with our parameters, each in its own layout, and rows read in a wrong order."""

import copy
import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    FalconConfig,
    GPT2Config,
    GPT2Model,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    WhisperConfig,
)
from transformers.models.falcon.modeling_falcon import FalconAttention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.gpt_bigcode.modeling_gpt_bigcode import GPTBigCodeAttention
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.mistral.modeling_mistral import MistralAttention
from transformers.models.phi3.modeling_phi3 import Phi3Attention
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention
from transformers.models.whisper.modeling_whisper import WhisperAttention

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "practice/fused-qkv"
PAGE, PROBE, SOLUTION, BERT, UNFUSE, HEADS, MERGE = (
    executed(SLUG, cell)[0] for cell in ("fuse", "probe", "solution", "bert", "stages", "starcoder", "merge")
)
LAYOUTS = "blocks", "heads", "conv1d"

# -- the module ------------------------------------------------------------------------------------


def test_a_head_may_have_a_width_of_its_own():
    attention, inputs = PAGE.FusedAttention(10, 3, 4).double(), torch.randn(2, 5, 10, dtype=torch.float64)
    matrices, biases = attention.to_qkv.weight.view(3, 3, 4, 10), attention.to_qkv.bias.view(3, 1, 3, 1, 4)
    context = F.scaled_dot_product_attention(*(torch.einsum("rhde,bte->rbhtd", matrices, inputs) + biases))
    outputs = torch.einsum("bhtd,ehd->bte", context, attention.to_output.weight.view(10, 3, 4))
    p.close(attention(inputs), outputs + attention.to_output.bias)


# -- layers of transformers --------------------------------------------------------------------------


def loaded(theirs, convert, case, fused, output, layout):
    """A module of transformers with our parameters, in its own layout."""
    qkv, out = case.attention.to_qkv, case.attention.to_output
    rows = "heads" if layout == "heads" else "blocks"
    state = {
        f"{fused}.weight": convert(qkv.weight, case.H, "blocks", layout),
        f"{fused}.bias": convert(qkv.bias[:, None], case.H, "blocks", rows)[:, 0],
        f"{output}.weight": out.weight.T if layout == "conv1d" else out.weight,
        f"{output}.bias": out.bias,
    }
    theirs.load_state_dict(state, strict=False)
    return theirs.double().eval()


def gpt2(case, convert):
    config = GPT2Config(n_embd=case.E, n_head=case.H, attn_implementation="eager")
    attention = loaded(GPT2Attention(config, layer_idx=0).double(), convert, case, "c_attn", "c_proj", "conv1d")
    hidden = torch.ones(case.T, case.T).triu(1).double() * -1e30
    return attention(case.inputs, attention_mask=hidden[None, None] if case.attention.causal else None)


def gpt_neox(case, convert):
    """The rotation of angle 0 turns nothing."""
    config = GPTNeoXConfig(hidden_size=case.E, num_attention_heads=case.H, attn_implementation="eager")
    theirs = GPTNeoXAttention(config, layer_idx=0).double()
    attention = loaded(theirs, convert, case, "query_key_value", "dense", "heads")
    attention.rotary_ndims = 2 * (case.D // 2)
    angles = torch.zeros(case.B, case.T, attention.rotary_ndims, dtype=torch.float64)
    return attention(case.inputs, None, position_embeddings=(angles.cos(), angles.sin()))


@pytest.mark.parametrize(("theirs", "tolerance"), [(gpt2, 1e-9), (gpt_neox, 1e-6)])
def test_once_its_rows_are_converted_a_layer_of_transformers_gives_the_same(theirs, tolerance):
    for H, D in ((2, 3), (3, 2), (5, 4)):
        case = p.seeded({"B": 3, "T": 5, "H": H, "D": D, "E": H * D, "seed": H})
        p.seed_modules(H)
        case.attention, case.inputs = PAGE.FusedAttention(case.E, H).double(), case.randn(3, 5, case.E)
        outputs, weights = theirs(case, SOLUTION.convert_qkv)
        p.close(case.attention(case.inputs), outputs, tolerance)
        p.close(PROBE.weights_of(case.attention, case.inputs), weights, tolerance)
        if theirs is not gpt2:
            assert (theirs(case, lambda weight, *_: weight)[0] - outputs).abs().max() > 1e-2


def test_the_layers_of_the_table_have_these_shapes():
    """GPT-2 alone stores (in, out); Phi-3 has fewer rows for keys and for values."""
    with torch.device("meta"):
        gpt2, ours = GPT2Attention(GPT2Config(), 0), PAGE.FusedAttention(768, 12)
        bigcode = GPTBigCodeAttention(GPTBigCodeConfig(), layer_idx=0).c_attn
        phi3 = Phi3Attention(Phi3Config(hidden_size=12, num_attention_heads=4, num_key_value_heads=2), 0).qkv_proj
    assert gpt2.c_attn.weight.shape == (768, 2304)
    assert isinstance(bigcode, nn.Linear)
    assert bigcode.weight.shape[1] == 768
    assert phi3.weight.shape == (12 + 6 + 6, 12)
    counts = [sum(tensor.numel() for tensor in module.parameters()) for module in (ours, gpt2)]
    assert counts == [4 * 768**2 + 4 * 768] * 2 == [2362368] * 2


def test_all_layers_of_bert_are_joined_and_cut_again():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=9, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16)
    bert = BertModel(config).eval()
    state, inputs = bert.state_dict(), torch.randn(2, 5, 12)
    joined = BERT.fuse(state, BERT.parts, "attention.to_qkv")
    assert len(state) - len(joined) == 2 * 4
    for number, layer in enumerate(bert.encoder.layer):
        ours, start = PAGE.FusedAttention(12, 3), f"encoder.layer.{number}.attention.to_qkv."
        ours.to_qkv.load_state_dict({key: joined[start + key] for key in ("weight", "bias")})
        ours.to_output.load_state_dict(layer.attention.output.dense.state_dict())
        p.close(ours(inputs), layer.attention.output.dense(layer.attention.self(inputs)[0]), 1e-5)
    cut = UNFUSE.unfuse(joined, "attention.to_qkv", BERT.parts, [12, 12, 12])
    fused = {tensor.data_ptr() for name, tensor in joined.items() if "to_qkv" in name}
    assert not fused & {tensor.data_ptr() for tensor in cut.values()}, "each part is a tensor of its own"
    assert all(torch.equal(cut.pop(name), tensor) for name, tensor in state.items())
    assert not cut


def test_the_causal_mask_of_an_old_gpt2_is_no_parameter_of_this_one():
    model = GPT2Model(GPT2Config(n_embd=8, n_head=2, n_layer=1, vocab_size=9))
    state = model.state_dict()
    assert not [name for name in state if name.endswith((".attn.bias", ".attn.masked_bias"))]
    old = {"h.0.attn.bias": torch.ones(1, 1, 5, 5).tril(), "h.0.attn.masked_bias": torch.tensor(-10000.0)}
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) .* "h.0.attn.bias", "h.0.attn.masked_bias"'):
        model.load_state_dict({**state, **old})


def test_shards_of_any_number_of_devices_are_merged_and_the_bias_of_the_output_once():
    p.seed_modules(2)
    ours, inputs = PAGE.FusedAttention(12, 4).double(), torch.randn(2, 5, 12, dtype=torch.float64)
    for devices in (1, 2, 4):
        for whole in ours.to_qkv.parameters():
            by_heads = whole.view(3, 4, 3, -1).chunk(devices, dim=1)
            shards = [roles.flatten(0, 2).view(-1, *whole.shape[1:]) for roles in by_heads]
            assert torch.equal(MERGE.merge(shards), whole)
            assert torch.equal(torch.cat(shards), whole) == (devices == 1)
            stored = SOLUTION.convert_qkv(whole.view(36, -1), 4, "blocks", "heads")
            assert torch.equal(torch.cat(stored.chunk(devices)), stored), "per head a slice is a range of heads"
        parts = zip(ours.to_output.weight.chunk(devices, dim=1), inputs.chunk(devices, dim=2))
        p.close(sum(part @ weight.T for weight, part in parts) + ours.to_output.bias, ours.to_output(inputs), 1e-9)


def test_a_missing_name_is_an_error_or_with_strict_false_nothing():
    ours, state = PAGE.FusedAttention(8, 2), PAGE.FusedAttention(8, 2).state_dict()
    loose = {name: tensor for name, tensor in state.items() if "qkv" not in name}
    with pytest.raises(RuntimeError, match=re.escape('Missing key(s) in state_dict: "to_qkv.weight", "to_qkv.bias"')):
        ours.load_state_dict(loose)
    assert ours.load_state_dict(loose, strict=False).missing_keys == ["to_qkv.weight", "to_qkv.bias"]


def test_falcon_stores_its_rows_group_by_group():
    config = FalconConfig(hidden_size=12, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True)
    rows = torch.arange(24.0).view(2, 4, 3)
    found = FalconAttention(config, layer_idx=0)._split_heads(rows.view(1, 1, 24))
    wanted = rows[:, :-2].flatten(0, 1), rows[:, -2].repeat_interleave(2, 0), rows[:, -1].repeat_interleave(2, 0)
    assert all(torch.equal(one.squeeze(), other) for one, other in zip(found, wanted))


def test_models_leave_out_these_biases():
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "num_key_value_heads": 3}
    whisper = WhisperAttention(12, 3, config=WhisperConfig())
    mistral, qwen = MistralAttention(MistralConfig(**sizes), 0), Qwen2Attention(Qwen2Config(**sizes), 0)
    for attention, wanted in (whisper, [True, False, True]), (mistral, [False] * 3), (qwen, [True] * 3):
        assert [getattr(attention, f"{name}_proj").bias is not None for name in "qkv"] == wanted


def test_heads_are_repeated_in_a_bias_as_in_a_weight():
    bias = torch.arange(20.0)
    rows = HEADS.to_multi_head(bias, 6, 2, 2)
    assert rows[12:24].tolist() == [12, 13] * 3 + [14, 15] * 3


def test_old_momentum_moves_a_row_whose_gradient_is_0():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight], weight_decay=0)
    for gradient in ([1.0, 1.0], [1.0, 0.0]):
        before, weight.grad = weight.detach().clone(), torch.tensor(gradient)
        optimizer.step()
    assert weight[1] < before[1]


# -- the probe -------------------------------------------------------------------------------------


@pytest.fixture
def attention():
    """The module of the page's cells, in float64, its parameters those of the same seed."""
    p.seed_modules(2)
    return PAGE.FusedAttention(PAGE.E, PAGE.H).double()


@pytest.fixture
def tokens():
    return PAGE.inputs.double()


def moved(attention, tokens, name, change):
    """Which heads have other attention weights after a parameter of `to_qkv` is changed, and the module then."""
    changed = copy.deepcopy(attention)
    with torch.no_grad():
        parameter = getattr(changed.to_qkv, name)
        parameter.copy_(change(parameter.clone()))
    difference = PROBE.weights_of(changed, tokens) - PROBE.weights_of(attention, tokens)
    return (difference.abs().amax(dim=(0, 2, 3)) > 1e-9).tolist(), changed


def test_a_bias_tells_the_queries_from_the_keys_and_the_values(attention, tokens):
    rows = torch.arange(3 * PAGE.E) // PAGE.D
    moves = [
        any(moved(attention, tokens, "bias", lambda bias, four=four: bias + (rows == four))[0]) for four in range(6)
    ]
    assert moves == [True, True, False, False, False, False]


@pytest.mark.parametrize(("layout", "moves"), [("blocks", [False, True]), ("heads", [True, False])])
def test_the_probe_tells_blocks_from_per_head(attention, tokens, layout, moves):
    """Rows 4 to 7: the queries of head 1 in blocks, the keys of head 0 per head."""

    def doubled(weight):
        stored = SOLUTION.convert_qkv(weight, PAGE.H, "blocks", layout).clone()
        stored[4:8] *= 2
        return SOLUTION.convert_qkv(stored, PAGE.H, layout, "blocks")

    assert moved(attention, tokens, "weight", doubled)[0] == moves


# -- biases, values and heads ----------------------------------------------------------------------


def test_with_dropout_on_the_weights_the_bias_of_the_values_does_not_pass_through():
    weights = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])
    dropped = weights * torch.tensor([[2.0, 0, 2], [0, 2, 0]])
    b = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(weights @ b.expand(3, 2), b.expand(2, 2))
    assert not torch.allclose(dropped @ b.expand(3, 2), b.expand(2, 2))


def test_with_rotary_positions_the_bias_of_the_keys_counts():
    def rotate(rows):
        angles = torch.arange(len(rows)).float()
        x, y = rows.unbind(-1)
        return torch.stack([x * angles.cos() - y * angles.sin(), x * angles.sin() + y * angles.cos()], dim=-1)

    queries, keys = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(0))
    b = torch.tensor([1.0, -2.0])
    weights = [(rotate(queries) @ rotate(rows).T).softmax(dim=-1) for rows in (keys, keys + b)]
    plain = [(queries @ rows.T).softmax(dim=-1) for rows in (keys, keys + b)]
    torch.testing.assert_close(*plain)
    assert (weights[0] - weights[1]).abs().max() > 0.1


# -- the exercise ----------------------------------------------------------------------------------


def layout_by_loops(weights, layout):
    """(3, H, D, E) as that layout stores it, row by row."""
    _, H, D, _ = weights.shape
    if layout == "heads":
        rows = [weights[role, head, d] for head, role, d in itertools.product(range(H), range(3), range(D))]
    else:
        rows = [weights[role, head, d] for role, head, d in itertools.product(range(3), range(H), range(D))]
    return torch.stack(rows, dim=1 if layout == "conv1d" else 0)


def test_the_solution_converts_every_layout_and_the_check_stores_each():
    def prove(case):
        weights = case.randn(3, case.H, case.D, case.E)
        for source, target in itertools.product(LAYOUTS, repeat=2):
            stored = SOLUTION.stored(weights, source)
            assert stored.is_contiguous(), "a checkpoint is"
            assert torch.equal(stored, layout_by_loops(weights, source))
            found = SOLUTION.convert_qkv(stored, case.H, source, target)
            assert torch.equal(found, layout_by_loops(weights, target))

    p.for_all(p.sizes(H=4, D=3, E=5), prove)


def test_the_solution_converts_a_bias_as_a_matrix_of_one_column():
    bias = torch.arange(60.0)
    found = SOLUTION.convert_qkv(bias[:, None], 4, "heads", "blocks")[:, 0]
    assert torch.equal(found, bias.view(4, 3, 5).transpose(0, 1).flatten())


@pytest.mark.parametrize("H", [2, 3, 4])
def test_converting_the_wrong_way_is_right_with_three_heads_only(H):
    weight = torch.arange(3.0 * H * 5 * 2).view(-1, 2)
    there = SOLUTION.convert_qkv(weight, H, "blocks", "heads")
    twice = SOLUTION.convert_qkv(there, H, "blocks", "heads")
    assert torch.equal(twice, weight) == (H == 3)


def by_index(weight, num_heads, source, target, swap=False, heads=None):
    """The rows by their numbers in blocks; `swap` reads per head as if the roles came first."""

    def order(layout):
        sizes = (num_heads, 3) if swap else (3, num_heads)
        blocks = torch.arange(len(rows)).view(*(sizes if layout == "heads" else (3, num_heads)), -1)
        return (blocks.transpose(0, 1) if layout == "heads" else blocks).flatten()

    num_heads = heads or num_heads
    rows = weight.T if source == "conv1d" else weight
    rows = rows[order(source).argsort()][order(target)]
    return rows.T if target == "conv1d" else rows


def in_place(weight, *others):
    found = by_index(weight, *others)
    return weight.copy_(found) if found.shape == weight.shape else found


RIGHT = {"rows by their numbers": by_index}
WRONG = {
    "the wrong way": lambda *given: by_index(*given, swap=True),
    "two heads whatever is said": lambda *given: by_index(*given, heads=2),
    "converted in place": in_place,
    "two layouts of three": lambda *given: given[0] if "conv1d" in given else by_index(*given),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_convert", RIGHT, WRONG


# -- changes of the solution that are as good ------------------------------------------------------

ACCEPTED = {
    "two names are never all three": ["if not {source, target} < {'blocks', 'heads', 'conv1d'}:"],
    "the exercise asks for nothing where a layout has another name": [
        "# if not {source, target} <= {'blocks', 'heads', 'conv1d'}:",
        "# raise ValueError(f'no such layout: {source} or {target}')",
    ],
}
SURVIVORS = {
    "an assignment takes a tensor apart along axis 0, as unbind(0) does": ["queries, keys, values = qkv"],
    "forward reads B, T and E in its shape comments alone": ["# B, T, E = inputs.shape"],
}
