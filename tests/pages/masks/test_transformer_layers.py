"""`nn.TransformerEncoder` and `nn.TransformerDecoder`: where masks go, and which code runs."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "masks/transformer-layers"
PAGE = p.page_code(SLUG, "probe")
SOURCE, TARGET = PAGE.source.cpu(), PAGE.target.cpu()
PADS = ~PAGE.source_is_real.cpu()
CAUSAL = ~torch.ones(5, 5, dtype=torch.bool, device="cpu").tril()

pytestmark = pytest.mark.filterwarnings("ignore:.*nested.tensor")
on_the_cpu = pytest.mark.usefixtures("on_the_cpu")


def encoder(nested=True, num_heads=2, **options):
    torch.manual_seed(1)
    return PAGE.make_encoder(12, num_heads, nested=nested, **options)


def decoder(**options):
    torch.manual_seed(1)
    return PAGE.make_decoder(12, 2, **options)


# -- the masks -----------------------------------------------------------------------------------

GOES_TO = {
    "src_key_padding_mask": ("encoder.layers.0.self_attn", "key_padding_mask", (3, 5)),
    "memory_key_padding_mask": ("decoder.layers.0.multihead_attn", "key_padding_mask", (3, 5)),
    "tgt_mask": ("decoder.layers.0.self_attn", "attn_mask", (4, 4)),
    "tgt_key_padding_mask": ("decoder.layers.0.self_attn", "key_padding_mask", (3, 4)),
    "src_mask": ("encoder.layers.0.self_attn", "attn_mask", (5, 5)),
    "memory_mask": ("decoder.layers.0.multihead_attn", "attn_mask", (4, 5)),
}


@on_the_cpu
@pytest.mark.parametrize("name", GOES_TO)
def test_each_mask_goes_where_the_table_says(name):
    part, argument, shape = GOES_TO[name]
    model, got = nn.Transformer(12, 2, 1, 1, 24, batch_first=True), {}
    for place, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            module.register_forward_pre_hook(lambda _, x, masks, at=place: got.update({at: masks}), with_kwargs=True)
    model(SOURCE, TARGET, **{name: torch.zeros(shape)})
    assert [(at, key) for at in got for key in got[at] if torch.is_tensor(got[at][key])] == [(part, argument)]


def test_a_padding_mask_has_the_batch_first_without_batch_first_too():
    stack = encoder(batch_first=False)
    stack(PAGE.source.transpose(0, 1), src_key_padding_mask=~PAGE.source_is_real)
    with pytest.raises(AssertionError, match="to be 3, but got 5"):
        stack(PAGE.source.transpose(0, 1), src_key_padding_mask=~PAGE.source_is_real.T)


def test_a_pad_that_is_nan_spreads_although_its_weight_is_0():
    source = torch.where(PAGE.source_is_real[..., None], PAGE.source, torch.nan)
    found = encoder()(source, src_key_padding_mask=~PAGE.source_is_real)
    assert found.isnan().any(dim=2).any(dim=1).tolist() == [False, True, True]


@pytest.mark.parametrize("lengths", [[3, 2, 2], [3, 3, 2], [3, 1, 2], [5, 3, 4]])
def test_the_probe_finds_each_mask_of_the_target_and_each_later_token(lengths):
    model, places = nn.Transformer(12, 2, 2, 2, 24, dropout=0.0, batch_first=True), torch.arange(5)
    for diagonal in (0, 1):
        masks = {"tgt_mask": places > places[:, None] + diagonal, "src_key_padding_mask": ~PAGE.source_is_real}
        masks["memory_key_padding_mask"] = places >= torch.tensor(lengths)[:, None]
        found = PAGE.find_mistakes(model, PAGE.source, torch.randn(3, 5, 12), PAGE.source_is_real, masks)
        assert [number > 0 for number in found] == [False, lengths != [5, 3, 4], diagonal == 1]


@on_the_cpu
@pytest.mark.parametrize("grad", [True, False])
def test_beside_a_padding_mask_both_masks_are_used_with_the_flag_and_without(grad):
    stack = encoder().train(grad)
    for mask, flag in (CAUSAL, None), (torch.zeros_like(CAUSAL), True):
        both = (mask | PADS[:, None]).repeat_interleave(2, dim=0)
        with torch.set_grad_enabled(grad):
            p.close(stack(SOURCE, mask, PADS, is_causal=flag)[~PADS], stack(SOURCE, both)[~PADS], 1e-5)


@on_the_cpu
def test_with_the_flag_a_mask_of_a_wrong_shape_raises_in_evaluation_alone():
    with torch.no_grad():
        assert torch.equal(encoder().eval()(SOURCE, is_causal=True), encoder().eval()(SOURCE))
    wide = nn.Transformer.generate_square_subsequent_mask(7)
    assert encoder()(SOURCE, wide, is_causal=True).isfinite().all()
    with torch.no_grad(), pytest.raises(RuntimeError, match=re.escape("shape '[1, 1, 5, 5]' is invalid for input")):
        encoder().eval()(SOURCE, wide, is_causal=True)


@pytest.mark.parametrize("name", ["tgt_is_causal", "memory_is_causal"])
def test_the_hints_of_the_decoder_need_a_mask_too(name):
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        decoder()(PAGE.target, PAGE.source, **{name: True})


def test_a_stack_finds_a_causal_mask_by_itself_and_a_layer_does_not(monkeypatch):
    seen, causal = [], nn.Transformer.generate_square_subsequent_mask(5)
    monkeypatch.setattr(
        nn.MultiheadAttention,
        "forward",
        lambda self, x, *_, is_causal=False, **__: (seen.append(is_causal), (x, None))[1],
    )
    for mask in (causal, causal.T, None):
        encoder()(PAGE.source, mask)
    encoder().layers[0](PAGE.source, causal)
    assert seen == [True, True, False, False, False, False, False]


# -- the paths -----------------------------------------------------------------------------------


def path(stack, *inputs, grad=False):
    """Which code an encoder runs: "nested", "fast" or "slow"."""
    with torch.set_grad_enabled(grad):
        names = p.operators_of(lambda: stack.eval()(*inputs))
    if "_transformer_encoder_layer_fwd" not in names:
        return "slow"
    return "nested" if "_nested_tensor_from_mask" in names else "fast"


@on_the_cpu
def test_the_conditions_of_the_paths_are_those_of_the_page():
    pairs = torch.zeros(5, 5, dtype=torch.bool)
    assert path(encoder(), SOURCE, None, PADS) == path(encoder(activation="gelu"), SOURCE, None, PADS) == "nested"
    fast = [(encoder(), None, PADS.flip(1)), (encoder(), pairs, PADS), (encoder(), pairs.float()), (encoder(),)]
    fast += [(encoder(nested=False), None, PADS), (encoder(norm_first=True), None, PADS)]
    assert {path(stack, SOURCE, *masks) for stack, *masks in fast} == {"fast"}
    slow = [encoder(**options) for options in ({"activation": torch.tanh}, {"bias": False}, {"batch_first": False})]
    slow += [encoder(num_heads=3), encoder(), encoder()]
    for other_eps, hooked in zip(slow[-2].layers, slow[-1].layers):
        other_eps.norm2.eps = 1e-6
        hooked.linear1.register_forward_hook(lambda *_: None)
    assert {path(stack, SOURCE) for stack in slow} == {path(encoder(), SOURCE, None, PADS, grad=True)} == {"slow"}


@on_the_cpu
def test_the_switch_turns_every_fast_path_off():
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert path(encoder(), SOURCE, None, PADS) == "slow"
        with torch.no_grad():
            assert "_native_multi_head_attention" not in p.operators_of(lambda: decoder().eval()(SOURCE, SOURCE))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@on_the_cpu
@torch.no_grad()
@pytest.mark.parametrize("fast", [True, False])
def test_a_hook_is_called_and_one_for_all_modules_or_another_forward_is_not(fast, monkeypatch):
    monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", fast)
    stack, hooked, seen = encoder().eval(), encoder().eval(), []
    attention = stack.layers[0].self_attn
    attention.forward = lambda x, *_, **__: (seen.append("mine"), (x, None))[1]
    for_all = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    stack(SOURCE)
    for_all.remove()
    assert (attention in seen, "mine" in seen) == (not fast, not fast)
    hooked.layers[0].self_attn.register_forward_hook(lambda module, given, result: seen.append(result))
    hooked.layers[0].self_attn.out_proj.register_forward_hook(lambda *_: 1 / 0)
    hooked(SOURCE, None, PADS)
    assert (seen[-1][0].is_nested, seen[-1][1]) == (fast, None)


@on_the_cpu
def test_a_nested_output_is_as_long_as_the_input_its_pads_a_final_bias():
    pads = PADS | (torch.arange(5) > 2)
    with torch.no_grad():
        stack = encoder().eval()
        stack.norm = nn.LayerNorm(12)
        nn.init.normal_(stack.norm.bias)
        assert torch.equal(stack(SOURCE, None, pads)[:, 3:], stack.norm.bias.expand(3, 2, 12))
        with pytest.raises(RuntimeError, match="at least one constituent tensor should have non-zero numel"):
            encoder().eval()(SOURCE, None, torch.ones_like(PADS))


@on_the_cpu
def test_the_fast_path_reads_a_bias_as_booleans_and_minus_infinity_is_fine(recwarn):
    bias, causal = torch.full((5, 5), -0.5), nn.Transformer.generate_square_subsequent_mask(5)
    right = encoder().eval()(SOURCE, causal)
    assert encoder().eval()(SOURCE, bias).isfinite().all()
    distances = (torch.arange(5.0) - torch.arange(5.0)[:, None]).abs().expand(6, 5, 5)
    with torch.no_grad():
        assert encoder().eval()(SOURCE, bias).isnan().all()
        assert torch.equal(encoder().eval()(SOURCE, distances), encoder().eval()(SOURCE, distances != 0))
        torch.testing.assert_close(encoder().eval()(SOURCE, causal), right)
    assert not [warning for warning in recwarn if "torch.bool" in str(warning.message)]


@on_the_cpu
def test_an_empty_row_of_the_target_makes_its_sentence_nan_in_eval():
    pads = torch.zeros(3, 4, dtype=torch.bool)
    pads[1, 0] = True
    masks = {"tgt_mask": ~PAGE.visible.cpu(), "tgt_key_padding_mask": pads}
    assert decoder()(TARGET, SOURCE, **masks).isfinite().all()
    with torch.no_grad():
        found = decoder().eval()(TARGET, SOURCE, **masks)
    assert found.isnan().all(dim=2).all(dim=1).tolist() == [False, True, False]


@on_the_cpu
@pytest.mark.parametrize("train", [True, False])
def test_a_sentence_of_pads_reads_its_pads_or_is_dropped(train):
    pads = PADS.clone()
    pads[1] = True
    stack, keep = encoder().train(train), ~pads.all(dim=1)
    with torch.set_grad_enabled(train):
        fixed = pads & ~pads.all(dim=1, keepdim=True)
        found = stack(SOURCE, src_key_padding_mask=fixed).masked_fill(pads[..., None], 0)
        dropped = stack(SOURCE[keep], src_key_padding_mask=pads[keep])
    assert found.isfinite().all()
    p.close(found[keep][~pads[keep]], dropped[~pads[keep]], 1e-5)
    assert (found[pads] == 0).all()


@on_the_cpu
@pytest.mark.parametrize("fast", [True, False])
def test_a_strict_export_without_gradients_keeps_the_native_call_unless_it_is_off(fast, monkeypatch):
    monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", fast)
    with torch.no_grad():
        program = torch.export.export(encoder().eval(), (SOURCE, None, PADS), strict=True)
    assert ("_transformer_encoder_layer_fwd" in str(program.graph)) == fast


def compiled(stack, **options):
    """A stack that is compiled, and its graphs, which fill up as it is called."""
    graphs = []
    torch.compiler.reset()
    return torch.compile(stack, backend=lambda graph, _: graphs.append(graph) or graph, **options), graphs


@on_the_cpu
def test_compiled_and_exported_encoders_do_not_nest():
    with torch.no_grad():
        stack = encoder().eval()
        assert (stack(SOURCE, None, PADS)[PADS] == 0).all()
        for other in (compiled(stack)[0], torch.export.export(stack, (SOURCE, None, PADS)).module()):
            assert (other(SOURCE, None, PADS)[PADS] != 0).all()


@on_the_cpu
def test_a_mask_without_the_flag_is_an_error_in_one_graph_and_else_not_compiled():
    stack, graphs = compiled(encoder())
    torch.testing.assert_close(stack(SOURCE, CAUSAL), encoder()(SOURCE, CAUSAL))
    assert graphs == []
    masks = {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADS}
    for call in (compiled(decoder(), fullgraph=True)[0], lambda *x, **y: torch.export.export(decoder(), x, y)):
        with pytest.raises(RuntimeError, match="Could not guard on data-dependent expression"):
            call(SOURCE, SOURCE, **masks)
        for flag in (True, False):
            call(SOURCE, SOURCE, **masks, tgt_is_causal=flag)


# -- the parameters and the sizes -------------------------------------------------------------------


def test_layers_are_copies_that_share_nothing_and_a_model_draws_their_matrices():
    layer = nn.TransformerEncoderLayer(12, 2, 24)
    assert layer not in [*nn.TransformerEncoder(layer, 2).layers]
    model = nn.Transformer(12, 2, 2, 2, 24, batch_first=True)
    for stack, drawn in (encoder(), False), (model.encoder, True), (model.decoder, True):
        one, other = (dict(layer.named_parameters()) for layer in stack.layers)
        assert all(torch.equal(one[name], other[name]) == (one[name].dim() == 1 or not drawn) for name in one)
        assert one["norm1.bias"] is not other["norm1.bias"]


def test_a_final_norm_is_needed_with_norm_first_and_dropped_without_an_error():
    layer, model = nn.TransformerEncoderLayer(12, 2, 24), nn.Transformer(12, 2, 1, 1, 24)
    for norm_first in (False, True):
        outputs = encoder(norm_first=norm_first, nested=False)(PAGE.source)
        assert torch.allclose(F.layer_norm(outputs, (12,)), outputs, atol=1e-4) != norm_first
    assert nn.TransformerEncoder(layer, 1).norm is None
    saved, model.encoder.norm = model.state_dict(), None
    model.load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r'Missing key.*"encoder.norm.weight", "encoder.norm.bias"'):
        nn.Transformer(12, 2, 1, 1, 24).load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"norm.weight", "norm.bias"'):
        nn.TransformerEncoder(layer, 1).load_state_dict(nn.TransformerEncoder(layer, 1, nn.LayerNorm(12)).state_dict())


def test_learned_queries_are_expanded_and_every_size_must_agree():
    queries, x, model = torch.randn(5, 8), torch.randn(2, 7, 8), nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    assert model(x, queries.expand(2, -1, -1)).shape == (2, 5, 8)
    first = nn.Transformer(8, 2, 1, 1, 16, batch_first=False)
    assert first(x.transpose(0, 1), queries.unsqueeze(1).expand(-1, 2, -1)).shape == (5, 2, 8)
    for call, inputs, text in (
        (model, (x, queries[None]), "the batch number of src and tgt must be equal"),
        (first, (x, x[:, :5]), "the batch number of src and tgt must be equal"),
        (model, (x[..., :6], x), "the feature number of src and tgt must be equal to d_model"),
        (model.decoder, (queries[None], x), "shape '[7, 2, 4]' is invalid for input of size 112"),
    ):
        with pytest.raises(RuntimeError, match=re.escape(text)):
            call(*inputs)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_one_feature_or_equal_rows_of_the_target_give_equal_outputs():
    single, model = nn.Transformer(1, 1, 1, 1, 4, batch_first=True), nn.Transformer(12, 2, 1, 1, 24, 0.0)
    assert (single(PAGE.source[..., :1], PAGE.target[..., :1]) == 0).all()
    outputs = model(PAGE.source, torch.zeros(4, 5, 12), tgt_mask=~PAGE.visible)
    p.close(outputs, outputs[:1].expand_as(outputs), 1e-5)


# -- the exercise --------------------------------------------------------------------------------


def by_and(attn_mask, key_padding_mask, num_heads):
    parts = []
    if attn_mask is not None:
        parts.append(attn_mask[None, None] if attn_mask.dim() == 2 else attn_mask.unflatten(0, (-1, num_heads)))
    if key_padding_mask is not None:
        parts.append(key_padding_mask[:, None, None])
    return ~(parts[0] | parts[-1]) if parts else None


def heads_first(attn_mask, key_padding_mask, num_heads):
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.unflatten(0, (num_heads, -1)).transpose(0, 1).flatten(0, 1)
    return by_and(attn_mask, key_padding_mask, num_heads)


WRONG = {
    "heads in the other order": heads_first,
    "a mask for nothing": lambda *given: torch.ones(1, 1, 1, 1).bool() if given[:2] == (None, None) else by_and(*given),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_sdpa", {"one or": by_and}, WRONG
