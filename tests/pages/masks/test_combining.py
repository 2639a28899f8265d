"""Combined masks: the page against plain loops, PyTorch and transformers, and the bugs that break a mask."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.masking_utils import create_causal_mask

from tests.pages import properties as p
from tests.pages.bugs import Bugs
from tests.pages.exercise import Exercise

SLUG = "masks/combining"
PAGE, SOLUTION = p.page_code(SLUG, "module"), p.page_code(SLUG, "solution")
LIMIT = 6
SIZES = p.sizes(B=2, T=4, H=2, D=2)
MIB = 2**20

# -- references ----------------------------------------------------------------------------------


def is_pad(j, length, T, side):
    return j >= length if side == "right" else j < T - length


def keys_of(i, length, T, side, itself=True):
    """The keys that query i of a sentence sees."""
    return [j for j in range(T) if (j <= i and not is_pad(j, length, T, side)) or (itself and j == i)]


def loop_mask(lengths, T, side, itself=True):
    """True = hidden, shape (B, 1, T, T)."""
    rows = [[keys_of(i, length, T, side, itself) for i in range(T)] for length in lengths]
    return torch.tensor([[[[j not in keys for j in range(T)] for keys in item]] for item in rows])


def loop_padding(lengths, T, side):
    return torch.tensor([[[[is_pad(j, length, T, side) for j in range(T)]]] for length in lengths])


def with_module(code):
    """Draw a module of the page, a batch, the lengths of its sentences (0 is one of them) and a side."""

    def build(case):
        p.seed_modules(case.seed)
        case.E = case.H * case.D
        case.attend = code.CausalAttention(case.E, case.H, LIMIT).double()
        case.batch = case.randn(case.B, case.T, case.E)
        case.lengths = [(case.seed + 2 * item) % (case.T + 1) for item in range(case.B)]
        case.side = ("right", "left")[case.seed % 2]
        case.padding = loop_padding(case.lengths, case.T, case.side)
        case.roles = [
            rows.unflatten(-1, (case.H, case.D)).transpose(1, 2)
            for rows in (case.batch @ case.attend.to_roles.weight.T).chunk(3, dim=-1)
        ]  # each (B, H, T, D)
        return case

    return SIZES.map(build)


def by_the_formula(case):
    """One Python float at a time; a sum runs over the keys that the query sees."""
    queries, keys, values = (tensor.tolist() for tensor in case.roles)
    heads = torch.zeros(case.B, case.T, case.H, case.D, dtype=torch.float64)
    for b, length in enumerate(case.lengths):
        for h in range(case.H):
            for i in range(case.T):
                seen = keys_of(i, length, case.T, case.side)
                scores = [sum(x * y for x, y in zip(queries[b][h][i], keys[b][h][j])) / case.D**0.5 for j in seen]
                total = sum(map(math.exp, scores))
                for score, j in zip(scores, seen):
                    heads[b, i, h] += math.exp(score) / total * torch.tensor(values[b][h][j], dtype=torch.float64)
    return heads.flatten(2) @ case.attend.to_output.weight.T


def sdpa(case):
    visible = ~loop_mask(case.lengths, case.T, case.side)
    context = F.scaled_dot_product_attention(*case.roles, attn_mask=visible)
    return context.transpose(1, 2).flatten(2) @ case.attend.to_output.weight.T


def multihead_attention(case):
    module = nn.MultiheadAttention(case.E, case.H, bias=False, batch_first=True, dtype=torch.float64)
    weights = {
        "in_proj_weight": case.attend.to_roles.weight.detach(),
        "out_proj.weight": case.attend.to_output.weight.detach(),
    }
    module.load_state_dict(weights)
    hidden = loop_mask(case.lengths, case.T, case.side).expand(-1, case.H, -1, -1).flatten(0, 1)
    return module(case.batch, case.batch, case.batch, attn_mask=hidden)[0]


@pytest.mark.parametrize("reference", [by_the_formula, sdpa, multihead_attention])
def test_the_module_computes_what_an_independent_reference_computes(reference):
    p.equals_reference(lambda case: case.attend(case.batch, case.padding), reference, with_module(PAGE))


def test_the_parameters_of_the_module_get_the_gradients_of_sdpa():
    p.gradients_equal(
        lambda case: case.attend(case.batch, case.padding),
        sdpa,
        lambda case: case.attend.parameters(),
        with_module(PAGE),
    )


# -- what holds for the module -------------------------------------------------------------------


def equals_sdpa(code):
    p.equals_reference(lambda case: case.attend(case.batch, case.padding), sdpa, with_module(code))


def real_rows(case, item):
    length = case.lengths[item]
    return slice(0, length) if case.side == "right" else slice(case.T - length, case.T)


def padded_equals_alone(code):
    def padded(case):
        outputs = case.attend(case.batch, case.padding)
        return [rows[real_rows(case, item)] for item, rows in enumerate(outputs)]

    def alone(case, item):
        return case.attend(case.batch[item : item + 1, real_rows(case, item)])[0]

    p.padded_equals_alone(padded, alone, with_module(code))


def a_row_moves_with_the_tokens_that_it_sees(code):
    def function(case):
        visible = ~loop_mask(case.lengths[:1], case.T, case.side)[0, 0]
        return lambda tokens: case.attend(tokens[None], case.padding[:1])[0], case.batch[0], visible

    p.reaches_exactly(function, with_module(code))


def stateless(code):
    """Between two calls without padding comes one with padding, of one sentence."""

    def function(case):
        return case.attend, [case.batch], [case.batch[:1], case.padding[:1]]

    p.stateless(function, with_module(code))


def finite_forward_and_backward(code):
    def prove(case):
        outputs = case.attend(1e3 * case.batch, case.padding)
        assert outputs.isfinite().all()
        gradients = torch.autograd.grad(outputs.sum(), list(case.attend.parameters()))
        assert all(gradient.isfinite().all() for gradient in gradients)

    p.for_all(with_module(code), prove)


def without_padding_it_is_causal(code):
    def causal(case):
        context = F.scaled_dot_product_attention(*case.roles, is_causal=True)
        return context.transpose(1, 2).flatten(2) @ case.attend.to_output.weight.T

    p.equals_reference(lambda case: case.attend(case.batch), causal, with_module(code))


def the_checkpoint_holds_the_two_weights(code):
    state = code.CausalAttention(8, 2, LIMIT).state_dict()
    assert {name: tuple(weight.shape) for name, weight in state.items()} == {
        "to_roles.weight": (24, 8),
        "to_output.weight": (8, 8),
    }


def the_mask_moves_along_and_stays_boolean(code):
    attention = code.CausalAttention(8, 2, LIMIT).half()
    assert attention.causal.dtype == torch.bool
    assert attention.to("meta").causal.is_meta
    assert attention.combine(5, torch.zeros(3, 1, 1, 5, dtype=torch.bool, device="meta")).is_meta


def a_sequence_fits_up_to_the_limit_and_is_refused_beyond(code):
    attention = code.CausalAttention(8, 2, LIMIT)
    assert attention(torch.randn(3, LIMIT, 8)).shape == (3, LIMIT, 8)
    with pytest.raises(ValueError, match=f"^{LIMIT + 1} tokens, but context_length is {LIMIT}$"):
        attention(torch.randn(3, LIMIT + 1, 8))


PROPERTIES = [
    equals_sdpa,
    padded_equals_alone,
    a_row_moves_with_the_tokens_that_it_sees,
    stateless,
    finite_forward_and_backward,
    without_padding_it_is_causal,
    the_checkpoint_holds_the_two_weights,
    the_mask_moves_along_and_stays_boolean,
    a_sequence_fits_up_to_the_limit_and_is_refused_beyond,
]

COMBINED = "return (self.causal[:T, :T] | padding) & ~itself"
VIEW = "masked = self.causal[None, None, :T, :T]"
BUFFER = 'self.register_buffer("causal", ones.triu(diagonal=1), persistent=False)'
SOFTMAX = "context = torch.softmax(scores, dim=-1) @ values"
FILL = "scores = scores.masked_fill(self.combine(T, padding), -torch.inf)"
ADD = (
    "masked = self.causal[:T, :T] | padding; "
    "scores = scores + torch.zeros(masked.shape, dtype=scores.dtype).masked_fill(masked, -torch.inf)"
)
ZERO = "weights = torch.softmax(scores, dim=-1).masked_fill(masked.all(dim=-1, keepdim=True), 0)"
WRONG_MASK = [equals_sdpa, padded_equals_alone]
MOVES = a_row_moves_with_the_tokens_that_it_sees
BUGS = {  # what the bug makes of the module, and the properties that catch it
    "written into the buffer with |=": ({COMBINED: f"{VIEW}; masked |= padding; return masked"}, [stateless]),
    "written into the buffer with +=": ({COMBINED: f"{VIEW}; masked += padding; return masked"}, [stateless]),
    "the diagonal stays closed": ({" & ~itself": ""}, [equals_sdpa, finite_forward_and_backward]),
    "AND for OR": ({"] | padding": "] & padding"}, [*WRONG_MASK, MOVES, without_padding_it_is_causal]),
    "XOR for OR": ({"] | padding": "] ^ padding"}, WRONG_MASK),
    "padding forgotten": ({"] | padding": "]"}, [*WRONG_MASK, MOVES]),
    "future forgotten": (
        {"self.causal[:T, :T] | padding": "torch.zeros_like(itself) | padding"},
        [equals_sdpa, MOVES, without_padding_it_is_causal],
    ),
    "padding as an inverted mask": (
        {"] | padding": "] | ~torch.as_tensor(padding)"},
        WRONG_MASK,
    ),
    "pads hidden as queries": ({"] | padding": "] | padding | torch.as_tensor(padding).mT"}, [equals_sdpa, MOVES]),
    "the inverse of the whole mask": ({COMBINED: f"{COMBINED} ^ True"}, WRONG_MASK),
    "token itself hidden": ({"diagonal=1": "diagonal=0", " & ~itself": ""}, [*WRONG_MASK, finite_forward_and_backward]),
    "one token of the future visible": ({"diagonal=1": "diagonal=2"}, [equals_sdpa, without_padding_it_is_causal]),
    "lower corner of the buffer": ({"causal[:T, :T]": "causal[-T:, :T]"}, [*WRONG_MASK, without_padding_it_is_causal]),
    "filled with 0": ({"-torch.inf": "0.0"}, WRONG_MASK),
    "filled scores thrown away": (
        {FILL: "scores.masked_fill(self.combine(T, padding), -torch.inf)"},
        WRONG_MASK,
    ),
    "added, and zeroed after the softmax": (
        {FILL: ADD, SOFTMAX: f"{ZERO}; context = weights @ values"},
        [finite_forward_and_backward],
    ),
    "contexts zeroed": (
        {
            FILL: "masked = self.causal[:T, :T] | padding; scores = scores.masked_fill(masked, -torch.inf)",
            SOFTMAX: f"{SOFTMAX}; context = context.masked_fill(masked.all(dim=-1, keepdim=True), 0)",
        },
        [finite_forward_and_backward],
    ),
    "softmax over the queries": ({"dim=-1": "dim=-2"}, WRONG_MASK),
    "not scaled": ({" / D**0.5": ""}, [equals_sdpa, without_padding_it_is_causal]),
    "scaled by the width of the model": ({"D**0.5": "E**0.5"}, [equals_sdpa]),
    "keys as values": ({"dim=-1) @ values": "dim=-1) @ keys"}, [equals_sdpa]),
    "queries as keys": ({"queries @ keys.mT": "queries @ queries.mT"}, [equals_sdpa]),
    "heads and roles swapped": ({"view(B, T, 3, H, D)": "view(B, T, H, 3, D).transpose(2, 3)"}, [equals_sdpa]),
    "heads not split by tokens": ({"context.transpose(1, 2).flatten(2)": "context.reshape(B, T, E)"}, [equals_sdpa]),
    "output not projected": ({"self.to_output(": "("}, [equals_sdpa]),
    "mask in the checkpoint": ({"persistent=False": "persistent=True"}, [the_checkpoint_holds_the_two_weights]),
    "a bias in the roles": (
        {"3 * width, bias=False": "3 * width"},
        [the_checkpoint_holds_the_two_weights, equals_sdpa],
    ),
    "a bias in the output": (
        {"nn.Linear(width, width, bias=False)": "nn.Linear(width, width)"},
        [the_checkpoint_holds_the_two_weights, equals_sdpa],
    ),
    "mask a plain attribute": (
        {BUFFER: "self.causal = ones.triu(diagonal=1)"},
        [the_mask_moves_along_and_stays_boolean],
    ),
    "mask of floats": (
        {BUFFER: BUFFER.replace("diagonal=1)", "diagonal=1).float()")},
        [the_mask_moves_along_and_stays_boolean],
    ),
    "diagonal on the default device": (
        {", device=self.causal.device": ""},
        [the_mask_moves_along_and_stays_boolean],
    ),
    "length not checked": ({"limit < T": "limit < 0"}, [a_sequence_fits_up_to_the_limit_and_is_refused_beyond]),
    "length off by one": ({"limit < T": "limit <= T"}, [a_sequence_fits_up_to_the_limit_and_is_refused_beyond]),
    "numbers of the message swapped": (
        {"{T} tokens, but context_length is {limit}": "{limit} tokens, but context_length is {T}"},
        [a_sequence_fits_up_to_the_limit_and_is_refused_beyond],
    ),
}


class TestBugs(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "module", PROPERTIES, BUGS


# -- the masks and the weights of the page ---------------------------------------------------------


def test_the_masks_of_the_page_are_those_of_three_sentences():
    assert (PAGE.B, PAGE.H, PAGE.T, PAGE.D, PAGE.lengths.tolist()) == (3, 2, 5, 4, [3, 5, 4])
    assert torch.equal(PAGE.causal, loop_mask([5], 5, "right")[0, 0])
    for side in ("right", "left"):
        assert torch.equal(getattr(PAGE, side), loop_padding([3, 5, 4], 5, side))
        assert torch.equal(PAGE.causal | getattr(PAGE, side), loop_mask([3, 5, 4], 5, side, itself=False))


def test_the_or_has_the_shapes_that_the_page_prints_and_is_the_and_of_what_is_visible():
    names, printed = p.run_cell(SLUG, "combine")
    assert torch.equal(names.masked, loop_mask([3, 5, 4], 5, "right", itself=False))
    assert printed.startswith("(5, 5) (3, 1, 1, 5) (3, 1, 5, 5)\n")
    assert printed.endswith("\nTrue\n")
    assert str(names.masked[0, 0].cpu()) in printed


def test_padding_on_the_right_hides_nothing_new_from_a_real_token():
    combined = loop_mask(PAGE.lengths.tolist(), PAGE.T, "right", itself=False)
    for item, length in enumerate(PAGE.lengths.tolist()):
        assert torch.equal(combined[item, 0, :length], PAGE.causal[:length])


def test_the_library_combines_the_masks_in_the_same_way_and_repairs_nothing():
    for side, padding in (("right", PAGE.right), ("left", PAGE.left)):
        hidden = loop_mask([3, 5, 4], 5, side, itself=False)
        assert torch.equal(library_mask("sdpa", padding), ~hidden)
        eager = library_mask("eager", padding)
        assert torch.equal(eager, torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min))
        assert library_mask("sdpa", torch.zeros_like(padding)) is None
    weights = torch.softmax(torch.randn(3, 2, 5, 5) + eager, dim=-1)
    assert torch.equal(weights[0, :, :2], torch.full((2, 2, 5), 0.2))


def library_mask(kind, padding):
    config, embeddings = SimpleNamespace(_attn_implementation=kind), torch.zeros(3, 5, 8)
    keep = (~padding[:, 0, 0]).long()
    return create_causal_mask(config=config, inputs_embeds=embeddings, attention_mask=keep, past_key_values=None)


def softmax_over_the_visible(inputs, masked):
    """The weights of a softmax over the keys that are left, unscaled; an empty row is nan."""
    weights = torch.full((*inputs.shape[:3], inputs.shape[2]), torch.nan, dtype=inputs.dtype)
    for b in range(inputs.shape[0]):
        for h in range(inputs.shape[1]):
            for i in range(inputs.shape[2]):
                seen = [j for j in range(inputs.shape[2]) if not masked[b, 0, i, j]]
                if seen:
                    weights[b, h, i] = 0
                    weights[b, h, i, seen] = torch.softmax(inputs[b, h, seen] @ inputs[b, h, i], dim=0)
    return weights


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_weights_are_a_softmax_over_the_keys_that_are_left(side):
    hidden = loop_mask([3, 5, 4], 5, side, itself=False)
    inputs = PAGE.inputs.double()
    ours = PAGE.weigh(inputs, hidden)
    torch.testing.assert_close(ours, softmax_over_the_visible(inputs, hidden), rtol=1e-12, atol=0, equal_nan=True)
    finite = PAGE.weigh(inputs, hidden, torch.finfo(torch.float64).min)
    p.close(finite, torch.where(hidden.all(dim=-1, keepdim=True), 0.2, ours))


# -- the empty rows ------------------------------------------------------------------------------


def test_two_pads_on_the_left_empty_two_rows_and_the_next_layer_loses_the_sentence():
    names, printed = p.run_cell(SLUG, "empty")
    hidden = loop_mask([3, 5, 4], 5, "left", itself=False)
    assert torch.equal(names.masked, hidden)
    assert hidden.all(dim=-1)[:, 0].sum(dim=1).tolist() == [2, 0, 1]
    assert str(names.masked[0, 0].cpu()) in printed
    assert "layer 1 nan rows [2, 0, 1]\nlayer 2 nan rows [5, 0, 5]\ntensor([0., 0., 1., 0., 0.])\n" in printed
    first = softmax_over_the_visible(PAGE.inputs, hidden) @ PAGE.inputs
    torch.testing.assert_close(names.tokens[1], (names.weights @ first)[1])
    assert torch.equal(names.weights[0, 0, 2], torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]))


APIS = {  # what each call of the page returns for an empty row
    "softmax, -inf": "nan",
    "softmax, finfo.min": "mean",
    "SDPA, boolean": "zero",
    "SDPA, -inf": "zero",
    "SDPA, finfo.min": "mean",
    "MHA, weights True": "nan",
    "MHA, weights False": "zero",
}


def test_each_call_answers_an_empty_row_as_the_page_says_and_the_others_as_they_must():
    names, printed = p.run_cell(SLUG, "apis")
    hidden = loop_mask([3, 5, 4], 5, "left", itself=False)
    assert [line[:20].rstrip() for line in printed.splitlines()] == list(APIS) == list(names.contexts)
    for label, context in names.contexts.items():
        rows = PAGE.inputs if context.ndim == 4 else PAGE.inputs[:, 0]
        if label.startswith("MHA"):
            module = names.mha
            roles = (rows @ module.in_proj_weight.T).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
            right = F.scaled_dot_product_attention(*roles, attn_mask=~hidden).transpose(1, 2).flatten(2)
            right = module.out_proj(right)
        else:
            scaled = rows * (0.5**0.5 if label.startswith("SDPA") else 1.0)
            right = softmax_over_the_visible(scaled, hidden) @ rows
        nothing = {"nan": torch.nan, "zero": 0.0, "mean": rows.mean(dim=-2, keepdim=True)}[APIS[label]]
        empty = hidden.all(dim=-1, keepdim=True) if context.ndim == 4 else hidden.all(dim=-1)[:, 0, :, None]
        torch.testing.assert_close(context, torch.where(empty, nothing, right), equal_nan=True)
        assert printed.splitlines()[list(APIS).index(label)].endswith(f"{context.flatten()[0]:8.4f}")


@pytest.mark.usefixtures("on_the_cpu")
def test_evaluation_without_gradients_takes_a_path_on_which_the_row_is_nan_again():
    names, _ = p.run_cell(SLUG, "apis")
    with torch.no_grad():
        context, _ = names.mha.eval()(names.tokens, names.tokens, names.tokens, need_weights=False, **names.masks)
    empty = loop_mask([3, 5, 4], 5, "left", itself=False).all(dim=-1)[:, 0]
    assert torch.equal(context.isnan().any(dim=-1), empty)


REPAIRS = {  # what a pad returns, and whether the gradients survive
    "none": ("nan", False),
    "zero contexts": ("zero", False),
    "zero weights": ("zero", True),
    "zero, -inf added": ("zero", False),
    "see itself": ("itself", True),
    "finfo.min, zero": ("zero", True),
}


def alone(inputs, lengths):
    """The contexts of sentences padded on the left, each computed from its real tokens alone; nan for a pad."""
    rows = torch.full_like(inputs, torch.nan)
    for item, length in enumerate(lengths):
        real = inputs[item : item + 1, :, inputs.shape[2] - length :]
        rows[item, :, inputs.shape[2] - length :] = F.scaled_dot_product_attention(
            real, real, real, is_causal=True, scale=1.0
        )[0]
    return rows


@pytest.mark.parametrize("repair", REPAIRS)
def test_a_repair_leaves_the_real_rows_alone_and_does_what_the_page_says_to_the_others(repair):
    names, printed = p.run_cell(SLUG, "repairs")
    row, survives = REPAIRS[repair]
    pads = loop_padding([3, 5, 4], 5, "left").mT
    attend = names.repairs[repair]
    assert torch.equal(attend(PAGE.inputs)[1], names.repairs["none"](PAGE.inputs)[1])

    inputs = PAGE.inputs.double().requires_grad_()
    context, real = attend(inputs), alone(inputs, [3, 5, 4])
    nothing = {"nan": torch.nan, "zero": 0.0, "itself": inputs.detach()}[row]
    right = torch.where(pads, nothing, real)
    torch.testing.assert_close(context, right, rtol=1e-12, atol=1e-12, equal_nan=True)
    ours, theirs = (torch.autograd.grad(rows.masked_fill(pads, 0).pow(2).sum(), inputs)[0] for rows in (context, real))
    if survives:
        p.close(ours, theirs)
    else:
        assert ours.isnan().any(dim=(1, 3)).sum() == 10
    count = 0 if survives else 10
    line = printed.splitlines()[list(REPAIRS).index(repair)]
    assert line == f"{repair:18}True  {attend(PAGE.inputs)[0, 0, 0, 0]:8.4f}{count:4}"


def test_where_and_nan_to_num_behave_as_the_first_repair():
    pads = PAGE.left.mT
    masked = PAGE.causal | PAGE.left
    for zeroed in (lambda weights: torch.where(masked, 0.0, weights), lambda weights: weights.nan_to_num(0.0)):
        inputs = PAGE.inputs.clone().requires_grad_()
        context = zeroed(PAGE.weigh(inputs, masked)) @ inputs
        context.masked_fill(pads, 0).sum().backward()
        assert inputs.grad.isfinite().all()
        assert (context[0, :, :2] == 0).all()


# -- the other cells -----------------------------------------------------------------------------


def test_the_probe_finds_every_promise_kept():
    names, printed = p.run_cell(SLUG, "probe")
    yes = "[True, True, True] True"
    assert printed == f"right {yes}\nleft {yes}\nTrue\n7 tokens, but context_length is 6\n"
    assert names.attention.num_heads == 2
    assert names.batch.shape == (3, 5, 8)


@pytest.mark.parametrize(
    "bug", ["written into the buffer with |=", "the diagonal stays closed", "padding forgotten", "length not checked"]
)
def test_the_probe_sees_the_bug(bug):
    def prints_what_it_must(replacements):
        printed = p.run_cell(SLUG, "probe", ("module", replacements))[1]
        assert printed == p.run_cell(SLUG, "probe")[1]

    prints_what_it_must({})
    assert p.catches(prints_what_it_must, BUGS[bug][0])


def test_one_sentence_rewrites_the_buffer_and_three_do_not_fit():
    names, printed = p.run_cell(SLUG, "overwrite")
    row = torch.zeros(6, dtype=torch.bool)
    row[5] = True
    before, after, moved, message = printed.splitlines()
    assert before == str(row.cpu())
    row[3:] = True
    assert after == str(row.cpu())
    assert message == "output with shape [1, 1, 5, 5] doesn't match the broadcast shape [3, 1, 5, 5]"
    expected = torch.ones(6, 6, dtype=torch.bool).triu(diagonal=1)
    expected[:5, 3:5] = True
    assert torch.equal(names.attention.causal, expected)
    p.seed_modules(0)
    right = PAGE.CausalAttention(8, 2, 6)
    assert torch.equal(names.before, right(names.batch))
    change = (names.attention(names.batch) - names.before).detach().abs().amax(dim=(0, 2))
    assert moved == str(change.cpu())
    assert change[:3].tolist() == [0, 0, 0]
    assert (change[3:] > 0.1).all()
    assert p.catches(stateless, p.page_code(SLUG, "module", ("module", BUGS["written into the buffer with |="][0])))


def test_planes_that_are_added_overflow_where_both_hide():
    names, printed = p.run_cell(SLUG, "fills")
    lowest = torch.finfo(torch.bfloat16).min
    hidden = {"causal": PAGE.causal.expand(3, 1, 5, 5), "left": PAGE.left.expand(3, 1, 5, 5)}
    count = hidden["causal"].int() + hidden["left"].int()
    table = torch.tensor([0.0, lowest, -torch.inf, -torch.inf], dtype=torch.bfloat16)
    assert torch.equal(names.once, table[count.clamp(max=1)])
    assert torch.equal(names.twice, table[count])
    assert torch.equal(names.thrice, table[count + PAGE.left.mT.int()])
    lines = printed.splitlines()
    assert lines[0] == str(table[[1, 2, 1, 1, 1]].float().cpu())
    assert lines[1:4] == [
        "tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000])",
        "tensor([0.2500, 0.0000, 0.2500, 0.2500, 0.2500])",
        "tensor([nan, nan, nan, nan, nan])",
    ]
    assert lines[4].endswith("Half without overflow")
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.full((), torch.finfo(dtype).min, dtype=dtype) * 2 == -torch.inf


def test_without_padding_the_table_is_that_of_the_causal_page():
    names, printed = p.run_cell(SLUG, "reduce")
    causal = p.page_code("masks/causal", "weights")
    assert torch.equal(names.journey, causal.inputs[:5])
    weights = PAGE.weigh(names.tokens, PAGE.causal)[0, 0]
    torch.testing.assert_close(weights, causal.weights[:5, :5])
    rows = p.run_cell("masks/causal", "weights")[1].splitlines()
    for ours, theirs in zip(printed.splitlines()[:5], rows):
        assert theirs.startswith(ours.rstrip("]),"))
    assert printed.endswith("True\n")


def test_without_padding_the_module_is_that_of_the_causal_page():
    def prove(case):
        p.seed_modules(case.seed)
        one = p_causal.CausalAttention(case.D, case.D, LIMIT).double()
        many = PAGE.CausalAttention(case.D, 1, LIMIT).double()
        roles = [one.to_queries.weight, one.to_keys.weight, one.to_values.weight]
        eye = torch.eye(case.D, dtype=torch.float64)
        many.load_state_dict({"to_roles.weight": torch.cat(roles).detach(), "to_output.weight": eye})
        batch = case.randn(case.B, case.T, case.D)
        nothing = torch.zeros(case.B, 1, 1, case.T, dtype=torch.bool)
        p.close(many(batch), one(batch))
        assert torch.equal(many(batch, nothing), many(batch))

    p_causal = p.page_code("masks/causal", "module")
    p.for_all(p.sizes(B=3, T=5, D=4), prove)


def test_without_future_the_mask_is_that_of_padding():
    for side in ("right", "left"):
        padding = getattr(PAGE, side)
        hidden = loop_padding([3, 5, 4], 5, side)
        assert torch.equal(torch.zeros_like(PAGE.causal) | padding, hidden.expand(3, 1, 5, 5))


@pytest.mark.usefixtures("on_the_cpu")
def test_sdpa_takes_one_mask_and_its_kernels_disagree_about_the_flag_beside_it():
    names, printed = p.run_cell(SLUG, "in-torch")
    assert torch.equal(names.masked, loop_mask([3, 5, 4], 5, "left"))
    error = "Explicit attn_mask should not be set when is_causal=True"
    assert printed == f"True\n{error}\n"
    torch.testing.assert_close(names.context, softmax_over_the_visible(names.inputs, names.masked) @ names.inputs)
    roles = (names.inputs, names.inputs, names.inputs)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        both = F.scaled_dot_product_attention(*roles, attn_mask=~names.left, is_causal=True)
    combined = F.scaled_dot_product_attention(*roles, attn_mask=~(names.causal | names.left))
    assert torch.equal(both, combined)
    assert "An error is thrown if both attn_mask and is_causal are set" in F.scaled_dot_product_attention.__doc__


def test_the_mask_costs_a_byte_per_pair_and_item():
    causal = torch.empty(4096, 4096, dtype=torch.bool, device="meta")
    padding = torch.empty(8, 1, 1, 4096, dtype=torch.bool, device="meta")
    assert (causal | padding).nbytes == 128 * MIB
    assert (causal.nbytes, padding.nbytes) == (16 * MIB, 32 * 1024)


def test_visible_masks_joined_by_or_show_the_future():
    visible = ~PAGE.causal | ~PAGE.left
    assert visible[0, 0, 0].tolist() == [True, False, True, True, True]


def test_the_diagonal_saves_a_sentence_without_tokens():
    lengths = [0, 2]
    for side in ("right", "left"):
        assert loop_mask(lengths, 3, side, itself=False)[0].all()
        mask = SOLUTION.combine(torch.tensor(lengths), 3, side)
        assert torch.equal(mask[0, 0], ~torch.eye(3, dtype=torch.bool))


def test_an_empty_memory_is_saved_by_zero_weights():
    queries, memory = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
    masked = torch.tensor([[[False, False, True, True, True]], [[True] * 5]])
    weights = torch.softmax((queries @ memory.mT).masked_fill(masked, -torch.inf), dim=-1)
    context = weights.masked_fill(masked.all(dim=-1, keepdim=True), 0) @ memory
    context.sum().backward()
    assert (context[1] == 0).all()
    assert queries.grad.isfinite().all()
    assert memory.grad.isfinite().all()


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
    "plain loops": lambda lengths, T, side: loop_mask(lengths.tolist(), T, side),
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


def test_the_check_names_the_first_wrong_row():
    check = p.page_code(SLUG, "check").check_combine
    printed = p.verdict(check, WRONG["empty rows left empty"])
    assert printed == ("not yet: [3, 5, 4], T = 5, right: item 0: query 3 must see the keys [0, 1, 2, 3]\n")
    assert "not torch.bool (3, 1, 5, 5)" in p.verdict(check, WRONG["no axis for the heads"])
    assert "it changes the lengths" in p.verdict(check, WRONG["written into the lengths"])
    assert "it stops with IndexError" in p.verdict(check, WRONG["raises"])
