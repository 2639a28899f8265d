"""Cross-attention: the page's class and exercise against PyTorch and plain loops, and the bugs that shapes let pass."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.bugs import Bugs
from tests.pages.exercise import Exercise

SLUG = "cross/cross-attention"
PAGE, SOLUTION = p.page_code(SLUG, "class"), p.page_code(SLUG, "solution")
SIZES = p.sizes(B=3, H=2, Tq=4, Tk=(2, 6), D=3, wider=4)

# -- cases ---------------------------------------------------------------------------------------


def modules(code):
    """Draw the page's class with weights, `inputs`, and a `memory` of another length and width."""

    def build(case):
        case.E, case.memory_width = case.H * case.D, case.H * case.D + case.wider
        p.seed_modules(case.seed)
        case.cross = code.CrossAttention(case.E, case.memory_width, case.H).double()
        case.inputs = case.randn(case.B, case.Tq, case.E)
        case.memory = case.randn(case.B, case.Tk, case.memory_width)
        case.lengths = lengths_of(case)
        case.is_real = torch.arange(case.Tk) < case.lengths[:, None]
        return case

    return SIZES.map(build)


def roles(case):
    """Queries, keys, values and lengths, as the exercise takes them."""
    queries = case.randn(case.B, case.H, case.Tq, case.D)
    return queries, *case.randn(2, case.B, case.H, case.Tk, case.D), lengths_of(case)


def lengths_of(case):
    """The first memory fills its tensor, the others end somewhere; none is empty."""
    return torch.tensor([case.Tk, *(1 + (case.seed + item) % case.Tk for item in range(1, case.B))])


def outputs(case):
    return case.cross(case.inputs, case.memory, case.is_real)[0]


# -- references ----------------------------------------------------------------------------------


def by_the_formula(queries, keys, values, lengths):
    """One Python float at a time; the sum over memory tokens stops at the length."""
    B, H, Tq, D = queries.shape
    contexts = []
    for b in range(B):
        for h in range(H):
            for query in queries[b, h].tolist():
                real = keys[b, h, : lengths[b]].tolist()
                scores = [sum(x * y for x, y in zip(query, key)) / math.sqrt(D) for key in real]
                total = sum(map(math.exp, scores))
                columns = zip(*values[b, h, : lengths[b]].tolist())
                contexts.append([sum(math.exp(s) / total * v for s, v in zip(scores, column)) for column in columns])
    return torch.tensor(contexts, dtype=queries.dtype).view(B, H, Tq, D)


def sdpa(queries, keys, values, lengths):
    mask = (torch.arange(keys.shape[2]) < lengths[:, None])[:, None, None]
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def multihead_attention(case):
    """`nn.MultiheadAttention` with the weights of the page's class: outputs, and weights averaged over the heads."""
    E, width, ours = case.E, case.memory_width, case.cross
    theirs = nn.MultiheadAttention(E, case.H, kdim=width, vdim=width, batch_first=True, dtype=torch.float64)
    layers = ours.to_queries, ours.to_keys, ours.to_values
    state = {f"{role}_proj_weight": layer.weight for role, layer in zip("qkv", layers)}
    state["in_proj_bias"] = torch.cat([layer.bias for layer in layers])
    state |= {f"out_proj.{name}": tensor for name, tensor in ours.to_output.state_dict().items()}
    theirs.load_state_dict(state)
    return theirs(case.inputs, case.memory, case.memory, key_padding_mask=~case.is_real)


def between_the_projections(attend):
    """The projections of the class, their heads cut by hand, and a reference between them."""

    def reference(case):
        cross, heads = case.cross, (case.B, -1, case.H, case.D)
        pairs = (cross.to_queries, case.inputs), (cross.to_keys, case.memory), (cross.to_values, case.memory)
        context = attend(*(layer(tokens).view(heads).transpose(1, 2) for layer, tokens in pairs), case.lengths)
        return cross.to_output(context.transpose(1, 2).reshape(case.B, case.Tq, case.E))

    return reference


