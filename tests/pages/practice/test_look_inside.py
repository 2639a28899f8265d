"""Look inside: weights and single heads from outside, against modules that return their weights; models of others."""

import copy
import inspect
import math

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import nn
from transformers import masking_utils
from transformers.integrations import flash_attention, sdpa_attention
from transformers.models.llama import modeling_llama
from transformers.utils import logging

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed
from tests.pages.references import multihead_attention

SLUG = "practice/look-inside"
PAGE = p.page_code(SLUG, "add")
sdpa = F.scaled_dot_product_attention


def drawn(D=8, causal=True):
    """A layer of three heads, its inputs and its three roles."""
    p.seed_modules(0)
    layer, inputs = PAGE.FusedAttention(3 * D, 3, causal=causal), torch.randn(2, 5, 3 * D)
    return layer, inputs, layer.split_qkv(inputs)


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


def test_weights_are_those_of_mha_and_a_removed_head_is_columns_of_zeros():
    def prove(case):
        for rows in (slice(None), [-1], [0], slice(1, None), list(range(case.T))[::-1]):
            p.close(PAGE.weights_of(case.layer, case.inputs, rows), case.weights[:, :, rows])
        p.close(PAGE.weights_of(case.layer, case.inputs, -1), case.weights[:, :, -1:])  # one row without brackets
        p.close(PAGE.inputs_of(case.layer, case.model, case.inputs), case.model[0](case.inputs).detach())
        assert not case.layer._forward_pre_hooks
        before = case.layer(case.inputs)
        for head in range(case.H):
            without = copy.deepcopy(case.layer)
            without.to_output.weight.data[:, head * case.D : (head + 1) * case.D] = 0
            with PAGE.remove_heads(case.layer, head):
                p.close(case.layer(case.inputs), without(case.inputs))
        assert torch.equal(case.layer(case.inputs), before)

    p.for_all(CASES, prove)
    for term in executed(SLUG, "ablate")[0].terms:  # the wrong place takes numbers of every head, and leaves most
        assert 0.15 < (term[..., 8:16].norm() / term.norm()) ** 2 < 0.5


@torch.no_grad()
def test_the_identity_as_values_gives_the_weights_and_float16_above_65504_too():
    layer, inputs, (queries, keys, _) = drawn(causal=False)
    torch.testing.assert_close(sdpa(queries, keys, torch.eye(5).expand(2, 3, 5, 5)), PAGE.weights_of(layer, inputs))
    layer, inputs, _ = drawn()
    layer, inputs = layer.half(), 300 * inputs.half()
    queries, keys, values = roles = layer.split_qkv(inputs)
    assert (queries @ keys.mT).isinf().any()
    for weights in (PAGE.weights_of(layer, inputs), PAGE.weights_of_call(roles, {"is_causal": True})):
        torch.testing.assert_close(weights @ values, sdpa(*roles, is_causal=True), rtol=0.01, atol=1)


def test_the_hook_catches_what_forward_names_first_and_what_has_no_tensor_is_refused():
    layer, inputs = nn.Bilinear(6, 6, 2), torch.ones(4, 6, requires_grad=True)
    caught = PAGE.inputs_of(layer, lambda tokens: layer(input2=tokens + 1, input1=tokens), tokens=inputs)
    assert torch.equal(caught, inputs)
    assert not caught.requires_grad
    (layer, inputs, _), chosen = drawn(), nn.Identity()
    with pytest.raises(ValueError, match=r"^the model does not call this layer$"):
        PAGE.inputs_of(chosen, layer, inputs)
    with pytest.raises(ValueError, match=r"^no tensor: the int 3$"):
        PAGE.inputs_of(chosen, lambda tokens: chosen(3), inputs)
    for heads in ((3,), (-1,), (0, 3)):
        with pytest.raises(ValueError, match=rf"^no head {heads[-1]}: the 3 heads are 0 to 2$"):
            PAGE.remove_heads(layer, *heads)
    assert not any(one._forward_pre_hooks for one in (chosen, layer, layer.to_output))
    for queries, keys in ((inputs, inputs[None]), (inputs[None], inputs)):
        with pytest.raises(ValueError, match=r"^3 axes, and not 4: \(B, H, T, D\)$"):
            PAGE.weights_of_call((queries, keys, keys), {})


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
        p.close(PAGE.weights_of_call((*case.roles, *by_place), {"scale": case.options.get("scale")}) @ values, context)

    p.for_all(p.sizes(B=2, H=2, T=4, D=3).map(draw_call), prove)


