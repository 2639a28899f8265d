"""What the page on SDPA's kernels claims: which one ran, why another refuses, and that all agree with math."""

import inspect
import io
import itertools
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import profiler
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM, modeling_utils
from transformers.integrations.sdpa_attention import use_gqa_in_sdpa

from tests.pages import properties as p
from tests.pages.exercise import Exercise
from tools.figures import kernel_choice

SLUG = "kernels/which-kernel"
PAGE = p.page_code(SLUG, "solution")
ENGLISH = (p.ROOT / f"docs/en/{SLUG}.md").read_text("utf-8")
FLASH, MATH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION
CALLS = [*PAGE.shapes("cpu", torch.bfloat16), *PAGE.masks("cpu", torch.bfloat16)]
OPERATORS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_attention_math": "math",
}

pytestmark = pytest.mark.usefixtures("on_the_cpu")


def sdpa(*roles, **options):
    return F.scaled_dot_product_attention(*roles, **options)


def by_hand(queries, keys, values, visible=None):
    scores = queries @ keys.mT * queries.shape[-1] ** -0.5
    return torch.softmax(scores if visible is None else scores.masked_fill(~visible, -torch.inf), dim=-1) @ values


def profiled(call):
    """The kernels that torch's profiler sees."""
    with profiler.profile() as profile:
        call()
    return [OPERATORS[event.name] for event in profile.function_events if event.name in OPERATORS]


@pytest.mark.parametrize(("label", "roles", "options"), CALLS, ids=[call[0] for call in CALLS])
def test_the_graph_the_profiler_and_the_refusal_name_the_same_kernel(label, roles, options):
    learned = [role.detach().requires_grad_() for role in roles]
    flash = PAGE.refusal(FLASH, *roles, **options) is None
    name = "flash" if flash else "math"
    assert PAGE.kernel_of(*roles, **options) == name
    for given in (roles, learned):
        assert profiled(lambda given=given: sdpa(*given, **options)) == [name]
    assert PAGE.kernels(sdpa(*learned, **options)) == [name]


def test_all_kernels_of_a_model_are_listed_once_each():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, dropout=0.0)
    stack, tokens = nn.TransformerEncoder(layer, 4), torch.randn(2, 3, 8)
    assert PAGE.kernels(stack(tokens)) == ["flash"] * 4 == profiled(lambda: stack(tokens))
    twice = sdpa(*[tokens.requires_grad_()] * 3)
    assert sorted(PAGE.kernels(twice + sdpa(*[twice[None]] * 3)[0] + twice)) == ["flash", "math"]


CONTROLS = {
    "device": ["cpu"], "dtype": ["float32", "bfloat16", "float16", "float64"], "axes": ["4", "3"],
    "mask": ["none", "is_causal", "is_causal, Tq < Tk", "(T, T)", "(H, T, T)"],
    "width": ["64", "100", "320"], "heads": ["same", "enable_gqa"], "dropout": ["0", "0.1"],
}  # fmt: skip


def test_the_figure_and_torch_agree_on_every_call_on_the_cpu():
    for chosen in itertools.product(*CONTROLS.values()):
        state = dict(zip(CONTROLS, chosen))
        flash = int(not kernel_choice.reasons(state)["flash"])
        assert kernel_choice.runs(state) == [-1, flash, -1, 1], state


def test_the_list_lacks_what_is_by_hand_compiled_or_checkpointed_with_reentry():
    tokens = torch.randn(2, 3, 4, 8, requires_grad=True)
    assert PAGE.kernels(sdpa(*[tokens.detach()] * 3)) == []
    assert PAGE.kernels(by_hand(*[tokens] * 3)) == []
    assert PAGE.kernels(torch.compile(sdpa, backend="aot_eager")(*[tokens] * 3)) == []
    for reentrant, found in ((True, []), (False, ["flash"])):
        assert PAGE.kernels(checkpoint(sdpa, *[tokens] * 3, use_reentrant=reentrant)) == found


def test_autocast_leaves_float64():
    for given, found in {torch.float32: torch.bfloat16, torch.float64: torch.float64}.items():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert sdpa(*torch.randn(3, 2, 3, 4, 8, dtype=given)).dtype == found


def test_the_nodes_of_torch_have_the_names_that_the_page_looks_for():
    header = p.Path(torch.__file__).parent / "include/torch/csrc/autograd/generated/Functions.h"
    names = re.findall(r"struct TORCH_API (ScaledDotProduct\w+Backward0)", header.read_text("utf-8"))
    found = {part for name in names for part in PAGE.NODES if part in name}
    assert found == {"FlashAttention", "EfficientAttention", "CudnnAttention"}


