"""Many heads: the list and the split class against PyTorch, and heads that are cut in wrong places."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GptOssConfig, LlamaConfig, LlamaModel

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/many-heads"
PAGE, BY_VIEW, BOTH = (p.page_code(SLUG, cell) for cell in ("torch-module", "by-view", "both-by-view"))
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
    visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()
    return theirs(case.inputs, case.inputs, case.inputs, attn_mask=~visible)[0]


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


def stateless(code, kind):
    p.stateless(lambda case: (case.module, [case.inputs], [case.inputs.flip(1)]), cases(code, kind))


def finite_for_large_scores(code, kind):
    p.finite_rows(lambda case: case.module(1e3 * case.inputs), cases(code, kind))


@pytest.mark.parametrize("kind", ["list", "split"])
@pytest.mark.parametrize(
    "holds",
    [
        equals_sdpa,
        gradients_equal_those_of_sdpa,
        a_token_moves_its_own_row_and_the_later_ones,
        stateless,
        finite_for_large_scores,
    ],
)
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
    with pytest.raises(ValueError, match=r"^4 heads do not divide 6$"):
        PAGE.MultiHeadAttention(5, 6, 4)


def test_the_parameters_are_three_matrices_and_an_output_with_bias():
    head, attention = PAGE.CausalHead(5, 6), PAGE.MultiHeadAttention(5, 6, 3)
    shapes = [{name: tuple(one.shape) for name, one in each.named_parameters()} for each in (head, attention)]
    assert shapes[0] == {f"{role}.weight": (6, 5) for role in ROLES}
    assert shapes[1] == shapes[0] | {"to_output.weight": (6, 6), "to_output.bias": (6,)}


def with_state(case, **options):
    """`Attention` and its parameters, drawn, and inputs."""
    case.module = draw_parameters(PAGE.Attention(case.H * case.D, case.H, **options), case)
    case.inputs = case.randn(case.B, case.T, case.H * case.D)
    return case


@pytest.mark.parametrize("bias", [True, False])
def test_attention_is_multihead_attention_of_torch(bias):
    def theirs(case):
        width, state = case.H * case.D, case.module.state_dict()
        module = nn.MultiheadAttention(width, case.H, bias=bias, batch_first=True, **DOUBLE)
        kinds = ("weight", "bias") if bias else ("weight",)
        joined = {f"in_proj_{kind}": torch.cat([state[f"{role}.{kind}"] for role in ROLES]) for kind in kinds}
        module.load_state_dict(joined | {f"out_proj.{kind}": state[f"to_output.{kind}"] for kind in kinds})
        visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        return module(case.inputs, case.inputs, case.inputs, attn_mask=~visible)[0]

    drawn = p.sizes(B=3, T=5, H=(1, 3), D=(2, 4)).map(lambda case: with_state(case, bias=bias))
    p.equals_reference(output, theirs, drawn)


def test_attention_refuses_a_width_that_the_heads_do_not_divide():
    with pytest.raises(ValueError, match=r"^4 heads do not divide 6$"):
        PAGE.Attention(6, 4)


def test_loop_split_class_and_attention_agree_within_a_millionth():
    code = p.page_code(SLUG, "equal")
    outputs = [module(code.tokens) for module in (code.wrapper, code.split, code.attention)]
    for one in outputs[1:]:
        p.close(one, outputs[0], 1e-6)


def test_modules_and_inputs_may_be_on_another_device_than_the_default():
    tokens = torch.empty(2, 5, 3, device="meta")
    assert PAGE.MultiHeadAttentionWrapper(3, 2, 4).to("meta")(tokens).shape == (2, 5, 8)
    attention = PAGE.MultiHeadAttention(3, 8, 4).to("meta")
    assert attention(tokens).shape == (2, 5, 8)
    assert executed(SLUG, "solution")[0].keep_heads(attention, [2])(tokens).device == tokens.device


# -- the bug of the page: view in place of transpose -----------------------------------------------

WRONG_CLASSES = {"SplitByView": BY_VIEW, "MergeByView": BY_VIEW, "BothByView": BOTH}


@pytest.mark.parametrize("kind", WRONG_CLASSES)
def test_view_in_place_of_transpose_keeps_the_shape_and_moves_the_wrong_rows(kind):
    broken = getattr(WRONG_CLASSES[kind], kind)
    assert broken(3, 4, 2)(PAGE.inputs[None]).shape == (1, 6, 4)
    code = SimpleNamespace(MultiHeadAttention=broken)
    for holds in equals_sdpa, a_token_moves_its_own_row_and_the_later_ones:
        assert p.catches(holds, code, "split")


@pytest.mark.parametrize("kind", WRONG_CLASSES)
def test_with_one_head_the_bug_changes_nothing(kind):
    inputs, parts = PAGE.inputs[None], []
    for made in (PAGE.MultiHeadAttention, getattr(WRONG_CLASSES[kind], kind)):
        torch.manual_seed(0)
        parts.append(made(3, 4, 1)(inputs))
    assert torch.equal(*parts)


def test_view_gives_head_0_the_first_half_of_the_tokens_each_cut_in_two():
    tokens = torch.arange(6)[:, None] * 10 + torch.arange(4)
    heads = BY_VIEW.SplitByView(3, 4, 2).split_heads(tokens[None])[0]
    assert heads[0].tolist() == [[0, 1], [2, 3], [10, 11], [12, 13], [20, 21], [22, 23]]
    assert (heads[1] >= 30).all()


# -- the claims of the page ------------------------------------------------------------------------


def test_the_tokens_are_those_of_the_first_page():
    assert torch.equal(PAGE.inputs, p.page_code("foundations/weighted-average", "contexts").inputs)
    assert (PAGE.T, PAGE.E) == (6, 3)


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
    mean = PAGE.theirs(PAGE.batch, PAGE.batch, PAGE.batch, attn_mask=~PAGE.visible)[1]
    p.close(mean, PAGE.weights.mean(dim=1), 1e-6)


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


def by_groups(count):
    """Row or column numbers of the kept heads, of `count` heads in a width."""
    return lambda width, kept: [head * (width // count) + d for head in kept for d in range(width // count)]


def answer(rows=None, columns=None, roles=ROLES, heads=len, made=copy.deepcopy):
    """Keep these rows of the three layers and these columns of the output, each found by a function."""

    def keep_heads(attention, kept):
        pruned, width = made(attention), len(attention.to_queries.weight)
        right = by_groups(attention.num_heads)
        for name in roles:
            layer = getattr(pruned, name)
            layer.weight = nn.Parameter(layer.weight.detach()[(rows or right)(width, kept)])
        weight = pruned.to_output.weight.detach()[:, (columns or right)(width, kept)]
        pruned.to_output.weight = nn.Parameter(weight)
        pruned.num_heads = heads(kept)
        return pruned

    return keep_heads


def then(change):
    """The right answer, changed afterwards."""

    def keep_heads(attention, kept):
        pruned = answer()(attention, kept)
        change(pruned, attention)
        return pruned

    return keep_heads


def new_module(attention, kept):
    """A module made anew, and its parameters copied."""
    rows = by_groups(attention.num_heads)(len(attention.to_queries.weight), kept)
    pruned = type(attention)(attention.to_queries.in_features, len(rows), len(kept)).to(attention.to_queries.weight)
    pruned.to_output = nn.Linear(len(rows), len(attention.to_output.weight)).to(attention.to_queries.weight)
    with torch.no_grad():
        for name in ROLES:
            getattr(pruned, name).weight.copy_(getattr(attention, name).weight[rows])
        pruned.to_output.weight.copy_(attention.to_output.weight[:, rows])
        pruned.to_output.bias.copy_(attention.to_output.bias)
    return pruned


def zeroed(attention, kept):
    return executed(SLUG, "solution")[0].others_off(attention, kept)


def shared_bias(pruned, attention):
    pruned.to_output.bias = attention.to_output.bias


def no_bias(pruned, attention):
    pruned.to_output.bias = None


def scaled(pruned, attention):
    with torch.no_grad():
        pruned.to_output.weight *= attention.num_heads / pruned.num_heads


RIGHT = {
    "the solution": lambda *given: executed(SLUG, "solution")[0].keep_heads(*given),
    "rows and columns by number": answer(),
    "heads in order": lambda attention, kept: answer()(attention, sorted(kept)),
    "a new module": new_module,
}
WRONG = {
    "returns None": lambda attention, kept: None,
    "a function": lambda attention, kept: lambda inputs: zeroed(attention, kept)(inputs),
    "an output": lambda attention, kept: answer()(attention, kept)(torch.zeros(1, 2, 5, **DOUBLE)),
    "attention itself": lambda attention, kept: attention,
    "other heads only set to 0": zeroed,
    "attention is changed": answer(made=lambda attention: attention),
    "shares the bias": then(shared_bias),
    "the bias is lost": then(no_bias),
    "cannot be trained": then(lambda pruned, attention: pruned.requires_grad_(False)),
    "float32": then(lambda pruned, attention: pruned.float()),
    "float64": then(lambda pruned, attention: pruned.double()),
    "on the default device": lambda attention, kept: new_module(copy.deepcopy(attention).to("cpu"), kept),
    "scaled up for the lost heads": then(scaled),
    "removes the heads that it should keep": lambda attention, kept: answer()(
        attention, [head for head in range(attention.num_heads) if head not in kept]
    ),
    "the first heads": lambda attention, kept: answer()(attention, range(len(kept))),
    "counts heads from 1": lambda attention, kept: answer()(attention, [head - 1 for head in kept]),
    "every H-th row and column": lambda attention, kept: answer(
        *[lambda width, kept: [c for c in range(width) if c % attention.num_heads in kept]] * 2
    )(attention, kept),
    "heads of width 2, always": lambda attention, kept: answer(
        *[lambda width, kept: [2 * head + d for head in kept for d in (0, 1)]] * 2
    )(attention, kept),
    "rows kept, columns first": answer(columns=lambda width, kept: range(width // 4 * len(kept))),
    "columns in order, rows as given": lambda attention, kept: answer(
        columns=lambda width, kept: by_groups(attention.num_heads)(width, sorted(kept))
    )(attention, kept),
    "values not cut": answer(roles=ROLES[:2]),
    "one head": answer(heads=lambda kept: 1),
    "number of heads not changed": lambda attention, kept: answer(heads=lambda kept: attention.num_heads)(
        attention, kept
    ),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_heads", RIGHT, WRONG
