"""FlexAttention: each rule against plain loops, transformers and dense attention, and what the page says it costs."""

import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import funcname_cache
from torch.nn.attention import flex_attention as flex_module
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gemma2 import modeling_gemma2

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "kernels/flex-attention"
# TorchDynamo would read the Markdown file as if all of it were Python.
funcname_cache.cache[str(p.ROOT / "snippets" / f"{SLUG}.md")] = {}
PAGE = p.page_code(SLUG, "biases")
DOCUMENT = [0, 0, 0, 1, 1, 2, 2, 2, 2]
T = len(DOCUMENT)

pytestmark = pytest.mark.usefixtures("on_the_cpu")


@pytest.fixture(autouse=True)
def compiled_anew():
    """TorchDynamo recompiles a function only so often in a process; the page raises its limit, which is 8."""
    torch.compiler.reset()
    flex_module._WARNINGS_SHOWN.clear()
    with torch._dynamo.config.patch(recompile_limit=8):
        yield
    torch.compiler.reset()


def counting():
    graphs = []
    return graphs, lambda graph, inputs: graphs.append(graph) or graph


def roles(T, H=2):
    generator = torch.Generator().manual_seed(T)
    return torch.randn(3, 1, H, T, 8, generator=generator, dtype=torch.float64)


def dense(roles, scores, visible):
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    return weights @ roles[2]


# -- masks ---------------------------------------------------------------------------------------

RULES = {
    "causal": (PAGE.causal, lambda q, k: k <= q),
    "window of 1": (PAGE.and_masks(PAGE.causal, PAGE.window(1)), lambda q, k: k == q),
    "window of 3": (PAGE.and_masks(PAGE.causal, PAGE.window(3)), lambda q, k: k in (q - 2, q - 1, q)),
    "a window alone shows the future": (PAGE.window(3), lambda q, k: k > q - 3),
    "prefix": (PAGE.or_masks(PAGE.causal, PAGE.prefix(4)), lambda q, k: k <= q or k in range(4)),
    "packed": (PAGE.packed(torch.tensor(DOCUMENT, device="cpu")), lambda q, k: DOCUMENT[q] == DOCUMENT[k]),
    "packed window": (
        PAGE.and_masks(PAGE.causal, PAGE.window(2), PAGE.packed(torch.tensor(DOCUMENT, device="cpu"))),
        lambda q, k: k in (q - 1, q) and DOCUMENT[q] == DOCUMENT[k],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_mask_is_that_of_plain_loops_and_attention_that_of_the_formula(rule):
    mask_mod, wanted = RULES[rule]
    visible = torch.tensor([[wanted(q, k) for k in range(T)] for q in range(T)])
    assert torch.equal(PAGE.create_mask(mask_mod, None, None, T, T, "cpu")[0, 0], visible)
    inputs = roles(T)
    context = PAGE.attend(*inputs, block_mask=PAGE.block_mask_for(mask_mod, T))
    p.close(context, dense(inputs, inputs[0] @ inputs[1].mT / 8**0.5, visible))


def test_the_roles_are_drawn_from_a_seed_of_their_own():
    torch.manual_seed(1)
    drawn = PAGE.make_roles(2, 5, 4)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.randn(3, 1, 2, 5, 4))


def test_rules_run_on_the_device_of_their_tensors():
    for mask_mod in (PAGE.window(3), PAGE.prefix(2), PAGE.packed(torch.tensor(DOCUMENT, device="meta"))):
        assert PAGE.block_mask_for(mask_mod, T, "meta").kv_indices.is_meta


@pytest.mark.filterwarnings("ignore:_compile flag:DeprecationWarning")
@pytest.mark.parametrize(("create", "window"), [(create_causal_mask, T), (create_sliding_window_causal_mask, 3)])
def test_transformers_makes_the_same_block_mask(create, window, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)  # it would need a C++ compiler
    config = SimpleNamespace(_attn_implementation="flex_attention", sliding_window=window)
    block_mask = create(config=config, inputs_embeds=torch.zeros(1, T, 8), attention_mask=None, past_key_values=None)
    ours = PAGE.create_mask(PAGE.and_masks(PAGE.causal, PAGE.window(window)), None, None, T, T, "cpu")
    assert torch.equal(PAGE.create_mask(block_mask.mask_mod, None, None, T, T, "cpu"), ours)


def test_transformers_refuses_dropout_with_flex_attention():
    with pytest.raises(ValueError, match=r"^`flex_attention` does not support `dropout`"):
        flex_attention_forward(None, *roles(T), attention_mask=None, dropout=0.1)


def test_the_warm_up_is_15_blocks_and_blocks_never_change_the_mask():
    mask_mod = PAGE.and_masks(PAGE.causal, PAGE.window(100))
    assert PAGE.block_mask_for(mask_mod, 1024).to_dense().sum() == 15
    inputs = roles(T)
    contexts = [
        PAGE.attend(*inputs, block_mask=PAGE.create_block_mask(mask_mod, None, None, T, T, "cpu", BLOCK_SIZE=size))
        for size in (1, 2, 128)
    ]
    assert torch.equal(contexts[0], contexts[1])
    assert torch.equal(contexts[0], contexts[2])


def test_the_picture_has_the_blocks_of_a_window_of_6():
    mask_mod = PAGE.and_masks(PAGE.causal, PAGE.window(6))
    block_mask = PAGE.create_block_mask(mask_mod, None, None, 12, 12, "cpu", BLOCK_SIZE=3)
    assert block_mask.to_dense()[0, 0].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]
    full = block_mask.full_kv_num_blocks[0, 0].tolist(), block_mask.full_kv_indices[0, 0, 1:, 0].tolist()
    assert full == ([0, 1, 1, 1], [0, 1, 2])


