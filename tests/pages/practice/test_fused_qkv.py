"""Fused QKV: the page's module against the sum over heads and transformers, and rows read in a wrong order."""

import copy
import itertools

import pytest
import torch
from torch import nn
from transformers import BloomConfig, GPT2Config, GPTBigCodeConfig, GPTNeoXConfig, Phi3Config, WhisperConfig
from transformers.models.bloom.modeling_bloom import BloomAttention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.gpt_bigcode.modeling_gpt_bigcode import GPTBigCodeAttention
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.phi3.modeling_phi3 import Phi3Attention
from transformers.models.whisper.modeling_whisper import WhisperAttention

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "practice/fused-qkv"
PAGE, PROBE, SOLUTION = (p.page_code(SLUG, cell) for cell in ("reduce", "probe", "solution"))
SIZES = p.sizes(B=3, T=5, H=4, D=3, extra=(0, 2))
LAYOUTS = "blocks", "heads", "conv1d"

# -- the module, drawn ---------------------------------------------------------------------------


def with_module(case):
    """A module whose heads may have a width of their own: torch and transformers ask for `extra` 0."""
    p.seed_modules(case.seed)
    case.E = case.H * case.D + case.extra
    case.attention = PAGE.FusedAttention(case.E, case.H, case.D if case.extra else None).double()
    case.inputs = case.randn(case.B, case.T, case.E)
    return case


CASES = SIZES.map(with_module)


def a_few():
    drawn = [{"B": 3, "T": 5, "H": H, "D": D, "seed": H} for H, D in ((2, 3), (3, 2), (5, 4))]
    return [with_module(p.seeded(case | {"extra": 0})) for case in drawn]


# -- references ----------------------------------------------------------------------------------


def by_the_sum(case, is_causal=False):
    """One head at a time: rows of the weight by their number, and a sum over heads; outputs and weights."""
    qkv, output = case.attention.to_qkv, case.attention.to_output
    outputs, weights = output.bias, []
    future = torch.ones(case.T, case.T).triu(1) if is_causal else torch.zeros(case.T, case.T)
    for head in range(case.H):
        roles = []
        for role in range(3):
            start = (role * case.H + head) * case.D
            rows = range(start, start + case.D)
            roles.append(torch.stack([case.inputs @ qkv.weight[row] + qkv.bias[row] for row in rows], dim=-1))
        queries, keys, values = roles
        exponentials = torch.exp(torch.einsum("btd,bsd->bts", queries, keys) / case.D**0.5) * (1 - future)
        weights.append(exponentials / exponentials.sum(dim=-1, keepdim=True))
        W_output = output.weight[:, head * case.D : (head + 1) * case.D]
        outputs = outputs + torch.einsum("bts,bsd,ed->bte", weights[-1], values, W_output)
    return outputs, torch.stack(weights, dim=1)


def loaded(theirs, convert, case, fused, output, layout):
    """A module of transformers with our parameters, in its own layout."""
    theirs = theirs.double()
    qkv, out = case.attention.to_qkv, case.attention.to_output
    transpose = layout == "conv1d"
    rows = "heads" if layout == "heads" else "blocks"
    bias = convert(qkv.bias[:, None], case.H, "blocks", rows)[:, 0]
    with torch.no_grad():
        getattr(theirs, fused).weight.copy_(convert(qkv.weight, case.H, "blocks", layout))
        getattr(theirs, fused).bias.copy_(bias)
        getattr(theirs, output).weight.copy_(out.weight.T if transpose else out.weight)
        getattr(theirs, output).bias.copy_(out.bias)
    return theirs.eval()


def gpt2(case, convert):
    config = GPT2Config(n_embd=case.E, n_head=case.H, attn_implementation="eager")
    attention = loaded(GPT2Attention(config, layer_idx=0), convert, case, "c_attn", "c_proj", "conv1d")
    return attention(case.inputs)


