"""Look inside: weights, maps and single heads from outside, against modules that return their weights."""

import copy
import inspect
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM
from transformers.integrations import flash_attention
from transformers.utils import logging

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "practice/look-inside"
PAGE = p.page_code(SLUG, "recorded")

# -- the layer, its weights and its heads, against MHA ---------------------------------------------


def build(case):
    """A layer of the page, two of them in a row, and MHA with the parameters of the first."""
    p.seed_modules(case.seed)
    case.E, case.causal = case.H * case.D, case.seed % 2 == 0
    case.layer = PAGE.Attention(case.E, case.H, case.causal).double()
    case.model = nn.Sequential(PAGE.Attention(case.E, case.H).double(), case.layer)
    case.inputs = case.randn(case.B, case.T, case.E)
    case.mha = nn.MultiheadAttention(case.E, case.H, batch_first=True, dtype=torch.float64)
    names = {"in_proj": case.layer.to_qkv, "out_proj": case.layer.to_output}
    joints = {"in_proj": "_", "out_proj": "."}
    case.mha.load_state_dict(
        {name + joints[name] + kind: tensor for name, one in names.items() for kind, tensor in one.state_dict().items()}
    )
    return case


CASES = p.sizes(B=2, H=3, T=5, D=3).map(build)


def theirs(case, inputs):
    hidden = torch.ones(case.T, case.T, dtype=torch.bool).triu(1) if case.causal else None
    return case.mha(inputs, inputs, inputs, attn_mask=hidden, average_attn_weights=False)


def test_the_layer_and_its_weights_are_those_of_mha():
    def prove(case):
        outputs, weights = theirs(case, case.inputs)
        p.close(case.layer(case.inputs), outputs)
        p.close(PAGE.weights_of(case.layer, case.inputs), weights.detach())

    p.for_all(CASES, prove)


def test_rows_are_rows_of_the_whole_map():
    def prove(case):
        whole = PAGE.weights_of(case.layer, case.inputs)
        for rows in ([-1], [0], slice(1, None), list(range(case.T))[::-1]):
            p.close(PAGE.weights_of(case.layer, case.inputs, rows), whole[:, :, rows])

    p.for_all(CASES, prove)


def test_one_row_without_brackets_is_one_row():
    for causal in (True, False):
        layer, inputs = PAGE.Attention(6, 2, causal), torch.randn(1, 4, 6)
        whole, call = PAGE.weights_of(layer, inputs), (layer.split(inputs), {"is_causal": causal})
        for row in (2, -1, torch.tensor(2)):
            torch.testing.assert_close(PAGE.weights_of(layer, inputs, row), whole[:, :, [row]])
            torch.testing.assert_close(PAGE.weights_of_call(*call, row), whole[:, :, [row]])


@torch.no_grad()
def test_scores_above_65504_give_the_weights_of_sdpa_in_float16():
    p.seed_modules(0)
    layer, inputs = PAGE.Attention(24, 3, causal=True).half(), 300 * torch.randn(2, 5, 24).half()
    queries, keys, values = layer.split(inputs)
    context = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    assert (queries @ keys.mT).isinf().any()
    for weights in (
        PAGE.weights_of(layer, inputs),
        PAGE.weights_of_call((queries, keys, values), {"is_causal": True}),
    ):
        torch.testing.assert_close(weights @ values, context, rtol=0.01, atol=1)


def test_an_empty_batch_stays_empty():
    layer, inputs = PAGE.Attention(6, 2), torch.zeros(0, 4, 6)
    assert layer(inputs).shape == (0, 4, 6)
    assert PAGE.weights_of(layer, inputs).shape == (0, 2, 4, 4)


def test_the_hook_catches_what_the_layer_is_given_and_goes():
    def prove(case):
        p.close(PAGE.inputs_of(case.layer, case.model, case.inputs), case.model[0](case.inputs).detach())
        assert not case.layer._forward_pre_hooks

    p.for_all(CASES, prove)