def test_a_refusal_has_its_reason_every_time_though_python_shows_a_warning_once():
    tokens, shown = torch.randn(1, 4, 8), []
    wanted = "All fused kernels requires query, key and value to be 4 dimensional, but got Query dim: 3"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            with sdpa_kernel(FLASH), pytest.raises(RuntimeError, match="No available kernel"):
                sdpa(tokens, tokens, tokens)
            shown.append(len(caught))
    assert shown == [2, 2]
    assert all(PAGE.refusal(FLASH, tokens, tokens, tokens).startswith(wanted) for _ in range(2))


def test_the_table_for_a_gpu_runs_on_the_cpu_too():
    assert "three axes" in p.run_cell(SLUG, "table-cuda", ("table-cuda", {'"cuda"': '"cpu"'}))[1]


def test_the_bounds_of_the_probe_hold_for_other_draws_and_sizes():
    for seed, size in enumerate(10 * [(2, 4, 64, 16), (1, 2, 256, 64)]):
        exact = torch.randn(3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        for dtype, bound in p.page_code(SLUG, "probe").bounds.items():
            roles = exact.to(dtype)
            for backend in (FLASH, MATH):
                with sdpa_kernel(backend):
                    assert (sdpa(*roles) - by_hand(*roles.double())).abs().max() < bound, (dtype, seed)


def test_the_flash_kernel_returns_a_number_for_each_row_that_gives_the_weights_back():
    queries, keys, values = torch.randn(3, 1, 2, 7, 8, dtype=torch.float64)
    context, rows = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(queries, keys, values)
    scores = queries @ keys.mT * 8**-0.5
    p.close(torch.exp(scores - rows.reshape(1, 2, 7, 1)), torch.softmax(scores, dim=-1))
    p.close(context, torch.softmax(scores, dim=-1) @ values)


def test_with_four_axes_the_weights_are_not_kept_and_with_three_they_are():
    T, D = 1024, 16
    four, three, two = re.findall(r"keep (\d+) KiB", p.run_cell(SLUG, "kept")[1])
    assert int(four) * 1024 == 4 * 4 * T * D + 4 * T
    assert int(three) * 1024 == int(two) * 1024 == 4 * T * T + 3 * 4 * T * D


@pytest.mark.parametrize(("B", "T"), [(1, 64), (2, 300)])
def test_a_boolean_mask_becomes_floats_inside_the_call_and_floats_stay(B, T):
    heads, visible = torch.zeros(B, 3, T, 16), torch.ones(T, T).tril().bool()
    sizes = {(T, T): T * T, (B, 1, 1, T): B * T, (B, 3, T, T): B * 3 * T * T}
    for shape, numbers in sizes.items():
        mask = visible.expand(B, 3, T, T)[:, :1, -1:] if shape[-2] == 1 else visible.expand(shape)
        assert PAGE.largest_made(heads, mask) == f"{4 * numbers // 1024:6} KiB"
        assert PAGE.largest_made(heads, mask.float().log()) == f"{0:6} KiB"


@pytest.mark.parametrize(("Tq", "Tk"), [(1, 2), (3, 40), (600, 700)])
def test_flash_on_the_cpu_counts_the_tokens_of_the_values_and_math_raises(Tq, Tk):
    queries, (keys, values) = torch.randn(2, 3, Tq, 16), torch.randn(2, 2, 3, Tk, 16)
    fewer = [role[:, :, :-1] for role in (keys, values)]
    with sdpa_kernel(FLASH):
        assert torch.equal(sdpa(queries, fewer[0], values), sdpa(queries, keys, values))
        assert torch.equal(sdpa(queries, keys, fewer[1]), sdpa(queries, *fewer))
    for roles in ((queries, fewer[0], values), (queries, keys, fewer[1])):
        assert PAGE.refusal(MATH, *roles).startswith("Expected size for first two dimensions of batch2 tensor")


def test_a_bias_that_learns_runs_math_and_efficient_has_its_gradient():
    bias, tokens = torch.zeros(1, 2, 4, 4), torch.randn(3, 2, 4, 8, requires_grad=True)
    for learned, kernel in ((False, "flash"), (True, "math")):
        assert PAGE.kernels(sdpa(*[tokens] * 3, attn_mask=bias.requires_grad_(learned))) == [kernel]
    assert PAGE.refusal(FLASH, *[tokens] * 3, attn_mask=bias) == "No available kernel.  Aborting execution."
    assert len(torch.ops.aten._scaled_dot_product_efficient_attention_backward.default._schema.returns) == 4


@pytest.mark.parametrize("visible", [torch.eye(600).bool(), torch.arange(600) < 2], ids=["window", "padding"])
def test_each_score_is_computed_whatever_the_mask_hides(visible):
    queries, keys = torch.randn(2, 1, 2, 600, 8)
    keys[:, :, -1] = torch.nan
    assert sdpa(queries, keys, queries, attn_mask=visible.expand(600, 600)).isnan().all()


def test_math_alone_has_second_derivatives_and_forward_mode():
    tokens = torch.randn(1, 1, 2, 8, dtype=torch.float64, requires_grad=True)
    with sdpa_kernel(MATH):
        assert torch.autograd.gradgradcheck(sdpa, [tokens] * 3)
        torch.func.jvp(lambda queries: sdpa(queries, tokens, tokens), (tokens,), (tokens,))
    with sdpa_kernel(FLASH), pytest.raises(NotImplementedError, match="Trying to use forward AD"):
        torch.func.jvp(lambda queries: sdpa(queries, tokens, tokens), (tokens,), (tokens,))


@pytest.mark.parametrize(("backend", "warned"), [(FLASH, 2), (MATH, 0)])
def test_flash_has_no_batching_rule_and_the_gradients_of_each_sample_are_right(backend, warned):
    queries, keys = torch.randn(2, 5, 1, 2, 3, 4)
    gradient = torch.func.grad(lambda queries, keys: sdpa(queries, keys, keys).square().sum())
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(backend):
        warnings.simplefilter("always")
        mapped = torch.vmap(gradient)(queries, keys)
        alone = torch.stack([gradient(*pair) for pair in zip(queries, keys)])
    assert sum("implemented the batching rule" in str(one.message) for one in caught) == warned
    p.close(mapped, alone)


def test_the_documentation_names_math_for_float64():
    said = "The c++ implementation supports torch.float64 and can be used when higher precision"
    assert said in F.scaled_dot_product_attention.__doc__


def test_a_compiled_function_keeps_its_first_kernel_unless_the_with_is_inside():
    torch.compiler.reset()
    roles, outputs = torch.randn(3, 2, 4, 64, 16, requires_grad=True), {}
    for backend in (FLASH, MATH):
        with sdpa_kernel(backend):
            outputs[backend] = sdpa(*roles)
    assert not torch.equal(*outputs.values())
    compiled = torch.compile(lambda roles: sdpa(*roles), backend="aot_eager")
    with sdpa_kernel(MATH):
        compiled(roles)
    with sdpa_kernel(FLASH):
        assert torch.equal(compiled(roles), outputs[MATH])

    @torch.compile(backend="aot_eager", fullgraph=True)
    def inside(roles):
        with sdpa_kernel(FLASH):
            return sdpa(*roles)

    with sdpa_kernel(MATH):
        assert torch.equal(inside(roles), outputs[FLASH])


def test_the_switches_of_cuda_hold_on_the_cpu_where_the_order_is_fixed():
    tokens = torch.randn(1, 1, 4, 8, requires_grad=True)
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        assert PAGE.kernels(sdpa(tokens, tokens, tokens)) == ["math"]
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    with sdpa_kernel([MATH, FLASH], set_priority=True):
        assert PAGE.kernels(sdpa(tokens, tokens, tokens)) == ["flash"]
    with pytest.warns(FutureWarning, match=r"`torch.backends.cuda.sdp_kernel\(\)` is deprecated"):
        torch.backends.cuda.sdp_kernel()
    assert {flag.default for flag in inspect.signature(torch.backends.cuda.sdp_kernel).parameters.values()} == {True}


def llama(kind=LlamaForCausalLM):
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    return kind(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))


