"""One attention with all options against plain loops, PyTorch and transformers; the probe kit."""

import functools
import itertools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Block, eager_attention_forward

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "practice/capstone"
PAGE, MUSEUM = p.page_code(SLUG, "solution"), p.ROOT / "snippets/practice/museum.md"
PROBES = ["causality", "padding", "empty", "batch", "order", "cross"]
PROBES += ["state", "modes", "dtype", "cache", "gradient", "sdpa"]

# -- the class, in all its options -----------------------------------------------------------------


def drawn(**fixed):
    """Modules with every combination of options, inputs, and which keys are real; a row may have none."""

    def build(case, causal, cross, bias, wide):
        options = {"causal": causal and not cross, "cross": cross, "bias": bias, "wide": wide} | fixed
        case = SimpleNamespace(**vars(case) | options)
        case.E, case.head_dim = case.H * case.D, case.D + 1 if case.wide else None
        case.inputs = case.randn(case.B, case.T, case.E)
        case.memory = case.randn(case.B, case.Tk, case.E + 2) if case.cross else None
        case.source = case.memory if case.cross else case.inputs
        case.is_real = case.randn(*case.source.shape[:2]) > -0.4
        case.attention = attention_of(case)
        return case

    return st.builds(build, p.sizes(B=3, H=3, T=4, Tk=5, D=3), *[st.booleans()] * 4)


def attention_of(case):
    p.seed_modules(case.seed)
    options = {"causal": case.causal, "bias": case.bias, "head_dim": case.head_dim}
    attention = PAGE.Attention(case.E, case.H, memory_width=case.E + 2 if case.cross else None, **options)
    for parameter in attention.parameters():  # larger than torch's, or the weights are nearly equal
        nn.init.normal_(parameter)
    return attention.double().eval()


def ours(case):
    return case.attention(case.inputs, case.memory, case.is_real)[0]


def roles_of(case):
    """Queries, keys and values from the layers alone, and what each query may see, by two loops."""
    attention, width = case.attention, case.head_dim or case.D
    sides = (attention.to_queries, case.inputs), (attention.to_keys, case.source), (attention.to_values, case.source)
    roles = [torch.stack(layer(tokens).split(width, dim=-1), dim=1) for layer, tokens in sides]
    visible = torch.zeros(case.B, 1, case.T, case.source.shape[1], dtype=torch.bool)
    for item, i, j in itertools.product(range(case.B), range(case.T), range(visible.shape[-1])):
        visible[item, 0, i, j] = case.is_real[item, j] and (not case.causal or j <= i)
    return roles, visible


def joined(case, context):
    return case.attention.to_output(torch.cat(context.unbind(1), dim=-1))


def one_query_at_a_time(case):
    """A softmax over the keys that the query sees, and nothing else."""
    (queries, keys, values), visible = roles_of(case)
    context = torch.zeros(*queries.shape[:3], values.shape[-1], dtype=torch.float64)
    for item, head, i in itertools.product(*map(range, queries.shape[:3])):
        kept = visible[item, 0, i].nonzero()[:, 0]
        if len(kept):
            scores = keys[item, head, kept] @ queries[item, head, i] / queries.shape[-1] ** 0.5
            context[item, head, i] = scores.softmax(dim=0) @ values[item, head, kept]
    return joined(case, context)


def test_gradients_are_those_of_one_query_at_a_time_even_with_empty_rows():
    def leaves(case):
        return [case.inputs, *case.attention.parameters()] + ([case.memory] if case.cross else [])

    p.gradients_equal(ours, one_query_at_a_time, leaves, drawn())


def test_outputs_are_those_of_the_eager_attention_of_transformers():
    """Its rows without keys are nan, and here 0."""

    def eager(case):
        (queries, keys, values), visible = roles_of(case)
        bias = torch.zeros(visible.shape, dtype=torch.float64).masked_fill(~visible, -torch.inf)
        module = SimpleNamespace(training=False, attn_dropout=nn.Identity())
        context, _ = eager_attention_forward(module, queries, keys, values, bias, scaling=queries.shape[-1] ** -0.5)
        return joined(case, context.transpose(1, 2).nan_to_num(0.0))

    p.equals_reference(ours, eager, drawn())