def test_the_hook_goes_after_an_error_and_nothing_requires_a_gradient():
    layer, inputs = PAGE.Attention(6, 2), torch.randn(1, 3, 6)
    assert not PAGE.inputs_of(layer, nn.Sequential(nn.Linear(6, 6), layer), inputs).requires_grad
    assert not PAGE.weights_of(layer, inputs).requires_grad
    with pytest.raises(RuntimeError):
        PAGE.inputs_of(layer, layer, inputs[..., :4])
    assert not layer._forward_pre_hooks


def test_the_hook_catches_what_the_layer_is_given_by_name():
    class Caller(nn.Module):
        def forward(self, tokens):
            return layer(inputs=tokens)

    layer, inputs = PAGE.Attention(6, 2), torch.randn(1, 4, 6)
    assert torch.equal(PAGE.inputs_of(layer, Caller(), tokens=inputs), inputs)


def test_keywords_in_any_order_give_the_argument_that_forward_names_first():
    class Layer(nn.Module):
        def forward(self, hidden, mask=None):
            return hidden

    class Caller(nn.Module):
        def forward(self, tokens):
            return layer(mask=torch.zeros(3), hidden=tokens)

    layer, inputs = Layer(), torch.randn(1, 4, 6)
    assert torch.equal(PAGE.inputs_of(layer, Caller(), inputs), inputs)


def test_a_layer_that_is_not_called_or_is_given_no_tensor_first_is_refused():
    class Chosen(nn.Module):
        def forward(self, number, inputs):
            return inputs

    class Caller(nn.Module):
        def forward(self, tokens):
            return chosen(3, tokens)

    chosen, inputs = Chosen(), torch.randn(1, 4, 6)
    with pytest.raises(ValueError, match=r"^the model does not call this layer$"):
        PAGE.inputs_of(nn.Identity(), Caller(), inputs)
    with pytest.raises(ValueError, match=r"^no tensor: the int 3$"):
        PAGE.inputs_of(chosen, Caller(), inputs)
    assert not chosen._forward_pre_hooks


def test_what_the_hook_has_caught_stays_when_the_model_writes_in_place():
    inputs = torch.ones(1, 2, 6)
    model = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    caught = PAGE.inputs_of(model[0], model, -inputs)
    assert torch.equal(caught, -inputs)


def test_a_removed_head_is_one_whose_columns_of_the_output_matrix_are_zero():
    def prove(case):
        before = case.layer(case.inputs)
        for head in range(case.H):
            without = copy.deepcopy(case.layer)
            without.to_output.weight.data[:, head * case.D : (head + 1) * case.D] = 0
            with PAGE.remove_heads(case.layer, head):
                p.close(case.layer(case.inputs), without(case.inputs))
        assert torch.equal(case.layer(case.inputs), before)

    p.for_all(CASES, prove)


def test_all_heads_removed_leave_the_bias():
    layer = PAGE.Attention(6, 3)
    with PAGE.remove_heads(layer, 0, 1, 2):
        assert torch.equal(layer(torch.randn(2, 4, 6)), layer.to_output.bias.expand(2, 4, 6))


@pytest.mark.parametrize("heads", [(3,), (-1,), (0, 3)])
def test_a_head_that_the_layer_does_not_have_is_refused(heads):
    layer = PAGE.Attention(6, 3)
    with pytest.raises(ValueError, match=rf"^no head {heads[-1]}: the 3 heads are 0 to 2$"):
        PAGE.remove_heads(layer, *heads)
    assert not layer.to_output._forward_pre_hooks


def test_an_error_leaves_no_hook_behind(monkeypatch):
    made = []

    def fail(model, tokens):
        made.append(model)
        raise ZeroDivisionError

    model, tokens = PAGE.train(steps=0), torch.zeros(1, 7, dtype=torch.long)
    monkeypatch.setattr(PAGE.Model, "forward", fail)
    for call in (lambda: PAGE.train(steps=1), lambda: PAGE.accuracy(model, tokens, None, without=(0, 1))):
        with pytest.raises(ZeroDivisionError):
            call()
        assert not made.pop().layers[1].to_output._forward_pre_hooks


def test_indivisible_widths_and_long_texts_are_refused():
    with pytest.raises(ValueError, match=r"^3 heads cannot share 8$"):
        PAGE.Attention(8, 3)
    with pytest.raises(ValueError, match=r"^8 tokens are too many$"):
        PAGE.Model(12, 7, 32, 2)(torch.zeros(1, 8, dtype=torch.long))