def test_the_library_gives_sdpa_four_axes_and_groups_without_a_mask_alone():
    model, tokens, real = llama(), torch.arange(12).view(2, 6), torch.ones(2, 6, dtype=torch.long)
    real[0, :2] = 0
    for mask in (None, real):
        assert PAGE.kernels(model(tokens, attention_mask=mask).logits) == ["flash", "flash"]
    logits = model(tokens, attention_mask=real).logits
    model.set_attn_implementation("eager")
    off = (model(tokens, attention_mask=real).logits - logits).abs().amax(-1)
    assert off[real.bool()].max() < 1e-5 < 1e-2 < off[~real.bool()].max()
    keys = torch.randn(1, 2, 3, 8)
    assert use_gqa_in_sdpa(None, keys, keys)
    assert not use_gqa_in_sdpa(real, keys, keys)
    without = type("Without", (LlamaForCausalLM,), {"_supports_sdpa": False})
    assert [llama(kind).config._attn_implementation for kind in (type(model), without)] == ["sdpa", "eager"]


def messages():
    """What torch says on the CPU, by calls that bring each message about."""
    tokens = torch.randn(2, 4, 5, 8)
    for _, roles, options in CALLS:
        yield PAGE.refusal(FLASH, *roles, **options) or ""
    yield PAGE.refusal(EFFICIENT, tokens, tokens, tokens)
    yield PAGE.refusal(MATH, tokens, *[tokens[:, :2]] * 2)
    mask = torch.ones(5, 5, dtype=torch.bool)
    masks = [{"attn_mask": given} for given in (mask.long(), mask[0], mask.repeat(1, 2))]
    for options in (*masks, {"dropout_p": None}):
        with sdpa_kernel([FLASH, MATH]), pytest.raises((RuntimeError, IndexError, TypeError)) as error:
            sdpa(tokens, tokens, tokens, **options)
        yield str(error.value)
    layer = type("Layer", (nn.Module,), {"forward": lambda self, tokens: sdpa(tokens, tokens, tokens)})()
    with pytest.warns(match="legacy"), pytest.raises(torch.onnx.errors.UnsupportedOperatorError) as error:
        torch.onnx.export(layer, (tokens,), io.BytesIO(), opset_version=13, dynamo=False)
    yield str(error.value)


