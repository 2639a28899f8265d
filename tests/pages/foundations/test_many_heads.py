"""Many heads: the list and the split class against PyTorch and plain loops, and heads that are cut in wrong places."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel, GptOssConfig

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/many-heads"
PAGE, SOLUTION = p.page_code(SLUG, "in-torch"), p.page_code(SLUG, "solution")
ROLES = "to_queries", "to_keys", "to_values"
DOUBLE = {"dtype": torch.float64}


def draw_parameters(module, case):
    """The module in float64, its parameters drawn."""
    module = module.double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(case.randn(*weight.shape))
    return module


def with_module(case, code, kind):
    if kind == "list":
        module = code.MultiHeadAttentionWrapper(case.E, case.D, case.H)
    else:
        module = code.MultiHeadAttention(case.E, case.H * case.D, case.H)
    case.module = draw_parameters(module, case)
    case.inputs = case.randn(case.B, case.T, case.E)
    return case


def cases(code, kind, **sizes):
    drawn = p.sizes(**({"B": 3, "T": (2, 6), "H": (1, 3), "D": (2, 4), "E": 5} | sizes))
    return drawn.map(lambda case: with_module(case, code, kind))


def matrices(case):
    """The three matrices of each head, (D, E), and the output projection as a function."""
    if hasattr(case.module, "heads"):
        return [[getattr(head, role).weight for role in ROLES] for head in case.module.heads], lambda joined: joined
    rows = [getattr(case.module, role).weight for role in ROLES]
    cut = [[weight[h * case.D : (h + 1) * case.D] for weight in rows] for h in range(case.H)]
    return cut, lambda joined: joined @ case.module.to_output.weight.T + case.module.to_output.bias


# -- references ----------------------------------------------------------------------------------


def one_head_by_the_formula(tokens, W_query, W_key, W_value):
    """Causal contexts of one item and one head, one Python float at a time."""
    queries, keys, values = (
        [[sum(map(float.__mul__, row, token)) for row in W.tolist()] for token in tokens.tolist()]
        for W in (W_query, W_key, W_value)
    )
    contexts = []
    for i, query in enumerate(queries):
        scores = [sum(map(float.__mul__, query, key)) / math.sqrt(len(query)) for key in keys[: i + 1]]
        shares = [math.exp(score - max(scores)) for score in scores]
        contexts.append([sum(a * x for a, x in zip(shares, column)) / sum(shares) for column in zip(*values[: i + 1])])
    return torch.tensor(contexts, **DOUBLE)


def loops(case):
    heads, output = matrices(case)
    joined = [torch.cat([one_head_by_the_formula(item, *head) for head in heads], dim=1) for item in case.inputs]
    return output(torch.stack(joined))


def sdpa(case):
    heads, output = matrices(case)
    contexts = [F.scaled_dot_product_attention(*(case.inputs @ W.T for W in head), is_causal=True) for head in heads]
    return output(torch.cat(contexts, dim=-1))


def multihead_attention(case):
    ours = case.module
    width = ours.to_output.in_features
    theirs = nn.MultiheadAttention(width, case.H, batch_first=True, **DOUBLE)
    state = {f"out_proj.{name}": tensor for name, tensor in ours.to_output.state_dict().items()}
    state["in_proj_weight"] = torch.cat([getattr(ours, role).weight for role in ROLES])
    state["in_proj_bias"] = torch.zeros(3 * width, **DOUBLE)
    theirs.load_state_dict(state)
    hidden = torch.ones(case.T, case.T, dtype=torch.bool).triu(1)
    return theirs(case.inputs, case.inputs, case.inputs, attn_mask=hidden)[0]


# -- what holds for the list and for the split class -----------------------------------------------


def output(case):
    return case.module(case.inputs)


def equals_loops(code, kind):
    p.equals_reference(output, loops, cases(code, kind))


def equals_sdpa(code, kind):
    p.equals_reference(output, sdpa, cases(code, kind))


def gradients_equal_those_of_sdpa(code, kind):
    p.gradients_equal(output, sdpa, lambda case: [case.inputs, *case.module.parameters()], cases(code, kind))


def a_token_moves_its_own_row_and_the_later_ones(code, kind):
    def function(case):
        may_move = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: case.module(0.3 * tokens[None])[0], case.inputs[0], may_move

    p.reaches_exactly(function, cases(code, kind))


def the_start_of_a_sequence_equals_that_start_alone(code, kind):
    p.equals_reference(
        lambda case: output(case)[:, :-1], lambda case: case.module(case.inputs[:, :-1]), cases(code, kind)
    )


def an_item_of_a_batch_equals_that_item_alone(code, kind):
    p.padded_equals_alone(output, lambda case, b: case.module(case.inputs[b : b + 1])[0], cases(code, kind))


def a_head_moves_its_own_columns(code, kind):
    """Before the output projection."""

    def prove(case):
        if kind == "split":
            case.module.to_output = nn.Identity()
        before = output(case)
        for h in range(case.H):
            rows = matrices(case)[0][h][2]
            with torch.no_grad():
                rows.mul_(2)
                moved = (output(case) != before).flatten(0, 1).any(dim=0)
                rows.div_(2)
            assert moved.tolist() == [column // case.D == h for column in range(case.H * case.D)]

    p.for_all(cases(code, kind), prove)


def stateless(code, kind):
    p.stateless(lambda case: (case.module, [case.inputs], [case.inputs.flip(1)]), cases(code, kind))


def finite_for_large_scores(code, kind):
    p.finite_rows(lambda case: case.module(1e3 * case.inputs), cases(code, kind))


PROPERTIES = [
    equals_loops,
    equals_sdpa,
    gradients_equal_those_of_sdpa,
    a_token_moves_its_own_row_and_the_later_ones,
    the_start_of_a_sequence_equals_that_start_alone,
    an_item_of_a_batch_equals_that_item_alone,
    a_head_moves_its_own_columns,
    stateless,
    finite_for_large_scores,
]


# -- what holds for the split class ----------------------------------------------------------------


def equals_multihead_attention(code, kind):
    def wide(case):
        case.E = case.H * case.D
        return with_module(case, code, kind)

    p.equals_reference(output, multihead_attention, p.sizes(B=3, T=5, H=(1, 3), D=(2, 4)).map(wide))


def a_width_that_the_heads_cannot_share_is_refused(code, kind):
    code.MultiHeadAttention(5, 6, 3)
    message = ""
    try:
        code.MultiHeadAttention(5, 6, 4)
    except ValueError as error:
        message = str(error)
    assert message == "4 heads cannot share 6"


def the_parameters_are_three_matrices_and_an_output_with_bias(code, kind):
    shapes = {name: tuple(tensor.shape) for name, tensor in code.MultiHeadAttention(5, 6, 3).state_dict().items()}
    assert shapes == {f"{role}.weight": (6, 5) for role in ROLES} | {
        "to_output.weight": (6, 6),
        "to_output.bias": (6,),
    }


OF_THE_SPLIT = [
    equals_multihead_attention,
    a_width_that_the_heads_cannot_share_is_refused,
    the_parameters_are_three_matrices_and_an_output_with_bias,
]
KINDS = ["list", "split"]
ALL = [(kind, holds) for kind in KINDS for holds in PROPERTIES] + [("split", holds) for holds in OF_THE_SPLIT]

# -- the bugs --------------------------------------------------------------------------------------

SOFTMAX = "torch.softmax(scores, dim=-1)"
FILLED = "scores = scores.masked_fill(hidden, -torch.inf)"
SPLIT = "wide.view(B, T, self.num_heads, -1).transpose(1, 2)"
MERGE = "context.transpose(1, 2).contiguous().view(B, T, H * D)"
LAYERS = "layers = self.to_queries, self.to_keys, self.to_values"
SAME = [equals_loops, equals_sdpa]
LEAK = [*SAME, a_token_moves_its_own_row_and_the_later_ones, the_start_of_a_sequence_equals_that_start_alone]
BUGS_OF_BOTH = {  # what the bug makes of the cell `heads`, and the properties that catch it
    "not scaled": ({" / D**0.5": ""}, SAME),
    "scaled by D": ({"D**0.5": "D"}, SAME),
    "scaled by the number of tokens": ({"D**0.5": "T**0.5"}, SAME),
    "no mask": ({FILLED: "pass"}, LEAK),
    "filled scores thrown away": ({FILLED: FILLED[9:]}, LEAK),
    "token itself hidden": ({"triu(1)": "triu(0)"}, [*LEAK, finite_for_large_scores]),
    "one token of the future visible": ({"triu(1)": "triu(2)"}, LEAK),
    "the past hidden": ({"triu(1)": "tril(-1)"}, LEAK),
    "softmax over the queries": ({"dim=-1": "dim=-2"}, LEAK),
    "softmax over axis 1": ({"dim=-1": "dim=1"}, SAME),
    "keys as values": ({"@ values": "@ keys"}, SAME),
    "queries as keys": ({"queries @ keys.mT": "queries @ queries.mT"}, SAME),
    "scores transposed": ({"queries @ keys.mT": "keys @ queries.mT"}, SAME),
    "exponentials that overflow": (
        {SOFTMAX: "(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))"},
        [finite_for_large_scores],
    ),
    "weights cut from the gradient": ({SOFTMAX: f"{SOFTMAX}.detach()"}, [gradients_equal_those_of_sdpa]),
    "keys changed in place": ({"queries @ keys.mT": "queries @ keys.mul_(2).mT"}, SAME),
}
BUGS_OF_THE_LIST = {  # of the cell `wrapper`
    "one head, many times": (
        {"[CausalHead(width, head_dim) for _ in range(num_heads)]": "[CausalHead(width, head_dim)] * num_heads"},
        [a_head_moves_its_own_columns],
    ),
    "one head too few": ({"range(num_heads)": "range(max(1, num_heads - 1))"}, [a_head_moves_its_own_columns]),
    "heads in the wrong order": ({"in self.heads]": "in reversed(self.heads)]"}, [*SAME, a_head_moves_its_own_columns]),
    "heads stacked along the tokens": ({"dim=-1": "dim=1"}, [the_start_of_a_sequence_equals_that_start_alone]),
    "first head only": ({"head(inputs) for": "self.heads[0](inputs) for"}, [*SAME, a_head_moves_its_own_columns]),
}
BUGS_OF_THE_SPLIT = {  # of the cell `split`
    "view without transpose": (
        {SPLIT: "wide.view(B, self.num_heads, T, -1)"},
        [*LEAK, a_head_moves_its_own_columns, equals_multihead_attention],
    ),
    "merged without transpose": (
        {MERGE: "context.reshape(B, T, H * D)"},
        [*LEAK, a_head_moves_its_own_columns, equals_multihead_attention],
    ),
    "both without transpose": (
        {SPLIT: "wide.view(B, self.num_heads, T, -1)", MERGE: "context.reshape(B, T, H * D)"},
        [*SAME, a_token_moves_its_own_row_and_the_later_ones, equals_multihead_attention],
    ),
    "every H-th column": (
        {SPLIT: "wide.view(B, T, -1, self.num_heads).permute(0, 3, 1, 2)"},
        [*SAME, a_head_moves_its_own_columns, equals_multihead_attention],
    ),
    "batch and heads mixed": (
        {SPLIT: "wide.view(T, B, self.num_heads, -1).permute(1, 2, 0, 3)"},
        [*SAME, an_item_of_a_batch_equals_that_item_alone],
    ),
    "keys as queries": ({LAYERS: "layers = self.to_keys, self.to_keys, self.to_values"}, SAME),
    "values as keys": ({LAYERS: "layers = self.to_queries, self.to_values, self.to_values"}, SAME),
    "keys as values": ({LAYERS: "layers = self.to_queries, self.to_keys, self.to_keys"}, SAME),
    "queries and keys swapped": ({LAYERS: "layers = self.to_keys, self.to_queries, self.to_values"}, SAME),
    "output not projected": ({"self.to_output(self.merge": "(self.merge"}, SAME),
    "one head, whatever is asked": ({"self.num_heads = num_heads": "self.num_heads = 1"}, SAME),
    "bias of the queries": (
        {"self.to_queries = nn.Linear(width, out_width, bias=False)": "self.to_queries = nn.Linear(width, out_width)"},
        [the_parameters_are_three_matrices_and_an_output_with_bias],
    ),
    "output without bias": (
        {"nn.Linear(out_width, out_width)": "nn.Linear(out_width, out_width, bias=False)"},
        [the_parameters_are_three_matrices_and_an_output_with_bias],
    ),
    "heads that do not divide": (
        {"if out_width % num_heads": "if out_width < num_heads"},
        [a_width_that_the_heads_cannot_share_is_refused],
    ),
    "tokens changed in place": ({"layer(inputs)": "layer(inputs.mul_(1.5))"}, [stateless]),
}
CELLS = {"heads": BUGS_OF_BOTH, "wrapper": BUGS_OF_THE_LIST, "split": BUGS_OF_THE_SPLIT}
KINDS_OF = {"heads": KINDS, "wrapper": ["list"], "split": ["split"]}
ALL_BUGS = [(cell, bug, kind) for cell, bugs in CELLS.items() for bug in bugs for kind in KINDS_OF[cell]]


@pytest.mark.parametrize(("kind", "holds"), ALL)
def test_the_page_has_the_property(kind, holds):
    holds(PAGE, kind)


@pytest.mark.parametrize(("cell", "bug", "kind"), ALL_BUGS)
def test_a_known_bug_is_caught_by_the_properties_that_the_table_names(cell, bug, kind):
    replacements, catching = CELLS[cell][bug]
    code = p.page_code(SLUG, "split", (cell, replacements))
    assert catching
    assert [holds for holds in catching if not p.catches(holds, code, kind)] == []


@pytest.mark.parametrize("holds", PROPERTIES + OF_THE_SPLIT)
def test_every_property_catches_a_bug(holds):
    assert any(holds in catching for bugs in CELLS.values() for _, catching in bugs.values())


# -- the numbers that the cells print --------------------------------------------------------------


def test_the_tokens_are_those_of_the_first_page():
    assert torch.equal(PAGE.inputs, p.page_code("foundations/weighted-average", "contexts").inputs)
    assert (PAGE.T, PAGE.E) == (6, 3)


def test_half_of_two_tokens_is_blind_to_their_order_and_two_heads_are_not():
    rows = [[math.exp(6 * (j in wanted)) for j in range(6)] for wanted in ((1, 4), (1,), (4,))]
    weights = [[share / sum(row) for share in row] for row in rows]
    tokens = PAGE.inputs.double().tolist()
    swapped = [tokens[j] for j in (0, 4, 2, 3, 1, 5)]
    contexts = [[[sum(map(float.__mul__, row, x)) for x in zip(*of)] for row in weights] for of in (tokens, swapped)]
    p.prints(SLUG, "two-at-once", weights, *contexts)
    p.close(torch.tensor(contexts[0][0]), torch.tensor(contexts[1][0]))
    p.close(torch.tensor(contexts[0][1:]), torch.tensor(contexts[1][:0:-1]))


def as_case(module, tokens, D, H):
    """A module of the page, in float64, as the references want it."""
    return SimpleNamespace(module=module.double(), inputs=tokens.double(), D=D, H=H)


def test_the_list_prints_the_contexts_of_two_heads_for_equal_items():
    names, printed = p.run_cell(SLUG, "list")
    assert printed.startswith("torch.Size([2, 6, 4])\n")
    assert printed.endswith("\nTrue\n")
    p.prints(SLUG, "list", loops(as_case(names.wrapper, names.batch, 2, 2))[0].detach())


def test_the_list_does_not_print_what_a_softmax_over_axis_1_gives():
    names, _ = p.run_cell(SLUG, "list", ("heads", {"dim=-1": "dim=1"}))
    printed = [f"{number:.4f}" for number in names.context[0, 0].tolist()]
    assert printed == ["-0.0844", "0.0414", "0.0766", "0.0171"]


def test_three_tokens_of_width_6_are_the_old_tokens_two_by_two_and_have_the_numbers_of_the_book():
    names, printed = p.run_cell(SLUG, "example")
    assert names.longer.tolist() == [
        left + right for left, right in zip(names.inputs[0::2].tolist(), names.inputs[1::2].tolist())
    ]
    assert "torch.Size([2, 3, 6])" in printed
    _, right = re.split(r"torch.Size.*\n", printed)
    book = [0.1569, -0.0873, 0.0210, 0.0215, -0.3243, -0.2518]
    assert [float(number) for number in re.findall(r"-?\d\.\d{4}", right)][:6] == book
    case = as_case(names.attention, torch.stack((names.longer, names.longer)), 3, 2)
    p.close(names.output.double(), loops(case).detach(), 1e-6)


def test_the_list_and_the_split_class_agree_to_rounding_and_a_wrong_cut_does_not():
    names, printed = p.run_cell(SLUG, "equal")
    assert printed.endswith("True\n")
    last = loops(as_case(names.wrapper, names.inputs[None], 2, 2))[0, -1].detach()
    p.prints(SLUG, "equal", last, last)
    tokens = names.inputs[None].double()
    assert (names.wrapper(tokens) - names.attention.double()(tokens)).abs().max() < 1e-15
    for wrong in ("view without transpose", "merged without transpose", "every H-th column"):
        assert p.run_cell(SLUG, "equal", ("split", BUGS_OF_THE_SPLIT[wrong][0]))[1].endswith("False\n")


def test_the_probe_shows_the_columns_of_each_head_and_every_column_behind_the_projection():
    whole, own = p.run_cell(SLUG, "probe")[1].split("tensor(")[1:]
    assert re.findall("True|False", whole) == ["True"] * 18
    assert re.findall("True|False", own) == [str(column // 2 == head) for head in range(3) for column in range(6)]


def test_the_probe_sees_heads_that_are_cut_elsewhere():
    every_third = BUGS_OF_THE_SPLIT["every H-th column"][0]
    _, own = p.run_cell(SLUG, "probe", ("split", every_third))[1].split("\ntensor(")
    assert re.findall("True|False", own) != [str(column // 2 == head) for head in range(3) for column in range(6)]


def test_the_two_numbers_of_the_bug():
    printed = p.run_cell(SLUG, "by-view")[1].splitlines()
    leaks, reaches = zip(*([float(number) for number in line.split()[:2]] for line in printed))
    assert [leak > 0 for leak in leaks] == [False, True, True, False]
    assert [reach > 0 for reach in reaches] == [True, True, True, False]
    assert [line.split()[2] for line in printed] == ["MultiHeadAttention", "SplitByView", "MergeByView", "BothByView"]


def test_view_gives_head_0_the_first_half_of_the_tokens_each_cut_in_two():
    names = p.page_code(SLUG, "by-view")
    tokens = torch.arange(6)[:, None] * 10 + torch.arange(4)
    heads = names.SplitByView(3, 4, 2).split_heads(tokens[None])[0]
    assert heads[0].tolist() == [[0, 1], [2, 3], [10, 11], [12, 13], [20, 21], [22, 23]]
    assert (heads[1] >= 30).all()


def test_the_leak_of_the_cut_goes_through_head_1():
    names = p.page_code(SLUG, "by-view")
    torch.manual_seed(123)
    attention = names.SplitByView(3, 4, 2)
    attention.to_output = nn.Identity()
    same, future, _ = attention(torch.stack((names.inputs, names.later, names.first)))
    moved = (same[0] != future[0]).tolist()
    assert moved == [False, False, True, True]


# -- the claims of the page ------------------------------------------------------------------------


def test_parameters_and_flops_are_the_same_for_all_heads():
    lines = [line.rsplit(maxsplit=2) for line in p.run_cell(SLUG, "cost")[1].splitlines()]
    E, T = 768, 1024
    numbers, flops = 4 * E**2 + E, 2 * T * 4 * E**2 + 2 * 2 * T**2 * E
    assert [line[1:] for line in lines] == [[f"{numbers:,}", f"{flops:,}"]] * 4
    assert [line[0].strip() for line in lines] == ["12 listed", "12 split", "1 split", "24 split"]


class Products(TorchDispatchMode):
    """Count the matrix products that are called."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.__name__.split(".")[0] in {"mm", "bmm", "addmm", "baddbmm", "matmul"}
        return function(*args, **(kwargs or {}))


