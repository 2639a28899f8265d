"""FlexAttention: each rule against plain loops, transformers and dense attention, and what the page says of torch."""

import inspect
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import funcname_cache
from torch._inductor.exc import InductorError
from torch._inductor.kernel.flex import flex_attention as fused_module
from torch._inductor.template_heuristics.triton import CUDAConfigHeuristic
from torch.nn.attention import flex_attention as flex_module
from torch.nn.attention.flex_attention import AuxRequest
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import create_causal_mask
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gemma2 import modeling_gemma2

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "kernels/flex-attention"
# TorchDynamo would read the Markdown file as if all of it were Python.
funcname_cache.cache[str(p.ROOT / "snippets" / f"{SLUG}.md")] = {}
PAGE = p.page_code(SLUG, "biases")
ALIBI = p.page_code(SLUG, "alibi").alibi
DOCUMENT = [0, 0, 0, 1, 1, 2, 2, 2, 2]
T = len(DOCUMENT)

pytestmark = pytest.mark.usefixtures("on_the_cpu")


@pytest.fixture(autouse=True)
def compiled_anew():
    """TorchDynamo recompiles a function only so often in a process."""
    torch.compiler.reset()
    flex_module._WARNINGS_SHOWN.clear()
    yield
    torch.compiler.reset()


def counting():
    graphs = []
    return graphs, lambda graph, inputs: graphs.append(graph) or graph


def roles(T, B=1, H=2):
    generator = torch.Generator().manual_seed(T)
    return torch.randn(3, B, H, T, 8, generator=generator, dtype=torch.float64)


def blocks(mask_mod, T, B=None, **options):
    return PAGE.create_block_mask(mask_mod, B, None, T, T, "cpu", **options)


def fused(*inputs, **options):
    try:
        return torch.compile(PAGE.flex_attention)(*inputs, **options)
    except InductorError as error:
        if "InvalidCxxCompiler" in str(error):
            pytest.skip("there is no C++ compiler")
        raise


def dense(roles, scores, visible):
    return scores.masked_fill(~visible, -torch.inf).softmax(dim=-1) @ roles[2]


# -- masks ---------------------------------------------------------------------------------------

REAL = [True, True, False, True, True, False, False, True, False]
RULES = {
    "causal": (PAGE.causal, lambda q, k: k <= q),
    "window of 3": (PAGE.and_masks(PAGE.causal, PAGE.window(3)), lambda q, k: k in (q - 2, q - 1, q)),
    "a window alone shows the future": (PAGE.window(3), lambda q, k: k > q - 3),
    "packed": (PAGE.packed(torch.tensor(DOCUMENT, device="cpu")), lambda q, k: DOCUMENT[q] == DOCUMENT[k]),
    "padding": (PAGE.padding(torch.tensor([REAL], device="cpu")), lambda q, k: REAL[k]),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_mask_is_that_of_plain_loops_and_attention_that_of_the_formula(rule):
    mask_mod, wanted = RULES[rule]
    visible = torch.tensor([[wanted(q, k) for k in range(T)] for q in range(T)])
    assert torch.equal(PAGE.create_mask(mask_mod, None, None, T, T, "cpu")[0, 0], visible)
    inputs = roles(T)
    context = PAGE.unfused(*inputs, block_mask=blocks(mask_mod, T))
    p.close(context, dense(inputs, inputs[0] @ inputs[1].mT / 8**0.5, visible))


def test_padding_equals_each_text_alone_and_a_row_without_a_key_is_0():
    is_real, inputs = torch.arange(T) < torch.tensor([[4], [0], [9]]), roles(T, B=3)
    context = PAGE.unfused(*inputs, block_mask=blocks(PAGE.padding(is_real), T, B=3))
    for b, length in ((0, 4), (2, 9)):
        p.close(context[b, :, :length], PAGE.unfused(*inputs[:, b : b + 1, :, :length])[0])
    hidden = PAGE.unfused(*inputs, block_mask=blocks(lambda b, h, q, k: is_real[b, q] & is_real[b, k], T, B=3))
    assert torch.equal(hidden, context * is_real[:, None, :, None]), "the rows of pads alone become 0"


def test_the_warm_up_is_15_blocks_and_the_picture_has_those_of_a_window_of_6():
    assert blocks(PAGE.and_masks(PAGE.causal, PAGE.window(100)), 1024).to_dense().sum() == 15
    assert blocks(PAGE.causal, 8).sparsity() == -25500
    block_mask = blocks(PAGE.and_masks(PAGE.causal, PAGE.window(6)), 12, BLOCK_SIZE=3)
    assert block_mask.to_dense()[0, 0].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]
    full = block_mask.full_kv_num_blocks[0, 0].tolist(), block_mask.full_kv_indices[0, 0, 1:, 0].tolist()
    assert full == ([0, 1, 1, 1], [0, 1, 2])


