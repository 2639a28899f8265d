"""Cross-attention: the page's classes and exercise against PyTorch and plain loops, and bugs that shapes let pass."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2Model

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "cross/cross-attention"
PAGE = p.page_code(SLUG, "fused")
KINDS = "CrossAttention", "FusedCrossAttention"
SIZES = p.sizes(B=3, H=2, Tq=4, Tk=(2, 6), D=3, wider=4)


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


# -- cases ---------------------------------------------------------------------------------------


def lengths_of(case):
    """The first memory fills its tensor, the others end somewhere; none is empty."""
    return torch.tensor([case.Tk, *(1 + (case.seed + item) % case.Tk for item in range(1, case.B))])


def modules(kind):
    """Draw one of the page's classes with weights, `inputs`, and a `memory` of another length and width."""

    def build(case):
        case.E, case.memory_width = case.H * case.D, case.H * case.D + case.wider
        p.seed_modules(case.seed)
        case.cross = getattr(PAGE, kind)(case.E, case.memory_width, case.H).double()
        case.inputs = case.randn(case.B, case.Tq, case.E)
        case.memory = case.randn(case.B, case.Tk, case.memory_width)
        case.lengths = lengths_of(case)
        case.is_real = torch.arange(case.Tk) < case.lengths[:, None]
        return case

    return SIZES.map(build)


def both_kinds(test):
    return pytest.mark.parametrize("kind", KINDS)(test)


def call(cross, inputs, memory, is_real):
    """The outputs of either class."""
    if hasattr(cross, "project"):
        return cross(inputs, cross.project(memory), is_real)
    return cross(inputs, memory, is_real)[0]


def outputs(case):
    return call(case.cross, case.inputs, case.memory, case.is_real)


# -- references ----------------------------------------------------------------------------------


def multihead_attention(case):
    """`nn.MultiheadAttention` with the parameters of a page's class: outputs, and weights averaged over the heads."""
    state = dict(case.cross.state_dict(keep_vars=True))
    if "to_kv.weight" in state:
        for part in "weight", "bias":
            state[f"to_keys.{part}"], state[f"to_values.{part}"] = state[f"to_kv.{part}"].chunk(2)
    roles = "queries", "keys", "values"
    theirs = nn.MultiheadAttention(
        case.E, case.H, kdim=case.memory_width, vdim=case.memory_width, batch_first=True, dtype=torch.float64
    )
    given = {f"{role[0]}_proj_weight": state[f"to_{role}.weight"] for role in roles}
    given["in_proj_bias"] = torch.cat([state[f"to_{role}.bias"] for role in roles])
    given |= {f"out_proj.{part}": state[f"to_output.{part}"] for part in ("weight", "bias")}
    call = case.inputs, case.memory, case.memory
    return torch.func.functional_call(theirs, given, call, {"key_padding_mask": ~case.is_real})


@both_kinds
def test_outputs_and_gradients_are_those_of_multihead_attention(kind):
    def leaves(case):
        return [case.inputs, case.memory, *case.cross.parameters()]

    p.equals_reference(outputs, lambda case: multihead_attention(case)[0], modules(kind))
    p.gradients_equal(outputs, lambda case: multihead_attention(case)[0], leaves, modules(kind))


def test_the_mean_weights_are_those_of_multihead_attention():
    def ours(case):
        return case.cross(case.inputs, case.memory, case.is_real)[1].mean(dim=1)

    p.equals_reference(ours, lambda case: multihead_attention(case)[1], modules("CrossAttention"))


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


def test_the_solution_computes_the_formula():
    def roles(case):
        queries = case.randn(case.B, case.H, case.Tq, case.D)
        return queries, *case.randn(2, case.B, case.H, case.Tk, case.D), lengths_of(case)

    attend = names("solution").attend
    p.equals_reference(lambda case: attend(*case), lambda case: by_the_formula(*case), SIZES.map(roles))


# -- what the page says of its classes -------------------------------------------------------------


def every_row_depends_on_every_real_token_and_no_other(attend, kind="CrossAttention"):
    """`attend(cross, inputs, memory, is_real)` gives a row for each query."""

    def function(case):
        inputs, is_real, visible = case.inputs[-1:], case.is_real[-1:], case.is_real[-1].expand(case.Tq, -1)
        return lambda memory: attend(case.cross, inputs, memory[None], is_real)[0], case.memory[-1], visible

    p.reaches_exactly(function, modules(kind))


@both_kinds
def test_every_row_depends_on_every_real_token_and_no_other(kind):
    every_row_depends_on_every_real_token_and_no_other(call, kind)