def test_what_is_added_to_the_scores_multiplies_weights_and_rows_still_add_up_to_1():
    def prove(case):
        queries, keys, values = case.roles
        added = case.randn(queries.shape[2], keys.shape[2])

        def call():
            return F.scaled_dot_product_attention(*case.roles, **case.options)

        changed = PAGE.add_to_scores(call, lambda query, key: added)
        weights = PAGE.weights_of_call(case.roles, case.options) * added.exp()
        weights = (weights / weights.sum(dim=-1, keepdim=True)).nan_to_num()
        p.close(changed, weights @ values.repeat_interleave(queries.shape[1] // values.shape[1], dim=1))
        p.close(PAGE.add_to_scores(call, lambda query, key: torch.zeros_like(added)), call())

    p.for_all(p.sizes(B=2, H=2, T=4, D=3).map(draw_call), prove)


def test_the_recorder_keeps_no_graph_and_changes_no_result():
    roles, bias = torch.randn(3, 1, 2, 4, 3, requires_grad=True), torch.zeros(4, 4, requires_grad=True)
    results = []
    kept = PAGE.record_sdpa(lambda: results.append(F.scaled_dot_product_attention(*roles.exp(), attn_mask=bias.exp())))
    given, named = kept[0]
    assert [tensor.requires_grad for tensor in (*given, named["attn_mask"])] == [False] * 4
    torch.testing.assert_close(results[0], sdpa(*roles.exp(), attn_mask=bias.exp()))
    assert results[0].requires_grad
    for replace in (PAGE.record_sdpa, lambda call: PAGE.add_to_scores(call, None)):
        with pytest.raises(ZeroDivisionError):
            replace(lambda: 1 / 0)
        assert F.scaled_dot_product_attention is sdpa


@torch.no_grad()
def test_the_probe_finds_a_forgotten_scale_and_norm():
    layer, inputs, (_, _, values) = drawn()
    unscaled = copy.deepcopy(layer)
    unscaled.to_qkv.weight[:24] *= 8**0.5
    normed = F.layer_norm(inputs, (24,))
    for given, right in (((layer, inputs), True), ((unscaled, inputs), False), ((layer, normed), False)):
        context = (PAGE.weights_of(*given) @ values).transpose(1, 2).flatten(2)
        assert ((layer.to_output(context) - layer(inputs)).abs().max() < 1e-6) == right


SIZES = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(kind):
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, num_key_value_heads=2, attn_implementation=kind)).eval()


def bert(kind):
    torch.manual_seed(0)
    return hf.BertModel(hf.BertConfig(**SIZES, initializer_range=0.3, attn_implementation=kind)).eval()


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
    none = model(torch.arange(7)[None], output_attentions=True).attentions
    assert none == ()
    logger.filters.clear()
    assert said[0].startswith("`sdpa` attention does not support `output_attentions=True`.")
    with pytest.raises(ValueError, match=r"^The `output_attentions` attribute is not supported when using the `attn_"):
        model.config.output_attentions = True
    assert "Flash Attention does not support `output_attentions=True`." in inspect.getsource(flash_attention)