def test_the_fused_kernel_of_the_cpu_takes_odd_blocks_and_odd_widths():
    inputs = roles(300).float()
    context = fused(*inputs, block_mask=blocks(PAGE.causal, 300, BLOCK_SIZE=7))
    p.close(context, F.scaled_dot_product_attention(*inputs, is_causal=True), 1e-5)
    p.close(fused(*inputs[..., :5]), F.scaled_dot_product_attention(*inputs[..., :5]), 1e-5)


def test_without_the_size_of_the_batch_the_fused_kernel_loses_keys_of_long_rows():
    for length in (300, 128):
        is_real, inputs = torch.arange(length) < torch.tensor([[100], [length]]), roles(length, B=2).float()
        wanted = F.scaled_dot_product_attention(*inputs, attn_mask=is_real[:, None, None])
        for B, attend in ((None, PAGE.unfused), (2, PAGE.unfused), (None, fused), (2, fused)):
            context = attend(*inputs, block_mask=blocks(PAGE.padding(is_real), length, B=B))
            lost = length > 128 and attend is fused and not B
            assert torch.allclose(context[1], wanted[1], atol=1e-5) != lost
            p.close(context[0], wanted[0], 1e-5)


def test_with_the_number_of_key_heads_in_its_mask_the_fused_kernel_is_wrong():
    queries, keys, values = roles(300, H=8).float()
    inputs, rule = (queries, keys[:, :2], values[:, :2]), PAGE.window_of_head(torch.tensor([1] * 4 + [300] * 4))
    visible = PAGE.create_mask(rule, None, 8, 300, 300, "cpu")
    wanted = F.scaled_dot_product_attention(*inputs, attn_mask=visible, enable_gqa=True)
    for H in (2, 8):
        mask = PAGE.create_block_mask(rule, None, H, 300, 300, "cpu")
        assert torch.allclose(fused(*inputs, block_mask=mask, enable_gqa=True), wanted, atol=1e-5) == (H == 8)


def test_the_blocks_of_packed_texts_are_those_of_all_pairs():
    for lengths in ([1], [300, 45, 500, 155], [128, 128, 256], [1] * 500, [257, 1, 126]):
        document = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        quick = p.page_code(SLUG, "quick-blocks").packed_blocks(document)
        slow = blocks(PAGE.and_masks(PAGE.causal, PAGE.packed(document)), len(document))
        assert torch.equal(quick.to_dense(), slow.to_dense())
        assert quick.shape == slow.shape


def test_the_fused_kernel_of_cuda_refuses_blocks_that_are_no_multiple_of_its_tile():
    source = inspect.getsource(fused_module)
    assert "Q and KV block size must be divisible by BLOCK_M and BLOCK_N." in source
    assert 'cur_kernel_options.setdefault("BLOCK_M", conf.block_m)' in source
    named = [getattr(CUDAConfigHeuristic(), f"{gpu}_default_flex_config") for gpu in ("a100", "h100", "sm_100")]
    tiles = {size for configs in named for config in configs.values() for size in (config.block_m, config.block_n)}
    assert {128 % size for size in tiles} == {0}


def rule(visible):
    """An answer: what a query sees, from the tensors that are given."""
    return lambda d, p, x: lambda b, h, q, k: (d[q] == d[k]) & visible(d, p, x, q, k)


def dense_mask(d, p, x):
    place = torch.arange(len(d), device=d.device)
    seen = (d[:, None] == d) & ((place <= place[:, None]) | (p < x[d]))
    return lambda b, h, q, k: seen[q, k]