def test_the_list_calls_61_matrix_products_for_12_heads_and_the_split_class_6():
    listed = nn.Sequential(PAGE.MultiHeadAttentionWrapper(24, 2, 12), nn.Linear(24, 24))
    for module, wanted in [(listed, 61), *((PAGE.MultiHeadAttention(24, 24, H), 6) for H in (1, 12, 24))]:
        with Products() as products:
            module(torch.randn(2, 5, 24))
        assert products.count == wanted


@pytest.mark.parametrize(
    ("size", "heads", "count"),
    [({}, 12, "124,439,808"), ({"n_layer": 48, "n_embd": 1600, "n_head": 25}, 25, "1,557,611,200")],
)
def test_transformers_counts_as_many_parameters_of_gpt2_for_any_number_of_heads(size, heads, count):
    lines = p.run_cell(SLUG, "gpt2")[1].splitlines()
    assert f"{heads} heads of 64: {count}" in lines
    for num_heads in (heads, 1):
        config = GPT2Config(**size | {"n_head": num_heads})
        with torch.device("meta"):
            model = GPT2LMHeadModel(config)
        assert f"{sum(weight.numel() for weight in model.parameters()):,}" == count
        assert config.n_embd // heads == 64


def test_gpt_oss_has_heads_that_are_not_the_width_shared_out():
    config = GptOssConfig()
    assert (config.hidden_size, config.num_attention_heads, config.head_dim) == (2880, 64, 64)
    assert config.num_attention_heads * config.head_dim == 4096
    assert config.hidden_size // config.num_attention_heads == 45