def test_outputs_and_weights_are_those_of_multihead_attention():
    def prove(case):
        attention, E = case.attention, case.E
        theirs = nn.MultiheadAttention(E, case.H, batch_first=True, kdim=E + 2, vdim=E + 2, dtype=torch.float64)
        layers = attention.to_queries, attention.to_keys, attention.to_values
        state = {f"{role}_proj_weight": layer.weight for role, layer in zip("qkv", layers)}
        state |= {"in_proj_bias": torch.cat([layer.bias for layer in layers])}
        state |= {f"out_proj.{name}": value for name, value in attention.to_output.state_dict().items()}
        theirs.load_state_dict(state)
        case.is_real[:, 0] = True  # its empty rows are nan
        given = {"key_padding_mask": ~case.is_real, "average_attn_weights": False}
        for found, wanted in zip(weighed(case), theirs(case.inputs, case.memory, case.memory, **given)):
            p.close(found, wanted)

    p.for_all(drawn(causal=False, cross=True, bias=True, wide=False), prove)


def weighed(case):
    return case.attention(case.inputs, case.memory, case.is_real, need_weights=True)


def test_who_asks_for_weights_gets_the_same_outputs_and_an_empty_row_has_no_weight():
    def prove(case):
        outputs, weights = weighed(case)
        p.close(outputs, ours(case))
        visible = roles_of(case)[1].expand_as(weights)
        assert torch.equal(weights > 0, visible)
        p.close(weights.sum(dim=-1), visible.any(dim=-1).double())
        assert case.attention(case.inputs, case.memory, case.is_real)[1] is None

    p.equals_reference(
        lambda case: torch.autograd.grad(weighed(case)[0].sum(), case.attention.parameters())[0],
        lambda case: torch.autograd.grad(ours(case).sum(), case.attention.parameters())[0],
        drawn(),
    )
    p.for_all(drawn(), prove)


@pytest.mark.parametrize(("causal", "cached"), [(False, 0), (True, 0), (True, 2)])
def test_without_padding_the_fused_kernel_gets_no_mask_but_for_a_causal_step(causal, cached, monkeypatch):
    given = []
    sdpa = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **o: given.append(o) or sdpa(*a, **o))
    cache = PAGE.Cache(5)
    attention, inputs = PAGE.Attention(8, 2, causal=causal), torch.randn(3, 5, 8)
    attention(inputs[:, :cached], cache=cache)
    attention(inputs[:, cached:], cache=cache)
    if cached:
        assert given[-1].keys() == {"attn_mask", "dropout_p"}
    else:
        assert given[-1] == {"dropout_p": 0.0, "is_causal": causal}


def test_with_a_cache_the_newest_rows_are_those_of_all_and_is_real_covers_the_cache():
    def prove(case):
        first, cache = case.seed % case.T, PAGE.Cache(case.T)
        case.attention(case.inputs[:, :first], is_real=case.is_real[:, :first], cache=cache)
        newest = case.attention(case.inputs[:, first:], is_real=case.is_real, cache=cache)[0]
        p.close(newest, ours(case)[:, first:])
        for held, role in zip((cache.keys, cache.values), roles_of(case)[0][1:]):
            p.close(held, role)

    p.for_all(drawn(causal=True, cross=False), prove)


def test_a_memory_is_projected_once_and_then_nothing_is_appended():
    def prove(case):
        cache = PAGE.Cache(case.Tk)
        case.attention(case.inputs[:, :1], case.memory, case.is_real, cache)
        p.close(case.attention(case.inputs, case.memory[:, :0], case.is_real, cache)[0], ours(case))

    p.for_all(drawn(causal=False, cross=True), prove)