# -- the exercise --------------------------------------------------------------------------------


def rule(visible):
    """An answer: what a query sees, from the tensors that are given."""
    return lambda d, p, x: lambda b, h, q, k: visible(d, p, x, q, k)


def same(d, p, x, q, k):
    return d[q] == d[k]


def early(d, p, x, q, k):
    return p[k] < x[d[k]]


def changed(d, p, x):
    x -= 1
    return lambda b, h, q, k: same(d, p, x, q, k) & ((k <= q) | (p[k] <= x[d[k]]))


def dense_mask(d, p, x):
    place = torch.arange(len(d), device=d.device)
    seen = (d[:, None] == d) & ((place <= place[:, None]) | (p < x[d]))
    return lambda b, h, q, k: seen[q, k]


def places_of_the_row(d, p, x):
    p = torch.tensor([0, 1, 2, 0, 0, 1, 2, 3, 4], device=d.device)
    return lambda b, h, q, k: same(d, p, x, q, k) & ((k <= q) | early(d, p, x, q, k))


def clamped(d, p, x):
    x.clamp_(max=5)
    return lambda b, h, q, k: same(d, p, x, q, k) & ((k <= q) | early(d, p, x, q, k))


def from_lists(d, p, x):
    seen = [[i == j and (k <= q or p[k] < x[j]) for k, j in enumerate(d)] for q, i in enumerate(d)]
    seen = torch.tensor(seen, device="cpu")
    return lambda b, h, q, k: seen[q, k]


