"""One head as a module: what a module registers, lost parameters, lost transposes, and the book's numbers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/one-head"
PAGE, SOLUTION = p.page_code(SLUG, "in-torch"), executed(SLUG, "solution")[0]
V1, V2 = SOLUTION.SelfAttention_v1, SOLUTION.SelfAttention_v2
KINDS = [PAGE.SelfAttention_v1, PAGE.SelfAttention_v2, PAGE.FusedHead]
ROLES = ["W_query", "W_key", "W_value"]


# -- the classes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_knows_three_parameters_which_start_as_the_page_says(kind):
    p.seed_modules(1)
    head = kind(60, 200)
    by_hand = kind is KINDS[0]
    shapes = dict.fromkeys(ROLES, (60, 200)) if by_hand else {f"{name}.weight": (200, 60) for name in ROLES}
    assert {name: tuple(one.shape) for name, one in head.state_dict().items()} == shapes
    low, high = (0, 1) if by_hand else (-1 / math.sqrt(60), 1 / math.sqrt(60))
    drawn = [one.detach() for one in head.parameters()]
    for one in drawn:
        assert low <= one.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < one.max() <= high
    assert len({one[0, 0].item() for one in drawn}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_without_its_batch_axis_raises_what_the_page_says(kind):
    with pytest.raises(ValueError, match=r"not enough values to unpack \(expected 3, got 2\)"):
        kind(3, 2)(PAGE.sentence)


def test_with_biases_72_numbers_are_trained():
    assert sum(one.numel() for one in PAGE.SelfAttention_v2(5, 4, qkv_bias=True).parameters()) == 72


# -- the numbers of the book and of the page before --------------------------------------------------


def test_the_function_and_version_1_give_the_contexts_of_the_page_before():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    assert torch.equal(PAGE.sentence, before.inputs)
    p.close(p.page_code(SLUG, "loose").context[0], before.context, 1e-6)
    p.close(p.page_code(SLUG, "call-v1").context[0].detach(), before.context, 1e-6)


def test_version_2_gives_the_contexts_of_the_book():
    p.seed_modules(789)
    queries, keys, values = (nn.Linear(3, 2, bias=False)(PAGE.inputs) for _ in ROLES)
    expected = F.scaled_dot_product_attention(queries, keys, values)
    p.close(p.page_code(SLUG, "call-v2").context.detach(), expected.detach(), 1e-6)
    p.close(expected[0, 0].detach(), torch.tensor([-0.0739, 0.0713]), 1e-4)


# -- what a module registers -------------------------------------------------------------------------


def test_a_buffer_is_moved_and_saved_and_a_list_is_not_searched():
    module = nn.Module()
    module.register_buffer("buffer", torch.zeros(2))
    module.listed = [nn.Parameter(torch.zeros(2))]
    module.found = nn.ParameterList([nn.Parameter(torch.zeros(2))])
    module.to("meta")
    assert list(module.state_dict()) == ["buffer", "found.0"]
    assert [name for name, _ in module.named_parameters()] == ["found.0"]
    assert module.buffer.is_meta


def test_a_parameter_that_was_converted_stays_what_it_was_while_the_loss_falls():
    """What `.to("cuda")` does on a GPU, here with a dtype."""
    p.seed_modules(0)
    head = PAGE.SelfAttention_v1(3, 2)
    parameter = head.W_value
    del head.W_value
    head.W_value = parameter.to(torch.float64).to(torch.float32)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(head(PAGE.inputs).square().sum())
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    assert torch.equal(head.W_value, parameter)
    assert list(head.state_dict()) == ["W_query", "W_key"]


def test_where_there_is_nothing_to_move_the_parameter_stays_one():
    parameter = nn.Parameter(torch.rand(2))
    assert parameter.to(parameter.device) is parameter


def test_scaled_inside_the_brackets_the_parameter_is_registered():
    head = PAGE.SelfAttention_v1(3, 2)
    head.W_value = nn.Parameter(0.5 * torch.rand(3, 2))
    assert sum(one.numel() for one in head.parameters()) == 18


# -- other claims of the page ------------------------------------------------------------------------


def test_without_its_transpose_a_square_matrix_runs_and_another_raises():
    narrow = nn.Linear(3, 2, bias=False)
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(6x3 and 2x3\)"):
        PAGE.inputs @ narrow.weight
    with torch.no_grad(), pytest.raises(RuntimeError, match="must match the size of tensor"):
        narrow.weight.copy_(V1(3, 2).W_query)


def test_the_layer_of_gpt_2_stores_the_order_of_version_1():
    assert Conv1D(7, 4).weight.shape == (4, 7)
    with torch.device("meta"):
        state = GPT2LMHeadModel(GPT2Config(n_layer=1)).state_dict()
    assert state["transformer.h.0.attn.c_attn.weight"].shape == (768, 3 * 768)


# -- the exercise ------------------------------------------------------------------------------------


def filled(head, turn=lambda matrix: matrix.T, order=ROLES, **options):
    """A version 2 whose weights are those of a version 1, turned and in some order."""
    layers = V2(*head.W_query.shape, **options).to(head.W_query)
    for name, source in zip(ROLES, order, strict=True):
        getattr(layers, name).weight.data = turn(getattr(head, source).detach()).clone()
    return layers


def by_state(head):
    layers = V2(*head.W_query.shape).to(head.W_query)
    layers.load_state_dict({f"{name}.weight": matrix.T for name, matrix in head.state_dict().items()})
    return layers


def shared(head):
    layers = filled(head)
    layers.W_key.weight = nn.Parameter(head.W_key.T)
    return layers


def with_a_plain_tensor(head):
    layers = filled(head)
    weight = layers.W_value.weight.detach()
    del layers.W_value.weight
    layers.W_value.weight = weight
    return layers


RIGHT = {"copies": filled, "load_state_dict": by_state}
WRONG = {
    "transposed only if it must be": lambda head: filled(
        head, lambda matrix: matrix if matrix.shape[0] == matrix.shape[1] else matrix.T
    ),
    "memory of one matrix shared": shared,
    "a plain tensor": with_a_plain_tensor,
    "rounded to float16": lambda head: filled(head, lambda matrix: matrix.T.half().double()),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_linear", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "the three matrices have one width": [
        "D = W_key.shape[1]",
        "D = self.W_key.shape[1]",
        "D = self.W_key.out_features",
    ],
}
ACCEPTED = {
    "the three matrices have one shape": ["layers = SelfAttention_v2(*head.W_key.shape).to(head.W_query)"],
    "the three matrices have one device and dtype": ["layers = SelfAttention_v2(*head.W_query.shape).to(head.W_key)"],
}