def test_one_head_is_the_single_head_and_its_last_row_sees_all_tokens():
    names, printed = p.run_cell(SLUG, "reduce")
    assert printed.endswith("True\n")
    roles = [getattr(names.head, role)(names.inputs) for role in ROLES]
    p.close(names.one[-1], F.scaled_dot_product_attention(*roles)[-1].detach(), 1e-6)
    p.prints(
        SLUG, "reduce", one_head_by_the_formula(names.inputs, *(getattr(names.head, role).weight for role in ROLES))
    )


@pytest.mark.parametrize("bug", ["scores, dim=-1", "@ values"])
def test_torch_says_false_for_a_bug(bug):
    assert p.run_cell(SLUG, "in-torch")[1].startswith("True\n")
    replacement = {"scores, dim=-1": "scores, dim=-2", "@ values": "@ keys"}[bug]
    assert p.run_cell(SLUG, "in-torch", ("heads", {bug: replacement}))[1].startswith("False\n")


def test_the_last_token_has_another_row_in_each_head_and_torch_returns_their_mean_by_default():
    names, printed = p.run_cell(SLUG, "in-torch")
    assert "torch.Size([1, 2, 3, 3])" in printed
    mean = names.theirs(names.batch, names.batch, names.batch, attn_mask=names.masked)[1]
    p.close(mean, names.weights.mean(dim=1), 1e-6)
    assert (names.weights[0, 0, -1] - names.weights[0, 1, -1]).abs().max() > 1e-3
    p.close(names.weights.sum(dim=-1), torch.ones(1, 2, 3), 1e-6)