RIGHT = {
    "one expression": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & ((k <= q) | early(d, p, x, q, k))),
    "the text of the query, where both are in one": rule(
        lambda d, p, x, q, k: (d[q] == d[k]) & ((k <= q) | (p[k] < x[d[q]]))
    ),
    "places in place of indices": rule(lambda d, p, x, q, k: (d[q] == d[k]) & ((p[k] <= p[q]) | (p[k] < x[d[k]]))),
}
WRONG = {
    "returns None": lambda d, p, x: None,
    "a mask in place of a function": lambda d, p, x: d[:, None] == d,
    "python's and, or": rule(lambda d, p, x, q, k: d[q] == d[k] and (k <= q or p[k] < x[d[k]])),
    "numbers": rule(lambda d, p, x, q, k: (same(d, p, x, q, k) & ((k <= q) | early(d, p, x, q, k))).float()),
    "causal alone": rule(lambda d, p, x, q, k: k <= q),
    "texts alone": rule(same),
    "prefix alone": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & early(d, p, x, q, k)),
    "no prefix": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & (k <= q)),
    "prefix of other texts, too": rule(lambda d, p, x, q, k: (same(d, p, x, q, k) & (k <= q)) | early(d, p, x, q, k)),
    "and for or": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & (k <= q) & early(d, p, x, q, k)),
    "prefix from the start of the row": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & ((k <= q) | (k < x[d[k]]))),
    "one more": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & ((k <= q) | (p[k] <= x[d[k]]))),
    "the prefix of text 0": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & ((k <= q) | (p[k] < x[0]))),
    "the place of the query": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & ((k <= q) | (p[q] < x[d[k]]))),
    "not itself": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & ((k < q) | early(d, p, x, q, k))),
    "the future": rule(lambda d, p, x, q, k: same(d, p, x, q, k) & ((k >= q) | early(d, p, x, q, k))),
    "polarity inverted": rule(lambda d, p, x, q, k: ~(same(d, p, x, q, k) & ((k <= q) | early(d, p, x, q, k)))),
    "changes what it is given": changed,
    "a dense mask made in advance": dense_mask,
    "places counted from the first token of the row": places_of_the_row,
    "clamps what it is given": clamped,
    "texts in ascending order": rule(lambda d, p, x, q, k: (d[q] <= d[k]) & ((k <= q) | early(d, p, x, q, k))),
    "the first text of the batch alone": lambda d, p, x: (
        lambda b, h, q, k: (b == 0) & same(d, p, x, q, k) & ((k <= q) | early(d, p, x, q, k))
    ),
    "read as numbers": lambda d, p, x: from_lists(d.tolist(), p.tolist(), x.tolist()),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_packed_prefix", RIGHT, WRONG


# -- biases --------------------------------------------------------------------------------------


def test_alibi_is_that_of_bloom_and_lowers_far_keys():
    inputs, slopes = roles(T), torch.tensor([2.0**-4, 2.0**-8])
    bias = build_alibi_tensor(torch.ones(1, T), 2, torch.float64).view(1, 2, 1, T)
    causal = torch.ones(T, T).tril().bool()
    context = PAGE.attend(*inputs, score_mod=PAGE.alibi(slopes), block_mask=PAGE.block_mask_for(PAGE.causal, T))
    p.close(context, dense(inputs, inputs[0] @ inputs[1].mT / 8**0.5 + bias, causal))


def test_a_softcap_is_that_of_gemma_2():
    inputs, module = 5 * roles(T), SimpleNamespace(num_key_value_groups=1, training=False)
    theirs = modeling_gemma2.eager_attention_forward(module, *inputs, None, scaling=8**-0.5, softcap=3.0)[0]
    p.close(PAGE.attend(*inputs, score_mod=PAGE.softcap(3.0)), theirs.transpose(1, 2), 1e-6)


def test_a_softcap_brings_no_hidden_key_back():
    inputs = roles(T)
    nudged = inputs.clone()
    nudged[1:, ..., -1, 0] += 1
    options = {"score_mod": PAGE.softcap(0.1), "block_mask": PAGE.block_mask_for(PAGE.causal, T)}
    before, after = PAGE.attend(*inputs, **options), PAGE.attend(*nudged, **options)
    assert torch.equal(before[:, :, :-1], after[:, :, :-1])


def test_a_learned_table_gets_the_gradient_of_dense_attention():
    inputs, place = roles(T), torch.arange(T)
    ours, theirs = (torch.ones(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    table = theirs[:, (place[:, None] - place).clamp(0, 3)]
    wanted = F.scaled_dot_product_attention(*inputs, attn_mask=table)
    context = PAGE.attend(*inputs, score_mod=PAGE.learned(ours))
    p.close(context, wanted)
    for result in (context, wanted):
        result.sin().sum().backward()
    p.close(ours.grad, theirs.grad, 1e-9)
    assert ours.grad.abs().min() > 0


def test_the_fused_kernel_of_the_cpu_trains_no_table():
    attend, leaf = torch.compile(PAGE.flex_attention), torch.ones(2, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"IndexError: tuple index out of range|InvalidCxxCompiler"):
        attend(*roles(T).float(), score_mod=PAGE.learned(leaf))
    trained = roles(T).requires_grad_()
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        PAGE.attend(*trained)
    with torch.no_grad():
        p.close(PAGE.attend(*(2 * trained)), PAGE.attend(*(2 * roles(T))))


def test_a_tensor_of_a_mask_must_not_require_a_gradient():
    leaf = torch.ones(T, requires_grad=True)
    block_mask = PAGE.block_mask_for(lambda b, h, query, key: leaf[key] > 0, T)
    with pytest.raises(RuntimeError, match=r"Captured buffers from mask mod that require grad are not supported\."):
        PAGE.attend(*roles(T), block_mask=block_mask)


# -- memory, errors ------------------------------------------------------------------------------


def test_the_flag_compile_is_deprecated_and_compiles_the_whole_function(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function: compiled.append(function) or function)
    with pytest.warns(DeprecationWarning, match="^_compile flag on create_block_mask was originally added"):
        PAGE.create_block_mask(PAGE.causal, None, None, T, T, "cpu", _compile=True)
    assert compiled == [PAGE.create_block_mask]


def test_the_errors_that_the_page_names():
    block_mask = PAGE.block_mask_for(PAGE.causal, T)
    queries, keys, values = roles(T)
    for error, message, call in (
        (NotImplementedError, "NYI: query, key, and value must be 4D tensors", lambda: PAGE.attend(*roles(T)[:, 0])),
        (
            ValueError,
            "Expect query and key/value to have the same number of heads",
            lambda: PAGE.attend(queries, keys[:, :1], values[:, :1]),
        ),
        (
            RuntimeError,
            "Expect q/k/v and block_mask to be on the same device",
            lambda: PAGE.attend(*roles(T), block_mask=block_mask.to("meta")),
        ),
        (
            RuntimeError,
            "Cannot use mask_mod from a sliced BlockMask",
            lambda: PAGE.attend(*roles(T), block_mask=block_mask[:, :, 0]),
        ),
    ):
        with pytest.raises(error, match=message):
            call()
    grouped = PAGE.attend(queries, keys[:, :1], values[:, :1], enable_gqa=True)
    p.close(grouped, PAGE.attend(queries, keys[:, [0, 0]], values[:, [0, 0]]))


# -- compilations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dynamic", "lengths", "compilations"),
    [
        (False, (130, 200, 300), 3),
        (None, (200, 400, 300, 1000), 2),
        (None, (200, 400, 300, 77), 3),
        (True, (200, 640, 768), 2),
        (True, (640, 200), 1),
    ],
)
def test_how_often_it_compiles(dynamic, lengths, compilations):
    graphs, count = counting()
    attend = torch.compile(PAGE.flex_attention, backend=count, dynamic=dynamic)
    for length in lengths:
        attend(*roles(length), block_mask=PAGE.block_mask_for(PAGE.causal, length))
    assert len(graphs) == compilations


def attend_with_ten_rules(graph_counter, **options):
    for width in range(10):
        names = {}
        exec(f"def rule(b, h, query, key): return query - key < {width} + 1", names)
        attend = torch.compile(PAGE.flex_attention, backend=graph_counter, **options)
        attend(*roles(T), block_mask=PAGE.block_mask_for(names["rule"], T))


def test_after_eight_rules_nothing_is_compiled_and_the_warning_comes_once():
    graphs, count = counting()
    assert torch._dynamo.config._config["recompile_limit"].default == 8
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        attend_with_ten_rules(count)
    assert len(graphs) == 8
    assert [str(warning.message).partition(" - ")[0] for warning in said] == [
        "flex_attention called without torch.compile()"
    ]


def test_with_a_full_graph_the_limit_is_an_error():
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        attend_with_ten_rules("eager", fullgraph=True)


def test_a_higher_limit_compiles_every_rule_and_a_tensor_needs_one():
    graphs, count = counting()
    with torch._dynamo.config.patch(recompile_limit=32):
        attend_with_ten_rules(count)
    assert len(graphs) == 10
    torch.compiler.reset()
    graphs.clear()
    for width in range(1, 11):
        attend = torch.compile(PAGE.flex_attention, backend=count)
        attend(*roles(T), block_mask=PAGE.block_mask_for(PAGE.window(torch.tensor(width)), T))
    assert len(graphs) == 1


# -- changes of the page's code that need no test, and of the solution that are as good ------------

ACCEPTED = {
    "and, or: the same in any order": [
        "return and_masks(or_masks(causal, early), packed(document))",
        "return and_masks(packed(document), or_masks(early, causal))",
    ],
}
