"""Many heads: the list and the split class against PyTorch, and heads that are cut in wrong places."""

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
PAGE, SOLUTION, BY_VIEW = (p.page_code(SLUG, cell) for cell in ("in-torch", "solution", "by-view"))
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
    masked = torch.ones(case.T, case.T, dtype=torch.bool).triu(1)
    return theirs(case.inputs, case.inputs, case.inputs, attn_mask=masked)[0]


# -- what holds for the list and for the split class -----------------------------------------------


def output(case):
    return case.module(case.inputs)


def equals_sdpa(code, kind):
    p.equals_reference(output, sdpa, cases(code, kind))


def gradients_equal_those_of_sdpa(code, kind):
    p.gradients_equal(output, sdpa, lambda case: [case.inputs, *case.module.parameters()], cases(code, kind))


def a_token_moves_its_own_row_and_the_later_ones(code, kind):
    def function(case):
        may_move = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: case.module(0.3 * tokens[None])[0], case.inputs[0], may_move

    p.reaches_exactly(function, cases(code, kind))


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
    equals_sdpa,
    gradients_equal_those_of_sdpa,
    a_token_moves_its_own_row_and_the_later_ones,
    a_head_moves_its_own_columns,
    stateless,
    finite_for_large_scores,
]


@pytest.mark.parametrize("kind", ["list", "split"])
@pytest.mark.parametrize("holds", PROPERTIES)
def test_many_heads_have_the_property(kind, holds):
    holds(PAGE, kind)


# -- what holds for the split class ----------------------------------------------------------------


def test_the_split_class_is_multihead_attention_of_torch():
    def wide(case):
        case.E = case.H * case.D
        return with_module(case, PAGE, "split")

    p.equals_reference(output, multihead_attention, p.sizes(B=3, T=5, H=(1, 3), D=(2, 4)).map(wide))


def test_a_width_that_the_heads_cannot_share_is_refused():
    PAGE.MultiHeadAttention(5, 6, 3)
    with pytest.raises(ValueError, match=r"^4 heads cannot share 6$"):
        PAGE.MultiHeadAttention(5, 6, 4)


def test_the_parameters_are_three_matrices_and_an_output_with_bias():
    shapes = {name: tuple(tensor.shape) for name, tensor in PAGE.MultiHeadAttention(5, 6, 3).state_dict().items()}
    assert shapes == {f"{role}.weight": (6, 5) for role in ROLES} | {
        "to_output.weight": (6, 6),
        "to_output.bias": (6,),
    }


# -- the bug of the page: view in place of transpose -----------------------------------------------


@pytest.mark.parametrize("kind", ["SplitByView", "MergeByView", "BothByView"])
def test_view_in_place_of_transpose_keeps_the_shape_and_moves_the_wrong_rows(kind):
    broken = getattr(BY_VIEW, kind)
    assert broken(3, 4, 2)(PAGE.inputs[None]).shape == (1, 6, 4)
    code = SimpleNamespace(MultiHeadAttention=broken)
    for holds in equals_sdpa, a_token_moves_its_own_row_and_the_later_ones:
        assert p.catches(holds, code, "split")


def test_view_gives_head_0_the_first_half_of_the_tokens_each_cut_in_two():
    tokens = torch.arange(6)[:, None] * 10 + torch.arange(4)
    heads = BY_VIEW.SplitByView(3, 4, 2).split_heads(tokens[None])[0]
    assert heads[0].tolist() == [[0, 1], [2, 3], [10, 11], [12, 13], [20, 21], [22, 23]]
    assert (heads[1] >= 30).all()


def test_the_leak_of_the_cut_goes_through_head_1():
    torch.manual_seed(123)
    attention = BY_VIEW.SplitByView(3, 4, 2)
    attention.to_output = nn.Identity()
    same, future, _ = attention(torch.stack((BY_VIEW.inputs, BY_VIEW.later, BY_VIEW.first)))
    assert (same[0] != future[0]).tolist() == [False, False, True, True]


# -- the claims of the page ------------------------------------------------------------------------


def test_the_tokens_are_those_of_the_first_page():
    assert torch.equal(PAGE.inputs, p.page_code("foundations/weighted-average", "contexts").inputs)
    assert (PAGE.T, PAGE.E) == (6, 3)


def test_the_list_and_the_split_class_differ_by_rounding_alone():
    names = p.page_code(SLUG, "equal")
    tokens = names.inputs[None].double()
    assert (names.wrapper.double()(tokens) - names.attention.double()(tokens)).abs().max() < 1e-15


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


@pytest.mark.parametrize(("num_layers", "width", "heads"), [(12, 768, 12), (12, 768, 1), (48, 1600, 25), (48, 1600, 1)])
def test_transformers_counts_as_many_parameters_of_gpt2_for_any_number_of_heads(num_layers, width, heads):
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=num_layers, n_embd=width, n_head=heads))
    count = p.page_code(SLUG, "gpt2").gpt2_parameters(num_layers, width)
    assert sum(weight.numel() for weight in model.parameters()) == count


def test_gpt_oss_has_heads_that_are_not_the_width_shared_out():
    config = GptOssConfig()
    assert (config.hidden_size, config.num_attention_heads, config.head_dim) == (2880, 64, 64)
    assert config.num_attention_heads * config.head_dim == 4096
    assert config.hidden_size // config.num_attention_heads == 45


def test_with_one_head_the_last_row_is_that_of_attention_without_a_mask():
    names = p.page_code(SLUG, "reduce")
    roles = [getattr(names.head, role)(names.inputs) for role in ROLES]
    p.close(names.one[-1], F.scaled_dot_product_attention(*roles)[-1].detach(), 1e-6)


def test_the_last_token_has_another_row_in_each_head_and_torch_returns_their_mean_by_default():
    mean = PAGE.theirs(PAGE.batch, PAGE.batch, PAGE.batch, attn_mask=PAGE.masked)[1]
    p.close(mean, PAGE.weights.mean(dim=1), 1e-6)
    assert (PAGE.weights[0, 0, -1] - PAGE.weights[0, 1, -1]).abs().max() > 1e-3


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
