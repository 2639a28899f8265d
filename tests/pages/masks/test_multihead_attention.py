"""`nn.MultiheadAttention`: which of its three paths a call takes, what each returns, and what its arguments do."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import BaseTorchFunctionMode

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "masks/multihead-attention"
PAGE = p.page_code(SLUG, "equal")
X = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0), device="cpu")
CAUSAL = ~torch.ones(4, 4, dtype=torch.bool, device="cpu").tril()
EMPTY = torch.tensor([[False] * 4, [True] * 4], device="cpu")

on_the_cpu = pytest.mark.usefixtures("on_the_cpu")


def evaluated(E=8, H=2, **options):
    torch.manual_seed(0)
    return nn.MultiheadAttention(E, H, **({"batch_first": True} | options)).eval()


# -- which path a call takes ---------------------------------------------------------------------


def path(mha, x, grad=False, key=None, value=None, **options):
    with torch.set_grad_enabled(grad):
        names = p.operators_of(lambda: mha(x, x if key is None else key, x if value is None else value, **options))
    if "_native_multi_head_attention" in names:
        return "fast"
    return "sdpa" if any("scaled_dot_product" in name for name in names) else "weights"


@on_the_cpu
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_fast_path_comes_first_and_need_weights_decides_the_rest(need_weights):
    mha, other = evaluated(), "weights" if need_weights else "sdpa"
    assert path(mha, X, need_weights=need_weights) == "fast"
    assert path(mha, X, grad=True, need_weights=need_weights) == other
    assert path(mha.requires_grad_(False), X, grad=True, need_weights=need_weights) == "fast"
    assert path(mha.train(), X, need_weights=need_weights) == other


SLOW = {
    "another tensor object": ({}, {"key": X.view_as(X)}),
    "odd number of heads": ({"H": 1}, {}),
    "no bias": ({"bias": False}, {}),
    "time first": ({"batch_first": False}, {}),
    "a learned key": ({"add_bias_kv": True}, {}),
    "a key of zeros": ({"add_zero_attn": True}, {}),
    "another width": ({"kdim": 6, "vdim": 6}, {"key": X[..., :6], "value": X[..., :6]}),
    "a float mask": ({}, {"attn_mask": torch.zeros(4, 4, device="cpu")}),
    "a float padding mask": ({}, {"key_padding_mask": torch.zeros(2, 4, device="cpu")}),
}


@on_the_cpu
@pytest.mark.parametrize("condition", SLOW)
def test_each_condition_switches_the_fast_path_off(condition):
    made, given = SLOW[condition]
    assert path(evaluated(**made), X, **given) == "weights"
    assert path(evaluated(**made), X, need_weights=False, **given) == "sdpa"


@on_the_cpu
def test_two_axes_modes_devices_traces_and_the_switch_do_so_too():
    assert path(evaluated(), X[0]) == path(evaluated(device="meta"), X.to("meta")) == "weights"
    with torch.autocast("cpu"):  # the module asks for autocast on CUDA
        assert path(evaluated(), X) == "fast"
    with BaseTorchFunctionMode():
        assert path(evaluated(), X) == "weights"
    for change, back in (
        (lambda: torch.set_default_device("cpu"), lambda: torch.set_default_device(None)),
        (lambda: torch.backends.mha.set_fastpath_enabled(False), lambda: torch.backends.mha.set_fastpath_enabled(True)),
    ):
        try:
            change()
            assert path(evaluated(), X) == "weights"
        finally:
            back()
    with torch.no_grad():
        assert "native" not in make_fx(lambda x: evaluated()(x, x, x)[0])(X).code


@on_the_cpu
def test_torch_compile_leaves_the_fast_path_and_takes_a_padding_mask_in_one_graph():
    graphs, mha, pads = [], evaluated(), EMPTY.clone()
    pads[1, 0] = False
    torch.compiler.reset()
    compiled = torch.compile(mha, backend=lambda graph, _: graphs.append(graph.code) or graph, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X, X, X, key_padding_mask=pads), mha(X, X, X, key_padding_mask=pads))
    assert len(graphs) == 1
    assert "native" not in graphs[0]
    assert "multi_head_attention_forward" in graphs[0]


PATHS = {"weights": (True, True), "sdpa": (True, False), "fast": (False, True)}  # gradients, need_weights


def on(name, mha, **options):
    """What a path returns for X."""
    grad, need_weights = PATHS[name]
    with torch.set_grad_enabled(grad):
        return mha(X, X, X, need_weights=need_weights, **options)[0].detach()


@on_the_cpu
def test_where_a_key_is_visible_the_paths_agree_to_six_digits():
    pads = EMPTY.clone()
    pads[1, 0] = False
    fast, *others = (on(name, evaluated(), key_padding_mask=pads) for name in ("fast", "weights", "sdpa"))
    for other in others:
        torch.testing.assert_close(other, fast, rtol=1e-6, atol=1e-6)


@on_the_cpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_an_empty_sequence_is_nan_zero_nan_by_path_and_the_other_item_is_untouched(dtype):
    mha, x = evaluated(dtype=dtype), X.to(dtype)
    nn.init.constant_(mha.out_proj.bias, 0.5)
    for name, (grad, need_weights) in PATHS.items():
        with torch.set_grad_enabled(grad):
            found, _ = mha(x, x, x, key_padding_mask=EMPTY, need_weights=need_weights)
        assert found[0].isfinite().all()
        assert (found[1] == 0.5).all() if name == "sdpa" else found[1].isnan().all()


# -- is_causal -----------------------------------------------------------------------------------


@on_the_cpu
def test_the_flag_alone_is_an_error_or_on_the_fast_path_nothing():
    mha = evaluated()
    torch.testing.assert_close(on("fast", mha, is_causal=True), on("fast", mha))
    for name in ("weights", "sdpa"):
        with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
            on(name, mha, is_causal=True)


@on_the_cpu
@pytest.mark.parametrize("name", PATHS)
def test_beside_the_flag_the_sdpa_path_drops_the_mask_unless_there_are_pads(name):
    mha, nothing, no_pads = evaluated(), torch.zeros_like(CAUSAL), torch.zeros_like(EMPTY)
    flagged = on(name, mha, attn_mask=nothing, is_causal=True)
    torch.testing.assert_close(flagged, on(name, mha, attn_mask=CAUSAL) if name == "sdpa" else on(name, mha))
    torch.testing.assert_close(
        on(name, mha, attn_mask=nothing, key_padding_mask=no_pads, is_causal=True), on(name, mha)
    )


# -- arguments -----------------------------------------------------------------------------------


def test_without_batch_first_axis_0_attends_and_no_square_mask_shows_it():
    mha, x, mask = nn.MultiheadAttention(8, 2), torch.randn(5, 5, 8), torch.zeros(5, 5, dtype=torch.bool)
    columns = torch.stack([mha(x[:, t], x[:, t], x[:, t])[0] for t in range(5)], dim=1)
    torch.testing.assert_close(mha(x, x, x, mask, attn_mask=mask)[0], columns)


def test_sdpa_takes_one_mask_for_each_sentence_without_copies():
    heads, visible = torch.randn(3, 2, 5, 4), PAGE.is_real[:, None].expand(3, 5, 5)
    right = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=PAGE.is_real[:, None, None])
    torch.testing.assert_close(F.scaled_dot_product_attention(heads, heads, heads, attn_mask=visible[:, None]), right)


@on_the_cpu
def test_masks_of_two_dtypes_are_deprecated():
    mha, pads = evaluated(), torch.zeros(2, 4, dtype=torch.bool)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask is deprecated"):
        mha(X, X, X, key_padding_mask=pads, attn_mask=torch.zeros(4, 4))


def test_one_mask_for_each_sentence_without_copies_raises_the_error_of_the_page():
    text = "The shape of the 3D attn_mask is torch.Size([3, 5, 5]), but should be (6, 5, 5)."
    roles = [PAGE.inputs] * 3
    with pytest.raises(RuntimeError, match=re.escape(text)):
        nn.MultiheadAttention(8, 2, batch_first=True)(*roles, attn_mask=~PAGE.is_real[:, None].expand(3, 5, 5))
    assert all(text in (p.ROOT / f"docs/{language}/{SLUG}.md").read_text("utf-8") for language in p.languages(SLUG))


def test_shapes_and_defaults_are_those_of_the_tables():
    mha = nn.MultiheadAttention(8, 2, kdim=6, vdim=10, batch_first=True)
    queries, keys, values = torch.randn(3, 4, 8), torch.randn(3, 5, 6), torch.randn(3, 5, 10)
    found, weights = mha(queries, keys, values)
    assert (found.shape, weights.shape) == ((3, 4, 8), (3, 4, 5))
    _, heads = mha(queries, keys, values, average_attn_weights=False)
    torch.testing.assert_close(heads.mean(dim=1), weights)
    for bias in (torch.zeros(4, 5), torch.zeros(6, 4, 5)):
        torch.testing.assert_close(mha(queries, keys, values, attn_mask=bias)[0], found)
    assert (mha.in_proj_bias == 0).all()
    assert (mha.out_proj.bias == 0).all()
    with pytest.raises(AssertionError, match="embed_dim must be divisible by num_heads"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(AssertionError, match="was expecting embedding dimension of 8, but got 6"):
        mha(keys, keys, values)


def test_the_class_refuses_indivisible_widths_and_masks_of_another_shape():
    with pytest.raises(ValueError, match="3 heads do not divide 8"):
        PAGE.PlainAttention(8, 3)
    for shape in ((5, 5), (3, 1, 1, 5), (3, 4)):
        with pytest.raises(ValueError, match=r"is_real is .* not \(3, 5\)"):
            PAGE.PlainAttention(8, 2)(PAGE.inputs, torch.ones(shape, dtype=torch.bool))


def test_matrices_start_within_the_bounds_of_the_page():
    totals = {"in_proj": 256, "q_proj": 128, "k_proj": 112, "v_proj": 144, "out_proj": 384, "nn.Linear": 384}
    for name, parameter in p.page_code(SLUG, "widths").parameters.items():
        assert 0.99 < parameter.abs().max() / math.sqrt(6 / totals[name]) <= 1


@on_the_cpu
def test_a_key_of_zeros_adds_one_below_the_fraction_bar():
    plain, sink = evaluated(), evaluated(add_zero_attn=True)
    queries, keys, _ = F.linear(X, plain.in_proj_weight, plain.in_proj_bias).unflatten(-1, (3, 2, 4)).unbind(2)
    odds = (queries.transpose(1, 2) @ keys.transpose(1, 2).mT / 2).exp()
    _, weights = sink(X, X, X, average_attn_weights=False)
    torch.testing.assert_close(weights[..., :-1], odds / (1 + odds.sum(dim=-1, keepdim=True)))


@on_the_cpu
@pytest.mark.parametrize("option", ["add_zero_attn", "add_bias_kv"])
def test_with_an_extra_key_an_empty_sequence_is_finite_on_every_path(option):
    assert all(on(name, evaluated(**{option: True}), key_padding_mask=EMPTY).isfinite().all() for name in PATHS)


@pytest.mark.parametrize("option", ["add_zero_attn", "add_bias_kv"])
def test_the_causal_flag_hides_an_extra_key_where_sdpa_drops_the_mask(option):
    plain, extra = evaluated(), evaluated(**{option: True})
    extra.load_state_dict(plain.state_dict(), strict=False)
    without = plain(X, X, X, attn_mask=CAUSAL, need_weights=False)[0]
    for flag, hidden in ((True, True), (False, False)):
        found, _ = extra(X, X, X, attn_mask=CAUSAL, need_weights=False, is_causal=flag)
        assert torch.allclose(found, without, atol=1e-6) == hidden


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize_per_tensor")
@on_the_cpu
def test_dynamic_quantisation_of_linear_layers_leaves_the_module_in_float32():
    model = nn.Sequential(nn.Linear(8, 8), evaluated()).eval()
    linear, mha = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not isinstance(linear, nn.Linear)
    assert {parameter.dtype for parameter in mha.parameters()} == {torch.float32}
    assert len([*mha.parameters()]) == 4


# -- a blocked head, biases, and an attention of your own in a layer -------------------------------


@on_the_cpu
def test_a_blocked_head_adds_0_and_is_nan_again_on_the_fast_path():
    mha, mask = evaluated(), torch.tensor([[[False]], [[True]]] * 2).expand(4, 4, 4)
    silent, opened = (on("sdpa", mha, attn_mask=given) for given in (mask, torch.zeros_like(mask)))
    assert (silent - opened).abs().max() > 0.01
    assert on("fast", mha, attn_mask=mask).isnan().all()


@pytest.mark.parametrize("batch_first", [True, False])
def test_with_one_key_for_each_query_the_bias_of_the_queries_has_no_gradient(batch_first):
    mha = nn.MultiheadAttention(8, 2, batch_first=batch_first)
    mha(*[PAGE.inputs[:1]] * 3)[0].square().sum().backward()
    q, k, v = mha.in_proj_bias.grad.view(3, 8).abs().amax(dim=1)
    assert k < 1e-5 < v
    assert (q > 1e-3) == batch_first


class Unused(nn.MultiheadAttention):
    forward = None


class Block(nn.TransformerEncoderLayer):
    _sa_block = None


@on_the_cpu
@pytest.mark.parametrize("made", [nn.TransformerEncoderLayer, Block])
def test_the_fast_path_passes_over_a_subclass_and_a_block_of_your_own(made):
    layer = made(8, 2, 16, batch_first=True)
    layer.self_attn = evaluated() if made is Block else Unused(8, 2, batch_first=True)
    with torch.no_grad():
        assert layer.eval()(X).isfinite().all()
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        layer(X)


@on_the_cpu
def test_an_attention_of_your_own_takes_booleans_and_floats_and_needs_batch_first(monkeypatch):
    own, pads, seen = p.page_code(SLUG, "replaced").own, EMPTY & CAUSAL[0], []
    floats = [torch.zeros(mask.shape).masked_fill(mask, -torch.inf) for mask in (CAUSAL, pads)]
    torch.testing.assert_close(own(X, X, X, CAUSAL, pads), own(X, X, X, *floats))
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    layer.self_attn = own
    own.register_forward_pre_hook(lambda module, _, given: seen.append(given), with_kwargs=True)
    layer(X, X, tgt_mask=CAUSAL)
    assert (seen[0]["attn_mask"] is CAUSAL, seen[0]["need_weights"]) == (True, False)
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    monkeypatch.setattr(nn.TransformerEncoderLayer, "forward", lambda layer, x, **given: seen.append({*given}) or x)
    assert torch.equal(stack(X), X)
    assert seen[1] == {"src_mask", "is_causal", "src_key_padding_mask"}
    stack.layers[0].self_attn = own
    monkeypatch.delattr(type(own), "batch_first")
    with pytest.raises(AttributeError, match="no attribute 'batch_first'"):
        stack(X)


# -- the exercise --------------------------------------------------------------------------------


def piece_by_piece(mha, to_queries, to_keys, to_values, to_output):
    E, layers = mha.embed_dim, (to_queries, to_keys, to_values)
    with torch.no_grad():
        for r, (role, layer) in enumerate(zip("qkv", layers)):
            stacked = mha.in_proj_weight is not None
            part = mha.in_proj_weight[r * E : (r + 1) * E] if stacked else getattr(mha, f"{role}_proj_weight")
            part.copy_(layer.weight)
            if layer.bias is not None:
                mha.in_proj_bias[r * E : (r + 1) * E] = layer.bias
        mha.out_proj.load_state_dict(to_output.state_dict())


def shared(mha, *layers):
    piece_by_piece(mha, *layers)
    mha.out_proj = layers[3]


def frozen(mha, *layers):
    piece_by_piece(mha, *layers)
    mha.requires_grad_(False)


def without_the_bias_of_the_keys(mha, *layers):
    piece_by_piece(mha, *layers)
    if mha.in_proj_bias is not None:
        mha.in_proj_bias.data[mha.embed_dim : 2 * mha.embed_dim] = 0


WRONG = {"output shared": shared, "frozen": frozen, "bias of the keys lost": without_the_bias_of_the_keys}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_load_into", {"piece by piece": piece_by_piece}, WRONG