def gpt_neox(case, convert):
    """The rotation of angle 0 turns nothing."""
    config = GPTNeoXConfig(hidden_size=case.E, num_attention_heads=case.H, attn_implementation="eager")
    attention = loaded(GPTNeoXAttention(config, layer_idx=0), convert, case, "query_key_value", "dense", "heads")
    attention.rotary_ndims = 2 * (case.D // 2)
    angles = torch.zeros(case.B, case.T, attention.rotary_ndims, dtype=torch.float64)
    return attention(case.inputs, None, position_embeddings=(angles.cos(), angles.sin()))


def bloom(case, convert):
    """A bias of 0 in place of ALiBi, and a residual of 0; its softmax runs in float32."""
    config = BloomConfig(hidden_size=case.E, n_head=case.H)
    attention = loaded(BloomAttention(config, layer_idx=0), convert, case, "query_key_value", "dense", "heads")
    alibi = torch.zeros(case.B * case.H, 1, case.T, dtype=torch.float64)
    return attention(case.inputs, torch.zeros_like(case.inputs), alibi, None)


@pytest.mark.parametrize(("theirs", "tolerance"), [(gpt2, 1e-9), (gpt_neox, 1e-6), (bloom, 1e-6)])
def test_the_module_gives_what_transformers_gives_once_the_rows_are_converted(theirs, tolerance):
    for case in a_few():
        outputs, weights = theirs(case, SOLUTION.convert_qkv)
        p.close(case.attention(case.inputs), outputs, tolerance)
        p.close(PROBE.weights_of(case.attention, case.inputs), weights, tolerance)


@pytest.mark.parametrize("theirs", [gpt_neox, bloom])
def test_without_conversion_transformers_gives_something_else(theirs):
    case = a_few()[0]
    assert (theirs(case, lambda weight, *_: weight)[0] - case.attention(case.inputs)).abs().max() > 1e-2


# -- what holds for the modules ------------------------------------------------------------------


@pytest.mark.parametrize("is_causal", [False, True])
def test_outputs_and_gradients_are_those_of_the_sum_over_heads(is_causal):
    def ours(case):
        return case.attention(case.inputs, is_causal=is_causal)

    def theirs(case):
        return by_the_sum(case, is_causal)[0]

    p.equals_reference(ours, theirs, CASES)
    p.gradients_equal(ours, theirs, lambda case: [case.inputs, *case.attention.parameters()], CASES)


def test_without_being_asked_no_module_hides_the_future():
    case = a_few()[0]
    p.close(case.attention(case.inputs), by_the_sum(case)[0])
    separate = PAGE.MultiHeadAttention(case.E, case.H).double()
    p.close(separate(case.inputs), separate(case.inputs, is_causal=False))


def test_the_weights_of_the_probe_are_those_of_the_sum():
    p.equals_reference(
        lambda case: PROBE.weights_of(case.attention, case.inputs), lambda case: by_the_sum(case)[1], CASES
    )


@pytest.mark.parametrize("is_causal", [False, True])
def test_three_layers_with_the_parts_of_one_are_the_fused_module(is_causal):
    for case in a_few():
        separate = PAGE.MultiHeadAttention(case.E, case.H).double()
        parts = zip(case.attention.to_qkv.weight.chunk(3), case.attention.to_qkv.bias.chunk(3), strict=True)
        for layer, (weight, bias) in zip((separate.to_queries, separate.to_keys, separate.to_values), parts):
            layer.load_state_dict({"weight": weight, "bias": bias})
        separate.to_output = case.attention.to_output
        p.close(separate(case.inputs, is_causal=is_causal), case.attention(case.inputs, is_causal=is_causal))


def test_a_call_changes_nothing():
    p.stateless(lambda case: (case.attention, [case.inputs], [-case.inputs]), CASES)


def test_large_scores_stay_finite():
    p.finite_rows(lambda case: case.attention(1e4 * case.inputs), CASES)


def test_the_width_of_a_head_is_E_over_H_unless_given():
    assert PAGE.FusedAttention(12, 3).head_dim == 4
    assert PAGE.FusedAttention(10, 3, 5).to_qkv.weight.shape == (45, 10)
    assert PAGE.FusedAttention(10, 3, 5).to_output.weight.shape == (10, 15)


@pytest.mark.parametrize("module", [PAGE.FusedAttention, PAGE.MultiHeadAttention])
def test_heads_that_cannot_share_the_width_raise(module):
    with pytest.raises(ValueError, match=r"^3 heads cannot share 10$"):
        module(10, 3)


def test_both_modules_take_an_empty_batch_and_no_tokens():
    for module in PAGE.FusedAttention(8, 2), PAGE.MultiHeadAttention(8, 2):
        for shape in ((0, 5, 8), (3, 0, 8)):
            assert module(torch.ones(shape)).shape == shape


def test_what_a_reader_takes_home_runs_on_another_device():
    inputs = torch.ones(2, 5, 8, device="meta")
    for module in PAGE.FusedAttention(8, 4), PAGE.MultiHeadAttention(8, 4):
        assert module.to("meta")(inputs, is_causal=True).shape == (2, 5, 8)
    weight = torch.ones(24, 8, device="meta")
    assert SOLUTION.convert_qkv(weight, 4, "heads", "conv1d").shape == (8, 24)


# -- the converter of the solution -----------------------------------------------------------------


def layout_by_loops(weights, layout):
    """(3, H, D, E) as that layout stores it, row by row."""
    _, H, D, _ = weights.shape
    if layout == "heads":
        rows = [weights[role, head, d] for head, role, d in itertools.product(range(H), range(3), range(D))]
    else:
        rows = [weights[role, head, d] for role, head, d in itertools.product(range(3), range(H), range(D))]
    return torch.stack(rows, dim=1 if layout == "conv1d" else 0)


def test_the_solution_converts_every_layout_into_every_other():
    def prove(case):
        weights = case.randn(3, case.H, case.D, case.H * case.D + case.extra)
        for source, target in itertools.product(LAYOUTS, repeat=2):
            given = layout_by_loops(weights, source)
            found = SOLUTION.convert_qkv(given, case.H, source, target)
            assert torch.equal(found, layout_by_loops(weights, target))

    p.for_all(SIZES, prove)


@pytest.mark.parametrize("pair", [("Conv1D", "blocks"), ("blocks", "per head")])
def test_the_solution_refuses_a_layout_that_it_does_not_know(pair):
    with pytest.raises(ValueError, match="no such layout"):
        SOLUTION.convert_qkv(torch.ones(12, 12), 2, *pair)


def test_the_solution_converts_a_bias_as_a_matrix_of_one_column():
    for H in (2, 4):
        bias = torch.arange(3.0 * H * 5)
        found = SOLUTION.convert_qkv(bias[:, None], H, "heads", "blocks")[:, 0]
        assert torch.equal(found, bias.view(H, 3, 5).transpose(0, 1).flatten())


def test_the_check_stores_each_layout_as_the_loops_do():
    def prove(case):
        weights = case.randn(3, case.H, case.D, case.H * case.D + case.extra)
        for layout in LAYOUTS:
            found = SOLUTION.stored(weights, layout)
            assert torch.equal(found, layout_by_loops(weights, layout))
            assert found.is_contiguous(), "a checkpoint is"

    p.for_all(SIZES, prove)


# -- the claims of the page ----------------------------------------------------------------------


@pytest.fixture
def attention():
    """The module of the page's cells, in float64, its parameters those of the same seed."""
    p.seed_modules(2)
    return PAGE.FusedAttention(PAGE.E, PAGE.H).double()


@pytest.fixture
def tokens():
    return PAGE.inputs.double()


def test_doubled_value_rows_move_no_weight_by_even_one_bit(attention, tokens):
    doubled = copy.deepcopy(attention)
    with torch.no_grad():
        doubled.to_qkv.weight[2 * PAGE.E :] *= 2
    assert torch.equal(PROBE.weights_of(attention, tokens), PROBE.weights_of(doubled, tokens))
    assert not torch.allclose(attention(tokens), doubled(tokens))


def test_a_bias_tells_the_queries_from_the_keys_and_the_values(attention, tokens):
    moves = []
    for start in range(0, 3 * PAGE.E, PAGE.D):
        changed = copy.deepcopy(attention)
        with torch.no_grad():
            changed.to_qkv.bias[start : start + PAGE.D] += 1
        change = PROBE.weights_of(changed, tokens) - PROBE.weights_of(attention, tokens)
        moves.append(bool(change.abs().max() > 1e-9))
    assert moves == [True, True, False, False, False, False]


@pytest.mark.parametrize(("layout", "moves"), [("blocks", [False, True]), ("heads", [True, False])])
def test_the_probe_tells_blocks_from_per_head(attention, tokens, layout, moves):
    """Rows 4 to 7: the queries of head 1 in blocks, the keys of head 0 per head."""
    stored = SOLUTION.convert_qkv(attention.to_qkv.weight.detach(), PAGE.H, "blocks", layout).clone()
    stored[4:8] *= 2
    changed = copy.deepcopy(attention)
    with torch.no_grad():
        changed.to_qkv.weight.copy_(SOLUTION.convert_qkv(stored, PAGE.H, layout, "blocks"))
    change = PROBE.weights_of(changed, tokens) - PROBE.weights_of(attention, tokens)
    assert [bool(change[:, head].abs().max() > 1e-9) for head in range(PAGE.H)] == moves


@pytest.mark.parametrize("H", [2, 3, 4])
def test_converting_the_wrong_way_is_right_with_three_heads_only(H):
    weight = torch.arange(3.0 * H * 5 * 2).view(-1, 2)
    there = SOLUTION.convert_qkv(weight, H, "blocks", "heads")
    twice = SOLUTION.convert_qkv(there, H, "blocks", "heads")
    assert torch.equal(twice, weight) == (H == 3)


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


def test_whisper_has_no_bias_on_its_keys_and_one_on_the_others():
    attention = WhisperAttention(12, 3, config=WhisperConfig())
    biases = [getattr(attention, name).bias is not None for name in ("q_proj", "k_proj", "v_proj", "out_proj")]
    assert biases == [True, False, True, True]


def test_the_layers_of_the_table_have_these_shapes():
    """GPT-2 alone stores (in, out); Phi-3 has fewer rows for keys and for values."""
    with torch.device("meta"):
        gpt2, bigcode = (
            GPT2Attention(GPT2Config(), 0).c_attn,
            GPTBigCodeAttention(GPTBigCodeConfig(), layer_idx=0).c_attn,
        )
        phi3 = Phi3Attention(Phi3Config(hidden_size=12, num_attention_heads=4, num_key_value_heads=2), 0).qkv_proj
    assert gpt2.weight.shape == (768, 2304)
    assert isinstance(bigcode, nn.Linear)
    assert bigcode.weight.shape[1] == 768
    assert phi3.weight.shape == (12 + 6 + 6, 12)


def test_at_the_width_of_gpt2_the_layer_has_as_many_parameters_as_that_of_gpt2():
    E = 768
    with torch.device("meta"):
        ours, theirs = PAGE.FusedAttention(E, 12), GPT2Attention(GPT2Config(), layer_idx=0)
    counts = [sum(tensor.numel() for tensor in module.parameters()) for module in (ours, theirs)]
    assert counts == [4 * E**2 + 4 * E] * 2 == [2362368] * 2


def test_values_and_output_of_a_head_could_be_one_matrix(attention, tokens):
    D, E = PAGE.D, PAGE.E
    W_value = attention.to_qkv.weight[2 * E : 2 * E + D].T
    W_output = attention.to_output.weight[:, :D].T
    weights = PROBE.weights_of(attention, tokens)[:, 0]
    p.close(weights @ (tokens @ W_value) @ W_output, weights @ tokens @ (W_value @ W_output))
    assert torch.linalg.matrix_rank(W_value @ W_output) == D


def test_heads_exchanged_in_both_layers_change_nothing(attention, tokens):
    swapped = copy.deepcopy(attention)
    rows = torch.arange(3 * PAGE.E).view(3, PAGE.H, PAGE.D).flip(1).flatten()
    columns = torch.arange(PAGE.E).view(PAGE.H, PAGE.D).flip(0).flatten()
    with torch.no_grad():
        swapped.to_qkv.weight.copy_(attention.to_qkv.weight[rows])
        swapped.to_qkv.bias.copy_(attention.to_qkv.bias[rows])
    half = swapped(tokens)
    with torch.no_grad():
        swapped.to_output.weight.copy_(attention.to_output.weight[:, columns])
    right = attention(tokens)
    assert (half - right).abs().max() > 0.1
    p.close(swapped(tokens), right)


# -- the exercise --------------------------------------------------------------------------------


def convert(weight, num_heads, source, target, read=None, write=None):
    """Right unless `read` or `write` say otherwise: from rows to (3, H, D, E), and back to rows."""
    rows = weight.T if source == "conv1d" else weight
    E = rows.shape[1]
    if source == "heads":
        parts = (read or (lambda r: r.reshape(num_heads, 3, -1, E).transpose(0, 1)))(rows)
    else:
        parts = rows.reshape(3, num_heads, -1, E)
    if target == "heads":
        parts = (write or (lambda q: q.transpose(0, 1)))(parts)
    rows = parts.flatten(0, 2)
    return rows.T if target == "conv1d" else rows


def order(length, num_heads, layout):
    """The number in blocks of each row of a layout."""
    blocks = torch.arange(length).view(3, num_heads, -1)
    return (blocks.transpose(0, 1) if layout == "heads" else blocks).flatten()


def by_index(weight, num_heads, source, target):
    rows = weight.T if source == "conv1d" else weight
    in_blocks = rows[order(len(rows), num_heads, source).argsort()]
    rows = in_blocks[order(len(rows), num_heads, target)]
    return rows.T if target == "conv1d" else rows


def in_place(weight, num_heads, source, target):
    found = convert(weight, num_heads, source, target).clone()
    weight.zero_()
    return found


def shuffled_in_place(weight, num_heads, source, target):
    found = convert(weight, num_heads, source, target).clone()
    return weight.copy_(found) if found.shape == weight.shape else found


def only_transposes(weight, num_heads, source, target):
    return weight.T if (source == "conv1d") != (target == "conv1d") else weight


def wrong_way(weight, num_heads, source, target):
    """Swaps as if (3, H) stood where (H, 3) stands."""
    if (source == "heads") == (target == "heads"):
        return convert(weight, num_heads, source, target)
    rows = weight.T if source == "conv1d" else weight
    sizes = (3, num_heads) if source == "heads" else (num_heads, 3)
    rows = rows.reshape(*sizes, -1, rows.shape[1]).transpose(0, 1).flatten(0, 2)
    return rows.T if target == "conv1d" else rows


def mixed(roles, end="target"):
    """The three roles in another order on the way out of blocks."""

    def answer(weight, num_heads, source, target):
        if source == target:
            return weight
        blocks = convert(weight, num_heads, source, "blocks")
        blocks = blocks.reshape(3, -1, blocks.shape[1])[list(roles)].flatten(0, 1)
        return convert(blocks, num_heads, "blocks", target)

    return answer


RIGHT = {
    "the solution's way": convert,
    "rows by their numbers": by_index,
    "contiguous": lambda w, h, s, t: by_index(w, h, s, t).contiguous(),
}
WRONG = {
    "nothing": lambda *_: None,
    "stops": lambda *_: 1 / 0,
    "a list": lambda *given: convert(*given).tolist(),
    "a numpy array": lambda *given: convert(*given).numpy(),
    "the weight as it is": lambda weight, *_: weight,
    "always transposed": lambda weight, *_: weight.T,
    "only transposes": only_transposes,
    "another dtype": lambda *given: convert(*given).double(),
    "always float32": lambda *given: convert(*given).float(),
    "from lists, so on the default device": lambda w, *given: torch.tensor(convert(w, *given).tolist(), dtype=w.dtype),
    "integers": lambda *given: convert(*given).long(),
    "one row short": lambda *given: convert(*given)[:-1],
    "with its parts apart": lambda weight, h, s, t: convert(weight, h, s, t).unflatten(0, (3, -1)),
    "the wrong way": wrong_way,
    "source and target exchanged": lambda w, h, s, t: convert(w, h, t, s),
    "per head read without the swap": lambda *g: convert(*g, read=lambda r: r.reshape(3, g[1], -1, r.shape[1])),
    "per head written without the swap": lambda *g: convert(*g, write=lambda parts: parts),
    "per head by single rows": lambda *g: convert(
        *g, read=lambda r: r.reshape(-1, 3, g[1], r.shape[1]).permute(1, 2, 0, 3)
    ),
    "roles innermost": lambda *g: convert(*g, write=lambda parts: parts.permute(1, 2, 0, 3)),
    "width of a head before the heads": lambda *g: convert(*g, write=lambda parts: parts.transpose(0, 2)),
    "heads reversed": lambda *g: convert(*g, write=lambda parts: parts.transpose(0, 1).flip(0)),
    "two heads whatever is said": lambda weight, h, s, t: convert(weight, 2, s, t),
    "heads of width 3": lambda weight, h, s, t: convert(weight, weight.shape[s == "conv1d"] // 9, s, t),
    "queries, values, keys": mixed((0, 2, 1)),
    "keys first": mixed((1, 0, 2)),
    "zeroes what it is given": in_place,
    "converts in place": shuffled_in_place,
    "transposes conv1d only on the way in": lambda w, h, s, t: convert(w, h, s, "blocks" if t == "conv1d" else t),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_convert", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "A tensor of three unpacks into the same three; `unbind` names what happens.": ["return qkv"],
}
ACCEPTED = {
    "two names are never all three": ["if not {source, target} < {'blocks', 'heads', 'conv1d'}:"],
    "the exercise asks for nothing where a layout has another name": [
        "# if not {source, target} <= {'blocks', 'heads', 'conv1d'}:",
        "# raise ValueError(f'no such layout: {source} or {target}')",
    ],
}
