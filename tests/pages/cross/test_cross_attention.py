"""Cross-attention: the page's class and exercise against PyTorch and plain loops, and two bugs that shapes let pass."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "cross/cross-attention"
PAGE, SOLUTION = p.page_code(SLUG, "class"), p.page_code(SLUG, "solution")
SIZES = p.sizes(B=3, H=2, Tq=4, Tk=(2, 6), D=3, wider=4)

# -- cases ---------------------------------------------------------------------------------------


def lengths_of(case):
    """The first memory fills its tensor, the others end somewhere; none is empty."""
    return torch.tensor([case.Tk, *(1 + (case.seed + item) % case.Tk for item in range(1, case.B))])


def with_module(case):
    """The page's class with weights, `inputs`, and a `memory` of another length and width."""
    case.E, case.memory_width = case.H * case.D, case.H * case.D + case.wider
    p.seed_modules(case.seed)
    case.cross = PAGE.CrossAttention(case.E, case.memory_width, case.H).double()
    case.inputs = case.randn(case.B, case.Tq, case.E)
    case.memory = case.randn(case.B, case.Tk, case.memory_width)
    case.lengths = lengths_of(case)
    case.is_real = torch.arange(case.Tk) < case.lengths[:, None]
    return case


MODULES = SIZES.map(with_module)


def roles(case):
    """Queries, keys, values and lengths, as the exercise takes them."""
    queries = case.randn(case.B, case.H, case.Tq, case.D)
    return queries, *case.randn(2, case.B, case.H, case.Tk, case.D), lengths_of(case)


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
    visible = (torch.arange(keys.shape[2]) < lengths[:, None])[:, None, None]
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)


def sdpa_between_the_projections(case):
    """The projections of the class, their heads cut by hand, and torch between them."""
    cross, heads = case.cross, (case.B, -1, case.H, case.D)
    pairs = (cross.to_queries, case.inputs), (cross.to_keys, case.memory), (cross.to_values, case.memory)
    context = sdpa(*(layer(tokens).view(heads).transpose(1, 2) for layer, tokens in pairs), case.lengths)
    return cross.to_output(context.transpose(1, 2).reshape(case.B, case.Tq, case.E))


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


def test_outputs_and_mean_weights_are_those_of_multihead_attention():
    def ours(case):
        found, weights = case.cross(case.inputs, case.memory, case.is_real)
        return torch.cat([found, weights.mean(dim=1)], dim=-1)

    p.equals_reference(ours, lambda case: torch.cat(multihead_attention(case), dim=-1), MODULES)


def test_outputs_and_gradients_are_those_of_sdpa_between_the_projections():
    def leaves(case):
        return [case.inputs, case.memory, *case.cross.parameters()]

    p.equals_reference(outputs, sdpa_between_the_projections, MODULES)
    p.gradients_equal(outputs, sdpa_between_the_projections, leaves, MODULES)


def test_the_solution_computes_the_formula():
    p.equals_reference(lambda case: SOLUTION.attend(*case), lambda case: by_the_formula(*case), SIZES.map(roles))


def test_the_steps_of_the_page_are_those_of_the_class():
    steps, called = p.page_code(SLUG, "steps"), p.page_code(SLUG, "weights")
    p.close(steps.weights, called.weights, 1e-6)
    p.close(steps.outputs, called.outputs, 1e-6)


# -- what the page says of its class ---------------------------------------------------------------


def every_row_reads_every_real_token_and_no_other(attend):
    """`attend(cross, inputs, memory, is_real)` gives a row for each query."""

    def function(case):
        inputs, is_real, visible = case.inputs[-1:], case.is_real[-1:], case.is_real[-1].expand(case.Tq, -1)
        return lambda memory: attend(case.cross, inputs, memory[None], is_real)[0], case.memory[-1], visible

    p.reaches_exactly(function, MODULES)


def test_every_row_reads_every_real_token_and_no_other():
    every_row_reads_every_real_token_and_no_other(lambda cross, *given: cross(*given)[0])


def test_a_causal_flag_hides_real_memory():
    def flagged(cross, inputs, memory, is_real):
        queries, (keys, values) = cross.cut(cross.to_queries(inputs)), cross.project(memory)
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True).transpose(1, 2).flatten(2)

    with pytest.raises(AssertionError, match="may move"):
        every_row_reads_every_real_token_and_no_other(flagged)


def test_the_decoders_length_on_the_memory_is_right_where_the_lengths_agree_and_raises_elsewhere():
    page = p.page_code(SLUG, "length")
    square = page.memory[:, : page.Tq]
    queries = page.cross.cut(page.cross.to_queries(page.inputs))
    right = F.scaled_dot_product_attention(queries, *page.cross.project(square))
    p.close(page.wrong(page.cross, page.inputs, square), right, 1e-6)
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        page.wrong(page.cross, page.inputs, page.memory)


def test_a_query_moves_its_own_row_alone():
    def function(case):
        memory, is_real = case.memory[:1], case.is_real[:1]
        own = torch.eye(case.Tq, dtype=torch.bool)
        return lambda inputs: case.cross(inputs[None], memory, is_real)[0][0], case.inputs[0], own

    p.reaches_exactly(function, MODULES)


def test_the_order_of_the_memory_does_not_matter():
    def shuffled(case):
        return case.cross(case.inputs, case.memory.flip(1), case.is_real.flip(1))[0]

    p.equals_reference(shuffled, outputs, MODULES)