def test_a_full_cache_refuses_a_token_and_keeps_what_it_has():
    cache, roles = PAGE.Cache(4), torch.randn(2, 3, 2, 3, 5)
    keys, values, _ = cache.add(*roles)
    with pytest.raises(ValueError, match="6 tokens, room for 4"):
        cache.add(*roles)
    assert cache.length == 3
    assert torch.equal(torch.stack([keys, values]), roles)
    cache.add(*roles[:, :, :, :1])


@pytest.mark.parametrize("others", [1, 3])
def test_a_cache_refuses_a_batch_of_another_size(others):
    cache = PAGE.Cache(4)
    cache.add(*torch.randn(2, 2, 2, 3, 5))
    with pytest.raises(ValueError, match=f"^texts: {others}, in the cache 2$"):
        cache.add(*torch.randn(2, others, 2, 1, 5))


def test_dropout_thins_the_weights_in_training_only_after_they_are_returned():
    attention, inputs = PAGE.Attention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    torch.manual_seed(0)
    outputs, weights = attention(inputs, need_weights=True)
    p.close(weights.sum(dim=-1), torch.ones(2, 2, 5), 1e-5)
    torch.manual_seed(0)
    thinned = F.dropout(weights, 0.5) @ attention.split(attention.to_values(inputs))
    p.close(outputs, attention.to_output(thinned.transpose(1, 2).flatten(2)), 1e-5)
    assert not torch.equal(attention(inputs)[0], attention(inputs)[0])
    padded = {"is_real": torch.ones(2, 5) > 0}
    assert not torch.equal(attention(inputs, **padded)[0], attention(inputs, **padded)[0])
    attention.eval()
    assert torch.equal(attention(inputs)[0], attention(inputs)[0])


@pytest.mark.parametrize(
    ("options", "call", "error"),
    [
        ((8, 2, None, None, True), {"memory": torch.randn(3, 5, 8)}, "a memory has no future"),
        ((10, 3), {}, "3 heads cannot share 10 numbers"),
        ((8, 2, None, 0), {}, "2 heads cannot share 0 numbers"),
        ((8, 2, None, -1), {}, "2 heads cannot share -2 numbers"),
        ((8, 2), {"is_real": torch.ones(3, 1, 1, 5) > 0}, "have the shape .3, 5."),
        ((8, 2), {"is_real": torch.ones(5) > 0}, "have the shape .3, 5."),
        ((8, 2), {"is_real": torch.ones(3, 5)}, "must be boolean"),
    ],
)
def test_what_would_run_silently_raises(options, call, error):
    with pytest.raises(ValueError, match=error):
        PAGE.Attention(*options)(torch.randn(3, 5, 8), **call)


def test_the_width_of_a_head_and_the_options_of_its_layers_are_free():
    attention = PAGE.Attention(10, 3, 12, 5, bias=False, device="meta", dtype=torch.float16)
    shapes = {name: (*value.shape, value.device.type, value.dtype) for name, value in attention.named_parameters()}
    expected = {"to_queries": (15, 10), "to_keys": (15, 12), "to_values": (15, 12), "to_output": (10, 15)}
    assert shapes == {f"{name}.weight": (*shape, "meta", torch.float16) for name, shape in expected.items()}


@pytest.mark.parametrize("need_weights", [False, True])
def test_it_runs_on_a_device_that_is_not_the_default(need_weights):
    attention, cache = PAGE.Attention(8, 2, causal=True, device="meta"), PAGE.Cache(5)
    inputs, is_real = torch.ones(3, 5, 8, device="meta"), torch.ones(3, 5, device="meta") > 0
    assert attention(inputs, None, is_real, cache, need_weights)[0].shape == inputs.shape


def test_the_mask_takes_one_byte_per_pair_and_item():
    roles, is_real = torch.zeros(2, 3, 2, 5, 4), torch.ones(3, 5, dtype=torch.bool)
    assert PAGE.visible_keys(*roles, True, is_real).nbytes == 3 * 5 * 5