def test_torch_needs_a_width_that_the_heads_can_share():
    with pytest.raises(AssertionError, match="divisible"):
        nn.MultiheadAttention(6, 4)


def test_equal_heads_make_equal_contexts():
    attention = PAGE.MultiHeadAttention(3, 4, 2)
    with torch.no_grad():
        for role in ROLES:
            weight = getattr(attention, role).weight
            weight[2:] = weight[:2]
    attention.to_output = nn.Identity()
    first, second = attention(PAGE.inputs[None]).chunk(2, dim=-1)
    assert torch.equal(first, second)


# -- the exercise ----------------------------------------------------------------------------------


def cut(role, H):
    return role.unflatten(-1, (H, -1)).transpose(1, 2)


def merged(context):
    return context.transpose(1, 2).flatten(2)


def viewed(role, H):
    B, T, width = role.shape
    return role.reshape(B, H, T, width // H)


def strided(role, H):
    return role.unflatten(-1, (-1, H)).permute(0, 3, 1, 2)


def answer(split=cut, merge=merged, divisor=lambda D, H: D**0.5, dim=-1, roles=lambda q, k, v: (q, k, v)):
    def attend_in_heads(queries, keys, values, num_heads):
        q, k, v = (split(role, num_heads) for role in roles(queries, keys, values))
        return merge((q @ k.mT / divisor(q.shape[-1], num_heads)).softmax(dim) @ v)

    return attend_in_heads


def one_head_after_the_other(q, k, v, n):
    D = q.shape[-1] // n
    spans = [slice(h * D, (h + 1) * D) for h in range(n)]
    return torch.cat([F.scaled_dot_product_attention(q[..., s], k[..., s], v[..., s]) for s in spans], dim=-1)


def einsum(q, k, v, n):
    q, k, v = (role.unflatten(-1, (n, -1)) for role in (q, k, v))
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)