def test_one_query_at_a_time_from_a_cache_gives_the_rows_of_one_call():
    def step(case, i):
        cache = case.cross.project(case.memory)
        return case.cross(case.inputs[:, i : i + 1], None, case.is_real, cache)[0]

    p.steps_equal_whole(step, outputs, MODULES)


def test_a_call_changes_nothing():
    def function(case):
        first = case.inputs, case.memory, case.is_real
        return case.cross, first, [tensor.flip(0) for tensor in first]

    p.stateless(function, MODULES)


def test_an_empty_memory_is_nan_and_harms_no_other_item():
    def prove(case):
        before = outputs(case)
        case.is_real[0] = False
        after = outputs(case)
        assert after[0].isnan().all()
        p.close(after[1:], before[1:])

    p.for_all(MODULES, prove)


def test_large_scores_stay_finite():
    p.finite_rows(lambda case: case.cross(1e3 * case.inputs, 1e3 * case.memory, case.is_real)[0], MODULES)


# -- the exercise --------------------------------------------------------------------------------


def real(k, n):
    return torch.arange(k.shape[2]) < n[:, None]


def visible(q, k, n):
    return real(k, n)[:, None, None]


def triangle(q, k, n):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()


def attend(seen=visible, fill=-torch.inf, dim=-1, divisor=lambda q: q.shape[-1] ** 0.5):
    """The answer by hand, with another mask, number in its place, axis of the softmax, or divisor of the scores."""
    return lambda q, k, v, n: (q @ k.mT / divisor(q)).masked_fill(~seen(q, k, n), fill).softmax(dim) @ v


def weights_of(q, k):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)


def late(q, k, n):
    return weights_of(q, k) * visible(q, k, n)


def unmasked(q, k, v, n):
    return weights_of(q, k) @ v


RIGHT = {
    "the solution": lambda q, k, v, n: SOLUTION.attend(q, k, v, n),
    "one call": sdpa,
    "one item after the other": by_the_formula,
    "a large negative number": attend(fill=-1e9),
    "masked again and divided again": lambda q, k, v, n: F.normalize(late(q, k, n), p=1, dim=-1) @ v,
}
WRONG = {
    "returns None": lambda q, k, v, n: None,
    "polarity inverted": attend(lambda q, k, n: ~visible(q, k, n)),
    "mask of shape (B, Tk)": attend(lambda q, k, n: real(k, n)),
    "mask of shape (B, 1, Tk)": attend(lambda q, k, n: real(k, n)[:, None]),
    "the decoder's length in the mask": attend(lambda q, k, n: visible(q, q, n)),
    "softmax over the queries": attend(dim=-2),
    "softmax over the heads": attend(dim=1),
    "not scaled": attend(divisor=lambda q: 1),
    "divided by D": attend(divisor=lambda q: q.shape[-1]),
    "divided by 2, the root of one D": attend(divisor=lambda q: 2),
    "divided by the size of the batch": attend(divisor=len),
    "divided by the root of H D": attend(divisor=lambda q: (q.shape[1] * q.shape[-1]) ** 0.5),
    "keys as values": lambda q, k, v, n: sdpa(q, k, k, n),
    "keys and values swapped": lambda q, k, v, n: sdpa(q, v, k, n),
    "no mask": lambda q, k, v, n: F.scaled_dot_product_attention(q, k, v),
    "filled scores thrown away": unmasked,
    "weights masked after the softmax": lambda q, k, v, n: late(q, k, n) @ v,
    "filled with 0": attend(fill=0.0),
    "one token too many": lambda q, k, v, n: sdpa(q, k, v, n + 1),
    "seven memory tokens written into the mask": attend(lambda q, k, n: (torch.arange(7) < n[:, None])[:, None, None]),
    "padding on the left": attend(lambda q, k, n: visible(q, k, n).flip(-1)),
    "the largest length for all": lambda q, k, v, n: sdpa(q, k, v, n.max() + 0 * n),
    "the length of item 0 for all": lambda q, k, v, n: sdpa(q, k, v, n[0] + 0 * n),
    "a causal mask on top": attend(lambda q, k, n: visible(q, k, n) & triangle(q, k, n)),
    "a causal mask alone": attend(triangle),
    "a mask of 0 and 1 added": lambda q, k, v, n: (q @ k.mT / q.shape[-1] ** 0.5 + visible(q, k, n)).softmax(-1) @ v,
    "values of padding set to 0": lambda q, k, v, n: unmasked(q, k, v * visible(q, k, n).mT, n),
    "the weights": lambda q, k, v, n: weights_of(q, k),
    "context and weights": lambda q, k, v, n: (sdpa(q, k, v, n), None),
    "heads merged": lambda q, k, v, n: sdpa(q, k, v, n).transpose(1, 2).flatten(2),
    "float64": lambda q, k, v, n: sdpa(q.double(), k.double(), v.double(), n),
    "a list": lambda q, k, v, n: sdpa(q, k, v, n).tolist(),
    "three arguments": lambda q, k, v: None,
    "right up to Tk queries": lambda q, k, v, n: sdpa(q, k, v, n) if q.shape[2] <= 7 else unmasked(q, k, v, n),
    "the decoder's length in the reshape": lambda q, k, v, n: sdpa(q, k.reshape(q.shape), v.reshape(q.shape), n),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG
