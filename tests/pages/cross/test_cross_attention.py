"""Cross-attention: the probe and the two bugs that shapes let pass, and what is said of torch and transformers."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers import GPT2Config, GPT2Model

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "cross/cross-attention"
PAGE = p.page_code(SLUG, "fused")
SURVIVORS = {
    "only `D` is read, and queries and keys share it; `Tq` stands in comments": ["H, Tq, D = keys.shape[1:]"],
    "keys and values have one shape": ["_, H, Tk, D = values.shape"],
    "`project` makes keys and values of one memory": ["if is_real.shape != (B, Tk) or B != len(values):"],
}
ACCEPTED = {
    "keys and values have one shape": ["B, H, Tk, D = values.shape"],
    "keys and values are on one device": ["positions = torch.arange(Tk, device=values.device)"],
}


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


def call(cross, inputs, memory, is_real):
    """The outputs of either class."""
    if hasattr(cross, "project"):
        return cross(inputs, cross.project(memory), is_real)
    return cross(inputs, memory, is_real)[0]


# -- the probe, and the bugs -----------------------------------------------------------------------


def by_view(cross, projected):
    B, T, E = projected.shape
    return projected.view(B, cross.num_heads, T, E // cross.num_heads)


def merged_by_view(cross, context):
    B, H, T, D = context.shape
    return context.reshape(B, T, H * D)


def attend(cross, inputs, memory, is_real, q=None, k=None, **mistake):
    """The class by SDPA. What is given beyond the first four is a mistake."""
    if mistake.pop("exchanged", False):
        inputs, memory = memory, inputs
    split, merge = type(cross).split_heads, mistake.pop("merge", type(cross).merge_heads)
    queries, keys = (q or split)(cross, cross.to_queries(inputs)), (k or split)(cross, cross.to_keys(memory))
    values = split(cross, cross.to_values(inputs if mistake.pop("values_of_inputs", False) else memory))
    if mistake.pop("swapped", False):
        keys, values = values, keys
    options = {"attn_mask": is_real[:, None, None]} | mistake
    return cross.to_output(merge(cross, sdpa(queries, keys, values, **options)))


OF_INPUTS = (torch.arange(5) < torch.tensor([[3], [2]]))[:, None, None]


@pytest.mark.parametrize(
    ("mistake", "finds"),
    [
        ({}, set()),
        ({"swapped": True}, {"mha"}),
        ({"scale": 24**-0.5}, {"mha"}),
        ({"q": by_view}, {"inputs", "mha"}),
        ({"merge": merged_by_view}, {"inputs", "mha"}),
        ({"k": by_view}, {"memory", "mha"}),
        ({"values_of_inputs": True}, {"inputs", "mha"}),
        ({"attn_mask": torch.ones(3, 5).tril() > 0}, {"memory", "inputs", "mha"}),
        ({"exchanged": True}, {"memory", "inputs", "mha"}),
        ({"attn_mask": None}, {"memory", "mha"}),
        ({"attn_mask": OF_INPUTS}, {"memory", "mha"}),
    ],
)
def test_which_of_the_two_nudges_and_of_the_numbers_of_mha_finds_which_mistake(mistake, finds):
    page, probe = names("torch"), names("probe")
    inputs = page.tokens.flip(2) if mistake.keys() & {"values_of_inputs", "exchanged"} else page.inputs

    def outputs(inputs, memory):
        return attend(page.ours, inputs, memory, page.is_real, **mistake)

    reads = probe.changed_rows(lambda x: outputs(inputs, x), page.tokens).view(2, -1, 2, 5)
    own = probe.changed_rows(lambda x: outputs(x, page.tokens), inputs)
    right = (torch.eye(2)[:, None, :, None] > 0) & page.is_real  # (2, 1, 2, 5)
    theirs, _ = page.theirs(inputs, page.tokens, page.tokens, key_padding_mask=~page.is_real)
    found = {
        "memory": not torch.equal(reads, right.expand_as(reads)),
        "inputs": not torch.equal(own, torch.eye(len(own)) > 0),
        "mha": not torch.allclose(outputs(inputs, page.tokens), theirs, atol=1e-6),
    }
    assert {test for test in found if found[test]} == finds
    if mistake.get("attn_mask") is OF_INPUTS:
        assert (reads != right).sum(dim=-1)[:, :, 0].tolist() == [[2, 2, 2], [0, 0, 0]]


def test_a_mask_without_its_third_axis_masks_by_head_where_b_is_h():
    page = names("torch")
    given, two_heads = (page.inputs, page.tokens, page.is_real), PAGE.CrossAttention(24, 24, 2)
    by_head = attend(two_heads, *given, attn_mask=page.is_real[None, :, None])
    p.close(attend(two_heads, *given, attn_mask=page.is_real[:, None]), by_head, 1e-6)
    with pytest.raises(RuntimeError, match="must match the size"):
        attend(page.ours, *given, attn_mask=page.is_real[:, None])


def test_two_paths_through_one_split_agree_with_a_view_in_it():
    page = names("torch")
    given = page.inputs, page.tokens, page.is_real
    wrong = type("ByView", (PAGE.CrossAttention,), {"split_heads": by_view})(24, 24, 4)
    p.close(attend(wrong, *given), wrong(*given)[0], 1e-6)


def test_with_equal_widths_mha_has_one_matrix():
    page = names("torch")
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'copy_'"):
        page.theirs.q_proj_weight.copy_(page.ours.to_queries.weight)


# -- what the page says of its classes, of torch and of its picture ---------------------------------


@pytest.mark.parametrize("kind", ["CrossAttention", "FusedCrossAttention"])
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


def test_an_empty_memory_is_nan_and_harms_no_other_item():
    cross, is_real = PAGE.CrossAttention(8, 6, 2), torch.ones(2, 5, dtype=torch.bool)
    inputs, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    before, _ = cross(inputs, memory, is_real)
    is_real[0] = False
    after, _ = cross(inputs, memory, is_real)
    assert after[0].isnan().all()
    assert torch.equal(after[1], before[1])


def test_the_repair_of_the_fused_class_is_that_of_the_weights():
    page = names("empty")
    scores = (page.queries @ page.keys.mT / page.D**0.5).masked_fill(~page.second_empty[:, None, None], -torch.inf)
    weights = scores.softmax(dim=-1).masked_fill(~page.second_empty.any(dim=-1)[:, None, None, None], 0)
    p.close(page.context, weights @ page.keys, 1e-6)
    p.close(page.gradient, torch.autograd.grad((weights @ page.keys).square().sum(), page.keys)[0], 1e-5)


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


def by_hand(q, k, v, n):
    is_real = torch.arange(k.shape[2], device=k.device) < n[:, None]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(~is_real[:, None, None], -torch.inf).softmax(dim=-1) @ v


def masked_late(q, k, v, n):
    """Padding hidden after the softmax, and each row divided by what is left of it."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    weights = weights * (torch.arange(k.shape[2], device=k.device) < n[:, None])[:, None, None]
    return F.normalize(weights, p=1, dim=-1) @ v


RIGHT = {"by hand": by_hand}
WRONG = {
    "padding on the left": lambda q, k, v, n: by_hand(q, k.flip(2), v.flip(2), n),
    "masked late, divided again": masked_late,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda q, k, v, n: by_hand(q, k, v, n + 1), "sentence 0: the context is wrong"),
        (lambda q, k, v, n: by_hand(q, k.detach(), v, n), "sentence 0: the gradient of the keys is wrong"),
        (lambda q, k, v, n: {}[0], "KeyError: 0"),
        (lambda q, k, v, n: by_hand(q, k, v, n + 0 * int(n.max())), "on the device meta: Tensor.item() cannot"),
    ],
)
def test_the_check_says_what_is_wrong_with_an_answer(answer, said):
    assert f"size 1: {said}" in p.verdict(names("solution").check_attend, answer)