@torch.no_grad()
def test_llama_calls_attention_by_keywords_and_drops_the_weights_that_it_returns():
    model, ids = llama("sdpa"), torch.arange(7)[None]
    layer = model.model.layers[0].self_attn
    with layer.register_forward_pre_hook(lambda module, given: given[0]), pytest.raises(IndexError, match=r"^tuple"):
        model(ids)
    inputs = PAGE.inputs_of(layer, model, input_ids=ids)
    assert torch.equal(inputs, PAGE.inputs_of(layer.q_proj, model, ids))
    assert inputs.shape == (1, 7, 32)
    model.set_attn_implementation("eager")
    before = model(ids).logits
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(lambda module, given, result: (result[0], 0 * result[1]))
    assert torch.equal(model(ids).logits, before)


@torch.no_grad()
def test_bert_prunes_no_heads_ignores_a_head_mask_and_obeys_a_hook_on_its_output():
    assert not hasattr(hf.BertModel, "prune_heads")
    assert not hasattr(hf.pytorch_utils, "find_pruneable_heads_and_indices")
    model, ids = bert("sdpa"), torch.arange(7)[None]
    before = model(ids).last_hidden_state
    assert torch.equal(model(ids, head_mask=torch.zeros(2, 4)).last_hidden_state, before)
    dense = model.encoder.layer[0].attention.output.dense
    dense.register_forward_pre_hook(lambda module, given: torch.zeros_like(given[0]))
    assert not torch.allclose(model(ids).last_hidden_state, before, atol=1e-3)


STEPS = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
WANTED = {"output_attentions": True, "return_dict_in_generate": True}


@torch.no_grad()
def test_generate_returns_the_whole_prompt_and_then_one_row_for_each_token():
    model = llama("eager")
    made = model.generate(torch.arange(3, 10)[None], **STEPS, **WANTED)
    assert [tuple(entry[0].shape) for entry in made.attentions] == [(1, 4, 7, 7), (1, 4, 1, 8), (1, 4, 1, 9)]
    assert len(made.attentions) == made.sequences.shape[1] - 7
    embedded = model.get_input_embeddings()(torch.arange(3, 10)[None])
    new = model.generate(inputs_embeds=embedded, **STEPS)
    assert torch.equal(new, made.sequences[:, -len(made.attentions) :])
    T = made.attentions[-1][0].shape[-1]
    rows = [F.pad(entry[1][:, :, -1:], (0, T - entry[1].shape[-1])) for entry in made.attentions]
    whole = model(made.sequences[:, :-1], output_attentions=True).attentions[1]  # the last new token was not read
    torch.testing.assert_close(torch.cat(rows, dim=2), whole[:, :, -3:], rtol=0, atol=1e-6)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    model = hf.T5ForConditionalGeneration(hf.T5Config(**sizes, attn_implementation="eager"))
    made = model.generate(torch.arange(3, 10)[None], **STEPS, **WANTED)
    assert torch.cat([entry[1] for entry in made.cross_attentions], dim=2).shape == (1, 4, 3, 7)


@torch.no_grad()
def test_of_the_calls_of_llava_those_with_all_keys_are_the_language_model():
    assert hf.Qwen2VLConfig().image_token_id
    assert hf.Qwen2VLConfig().vision_config.spatial_merge_size == 2
    vision, text = hf.CLIPVisionConfig(**SIZES, image_size=8, patch_size=4), hf.LlamaConfig(**SIZES)
    config = hf.LlavaConfig(vision_config=vision, text_config=text, image_token_id=9)
    model = hf.LlavaForConditionalGeneration(config)
    given = {"input_ids": torch.tensor([[1, 4, 9, 9, 9, 9, 5, 7]]), "pixel_values": torch.randn(1, 3, 8, 8)}
    calls = PAGE.record_sdpa(lambda: model.eval()(**given))
    calls = [call for call in calls if call[0][1].shape[2] == 8]
    model.set_attn_implementation("eager")
    for call, wanted in zip(calls, model(**given, output_attentions=True).attentions, strict=True):
        row = PAGE.weights_of_call(*call, rows=[-1])[0, :, 0]
        torch.testing.assert_close(row, wanted[0, :, -1], rtol=0, atol=1e-6)