def test_the_bias_of_the_keys_gets_a_gradient_of_0():
    attention = PAGE.Attention(8, 2).double()
    attention(torch.randn(3, 5, 8, dtype=torch.float64))[0].square().sum().backward()
    gradients = {name: value.grad.abs().max() for name, value in attention.named_parameters()}
    assert gradients.pop("to_keys.bias") < 1e-14
    assert min(gradients.values()) > 1e-4


# -- the kit ---------------------------------------------------------------------------------------


def broken(**methods):
    return type("Broken", (PAGE.Attention,), methods)


def failed(**methods):
    return [name for name, number in PAGE.examine(broken(**methods)).items() if not number < 1e-4]


def calling(change):
    """A `forward` that hands on other tokens."""
    return lambda self, inputs, *others, **named: PAGE.Attention.forward(self, change(inputs), *others, **named)


@pytest.mark.parametrize("options", [{}, {"head_dim": 4}, {"bias": False}])
def test_the_module_keeps_every_promise_with_options_that_no_probe_sets_too(options):
    numbers = PAGE.examine(functools.partial(PAGE.Attention, **options))
    assert list(numbers) == PROBES
    assert max(numbers.values()) < 1e-4


def refusing(error, option):
    """A module that raises where an option of its constructor, or of its call, is given."""

    class Refusing(PAGE.Attention):
        def __init__(self, width, num_heads, **options):
            if options.get(option):
                raise error
            super().__init__(width, num_heads, **options)

        def forward(self, inputs, *others, **named):
            if option in named:
                raise error
            return super().forward(inputs, *others, **named)

    return Refusing


def test_an_exception_is_infinite_and_harms_no_other_probe():
    numbers = PAGE.examine(refusing(KeyError("no"), "cache"))
    assert [probe for probe, number in numbers.items() if not number < 1e-4] == ["cache"]
    assert numbers["cache"] == torch.inf


def by_hand(score, lowest=None):
    """An `attend` with other scores; where `lowest` is given, a hidden score is that of its dtype."""

    def attend(queries, keys, values, causal, is_real, dropout, need_weights):
        visible, scores = PAGE.visible_keys(queries, keys, causal, is_real), score(queries, keys)
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min if lowest else -torch.inf).softmax(dim=-1)
        weights = weights if lowest else weights.masked_fill(~visible, 0)
        return F.dropout(weights, dropout) @ values, None

    return attend


@pytest.fixture
def attend(monkeypatch):
    """Puts another function in the place of `attend`."""
    return lambda other: monkeypatch.setitem(PAGE.examine.__globals__, "attend", other)


def scaled(queries, keys):
    return queries @ keys.mT / queries.shape[-1] ** 0.5


def unscaled(queries, keys):
    return queries @ keys.mT


def normed(queries, keys):
    return scaled(F.normalize(queries, dim=-1), F.normalize(keys, dim=-1))


def test_a_module_that_lacks_an_option_is_compared_with_torch_in_the_other_cases(attend):
    lacking = refusing(PAGE.LacksOption(), "memory_width")
    assert set(PROBES) - set(PAGE.examine(lacking)) == {"cross"}
    attend(by_hand(unscaled))
    assert PAGE.examine(lacking)["sdpa"] > 1e-2


def test_what_torch_lacks_fails_a_probe_and_is_not_left_out(attend):
    """It raises NotImplementedError where it has no kernel: `cdist` has none for half precision."""
    attend(by_hand(lambda queries, keys: -torch.cdist(queries, keys)))
    numbers = PAGE.examine(PAGE.Attention)
    assert numbers["dtype"] == torch.inf
    assert list(numbers) == PROBES


@pytest.mark.parametrize(
    ("forward", "error"),
    [
        (lambda self, *given: PAGE.Attention.forward(self, *given)[0], "return a tuple"),
        (lambda self, inputs: inputs.no_such_thing, "no_such_thing"),
    ],
)
def test_what_goes_wrong_in_a_plain_call_is_raised_at_once(forward, error):
    with pytest.raises((TypeError, AttributeError), match=error):
        PAGE.examine(broken(forward=forward))


