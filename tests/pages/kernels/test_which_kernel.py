"""What the page on SDPA's kernels claims: which one ran, why another refuses, and that all agree with math."""

import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import profiler
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import use_gqa_in_sdpa

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "kernels/which-kernel"
PAGE = p.page_code(SLUG, "solution")
ENGLISH = (p.ROOT / f"docs/en/{SLUG}.md").read_text("utf-8")
FLASH, MATH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION
CALLS = [*PAGE.shapes("cpu", torch.bfloat16), *PAGE.masks("cpu", torch.bfloat16)]
OPERATORS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_attention_math": "math",
}

calls = pytest.mark.parametrize(("label", "roles", "options"), CALLS, ids=[call[0] for call in CALLS])
pytestmark = pytest.mark.usefixtures("on_the_cpu")


def sdpa(*roles, **options):
    return F.scaled_dot_product_attention(*roles, **options)


def by_hand(queries, keys, values, visible=None, scale=None):
    scores = queries @ keys.mT * (queries.shape[-1] ** -0.5 if scale is None else scale)
    return torch.softmax(scores if visible is None else scores.masked_fill(~visible, -torch.inf), dim=-1) @ values


def profiled(call):
    """The kernels that torch's profiler sees."""
    with profiler.profile() as profile:
        call()
    return [OPERATORS[event.name] for event in profile.function_events if event.name in OPERATORS]


# -- which kernel ran, and why another refuses ---------------------------------------------------


@calls
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


def test_the_list_lacks_what_is_by_hand_compiled_or_checkpointed_with_reentry():
    tokens = torch.randn(2, 3, 4, 8, requires_grad=True)
    assert PAGE.kernels(by_hand(*[tokens] * 3)) == []
    assert PAGE.kernels(torch.compile(sdpa, backend="aot_eager")(*[tokens] * 3)) == []
    for reentrant, found in ((True, []), (False, ["flash"])):
        assert PAGE.kernels(checkpoint(sdpa, *[tokens] * 3, use_reentrant=reentrant)) == found