def table(section):
    """What the first column of the tables of a section quotes."""
    return re.findall(
        r"^    \| `(?!enable)([^`\"]+)`", ENGLISH.partition(f"{{#{section}}}")[2].partition("\n## ")[0], re.MULTILINE
    )


def test_each_message_of_the_cpu_stands_on_the_page():
    listed, said = table("messages"), [words for words in messages() if words]
    unheard = {one for one in listed if not any(one in words for words in said)}
    assert unheard == {
        "Mem efficient attention requires last dimension of inputs to be divisible by 8",
        "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k",
        "Flash attention has been runtime disabled",
        "CUDA error: invalid configuration argument",
        "cutlassF: no kernel found to launch!",
    }
    assert all(any(one in words for one in listed) for words in said if "No available" not in words)


def test_the_messages_of_transformers_are_those_of_its_source():
    source = p.Path(modeling_utils.__file__).read_text("utf-8").replace("{flash_attn_version}", "2")
    assert {words for words in table("transformers") if words not in source} == {
        "FlashAttention only supports Ampere GPUs or newer",
        "FlashAttention only support fp16 and bf16 data type",
    }


def padded(queries, keys, values, visible=None):
    """All leading axes become the batch, and there is one head: as good as the solution."""
    *lead, Tq, D = queries.shape
    width = values.shape[-1]
    if visible is not None:
        visible = visible.expand(*lead, Tq, keys.shape[-2]).reshape(-1, 1, Tq, keys.shape[-2])
    roles = [role.reshape(-1, 1, *role.shape[-2:]) for role in (queries, keys, values)]
    roles = [F.pad(role, (0, max(D, width) - role.shape[-1])) for role in roles]
    context = sdpa(*roles, attn_mask=visible, scale=D**-0.5)
    return context[..., :width].reshape(*lead, Tq, width)


def by_hand_beside_it(*given):
    return (padded(*given), by_hand(*given))[1]


def of_one_width(queries, keys, values, visible=None):
    same = queries.shape[-1] == values.shape[-1]
    return padded(queries, keys, values, visible) if same else sdpa(queries, keys, values)


def test_after_the_middle_step_the_check_names_other_widths():
    assert "not yet: queries (4, 9), values 5, mask None: it ran" in p.verdict(PAGE.check_attend_fused, of_one_width)


RIGHT = {"one head": padded}
WRONG = {"by hand, and SDPA beside it": by_hand_beside_it}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend_fused", RIGHT, WRONG


ACCEPTED = {"keys have as many axes as the queries": ["for _ in range(4 - keys.dim()):"]}