@pytest.mark.parametrize(
    ("probe", "other"),
    [("empty", by_hand(scaled, lowest=True)), ("sdpa", by_hand(normed)), ("sdpa", by_hand(unscaled))],
)
def test_one_probe_alone_sees(probe, other, attend):
    attend(by_hand(scaled))
    assert failed() == []
    attend(other)
    assert failed() == [probe]


def test_dropout_by_default_fails_modes_alone():
    assert failed(__init__=functools.partialmethod(PAGE.Attention.__init__, dropout=0.1)) == ["modes"]


def test_a_module_of_one_size_fails_the_probes_with_another_width():
    class Fixed(PAGE.Attention):
        def split(self, projected):
            return projected.unflatten(-1, (2, 4)).transpose(1, 2)

    assert [name for name, number in PAGE.examine(Fixed).items() if not number < 1e-4] == ["batch", "order", "sdpa"]


def without_mask():
    """A block of GPT-2 in transformers, its eager attention called without a mask."""
    p.seed_modules(0)
    return GPT2Block(GPT2Config(n_embd=8, n_head=2, attn_implementation="eager"), layer_idx=0).eval()


def test_one_feature_shows_the_leak_of_a_gpt2_block_and_all_features_alike_do_not():
    """Its LayerNorm takes away what all features of a token have in common."""
    block, inputs = without_mask(), p.seeded({"seed": 0}).randn(1, 5, 8).float()
    with torch.no_grad():
        assert PAGE.moves(block, inputs)[0].min() > 1e-4
        moved = (block(inputs + torch.eye(5)[3, :, None]) - block(inputs)).abs().amax(dim=(0, 2))
    assert moved[3] > 0.9
    assert moved[[0, 1, 2, 4]].max() < 1e-6


def test_positions_added_inside_fail_order():
    assert PAGE.order(broken(forward=calling(lambda inputs: inputs + torch.arange(inputs.shape[1])[:, None]))) > 1e-4


def test_the_kit_calls_the_module_70_times():
    calls = []

    def forward(self, *given, **named):
        calls.append(given)
        return PAGE.Attention.forward(self, *given, **named)

    PAGE.examine(broken(forward=forward))
    assert len(calls) == 70


# -- what each probe notices -----------------------------------------------------------------------


@pytest.mark.parametrize("room", [cell.name for cell in p.read_cells(MUSEUM) if cell.name.startswith("room-")])
def test_the_probes_say_of_each_exhibit_what_the_museum_shows(room):
    """Name and verdicts to the letter, the number but for its rounding."""
    shown = next(cell.output for cell in p.read_cells(MUSEUM) if cell.name == room).splitlines()
    for found, wanted in zip(p.run_cell("practice/museum", room)[1].splitlines(), shown, strict=True):
        assert found[:16] + found[24:] == wanted[:16] + wanted[24:]
        assert float(found[16:23]) == pytest.approx(float(wanted[16:23]), rel=1e-2)


def test_a_probe_returns_a_number_and_writes_to_none_of_the_masks():
    masks = [mask.clone() for mask in (PAGE.left, PAGE.right, PAGE.real)]
    assert {type(probe(PAGE.Attention)) for probe in PAGE.probes} <= {int, float, bool}

    def forward(self, inputs, memory=None, is_real=None, cache=None):
        if is_real is not None:
            is_real.logical_not_()
        return PAGE.Attention.forward(self, inputs, memory, None, cache)

    PAGE.examine(broken(forward=forward))
    assert all(map(torch.equal, masks, (PAGE.left, PAGE.right, PAGE.real)))


def stub(forward):
    """What builds a module without parameters whose outputs are `forward(module, inputs, memory, is_real)`."""

    class Stub(nn.Module):
        def __init__(self, **options):
            super().__init__()

        def forward(self, inputs, memory=None, is_real=None, cache=None):
            return (forward(self, inputs, memory, is_real),)

    return Stub