RIGHT = {
    "one expression": rule(lambda d, p, x, q, k: (k <= q) | (p[k] < x[d[k]])),
    "places in place of indices": rule(lambda d, p, x, q, k: (p[k] <= p[q]) | (p[k] < x[d[q]])),
}
WRONG = {
    "a dense mask made in advance": dense_mask,
    "prefix from the start of the row": rule(lambda d, p, x, q, k: (k <= q) | (k < x[d[k]])),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_packed_prefix", RIGHT, WRONG


def test_alibi_is_that_of_bloom():
    inputs, slopes = roles(T), torch.tensor([2.0**-4, 2.0**-8])
    bias = build_alibi_tensor(torch.ones(1, T), 2, torch.float64).view(1, 2, 1, T)
    wanted = dense(inputs, inputs[0] @ inputs[1].mT / 8**0.5 + bias, torch.ones(T, T).tril().bool())
    p.close(PAGE.unfused(*inputs, score_mod=ALIBI(slopes), block_mask=blocks(PAGE.causal, T)), wanted)


def test_a_softcap_is_that_of_gemma_2_and_brings_no_hidden_key_back():
    inputs, module = 5 * roles(T), SimpleNamespace(num_key_value_groups=1, training=False)
    mask = torch.full((T, T), -torch.inf).triu(1)
    theirs = modeling_gemma2.eager_attention_forward(module, *inputs, mask, scaling=8**-0.5, softcap=3.0)[0]
    ours = PAGE.unfused(*inputs, score_mod=PAGE.softcap(3.0), block_mask=blocks(PAGE.causal, T))
    p.close(ours, theirs.transpose(1, 2), 1e-6)
    config = vars(modeling_gemma2.Gemma2Config())
    assert [config[f"{what}_logit_softcapping"] for what in ("attn", "final")] == [50, 30]


def test_a_learned_table_gets_the_gradient_of_dense_attention():
    inputs, place = roles(T), torch.arange(T)
    ours, theirs = (torch.ones(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    table = theirs[:, (place[:, None] - place).clamp(0, 3)]
    wanted = F.scaled_dot_product_attention(*inputs, attn_mask=table)
    context = PAGE.unfused(*inputs, score_mod=PAGE.learned(ours))
    p.close(context, wanted)
    for result in (context, wanted):
        result.sin().sum().backward()
    p.close(ours.grad, theirs.grad, 1e-9)
    checked = inspect.getsource(fused_module.validate_joint_graph)
    assert "Using multiple indexing operations on the same tensor that requires gradients" in checked
    assert "bias1 = bias.clone()" in checked


def test_the_fused_kernel_of_the_cpu_trains_no_table_and_gives_no_log_sum_exp():
    attend, leaf = torch.compile(PAGE.flex_attention), torch.ones(2, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"IndexError: tuple index out of range|InvalidCxxCompiler"):
        attend(*roles(T).float(), score_mod=PAGE.learned(leaf))
    with pytest.raises(RuntimeError, match="on CPU only supports inference and `return_lse` is not"):
        attend(*roles(T).float(), return_aux=AuxRequest(lse=True))


def test_queries_that_require_a_gradient_are_refused_even_where_none_is_recorded():
    trained = roles(T).requires_grad_()
    with torch.no_grad():
        p.close(PAGE.unfused(*(2 * trained)), PAGE.unfused(*(2 * roles(T))))
        with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
            PAGE.unfused(*(part.requires_grad_() for part in roles(T)))


def test_dtypes_widths_and_nested_tensors():
    queries, keys, values = roles(T).float()
    with pytest.raises(InductorError, match="Mixed query, key, and value dtype is not supported on this platform"):
        fused(queries, keys.half(), values.half())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert PAGE.unfused(queries, keys, values.bfloat16()).dtype == torch.bfloat16
    nested = torch.nested.nested_tensor([queries[0]] * 2, layout=torch.jagged)
    with pytest.raises(NotImplementedError, match=r"^flex_attention does not support NestedTensor inputs"):
        PAGE.unfused(nested, nested, nested)
    assert "sympy.Lt(query.get_size()[-1], 16)" in inspect.getsource(fused_module)
    tiles = {"BLOCK_M", "BLOCK_N", "BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2", "num_stages"}
    assert tiles <= set(flex_module.FlexKernelOptions.__annotations__)


def test_there_is_no_dropout_no_draw_and_a_log_sum_exp_for_weights():
    with pytest.raises(ValueError, match=r"^`flex_attention` does not support `dropout`"):
        flex_attention_forward(None, *roles(T), attention_mask=None, dropout=0.1)
    with pytest.raises(RuntimeError, match=r"^vmap: called random operation while in randomness error mode"):
        blocks(lambda b, h, q, k: torch.rand(()) > 0.1, T)
    assert "return attention_output, lse" in inspect.getsource(flex_attention_forward)


def test_transformers_takes_a_block_mask_as_it_is_and_mps_does_not_train():
    mask = blocks(PAGE.causal, T)
    for name in ("flex_attention", "a name of your own"):
        config = SimpleNamespace(_attn_implementation=name)
        assert create_causal_mask(config, torch.zeros(1, T, 8), mask, None) is mask
    assert "FlexAttention does not support backward on MPS" in inspect.getsource(flex_module)


def test_the_flag_compile_is_deprecated(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)
    with pytest.warns(DeprecationWarning, match="^_compile flag on create_block_mask was originally added"):
        blocks(PAGE.causal, T, _compile=True)


def test_the_errors_that_the_page_names():
    block_mask, leaf = blocks(PAGE.causal, T), torch.ones(T, requires_grad=True)
    learned = blocks(lambda b, h, query, key: leaf[key] > 0, T)
    for error, message, inputs, mask in (
        (NotImplementedError, "NYI: query, key, and value must be 4D tensors", roles(T)[:, 0], None),
        (ValueError, "Expect query and key/value to have the same number", (roles(T)[0], *roles(T)[1:, :, :1]), None),
        (RuntimeError, "Expect q/k/v and block_mask to be on the same device", roles(T), block_mask.to("meta")),
        (RuntimeError, "Cannot use mask_mod from a sliced BlockMask", roles(T), block_mask[:, :, 0]),
        (RuntimeError, "Captured buffers from mask mod that require grad are not supported", roles(T), learned),
    ):
        with pytest.raises(error, match=message):
            PAGE.unfused(*inputs, block_mask=mask)
    cut, rebuilt = blocks(PAGE.causal, 512)._adjust(130, 130), blocks(PAGE.causal, 130)
    assert torch.equal(*(PAGE.unfused(*roles(130), block_mask=mask) for mask in (cut, rebuilt)))


@pytest.mark.parametrize(
    ("dynamic", "lengths", "compilations"),
    [(False, (512, 640, 768), 3), (None, (200, 400, 300, 77), 3), (True, (512, 640), 1), (True, (200, 640), 2)],
)
def test_how_often_it_compiles_for_lengths(dynamic, lengths, compilations):
    graphs, count = counting()
    attend = torch.compile(PAGE.flex_attention, backend=count, dynamic=dynamic)
    for length in lengths:
        attend(*roles(length), block_mask=blocks(PAGE.causal, length))
    assert len(graphs) == compilations


def test_another_batch_size_compiles_once_more_and_a_tensor_with_other_numbers_not():
    graphs, count = counting()
    attend = torch.compile(PAGE.flex_attention, backend=count)
    for step, (B, compilations) in enumerate([(2, 1), (2, 1), (3, 2), (4, 2)]):
        is_real = torch.arange(T) < torch.arange(B)[:, None] + step
        attend(*roles(T, B=B), block_mask=blocks(PAGE.padding(is_real), T, B=B))
        assert len(graphs) == compilations
    graphs.clear()
    for width in range(1, 6):
        attend(*roles(T), block_mask=blocks(PAGE.window(torch.tensor(width)), T))
    assert len(graphs) == 1


def attend_with_ten_rules(backend, **options):
    for width in range(10):
        names = {}
        exec(f"def rule(b, h, query, key): return query - key < {width} + 1", names)
        attend = torch.compile(PAGE.flex_attention, backend=backend, **options)
        attend(*roles(T), block_mask=blocks(names["rule"], T))


def test_after_eight_rules_it_warns_once_and_with_a_full_graph_raises():
    graphs, count = counting()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        attend_with_ten_rules(count)
    assert len(graphs) == 8
    assert [str(warning.message).partition(" - ")[0] for warning in said] == [
        "flex_attention called without torch.compile()"
    ]
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        attend_with_ten_rules("eager", fullgraph=True)


@pytest.mark.parametrize("options", [{"recompile_limit": 32}, {"isolate_recompiles": True}], ids=str)
def test_a_limit_of_its_own_compiles_every_rule_and_leaves_that_of_the_process(options):
    graphs, count = counting()
    attend_with_ten_rules(count, **options)
    assert len(graphs) == 10
    assert torch._dynamo.config.recompile_limit == 8


# -- changes of the page's code that need no test, and of the solution that are as good ------------

ACCEPTED = {
    "and, or: the same in any order": [
        "return and_masks(or_masks(causal, early), packed(document))",
        "return and_masks(packed(document), or_masks(early, causal))",
    ],
}
