"""Combined masks: what they hide, what an empty row returns from PyTorch and transformers, and what repairs it."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaModel
from transformers.masking_utils import create_causal_mask

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "masks/combining"
PAGE = p.page_code(SLUG, "module")
LENGTHS = [3, 5, 4]


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


def visible_of(lengths, T, side, itself=False):
    """Entry by entry, shape (B, 1, T, T); with `itself` every query sees its own key."""
    real = [[j < n if side == "right" else j >= T - n for j in range(T)] for n in lengths]
    return torch.tensor(
        [[[[(j <= i and row[j]) or (itself and j == i) for j in range(T)] for i in range(T)]] for row in real]
    )


# -- the mask --------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_key_is_visible_if_both_masks_allow_it(side):
    is_real = {"left": PAGE.is_real, "right": PAGE.is_real.flip(1)}[side]
    assert torch.equal(PAGE.causal & is_real[:, None, None], visible_of(LENGTHS, 5, side))


def test_padding_on_the_right_hides_nothing_new_from_a_real_token_and_empties_no_row():
    visible = visible_of(LENGTHS, 5, "right")
    assert all(torch.equal(mask[0, :length], PAGE.causal[:length]) for mask, length in zip(visible, LENGTHS))
    assert visible.any(dim=-1).all()


def test_masks_that_are_true_where_a_key_is_hidden_are_joined_with_or():
    future, pads = ~PAGE.causal, ~PAGE.is_real[:, None, None]
    assert torch.equal(~(future | pads), visible_of(LENGTHS, 5, "left"))
    assert (~(future & pads))[0, 0, 0].tolist() == [True, False, True, True, True]


def test_texts_packed_in_one_row_give_what_they_give_alone():
    context = PAGE.weigh(PAGE.inputs, names("packed").visible) @ PAGE.inputs
    for text in (slice(0, 3), slice(3, 5)):
        alone = PAGE.inputs[:, :, text]
        right = F.scaled_dot_product_attention(alone, alone, alone, is_causal=True, scale=1.0)
        p.close(context[:, :, text], right, 1e-5)


# -- the module, which `references.py` compares with PyTorch's ---------------------------------------


def test_without_pads_it_needs_no_mask_of_them():
    p.seed_modules(0)
    attention, batch = PAGE.PaddedCausalAttention(6, 2, 5), torch.randn(3, 4, 6)
    assert torch.equal(attention(batch), attention(batch, torch.ones(3, 4, dtype=torch.bool)))


JOIN, KEEP = "visible = visible & is_real[:, None, None]", "visible = visible | itself"
FUSED = "F.scaled_dot_product_attention(\n            queries, keys, values, attn_mask=visible\n        )"
BY_HAND = "torch.softmax((queries @ keys.mT / D**0.5).masked_fill(~visible, -torch.inf), dim=-1) @ values"
MISSED = {  # the line of the probe that must say so, and the bug in the module
    "later call unchanged False": {JOIN: f"if B == 1:\n                visible &= is_real[0]\n            {JOIN}"},
    "left has finite gradients False": {
        KEEP: "empty = ~visible.any(dim=-1, keepdim=True)",
        FUSED: f"{BY_HAND}\n        if is_real is not None:\n            context = context.masked_fill(empty, 0)",
    },
}


@pytest.mark.parametrize("line", MISSED)
def test_the_probe_finds_a_buffer_that_one_text_writes_into_and_gradients_of_nan(line):
    _, printed = p.run_cell(SLUG, "probe", ("module", MISSED[line]))
    assert next(said for said in printed.splitlines() if "False" in said) == line


def test_contexts_that_are_set_to_0_leave_all_lines_of_the_probe_right_but_one():
    _, printed = p.run_cell(SLUG, "probe", ("module", MISSED["left has finite gradients False"]))
    assert printed.count("False") == 1


@pytest.mark.parametrize("shape", [(3, 1, 1, 3), (1, 3), (3,), (3, 1), (3, 3, 3)])
def test_a_padding_mask_of_another_shape_is_refused(shape):
    """B = T, so that each would broadcast."""
    with pytest.raises(ValueError, match=r"^is_real must be torch\.bool \(3, 3\)$"):
        PAGE.PaddedCausalAttention(8, 2, 4)(torch.randn(3, 3, 8), torch.ones(shape, dtype=torch.bool))


def test_a_mask_of_numbers_a_long_sequence_and_an_indivisible_width_are_refused():
    attention = PAGE.PaddedCausalAttention(8, 2, 4)
    with pytest.raises(ValueError, match="is_real must be"):
        attention(torch.randn(3, 2, 8), torch.ones(3, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="5 tokens are more than 4"):
        attention(torch.randn(3, 5, 8))
    with pytest.raises(ValueError, match="2 heads do not divide 9"):
        PAGE.PaddedCausalAttention(9, 2, 4)


def test_a_checkpoint_fits_another_length():
    longer = PAGE.PaddedCausalAttention(8, 2, 8)
    longer.load_state_dict(PAGE.PaddedCausalAttention(8, 2, 4).state_dict())
    assert longer(torch.randn(3, 8, 8)).shape == (3, 8, 8)


# -- empty rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
def test_weigh_is_a_softmax_over_visible_keys_and_an_empty_row_is_the_mean(side):
    visible, inputs = visible_of([3, 0, 4], 5, side), PAGE.inputs.double()
    right = F.scaled_dot_product_attention(inputs, inputs, inputs, attn_mask=visible, scale=1.0)
    right = right.masked_fill(~visible.any(dim=-1, keepdim=True), torch.nan)
    torch.testing.assert_close(PAGE.weigh(inputs, visible) @ inputs, right, rtol=1e-12, atol=1e-12, equal_nan=True)
    finite = PAGE.weigh(inputs, visible, torch.finfo(torch.float64).min) @ inputs
    p.close(finite, torch.where(right.isnan(), inputs.mean(dim=-2, keepdim=True), right))


@pytest.mark.usefixtures("on_the_cpu")
def test_mha_gives_an_empty_row_its_output_bias_or_nan_without_gradients():
    cell = names("apis")
    empty = ~visible_of(LENGTHS, 5, "left").any(dim=-1)[:, 0]
    nn.init.normal_(cell.mha.out_proj.bias)
    context, _ = cell.mha(*cell.roles, need_weights=False, **cell.masks)
    assert torch.equal(context[empty], cell.mha.out_proj.bias.expand_as(context[empty]))
    with torch.no_grad():
        context, _ = cell.mha.eval()(*cell.roles, need_weights=False, **cell.masks)
    assert torch.equal(context.isnan().any(dim=-1), empty)


def test_no_repair_changes_a_bit_of_a_real_row():
    pads = ~PAGE.is_real[:, None, :, None]
    rows = [context.masked_fill(pads, 0) for context in names("repairs").contexts.values()]
    assert len(rows) == 6
    assert all(torch.equal(row, rows[0]) for row in rows)


@pytest.mark.parametrize("repair", ["zero weights", "see itself", "finfo.min, zero"])
def test_a_repair_gives_real_rows_the_outputs_and_gradients_of_their_text_alone(repair):
    inputs, pads = names("repairs").x, ~PAGE.is_real[:, None, :, None]
    context = names("repairs").contexts[repair]
    alone = torch.zeros_like(context)
    for item, length in enumerate(LENGTHS):
        real = inputs[item : item + 1, :, 5 - length :]
        rows = F.scaled_dot_product_attention(real, real, real, is_causal=True, scale=1.0)
        alone[item, :, 5 - length :] = rows[0]
    p.close(context.masked_fill(pads, 0), alone, 1e-6)
    nothing = inputs if repair == "see itself" else torch.zeros_like(inputs)
    assert torch.equal(context.masked_fill(~pads, 0), nothing.masked_fill(~pads, 0))
    losses = [rows.masked_fill(pads, 0).square().sum() for rows in (context, alone)]
    p.close(*(torch.autograd.grad(loss, inputs, retain_graph=True)[0] for loss in losses), 1e-4)


@pytest.mark.parametrize("text", [0, 2])
def test_beside_a_memory_of_pads_the_others_give_what_they_give_alone(text):
    cell = names("pads-only")
    real = cell.memory[text : text + 1, :, cell.memory_is_real[text]]
    alone = F.scaled_dot_product_attention(PAGE.inputs[text : text + 1], real, real)
    p.close(cell.context[text : text + 1], alone, 1e-6)
    (gradient,) = torch.autograd.grad(alone.square().sum(), cell.memory)
    p.close(cell.gradient[text], gradient[text], 1e-5)


# -- numbers and dtypes of masks -------------------------------------------------------------------


def test_a_fill_that_does_not_fit_is_refused_and_one_of_float16_overflows_if_added():
    for dtype, fill, name in (
        (torch.float16, -1e9, "Half"),
        (torch.bfloat16, torch.finfo(torch.float32).min, "BFloat16"),
    ):
        with pytest.raises(RuntimeError, match=f"^value cannot be converted to type c10::{name} without overflow$"):
            torch.zeros(2, dtype=dtype).masked_fill(torch.tensor([True, False]), fill)
    lowest = torch.tensor(torch.finfo(torch.float16).min, dtype=torch.float16)
    assert (lowest - 16).isneginf()
    assert (lowest - 15.9).isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sdpa_takes_a_float32_mask_beside_queries_of_another_dtype(dtype):
    bias = torch.zeros(3, 1, 5, 5).masked_fill(~visible_of(LENGTHS, 5, "left", itself=True), -torch.inf)
    heads = PAGE.inputs.to(dtype)
    contexts = [F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask) for mask in (bias, bias.to(dtype))]
    p.close(*contexts, 1e-2)


# -- PyTorch's kernels, transformers ---------------------------------------------------------------


@pytest.mark.usefixtures("on_the_cpu")
def test_the_fused_kernel_applies_a_mask_and_the_flag_beside_it_without_an_error():
    roles, real = [PAGE.inputs] * 3, PAGE.is_real[:, None, None]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        both = F.scaled_dot_product_attention(*roles, attn_mask=real, is_causal=True)
    assert torch.equal(both, F.scaled_dot_product_attention(*roles, attn_mask=PAGE.causal & real))
    assert "An error is thrown if both attn_mask and is_causal are set" in F.scaled_dot_product_attention.__doc__


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_library_combines_the_masks_in_the_same_way_and_repairs_nothing(side):
    visible, lowest = visible_of(LENGTHS, 5, side), torch.finfo(torch.float32).min
    is_real = {"left": PAGE.is_real, "right": PAGE.is_real.flip(1)}[side]

    def library_mask(kind):
        return create_causal_mask(
            config=SimpleNamespace(_attn_implementation=kind),
            inputs_embeds=torch.zeros(3, 5, 8),
            attention_mask=is_real.long(),
            past_key_values=None,
        )

    assert torch.equal(library_mask("sdpa"), visible)
    assert torch.equal(library_mask("eager"), torch.zeros(visible.shape).masked_fill(~visible, lowest))


SIZES = {"vocab_size": 9, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
IDS, COUNTED = torch.tensor([[0, 0, 1, 2, 3], [4, 5, 6, 7, 8]]), torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])


def built(kind):
    p.seed_modules(0)
    return LlamaModel(LlamaConfig(**SIZES, initializer_range=0.5, attn_implementation=kind)).eval()


def llama(kind):
    model = built(kind)
    return lambda ids, **given: model(ids, **given).last_hidden_state.detach()


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_a_mask_of_four_axes_replaces_that_of_a_model_and_eager_adds_booleans(kind):
    model, visible = llama(kind), visible_of([3, 5], 5, "left", itself=True)
    floats = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    pads = (IDS > 0)[:, None, None].expand(2, 1, 5, 5)
    alone = model(IDS[:1, 2:])[0]
    gap = {
        name: float((model(IDS, attention_mask=mask, position_ids=COUNTED)[0, 2:] - alone).abs().max())
        for name, mask in {"booleans": visible, "floats": floats, "pads": pads}.items()
    }
    assert gap["floats"] < 1e-4 < gap["pads"]
    assert (gap["booleans"] < 1e-4) == (kind == "sdpa")
    with pytest.raises(RuntimeError, match="expand"):
        model(IDS, attention_mask=visible[:, 0])
    if kind == "sdpa":
        with pytest.raises(RuntimeError, match=r"^Expected attn_mask dtype to be bool"):
            model(IDS, attention_mask=visible.long())


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_a_layer_alone_takes_what_the_model_gives_it_and_three_axes_per_head(kind):
    model, everything = built(kind), torch.zeros(5, 5)
    causal = everything.masked_fill(~PAGE.causal, torch.finfo(torch.float32).min)

    def layer(ids, mask):
        hidden = model.embed_tokens(ids)
        rotary = model.rotary_emb(hidden, torch.arange(5)[None])
        return model.layers[0](hidden, attention_mask=mask, position_embeddings=rotary).detach()

    inside = model(IDS, attention_mask=causal.expand(2, 1, 5, 5), output_hidden_states=True).hidden_states[1]
    p.close(layer(IDS, causal.expand(2, 1, 5, 5)), inside.detach(), 1e-4)
    masks = torch.stack([causal, everything])  # one for each of the two heads
    for ids, given in (IDS[:1], masks[:1]), (IDS, masks):
        p.close(layer(ids, given), layer(ids, given[None]), 1e-4)
    with pytest.raises(RuntimeError, match="must match the size"):
        layer(IDS[[0, 1, 0]], masks[[0, 0, 0]])
    p.close(layer(IDS, None), layer(IDS, {"sdpa": causal, "eager": everything}[kind][None, None]), 1e-4)


def test_positions_that_begin_again_part_texts_only_without_a_mask_and_a_cache():
    model, row, again = llama("sdpa"), IDS[1:], torch.tensor([[0, 1, 2, 0, 1]])
    alone = model(row[:, 3:])[0]
    ones = {"attention_mask": torch.ones(1, 5).long(), "use_cache": False}
    for given, apart in ({"use_cache": False}, True), ({}, False), (ones, False):
        assert torch.allclose(model(row, position_ids=again, **given)[0, 3:], alone, atol=1e-4) == apart


# -- the exercise: every answer runs on the device of the lengths, or it would fail for that alone ----


def right_mask(n, T, side):
    places = torch.arange(T, device=n.device)
    real = places < n[:, None] if side == "right" else places >= T - n[:, None]
    return joined(n, T, real) | torch.eye(T, dtype=torch.bool, device=n.device)


def joined(n, T, real):
    return torch.ones(T, T, dtype=torch.bool, device=n.device).tril() & real[:, None, None]


def by_flip(n, T, side):
    real = torch.arange(T, device=n.device) < n[:, None]
    real = real.flip(1) if side == "left" else real
    return joined(n, T, real) | torch.eye(T, dtype=torch.bool, device=n.device)


def hidden_as_queries(n, T, side):
    visible, real = right_mask(n, T, side), right_mask(n, T, side)[:, :, -1:]
    return (visible & real.mT) | torch.eye(T, dtype=torch.bool, device=n.device)


RIGHT = {
    "the right flipped to the left": by_flip,
    "what is not hidden": lambda n, T, side: ~(~right_mask(n, T, side)),
}
WRONG = {
    "always on the right": lambda n, T, side: right_mask(n, T, "right"),
    "pads hidden as queries": hidden_as_queries,
    "True where a key is hidden": lambda n, T, side: ~right_mask(n, T, side),
    "the lengths read as numbers": lambda n, T, side: visible_of(n.tolist(), T, side, itself=True).to(n.device),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_combine", RIGHT, WRONG

    @pytest.mark.parametrize(
        ("answer", "said"),
        {
            "always on the right": "T = 5, left: text 0: query 1 sees keys [0, 1], not [1]",
            "pads hidden as queries": "T = 5, right: text 0: query 3 sees keys [3], not [0, 1, 2, 3]",
            "the lengths read as numbers": "T = 5, right: it must work on the device of lengths, also if that is meta",
        }.items(),
    )
    def test_the_check_names_the_first_fault(self, answer, said):
        assert said in self.verdict(WRONG[answer])


ACCEPTED = {"the diagonal is visible in any case": ["causal = places < places[:, None]"]}