def test_one_row_that_reads_its_next_token_is_a_leak():
    def reading(module, inputs, memory, is_real):
        return inputs + F.pad(inputs[:, 3:4], (0, 0, 2, 2))

    assert PAGE.causality(stub(reading)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_that_is_read_in_one_of_three_calls_alone_is_noticed(causal, side):
    """A share of a millionth is enough, since the pads are large; a right side without a triangle is not tried."""

    class Reading(PAGE.Attention):
        def forward(self, inputs, memory=None, is_real=None, cache=None):
            outputs, weights = super().forward(inputs, memory, is_real, cache)
            if is_real is not None and self.causal == causal and torch.equal(is_real, getattr(PAGE, side)):
                outputs = outputs + 1e-6 * inputs[~is_real].abs().sum()
            return outputs, weights

    assert (PAGE.padding(Reading) > 1e-4) == (causal or side == "left")


def test_state_adds_up_what_is_saved_what_is_written_and_what_a_call_changes():
    class Faulty(PAGE.Attention):
        def __init__(self, width, num_heads, causal=False):
            super().__init__(width, num_heads, causal=causal)
            self.calls = 0
            if causal:
                self.register_buffer("masked", torch.ones(5, 5))

        def forward(self, inputs, memory=None, is_real=None, cache=None):
            outputs, weights = super().forward(inputs)
            self.calls += len(inputs) == 1
            if is_real is not None:
                is_real.logical_not_()
                inputs += 2
            return outputs + 4 * self.calls, weights

    assert PAGE.state(Faulty) == pytest.approx(1 + 1 + 2 + 4, abs=1e-4)


def test_a_gradient_of_a_row_with_keys_is_looked_at_too():
    def forward(self, inputs, is_real=None):
        outputs, weights = PAGE.Attention.forward(self, inputs, is_real=is_real)
        if outputs.requires_grad and is_real is not None:
            outputs.register_hook(lambda slope: slope * torch.nan if slope[PAGE.left].any() else slope)
        return outputs, weights

    assert PAGE.empty(broken(forward=forward)) > 0


def test_another_dtype_than_that_of_the_module_is_counted_for_each_of_three():
    class Single(PAGE.Attention):
        def forward(self, inputs):
            outputs, weights = super().forward(inputs)
            return outputs.double(), weights

    assert PAGE.dtype(Single) == 3


def test_a_fault_of_the_causal_mask_alone_in_half_precision_is_noticed():
    class Mixed(PAGE.Attention):
        def forward(self, inputs):
            outputs, weights = super().forward(inputs)
            return (outputs + 1 if self.causal and inputs.dtype == torch.float16 else outputs), weights

    assert PAGE.dtype(Mixed) == 1


def test_a_module_with_layers_of_other_names_is_not_compared_with_torch():
    with pytest.raises(PAGE.LacksOption, match="its layers have other names"):
        PAGE.sdpa(stub(lambda module, inputs, memory, is_real: inputs))


# -- where a probe draws its line ------------------------------------------------------------------


def test_the_gap_is_the_largest_difference_of_either_sign():
    assert PAGE.gap(torch.tensor([0.0, 5.0]), torch.tensor([7.0, 3.0])) == 7


def test_moves_says_by_how_much_each_row_moves_at_most():
    steps = torch.tensor([[1.0, 0, 0], [-2, 1, 0], [0, 0, 3]])

    def attend(tokens):
        return torch.einsum("ij,bjd->bid", steps, tokens)[..., :1] * torch.tensor([1.0, -2])

    assert torch.equal(PAGE.moves(attend, torch.randn(2, 3, 4).round()), 2 * steps.abs().expand(2, 3, 3))


def test_a_module_and_its_tokens_are_the_same_in_every_setup():
    (first, *inputs), (other, *again) = PAGE.setup(PAGE.Attention), PAGE.setup(PAGE.Attention)
    assert all(map(torch.equal, [*first.parameters(), *inputs], [*other.parameters(), *again]))


@pytest.mark.parametrize("leak", [0.5e-6, 1.5e-6])
def test_a_padded_key_may_move_a_query_by_a_millionth(leak):
    def leaking(module, inputs, memory, is_real):
        return (memory.double()[..., :1] * is_real.where(is_real, leak)[..., None]).sum(dim=1, keepdim=True)

    assert PAGE.cross(stub(leaking)) == (leak > 1e-6) * (~PAGE.real).sum()


@pytest.mark.parametrize("slope", [0.5e-6, 1e-6, 1.5e-6])
def test_a_later_token_may_have_a_slope_of_a_millionth(slope):
    def leaking(module, inputs, memory, is_real):
        return torch.ones(5, 5).tril().clamp(min=slope) @ inputs

    assert PAGE.gradient(stub(leaking)) == (slope > 1e-6) * 10


def test_the_gradient_counts_idle_parameters_and_pairs_whatever_the_sign_of_slopes():
    assert PAGE.gradient(broken(forward=lambda self, inputs: (-inputs.cumsum(dim=1), None))) == 8


@pytest.mark.parametrize(
    ("kept", "dropped", "mean", "wrong"),
    [(1e-4, 1.5e-4, 0.02, 0), (1.5e-4, 1.5e-4, 0.02, 1), (0, 1e-4, 0, 0), (0, 0.9e-4, 0, 1), (0, 1, 0.03, 1)],
)
def test_equal_tokens_differ_in_training_alone_and_have_the_same_mean(kept, dropped, mean, wrong):
    """In evaluation they differ by at most 1e-4, in training by at least as much, and the means by at most 0.02."""

    def differing(module, inputs, memory, is_real):
        sign = torch.zeros(len(inputs), 1, 1, dtype=torch.float64)
        if len(inputs) < 4096:
            return sign
        if not module.training:
            sign[1] = kept
            return sign
        sign[1], sign[2] = dropped, -dropped
        return sign + mean

    assert PAGE.modes(stub(differing)) == wrong


@pytest.mark.parametrize(
    ("kind", "limit"), [(torch.float32, 20 * 16**3 / 2**23), (torch.bfloat16, 20 / 2**7), (torch.float16, 20 / 2**10)]
)
def test_a_dtype_may_be_off_by_20_units_of_rounding_and_larger_inputs_by_their_cube(kind, limit):
    def off(share):
        def forward(module, inputs, memory, is_real):
            return torch.zeros_like(inputs) + (share * limit if inputs.dtype == kind else 0)

        return PAGE.dtype(stub(forward))

    assert (off(0.99), off(1)) == (0, 1)


# -- the exercise ----------------------------------------------------------------------------------


def rows(build, causal=True, of=lambda found: found.abs().max(), alone=False, equal=True):
    """The solution, with each of its steps open to a mistake."""
    module, inputs, _ = PAGE.setup(build, causal=causal)
    tokens = inputs[:, :1].expand_as(inputs) if equal else inputs
    expected = module(inputs[:, :1])[0] if alone else module.to_output(module.to_values(tokens))
    return of((module(tokens)[0] - expected).detach()).item()


def summed(build):
    module, inputs, _ = PAGE.setup(build, causal=True)
    return (module(inputs, need_weights=True)[1].sum(dim=-1) - 1).abs().detach().max().item()


def with_ones(build):
    """Values that are all 1, through layers made for it."""
    module, inputs, _ = PAGE.setup(build, causal=True)
    nn.init.zeros_(module.to_values.weight)
    nn.init.ones_(module.to_values.bias)
    expected = module.to_output(torch.ones(8))
    return (module(inputs)[0] - expected).detach().norm().item()


RIGHT = {
    "equal tokens": rows,
    "the sum of all differences": lambda build: rows(build, of=lambda found: found.abs().sum()),
    "the weights, which it returns": summed,
    "values of 1": with_ones,
}
WRONG = {
    "returns None": lambda build: None,
    "an integer": lambda build: 0,
    "a truth": lambda build: rows(build) < 1e-4,
    "a text": lambda build: str(rows(build)),
    "a tensor": lambda build: torch.tensor(rows(build)),
    "a tuple": lambda build: (rows(build),),
    "always 0": lambda build: 0.0,
    "always 1": lambda build: 1.0,
    "always nan": lambda build: float("nan"),
    "always infinite": lambda build: float("inf"),
    "negative": lambda build: -rows(build),
    "raises": lambda build: build.no_such_thing,
    "calls the class": lambda build: build().no_such_thing,
    "no causal mask": lambda build: rows(build, causal=False),
    "different tokens": lambda build: rows(build, equal=False),
    "against one token alone": lambda build: rows(build, alone=True),
    "row 0 only": lambda build: rows(build, of=lambda found: found[:, 0].abs().max()),
    "last row only": lambda build: rows(build, of=lambda found: found[:, -1].abs().max()),
    "the middle row only": lambda build: rows(build, of=lambda found: found[:, 2].abs().max()),
    "the even rows": lambda build: rows(build, of=lambda found: found[:, ::2].abs().max()),
    "the odd rows": lambda build: rows(build, of=lambda found: found[:, 1::2].abs().max()),
    "all rows but one in the middle": lambda build: rows(build, of=lambda found: found[:, [0, 1, 2, 4]].abs().max()),
    "all rows but the first": lambda build: rows(build, of=lambda found: found[:, 1:].abs().max()),
    "the smallest difference": lambda build: rows(build, of=lambda found: found.abs().min()),
    "the most negative difference": lambda build: rows(build, of=lambda found: found.min()),
    "one row against the next": lambda build: rows(build, of=lambda found: found.diff(dim=1).abs().max()),
    "causality": lambda build: float(PAGE.causality(build)),
    "equality with torch": lambda build: float(PAGE.sdpa(build)),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_probe", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "keys and values have one shape, dtype and device, queries the same dtype and device": [
        "visible = keys.new_ones(Tq, Tk, dtype=torch.bool)"
    ],
    "keys and values have the same tokens": ["Tk = values.shape[2]"],
    "only the number of keys is read, and values are as many": [
        "visible = visible_keys(queries, values, causal, is_real)"
    ],
    "for kernels that return nan for an empty row; SDPA returns 0 on the CPU, as the other way does in the end": [
        "# visible = visible | empty"
    ],
    "any large factor will do": ["loud = inputs.where(is_real[..., None], 1001 * inputs)"],
    "only the first text of this call is read; `batch` asks whether the others change it": [
        "alone = module(inputs[item:, keep])[0]",
        "alone = module(inputs[item:item + 2, keep])[0]",
    ],
    "another width is what matters; two heads divide 18, too": ["module, inputs, _ = setup(build, width=18)"],
    "a limit: no float32 moves a row by exactly this much": ["return ((moved >= 1e-06) != real[:, None]).sum().item()"],
    "any rate will do whose drops are seen, and 4,096 copies level out": [
        "module, inputs, _ = setup(build, dropout=0.4)"
    ],
    "two equal tokens are attended as one": ["alone = inputs[:1, :1].repeat(4096, 2, 1)"],
    "equal tokens have equal rows": ["return total + (gap(dropped.mean(dim=0), kept[1]) > 0.02)"],
    "only whether a gradient is 0, and finite, is looked at": [
        "outputs[~left].mean().backward(retain_graph=True)",
        "outputs[left].mean().backward()",
    ],
    "a cache may have more room than it needs": ["held, rows = (Cache(max_tokens=inputs.shape[2]), [])"],
    "a row that reads a token reads all its features, in each text": [
        "reached.append(slope.abs().amin(dim=(0, 2)) > 1e-06)"
    ],
    "only whether a parameter has a gradient is looked at": ["outputs.mean().backward()"],
}
ACCEPTED = {
    "the answer is a probe: what is spoiled is the module that it tests": [
        "exponentials that overflow",
        "hidden by -20.0",
        "hidden by -10000.0",
    ],
}