# -- a recorded call --------------------------------------------------------------------------------


def draw_call(case):
    groups, Tk = 1 + case.seed % 3, case.T + case.seed % 2
    case.roles = (
        case.randn(case.B, groups * case.H, case.T, case.D),
        *case.randn(2, case.B, case.H, Tk, case.D),
    )
    visible = torch.rand(case.B, 1, case.T, Tk, generator=torch.Generator().manual_seed(case.seed)) < 0.7
    visible[..., 0] = True
    masks = [None, visible, visible[:1, 0], torch.zeros(visible.shape).masked_fill(~visible, -torch.inf).double()]
    padding = visible[:, :, :1]
    kinds = [{"attn_mask": mask} for mask in (*masks, padding)] + [{"is_causal": True}]
    case.options = kinds[case.seed % len(kinds)] | ({"scale": 0.7} if case.seed % 4 == 0 else {})
    case.options |= {"enable_gqa": True} if groups > 1 else {}
    return case


def test_weights_of_a_call_times_the_values_are_what_sdpa_returns():
    def prove(case):
        queries, _, values = case.roles
        context = F.scaled_dot_product_attention(*case.roles, **case.options)
        values = values.repeat_interleave(queries.shape[1] // values.shape[1], dim=1)
        p.close(PAGE.weights_of_call(case.roles, case.options) @ values, context)
        p.close(PAGE.weights_of_call(case.roles, case.options, rows=[-1]) @ values, context[:, :, -1:])
        if "enable_gqa" not in case.options:
            places = [*case.roles, case.options.get("attn_mask"), 0.0, case.options.get("is_causal", False)]
            by_name = {name: case.options[name] for name in {"scale"} & case.options.keys()}
            p.close(PAGE.weights_of_call(places, by_name) @ values, context)

    p.for_all(p.sizes(B=2, H=2, T=4, D=3).map(draw_call), prove)


def test_a_call_by_names_with_a_scale_of_0():
    roles = dict(zip(("query", "key", "value"), torch.randn(3, 1, 2, 4, 3)))
    torch.testing.assert_close(PAGE.weights_of_call((), roles | {"scale": 0.0}), torch.full((1, 2, 4, 4), 0.25))


def test_a_causal_call_heeds_its_mask():
    roles, mask = torch.randn(3, 1, 2, 4, 3), torch.randn(4, 4)
    both = mask.masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), -torch.inf)
    weights = PAGE.weights_of_call((*roles, mask, 0.0, True), {})
    torch.testing.assert_close(weights, PAGE.weights_of_call((*roles, both), {}))


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_row_without_a_key_has_weights_of_0_as_in_sdpa(kind):
    roles, visible = torch.randn(3, 2, 3, 4, 5), torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
    visible[1, :, :3, :3] = False
    mask = visible if kind is torch.bool else torch.zeros(2, 1, 4, 4).masked_fill(~visible, -torch.inf)
    for causal in (False, True):
        weights = PAGE.weights_of_call((*roles, mask), {"is_causal": causal})
        torch.testing.assert_close(weights @ roles[2], F.scaled_dot_product_attention(*roles, mask))
        assert (weights[1, :, :3] == 0).all()
    assert PAGE.weights_of_call((*roles * torch.nan, mask), {})[0].isnan().all()


def test_a_call_without_an_axis_of_heads_is_refused():
    roles = torch.randn(3, 2, 4, 5)
    for given in (roles, (roles[0, None], *roles[1:]), (roles[0], *roles[1:, None])):
        with pytest.raises(ValueError, match=r"^3 axes, and not 4: \(B, H, T, D\)$"):
            PAGE.weights_of_call(given, {})
    weights = PAGE.weights_of_call(roles[:, :, None], {})[:, 0]
    torch.testing.assert_close(weights @ roles[2], F.scaled_dot_product_attention(*roles))


