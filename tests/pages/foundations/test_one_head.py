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


# -- the bugs ------------------------------------------------------------------------------------

SOFTMAX, PRODUCT = "torch.softmax(scores, dim=-1)", "queries @ keys.mT"
LINE = "self.W_value = nn.Parameter(torch.rand(d_in, d_out))"
ALL = [equals_loops, a_batch_equals_sdpa]
BUGS = {  # what the bug makes of the lines of both classes, and the properties that catch it
    ".T of a batch": ({"keys.mT": "keys.T"}, [a_batch_equals_sdpa, any_leading_axes_will_do]),
    "transposed by the number of the axis": ({"keys.mT": "keys.transpose(0, 1)"}, [any_leading_axes_will_do]),
    "softmax over axis 1": ({"dim=-1": "dim=1"}, [a_batch_equals_sdpa, any_leading_axes_will_do]),
    "softmax over the queries": ({"dim=-1": "dim=-2"}, ALL),
    "not scaled": ({" * self.scale": ""}, [*ALL, the_scale_is_an_attribute]),
    "scaled by the width of the tokens": ({"d_out**-0.5": "d_in**-0.5"}, ALL),
    "multiplied by the root": ({"d_out**-0.5": "d_out**0.5"}, ALL),
    "scaled by D": ({"d_out**-0.5": "1 / d_out"}, ALL),
    "scale not heard": ({"* self.scale": "* keys.shape[-1] ** -0.5"}, [the_scale_is_an_attribute]),
    "keys as values": ({"weights @ values": "weights @ keys"}, [*ALL, gradients_equal_those_of_sdpa]),
    "queries as keys": ({PRODUCT: "queries @ queries.mT"}, [*ALL, gradients_equal_those_of_sdpa]),
    "queries and keys swapped": ({PRODUCT: "keys @ queries.mT"}, ALL),
    "scores as weights": ({SOFTMAX: "scores"}, ALL),
    "all but the token itself": (
        {SOFTMAX: "torch.softmax(scores - torch.eye(scores.shape[-1]) * 50, dim=-1)"},
        ALL,
    ),
    "exponentials that overflow": (
        {SOFTMAX: "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"},
        [finite_for_large_scores],
    ),
    "weights cut from the gradient": ({SOFTMAX: f"{SOFTMAX}.detach()"}, [gradients_equal_those_of_sdpa]),
    "values cut from the gradient": (
        {"weights @ values": "weights @ values.detach()"},
        [gradients_equal_those_of_sdpa],
    ),
    "queries kept for the next call": (
        {PRODUCT: "getattr(self, 'kept', queries) @ keys.mT", SOFTMAX: f"{SOFTMAX}; self.kept = queries * 2"},
        [stateless],
    ),
    "tokens changed in place": ({PRODUCT: f"{PRODUCT} + 0 * inputs.mul_(2).sum()"}, [stateless]),
}
BUGS_OF_V1 = {
    "a plain tensor": ({LINE: "self.W_value = torch.rand(d_in, d_out)"}, [the_module_knows_three_parameters]),
    "a product of a parameter": ({LINE: f"{LINE} * 0.5"}, [the_module_knows_three_parameters]),
    "a buffer": (
        {LINE: 'self.register_buffer("W_value", torch.rand(d_in, d_out))'},
        [the_module_knows_three_parameters],
    ),
    "not trained": ({LINE: f"{LINE[:-1]}, requires_grad=False)"}, [the_module_knows_three_parameters]),
    "normal numbers": ({LINE: LINE.replace("rand", "randn")}, [the_parameters_start_as_the_page_says]),
    "the layout of Linear": (
        {LINE: LINE.replace("d_in, d_out", "d_out, d_in")},
        [the_module_knows_three_parameters],
    ),
    "one parameter for two roles": (
        {LINE: "self.W_value = self.W_key"},
        [the_module_knows_three_parameters, gradients_equal_those_of_sdpa],
    ),
    "a matrix on the left": ({"inputs @ self.W_query": "(self.W_query.mT @ inputs.mT)"}, ALL),
    "values not projected": ({"inputs @ self.W_value": "inputs"}, [*ALL, gradients_equal_those_of_sdpa]),
    "keys projected by the values' matrix": ({"inputs @ self.W_key": "inputs @ self.W_value"}, ALL),
}
LAYER = "self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)"
BUGS_OF_V2 = {
    "bias left on": ({LAYER: LAYER.replace(", bias=qkv_bias", "")}, [the_module_knows_three_parameters]),
    "bias on by default": ({"qkv_bias=False": "qkv_bias=True"}, [the_module_knows_three_parameters]),
    "bias never there": (
        {LAYER: LAYER.replace("qkv_bias", "False")},
        [biases_are_added_where_they_are_asked_for],
    ),
    "widths swapped": ({LAYER: LAYER.replace("d_in, d_out", "d_out, d_in")}, [the_module_knows_three_parameters]),
    "keys projected by the values' layer": ({"self.W_key(inputs)": "self.W_value(inputs)"}, ALL),
    "layers in a plain list": (
        {LAYER: "layers = [nn.Linear(d_in, d_out, bias=qkv_bias)]; self.W_value = layers[0].weight.T.detach()"},
        [the_module_knows_three_parameters],
    ),
    "bias forgotten in the product": (
        {"self.W_value(inputs)": "inputs @ self.W_value.weight.T"},
        [biases_are_added_where_they_are_asked_for],
    ),
}
ALL_BUGS = {("v1", bug): entry for bug, entry in (BUGS | BUGS_OF_V1).items()}
ALL_BUGS |= {("v2", bug): entry for bug, entry in (BUGS | BUGS_OF_V2).items()}
OF_THE_SOLUTION = [both_heads_give_the_same, what_one_learns_the_other_does_not]
NO_COPY = "layers.W_value.weight = nn.Parameter(head.W_value.T)"
BUGS_OF_THE_SOLUTION = {
    "transpose forgotten": ({"head.W_key.T": "head.W_key"}, [both_heads_give_the_same]),
    "reshaped": (
        {"head.W_key.T": "head.W_key.reshape(layers.W_key.weight.shape)"},
        [both_heads_give_the_same],
    ),
    "keys as values": ({"head.W_value.T": "head.W_key.T"}, [both_heads_give_the_same]),
    "values forgotten": ({"layers.W_value.weight.copy_(head.W_value.T)": "pass"}, [both_heads_give_the_same]),
    "memory shared": (
        {"layers.W_value.weight.copy_(head.W_value.T)": NO_COPY},
        [what_one_learns_the_other_does_not],
    ),
}


@pytest.mark.parametrize("holds", OF_BOTH)
@pytest.mark.parametrize("kind", KINDS)
def test_a_class_of_the_page_has_the_property(kind, holds):
    holds(PAGE, kind)


def test_version_2_adds_the_biases_that_are_asked_for():
    biases_are_added_where_they_are_asked_for(PAGE)


@pytest.mark.parametrize(("kind", "bug"), ALL_BUGS)
def test_a_known_bug_of_a_class_is_caught(kind, bug):
    replacements, catching = ALL_BUGS[kind, bug]
    code = p.page_code(SLUG, "v2", (kind, replacements))
    assert catching
    assert [holds for holds in catching if not caught(holds, code, kind)] == []


def caught(holds, *code):
    """As `p.catches`, and an attribute or a gradient that is missing counts, too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # .T of a batch
            return p.catches(holds, *code)
    except (AttributeError, IndexError, StopIteration):
        return True


@pytest.mark.parametrize("holds", OF_THE_SOLUTION)
def test_the_solution_has_the_property(holds):
    holds(SOLUTION)


@pytest.mark.parametrize("bug", BUGS_OF_THE_SOLUTION)
def test_a_known_bug_of_the_solution_is_caught(bug):
    replacements, catching = BUGS_OF_THE_SOLUTION[bug]
    code = p.page_code(SLUG, "solution", ("solution", replacements))
    assert catching
    assert [holds for holds in catching if not p.catches(holds, code)] == []


@pytest.mark.parametrize("holds", [*OF_BOTH, biases_are_added_where_they_are_asked_for, *OF_THE_SOLUTION])
def test_every_property_catches_a_bug(holds):
    tables = [*ALL_BUGS.values(), *BUGS_OF_THE_SOLUTION.values()]
    assert any(holds in catching for _, catching in tables)


# -- the numbers that the cells print --------------------------------------------------------------


def drawn_by_linear(d_in=3, d_out=2):
    """Three matrices (E, D), drawn in the order of the book."""
    p.seed_modules(789)
    return [nn.Linear(d_in, d_out, bias=False).weight.detach().T.double() for _ in ROLES]


def test_the_tokens_are_those_of_the_page_before():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    assert torch.equal(PAGE.inputs, before.inputs)
    assert (PAGE.T, PAGE.E, PAGE.D) == (6, 3, 2)


def test_version_1_gives_the_contexts_of_the_page_before_and_of_the_book():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    names, printed = p.run_cell(SLUG, "call-v1")
    p.close(names.context.detach(), before.context, 1e-6)
    p.prints(SLUG, "call-v1", loops(INPUTS, [before.W_query, before.W_key, before.W_value])[0])
    assert "[0.3061, 0.8210]" in printed
    assert "[0.2996, 0.8053]" in printed
    assert "grad_fn=<MmBackward0>" in printed


def test_version_2_gives_the_contexts_and_the_weights_of_the_book():
    contexts, weights = loops(INPUTS, drawn_by_linear())
    p.prints(SLUG, "call-v2", contexts)
    p.prints(SLUG, "weights", weights)
    assert "[-0.0739,  0.0713]" in p.run_cell(SLUG, "call-v2")[1]
    assert "[0.1921, 0.1646, 0.1652, 0.1550, 0.1721, 0.1510]" in p.run_cell(SLUG, "weights")[1]
    assert p.run_cell(SLUG, "weights")[1].endswith("True\n")
    assert (f"{weights.min():.4f}", f"{weights.max():.4f}") == ("0.1477", "0.2041")


def test_the_parameters_are_printed_in_both_layouts():
    rows = p.run_cell(SLUG, "parameters")[1].splitlines()
    assert rows[:4] == [*(f"{name} (3, 2) True" for name in ROLES), "18"]
    assert rows[4:] == [*(f"{name}.weight (2, 3) True" for name in ROLES), "18"]


def test_of_four_attributes_a_parameter_alone_is_trained_saved_and_converted():
    rows = [row.split() for row in p.run_cell(SLUG, "kinds")[1].splitlines()]
    assert rows == [
        ["grad", "trained", "saved", "double"],
        ["parameter", "True", "True", "True", "True"],
        ["buffer", "False", "False", "True", "True"],
        ["plain", "False", "False", "False", "False"],
        ["product", "True", "False", "False", "False"],
    ]


def test_a_module_moves_what_it_converts_and_leaves_the_other_two_behind():
    kinds = p.page_code(SLUG, "kinds").Kinds().to("meta")
    assert [getattr(kinds, name).is_meta for name in ("parameter", "buffer", "plain", "product")] == [1, 1, 0, 0]


def lost(operation):
    """A head whose W_V is a parameter with an operation behind it."""
    p.seed_modules(0)
    return p.page_code(SLUG, "v1", ("v1", {LINE: f"{LINE}{operation}"})).SelfAttention_v1(3, 2)


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


@pytest.mark.parametrize("operation", [" * 0.5", ".double().float()"])
def test_a_lost_parameter_leaves_12_of_18_asks_for_a_gradient_and_is_in_no_checkpoint(operation):
    head = lost(operation)
    assert sum(one.numel() for one in head.parameters()) == 12
    assert list(head.state_dict()) == ["W_query", "W_key"]
    assert head.W_value.requires_grad


def test_a_lost_parameter_that_was_converted_stays_what_it_was_while_the_loss_falls():
    head = lost(".double().float()")
    before = head.W_value.detach().clone()
    losses = train(head, 5)
    assert losses[-1] < losses[0]
    assert torch.equal(head.W_value, before)


def test_a_lost_parameter_that_was_multiplied_raises_in_the_second_step():
    train(lost(" * 0.5"), 1)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        train(lost(" * 0.5"), 2)


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


def test_the_table_of_starts():
    rows = [row.split() for row in p.run_cell(SLUG, "start")[1].splitlines()]
    p.seed_modules(0)
    assert rows[0] == ["std", "scores", "largest"]
    expected = []
    for width, head_dim in ((64, 16), (768, 64)):
        tokens = torch.randn(6, width)
        for linear in (False, True):
            queries, keys = started(width, head_dim, linear)
            scores = (tokens.double() @ queries.double()) @ (tokens.double() @ keys.double()).T / math.sqrt(head_dim)
            largest = (scores - scores.logsumexp(dim=1, keepdim=True)).exp().max(dim=1).values.mean()
            numbers = f"{queries.std():.4f}", f"{scores.std():.3f}", f"{largest:.4f}"
            expected.append([str(width), "linear" if linear else "rand", *numbers])
    assert rows[1:] == expected
    assert rows[3][-1] == "0.9989"


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


def test_a_weight_without_its_transpose_raises_or_is_off():
    lines = p.run_cell(SLUG, "transpose")[1].splitlines()
    expected = []
    for d_out in (2, 3):
        matrices = drawn_by_linear(3, d_out)
        right = loops(INPUTS, matrices)[0]
        expected.append(f"{d_out} weight.T 0.0000 True")
        turned = [matrix.T for matrix in matrices]
        off = (loops(INPUTS, turned)[0] - right).abs().max() if d_out == 3 else None
        expected.append(f"{d_out} weight   " + ("RuntimeError" if off is None else f"{off:.4f} False"))
        placed = [matrix.T.reshape(3, d_out) for matrix in matrices]
        expected.append(f"{d_out} reshape  {(loops(INPUTS, placed)[0] - right).abs().max():.4f} False")
    assert lines == expected
    assert "0.5751" in lines[4]
    assert "0.0711" in lines[2]


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


def test_the_probe_finds_the_call_of_torch_the_batch_and_every_pair():
    rows = p.run_cell(SLUG, "probe")[1].splitlines()
    assert rows == ["True", "torch.Size([2, 6, 2])", "True", "tensor(36) tensor(True)"]


@pytest.mark.parametrize(
    ("replacements", "row"),
    [
        ({"weights @ values": "weights @ keys"}, 0),
        ({" * self.scale": ""}, 0),
        ({PRODUCT: "queries @ keys.mT.cumsum(dim=-1)"}, 2),
        ({SOFTMAX: "torch.softmax(scores + torch.full(scores.shape, -torch.inf).triu(1), dim=-1)"}, 3),
        ({SOFTMAX: "torch.softmax(scores - 1e9 * torch.eye(scores.shape[-1]), dim=-1).round()"}, 3),
    ],
)
def test_the_probe_sees_a_bug(replacements, row):
    good = p.run_cell(SLUG, "probe")[1].splitlines()
    assert p.run_cell(SLUG, "probe", ("v2", replacements))[1].splitlines()[row] != good[row]


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


def test_the_rank_of_the_product_and_of_the_outputs_is_the_width_of_the_head():
    rows = p.run_cell(SLUG, "rank")[1].splitlines()
    assert rows == ["32 64", "(8, 8) tensor(2)", "(6, 8) tensor(6)", "(6, 8) tensor(2)"]


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
    names, printed = p.run_cell(SLUG, "reduce")
    assert torch.equal(names.context, before)
    assert printed.endswith("True\n")


@pytest.mark.parametrize("bug", ["scores, dim=-1", "queries @ keys.mT", "weights @ values"])
def test_the_last_line_of_the_reduction_sees_a_bug(bug):
    assert p.run_cell(SLUG, "reduce", ("v2", {bug: f"0.9 * {bug}"}))[1].endswith("False\n")


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