@torch.no_grad()
def test_recorded_steps_of_a_padded_batch_have_the_query_heads_of_a_group_as_queries():
    given = {"attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1] * 5])}
    ids = torch.arange(3, 13).view(2, 5)
    made = llama("eager").generate(ids, **given, **STEPS, **WANTED)
    last = PAGE.record_sdpa(lambda: llama("sdpa").generate(ids, **given, **STEPS))[-1]
    weights = PAGE.weights_of_call(*last)
    assert weights.shape == (2, 2, 2, 7)
    torch.testing.assert_close(weights.flatten(1, 2), made.attentions[-1][1][:, :, 0], rtol=0, atol=1e-6)


@torch.no_grad()
def test_a_registered_function_may_change_one_layer_and_run_sdpa_in_the_others():
    def mixed(module, query, key, value, mask, **options):
        if module.layer_idx == 0:
            return sdpa_attention.sdpa_attention_forward(module, query, key, value, mask, **options)
        assert mask.dtype == torch.float32
        mask = mask.clone()
        mask[..., 2] += added
        return modeling_llama.eager_attention_forward(module, query, key, value, mask, **options)

    hf.AttentionInterface.register("mixed", mixed)
    hf.AttentionMaskInterface.register("mixed", masking_utils.eager_mask)
    ids, model = torch.arange(7)[None], llama("mixed")
    added = 0.0
    torch.testing.assert_close(model(ids).logits, llama("eager")(ids).logits, rtol=0, atol=1e-5)
    (before,) = model(ids, output_attentions=True).attentions
    added = math.log(5)
    (after,) = model(ids, output_attentions=True).attentions
    edited = before * torch.tensor([1, 1, 5, 1, 1, 1, 1])
    torch.testing.assert_close(after, edited / edited.sum(dim=-1, keepdim=True))
    assert masking_utils.sdpa_mask(1, 7, 7) is None
    assert masking_utils.sdpa_mask(1, 7, 7, attention_mask=ids > 0).dtype == torch.bool


def test_a_forward_hook_gets_the_mean_map_of_a_layer_that_takes_only_item_0():
    layer, inputs, maps = nn.MultiheadAttention(24, 3), torch.randn(5, 2, 24), []
    layer.register_forward_hook(lambda module, given, result: maps.append(result[1]))
    assert layer(inputs, inputs, inputs)[0].shape == inputs.shape
    torch.testing.assert_close(maps[0], layer(*[inputs] * 3, average_attn_weights=False)[1].mean(dim=1))


def test_only_row_0_of_the_last_layer_of_bert_has_a_gradient():
    made = bert("eager")(torch.arange(7)[None], output_attentions=True)
    found = torch.autograd.grad(made.last_hidden_state[0, 0, 3], made.attentions)
    assert [bool(one[:, :, 1:].any()) for one in found] == [True, False]
    row = torch.full((1000,), 0.1 / 999).index_fill(0, torch.tensor(0), 0.9).softmax(-1)
    torch.testing.assert_close(row[:2], torch.tensor([1 / 400, 1 / 1000]), rtol=0.05, atol=0)


def by_hooks(layer, inputs):
    terms = []
    for head in range(layer.num_heads):
        with PAGE.remove_heads(layer, head):
            terms.append(layer(inputs))
    return layer(inputs)[:, None] - torch.stack(terms, dim=1)


RIGHT = {"the middle step": by_hooks}
WRONG = {"bias shared": lambda layer, inputs: by_hooks(layer, inputs) + layer.to_output.bias / layer.num_heads}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_terms", RIGHT, WRONG


SURVIVORS = {
    "`promote_types` gives the same for either order": ["wide = torch.promote_types(torch.float32, keys.dtype)"],
    "queries and keys have one dtype, which SDPA asks for": ["return weights.to(keys.dtype)"],
}