def test_a_recorded_call_keeps_no_graph():
    roles, bias = torch.randn(3, 1, 2, 4, 3, requires_grad=True), torch.zeros(4, 4, requires_grad=True)
    kept = PAGE.record_sdpa(lambda: F.scaled_dot_product_attention(*roles.exp(), attn_mask=bias.exp()))
    given, named = kept[0]
    tensors = [*given, *named.values()]
    assert [tensor.requires_grad for tensor in tensors] == [False] * 4
    torch.testing.assert_close(torch.stack(given), roles.detach().exp())
    assert named["attn_mask"].equal(torch.ones(4, 4))


def test_the_recorder_leaves_the_gradients_of_the_model():
    roles = torch.randn(3, 1, 2, 4, 3, requires_grad=True)
    (found,) = torch.autograd.grad(F.scaled_dot_product_attention(*roles).sum(), roles)
    results = []
    PAGE.record_sdpa(lambda: results.append(F.scaled_dot_product_attention(*roles)))
    torch.testing.assert_close(torch.autograd.grad(results[0].sum(), roles)[0], found)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 1, 1, 4), (3, 1, 4), (4, 1)])
def test_a_mask_of_one_row_or_one_column_is_that_of_each(shape):
    roles, mask = torch.randn(3, 2, 3, 4, 5), torch.randn(shape)
    whole = PAGE.weights_of_call((*roles, mask), {})
    context = F.scaled_dot_product_attention(*roles, mask.expand(2, 3, 4, 4))
    torch.testing.assert_close(whole @ roles[2], context)
    torch.testing.assert_close(PAGE.weights_of_call((*roles, mask), {}, [1, 3]), whole[:, :, [1, 3]])


def test_the_recorder_goes_even_after_an_error_and_changes_no_result():
    real, roles = F.scaled_dot_product_attention, torch.randn(3, 1, 2, 4, 3)
    results = []
    kept = PAGE.record_sdpa(lambda: results.append(F.scaled_dot_product_attention(*roles, is_causal=True)))
    assert F.scaled_dot_product_attention is real
    assert torch.equal(results[0], real(*roles, is_causal=True))
    assert kept[0][1] == {"is_causal": True}
    with pytest.raises(ZeroDivisionError):
        PAGE.record_sdpa(lambda: 1 / 0)
    assert F.scaled_dot_product_attention is real


# -- what the text says -------------------------------------------------------------------------------


def test_training_removes_the_heads_of_layer_1_in_turn():
    torch.manual_seed(3)
    model = PAGE.Model(12, 7, 32, 2).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(4):
        tokens, answers, _ = PAGE.make_texts(64)
        matrix = model.layers[1].to_output.weight.unflatten(1, (2, 16))
        kept = matrix * (torch.arange(2) != step % 2)[:, None]
        changed = {"layers.1.to_output.weight": kept.flatten(1)}
        logits = torch.func.functional_call(model, changed, (tokens,))
        loss = -logits[:, -1].log_softmax(dim=-1)[torch.arange(64), answers].mean()
        for parameter, gradient in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
            parameter.grad = gradient
        optimizer.step()
    for mine, theirs in zip(PAGE.train(steps=4).parameters(), model.parameters()):
        p.close(mine, theirs, 1e-9)


@torch.no_grad()
def test_the_probe_finds_a_forgotten_scale_mask_and_norm():
    p.seed_modules(0)
    layer, inputs = PAGE.Attention(24, 3, causal=True), 4 * torch.randn(2, 5, 24)
    queries, keys, values = layer.split(inputs)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    scores = (queries @ keys.mT / 8**0.5).masked_fill(hidden, -torch.inf)
    padding = torch.arange(5) == 0
    maps = {
        "right": scores.softmax(dim=-1),
        "scale": (scores * 8**0.5).softmax(dim=-1),
        "padding": scores[..., 1:, :].masked_fill(padding, -torch.inf).softmax(dim=-1),
        "norm": PAGE.weights_of(layer, F.layer_norm(inputs, (24,))),
    }
    gaps = {
        name: (layer.to_output((weights @ values).transpose(1, 2).flatten(2)) - layer(inputs)[:, -weights.shape[2] :])
        for name, weights in maps.items()
    }
    assert [name for name, gap in gaps.items() if gap.abs().max() < 1e-6] == ["right"]