@pytest.mark.parametrize("reference", [by_the_formula, sdpa])
def test_the_class_computes_what_a_reference_between_its_projections_computes(reference):
    p.equals_reference(outputs, between_the_projections(reference), modules(PAGE))


@pytest.mark.parametrize("reference", [by_the_formula, sdpa])
def test_the_solution_is_what_an_independent_reference_computes(reference):
    p.equals_reference(lambda case: SOLUTION.attend(*case), lambda case: reference(*case), SIZES.map(roles))


def test_the_steps_of_the_page_give_what_sdpa_gives():
    steps = p.page_code(SLUG, "steps")
    p.close(steps.context, sdpa(steps.queries, steps.keys, steps.values, steps.lengths), 1e-6)


def test_the_steps_of_the_page_are_those_of_the_class():
    steps, called = p.page_code(SLUG, "steps"), p.page_code(SLUG, "weights")
    p.close(steps.weights, called.weights, 1e-6)
    p.close(steps.outputs, called.outputs, 1e-6)


def test_keys_and_values_share_a_row_of_the_table():
    steps = p.page_code(SLUG, "steps")
    assert steps.to_keys.weight.shape == steps.to_values.weight.shape
    assert steps.keys.shape == steps.values.shape


# -- what holds for the class --------------------------------------------------------------------


def equals_sdpa(code):
    p.equals_reference(outputs, between_the_projections(sdpa), modules(code))


def gradients_equal_those_of_sdpa(code):
    def leaves(case):
        return [case.inputs, case.memory, *case.cross.parameters()]

    p.gradients_equal(outputs, between_the_projections(sdpa), leaves, modules(code))


def equals_multihead_attention(code):
    """Its outputs, and the weights averaged over the heads."""

    def ours(case):
        found, weights = case.cross(case.inputs, case.memory, case.is_real)
        return torch.cat([found, weights.mean(dim=1)], dim=-1)

    p.equals_reference(ours, lambda case: torch.cat(multihead_attention(case), dim=-1), modules(code))


def cached_steps_equal_one_call(code):
    def step(case, i):
        cache = case.cross.project(case.memory)
        return case.cross(case.inputs[:, i : i + 1], None, case.is_real, cache)[0]

    p.steps_equal_whole(step, outputs, modules(code))


def a_padded_memory_equals_the_memory_alone(code):
    def alone(case, item):
        memory = case.memory[item : item + 1, : case.lengths[item]]
        return case.cross(case.inputs[item : item + 1], memory, torch.ones(memory.shape[:2], dtype=torch.bool))[0][0]

    p.padded_equals_alone(outputs, alone, modules(code))


def every_row_reads_every_real_token_and_no_other(code):
    def function(case):
        inputs, is_real = case.inputs[-1:], case.is_real[-1:]
        may_move = is_real.expand(case.Tq, -1)
        return lambda memory: case.cross(inputs, memory[None], is_real)[0][0], case.memory[-1], may_move

    p.reaches_exactly(function, modules(code))


def a_query_moves_its_own_row(code):
    def function(case):
        memory, is_real = case.memory[:1], case.is_real[:1]
        own = torch.eye(case.Tq, dtype=torch.bool)
        return lambda inputs: case.cross(inputs[None], memory, is_real)[0][0], case.inputs[0], own

    p.reaches_exactly(function, modules(code))


def blind_to_the_order_of_the_memory(code):
    def shuffled(case):
        return case.cross(case.inputs, case.memory.flip(1), case.is_real.flip(1))[0]

    p.equals_reference(shuffled, outputs, modules(code))


def stateless(code):
    def function(case):
        first = case.inputs, case.memory, case.is_real
        return case.cross, first, [tensor.flip(0) for tensor in first]

    p.stateless(function, modules(code))


def an_empty_memory_is_nan_and_harms_no_other_item(code):
    """The softmax of nothing; the page says so of `nn.MultiheadAttention`."""

    def prove(case):
        if case.B > 1:
            before = outputs(case)
            case.is_real[0] = False
            after = outputs(case)
            assert after[0].isnan().all()
            p.close(after[1:], before[1:])

    p.for_all(modules(code), prove)


def finite_for_large_scores(code):
    p.finite_rows(lambda case: case.cross(1e3 * case.inputs, 1e3 * case.memory, case.is_real)[0], modules(code))


PROPERTIES = [
    equals_sdpa,
    gradients_equal_those_of_sdpa,
    equals_multihead_attention,
    cached_steps_equal_one_call,
    a_padded_memory_equals_the_memory_alone,
    every_row_reads_every_real_token_and_no_other,
    a_query_moves_its_own_row,
    blind_to_the_order_of_the_memory,
    stateless,
    an_empty_memory_is_nan_and_harms_no_other_item,
    finite_for_large_scores,
]

# -- the bugs ------------------------------------------------------------------------------------

MASK = "mask = is_real[:, None, None, :]"
CAUSAL = "torch.ones(Tq, Tk, dtype=torch.bool).tril()"
FILLED = "scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)"
CUT = "projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)"
MERGED = "context.transpose(1, 2).flatten(2)"
PROJECTED = "cache or self.project(memory)"
ROLES = "self.cut(self.to_keys(memory)), self.cut(self.to_values(memory))"
SWAPPED = "self.cut(self.to_values(memory)), self.cut(self.to_keys(memory))"
REFERENCES = [equals_sdpa, equals_multihead_attention]
PADDING = [*REFERENCES, a_padded_memory_equals_the_memory_alone]
PADS_ARE_READ = [*PADDING, every_row_reads_every_real_token_and_no_other]
ROWS_MIX = [*REFERENCES, cached_steps_equal_one_call, a_query_moves_its_own_row]
BUGS = {  # what stands in the class, what the bug makes of it, and the properties that catch it
    "causal mask on top of the padding": (
        {MASK: f"{MASK} & {CAUSAL}"},
        [*ROWS_MIX, every_row_reads_every_real_token_and_no_other, blind_to_the_order_of_the_memory],
    ),
    "causal mask in place of the padding": (
        {MASK: f"mask = {CAUSAL}"},
        [*PADS_ARE_READ, cached_steps_equal_one_call, blind_to_the_order_of_the_memory],
    ),
    "decoder's length in the reshape of the memory": (
        {PROJECTED: "cache or self.project(memory.reshape(*inputs.shape[:2], memory.shape[-1]))"},
        REFERENCES,
    ),
    "polarity inverted": ({"fill(~mask": "fill(mask"}, PADS_ARE_READ),
    "padding ignored": ({FILLED: "scores.softmax(dim=-1)"}, PADS_ARE_READ),
    "filled scores thrown away": (
        {f"weights = {FILLED}": "scores.masked_fill(~mask, -torch.inf); weights = scores.softmax(dim=-1)"},
        PADS_ARE_READ,
    ),
    "filled with 0": ({"-torch.inf": "0.0"}, PADS_ARE_READ),
    "weights masked after the softmax": ({FILLED: "scores.softmax(dim=-1) * mask"}, PADS_ARE_READ),
    "mask of shape (B, 1, Tk)": ({MASK: "mask = is_real[:, None, :]"}, PADDING),
    "mask on the queries": ({MASK: "mask = is_real[:, None, :, None]"}, PADS_ARE_READ),
    "mask of item 0 for all": ({MASK: "mask = is_real[0]"}, PADDING),
    "mask inverted in place": (
        {MASK: "mask = is_real.logical_not_()[:, None, None, :]", "fill(~mask": "fill(mask"},
        [stateless],  # the outputs are right; the mask of the caller is not what it was
    ),
    "weights cut from the gradient": ({FILLED: f"{FILLED}.detach()"}, [gradients_equal_those_of_sdpa]),
    "keys as values": ({"weights @ values": "weights @ keys"}, REFERENCES),
    "keys and values swapped": ({ROLES: SWAPPED}, REFERENCES),
    "heads cut by a view, not transposed": (
        {CUT: "projected.view(len(projected), self.num_heads, projected.shape[1], -1)"},
        [*ROWS_MIX, *PADS_ARE_READ],
    ),
    "heads merged without a transpose": ({MERGED: "context.reshape(len(context), Tq, -1)"}, ROWS_MIX),
    "softmax over the queries": ({"dim=-1": "dim=-2"}, [*ROWS_MIX, finite_for_large_scores]),
    "softmax over the heads": ({"dim=-1": "dim=1"}, [*ROWS_MIX, finite_for_large_scores]),
    "not scaled": ({" / D**0.5": ""}, REFERENCES),
    "scaled by the width of the model": ({"D**0.5": "(H * D) ** 0.5"}, REFERENCES),
    "cache ignored": ({PROJECTED: "self.project(memory)"}, [cached_steps_equal_one_call]),
    "memory of an earlier call kept": (
        {PROJECTED: 'self.__dict__.setdefault("kept", cache or self.project(memory))'},
        [a_padded_memory_equals_the_memory_alone, blind_to_the_order_of_the_memory],
    ),
    "nan of an empty memory spread": (
        {FILLED: f"{FILLED}; values = values + 0 * weights.sum()"},
        [an_empty_memory_is_nan_and_harms_no_other_item],
    ),
    "exponentials that overflow": (
        {FILLED: "scores.exp() * mask; weights = weights / weights.sum(dim=-1, keepdim=True)"},
        [finite_for_large_scores],
    ),
}


class TestBugs(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "class", PROPERTIES, BUGS


# -- the claims of the page ----------------------------------------------------------------------


def test_the_decoders_length_on_the_memory_is_right_where_the_lengths_agree_and_raises_elsewhere():
    page = p.page_code(SLUG, "length")
    cross, inputs = page.CrossAttention(page.E, page.memory_width, page.H), page.inputs
    lengths = torch.full((page.B,), page.Tq)
    square = page.memory[:, : page.Tq]
    queries = cross.cut(cross.to_queries(inputs))
    p.close(page.wrong(cross, inputs, square), sdpa(queries, *cross.project(square), lengths), 1e-6)
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        page.wrong(cross, inputs, page.memory)


def test_a_causal_flag_leaves_the_first_query_one_memory_token():
    page = p.page_code(SLUG, "causal")
    assert torch.equal(page.weights[:, :, 0, 0], torch.ones(page.B, page.H))
    assert (page.weights[..., 5:] == 0).all()
    p.close(page.context[:, :, 0], page.values[:, :, 0], 1e-6)


def test_the_weights_grow_with_the_product_of_the_lengths():
    page = p.page_code(SLUG, "latents")
    assert page.weights[0, 0].numel() == 2 * page.tokens == 1400


def test_the_keys_and_values_of_the_page_have_336_numbers():
    assert sum(part.numel() for part in p.page_code(SLUG, "cache").cache) == 336


# -- the exercise --------------------------------------------------------------------------------


def real(k, lengths):
    return torch.arange(k.shape[2]) < lengths[:, None]


def fill(scores, mask, value=-torch.inf):
    return scores.masked_fill(~mask, value)


def mask_of(k, lengths):
    return real(k, lengths)[:, None, None, :]


def scaled(q, k, divisor=None):
    return q @ k.mT / (divisor or q.shape[-1] ** 0.5)


def masked_by(mask, dim=-1):
    """An answer with another mask, a function of queries, keys and lengths."""
    return lambda q, k, v, n: fill(scaled(q, k), mask(q, k, n)).softmax(dim) @ v


def divided_by(divisor):
    """An answer with another scale, a function of queries."""
    return lambda q, k, v, n: fill(scaled(q, k, divisor(q)), mask_of(k, n)).softmax(-1) @ v


def shorter_arange(q, k, n):
    return (torch.arange(q.shape[2]) < n[:, None])[:, None, None]


def triangle(q, k):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()


def late(q, k, n):
    return scaled(q, k).softmax(-1) * mask_of(k, n)


def discarded(q, k, v, n):
    scores = scaled(q, k)
    scores.masked_fill(~mask_of(k, n), -torch.inf)
    return scores.softmax(-1) @ v


RIGHT = {
    "the solution": lambda q, k, v, n: SOLUTION.attend(q, k, v, n),
    "one call": sdpa,
    "one item after the other": by_the_formula,
    "a large negative number": lambda q, k, v, n: fill(scaled(q, k), mask_of(k, n), -1e9).softmax(-1) @ v,
    "masked again and divided again": lambda q, k, v, n: F.normalize(late(q, k, n), p=1, dim=-1) @ v,
}
WRONG = {
    "returns None": lambda q, k, v, n: None,
    "polarity inverted": masked_by(lambda q, k, n: ~mask_of(k, n)),
    "mask of shape (B, Tk)": masked_by(lambda q, k, n: real(k, n)),
    "mask of shape (B, 1, Tk)": masked_by(lambda q, k, n: real(k, n)[:, None]),
    "the decoder's length in the mask": masked_by(lambda q, k, n: shorter_arange(q, k, n)),
    "softmax over the queries": masked_by(lambda q, k, n: mask_of(k, n), dim=-2),
    "softmax over the heads": masked_by(lambda q, k, n: mask_of(k, n), dim=1),
    "not scaled": divided_by(lambda q: 1),
    "divided by D": divided_by(lambda q: q.shape[-1]),
    "divided by 2, the root of one D": divided_by(lambda q: 2),
    "divided by the size of the batch": divided_by(len),
    "divided by the root of H D": divided_by(lambda q: (q.shape[1] * q.shape[-1]) ** 0.5),
    "keys as values": lambda q, k, v, n: sdpa(q, k, k, n),
    "keys and values swapped": lambda q, k, v, n: sdpa(q, v, k, n),
    "no mask": lambda q, k, v, n: F.scaled_dot_product_attention(q, k, v),
    "filled scores thrown away": discarded,
    "weights masked after the softmax": lambda q, k, v, n: late(q, k, n) @ v,
    "filled with 0": lambda q, k, v, n: fill(scaled(q, k), mask_of(k, n), 0.0).softmax(-1) @ v,
    "one token too many": lambda q, k, v, n: sdpa(q, k, v, n + 1),
    "seven memory tokens written into the mask": masked_by(
        lambda q, k, n: (torch.arange(7) < n[:, None])[:, None, None]
    ),
    "padding on the left": masked_by(lambda q, k, n: real(k, n).flip(1)[:, None, None]),
    "the largest length for all": lambda q, k, v, n: sdpa(q, k, v, n.max() + 0 * n),
    "the length of item 0 for all": lambda q, k, v, n: sdpa(q, k, v, n[0] + 0 * n),
    "a causal mask on top": masked_by(lambda q, k, n: mask_of(k, n) & triangle(q, k)),
    "a causal mask alone": masked_by(lambda q, k, n: triangle(q, k)),
    "a mask of 0 and 1 added": lambda q, k, v, n: (scaled(q, k) + mask_of(k, n)).softmax(-1) @ v,
    "values of padding set to 0": lambda q, k, v, n: scaled(q, k).softmax(-1) @ (v * mask_of(k, n).mT),
    "the weights": lambda q, k, v, n: scaled(q, k).softmax(-1),
    "context and weights": lambda q, k, v, n: (sdpa(q, k, v, n), None),
    "heads merged": lambda q, k, v, n: sdpa(q, k, v, n).transpose(1, 2).flatten(2),
    "float64": lambda q, k, v, n: sdpa(q.double(), k.double(), v.double(), n),
    "a list": lambda q, k, v, n: sdpa(q, k, v, n).tolist(),
    "three arguments": lambda q, k, v: None,
    "right up to Tk queries": lambda q, k, v, n: sdpa(q, k, v, n) if q.shape[2] <= 7 else discarded(q, k, v, n),
    "the decoder's length in the reshape": lambda q, k, v, n: sdpa(q, k.reshape(q.shape), v.reshape(q.shape), n),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG
