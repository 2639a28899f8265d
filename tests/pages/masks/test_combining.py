"""Combined masks: the page's module and its repairs against PyTorch and transformers, and what breaks a mask."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.masking_utils import create_causal_mask

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "masks/combining"
PAGE = p.page_code(SLUG, "module")
LIMIT = 4
LENGTHS = [3, 5, 4]


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


# -- the masks, entry by entry: True = hidden ------------------------------------------------------


def padding_of(lengths, T, side):
    """Shape (B, T)."""
    return torch.tensor([[j >= n if side == "right" else j < T - n for j in range(T)] for n in lengths])


def masked_of(lengths, T, side, itself=True):
    """The combined mask, shape (B, 1, T, T); with `itself` every query sees its own key."""
    rows = [
        [[(j > i or bool(pads[j])) and not (itself and j == i) for j in range(T)] for i in range(T)]
        for pads in padding_of(lengths, T, side)
    ]
    return torch.tensor(rows)[:, None]


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_masks_of_the_page_hide_the_future_and_the_pads(side):
    padding = getattr(PAGE, side)
    assert torch.equal(padding, padding_of(LENGTHS, 5, side))
    assert torch.equal(PAGE.causal | padding[:, None, None], masked_of(LENGTHS, 5, side, itself=False))


def test_padding_on_the_right_hides_nothing_new_from_a_real_token_and_empties_no_row():
    masked = PAGE.causal | PAGE.right[:, None, None]
    assert all(torch.equal(mask[0, :length], PAGE.causal[:length]) for mask, length in zip(masked, LENGTHS))
    assert not masked.all(dim=-1).any()


def test_the_mask_costs_a_byte_per_pair_and_text():
    causal, padding = (torch.empty(shape, dtype=torch.bool, device="meta") for shape in ((4096, 4096), (8, 1, 1, 4096)))
    assert ((causal | padding).nbytes, causal.nbytes, padding.nbytes) == (128 * 2**20, 16 * 2**20, 32 * 2**10)


class Made(TorchDispatchMode):
    """The bytes of what `torch.where` returns inside."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        self.bytes = getattr(self, "bytes", 0) + (result.nbytes if operator is torch.ops.aten.where.self else 0)
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inside_sdpa_on_the_cpu_a_boolean_mask_takes_the_dtype_of_the_queries(dtype, on_the_cpu):
    B, H, T = 2, 4, 16
    heads, visible = torch.zeros(B, H, T, 8, dtype=dtype), torch.ones(B, 1, T, T, dtype=torch.bool)
    for mask, numbers in ((visible, B * T * T), (visible.expand(B, H, T, T), B * H * T * T), (visible.to(dtype), 0)):
        with Made() as made:
            F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
        assert made.bytes == numbers * dtype.itemsize


def test_texts_packed_in_one_row_give_what_they_give_alone():
    context = PAGE.weigh(PAGE.inputs, names("packed").masked) @ PAGE.inputs
    for text in (slice(0, 3), slice(3, 5)):
        alone = PAGE.inputs[:, :, text]
        right = F.scaled_dot_product_attention(alone, alone, alone, is_causal=True, scale=1.0)
        p.close(context[:, :, text], right, 1e-5)


# -- the module ----------------------------------------------------------------------------------


def build(case):
    """A module of the page, a batch, the lengths of its texts, 0 among them, and a side."""
    p.seed_modules(case.seed)
    case.E = case.H * case.D
    case.attend = PAGE.CausalAttention(case.E, case.H, LIMIT).double()
    case.batch = case.randn(case.B, case.T, case.E)
    case.lengths = [(case.seed + 2 * item) % (case.T + 1) for item in range(case.B)]
    case.side = ("right", "left")[case.seed % 2]
    case.padding = padding_of(case.lengths, case.T, case.side)
    case.masked = masked_of(case.lengths, case.T, case.side)
    return case


CASES = p.sizes(B=2, T=LIMIT, H=2, D=2).map(build)


def ours(case):
    return case.attend(case.batch, case.padding)