@torch.no_grad()
def test_the_product_of_output_and_values_has_the_shape_of_a_map_and_is_none():
    layer, inputs = PAGE.Attention(24, 3), torch.randn(1, 7, 24)
    queries, keys, values = layer.split(inputs)
    product = F.scaled_dot_product_attention(queries, keys, values) @ values.mT
    weights = PAGE.weights_of(layer, inputs)
    assert product.shape == weights.shape
    assert not torch.allclose(product.sum(dim=-1), weights.sum(dim=-1), atol=0.1)


def test_with_the_identity_as_values_sdpa_returns_the_weights():
    layer, inputs = PAGE.Attention(24, 3), torch.randn(1, 7, 24)
    queries, keys, _ = layer.split(inputs)
    context = F.scaled_dot_product_attention(queries, keys, torch.eye(7).expand(1, 3, 7, 7))
    torch.testing.assert_close(context.detach(), PAGE.weights_of(layer, inputs))


def test_hooks_make_the_encoder_leave_its_fast_path():
    cell = executed(SLUG, "encoder")[0]
    assert not any(parameter.requires_grad for parameter in cell.encoder.parameters())
    assert not cell.encoder.training
    assert [each.sum(dim=-1).allclose(torch.ones(2, 4, 5)) for each in cell.maps[2:4]] == [True, True]


def test_peak_counts_what_is_held_at_once():
    def call():
        for _ in range(3):
            torch.ones(1000, 1000)

    assert 4e6 <= PAGE.peak(call) < 5e6
    assert PAGE.peak(lambda: None) == 0
    held = [torch.ones(1000)]
    assert PAGE.peak(held.clear) == 0


def test_peak_adds_up_no_bytes_of_two_devices(monkeypatch):
    """Ours moves 5, 7 and -5 bytes on one device, 9 on another and 6 on a third; in the file they lie in any order."""
    moves = [(4, 1, 0, -5), (1, 1, 0, 5), (2, 0, -1, 9), (3, 1, 0, 7), (2, 1, 1, 6)]
    keys = "Device Type", "Device Id", "Bytes"
    events = [{"name": "[memory]", "ts": ts, "args": dict(zip(keys, facts))} for ts, *facts in moves]

    class Run:
        __enter__ = __exit__ = lambda self, *_: self if not _ else None

        def export_chrome_trace(self, path):
            Path(path).write_text(json.dumps({"traceEvents": [{"name": "aten::empty"}, *events]}))

    monkeypatch.setitem(PAGE.peak.__globals__, "profile", lambda profile_memory: Run())
    assert PAGE.peak(lambda: None) == 12


def test_the_wrong_place_takes_numbers_from_every_head_and_leaves_most_of_the_one():
    cell = executed(SLUG, "ablate")[0]
    taken = [(term[..., 8:16].norm() / term.norm()).item() ** 2 for term in cell.terms]
    assert all(0.15 < share < 0.5 for share in taken)


def test_rollout_is_the_product_of_the_averaged_maps_with_the_residual():
    model = PAGE.Model(12, 7, 32, 2)
    tokens = torch.arange(10).view(2, 5)
    stream, maps = model.embed(tokens) + model.places.weight[:5], []
    for layer in model.layers:
        maps.append(PAGE.weights_of(layer, stream).mean(dim=1))
        stream = stream + layer(stream)
    first, second = (0.5 * each + 0.5 * torch.eye(5) for each in maps)
    torch.testing.assert_close(PAGE.rollout(model, tokens), torch.einsum("bij,bjk->bik", second, first)[:, -1])


def test_texts_ask_for_a_name_that_has_a_food():
    torch.manual_seed(0)
    tokens, answers, places = PAGE.make_texts(200)
    rows = torch.arange(200)
    assert torch.equal(tokens[rows, places], answers)
    assert torch.equal(tokens[rows, places - 1], tokens[:, -1])
    for part, lowest in ((tokens[:, 0:6:2], 0), (tokens[:, 1:6:2], 6)):
        assert ((lowest <= part) & (part < lowest + 6)).all()
        assert (part.sort(dim=1).values.diff(dim=1) > 0).all()
    assert places.unique().tolist() == [1, 3, 5]


