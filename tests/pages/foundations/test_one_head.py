"""One head as a module: three classes against SDPA, what a module registers, and lost transposes."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, Qwen3Config
from transformers.pytorch_utils import Conv1D

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/one-head"
PAGE, SOLUTION = p.page_code(SLUG, "in-torch"), executed(SLUG, "solution")[0]
PROBE = p.page_code(SLUG, "probe")
V1, V2 = SOLUTION.SelfAttention_v1, SOLUTION.SelfAttention_v2
KINDS = [PAGE.SelfAttention_v1, PAGE.SelfAttention_v2, PAGE.FusedHead]
ROLES = ["W_query", "W_key", "W_value"]


def with_tokens(case):
    case.inputs = case.randn(case.B, case.T, case.E)
    case.matrices = case.randn(3, case.E, case.D)
    return case


CASES = p.sizes(B=3, T=(2, 6), E=4, D=5).map(with_tokens)


def head_of(kind, matrices, **options):
    """A head of the page in float64, with these matrices of shape (E, D)."""
    p.seed_modules(0)
    head = kind(*matrices[0].shape, **options).double()
    for name, matrix in zip(ROLES, matrices, strict=True):
        own = getattr(head, name)
        if isinstance(own, nn.Linear):
            own.weight.data = matrix.T.clone()
        else:
            own.data = matrix.clone()
    return head


def sdpa(inputs, matrices, biases=(0, 0, 0)):
    return F.scaled_dot_product_attention(*(inputs @ matrix + bias for matrix, bias in zip(matrices, biases)))


# -- what holds for each class -----------------------------------------------------------------------


def equals_sdpa(kind):
    p.equals_reference(
        lambda case: head_of(kind, case.matrices)(case.inputs).detach(),
        lambda case: sdpa(case.inputs, case.matrices),
        CASES,
    )


def gradients_equal_those_of_sdpa(kind):
    def prove(case):
        outward = case.randn(case.B, case.T, case.D)
        head = head_of(kind, case.matrices)
        head(case.inputs).backward(outward)
        ours = [one.grad if kind is KINDS[0] else one.grad.T for one in head.parameters()]
        matrices = [matrix.clone().requires_grad_() for matrix in case.matrices]
        theirs = torch.autograd.grad(sdpa(case.inputs, matrices), matrices, outward)
        for one, other in zip(ours, theirs, strict=True):
            p.close(one, other, 1e-9)

    p.for_all(CASES, prove)


def stateless(kind):
    p.stateless(lambda case: (head_of(kind, case.matrices), [case.inputs], [2 * case.inputs.flip(1)]), CASES)


def finite_for_large_scores(kind):
    p.finite_rows(lambda case: head_of(kind, 1e3 * case.matrices)(case.inputs).detach(), CASES)


def the_module_knows_three_parameters(kind):
    head = kind(4, 7)
    shapes = dict.fromkeys(ROLES, (4, 7)) if kind is KINDS[0] else {f"{name}.weight": (7, 4) for name in ROLES}
    assert {name: tuple(one.shape) for name, one in head.named_parameters()} == shapes
    assert list(head.state_dict()) == list(shapes)
    assert sum(one.numel() for one in head.parameters()) == 3 * 4 * 7


def runs_on_another_device(kind):
    context = kind(4, 7).to("meta")(torch.empty(2, 3, 4, device="meta"))
    assert context.is_meta
    assert context.shape == (2, 3, 7)


def the_parameters_start_as_the_page_says(kind):
    p.seed_modules(1)
    E, D = 60, 200
    drawn = [one.detach() for one in kind(E, D).parameters()]
    low, high = (0, 1) if kind is KINDS[0] else (-1 / math.sqrt(E), 1 / math.sqrt(E))
    for one in drawn:
        assert low <= one.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < one.max() <= high
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])


HOLD = [
    equals_sdpa,
    gradients_equal_those_of_sdpa,
    stateless,
    finite_for_large_scores,
    the_module_knows_three_parameters,
    runs_on_another_device,
    the_parameters_start_as_the_page_says,
]


@pytest.mark.parametrize("holds", HOLD)
@pytest.mark.parametrize("kind", KINDS)
def test_a_class_of_the_page_has_the_property(kind, holds):
    holds(kind)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_sentence_without_its_batch_axis_raises_what_the_page_says(kind):
    with pytest.raises(ValueError, match=r"not enough values to unpack \(expected 3, got 2\)"):
        kind(3, 2)(torch.zeros(6, 3))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_biases_that_are_asked_for_are_added(kind):
    def biased(case):
        head = head_of(kind, case.matrices, qkv_bias=True)
        for name, bias in zip(ROLES, case.inputs.new_ones(3, case.D).cumsum(0), strict=True):
            getattr(head, name).bias.data = bias
        return head(case.inputs).detach()

    p.equals_reference(biased, lambda case: sdpa(case.inputs, case.matrices, (1, 2, 3)), CASES)


# -- the numbers of the book and of the page before --------------------------------------------------


def test_version_1_gives_the_contexts_of_the_page_before():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    assert torch.equal(PAGE.sentence, before.inputs)
    p.close(p.page_code(SLUG, "call-v1").context[0].detach(), before.context, 1e-6)


def test_version_2_gives_the_contexts_of_the_book():
    p.seed_modules(789)
    matrices = [nn.Linear(3, 2, bias=False).weight.detach().T for _ in ROLES]
    for cell in ("call-v2", "weights"):
        p.close(p.page_code(SLUG, cell).context.detach(), sdpa(PAGE.inputs, matrices), 1e-6)
    p.close(sdpa(PAGE.inputs, matrices)[0, 0], torch.tensor([-0.0739, 0.0713]), 1e-4)


# -- what a module registers -------------------------------------------------------------------------


def test_a_buffer_is_moved_and_saved_but_no_plain_tensor_and_no_list_is_searched():
    module = nn.Module()
    module.register_buffer("buffer", torch.zeros(2))
    module.plain = torch.zeros(2)
    module.listed = [nn.Parameter(torch.zeros(2))]
    module.found = nn.ParameterList([nn.Parameter(torch.zeros(2))])
    module.to("meta")
    assert list(module.state_dict()) == ["buffer", "found.0"]
    assert [name for name, _ in module.named_parameters()] == ["found.0"]
    assert module.buffer.is_meta
    assert not module.plain.is_meta


def train(head, steps):
    """The losses of some steps of SGD."""
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(head(PAGE.inputs).square().sum())
        losses[-1].backward()
        optimizer.step()
    return losses


def test_a_parameter_that_was_converted_stays_what_it_was_while_the_loss_falls():
    """What `.to("cuda")` does on a GPU, here with a dtype."""
    p.seed_modules(0)
    head = PAGE.SelfAttention_v1(3, 2)
    parameter = head.W_value
    del head.W_value
    head.W_value = parameter.to(torch.float64).to(torch.float32)
    losses = train(head, 5)
    assert losses[-1] < losses[0]
    assert torch.equal(head.W_value, parameter)
    assert list(head.state_dict()) == ["W_query", "W_key"]


def test_a_parameter_that_was_multiplied_raises_in_the_second_step():
    head = PROBE.LostValue(3, 2)
    assert sum(one.numel() for one in head.parameters()) == 12
    train(head, 1)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        train(head, 1)


def test_where_there_is_nothing_to_move_the_parameter_stays_one():
    parameter = nn.Parameter(torch.rand(2))
    assert parameter.to(parameter.device) is parameter
    head = PROBE.SelfAttention_v1(3, 2)
    head.W_value = nn.Parameter(0.5 * torch.rand(3, 2))
    assert sum(one.numel() for one in head.parameters()) == 18


# -- other claims of the page ------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "head_dim"), [(64, 16), (768, 64), (1024, 128)])
def test_scores_deviate_by_a_third_after_linear_and_by_100_times_that_after_rand(width, head_dim):
    p.seed_modules(width)
    tokens = torch.randn(300, width)
    scores = {}
    for name, (W_query, W_key) in {
        "linear": [nn.Linear(width, head_dim).weight.detach().T for _ in range(2)],
        "rand": torch.rand(2, width, head_dim),
    }.items():
        scores[name] = (tokens @ W_query) @ (tokens @ W_key).T / math.sqrt(head_dim)
    assert abs(scores["linear"].std() - 1 / 3) < 0.05
    assert scores["rand"].std() > 100 * scores["linear"].std()


def test_the_deviation_of_linear_is_one_48th_at_768_and_the_given_one_a_fiftieth():
    p.seed_modules(0)
    assert abs(48 * nn.Linear(768, 768).weight.std() - 1) < 0.01
    for configuration in (GPT2Config, LlamaConfig, Qwen3Config):
        assert configuration().initializer_range == 0.02


def test_a_matrix_without_its_transpose_raises_or_is_off_by_what_the_page_says():
    p.seed_modules(789)
    narrow = nn.Linear(3, 2, bias=False)
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(6x3 and 2x3\)"):
        PAGE.inputs @ narrow.weight
    p.seed_modules(789)
    square = nn.Linear(3, 3, bias=False)
    assert round((PAGE.inputs @ square.weight - square(PAGE.inputs)).abs().max().item(), 4) == 0.6138


def test_the_rank_is_never_more_than_the_width_of_the_head():
    def prove(case):
        outputs = head_of(V2, case.matrices)(case.inputs).detach() @ case.randn(case.D, 9)
        assert (torch.linalg.matrix_rank(outputs, atol=1e-9) <= case.D).all()

    p.for_all(CASES, prove)


def test_the_fused_kernels_of_the_cpu_take_four_axes(on_the_cpu):
    tokens = torch.ones(1, 1, 6, 8)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(tokens, tokens, tokens)
        with (
            pytest.warns(UserWarning, match="Flash attention kernel not used"),
            pytest.warns(UserWarning, match="All fused kernels requires query, key and value to be 4 dimensional"),
            pytest.raises(RuntimeError, match="No available kernel"),
        ):
            F.scaled_dot_product_attention(tokens[0], tokens[0], tokens[0])


def test_the_layer_of_gpt_2_stores_the_order_of_version_1_and_a_square_projection():
    assert Conv1D(7, 4).weight.shape == (4, 7)
    with torch.device("meta"):
        state = GPT2LMHeadModel(GPT2Config(n_layer=1)).state_dict()
    assert state["transformer.h.0.attn.c_proj.weight"].shape == (768, 768)
    assert state["transformer.h.0.attn.c_attn.weight"].shape == (768, 3 * 768)


# -- the exercise ------------------------------------------------------------------------------------


def filled(head, turn=lambda matrix: matrix.T, order=ROLES, **options):
    """A version 2 whose weights are those of a version 1, turned and in some order."""
    layers = V2(*head.W_query.shape, **options).to(head.W_query)
    for name, source in zip(ROLES, order, strict=True):
        if source:
            getattr(layers, name).weight.data = turn(getattr(head, source).detach()).clone()
    return layers


def by_state(head):
    layers = V2(*head.W_query.shape).to(head.W_query)
    layers.load_state_dict({f"{name}.weight": matrix.T for name, matrix in head.state_dict().items()})
    return layers


def shared(head, names=ROLES):
    layers = filled(head)
    for name in names:
        getattr(layers, name).weight = nn.Parameter(getattr(head, name).T)
    return layers


def on_the_default_device(head):
    layers = V2(*head.W_query.shape).to(head.W_query.dtype)
    layers.load_state_dict({f"{name}.weight": matrix.T for name, matrix in head.state_dict().items()})
    return layers


def with_one_frozen(head):
    layers = filled(head)
    layers.W_value.weight.requires_grad_(False)
    return layers


def with_a_plain_tensor(head):
    layers = filled(head)
    weight = layers.W_value.weight.detach()
    del layers.W_value.weight
    layers.W_value.weight = weight
    return layers


def turns_the_head(head):
    layers = filled(head)
    head.W_query.data = head.W_query.data.flip(0)
    return layers


def empties_the_head(head):
    for one in head.parameters():
        one.data.zero_()
    return filled(head)


RIGHT = {"copies": filled, "load_state_dict": by_state}
WRONG = {
    "the head itself": lambda head: head,
    "a version 1": lambda head: V1(*head.W_query.shape).to(head.W_query),
    "nothing copied": lambda head: V2(*head.W_query.shape).to(head.W_query),
    "transposed only if it must be": lambda head: filled(
        head, lambda matrix: matrix if matrix.shape[0] == matrix.shape[1] else matrix.T
    ),
    "reshaped": lambda head: filled(head, lambda matrix: matrix.reshape(matrix.shape[::-1])),
    "queries and keys swapped": lambda head: filled(head, order=["W_key", "W_query", "W_value"]),
    "keys and values swapped": lambda head: filled(head, order=["W_query", "W_value", "W_key"]),
    "values forgotten": lambda head: filled(head, order=["W_query", "W_key", None]),
    "biases": lambda head: filled(head, qkv_bias=True),
    "memory shared": shared,
    "memory of one matrix shared": lambda head: shared(head, ["W_key"]),
    "frozen": lambda head: filled(head).requires_grad_(False),
    "one matrix frozen": with_one_frozen,
    "a plain tensor": with_a_plain_tensor,
    "another dtype": lambda head: filled(head).float(),
    "the default device": on_the_default_device,
    "the CPU": lambda head: filled(head).to("cpu"),
    "rounded to float16": lambda head: filled(head, lambda matrix: matrix.T.half().double()),
    "the head turned": turns_the_head,
    "the head emptied": empties_the_head,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_linear", RIGHT, WRONG


def test_the_solution_gives_the_contexts_on_any_device():
    def prove(case):
        head = head_of(V1, case.matrices)
        p.close(SOLUTION.to_linear(head)(case.inputs), head(case.inputs))

    p.for_all(CASES, prove)
    assert all(one.is_meta for one in SOLUTION.to_linear(V1(3, 2).to("meta")).parameters())


# -- changes of the page's code that need no test, and of the solution that are as good ------------

ACCEPTED = {
    "the three matrices have one shape": ["layers = SelfAttention_v2(*head.W_key.shape).to(head.W_query)"],
    "the three matrices have one device and dtype": ["layers = SelfAttention_v2(*head.W_query.shape).to(head.W_key)"],
}