def by_hand(case):
    qkv = (case.batch @ case.attend.to_qkv.weight.T).unflatten(-1, (3, case.H, case.D))
    queries, keys, values = qkv.permute(2, 0, 3, 1, 4)
    scores = (queries @ keys.mT / case.D**0.5).masked_fill(case.masked, -torch.inf)
    return (scores.softmax(dim=-1) @ values).transpose(1, 2).flatten(2) @ case.attend.to_output.weight.T


def multihead_attention(case):
    """It takes one copy of the mask for each head, made as the page says."""
    module = nn.MultiheadAttention(case.E, case.H, bias=False, batch_first=True, dtype=torch.float64)
    weights = {"in_proj_weight": case.attend.to_qkv.weight, "out_proj.weight": case.attend.to_output.weight}
    module.load_state_dict(weights)
    masked = case.masked.repeat_interleave(case.H, dim=0).flatten(0, 1)
    return module(case.batch, case.batch, case.batch, attn_mask=masked)[0]


@pytest.mark.parametrize("reference", [by_hand, multihead_attention])
def test_the_module_computes_what_an_independent_reference_computes(reference):
    p.equals_reference(ours, reference, CASES)


def test_the_parameters_get_the_gradients_of_the_formula():
    p.gradients_equal(ours, by_hand, lambda case: case.attend.parameters(), CASES)


def test_a_padded_text_gives_what_it_gives_alone():
    p.padded_equals_alone(
        lambda case: [rows[~pads] for rows, pads in zip(ours(case), case.padding)],
        lambda case, item: case.attend(case.batch[item : item + 1, ~case.padding[item]])[0],
        CASES,
    )


def test_a_call_with_padding_changes_no_later_call():
    """Between two calls without padding comes one with padding, of one text."""
    p.stateless(lambda case: (case.attend, [case.batch], [case.batch[:1], case.padding[:1]]), CASES)


def test_large_scores_stay_finite_and_so_do_their_gradients():
    def prove(case):
        outputs = case.attend(1e3 * case.batch, case.padding)
        gradients = torch.autograd.grad(outputs.sum(), list(case.attend.parameters()))
        assert all(tensor.isfinite().all() for tensor in (outputs, *gradients))

    p.for_all(CASES, prove)


def test_without_padding_the_module_is_that_of_the_causal_page():
    causal = p.page_code("foundations/causal", "module")

    def prove(case):
        p.seed_modules(case.seed)
        one = causal.CausalAttention(case.D, case.D, LIMIT).double()
        many = PAGE.CausalAttention(case.D, 1, LIMIT).double()
        roles = [one.to_queries.weight, one.to_keys.weight, one.to_values.weight]
        many.load_state_dict({"to_qkv.weight": torch.cat(roles), "to_output.weight": torch.eye(case.D)})
        batch = case.randn(case.B, case.T, case.D)
        p.close(many(batch), one(batch))
        p.close(many(batch, torch.zeros(case.B, case.T, dtype=torch.bool)), one(batch))

    p.for_all(p.sizes(B=3, T=LIMIT, D=4), prove)


def test_a_checkpoint_fits_another_length_and_a_module_another_device():
    attention = PAGE.CausalAttention(8, 2, 2 * LIMIT)
    attention.load_state_dict(PAGE.CausalAttention(8, 2, LIMIT).state_dict())
    padding = torch.zeros(3, LIMIT, dtype=torch.bool, device="meta")
    assert attention.to("meta")(torch.empty(3, LIMIT, 8, device="meta"), padding).shape == (3, LIMIT, 8)


@pytest.mark.parametrize("shape", [(3, 1, 1, 3), (1, 3), (3,), (3, 1), (3, 3, 3)])
def test_a_padding_mask_of_another_shape_is_refused(shape):
    """B = T, so that each would broadcast."""
    with pytest.raises(ValueError, match=r"^padding must be torch\.bool \(3, 3\)$"):
        PAGE.CausalAttention(8, 2, LIMIT)(torch.randn(3, 3, 8), torch.zeros(shape, dtype=torch.bool))


def test_a_mask_of_numbers_a_long_sequence_and_an_indivisible_width_are_refused():
    attention = PAGE.CausalAttention(8, 2, LIMIT)
    with pytest.raises(ValueError, match="padding must be"):
        attention(torch.randn(3, 2, 8), torch.ones(3, 2, dtype=torch.long))
    with pytest.raises(ValueError, match=f"^{LIMIT + 1} tokens are more than {LIMIT}$"):
        attention(torch.randn(3, LIMIT + 1, 8))
    with pytest.raises(RuntimeError, match="don't multiply up to the size"):
        PAGE.CausalAttention(9, 2, LIMIT)(torch.randn(3, 2, 9))


# -- empty rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
def test_weigh_is_a_softmax_over_visible_keys_and_an_empty_row_is_the_mean(side):
    masked, inputs = masked_of([3, 0, 4], 5, side, itself=False), PAGE.inputs.double()
    right = F.scaled_dot_product_attention(inputs, inputs, inputs, attn_mask=~masked, scale=1.0)
    right = right.masked_fill(masked.all(dim=-1, keepdim=True), torch.nan)
    torch.testing.assert_close(PAGE.weigh(inputs, masked) @ inputs, right, rtol=1e-12, atol=1e-12, equal_nan=True)
    finite = PAGE.weigh(inputs, masked, torch.finfo(torch.float64).min) @ inputs
    p.close(finite, torch.where(right.isnan(), inputs.mean(dim=-2, keepdim=True), right))


@pytest.mark.usefixtures("on_the_cpu")
def test_mha_gives_an_empty_row_its_output_bias_or_nan_without_gradients():
    cell = names("apis")
    empty = masked_of(LENGTHS, 5, "left", itself=False).all(dim=-1)[:, 0]
    nn.init.normal_(cell.mha.out_proj.bias)
    context, _ = cell.mha(cell.tokens, cell.tokens, cell.tokens, need_weights=False, **cell.masks)
    assert torch.equal(context[empty], cell.mha.out_proj.bias.expand_as(context[empty]))
    with torch.no_grad():
        context, _ = cell.mha.eval()(cell.tokens, cell.tokens, cell.tokens, need_weights=False, **cell.masks)
    assert torch.equal(context.isnan().any(dim=-1), empty)


def test_no_repair_changes_a_bit_of_a_real_row():
    pads = PAGE.left[:, None, :, None]
    rows = [repair(PAGE.inputs).masked_fill(pads, 0) for repair in names("repairs").repairs.values()]
    assert len(rows) == 6
    assert all(torch.equal(row, rows[0]) for row in rows)


@pytest.mark.parametrize("repair", ["zero weights", "see itself", "finfo.min, zero"])
def test_a_repair_gives_real_rows_the_outputs_and_gradients_of_their_text_alone(repair):
    inputs = PAGE.inputs.double().requires_grad_()
    context, pads = names("repairs").repairs[repair](inputs), PAGE.left[:, None, :, None]
    alone = torch.zeros_like(context)
    for item, length in enumerate(LENGTHS):
        real = inputs[item : item + 1, :, 5 - length :]
        rows = F.scaled_dot_product_attention(real, real, real, is_causal=True, scale=1.0)
        alone[item, :, 5 - length :] = rows[0]
    p.close(context.masked_fill(pads, 0), alone)
    nothing = inputs if repair == "see itself" else torch.zeros_like(inputs)
    assert torch.equal(context.masked_fill(~pads, 0), nothing.masked_fill(~pads, 0))
    ours, theirs = (
        torch.autograd.grad(rows.masked_fill(pads, 0).square().sum(), inputs)[0] for rows in (context, alone)
    )
    p.close(ours, theirs)


def test_an_empty_memory_is_saved_by_zero_weights():
    queries, memory = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
    masked = torch.tensor([[[False, False, True, True, True]], [[True] * 5]])
    weights = torch.softmax((queries @ memory.mT).masked_fill(masked, -torch.inf), dim=-1)
    context = weights.masked_fill(masked.all(dim=-1, keepdim=True), 0) @ memory
    context.sum().backward()
    assert (context[1] == 0).all()
    assert queries.grad.isfinite().all()
    assert memory.grad.isfinite().all()


# -- PyTorch's kernels, transformers ---------------------------------------------------------------


@pytest.mark.usefixtures("on_the_cpu")
def test_the_fused_kernel_applies_a_mask_and_the_flag_beside_it_without_an_error():
    cell, padding = names("in-torch"), PAGE.left[:, None, None]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        both = F.scaled_dot_product_attention(*cell.roles, attn_mask=~padding, is_causal=True)
    combined = F.scaled_dot_product_attention(*cell.roles, attn_mask=~(cell.causal | padding))
    assert torch.equal(both, combined)
    assert "An error is thrown if both attn_mask and is_causal are set" in F.scaled_dot_product_attention.__doc__


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_library_combines_the_masks_in_the_same_way_and_repairs_nothing(side):
    masked, lowest = masked_of(LENGTHS, 5, side, itself=False), torch.finfo(torch.float32).min

    def library_mask(kind):
        return create_causal_mask(
            config=SimpleNamespace(_attn_implementation=kind),
            inputs_embeds=torch.zeros(3, 5, 8),
            attention_mask=(~getattr(PAGE, side)).long(),
            past_key_values=None,
        )

    assert torch.equal(library_mask("sdpa"), ~masked)
    assert torch.equal(library_mask("eager"), torch.zeros(masked.shape).masked_fill(masked, lowest))


# -- the exercise: every answer runs on the device of the lengths, or it would fail for that alone ----


def pads_of(n, T, side):
    places = torch.arange(T, device=n.device)
    return (places >= n[:, None] if side == "right" else places < T - n[:, None])[:, None, None]


def future(n, T, offset=1):
    return torch.ones(T, T, dtype=torch.bool, device=n.device).triu(offset)


def eye(n, T):
    return torch.eye(T, dtype=torch.bool, device=n.device)


def joined(n, T, side):
    return future(n, T) | pads_of(n, T, side)


def right_mask(n, T, side):
    return joined(n, T, side) & ~eye(n, T)


def first_key_for_empty_rows(n, T, side):
    masked = joined(n, T, side)
    masked[..., 0] &= ~masked.all(dim=-1)
    return masked


def written_into_the_lengths(n, T, side):
    mask = right_mask(n, T, side)
    n -= T
    return mask


def growing():
    kept = {}

    def combine(n, T, side):
        mask = kept.setdefault((len(n), T, n.device), future(n, T).repeat(len(n), 1, 1, 1))
        mask |= pads_of(n, T, side)
        mask &= ~eye(n, T)
        return mask

    return combine


def by_flip(n, T, side):
    pads = torch.arange(T, device=n.device) >= n[:, None]
    pads = pads.flip(1) if side == "left" else pads
    return (future(n, T) | pads[:, None, None]) & ~eye(n, T)


RIGHT = {
    "or, and not": right_mask,
    "the right flipped to the left": by_flip,
    "what is not visible": lambda n, T, side: ~(~future(n, T) & ~pads_of(n, T, side) | eye(n, T)),
    "pads kept off the diagonal first": lambda n, T, side: future(n, T) | (pads_of(n, T, side) & ~eye(n, T)),
    "where": lambda n, T, side: torch.where(eye(n, T), False, joined(n, T, side)),
}
WRONG = {
    "returns None": lambda n, T, side: None,
    "a nested list": lambda n, T, side: right_mask(n, T, side).tolist(),
    "a tensor for each text": lambda n, T, side: list(right_mask(n, T, side)),
    "two heads": lambda n, T, side: right_mask(n, T, side).repeat(1, 2, 1, 1),
    "the lengths read as numbers": lambda n, T, side: masked_of(n.tolist(), T, side).to(n.device),
    "a new mask on the default device": lambda n, T, side: joined(n, T, side) & ~torch.eye(T, dtype=torch.bool),
    "floats 0 and 1": lambda n, T, side: right_mask(n, T, side).float(),
    "floats 0 and minus infinity": lambda n, T, side: torch.zeros(len(n), 1, T, T).masked_fill(
        right_mask(n, T, side), -torch.inf
    ),
    "integers": lambda n, T, side: right_mask(n, T, side).long(),
    "polarity inverted": lambda n, T, side: ~right_mask(n, T, side),
    "no axis for the heads": lambda n, T, side: right_mask(n, T, side)[:, 0],
    "batch and heads swapped": lambda n, T, side: right_mask(n, T, side).transpose(0, 1),
    "padding alone, one row": lambda n, T, side: pads_of(n, T, side),
    "padding alone": lambda n, T, side: pads_of(n, T, side) & ~eye(n, T),
    "future alone": lambda n, T, side: future(n, T).repeat(len(n), 1, 1, 1),
    "empty rows left empty": joined,
    "a diagonal for real tokens only": lambda n, T, side: right_mask(n, T, side) | (eye(n, T) & pads_of(n, T, side)),
    "a diagonal for empty rows only": lambda n, T, side: (
        joined(n, T, side) & ~(joined(n, T, side).all(dim=-1, keepdim=True) & eye(n, T))
    ),
    "empty rows opened to every key": lambda n, T, side: (
        joined(n, T, side) & ~joined(n, T, side).all(dim=-1, keepdim=True)
    ),
    "empty rows see key 0": first_key_for_empty_rows,
    "the other side": lambda n, T, side: right_mask(n, T, {"right": "left", "left": "right"}[side]),
    "always on the right": lambda n, T, side: right_mask(n, T, "right"),
    "always on the left": lambda n, T, side: right_mask(n, T, "left"),
    "AND for OR": lambda n, T, side: future(n, T) & pads_of(n, T, side) & ~eye(n, T),
    "XOR for OR": lambda n, T, side: (future(n, T) ^ pads_of(n, T, side)) & ~eye(n, T),
    "pads hidden as queries": lambda n, T, side: right_mask(n, T, side) | (pads_of(n, T, side).mT & ~eye(n, T)),
    "one token of the future visible": lambda n, T, side: (future(n, T, 2) | pads_of(n, T, side)) & ~eye(n, T),
    "the past hidden": lambda n, T, side: (future(n, T).T | pads_of(n, T, side)) & ~eye(n, T),
    "transposed": lambda n, T, side: right_mask(n, T, side).mT,
    "lengths one too long": lambda n, T, side: right_mask(n + 1, T, side),
    "lengths one too short": lambda n, T, side: right_mask(n - 1, T, side),
    "a length of at least 1": lambda n, T, side: right_mask(n.clamp(min=1), T, side),
    "the first text for all": lambda n, T, side: right_mask(n[:1].expand(len(n)), T, side),
    "texts sorted by length": lambda n, T, side: right_mask(n.sort().values, T, side),
    "written into the lengths": written_into_the_lengths,
    "growing from call to call": growing(),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_combine", RIGHT, WRONG

    @pytest.mark.parametrize(
        ("answer", "said"),
        {
            "no axis for the heads": "its shape is (3, 5, 5)",
            "written into the lengths": "it changes the lengths that it was given",
            "empty rows left empty": "text 0: query 3 must see the keys [0, 1, 2, 3]",
            "a new mask on the default device": "it must run where lengths is, here on the device meta",
            "the lengths read as numbers": "it must run where lengths is, here on the device meta",
        }.items(),
    )
    def test_the_check_names_the_first_fault(self, answer, said):
        assert self.verdict(WRONG[answer]) == f"not yet: [3, 5, 4], T = 5, right: {said}\n"


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "`forward` makes the diagonal visible in any case": [
        "self.register_buffer('causal', ones.triu(), persistent=False)"
    ],
}
ACCEPTED = {
    "the next lines make the diagonal visible in any case": ["future = places >= places[:, None]"],
}