def test_a_causal_flag_hides_real_memory():
    def flagged(cross, inputs, memory, is_real):
        layers = (cross.to_queries, inputs), (cross.to_keys, memory), (cross.to_values, memory)
        roles = [cross.split_heads(layer(tokens)) for layer, tokens in layers]
        return F.scaled_dot_product_attention(*roles, is_causal=True).transpose(1, 2).flatten(2)

    with pytest.raises(AssertionError, match="may move"):
        every_row_depends_on_every_real_token_and_no_other(flagged)


def test_the_length_of_the_decoder_is_right_for_the_memory_where_the_lengths_agree():
    page = names("length")
    square = page.memory[:, : page.Tq]
    everything = torch.ones(square.shape[:2], dtype=torch.bool)
    right, _ = page.cross(page.inputs, square, everything)
    joined = page.wrong(page.cross, page.inputs, square).transpose(1, 2).flatten(2)
    p.close(page.cross.to_output(joined), right, 1e-6)


@both_kinds
def test_a_query_moves_its_own_row_alone(kind):
    def function(case):
        memory, is_real, own = case.memory[:1], case.is_real[:1], torch.eye(case.Tq, dtype=torch.bool)
        return lambda inputs: call(case.cross, inputs[None], memory, is_real)[0], case.inputs[0], own

    p.reaches_exactly(function, modules(kind))


@both_kinds
def test_the_order_of_the_memory_does_not_matter(kind):
    def reversed_memory(case):
        return call(case.cross, case.inputs, case.memory.flip(1), case.is_real.flip(1))

    p.equals_reference(reversed_memory, outputs, modules(kind))


def test_one_query_at_a_time_from_a_cache_gives_the_rows_of_one_call():
    def step(case, i):
        return case.cross(case.inputs[:, i : i + 1], case.cross.project(case.memory), case.is_real)

    p.steps_equal_whole(step, outputs, modules("FusedCrossAttention"))


@both_kinds
def test_a_call_changes_nothing_and_large_scores_stay_finite(kind):
    def function(case):
        first = case.inputs, case.memory, case.is_real
        return lambda *given: call(case.cross, *given), first, [tensor.flip(0) for tensor in first]

    p.stateless(function, modules(kind))
    p.finite_rows(lambda case: call(case.cross, 1e3 * case.inputs, 1e3 * case.memory, case.is_real), modules(kind))


@both_kinds
def test_widths_batches_and_masks_that_do_not_fit_are_refused(kind):
    cross = getattr(PAGE, kind)(8, 6, 2)
    inputs, memory, is_real = torch.randn(2, 3, 8), torch.randn(2, 5, 6), torch.ones(2, 5, dtype=torch.bool)
    call(cross, inputs, memory, is_real)
    wrong = [
        (inputs, memory, is_real[:, :3]),
        (inputs, memory, is_real[:, :1]),
        (inputs, memory, is_real[:1]),
        (inputs[:1], memory, is_real),
        (inputs, memory[:1], is_real[:1]),
        (inputs, memory[:1], is_real),
    ]
    for given in wrong:
        with pytest.raises(ValueError, match="is_real must be"):
            call(cross, *given)
    with pytest.raises(RuntimeError):
        call(getattr(PAGE, kind)(8, 6, 3), inputs, memory, is_real)


@both_kinds
def test_inputs_and_modules_may_be_on_another_device_than_the_default(kind):
    inputs, memory = torch.empty(2, 3, 8, device="meta"), torch.empty(2, 5, 6, device="meta")
    is_real = torch.ones(2, 5, dtype=torch.bool, device="meta")
    assert call(getattr(PAGE, kind)(8, 6, 2).to("meta"), inputs, memory, is_real).shape == (2, 3, 8)


def test_an_empty_memory_is_nan_or_0_in_sdpa_and_harms_no_other_item():
    def prove(case):
        before = outputs(case)
        case.is_real[0] = False
        after = outputs(case)
        assert after[0].isnan().all()
        p.close(after[1:], before[1:])

    p.for_all(modules("CrossAttention"), prove)
    nothing = torch.zeros(1, 1, 1, 5, dtype=torch.bool, device="cpu")
    tokens = torch.ones(1, 1, 5, 3, device="cpu")
    assert not F.scaled_dot_product_attention(tokens, tokens, tokens, attn_mask=nothing).any()


def test_in_transformers_1_in_the_encoder_attention_mask_means_attend():
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 8, "vocab_size": 11}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, add_cross_attention=True)
    model, memory = GPT2Model(config).eval(), torch.randn(1, 5, 16)

    def hidden(memory):
        mask = torch.tensor([[1, 1, 1, 0, 0]])
        ids = torch.tensor([[1, 2, 3]])
        return model(ids, encoder_hidden_states=memory, encoder_attention_mask=mask).last_hidden_state

    def moved(j):
        nudged = memory.clone()
        nudged[0, j, 0] += 1
        return (hidden(nudged) - hidden(memory)).abs().amax(dim=-1)[0] > 1e-6

    assert [moved(j).tolist() for j in range(5)] == 3 * [[True] * 3] + 2 * [[False] * 3]


