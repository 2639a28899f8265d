"""One head as a module: both classes against PyTorch and plain loops, what they register, and lost transposes."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, Qwen3Config
from transformers.pytorch_utils import Conv1D

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/one-head"
PAGE, SOLUTION = p.page_code(SLUG, "reduce"), executed(SLUG, "solution")[0]
KINDS = ["v1", "v2"]
ROLES = ["W_query", "W_key", "W_value"]
INPUTS = PAGE.inputs.double()


def with_tokens(case):
    case.inputs = case.randn(case.B, case.T, case.E)
    case.matrices = case.randn(3, case.E, case.D)
    return case


CASES = p.sizes(B=3, T=(2, 6), E=4, D=5).map(with_tokens)


def head_of(code, kind, matrices, **options):
    """A head of the page in float64, with these matrices of shape (E, D)."""
    p.seed_modules(0)
    head = getattr(code, f"SelfAttention_{kind}")(*matrices[0].shape, **options).double()
    for name, matrix in zip(ROLES, matrices, strict=True):
        parameter = getattr(head, name) if kind == "v1" else getattr(head, name).weight
        parameter.data = matrix.clone() if kind == "v1" else matrix.T.clone()
    return head


# -- references ----------------------------------------------------------------------------------


def sdpa(inputs, matrices, scale=None):
    return F.scaled_dot_product_attention(*(inputs @ matrix for matrix in matrices), scale=scale)


def loops(inputs, matrices):
    """Contexts and weights of one sequence by the formula of the page, one Python float at a time."""
    columns = [list(zip(*matrix.tolist())) for matrix in matrices]
    queries, keys, values = (
        [[sum(map(float.__mul__, row, column)) for column in of] for row in inputs.tolist()] for of in columns
    )
    contexts, weights = [], []
    for query in queries:
        scores = [sum(map(float.__mul__, query, key)) / math.sqrt(len(key)) for key in keys]
        weights.append([math.exp(score) / sum(map(math.exp, scores)) for score in scores])
        contexts.append([sum(a * x for a, x in zip(weights[-1], column)) for column in zip(*values)])
    return torch.tensor(contexts, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


# -- what holds for both classes -------------------------------------------------------------------


def equals_loops(code, kind):
    p.equals_reference(
        lambda case: head_of(code, kind, case.matrices)(case.inputs[0]).detach(),
        lambda case: loops(case.inputs[0], case.matrices)[0],
        CASES,
    )


def a_batch_equals_sdpa(code, kind):
    p.equals_reference(
        lambda case: head_of(code, kind, case.matrices)(case.inputs).detach(),
        lambda case: sdpa(case.inputs, case.matrices),
        CASES,
    )


def any_leading_axes_will_do(code, kind):
    p.equals_reference(
        lambda case: head_of(code, kind, case.matrices)(case.inputs[:, None].expand(-1, 2, -1, -1)).detach()[:, 1],
        lambda case: sdpa(case.inputs, case.matrices),
        CASES,
    )


def gradients_equal_those_of_sdpa(code, kind):
    def prove(case):
        outward = case.randn(case.B, case.T, case.D)
        head = head_of(code, kind, case.matrices)
        head(case.inputs).backward(outward)
        ours = [parameter.grad if kind == "v1" else parameter.grad.T for parameter in head.parameters()]
        matrices = [matrix.clone().requires_grad_() for matrix in case.matrices]
        theirs = torch.autograd.grad(sdpa(case.inputs, matrices), matrices, outward)
        for one, other in zip(ours, theirs, strict=True):
            p.close(one, other, 1e-9)

    p.for_all(CASES, prove)


def the_scale_is_an_attribute(code, kind):
    def scaled(case):
        head = head_of(code, kind, case.matrices)
        p.close(head.scale, 1 / math.sqrt(case.D))
        head.scale = 0.3
        return head(case.inputs).detach()

    p.equals_reference(scaled, lambda case: sdpa(case.inputs, case.matrices, scale=0.3), CASES)


def stateless(code, kind):
    p.stateless(
        lambda case: (head_of(code, kind, case.matrices), [case.inputs], [2 * case.inputs.flip(1)]),
        CASES,
    )


def finite_for_large_scores(code, kind):
    p.finite_rows(lambda case: head_of(code, kind, 1e3 * case.matrices)(case.inputs).detach(), CASES)


def the_module_knows_three_parameters(code, kind):
    head = getattr(code, f"SelfAttention_{kind}")(4, 7)
    shapes = dict.fromkeys(ROLES, (4, 7)) if kind == "v1" else {f"{name}.weight": (7, 4) for name in ROLES}
    assert {name: tuple(one.shape) for name, one in head.named_parameters()} == shapes
    assert list(head.state_dict()) == list(shapes)
    assert all(one.requires_grad for one in head.parameters())
    assert sum(one.numel() for one in head.parameters()) == 3 * 4 * 7
    assert all(one.is_meta for one in head.to("meta").parameters())


def the_parameters_start_as_the_page_says(code, kind):
    p.seed_modules(1)
    E, D = 60, 200
    head = getattr(code, f"SelfAttention_{kind}")(E, D)
    drawn = [one.detach() for one in head.parameters()]
    low, high = (0, 1) if kind == "v1" else (-1 / math.sqrt(E), 1 / math.sqrt(E))
    for one in drawn:
        assert low <= one.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < one.max() <= high
        assert abs(one.std() * math.sqrt(12) / (high - low) - 1) < 0.03
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])


OF_BOTH = [
    equals_loops,
    a_batch_equals_sdpa,
    any_leading_axes_will_do,
    gradients_equal_those_of_sdpa,
    the_scale_is_an_attribute,
    stateless,
    finite_for_large_scores,
    the_module_knows_three_parameters,
    the_parameters_start_as_the_page_says,
]


def biases_are_added_where_they_are_asked_for(code, kind="v2"):
    def biased(case):
        head = head_of(code, "v2", case.matrices, qkv_bias=True)
        for name, bias in zip(ROLES, case.biases, strict=True):
            getattr(head, name).bias.data = bias
        return head(case.inputs).detach()

    def reference(case):
        roles = (case.inputs @ matrix + bias for matrix, bias in zip(case.matrices, case.biases))
        return F.scaled_dot_product_attention(*roles)

    def with_biases(case):
        case.biases = case.randn(3, case.D)
        return case

    p.equals_reference(biased, reference, CASES.map(with_biases))


# -- what holds for the solution, `to_linear(head)` ------------------------------------------------


def both_heads_give_the_same(code):
    def prove(case):
        head = head_of(code, "v1", case.matrices)
        layers = code.to_linear(head.float())
        assert isinstance(layers, code.SelfAttention_v2)
        p.close(layers.double()(case.inputs), head.double()(case.inputs))

    p.for_all(CASES, prove)


def what_one_learns_the_other_does_not(code):
    head = code.SelfAttention_v1(3, 2)
    before = [one.detach().clone() for one in head.parameters()]
    layers = code.to_linear(head)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1.0)
    layers(PAGE.inputs).square().sum().backward()
    optimizer.step()
    assert all(map(torch.equal, head.parameters(), before))
    assert not any(torch.equal(getattr(layers, name).weight.T, getattr(head, name)) for name in ROLES)
    assert all(one.grad is None for one in head.parameters())


OF_THE_SOLUTION = [both_heads_give_the_same, what_one_learns_the_other_does_not]


@pytest.mark.parametrize("holds", OF_BOTH)
@pytest.mark.parametrize("kind", KINDS)
def test_a_class_of_the_page_has_the_property(kind, holds):
    holds(PAGE, kind)


def test_version_2_adds_the_biases_that_are_asked_for():
    biases_are_added_where_they_are_asked_for(PAGE)


@pytest.mark.parametrize("holds", OF_THE_SOLUTION)
def test_the_solution_has_the_property(holds):
    holds(SOLUTION)


# -- the numbers of the book ------------------------------------------------------------------------


def drawn_by_linear(d_in=3, d_out=2):
    """Three matrices (E, D), drawn in the order of the book."""
    p.seed_modules(789)
    return [nn.Linear(d_in, d_out, bias=False).weight.detach().T.double() for _ in ROLES]


def test_the_tokens_are_those_of_the_page_before():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    assert torch.equal(PAGE.inputs, before.inputs)
    assert (PAGE.T, PAGE.E, PAGE.D) == (6, 3, 2)


def test_version_1_gives_the_contexts_of_the_page_before():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    p.close(p.page_code(SLUG, "call-v1").context.detach(), before.context, 1e-6)


def test_version_2_gives_the_contexts_and_the_weights_of_the_book():
    contexts, weights = loops(INPUTS, drawn_by_linear())
    names = p.page_code(SLUG, "weights")
    p.close(names.context.detach().double(), contexts, 1e-6)
    p.close(names.weights.detach().double(), weights, 1e-6)
    p.close(contexts[0], torch.tensor([-0.0739, 0.0713], dtype=torch.float64), 1e-4)


# -- the claims of the page ------------------------------------------------------------------------


def test_a_module_moves_what_it_converts_and_leaves_the_other_two_behind():
    kinds = p.page_code(SLUG, "kinds").Kinds().to("meta")
    assert [getattr(kinds, name).is_meta for name in ("parameter", "buffer", "plain", "product")] == [1, 1, 0, 0]


def halved(parameter):
    return parameter * 0.5


def converted(parameter):
    return parameter.double().float()


def lost(operation):
    """A head whose W_value is a parameter with an operation behind it."""
    p.seed_modules(0)
    head = PAGE.SelfAttention_v1(3, 2)
    parameter = head.W_value
    del head.W_value
    head.W_value = operation(parameter)
    return head


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


@pytest.mark.parametrize("operation", [halved, converted])
def test_a_lost_parameter_leaves_12_of_18_asks_for_a_gradient_and_is_in_no_checkpoint(operation):
    head = lost(operation)
    assert sum(one.numel() for one in head.parameters()) == 12
    assert list(head.state_dict()) == ["W_query", "W_key"]
    assert head.W_value.requires_grad


def test_a_lost_parameter_that_was_converted_stays_what_it_was_while_the_loss_falls():
    head = lost(converted)
    before = head.W_value.detach().clone()
    losses = train(head, 5)
    assert losses[-1] < losses[0]
    assert torch.equal(head.W_value, before)


def test_a_lost_parameter_that_was_multiplied_raises_in_the_second_step():
    train(lost(halved), 1)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        train(lost(halved), 2)


def test_where_there_is_nothing_to_move_or_convert_the_parameter_stays_one():
    parameter = nn.Parameter(torch.rand(2))
    assert parameter.to(parameter.device) is parameter


def test_a_parameter_that_is_converted_is_a_parameter_no_more():
    assert not isinstance(nn.Parameter(torch.rand(2)).to(torch.float64), nn.Parameter)
    assert isinstance(nn.Parameter(torch.rand(2).to(torch.float64)), nn.Parameter)


def started(width, head_dim, linear):
    """Two matrices (E, D), as `nn.Linear` or `torch.rand` draws them."""
    if linear:
        return [nn.Linear(width, head_dim, bias=False).weight.detach().T for _ in range(2)]
    return [torch.rand(width, head_dim) for _ in range(2)]


def test_the_second_deviation_is_one_48th_at_768_and_almost_that_of_the_configurations():
    assert math.isclose(1 / math.sqrt(3 * 768), 1 / 48)
    assert abs(1 / 48 - 0.02) < 0.001
    for configuration in (GPT2Config, LlamaConfig, Qwen3Config):
        assert configuration().initializer_range == 0.02


@pytest.mark.parametrize(("width", "head_dim"), [(64, 16), (768, 64), (1024, 128)])
def test_after_linear_the_scores_have_a_deviation_of_a_third_and_after_rand_a_hundred_times_that(width, head_dim):
    p.seed_modules(width)
    tokens = torch.randn(300, width)
    deviations = []
    for linear in (True, False):
        queries, keys = started(width, head_dim, linear)
        scores = (tokens @ queries) @ (tokens @ keys).T / math.sqrt(head_dim)
        deviations.append(scores.std().item())
        if linear:
            assert abs(scores.softmax(dim=1).max()) < 0.1
    assert abs(deviations[0] - 1 / 3) < 0.05
    assert deviations[1] > 100 * deviations[0]


def test_after_rand_an_entry_of_a_query_is_above_all_half_the_sum_of_its_token():
    p.seed_modules(0)
    tokens = torch.randn(300, 768)
    queries = tokens @ torch.rand(768, 64)
    explained = 1 - (queries - tokens.sum(dim=1, keepdim=True) / 2).var() / queries.var()
    assert explained > 0.7


@pytest.mark.parametrize("width", [1, 3, 8, 64])
def test_linear_is_the_product_with_the_transpose_bit_for_bit(width):
    p.seed_modules(width)
    layer, tokens = nn.Linear(width, 5, bias=False), torch.randn(6, width)
    assert torch.equal(layer(tokens), tokens @ layer.weight.T)
    assert layer.weight.shape == (5, width)


def test_identity_matrices_hide_a_forgotten_transpose_and_a_square_is_not_reshaped():
    eye = torch.eye(3)
    assert torch.equal(eye, eye.T)
    square = torch.rand(3, 3)
    assert torch.equal(square.reshape(3, 3), square)


def test_the_transpose_of_a_batch_by_dot_T_raises_and_with_unlucky_sizes_does_not():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sizes in ((3, 4, 2), (2, 6, 2)):
            queries = torch.randn(*sizes)
            with pytest.raises(RuntimeError):
                queries @ queries.T
        queries = torch.randn(3, 3, 3)
        assert (queries @ queries.T).shape == (queries @ queries.mT).shape
        assert not torch.allclose(queries @ queries.T, queries @ queries.mT)


def test_the_rank_is_never_more_than_the_width_of_the_head():
    def prove(case):
        head = head_of(PAGE, "v2", case.matrices)
        outputs = head(case.inputs[0]).detach() @ case.randn(case.D, 9)
        product = case.matrices[2] @ case.randn(case.D, 9)
        assert torch.linalg.matrix_rank(outputs, atol=1e-9) <= case.D
        assert torch.linalg.matrix_rank(product, atol=1e-9) <= case.D

    p.for_all(CASES, prove)


def test_identity_weights_and_scale_1_give_the_contexts_of_the_first_page():
    before = p.page_code("foundations/weighted-average", "contexts").context
    assert torch.equal(p.page_code(SLUG, "reduce").context, before)


def test_the_layer_of_gpt_2_stores_the_layout_of_version_1_and_its_output_projection_is_square():
    assert Conv1D(7, 4).weight.shape == (4, 7)
    with torch.device("meta"):
        state = GPT2LMHeadModel(GPT2Config(n_layer=1)).state_dict()
    assert state["transformer.h.0.attn.c_proj.weight"].shape == (768, 768)
    assert state["transformer.h.0.attn.c_attn.weight"].shape == (768, 3 * 768)


def test_one_seed_does_not_make_two_heads_equal():
    p.seed_modules(789)
    assert not torch.allclose(PAGE.SelfAttention_v1(3, 2)(PAGE.inputs), p.page_code(SLUG, "call-v2").context, atol=0.1)


# -- the exercise --------------------------------------------------------------------------------

V1, V2 = SOLUTION.SelfAttention_v1, SOLUTION.SelfAttention_v2


def widths(head):
    return head.W_query.shape


def filled(head, turn=lambda matrix: matrix.T, order=ROLES, **options):
    """A version 2 whose weights are those of a version 1, turned and in some order."""
    layers = V2(*widths(head), **options)
    for name, source in zip(ROLES, order, strict=True):
        if source:
            getattr(layers, name).weight.data = turn(getattr(head, source).detach()).clone()
    return layers


def by_state(head):
    layers = V2(*widths(head))
    layers.load_state_dict({f"{name}.weight": matrix.T for name, matrix in head.state_dict().items()})
    return layers


def by_parameters(head):
    layers = V2(*widths(head))
    for name in ROLES:
        getattr(layers, name).weight = nn.Parameter(getattr(head, name).T.clone())
    return layers


def by_projection(head):
    """What a layer makes of the identity is its matrix."""
    layers = V2(*widths(head))
    with torch.no_grad():
        for name in ROLES:
            for row in range(widths(head)[1]):
                getattr(layers, name).weight[row] = getattr(head, name)[:, row]
    return layers


def shared(head):
    layers = V2(*widths(head))
    for name in ROLES:
        getattr(layers, name).weight = nn.Parameter(getattr(head, name).T)
    return layers


def one_shared(head):
    layers = filled(head)
    layers.W_key.weight.data = head.W_key.data.T
    return layers


def frozen(head):
    return filled(head).requires_grad_(False)


def one_frozen(head):
    layers = filled(head)
    layers.W_value.weight.requires_grad_(False)
    return layers


def plain(head):
    layers = filled(head)
    weight = layers.W_value.weight.detach()
    del layers.W_value.weight
    layers.W_value.weight = weight
    return layers


def turns_the_head(head):
    layers = filled(head)
    for name in ROLES:
        getattr(head, name).data = getattr(head, name).data.T.contiguous()
    return layers


def empties_the_head(head):
    layers = filled(head)
    nn.init.zeros_(head.W_value)
    return layers


def scaled(head):
    layers = filled(head)
    layers.scale = 1.0
    return layers


def with_zero_biases(head):
    layers = filled(head, qkv_bias=True)
    for name in ROLES:
        nn.init.zeros_(getattr(layers, name).bias)
    return layers


def wrong_direction(head):
    layers = V2(*widths(head))
    for name in ROLES:
        getattr(head, name).data = getattr(layers, name).weight.data.T.clone()
    return layers


def transposed_if_it_must_be(head):
    return filled(head, lambda matrix: matrix if matrix.shape[0] == matrix.shape[1] else matrix.T)


def with_a_parameter_more(head):
    layers = filled(head)
    layers.extra = nn.Parameter(torch.zeros(1))
    return layers


RIGHT = {
    "data replaced": filled,
    "load_state_dict": by_state,
    "new parameters": by_parameters,
    "row by row": by_projection,
    "kept in eval mode": lambda head: filled(head).eval(),
}
WRONG = {
    "returns None": lambda head: None,
    "raises": lambda head: head.W_query.weight,
    "the head itself": lambda head: head,
    "a version 1": lambda head: V1(*widths(head)),
    "a state dict": lambda head: filled(head).state_dict(),
    "a list of layers": lambda head: list(filled(head).children()),
    "the class": lambda head: V2,
    "nothing copied": lambda head: V2(*widths(head)),
    "transpose forgotten": lambda head: filled(head, lambda matrix: matrix),
    "transposed only if it must be": transposed_if_it_must_be,
    "reshaped": lambda head: filled(head, lambda matrix: matrix.reshape(matrix.shape[::-1])),
    "turned by 90 degrees": lambda head: filled(head, lambda matrix: matrix.rot90()),
    "flipped and transposed": lambda head: filled(head, lambda matrix: matrix.T.flip(0)),
    "queries and keys swapped": lambda head: filled(head, order=["W_key", "W_query", "W_value"]),
    "keys and values swapped": lambda head: filled(head, order=["W_query", "W_value", "W_key"]),
    "queries for all": lambda head: filled(head, order=["W_query"] * 3),
    "keys as values": lambda head: filled(head, order=["W_query", "W_key", "W_key"]),
    "values forgotten": lambda head: filled(head, order=["W_query", "W_key", None]),
    "queries and keys forgotten": lambda head: filled(head, order=[None, None, "W_value"]),
    "widths swapped": lambda head: V2(*reversed(widths(head))),
    "biases": lambda head: filled(head, qkv_bias=True),
    "biases of zero": with_zero_biases,
    "memory shared": shared,
    "memory of one matrix shared": one_shared,
    "frozen": frozen,
    "one matrix frozen": one_frozen,
    "a plain tensor": plain,
    "one parameter more": with_a_parameter_more,
    "float64": lambda head: filled(head).double(),
    "rounded to half": lambda head: filled(head, lambda matrix: matrix.T.half().float()),
    "not scaled": scaled,
    "the head turned": turns_the_head,
    "the head emptied": empties_the_head,
    "the wrong direction": wrong_direction,
    "the matrices scaled": lambda head: filled(head, lambda matrix: matrix.T / widths(head)[1] ** 0.5),
    "absolute tenths": lambda head: filled(head, lambda matrix: (10 * matrix.T).round() / 10),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_linear", RIGHT, WRONG
