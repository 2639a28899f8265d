"""Look inside: weights and single heads from outside, against modules that return their weights; models of others."""

import copy
import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM
from transformers.integrations import flash_attention
from transformers.utils import logging

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed
from tests.pages.references import multihead_attention

SLUG = "practice/look-inside"
PAGE = p.page_code(SLUG, "recorded")
sdpa = F.scaled_dot_product_attention


def drawn(D=8, causal=True):
    """A layer of three heads, its inputs and its three roles."""
    p.seed_modules(0)
    layer, inputs = PAGE.FusedAttention(3 * D, 3, causal=causal), torch.randn(2, 5, 3 * D)
    return layer, inputs, layer.split_qkv(inputs)


# -- weights and heads of a layer ------------------------------------------------------------------


def build(case):
    """Two layers in a row, and the weights of the second by MHA with its parameters."""
    p.seed_modules(case.seed)
    case.E, causal = case.H * case.D, case.seed % 2 == 0
    case.layer = PAGE.FusedAttention(case.E, case.H, causal=causal).double()
    case.model = nn.Sequential(PAGE.FusedAttention(case.E, case.H).double(), case.layer)
    case.inputs = case.randn(case.B, case.T, case.E)
    names = {"to_qkv.weight": "in_proj_weight", "to_qkv.bias": "in_proj_bias"}
    state = {names.get(name, name.replace("to_output", "out_proj")): one for name, one in case.layer.named_parameters()}
    options = {"attn_mask": torch.ones(case.T, case.T).triu(1) > 0 if causal else None, "average_attn_weights": False}
    case.weights = multihead_attention(state, case.H, *[case.inputs] * 3, **options)[1].detach()
    return case


CASES = p.sizes(B=2, H=3, T=5, D=3).map(build)


def test_weights_are_those_of_mha_for_all_rows_and_for_some():
    def prove(case):
        for rows in (slice(None), [-1], [0], slice(1, None), list(range(case.T))[::-1]):
            p.close(PAGE.weights_of(case.layer, case.inputs, rows), case.weights[:, :, rows])
        p.close(PAGE.weights_of(case.layer, case.inputs, -1), case.weights[:, :, -1:])  # one row without brackets
        p.close(PAGE.inputs_of(case.layer, case.model, case.inputs), case.model[0](case.inputs).detach())
        assert not case.layer._forward_pre_hooks

    p.for_all(CASES, prove)


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


@torch.no_grad()
def test_scores_above_65504_give_the_weights_of_sdpa_in_float16():
    layer, inputs, _ = drawn()
    layer, inputs = layer.half(), 300 * inputs.half()
    queries, keys, values = roles = layer.split_qkv(inputs)
    assert (queries @ keys.mT).isinf().any()
    for weights in (PAGE.weights_of(layer, inputs), PAGE.weights_of_call(roles, {"is_causal": True})):
        torch.testing.assert_close(weights @ values, sdpa(*roles, is_causal=True), rtol=0.01, atol=1)


def test_the_hook_catches_the_argument_that_forward_names_first_in_any_order():
    class Layer(nn.Module):
        def forward(self, hidden, mask=None):
            return hidden.zero_()

    layer, inputs = Layer(), torch.ones(1, 4, 6, requires_grad=True).clone()
    caught = PAGE.inputs_of(layer, lambda tokens: layer(mask=torch.zeros(3), hidden=tokens), tokens=inputs)
    assert torch.equal(caught, torch.ones(1, 4, 6))  # although the layer writes into it
    assert not caught.requires_grad


def test_what_is_no_layer_of_the_model_or_has_no_tensor_is_refused():
    layer, inputs, _ = drawn()
    chosen = nn.Identity()
    with pytest.raises(ValueError, match=r"^the model does not call this layer$"):
        PAGE.inputs_of(chosen, layer, inputs)
    with pytest.raises(ValueError, match=r"^no tensor: the int 3$"):
        PAGE.inputs_of(chosen, lambda tokens: chosen(3), inputs)
    with pytest.raises(RuntimeError):
        PAGE.inputs_of(layer, layer, inputs[..., :4])
    for heads in ((3,), (-1,), (0, 3)):
        with pytest.raises(ValueError, match=rf"^no head {heads[-1]}: the 3 heads are 0 to 2$"):
            PAGE.remove_heads(layer, *heads)
    assert not any(one._forward_pre_hooks for one in (chosen, layer, layer.to_output))
    with pytest.raises(ValueError, match=r"^8 tokens are too many$"):
        PAGE.Model(12, 7, 32, 2)(torch.zeros(1, 8, dtype=torch.long))
    for queries, keys in ((inputs, inputs[None]), (inputs[None], inputs)):
        with pytest.raises(ValueError, match=r"^3 axes, and not 4: \(B, H, T, D\)$"):
            PAGE.weights_of_call((queries, keys, keys), {})


# -- a recorded call -------------------------------------------------------------------------------


def draw_call(case):
    groups, Tk = 1 + case.seed % 3, case.T + case.seed % 2
    case.roles = (case.randn(case.B, groups * case.H, case.T, case.D), *case.randn(2, case.B, case.H, Tk, case.D))
    visible = case.randn(case.B, 1, case.T, Tk) < 0.5  # not one key for some rows
    bias = torch.zeros(visible.shape).masked_fill(~visible, -torch.inf).double()
    kinds = [{"attn_mask": mask} for mask in (None, visible, visible[:1, 0], bias, visible[:, :, :1])]
    kinds += [{"is_causal": True}, {"attn_mask": bias[0, 0, 0]}]
    case.options = kinds[case.seed % len(kinds)] | ({"scale": 0.7 * (case.seed % 8 > 0)} if case.seed % 4 == 0 else {})
    case.options |= {"enable_gqa": True} if groups > 1 else {}
    return case


def test_weights_of_a_call_times_the_values_are_what_sdpa_returns():
    def prove(case):
        queries, keys, values = case.roles
        context = sdpa(*case.roles, **case.options)
        by_name = {"query": queries, "key": keys, "value": values} | case.options
        values = values.repeat_interleave(queries.shape[1] // values.shape[1], dim=1)
        p.close(PAGE.weights_of_call(case.roles, case.options) @ values, context)
        p.close(PAGE.weights_of_call((), by_name, rows=-1) @ values, context[:, :, -1:])
        by_place = case.options.get("attn_mask"), 0.0, case.options.get("is_causal", False)
        scale = {name: case.options[name] for name in {"scale"} & case.options.keys()}
        p.close(PAGE.weights_of_call((*case.roles, *by_place), scale) @ values, context)

    p.for_all(p.sizes(B=2, H=2, T=4, D=3).map(draw_call), prove)


def test_the_recorder_keeps_no_graph_and_changes_no_result_and_no_gradient():
    roles, bias = torch.randn(3, 1, 2, 4, 3, requires_grad=True), torch.zeros(4, 4, requires_grad=True)
    results = []
    kept = PAGE.record_sdpa(lambda: results.append(F.scaled_dot_product_attention(*roles.exp(), attn_mask=bias.exp())))
    given, named = kept[0]
    assert [tensor.requires_grad for tensor in (*given, named["attn_mask"])] == [False] * 4
    torch.testing.assert_close(torch.stack(given), roles.detach().exp())
    wanted = sdpa(*roles.exp(), attn_mask=bias.exp())
    for mine, theirs in zip(*(torch.autograd.grad(one.sum(), (roles, bias)) for one in (results[0], wanted))):
        torch.testing.assert_close(mine, theirs)
    with pytest.raises(ZeroDivisionError):
        PAGE.record_sdpa(lambda: 1 / 0)
    assert F.scaled_dot_product_attention is sdpa


# -- what the text says ----------------------------------------------------------------------------


@torch.no_grad()
def test_the_probe_finds_a_forgotten_scale_mask_and_norm():
    layer, inputs, _ = drawn()
    inputs = 4 * inputs
    queries, keys, values = layer.split_qkv(inputs)
    scores = (queries @ keys.mT / 8**0.5).masked_fill(torch.ones(5, 5).triu(1) > 0, -torch.inf)
    maps = {
        "right": scores.softmax(dim=-1),
        "scale": (scores * 8**0.5).softmax(dim=-1),
        "padding": scores[..., 1:, :].masked_fill(torch.arange(5) == 0, -torch.inf).softmax(dim=-1),
        "norm": PAGE.weights_of(layer, F.layer_norm(inputs, (24,))),
    }
    for name, weights in maps.items():
        ours = layer.to_output((weights @ values).transpose(1, 2).flatten(2))
        gap = (ours - layer(inputs)[:, -weights.shape[2] :]).abs().max()
        assert (gap < 1e-6) == (name == "right"), name


@torch.no_grad()
def test_with_the_identity_sdpa_returns_weights_and_output_times_values_is_no_map():
    layer, inputs, (queries, keys, values) = drawn(causal=False)
    weights = PAGE.weights_of(layer, inputs)
    torch.testing.assert_close(sdpa(queries, keys, torch.eye(5).expand(2, 3, 5, 5)), weights)
    product = sdpa(queries, keys, values) @ values.mT
    assert product.shape == weights.shape
    assert not torch.allclose(product.sum(dim=-1), weights.sum(dim=-1), atol=0.1)


def test_the_wrong_place_takes_numbers_from_every_head_and_leaves_most_of_the_one():
    for term in executed(SLUG, "ablate")[0].terms:
        assert 0.15 < (term[..., 8:16].norm() / term.norm()) ** 2 < 0.5


def test_hooks_make_the_encoder_leave_its_fast_path():
    cell = executed(SLUG, "encoder")[0]
    assert not any(one.requires_grad for one in cell.encoder.parameters())
    assert not cell.encoder.training
    assert [each.sum(dim=-1).allclose(torch.ones(2, 4, 5)) for each in cell.maps[2:4]] == [True, True]


# -- the trained model -----------------------------------------------------------------------------


def test_training_removes_the_two_heads_of_layer_1_in_turn(monkeypatch):
    remove, removed = PAGE.remove_heads, []
    monkeypatch.setitem(PAGE.train.__globals__, "remove_heads", lambda *args: removed.append(args) or remove(*args))
    model = PAGE.train(steps=4)
    assert removed == [(model.layers[1], head) for head in (0, 1, 0, 1)]
    assert not any(layer.to_output._forward_pre_hooks for layer in model.layers)


def test_with_another_seed_each_head_of_layer_1_is_a_spare_of_the_other():
    model, texts = PAGE.train(seed=5), torch.arange(300)
    tokens, answers, places = PAGE.make_texts(300)
    layer = model.layers[1]
    weights = PAGE.weights_of(layer, PAGE.inputs_of(layer, model, tokens), rows=-1)
    assert (weights[texts, :, 0, places].mean(dim=0) > 0.9).all()
    *without, neither = (PAGE.accuracy(model, tokens, answers, heads) for heads in ((), [0], [1], [0, 1]))
    assert min(without) > 0.97 > 0.6 > neither


# -- models of transformers, with random weights ---------------------------------------------------

SIZES = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(kind):
    torch.manual_seed(0)
    return LlamaForCausalLM._from_config(LlamaConfig(**SIZES, num_key_value_heads=2), attn_implementation=kind).eval()


def bert(kind):
    torch.manual_seed(0)
    return BertModel._from_config(BertConfig(**SIZES, initializer_range=0.3), attn_implementation=kind).eval()


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", [llama, bert])
@torch.no_grad()
def test_a_model_of_transformers_under_sdpa_gives_the_weights_of_eager(make, padded):
    ids = torch.arange(14).view(2, 7)
    mask = {"attention_mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2])} if padded else {}
    kept = PAGE.record_sdpa(lambda: make("sdpa")(ids, **mask))
    model = make("sdpa")
    model.set_attn_implementation("eager")
    eager = model(ids, **mask, output_attentions=True).attentions
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


# -- the exercise ----------------------------------------------------------------------------------


def right(layer, inputs):
    context = sdpa(*layer.split_qkv(inputs), is_causal=layer.causal)
    return torch.einsum("bhtd,ehd->bhte", context, layer.to_output.weight.unflatten(1, (layer.num_heads, -1)))


def by_hooks(layer, inputs):
    """The middle step."""
    terms = []
    for head in range(layer.num_heads):
        with PAGE.remove_heads(layer, head):
            terms.append(layer(inputs))
    return layer(inputs)[:, None] - torch.stack(terms, dim=1)


def leaves_a_hook(layer, inputs):
    layer.to_output.register_forward_pre_hook(lambda module, given: None)
    return right(layer, inputs)


RIGHT = {"einsum": right, "by hooks": by_hooks}
WRONG = {
    "slices of the output": lambda layer, inputs: torch.stack(
        [layer(inputs) * (torch.arange(inputs.shape[-1]) // layer.head_dim == h) for h in range(layer.num_heads)], dim=1
    ),
    "bias shared": lambda layer, inputs: right(layer, inputs) + layer.to_output.bias / layer.num_heads,
    "in float32": lambda layer, inputs: right(copy.deepcopy(layer).float(), inputs.float()).double(),
    "a hook left behind": leaves_a_hook,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_terms", RIGHT, WRONG


# -- changes of the page's code that need no test --------------------------------------------------

SURVIVORS = {
    "`promote_types` gives the same for either order": ["wide = torch.promote_types(torch.float32, keys.dtype)"],
    "`argsort` takes the last axis by default, which is axis 1": [
        "names = torch.rand(count, 6).argsort()[:, :3]",
        "foods = torch.rand(count, 6).argsort()[:, :3] + 6",
    ],
    "the logits of the last token have two axes, so the last one is axis 1": ["guesses = logits[:, -1].argmax(dim=1)"],
    "a tensor of one number compares and prints like the number": ["return (guesses == answers).double().mean()"],
    "queries and keys have one dtype, which SDPA asks for": ["return weights.to(keys.dtype)"],
}