def test_the_numbers_of_the_picture_are_the_weights_of_the_words():
    picture = (p.ROOT / "docs/assets/cross-attention-two-sentences.svg").read_text(encoding="utf-8")
    weights = names("steps").weights.flatten().tolist()
    assert re.findall(r">(0\.\d\d)<", picture) == [f"{weight:.2f}" for weight in weights]
    tints = [float(tint) for tint in re.findall(r'fill-opacity="([\d.]+)"', picture)]
    assert tints == pytest.approx([0.6 * weight for weight in weights], abs=1e-3)


# -- the exercise --------------------------------------------------------------------------------


def real(k, n):
    return torch.arange(k.shape[2], device=k.device) < n[:, None]


def visible(q, k, n):
    return real(k, n)[:, None, None]


def triangle(q, k, n):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()


def sdpa(q, k, v, n):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible(q, k, n))


def attend(seen=visible, fill=-torch.inf, dim=-1, divisor=lambda q: q.shape[-1] ** 0.5):
    """The answer by hand, with another mask, number in its place, axis of the softmax, or divisor of the scores."""
    return lambda q, k, v, n: (q @ k.mT / divisor(q)).masked_fill(~seen(q, k, n), fill).softmax(dim) @ v


def unmasked(q, k, v, n):
    return F.scaled_dot_product_attention(q, k, v)


def late(q, k, n):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) * visible(q, k, n)


def unstable(q, k, v, n):
    grown = (q @ k.mT / q.shape[-1] ** 0.5).exp() * visible(q, k, n)
    return grown / grown.sum(-1, keepdim=True) @ v


def in_place(q, k, v, n):
    found = sdpa(q, k, v, n)
    k.zero_()
    return found


def without_device(q, k, v, n):
    seen = torch.arange(k.shape[2], device="cpu") < n[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None])


RIGHT = {
    "the solution": lambda q, k, v, n: names("solution").attend(q, k, v, n),
    "by hand": attend(),
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
    "divided by the root of H D": attend(divisor=lambda q: (q.shape[1] * q.shape[-1]) ** 0.5),
    "keys as values": lambda q, k, v, n: sdpa(q, k, k, n),
    "keys and values swapped": lambda q, k, v, n: sdpa(q, v, k, n),
    "no mask": unmasked,
    "an unstable softmax": unstable,
    "weights masked after the softmax": lambda q, k, v, n: late(q, k, n) @ v,
    "masked late, divided again": lambda q, k, v, n: F.normalize(late(q, k, n), p=1, dim=-1) @ v,
    "filled with 0": attend(fill=0.0),
    "filled with -100": attend(fill=-100.0),
    "filled with -10000": attend(fill=-1e4),
    "filled with -1e9": attend(fill=-1e9),
    "one token too many": lambda q, k, v, n: sdpa(q, k, v, n + 1),
    "seven memory tokens in the mask": attend(lambda q, k, n: (torch.arange(7) < n[:, None])[:, None, None]),
    "padding on the left": attend(lambda q, k, n: visible(q, k, n).flip(-1)),
    "the largest length for all": lambda q, k, v, n: sdpa(q, k, v, n.amax() + 0 * n),
    "a causal mask on top": attend(lambda q, k, n: visible(q, k, n) & triangle(q, k, n)),
    "a causal mask alone": attend(triangle),
    "values of padding set to 0": lambda q, k, v, n: unmasked(q, k, v * visible(q, k, n).mT, n),
    "context and weights": lambda q, k, v, n: (sdpa(q, k, v, n), None),
    "heads merged": lambda q, k, v, n: sdpa(q, k, v, n).transpose(1, 2).flatten(2),
    "float32": lambda q, k, v, n: sdpa(q.float(), k.float(), v.float(), n),
    "a list": lambda q, k, v, n: sdpa(q, k, v, n).tolist(),
    "detached keys": lambda q, k, v, n: sdpa(q, k.detach(), v, n),
    "detached": lambda q, k, v, n: sdpa(q, k, v, n).detach(),
    "inputs changed in place": in_place,
    "lengths changed in place": lambda q, k, v, n: (sdpa(q, k, v, n), n.zero_())[0],
    "four heads": lambda q, k, v, n: sdpa(*(role.view(len(n), 4, -1, role.shape[-1]) for role in (q, k, v)), n),
    "a mask on the default device": without_device,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG
