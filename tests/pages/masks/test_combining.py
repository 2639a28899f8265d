"""Combined masks: the page's module and its repairs against PyTorch and transformers, and what breaks a mask."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.masking_utils import create_causal_mask

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "masks/combining"
PAGE = p.page_code(SLUG, "module")
LIMIT = 4
LENGTHS = [3, 5, 4]
MIB = 2**20


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


# -- the masks, entry by entry: True = hidden ------------------------------------------------------


def is_pad(j, length, T, side):
    return j >= length if side == "right" else j < T - length


def padding_of(lengths, T, side):
    return torch.tensor([[[[is_pad(j, length, T, side) for j in range(T)]]] for length in lengths])


def masked_of(lengths, T, side, itself=True):
    """The combined mask, shape (B, 1, T, T); with `itself` every query sees its own key."""

    def masked(i, j, length):
        return (j > i or is_pad(j, length, T, side)) and not (itself and j == i)

    return torch.tensor([[[[masked(i, j, length) for j in range(T)] for i in range(T)]] for length in lengths])


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_masks_of_the_page_hide_the_future_and_the_pads(side):
    padding = getattr(PAGE, side)
    assert torch.equal(padding, padding_of(LENGTHS, 5, side))
    assert torch.equal(PAGE.causal | padding, masked_of(LENGTHS, 5, side, itself=False))


def test_padding_on_the_right_hides_nothing_new_from_a_real_token():
    for masked, length in zip(PAGE.causal | PAGE.right, LENGTHS):
        assert torch.equal(masked[0, :length], PAGE.causal[:length])


def test_visible_masks_joined_by_or_show_the_future():
    visible = ~PAGE.causal | ~PAGE.left
    assert visible[0, 0, 0].tolist() == [True, False, True, True, True]


def test_the_mask_costs_a_byte_per_pair_and_item():
    causal = torch.empty(4096, 4096, dtype=torch.bool, device="meta")
    padding = torch.empty(8, 1, 1, 4096, dtype=torch.bool, device="meta")
    assert (causal | padding).nbytes == 128 * MIB
    assert (causal.nbytes, padding.nbytes) == (16 * MIB, 32 * 1024)


# -- the module ----------------------------------------------------------------------------------


def build(case):
    """A module of the page, a batch, the lengths of its sentences, 0 among them, and a side."""
    p.seed_modules(case.seed)
    case.E = case.H * case.D
    case.attend = PAGE.CausalAttention(case.E, case.H, LIMIT).double()
    case.batch = case.randn(case.B, case.T, case.E)
    case.lengths = [(case.seed + 2 * item) % (case.T + 1) for item in range(case.B)]
    case.side = ("right", "left")[case.seed % 2]
    case.padding = padding_of(case.lengths, case.T, case.side)
    return case


CASES = p.sizes(B=2, T=LIMIT, H=2, D=2).map(build)


def ours(case):
    return case.attend(case.batch, case.padding)


def sdpa(case):
    qkv = (case.batch @ case.attend.to_qkv.weight.T).unflatten(-1, (3, case.H, case.D))
    visible = ~masked_of(case.lengths, case.T, case.side)
    context = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), attn_mask=visible)
    return context.transpose(1, 2).flatten(2) @ case.attend.to_output.weight.T


def multihead_attention(case):
    """It takes one copy of the mask for each head."""
    module = nn.MultiheadAttention(case.E, case.H, bias=False, batch_first=True, dtype=torch.float64)
    weights = {"in_proj_weight": case.attend.to_qkv.weight, "out_proj.weight": case.attend.to_output.weight}
    module.load_state_dict(weights)
    masked = masked_of(case.lengths, case.T, case.side).expand(-1, case.H, -1, -1).flatten(0, 1)
    return module(case.batch, case.batch, case.batch, attn_mask=masked)[0]


@pytest.mark.parametrize("reference", [sdpa, multihead_attention])
def test_the_module_computes_what_an_independent_reference_computes(reference):
    p.equals_reference(ours, reference, CASES)


def test_the_parameters_get_the_gradients_of_sdpa():
    p.gradients_equal(ours, sdpa, lambda case: case.attend.parameters(), CASES)


def test_a_padded_sentence_gives_what_it_gives_alone():
    def real(case, item):
        length = case.lengths[item]
        return slice(0, length) if case.side == "right" else slice(case.T - length, case.T)

    p.padded_equals_alone(
        lambda case: [rows[real(case, item)] for item, rows in enumerate(ours(case))],
        lambda case, item: case.attend(case.batch[item : item + 1, real(case, item)])[0],
        CASES,
    )


def calls(case, attend):
    """Between two calls without padding comes one with padding, of one sentence."""
    return attend, [case.batch], [case.batch[:1], case.padding[:1]]


def test_a_call_with_padding_changes_no_later_call():
    p.stateless(lambda case: calls(case, case.attend), CASES)


def test_a_mask_written_into_the_buffer_does():
    overwriting = names("overwrite").Overwriting
    with pytest.raises(AssertionError):
        p.stateless(lambda case: calls(case, overwriting(case.E, case.H, LIMIT).double()), CASES)


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
        nothing = torch.zeros(case.B, 1, 1, case.T, dtype=torch.bool)
        p.close(many(batch), one(batch))
        assert torch.equal(many(batch, nothing), many(batch))

    p.for_all(p.sizes(B=3, T=LIMIT, D=4), prove)


def test_a_checkpoint_fits_another_length():
    state = PAGE.CausalAttention(8, 2, LIMIT).state_dict()
    PAGE.CausalAttention(8, 2, 2 * LIMIT).load_state_dict(state)


def test_the_mask_is_made_where_the_module_is():
    attention = PAGE.CausalAttention(8, 2, LIMIT).to("meta")
    assert attention.combine(3, torch.zeros(2, 1, 1, 3, dtype=torch.bool, device="meta")).is_meta


def test_a_sequence_beyond_the_limit_is_refused():
    with pytest.raises(ValueError, match=f"^{LIMIT + 1} tokens, but context_length is {LIMIT}$"):
        PAGE.CausalAttention(8, 2, LIMIT)(torch.randn(3, LIMIT + 1, 8))


# -- empty rows ----------------------------------------------------------------------------------


def unscaled_sdpa(inputs, masked):
    """The contexts of `weigh` by PyTorch; nan in an empty row."""
    context = F.scaled_dot_product_attention(inputs, inputs, inputs, attn_mask=~masked, scale=1.0)
    return context.masked_fill(masked.all(dim=-1, keepdim=True), torch.nan)


@pytest.mark.parametrize("side", ["right", "left"])
def test_weigh_is_a_softmax_over_the_visible_keys_and_with_finfo_min_an_empty_row_is_the_mean(side):
    masked, inputs = masked_of(LENGTHS, 5, side, itself=False), PAGE.inputs.double()
    right = unscaled_sdpa(inputs, masked)
    torch.testing.assert_close(PAGE.weigh(inputs, masked) @ inputs, right, rtol=1e-12, atol=1e-12, equal_nan=True)
    finite = PAGE.weigh(inputs, masked, torch.finfo(torch.float64).min) @ inputs
    p.close(finite, torch.where(right.isnan(), inputs.mean(dim=-2, keepdim=True), right))


@pytest.mark.usefixtures("on_the_cpu")
def test_evaluation_without_gradients_takes_a_path_on_which_the_row_is_nan_again():
    cell = names("apis")
    with torch.no_grad():
        context, _ = cell.mha.eval()(cell.tokens, cell.tokens, cell.tokens, need_weights=False, **cell.masks)
    empty = masked_of(LENGTHS, 5, "left", itself=False).all(dim=-1)[:, 0]
    assert torch.equal(context.isnan().any(dim=-1), empty)


@pytest.mark.parametrize("repair", ["zero weights", "see itself", "finfo.min, zero"])
def test_a_repair_gives_real_rows_the_outputs_and_gradients_that_their_sentence_has_alone(repair):
    inputs = PAGE.inputs.double().requires_grad_()
    context = names("repairs").repairs[repair](inputs)
    alone = torch.zeros_like(context)
    for item, length in enumerate(LENGTHS):
        real = inputs[item : item + 1, :, 5 - length :]
        rows = F.scaled_dot_product_attention(real, real, real, is_causal=True, scale=1.0)
        alone[item, :, 5 - length :] = rows[0]
    pads = PAGE.left.mT
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


# -- other pages, PyTorch's kernels, transformers --------------------------------------------------


def test_without_padding_the_table_is_that_of_the_causal_page_digit_for_digit():
    rows, longer = (executed(*cell)[1].splitlines() for cell in ((SLUG, "reduce"), ("foundations/causal", "weights")))
    for row, beginning in zip(longer, rows[:5]):
        assert row.startswith(beginning.rstrip("]),"))


@pytest.mark.usefixtures("on_the_cpu")
def test_the_fused_kernel_applies_a_mask_and_the_flag_beside_it_without_a_word():
    cell = names("in-torch")
    roles = [cell.inputs] * 3
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        both = F.scaled_dot_product_attention(*roles, attn_mask=~cell.left, is_causal=True)
    combined = F.scaled_dot_product_attention(*roles, attn_mask=~(cell.causal | cell.left))
    assert torch.equal(both, combined)
    assert "An error is thrown if both attn_mask and is_causal are set" in F.scaled_dot_product_attention.__doc__


def library_mask(kind, padding):
    config, embeddings = SimpleNamespace(_attn_implementation=kind), torch.zeros(3, 5, 8)
    is_real = (~padding[:, 0, 0]).long()
    return create_causal_mask(config=config, inputs_embeds=embeddings, attention_mask=is_real, past_key_values=None)


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_library_combines_the_masks_in_the_same_way_and_repairs_nothing(side):
    padding, masked = getattr(PAGE, side), masked_of(LENGTHS, 5, side, itself=False)
    lowest = torch.finfo(torch.float32).min
    assert torch.equal(library_mask("sdpa", padding), ~masked)
    assert torch.equal(library_mask("eager", padding), torch.zeros(masked.shape).masked_fill(masked, lowest))
    assert library_mask("sdpa", torch.zeros_like(padding)) is None


# -- the exercise --------------------------------------------------------------------------------


def pads_of(lengths, T, side):
    places = torch.arange(T)
    pads = places >= lengths[:, None] if side == "right" else places < T - lengths[:, None]
    return pads[:, None, None]


def future(T, offset=1):
    return torch.ones(T, T, dtype=torch.bool).triu(offset)


def eye(T):
    return torch.eye(T, dtype=torch.bool)


def right_mask(lengths, T, side):
    return (future(T) | pads_of(lengths, T, side)) & ~eye(T)


def only_empty_rows(lengths, T, side):
    masked = future(T) | pads_of(lengths, T, side)
    return masked & ~(masked.all(dim=-1, keepdim=True) & eye(T))


def opened_to_everything(lengths, T, side):
    masked = future(T) | pads_of(lengths, T, side)
    return masked & ~masked.all(dim=-1, keepdim=True)


def first_key_for_empty_rows(lengths, T, side):
    masked = future(T) | pads_of(lengths, T, side)
    masked[..., 0] &= ~masked.all(dim=-1)
    return masked


def written_into_the_lengths(lengths, T, side):
    mask = right_mask(lengths, T, side)
    lengths -= T
    return mask


def growing():
    kept = {}

    def combine(lengths, T, side):
        mask = kept.setdefault((len(lengths), T), future(T).repeat(len(lengths), 1, 1, 1))
        mask |= pads_of(lengths, T, side)
        mask &= ~eye(T)
        return mask

    return combine


def by_flip(lengths, T, side):
    pads = torch.arange(T) >= lengths[:, None]
    pads = pads.flip(1) if side == "left" else pads
    return (future(T) | pads[:, None, None]) & ~eye(T)


def by_visible(lengths, T, side):
    visible = ~future(T) & ~pads_of(lengths, T, side)
    return ~(visible | eye(T))


RIGHT = {
    "or, and not": right_mask,
    "plain loops": lambda lengths, T, side: masked_of(lengths.tolist(), T, side),
    "the right flipped to the left": by_flip,
    "what is not visible": by_visible,
    "pads kept off the diagonal first": lambda n, T, side: future(T) | (pads_of(n, T, side) & ~eye(T)),
    "where": lambda n, T, side: torch.where(eye(T), False, future(T) | pads_of(n, T, side)),
}
WRONG = {
    "returns None": lambda n, T, side: None,
    "a nested list": lambda n, T, side: right_mask(n, T, side).tolist(),
    "a numpy array": lambda n, T, side: right_mask(n, T, side).numpy(),
    "raises": lambda n, T, side: right_mask(n, T, side)[len(n)],
    "floats 0 and 1": lambda n, T, side: right_mask(n, T, side).float(),
    "floats 0 and minus infinity": lambda n, T, side: torch.zeros(len(n), 1, T, T).masked_fill(
        right_mask(n, T, side), -torch.inf
    ),
    "integers": lambda n, T, side: right_mask(n, T, side).long(),
    "polarity inverted": lambda n, T, side: ~right_mask(n, T, side),
    "no axis for the heads": lambda n, T, side: right_mask(n, T, side)[:, 0],
    "batch and heads swapped": lambda n, T, side: right_mask(n, T, side).transpose(0, 1),
    "two heads": lambda n, T, side: right_mask(n, T, side).repeat(1, 2, 1, 1),
    "padding alone, one row": lambda n, T, side: pads_of(n, T, side),
    "padding alone": lambda n, T, side: pads_of(n, T, side) & ~eye(T),
    "future alone": lambda n, T, side: future(T).repeat(len(n), 1, 1, 1),
    "empty rows left empty": lambda n, T, side: future(T) | pads_of(n, T, side),
    "a diagonal for empty rows only": only_empty_rows,
    "empty rows opened to every key": opened_to_everything,
    "empty rows see key 0": first_key_for_empty_rows,
    "the other side": lambda n, T, side: right_mask(n, T, {"right": "left", "left": "right"}[side]),
    "always on the right": lambda n, T, side: right_mask(n, T, "right"),
    "always on the left": lambda n, T, side: right_mask(n, T, "left"),
    "AND for OR": lambda n, T, side: future(T) & pads_of(n, T, side) & ~eye(T),
    "XOR for OR": lambda n, T, side: (future(T) ^ pads_of(n, T, side)) & ~eye(T),
    "pads hidden as queries": lambda n, T, side: right_mask(n, T, side) | (pads_of(n, T, side).mT & ~eye(T)),
    "pads hidden as queries, not as keys": lambda n, T, side: (future(T) | pads_of(n, T, side).mT) & ~eye(T),
    "one token of the future visible": lambda n, T, side: (future(T, 2) | pads_of(n, T, side)) & ~eye(T),
    "the past hidden": lambda n, T, side: (future(T).T | pads_of(n, T, side)) & ~eye(T),
    "transposed": lambda n, T, side: right_mask(n, T, side).mT,
    "lengths one too long": lambda n, T, side: right_mask(n + 1, T, side),
    "lengths one too short": lambda n, T, side: right_mask(n - 1, T, side),
    "a length of at least 1": lambda n, T, side: right_mask(n.clamp(min=1), T, side),
    "a longest sentence without padding": lambda n, T, side: right_mask(n + T - n.max(), T, side),
    "the first item for all": lambda n, T, side: right_mask(n[:1].expand(len(n)), T, side),
    "items sorted by length": lambda n, T, side: right_mask(n.sort().values, T, side),
    "written into the lengths": written_into_the_lengths,
    "growing from call to call": growing(),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_combine", RIGHT, WRONG

    @pytest.mark.parametrize(
        ("answer", "said"),
        {
            "raises": "it stops with IndexError",
            "no axis for the heads": "torch.bool (3, 5, 5), not torch.bool (3, 1, 5, 5)",
            "written into the lengths": "it changes the lengths that it was given",
            "empty rows left empty": "item 0: query 3 must see the keys [0, 1, 2, 3]",
        }.items(),
    )
    def test_the_check_names_the_first_fault(self, answer, said):
        assert self.verdict(WRONG[answer]) == f"not yet: [3, 5, 4], T = 5, right: {said}\n"

    @pytest.mark.parametrize("side", ["right", "left"])
    def test_the_diagonal_saves_a_sentence_without_tokens(self, side):
        masked = self.solution()[0].combine(torch.tensor([0, 2]), 3, side)
        assert torch.equal(masked[0, 0], ~torch.eye(3, dtype=torch.bool))