def test_autocast_leaves_float64():
    tokens = torch.randn(2, 3, 4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert [sdpa(*[tokens.to(dtype)] * 3).dtype for dtype in (torch.float32, torch.float64)] == [
            torch.bfloat16,
            torch.float64,
        ]


def test_the_nodes_of_torch_have_the_names_that_the_page_looks_for():
    header = p.Path(torch.__file__).parent / "include/torch/csrc/autograd/generated/Functions.h"
    names = re.findall(r"struct TORCH_API (ScaledDotProduct\w+Backward0)", header.read_text("utf-8"))
    found = {part for name in names for part in PAGE.NODES if part in name}
    assert found == {"FlashAttention", "EfficientAttention", "CudnnAttention"}


def test_asking_changes_neither_the_inputs_nor_what_is_allowed():
    tokens = torch.randn(1, 1, 4, 8)
    with sdpa_kernel(MATH):
        assert PAGE.kernel_of(tokens, tokens, tokens) == "flash"
        assert PAGE.refusal(FLASH, tokens, tokens, tokens) is None
        assert PAGE.kernels(sdpa(*[tokens.clone().requires_grad_()] * 3)) == ["math"]
        with torch.no_grad():
            assert PAGE.kernel_of(tokens, tokens, tokens) == "flash"
        assert PAGE.kernels(sdpa(tokens, tokens, tokens)) == []  # without gradients there is no graph
    assert not tokens.requires_grad


def test_a_refusal_has_its_reason_every_time_though_python_shows_a_warning_once():
    tokens, shown = torch.randn(1, 4, 8), []
    for _ in range(2):
        error, reason = PAGE.refusal(FLASH, tokens, tokens, tokens)
        assert error.startswith("No available kernel.")
        assert reason.startswith(
            "All fused kernels requires query, key and value to be 4 dimensional, but got Query dim: 3"
        )
    with warnings.catch_warnings(action="ignore"):
        assert PAGE.refusal(FLASH, tokens, tokens, tokens) == (error, reason)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            with sdpa_kernel(FLASH), pytest.raises(RuntimeError, match="No available kernel"):
                sdpa(tokens, tokens, tokens)
            shown.append(len(caught))
    assert shown == [2, 2]


def test_the_reasons_are_printed_of_the_calls_that_are_refused_in_short_lines(capsys):
    PAGE.explain(CALLS, FLASH)
    printed = capsys.readouterr().out
    refused = [label for label, roles, options in CALLS if PAGE.refusal(FLASH, *roles, **options)]
    assert [label for label, _, _ in CALLS if f"{label}: " in printed] == refused
    for length in range(1, 40):
        PAGE.explain([("x" * length, [torch.ones(1, 2, 3)] * 3, {})], FLASH)
    assert max(map(len, capsys.readouterr().out.splitlines())) == 76


def test_the_calls_are_what_their_labels_say():
    four, key = (2, 4, 5, 8), (2, 1, 5, 8)
    shaped = {
        "four axes": [four] * 3,
        "three axes": [(8, 5, 8)] * 3,
        "all of width 7": [(2, 4, 5, 7)] * 3,
        "all of width 512": [(2, 4, 5, 512)] * 3,
        "narrower values": [four, four, (2, 4, 5, 5)],
        "keys for one text": [four, (1, 4, 5, 8), (1, 4, 5, 8)],
        "one key head": [four, key, key],
        "one, enable_gqa": [four, key, key],
        "two, enable_gqa": [four, (2, 2, 5, 8), (2, 2, 5, 8)],
        "is_causal, Tq < Tk": [(2, 4, 3, 8), four, four],
        "enable_gqa, boolean": [four, (2, 2, 5, 8), (2, 2, 5, 8)],
    }
    masked = {
        "boolean (T, T)": (5, 5),
        "boolean (B, 1, 1, T)": (2, 1, 1, 5),
        "boolean (H, T, T)": (4, 5, 5),
        "numbers (T, T)": (5, 5),
        "numbers that learn": (5, 5),
        "enable_gqa, boolean": (5, 5),
    }
    assert len(CALLS) == 20
    assert {label for label, _, _ in CALLS} >= shaped.keys() | masked.keys() | {"is_causal", "queries that learn"}
    causal = torch.ones(5, 5).tril().bool()
    for label, roles, options in CALLS:
        assert [tuple(role.shape) for role in roles] == shaped.get(label, [four] * 3), label
        mask = options.get("attn_mask")
        assert (None if mask is None else tuple(mask.shape)) == masked.get(label), label
        if mask is not None:
            assert (mask.dtype == torch.bool) == ("boolean" in label), label
            wanted = causal[2] if label == "boolean (B, 1, 1, T)" else causal
            wanted = wanted if mask.dtype == torch.bool else torch.zeros(5, 5, dtype=torch.bfloat16)
            assert torch.equal(mask, wanted.expand(mask.shape)), label
            assert mask.requires_grad == (label == "numbers that learn")
        assert options.get("enable_gqa", False) == ("enable_gqa" in label), label
        assert options.get("is_causal", False) == ("is_causal" in label), label
        assert options.get("dropout_p", 0.0) == (0.1 if "dropout" in label else 0.0)
        assert roles[0].requires_grad == (label == "queries that learn")
        assert (roles[0].stride(-1) == 1) == (label != "last stride not 1")
        assert all((role == 1).all() and role.dtype == torch.bfloat16 for role in roles)
        assert mask is None or mask.dtype in (torch.bool, torch.bfloat16)


@pytest.mark.parametrize("cell", ["table-cuda", "words-cuda", "order-cuda"])
def test_the_programs_for_a_gpu_run_on_the_cpu_too(cell):
    printed = p.run_cell(SLUG, cell, (cell, {'"cuda"': '"cpu"'}))[1]
    assert {"table-cuda": "three axes", "words-cuda": "three axes: no reason", "order-cuda": "chosen flash"}[
        cell
    ] in printed


# -- every kernel gives the same context ---------------------------------------------------------


@pytest.mark.parametrize("backend", [FLASH, MATH])
def test_each_kernel_computes_the_formula(backend):
    def prove(case):
        roles = case.randn(3, case.B, case.H, case.T, case.D)
        visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        with sdpa_kernel(backend):
            p.close(sdpa(*roles, attn_mask=visible), by_hand(*roles, visible))
            p.close(sdpa(*roles, is_causal=True), by_hand(*roles, visible))

    p.for_all(p.sizes(B=2, H=3, T=6, D=5), prove)


def test_the_bounds_of_the_probe_hold_for_other_draws_and_sizes():
    bounds = p.page_code(SLUG, "probe").bounds
    for seed, size in enumerate(10 * [(2, 4, 64, 16), (1, 2, 256, 64)]):
        exact = torch.randn(3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        for name, bound in bounds.items():
            roles = exact.to(getattr(torch, name))
            truth = by_hand(*roles.double())
            for backend in (FLASH, MATH):
                with sdpa_kernel(backend):
                    assert (sdpa(*roles) - truth).abs().max() < bound, (name, seed)


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("Tq", "Tk"), [(1, 2), (3, 40), (600, 700)])
def test_flash_on_the_cpu_counts_the_tokens_of_the_values(dtype, Tq, Tk):
    queries = torch.randn(2, 3, Tq, 16).to(dtype)
    keys, values = torch.randn(2, 2, 3, Tk, 16).to(dtype)
    fewer = [role[:, :, :-1] for role in (keys, values)]
    with sdpa_kernel(FLASH):
        assert torch.equal(sdpa(queries, fewer[0], values), sdpa(queries, keys, values))
        assert torch.equal(sdpa(queries, keys, fewer[1]), sdpa(queries, *fewer))
    for roles in ((queries, fewer[0], values), (queries, keys, fewer[1])):
        for call in (PAGE.refusal(MATH, *roles), PAGE.refusal([FLASH, MATH], *(role[0] for role in roles))):
            assert call[0].startswith("Expected size for first two dimensions of batch2 tensor")


@pytest.mark.parametrize("axes", [2, 4])
def test_a_learned_mask_gets_its_gradient_from_math(axes):
    queries, keys, values = torch.randn(3, 2, 3, 4, 5, dtype=torch.float64)
    mask = torch.randn((2, 3, 4, 4)[4 - axes :], dtype=torch.float64, requires_grad=True)
    context = sdpa(queries, keys, values, attn_mask=mask)
    ours = torch.autograd.grad(context.square().sum(), mask)
    plain = torch.softmax(queries @ keys.mT * 5**-0.5 + mask, dim=-1) @ values
    p.close(ours, torch.autograd.grad(plain.square().sum(), mask))
    assert PAGE.kernels(context) == ["math"]
    assert PAGE.refusal(FLASH, queries, keys, values, attn_mask=mask)[1] == "no reason"


def test_the_documentation_names_math_for_float64():
    assert (
        "The c++ implementation supports torch.float64 and can be used when higher precision"
        in F.scaled_dot_product_attention.__doc__
    )


# -- switches, compile, libraries ----------------------------------------------------------------


def test_a_compiled_function_keeps_its_first_kernel_unless_the_with_is_inside():
    torch.compiler.reset()
    torch.manual_seed(0)
    roles, outputs = torch.randn(3, 2, 4, 64, 16, requires_grad=True), {}
    for backend in (FLASH, MATH):
        with sdpa_kernel(backend):
            outputs[backend] = sdpa(*roles)
    assert not torch.equal(*outputs.values())
    compiled = torch.compile(lambda roles: sdpa(*roles), backend="aot_eager")
    with sdpa_kernel(MATH):
        assert PAGE.kernels(compiled(roles)) == []
    with sdpa_kernel(FLASH):
        assert torch.equal(compiled(roles), outputs[MATH])

    @torch.compile(backend="aot_eager", fullgraph=True)
    def inside(roles):
        with sdpa_kernel(FLASH):
            return sdpa(*roles)

    with sdpa_kernel(MATH):
        assert torch.equal(inside(roles), outputs[FLASH])


def test_the_cache_on_disk_gives_the_kernel_of_an_earlier_process(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    roles, ran = torch.randn(3, 2, 4, 64, 16), []
    for backend in (FLASH, MATH):
        torch.compiler.reset()  # as a new process
        compiled = torch.compile(lambda roles: sdpa(*roles))
        with sdpa_kernel(backend):
            compiled(roles)
            ran.append(profiled(lambda compiled=compiled: compiled(roles)))
    assert ran == [["flash"], ["flash"]]


def test_the_switches_of_cuda_hold_on_the_cpu_and_the_order_is_fixed_there():
    tokens = torch.randn(1, 1, 4, 8, requires_grad=True)
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        assert PAGE.kernels(sdpa(tokens, tokens, tokens)) == ["math"]
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    with sdpa_kernel([MATH, FLASH], set_priority=True):
        assert PAGE.kernels(sdpa(tokens, tokens, tokens)) == ["flash"]
    with pytest.warns(FutureWarning, match=r"`torch.backends.cuda.sdp_kernel\(\)` is deprecated"):
        torch.backends.cuda.sdp_kernel()


def test_can_use_flash_attention_says_false_of_tensors_on_the_cpu():
    tokens = torch.randn(1, 1, 4, 8)
    assert not can_use_flash_attention(SDPAParams(tokens, tokens, tokens, None, 0.0, False, False))


def test_a_mask_cut_from_a_wider_one_has_rows_eight_numbers_apart():
    for T in range(1, 20):
        mask = torch.zeros(T, T + -T % 8)[:, :T]
        assert mask.shape == (T, T)
        assert mask.stride(0) % 8 == 0


def test_training_with_dropout_runs_math_and_evaluation_flash():
    tokens = torch.randn(2, 3, 8)
    attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
    for mode, kernel in ((True, "math"), (False, "flash")):
        context, _ = attention.train(mode)(tokens, tokens, tokens, need_weights=False)
        assert PAGE.kernels(context) == [kernel]


def test_the_library_gives_sdpa_four_axes_and_groups_without_a_mask_alone():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    model.set_attn_implementation("sdpa")
    tokens, real = torch.arange(12).view(2, 6), torch.ones(2, 6, dtype=torch.long)
    real[0, :2] = 0
    for mask in (None, real):
        assert PAGE.kernels(model(tokens, attention_mask=mask).logits) == ["flash", "flash"]
    keys = torch.randn(1, 2, 3, 8)
    assert use_gqa_in_sdpa(None, keys, keys)
    assert not use_gqa_in_sdpa(real, keys, keys)


# -- the messages, to the letter -----------------------------------------------------------------


def messages():
    """What torch says on the CPU, by calls that bring each message about."""
    tokens = torch.randn(2, 4, 5, 8)
    for _, roles, options in CALLS:
        yield from (PAGE.refusal(FLASH, *roles, **options) or ("", "no reason"))[1:]
    yield PAGE.refusal(EFFICIENT, tokens, tokens, tokens)[0]
    mask = torch.ones(5, 5, dtype=torch.bool)
    for backend, options in (
        (FLASH, {"attn_mask": mask.long()}),
        (FLASH, {"attn_mask": mask[0]}),
        (MATH, {"attn_mask": mask, "is_causal": True}),
    ):
        with sdpa_kernel(backend), pytest.raises((RuntimeError, IndexError)) as error:
            sdpa(tokens, tokens, tokens, **options)
        yield str(error.value)


def test_each_message_of_the_cpu_stands_on_the_page():
    listed = re.findall(r"^    \| `([^`]+)`", ENGLISH, re.MULTILINE)
    said = [words for words in messages() if words != "no reason"]
    unheard = {one for one in listed if not any(one in words for words in said)}
    assert unheard == {
        "Mem efficient attention requires last dimension of inputs to be divisible by 8",
        "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k",
        "Flash attention has been runtime disabled",
    }
    assert all(any(one in words for one in listed) for words in said if "No available" not in words)


# -- the exercise --------------------------------------------------------------------------------


def padded(queries, keys, values, visible=None, scale=True, leading=True, cut=True, inner=None):
    """The solution, or one of its mistakes."""
    D, width = queries.shape[-1], values.shape[-1]
    new = (None,) * (4 - queries.dim())
    inner = inner or max(D, width)
    roles = [F.pad(role, (0, inner - role.shape[-1]))[new] for role in (queries, keys, values)]
    if visible is not None and leading and visible.dim() > 2:
        visible = visible[new]
    context = sdpa(*roles, attn_mask=visible, scale=D**-0.5 if scale else None)
    context = context.reshape(*queries.shape[:-1], -1)
    return context[..., :width] if cut else context


def two_calls(queries, keys, values, visible=None):
    return padded(queries, keys, values, visible) + 0 * padded(queries, keys, values, visible)


def in_place(queries, keys, values, visible=None):
    context = padded(queries, keys, values, visible)
    if visible is not None:
        visible.fill_(True)
    return context


def forgetful(queries, keys, values, visible=None):
    return padded(queries, keys, values)


def detached(name):
    def attend(queries, keys, values, visible=None):
        roles = {"queries": queries, "keys": keys, "values": values}
        roles[name] = roles[name].detach()
        return padded(**roles, visible=visible)

    return attend


def after(queries, keys, values, visible=None):
    """New axes behind the batch, not before it."""
    while queries.dim() < 4:
        queries, keys, values = (role.unsqueeze(-3) for role in (queries, keys, values))
    return padded(queries, keys, values, visible)


def unsqueezed(queries, keys, values, visible=None):
    """Right: one axis after the other, and a mask for each."""
    missing = 4 - queries.dim()
    for _ in range(missing):
        queries, keys, values = (role.unsqueeze(0) for role in (queries, keys, values))
        visible = visible if visible is None or visible.dim() == 2 else visible.unsqueeze(0)
    context = padded(queries, keys, values, visible)
    for _ in range(missing):
        context = context.squeeze(0)
    return context


def heads_of_one(queries, keys, values, visible=None):
    """Right: all leading axes become the batch, and there is one head."""
    if visible is not None:
        visible = visible.expand(*queries.shape[:-1], keys.shape[-2]).reshape(-1, 1, *visible.shape[-2:])
    roles = [role.reshape(-1, 1, *role.shape[-2:]) for role in (queries, keys, values)]
    return padded(*roles, visible).reshape(*queries.shape[:-1], values.shape[-1])


def scaled_before(queries, keys, values, visible=None):
    """Right: the queries are scaled by hand."""
    D, width = queries.shape[-1], values.shape[-1]
    new = (None,) * (4 - queries.dim())
    roles = [F.pad(role, (0, max(D, width) - role.shape[-1]))[new] for role in (queries * D**-0.5, keys, values)]
    visible = visible if visible is None or visible.dim() == 2 else visible[new]
    return sdpa(*roles, attn_mask=visible, scale=1.0).reshape(*queries.shape[:-1], -1)[..., :width]


def added(fill):
    def attend(queries, keys, values, visible=None):
        if visible is not None:
            visible = torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, fill)
        return padded(queries, keys, values, visible)

    return attend


def for_the_cpu(queries, keys, values, visible=None):
    """A mask of numbers that is always made on the CPU."""
    if visible is not None:
        visible = torch.zeros(visible.shape, device="cpu").masked_fill(~visible, -torch.inf)
    return padded(queries, keys, values, visible)


def under_math(*roles):
    with sdpa_kernel(MATH):
        return padded(*roles)


RIGHT = {
    "the solution": padded,
    "one axis after the other": unsqueezed,
    "one head": heads_of_one,
    "queries scaled by hand": scaled_before,
    "minus infinity added": added(-torch.inf),
}
WRONG = {
    "returns None": lambda queries, keys, values, visible=None: None,
    "SDPA as it is": lambda q, k, v, visible=None: sdpa(q, k, v, attn_mask=visible),
    "by hand": by_hand,
    "by hand and SDPA beside it": lambda *roles: (padded(*roles), by_hand(*roles))[1],
    "scale of the padded width": lambda *roles: padded(*roles, scale=False),
    "the mask keeps its axes": lambda *roles: padded(*roles, leading=False),
    "always padded to 8": lambda *roles: padded(*roles, inner=8),
    "the context is not cut": lambda *roles: padded(*roles, cut=False),
    "new axes not taken away": after,
    "the mask forgotten": forgetful,
    "the mask inverted": lambda q, k, v, visible=None: padded(q, k, v, None if visible is None else ~visible),
    "the mask of the first item for all": lambda q, k, v, visible=None: padded(
        q, k, v, visible[(0,) * (visible.dim() - 2)] if visible is not None else None
    ),
    "two calls": two_calls,
    "the mask overwritten": in_place,
    "queries without gradient": detached("queries"),
    "keys without gradient": detached("keys"),
    "values without gradient": detached("values"),
    "nothing has a gradient": lambda *roles: padded(*roles).detach(),
    "in float64": lambda q, k, v, visible=None: padded(q.double(), k.double(), v.double(), visible),
    "through bfloat16": lambda q, k, v, visible=None: padded(q.bfloat16(), k.bfloat16(), v.bfloat16(), visible).float(),
    "keys and values exchanged": lambda q, k, v, visible=None: padded(q, v[..., : k.shape[-1]], k, visible),
    "always causal": lambda q, k, v, visible=None: padded(q, k, v, torch.ones(q.shape[-2], k.shape[-2]).tril().bool()),
    "0 added where hidden": added(0.0),
    "-1 added where hidden": added(-1.0),
    "-20 added where hidden": added(-20.0),
    "-1e4 added where hidden": added(-1e4),
    "-1e9 added where hidden": added(-1e9),
    "a mask made on the CPU": for_the_cpu,
    "always in float32": lambda q, k, v, visible=None: padded(q.float(), k.float(), v.float(), visible),
    "math allowed alone": under_math,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend_fused", RIGHT, WRONG

    def test_the_check_says_which_kernel_ran(self):
        assert self.verdict(under_math).endswith("it ran ['math'], not flash once\n")


def test_the_solution_runs_on_another_device_and_in_each_dtype():
    for dtype in (torch.float32, torch.bfloat16):
        roles = [torch.empty(2, 3, 4, width, device="meta", dtype=dtype) for width in (8, 8, 5)]
        visible = torch.ones(4, 4, dtype=torch.bool, device="meta")
        assert PAGE.attend_fused(*roles, visible).shape == (2, 3, 4, 5)
        none = [torch.empty(0, 3, 4, width, dtype=dtype) for width in (8, 8, 5)]
        assert PAGE.attend_fused(*none).shape == (0, 3, 4, 5)
        small = PAGE.attend_fused(*torch.randn(3, 4, 8, dtype=dtype))
        assert small.shape == (4, 8)
        assert small.dtype == dtype


# -- changes of the page's code that need no test, and of the solution that are as good ------------

ACCEPTED = {
    "keys have the width of the queries": ["D, width = (keys.shape[-1], values.shape[-1])"],
    "keys have as many axes as the queries": ["missing = (None,) * (4 - keys.dim())"],
}
