"""Many heads: three classes against PyTorch (tests/pages/references.py), and heads that are cut in wrong places."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GptOssConfig, LlamaConfig, LlamaModel

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/many-heads"
PAGE, BY_VIEW, BOTH = (p.page_code(SLUG, cell) for cell in ("equal", "by-view", "both-by-view"))
ROLES = "to_queries", "to_keys", "to_values"
WRONG_CLASSES = {"SplitByView": BY_VIEW, "MergeByView": BY_VIEW, "BothByView": BOTH}


# -- what a nudge may reach, and the bug of the page: view in place of transpose --------------------


def a_token_moves_its_own_row_and_the_later_ones(made, heads=(1, 3)):
    """`made(case)` is a module of inputs as wide as its heads together."""

    def function(case):
        p.seed_modules(case.seed)
        module, may_move = made(case).double(), torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return lambda tokens: module(tokens[None])[0], 0.3 * case.randn(case.T, case.H * case.D), may_move

    p.reaches_exactly(function, p.sizes(T=(2, 6), H=heads, D=(2, 4)))


@pytest.mark.parametrize(
    "made",
    [
        lambda case: PAGE.MultiHeadAttentionWrapper(case.H * case.D, case.D, case.H),
        lambda case: PAGE.MultiHeadAttention(case.H * case.D, case.H * case.D, case.H),
        lambda case: PAGE.Attention(case.H * case.D, case.H),
    ],
)
def test_a_token_moves_its_own_row_and_the_later_ones(made):
    a_token_moves_its_own_row_and_the_later_ones(made)


@pytest.mark.parametrize("kind", WRONG_CLASSES)
def test_view_in_place_of_transpose_keeps_the_shape_and_moves_the_wrong_rows(kind):
    wrong = getattr(WRONG_CLASSES[kind], kind)
    for H, T in itertools.product(range(2, 7), range(3, 8)):
        torch.manual_seed(H)
        module, tokens = wrong(3, 2 * H, H).double(), torch.randn(T, 3).double()
        nudged = tokens.repeat(T, 1, 1)
        nudged[range(T), range(T), 0] += 1
        before, after = module(tokens[None]), torch.cat([module(one[None]) for one in nudged])
        assert before.shape == (1, T, 2 * H)
        moved = (after != before).any(dim=-1).T
        assert not torch.equal(moved, torch.ones(T, T).tril().bool()), (H, T)


@pytest.mark.parametrize("kind", WRONG_CLASSES)
def test_sdpa_on_its_own_split_agrees_with_a_wrong_class_and_the_loop_does_not(kind):
    wrapper, module = PAGE.MultiHeadAttentionWrapper(3, 2, 3), getattr(WRONG_CLASSES[kind], kind)(3, 6, 3)
    heads = [head.state_dict() for head in wrapper.heads]
    module.to_output = nn.Identity()
    module.load_state_dict({name: torch.cat([head[name] for head in heads]) for name in heads[0]})
    inputs = PAGE.inputs[None]
    queries, keys, values = (module.split_heads(getattr(module, role)(inputs)) for role in ROLES)
    context = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    p.close(module.merge_heads(context), module(inputs), 1e-6)
    assert not torch.allclose(wrapper(inputs), module(inputs), atol=1e-3)


@pytest.mark.parametrize("kind", WRONG_CLASSES)
def test_with_one_head_the_bug_changes_nothing(kind):
    parts = []
    for made in (PAGE.MultiHeadAttention, getattr(WRONG_CLASSES[kind], kind)):
        torch.manual_seed(0)
        parts.append(made(3, 4, 1)(PAGE.inputs[None]))
    assert torch.equal(*parts)


def test_view_gives_each_head_two_tokens_each_cut_in_three():
    tokens = torch.arange(6)[:, None] * 10 + torch.arange(6)
    heads = BY_VIEW.SplitByView(3, 6, 3).split_heads(tokens[None])[0]
    assert heads[0].tolist() == [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]
    assert heads[1, 3:].tolist() == [[30, 31], [32, 33], [34, 35]]
    assert (heads[2] >= 40).all()


# -- the claims of the page ------------------------------------------------------------------------


def test_the_tokens_are_those_of_the_first_page():
    assert torch.equal(PAGE.inputs, p.page_code("foundations/weighted-average", "contexts").inputs)
    assert (PAGE.T, PAGE.E) == (6, 3)


def test_a_width_that_the_heads_do_not_divide_is_refused():
    PAGE.MultiHeadAttention(5, 6, 3)
    for made in (lambda: PAGE.MultiHeadAttention(5, 6, 4)), (lambda: PAGE.Attention(6, 4)):
        with pytest.raises(ValueError, match=r"^4 heads do not divide 6$"):
            made()


def test_the_parameters_are_three_matrices_and_an_output_and_who_has_biases():
    def shapes(module):
        return {name: tuple(one.shape) for name, one in module.named_parameters()}

    matrices = {f"{role}.weight": (6, 5) for role in ROLES}
    assert shapes(PAGE.CausalHead(5, 6)) == matrices
    assert shapes(PAGE.MultiHeadAttention(5, 6, 3)) == matrices | {"to_output.weight": (6, 6), "to_output.bias": (6,)}
    square = [f"{layer}.weight" for layer in (*ROLES, "to_output")]
    assert shapes(PAGE.Attention(6, 3, bias=False)) == dict.fromkeys(square, (6, 6))
    assert [name for name in shapes(PAGE.Attention(6, 3)) if name.endswith("bias")] == [
        name.replace("weight", "bias") for name in square
    ]


def test_loop_split_class_and_attention_agree_within_a_millionth():
    first, *others = [module(PAGE.tokens) for module in (PAGE.wrapper, PAGE.split, PAGE.attention)]
    for other in others:
        p.close(other, first, 1e-6)


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


def test_configurations_of_transformers_have_the_sizes_of_the_page():
    gpt2, oss = GPT2Config(), GptOssConfig()
    assert (gpt2.n_head, gpt2.n_embd, 768 // 12, 1600 // 25) == (12, 768, 64, 64)
    assert (oss.hidden_size, oss.num_attention_heads, oss.head_dim, oss.num_key_value_heads) == (2880, 64, 64, 8)
    assert (64 * 64, 2880 // 64) == (4096, 45)


def test_llama_has_the_names_of_the_table():
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "head_dim": 4, "num_hidden_layers": 1, "vocab_size": 3}
    with torch.device("meta"):
        attention = LlamaModel(LlamaConfig(**sizes, intermediate_size=8)).layers[0].self_attn
    assert {"q_proj", "k_proj", "v_proj", "o_proj"} == dict(attention.named_children()).keys()
    assert attention.head_dim == 4


def test_torch_returns_the_mean_of_the_heads_by_default():
    code = p.page_code(SLUG, "torch-module")
    mean = code.theirs(code.batch, code.batch, code.batch, attn_mask=~code.visible)[1]
    p.close(mean, code.weights.mean(dim=1), 1e-6)


def test_equal_heads_make_equal_contexts():
    attention = PAGE.MultiHeadAttention(3, 4, 2)
    with torch.no_grad():
        for role in ROLES:
            weight = getattr(attention, role).weight
            weight[2:] = weight[:2]
    attention.to_output = nn.Identity()
    assert torch.equal(*attention(PAGE.inputs[None]).chunk(2, dim=-1))


def test_the_value_rows_of_head_1_make_two_columns_of_the_context():
    attention = executed(SLUG, "probe")[0].attention
    attention = copy.deepcopy(attention)
    attention.to_values.weight.data.chunk(3)[1].zero_()
    zeros = (attention(PAGE.inputs[None])[0] == 0).all(dim=0)
    assert zeros.nonzero().flatten().tolist() == [2, 3]


# -- the exercise ----------------------------------------------------------------------------------


def rows_of(attention, kept):
    """Row numbers of the kept heads, in the order in which they are kept."""
    D = len(attention.to_queries.weight) // attention.num_heads
    return [head * D + d for head in kept for d in range(D)]


def pruned(attention, rows, columns, num_heads, made=copy.deepcopy):
    """Keep these rows of the three layers and these columns of the output."""
    kept = made(attention)
    for name in ROLES:
        layer = getattr(kept, name)
        layer.weight = nn.Parameter(layer.weight.detach()[rows])
    kept.to_output.weight = nn.Parameter(kept.to_output.weight.detach()[:, columns])
    kept.num_heads = num_heads
    return kept


def right(attention, kept, **options):
    rows = rows_of(attention, kept)
    return pruned(attention, rows, rows, len(kept), **options)


def shared_bias(attention, kept):
    answer = right(attention, kept)
    answer.to_output.bias = attention.to_output.bias
    return answer


def every_third(attention, kept):
    rows = [row for row in range(len(attention.to_queries.weight)) if row % attention.num_heads in kept]
    return pruned(attention, rows, rows, len(kept))


def columns_in_order(attention, kept):
    return pruned(attention, rows_of(attention, kept), rows_of(attention, sorted(kept)), len(kept))


RIGHT = {"rows by their numbers": right, "heads in order": lambda attention, kept: right(attention, sorted(kept))}
WRONG = {
    "attention is changed": lambda *given: right(*given, made=lambda attention: attention),
    "shares the bias": shared_bias,
    "every H-th row and column": every_third,
    "columns in order, rows as given": columns_in_order,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_heads", RIGHT, WRONG


# -- changes of the page's code that need no test --------------------------------------------------

SURVIVORS = {
    "queries and keys have one shape on this page": ["B, H, T, D = keys.shape"],
    "sizes that only shape comments have, which the runner checks": ["# B, T, E = inputs.shape", "H = E * D"],
}