def fused(q, k, v, n):
    return merged(F.scaled_dot_product_attention(*(cut(role, n) for role in (q, k, v))))


def causal(q, k, v, n):
    return merged(F.scaled_dot_product_attention(*(cut(role, n) for role in (q, k, v)), is_causal=True))


def right(q, k, v, n):
    return answer()(q, k, v, n)


RIGHT = {
    "the solution": lambda *given: SOLUTION.attend_in_heads(*given),
    "cut, attend, merge": answer(),
    "one head after the other": one_head_after_the_other,
    "einsum": einsum,
    "one call": fused,
    "its arguments changed": lambda q, k, v, n: fused(q.mul_(2), k.div_(2), v, n),
}
WRONG = {
    "returns None": lambda q, k, v, n: None,
    "raises": lambda q, k, v, n: right(q, k, v, n)[99],
    "three arguments": lambda q, k, v: None,
    "a list": lambda *given: right(*given).tolist(),
    "a numpy array": lambda *given: right(*given).numpy(),
    "float64": lambda *given: right(*given).double(),
    "context and weights": lambda *given: (right(*given), None),
    "heads not joined": answer(merge=lambda context: context),
    "heads joined along the tokens": answer(merge=lambda context: context.flatten(1, 2)),
    "heads averaged": answer(merge=lambda context: context.mean(dim=1)),
    "heads added": lambda q, k, v, n: answer(merge=lambda c: c.sum(1).repeat(1, 1, n))(q, k, v, n),
    "split by view": answer(split=viewed),
    "merged by view": answer(merge=lambda c: c.reshape(c.shape[0], c.shape[2], -1)),
    "both by view": answer(split=viewed, merge=lambda c: c.reshape(c.shape[0], c.shape[2], -1)),
    "every H-th column": answer(split=strided),
    "every H-th column, and back": answer(split=strided, merge=lambda c: c.permute(0, 2, 3, 1).flatten(2)),
    "merged with D in front of H": answer(merge=lambda c: c.permute(0, 2, 3, 1).flatten(2)),
    "heads reversed": answer(merge=lambda c: merged(c.flip(1))),
    "heads attend to each other": answer(split=lambda r, H: r.unflatten(-1, (H, -1)), merge=lambda c: c.flatten(2)),
    "first head for all": answer(merge=lambda c: merged(c[:, :1].expand_as(c))),
    "one head": lambda q, k, v, n: right(q, k, v, 1),
    "two heads, always": lambda q, k, v, n: right(q, k, v, 2),
    "heads of width 3, always": lambda q, k, v, n: right(q, k, v, q.shape[-1] // 3),
    "H and D swapped": lambda q, k, v, n: right(q, k, v, q.shape[-1] // n),
    "not scaled": answer(divisor=lambda D, H: 1),
    "divided by D": answer(divisor=lambda D, H: D),
    "divided by the root of the full width": answer(divisor=lambda D, H: (H * D) ** 0.5),
    "divided by the root of H": answer(divisor=lambda D, H: H**0.5),
    "divided by the root of 3": answer(divisor=lambda D, H: 3**0.5),
    "softmax over the queries": answer(dim=-2),
    "softmax over the heads": answer(dim=1),
    "softmax over the batch": answer(dim=0),
    "keys as values": answer(roles=lambda q, k, v: (q, k, k)),
    "queries as keys": answer(roles=lambda q, k, v: (q, q, v)),
    "queries and keys swapped": answer(roles=lambda q, k, v: (k, q, v)),
    "values as keys": answer(roles=lambda q, k, v: (q, v, v)),
    "causal": causal,
    "first item for all": answer(roles=lambda q, k, v: [r[:1].expand_as(r) for r in (q, k, v)]),
    "batch and tokens swapped": lambda *given: right(*(r.transpose(0, 1) for r in given[:3]), given[3]).transpose(0, 1),
    "the mean of the values": lambda q, k, v, n: v.mean(dim=1, keepdim=True).expand_as(v),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_heads", RIGHT, WRONG