def test_with_another_seed_each_head_of_layer_1_is_a_spare_of_the_other():
    model, texts = PAGE.train(seed=5), torch.arange(300)
    tokens, answers, places = PAGE.make_texts(300)
    layer = model.layers[1]
    weights = PAGE.weights_of(layer, PAGE.inputs_of(layer, model, tokens), rows=[-1])
    assert (weights[texts, :, 0, places].mean(dim=0) > 0.9).all()
    assert (torch.special.entr(weights).sum(dim=-1).mean(dim=0) < 0.3).all()
    right = [PAGE.accuracy(model, tokens, answers, without=heads) for heads in ((), [0], [1], [0, 1])]
    assert min(right[:3]) > 0.97
    assert right[3] < 0.6
    assert PAGE.accuracy(model, tokens, answers) == right[0]


def test_the_numbers_of_the_text_are_those_of_the_default_training():
    cell, printed = executed(SLUG, "heads")
    assert printed.endswith("accuracy without heads (0, 1) 0.34\n")
    assert (cell.score.sub(0.99).abs() < 0.005).all()


def test_before_training_a_row_is_spread_over_seven_tokens():
    model, tokens = PAGE.train(steps=0), PAGE.make_texts(100)[0]
    layer = model.layers[1]
    weights = PAGE.weights_of(layer, PAGE.inputs_of(layer, model, tokens), rows=[-1])
    assert 1.7 < torch.special.entr(weights).sum(dim=-1).mean() < math.log(7) < 1.95


# -- models of transformers, with random weights ------------------------------------------------------------


def llama(kind):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM._from_config(LlamaConfig(vocab_size=40, **sizes, **heads), attn_implementation=kind).eval()


def bert(kind):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = BertConfig(vocab_size=40, num_attention_heads=4, initializer_range=0.3, **sizes)
    return BertModel._from_config(config, attn_implementation=kind).eval()


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", [llama, bert])
@torch.no_grad()
def test_a_model_of_transformers_under_sdpa_gives_the_weights_of_eager(make, padded):
    ids = torch.arange(14).view(2, 7)
    mask = {"attention_mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2])} if padded else {}
    kept = PAGE.record_sdpa(lambda: make("sdpa")(ids, **mask))
    eager = make("eager")(ids, **mask, output_attentions=True).attentions
    assert len(kept) == len(eager) == 2
    for call, wanted in zip(kept, eager):
        torch.testing.assert_close(PAGE.weights_of_call(*call), wanted, rtol=0, atol=1e-6)
        torch.testing.assert_close(PAGE.weights_of_call(*call, rows=[4]), wanted[:, :, 4:5], rtol=0, atol=1e-6)


@torch.no_grad()
def test_under_sdpa_transformers_warns_or_raises_and_gives_no_weights():
    said, model = [], llama("sdpa")
    logger = logging.get_logger("transformers.integrations.sdpa_attention")
    logger.warning_once.__func__.cache_clear()
    logger.addFilter(lambda record: said.append(record.getMessage()))
    assert model(torch.arange(7)[None], output_attentions=True).attentions == ()
    logger.filters.clear()
    assert said[0].startswith("`sdpa` attention does not support `output_attentions=True`.")
    with pytest.raises(ValueError, match=r"^The `output_attentions` attribute is not supported when using the `attn_"):
        model.config.output_attentions = True
    assert "Flash Attention does not support `output_attentions=True`." in inspect.getsource(flash_attention)


@torch.no_grad()
def test_llama_calls_its_attention_by_keywords_and_its_projections_by_place():
    model, ids = llama("sdpa"), torch.arange(7)[None]
    layer = model.model.layers[0].self_attn
    with (
        layer.register_forward_pre_hook(lambda module, given: given[0]),
        pytest.raises(IndexError, match=r"^tuple index out of range$"),
    ):
        model(ids)
    inputs = PAGE.inputs_of(layer, model, input_ids=ids)
    assert torch.equal(inputs, PAGE.inputs_of(layer.q_proj, model, ids))
    assert inputs.shape == (1, 7, 32)


@torch.no_grad()
def test_bert_ignores_a_head_mask_and_obeys_a_hook_on_its_output_layer():
    model, ids = bert("sdpa"), torch.arange(7)[None]
    before = model(ids).last_hidden_state
    assert torch.equal(model(ids, head_mask=torch.zeros(2, 4)).last_hidden_state, before)
    dense = model.encoder.layer[0].attention.output.dense
    dense.register_forward_pre_hook(lambda module, given: torch.zeros_like(given[0]))
    assert not torch.allclose(model(ids).last_hidden_state, before, atol=1e-3)


@torch.no_grad()
def test_generate_returns_the_whole_prompt_and_then_one_row_for_each_token():
    steps = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    wanted = {"output_attentions": True, "return_dict_in_generate": True}
    made = llama("eager").generate(torch.arange(3, 10)[None], **steps, **wanted)
    assert [tuple(entry[0].shape) for entry in made.attentions] == [(1, 4, 7, 7), (1, 4, 1, 8), (1, 4, 1, 9)]


# -- the exercise ---------------------------------------------------------------------------------------


def context_of(layer, inputs, **options):
    return F.scaled_dot_product_attention(*layer.split(inputs), **({"is_causal": layer.causal} | options))


def merge(context, blocks):
    return torch.einsum("bhtd,ehd->bhte", context, blocks)


def blocks_of(layer):
    return layer.to_output.weight.unflatten(1, (layer.num_heads, -1))


def right(layer, inputs):
    return merge(context_of(layer, inputs), blocks_of(layer))


def with_weight(change):
    return lambda layer, inputs: merge(context_of(layer, inputs), change(layer))


def with_roles(change):
    def answer(layer, inputs):
        roles = change(*layer.split(inputs))
        return merge(F.scaled_dot_product_attention(*roles, is_causal=layer.causal), blocks_of(layer))

    return answer


def by_hand(layer, inputs, scale=None, causal=None, softmax=torch.softmax, fill=-torch.inf):
    queries, keys, values = layer.split(inputs)
    scores = queries @ keys.mT * (scale or queries.shape[-1] ** -0.5)
    if layer.causal if causal is None else causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), fill)
    return merge(softmax(scores, dim=-1) @ values, blocks_of(layer))


def by_zeros(layer, inputs):
    context, terms = context_of(layer, inputs), []
    for head in range(layer.num_heads):
        alone = torch.zeros_like(context)
        alone[:, head] = context[:, head]
        terms.append(alone.transpose(1, 2).flatten(2) @ layer.to_output.weight.T)
    return torch.stack(terms, dim=1)


def by_hooks(layer, inputs):
    terms = []
    for head in range(layer.num_heads):
        with PAGE.remove_heads(layer, head):
            terms.append(layer(inputs))
    return layer(inputs)[:, None] - torch.stack(terms, dim=1)


def leaves_a_hook(layer, inputs):
    kept = []
    layer.to_output.register_forward_pre_hook(lambda module, given: kept.append(given[0]))
    layer(inputs)
    return merge(kept[0].unflatten(-1, (layer.num_heads, -1)).transpose(1, 2), blocks_of(layer))


def doubles_its_inputs(layer, inputs):
    result = right(layer, inputs)
    inputs.data *= 2
    return result


def unstable(scores, dim):
    return scores.exp() / scores.exp().sum(dim, keepdim=True)


RIGHT = {
    "einsum": right,
    "the others set to zero": by_zeros,
    "by hooks": by_hooks,
    "by hand": by_hand,
    "a product of matrices": lambda layer, inputs: context_of(layer, inputs) @ blocks_of(layer).permute(1, 2, 0),
}
WRONG = {
    "nothing": lambda layer, inputs: None,
    "a list": lambda layer, inputs: list(right(layer, inputs)),
    "a tuple with weights": lambda layer, inputs: (right(layer, inputs), None),
    "the output": lambda layer, inputs: layer(inputs),
    "the output for each head": lambda layer, inputs: layer(inputs)[:, None].repeat(1, layer.num_heads, 1, 1),
    "the output in equal parts": lambda layer, inputs: (
        (layer(inputs) - layer.to_output.bias)[:, None].repeat(1, layer.num_heads, 1, 1) / layer.num_heads
    ),
    "slices of the output": lambda layer, inputs: torch.stack(
        [
            F.pad(part, (0, layer.to_output.in_features - part.shape[-1]))
            for part in layer(inputs).chunk(layer.num_heads, -1)
        ],
        dim=1,
    ),
    "the contexts": lambda layer, inputs: context_of(layer, inputs),
    "heads last": lambda layer, inputs: right(layer, inputs).transpose(1, 2),
    "summed": lambda layer, inputs: right(layer, inputs).sum(1),
    "kept sum": lambda layer, inputs: right(layer, inputs).sum(1, keepdim=True).expand(-1, layer.num_heads, -1, -1),
    "bias in each": lambda layer, inputs: right(layer, inputs) + layer.to_output.bias,
    "bias shared": lambda layer, inputs: right(layer, inputs) + layer.to_output.bias / layer.num_heads,
    "without the head": lambda layer, inputs: layer(inputs)[:, None] - right(layer, inputs),
    "negative": lambda layer, inputs: -right(layer, inputs),
    "rows of the weight": with_weight(lambda layer: layer.to_output.weight.T.unflatten(1, (layer.num_heads, -1))),
    "blocks by stride": with_weight(
        lambda layer: layer.to_output.weight.unflatten(1, (-1, layer.num_heads)).transpose(1, 2)
    ),
    "heads reversed": with_weight(lambda layer: blocks_of(layer).flip(1)),
    "the first block for all": with_weight(lambda layer: blocks_of(layer)[:, :1].expand_as(blocks_of(layer))),
    "detached": lambda layer, inputs: right(layer, inputs).detach(),
    "the output matrix detached": with_weight(lambda layer: blocks_of(layer).detach()),
    "detached inputs": lambda layer, inputs: right(layer, inputs.detach()) + 0 * inputs.sum(),
    "never causal": lambda layer, inputs: merge(context_of(layer, inputs, is_causal=False), blocks_of(layer)),
    "always causal": lambda layer, inputs: merge(context_of(layer, inputs, is_causal=True), blocks_of(layer)),
    "no scale": lambda layer, inputs: by_hand(layer, inputs, scale=1.0),
    "scaled by the width": lambda layer, inputs: by_hand(layer, inputs, scale=inputs.shape[-1] ** -0.5),
    "softmax over the queries": lambda layer, inputs: by_hand(
        layer, inputs, softmax=lambda scores, dim: scores.softmax(-2).nan_to_num()
    ),
    "hidden by -1e9": lambda layer, inputs: by_hand(layer, inputs, fill=-1e9),
    "a softmax that overflows": lambda layer, inputs: by_hand(layer, inputs, softmax=unstable),
    "keys as values": with_roles(lambda q, k, v: (q, k, k)),
    "queries and keys swapped": with_roles(lambda q, k, v: (k, q, v)),
    "values detached": with_roles(lambda q, k, v: (q, k, v.detach())),
    "queries detached": with_roles(lambda q, k, v: (q.detach(), k, v)),
    "in float32": lambda layer, inputs: right(copy.deepcopy(layer).float(), inputs.float()).double(),
    "a hook left behind": leaves_a_hook,
    "its inputs doubled": doubles_its_inputs,
    "made on the default device": lambda layer, inputs: by_zeros(layer, inputs) + torch.zeros(1),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_terms", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "`promote_types` gives the same for either order": ["wide = torch.promote_types(torch.float32, keys.dtype)"],
    "the events of one thread are listed in order; those of several need not be, and the tests have one": [
        "# moves.sort(key=lambda move: move['ts'])",
        "moves",
    ],
    "`argsort` takes the last axis by default, which is axis 1": [
        "names = torch.rand(count, 6).argsort()[:, :3]",
        "foods = torch.rand(count, 6).argsort()[:, :3] + 6",
    ],
    "the logits of the last token have two axes, so the last one is axis 1": ["guesses = logits[:, -1].argmax(dim=1)"],
    "a tensor of one number compares and prints like the number": ["return (guesses == answers).double().mean()"],
    "needed for a model in float64: the cell `tokens` stops without it": ["weights = weights_of(layer, inputs)"],
    "queries and keys have one dtype, which SDPA asks for": ["return weights.to(keys.dtype)"],
}
