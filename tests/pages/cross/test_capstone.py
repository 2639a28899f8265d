"""One attention with all options against PyTorch and transformers; the probe kit; the museum, bug by bug."""

import functools
import itertools
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn
from transformers.models.llama.modeling_llama import eager_attention_forward

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "cross/capstone"
PAGE, SOLUTION = p.page_code(SLUG, "kit"), p.page_code(SLUG, "solution")
PROBES = ["causality", "padding", "empty", "batch", "order", "cross"]
PROBES += ["state", "modes", "dtype", "cache", "gradient", "sdpa"]

# -- the class, in all its options -----------------------------------------------------------------


def build(code, case):
    p.seed_modules(case.seed)
    options = {"causal": case.causal, "bias": case.bias, "head_dim": case.head_dim}
    attention = code.Attention(case.E, case.H, memory_width=case.E + 2 if case.cross else None, **options)
    for parameter in attention.parameters():  # larger than torch's, or the weights are nearly equal
        nn.init.normal_(parameter)
    return attention.double().eval()


def drawn(code, **fixed):
    """Modules with every combination of options, inputs, and which keys are real; a row may have none."""

    def fill(case, causal, cross, bias, wide):
        options = {"causal": causal and not cross, "cross": cross, "bias": bias, "wide": wide} | fixed
        case = SimpleNamespace(**vars(case) | options)
        case.E, case.head_dim = case.H * case.D, case.D + 1 if case.wide else None
        case.inputs = case.randn(case.B, case.T, case.E)
        case.memory = case.randn(case.B, case.Tk, case.E + 2) if case.cross else None
        case.source = case.memory if case.cross else case.inputs
        case.is_real = case.randn(*case.source.shape[:2]) > -0.4
        case.attention = build(code, case)
        return case

    flags = [st.booleans() for _ in range(4)]
    return st.builds(fill, p.sizes(B=3, H=3, T=4, Tk=5, D=3), *flags)


def roles_of(case):
    """Queries, keys and values from the layers alone, and what each query may see, by two loops."""
    attention, width = case.attention, case.head_dim or case.D
    sides = (attention.to_queries, case.inputs), (attention.to_keys, case.source), (attention.to_values, case.source)
    roles = [torch.stack(layer(tokens).split(width, dim=-1), dim=1) for layer, tokens in sides]
    sees = torch.zeros(case.B, 1, case.T, case.source.shape[1], dtype=torch.bool)
    for item, i, j in itertools.product(range(case.B), range(case.T), range(sees.shape[-1])):
        sees[item, 0, i, j] = case.is_real[item, j] and (not case.causal or j <= i)
    return roles, sees


def joined(case, context):
    return case.attention.to_output(torch.cat(context.unbind(1), dim=-1))


def ours(case):
    return case.attention(case.inputs, case.memory, case.is_real)[0]


def sdpa(case):
    """On the CPU an empty row of a boolean mask gives 0."""
    roles, sees = roles_of(case)
    return joined(case, F.scaled_dot_product_attention(*roles, attn_mask=sees))


def one_query_at_a_time(case):
    """A softmax over the keys that the query sees, and nothing else."""
    (queries, keys, values), sees = roles_of(case)
    context = torch.zeros(*queries.shape[:3], values.shape[-1], dtype=torch.float64)
    for item, head, i in itertools.product(*map(range, queries.shape[:3])):
        kept = sees[item, 0, i].nonzero()[:, 0]
        if len(kept):
            scores = keys[item, head, kept] @ queries[item, head, i] / queries.shape[-1] ** 0.5
            context[item, head, i] = scores.softmax(dim=0) @ values[item, head, kept]
    return joined(case, context)


def eager(case):
    """The eager attention of transformers; its rows without keys are nan, and here 0."""
    roles, sees = roles_of(case)
    bias = torch.zeros(sees.shape, dtype=torch.float64).masked_fill(~sees, -torch.inf)
    module = SimpleNamespace(num_key_value_groups=1, training=False)
    context, _ = eager_attention_forward(module, *roles, bias, scaling=roles[0].shape[-1] ** -0.5)
    return joined(case, context.transpose(1, 2).nan_to_num(0.0))


@pytest.mark.parametrize("reference", [sdpa, one_query_at_a_time])
def test_the_class_computes_what_an_independent_reference_computes(reference):
    p.equals_reference(ours, reference, drawn(PAGE))


def test_the_class_computes_what_the_eager_attention_of_transformers_computes():
    """Its softmax is in float32."""
    p.for_all(drawn(PAGE), lambda case: p.close(ours(case), eager(case), 1e-4))


def theirs(case):
    """`nn.MultiheadAttention` with the same parameters."""
    attention, E = case.attention, case.E
    other = nn.MultiheadAttention(E, case.H, batch_first=True, kdim=E + 2, vdim=E + 2, dtype=torch.float64)
    layers = attention.to_queries, attention.to_keys, attention.to_values
    state = {f"{role}_proj_weight": layer.weight for role, layer in zip("qkv", layers)}
    state |= {"in_proj_bias": torch.cat([layer.bias for layer in layers])}
    state |= {f"out_proj.{name}": value for name, value in attention.to_output.state_dict().items()}
    other.load_state_dict(state)
    is_real = case.is_real.clone()
    is_real[:, 0] = True
    case.is_real = is_real
    return other(case.inputs, case.memory, case.memory, key_padding_mask=~is_real, average_attn_weights=False)


def test_outputs_and_weights_are_those_of_multihead_attention():
    def prove(case):
        outputs, weights = theirs(case)
        result = case.attention(case.inputs, case.memory, case.is_real)
        p.close(result[0], outputs)
        p.close(result[2], weights)

    p.for_all(drawn(PAGE, causal=False, cross=True, bias=True, wide=False), prove)


def test_without_is_real_every_token_is_real():
    def prove(case):
        everything = torch.ones_like(case.is_real)
        p.close(case.attention(case.inputs, case.memory)[0], case.attention(case.inputs, case.memory, everything)[0])

    p.for_all(drawn(PAGE), prove)


def test_with_a_cache_the_newest_rows_are_those_of_the_whole():
    """In two chunks, with padding anywhere: `is_real` covers the cache."""

    def prove(case):
        first = case.seed % case.T
        _, cache, _ = case.attention(case.inputs[:, :first], is_real=case.is_real[:, :first])
        newest, cache, _ = case.attention(case.inputs[:, first:], is_real=case.is_real, cache=cache)
        p.close(newest, ours(case)[:, first:])
        for held, role in zip(cache, roles_of(case)[0][1:]):
            p.close(held, role)

    p.for_all(drawn(PAGE, causal=True, cross=False), prove)


def test_a_memory_is_projected_once_and_then_nothing_is_appended():
    def prove(case):
        _, cache, _ = case.attention(case.inputs[:, :1], case.memory, case.is_real)
        p.close(case.attention(case.inputs, case.memory[:, :0], case.is_real, cache)[0], ours(case))

    p.for_all(drawn(PAGE, causal=False, cross=True), prove)


def test_the_gradients_are_those_of_an_independent_reference_even_with_empty_rows():
    def leaves(case):
        return [case.inputs, *case.attention.parameters()] + ([case.memory] if case.cross else [])

    p.gradients_equal(ours, one_query_at_a_time, leaves, drawn(PAGE))


def test_gradients_are_those_of_finite_differences_even_with_empty_rows():
    attention = PAGE.Attention(4, 2, causal=True).double()
    inputs = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    is_real = torch.tensor([[False, True, True], [True, True, False]])
    assert torch.autograd.gradcheck(lambda tokens: attention(tokens, is_real=is_real)[0], [inputs])


def test_dropout_keeps_about_half_and_doubles_it_in_training_only():
    attention = PAGE.Attention(8, 2, dropout=0.5)
    inputs = torch.randn(50, 40, 8)
    torch.manual_seed(0)
    weights = attention(inputs)[2]
    p.close(weights.sum(dim=-1), torch.ones(50, 2, 40), 1e-5)  # they are returned before dropout
    torch.manual_seed(0)
    dropped = F.dropout(weights, 0.5)
    values = attention.split(attention.to_values(inputs))
    expected = attention.to_output((dropped @ values).transpose(1, 2).flatten(2))
    torch.manual_seed(0)
    p.close(attention(inputs)[0], expected, 1e-5)
    attention.eval()
    assert torch.equal(attention(inputs)[0], attention(inputs)[0])


def test_a_causal_attention_refuses_a_memory():
    with pytest.raises(ValueError, match="a memory has no future"):
        PAGE.Attention(8, 2, causal=True)(torch.randn(3, 5, 8), torch.randn(3, 5, 8))


def test_the_bias_is_an_option_and_so_is_the_width_of_a_head():
    shapes = {name: tuple(value.shape) for name, value in PAGE.Attention(8, 2, 12, 3, bias=False).named_parameters()}
    expected = {"to_queries": (6, 8), "to_keys": (6, 12), "to_values": (6, 12), "to_output": (8, 6)}
    assert shapes == {f"{name}.weight": shape for name, shape in expected.items()}
    assert sorted(PAGE.Attention(8, 2).state_dict()) == sorted(
        f"{name}.{kind}" for name in expected for kind in ("weight", "bias")
    )


# -- the kit ---------------------------------------------------------------------------------------


def test_the_module_keeps_every_promise():
    numbers = PAGE.examine(PAGE.Attention)
    assert list(numbers) == PROBES
    assert max(numbers.values()) < 1e-4


@pytest.mark.parametrize("options", [{"head_dim": 4}, {"bias": False}])
def test_an_option_that_no_probe_sets_breaks_no_promise(options):
    assert max(PAGE.examine(functools.partial(PAGE.Attention, **options)).values()) < 1e-4


def broken(**methods):
    return type("Broken", (PAGE.Attention,), methods)


def failed(**methods):
    return [name for name, number in PAGE.examine(broken(**methods)).items() if not number < 1e-4]


def refusing(error, when):
    """A module that raises where `when(options)` of its constructor, or of its call, is true."""

    class Refusing(PAGE.Attention):
        def __init__(self, width, num_heads, **options):
            if when(options):
                raise error
            super().__init__(width, num_heads, **options)

        def forward(self, inputs, *others, **named):
            if when(named):
                raise error
            return super().forward(inputs, *others, **named)

    return Refusing


def test_an_exception_is_infinite():
    numbers = PAGE.examine(refusing(KeyError("no"), lambda options: "cache" in options))
    assert {probe for probe, number in numbers.items() if number == torch.inf} == {"cache"}
    assert max(number for probe, number in numbers.items() if probe != "cache") < 1e-4


def test_a_module_without_memory_is_compared_with_torch_all_the_same():
    numbers = PAGE.examine(refusing(PAGE.LacksOption(), lambda options: options.get("memory_width")))
    assert set(PROBES) - set(numbers) == {"cross"}
    wrong_scale = type("Wrong", (refusing(PAGE.LacksOption(), lambda options: options.get("memory_width")),), {})
    wrong_scale.score = staticmethod(lambda queries, keys: queries @ keys.mT)
    assert PAGE.examine(wrong_scale)["sdpa"] > 1e-2


def test_what_torch_lacks_fails_a_probe_and_is_not_left_out():
    """torch raises NotImplementedError where it has no kernel, as here: `cdist` has none for half precision."""
    numbers = PAGE.examine(broken(score=staticmethod(lambda queries, keys: -torch.cdist(queries, keys))))
    with pytest.raises(NotImplementedError, match=r"cdist.* not implemented for 'Half'"):
        torch.cdist(torch.ones(2, 2, dtype=torch.float16), torch.ones(2, 2, dtype=torch.float16))
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


def with_norm(mask):
    """A module that normalizes its inputs first, with its mask or without."""

    def forward(self, inputs, memory=None, *others, **named):
        memory = None if memory is None else F.layer_norm(memory, memory.shape[-1:])
        return PAGE.Attention.forward(self, F.layer_norm(inputs, inputs.shape[-1:]), memory, *others, **named)

    return failed(forward=forward, **({} if mask else {"triangle": lambda self, mask: mask}))


def test_a_nudge_is_seen_through_a_layer_norm():
    assert with_norm(mask=True) == ["sdpa"]
    assert {"causality", "gradient"} <= set(with_norm(mask=False))


def test_four_failures_need_not_be_bugs():
    def reading_the_mean(scores, mask):
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)

    def normed(queries, keys):
        return PAGE.Attention.score(F.normalize(queries, dim=-1), F.normalize(keys, dim=-1))

    assert failed(__init__=functools.partialmethod(PAGE.Attention.__init__, dropout=0.1)) == ["modes"]
    assert failed(score=staticmethod(normed)) == ["sdpa"]
    assert failed(weigh=staticmethod(reading_the_mean)) == ["empty"]
    assert "order" in failed(visible=lambda self, *given: PAGE.Attention.visible(self, *given).tril())


def test_the_other_eleven_let_a_wrong_scale_pass():
    assert failed(score=staticmethod(lambda queries, keys: queries @ keys.mT)) == ["sdpa"]


def test_layers_of_other_names_leave_only_sdpa_out():
    numbers = PAGE.examine(PAGE.Attention)
    code = p.page_code(SLUG, "yours")
    assert set(numbers) - set(code.examine(code.Theirs)) == {"sdpa"}


def spoiling(self, inputs, *others, **named):
    """Writes into the tokens that it was given, after it has read them."""
    found = PAGE.Attention.forward(self, inputs.clone(), *others, **named)
    inputs.detach().mul_(2)
    return found


EXTRA = {  # bugs that are in no room, to see that the probes are sharper than the museum asks for
    "one token of the future": ({"triangle": lambda self, m: m.tril(m.shape[1] - m.shape[0] + 1)}, "causality"),
    "the next item leaks in": (
        {"forward": lambda self, x, *a, **k: PAGE.Attention.forward(self, x + x.roll(1, 0), *a, **k)},
        "batch",
    ),
    "a position is added": (
        {
            "forward": lambda self, x, *a, **k: PAGE.Attention.forward(
                self, x + torch.arange(x.shape[1])[:, None], *a, **k
            )
        },
        "order",
    ),
    "pads at the end are attended": (
        {"visible": lambda self, s, r: PAGE.Attention.visible(self, s, None if r is None else r | r.flip(1))},
        "padding",
    ),
    "no gradient to the keys": ({"score": staticmethod(lambda q, k: PAGE.Attention.score(q, k.detach()))}, "gradient"),
    "float32 inside": (
        {"weigh": staticmethod(lambda s, m: PAGE.Attention.weigh(s.float(), m))},
        "dtype",
    ),
    "rounded to bfloat16 inside": (
        {"weigh": staticmethod(lambda s, m: PAGE.Attention.weigh(s.bfloat16().to(s.dtype), m))},
        "sdpa",
    ),
    "scores beyond float16": ({"weigh": staticmethod(lambda s, m: PAGE.Attention.weigh(s * 1e5 / 1e5, m))}, "dtype"),
    "the first memory token is lost": (
        {
            "visible": lambda self, s, r: (
                PAGE.Attention.visible(self, s, r) & (torch.arange(s.shape[3]) > (s.shape[3] == 7) - 1)
            )
        },
        "cross",
    ),
    "nan to 0 in the outputs only": (
        {
            "weigh": staticmethod(
                lambda s, m: (s + torch.zeros_like(s).masked_fill(~m, -torch.inf)).softmax(-1).nan_to_num()
            )
        },
        "empty",
    ),
    "outputs in single precision": (
        {"forward": lambda self, *a, **k: (PAGE.Attention.forward(self, *a, **k)[0].float(), None)},
        "dtype",
    ),
    "adrift in half precision": (
        {"weigh": staticmethod(lambda s, m: PAGE.Attention.weigh(s, m) * (2 if s.element_size() == 2 else 1))},
        "dtype",
    ),
    "a mask too large for half precision": (
        {"weigh": staticmethod(lambda s, m: PAGE.Attention.weigh(s if m.all() else s.masked_fill(~m, -1e9), m))},
        "dtype",
    ),
    "causal where nobody asked": (
        {
            "visible": lambda self, s, r: (
                PAGE.Attention.visible(self, s, r) & torch.ones(s.shape[2:]).tril(s.shape[3] - s.shape[2]).bool()
                if s.shape[3] != 7
                else PAGE.Attention.visible(self, s, r)
            )
        },
        "sdpa",
    ),
    "writes into the tokens": ({"forward": spoiling}, "state"),
    "drops and does not multiply": (
        {"mix": lambda self, w, v: PAGE.Attention.mix(self, w, v) * (1 - self.dropout * self.training)},
        "modes",
    ),
    "divides what is left by its sum": (
        {"mix": lambda self, w, v: F.normalize(F.dropout(w, self.dropout, self.training), p=1, dim=-1, eps=1e-6) @ v},
        "modes",
    ),
    "exponentials of what is hidden": (
        {"weigh": staticmethod(lambda s, m: F.normalize(s.exp() * m, p=1, dim=-1))},
        "padding",
    ),
    "never drops": (
        {"forward": lambda self, *a, **k: PAGE.Attention.forward(self.eval(), *a, **k)},
        "modes",
    ),
}


@pytest.mark.parametrize("bug", EXTRA)
def test_a_probe_catches_a_bug_that_is_in_no_room(bug):
    methods, probe = EXTRA[bug]
    assert probe in failed(**methods)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_returns_a_number_and_no_tensor(probe):
    assert type(getattr(PAGE, probe)(PAGE.Attention)) in (float, int)


def test_the_gap_is_the_largest_difference_of_either_sign():
    assert PAGE.gap(torch.tensor([0.0, 5.0]), torch.tensor([7.0, 3.0])) == 7


def test_moves_says_by_how_much_each_row_moves_at_most():
    steps = torch.tensor([[1.0, 0, 0], [-2, 1, 0], [0, 0, 3]])

    def attend(tokens):
        return torch.einsum("ij,bjd->bid", steps, tokens)[..., :1] * torch.tensor([1.0, -2])

    assert torch.equal(PAGE.moves(attend, torch.randn(2, 3, 4).round()), 2 * steps.abs().expand(2, 3, 3))


def test_a_module_and_its_tokens_are_the_same_in_every_setup():
    torch.manual_seed(5)
    first, inputs, memory = PAGE.setup(PAGE.Attention)
    torch.manual_seed(6)
    other, *again = PAGE.setup(PAGE.Attention)
    assert torch.equal(first.to_keys.weight, other.to_keys.weight)
    assert torch.equal(inputs, again[0])
    assert torch.equal(memory, again[1])


def test_the_gradient_counts_idle_parameters_and_wrong_pairs_whatever_the_sign_of_the_slope():
    summed = broken(forward=lambda self, inputs: (-inputs.cumsum(dim=1), None))
    assert PAGE.gradient(summed) == len(list(PAGE.Attention(8, 2).parameters())) == 8


def test_a_module_that_ignores_a_feature_breaks_no_promise():
    keep = (torch.arange(PAGE.E) > 0).float()
    blind = {"forward": lambda self, inputs, *a, **k: PAGE.Attention.forward(self, inputs * keep, *a, **k)}
    assert PAGE.gradient(broken(**blind)) == 0


def test_an_exhibit_shows_the_first_number_that_is_finite(capsys):
    def forward(self, inputs, memory=None, is_real=None, cache=None):
        if is_real is not None:
            raise ValueError
        return PAGE.Attention.forward(self, inputs, memory, is_real, cache)

    def dropping(self, scores, mask):
        return F.dropout(PAGE.Attention.weigh(scores, mask), self.dropout)

    p.page_code(SLUG, "room-weights").exhibit("two bugs", forward=forward, weigh=dropping)
    assert capsys.readouterr().out == "two bugs              2 padding empty cross state modes sdpa\n"


def test_a_probe_passes_below_a_ten_thousandth(capsys, monkeypatch):
    exhibit = p.page_code(SLUG, "room-weights").exhibit
    monkeypatch.setitem(exhibit.__globals__, "examine", lambda build: {"over": 1.5e-4, "at": 1e-4, "below": 9e-5})
    exhibit("edges")
    assert capsys.readouterr().out.split() == ["edges", "0.00015", "over", "at"]


def stub(forward):
    """What builds a module without parameters whose outputs are `forward(module, inputs, memory, is_real)`."""

    class Stub(nn.Module):
        def __init__(self, **options):
            super().__init__()

        def forward(self, inputs, memory=None, is_real=None, cache=None):
            return (forward(self, inputs, memory, is_real),)

    return Stub


@pytest.mark.parametrize("leak", [0.5e-6, 1.5e-6])
def test_a_padded_key_may_move_a_query_by_a_millionth(leak):
    def leaking(module, inputs, memory, is_real):
        return (memory.double()[..., :1] * is_real.where(is_real, leak)[..., None]).sum(dim=1, keepdim=True)

    assert PAGE.cross(stub(leaking)) == (leak > 1e-6) * (~PAGE.real).sum()


@pytest.mark.parametrize("slope", [0.5e-6, 1e-6, 1.5e-6])
def test_a_later_token_may_have_a_slope_of_a_millionth(slope):
    def leaking(module, inputs, memory, is_real):
        return torch.ones(PAGE.T, PAGE.T).tril().clamp(min=slope) @ inputs

    assert PAGE.gradient(stub(leaking)) == (slope > 1e-6) * (PAGE.T * (PAGE.T - 1) // 2)


@pytest.mark.parametrize(
    ("kept", "dropped", "mean", "wrong"),
    [
        (1e-4, 1.5e-4, 0.02, 0),
        (1.5e-4, 1.5e-4, 0.02, 1),
        (0, 1e-4, 0, 0),
        (0, 0.9e-4, 0, 1),
        (0, 1, 0.03, 1),
    ],
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
def test_a_dtype_may_be_off_by_20_units_of_its_rounding_and_inputs_16_times_as_large_by_their_cube(kind, limit):
    def off(share):
        def forward(module, inputs, memory, is_real):
            return torch.zeros_like(inputs) + (share * limit if inputs.dtype == kind else 0)

        return PAGE.dtype(stub(forward))

    assert off(0.99) == 0
    assert off(1) == 1


def test_a_gradient_that_overflows_in_the_rows_with_a_key_is_no_number():
    def overflowing(module, inputs, memory, is_real):
        nothing = inputs - inputs.detach()
        return 1e30 * (1e30 * nothing) * is_real[..., None]

    assert PAGE.empty(stub(overflowing)) > 0


def calls_of(probe):
    """How a probe builds its modules, and with what it calls them: (options, items, is_real)."""
    calls = []

    class Listening(PAGE.Attention):
        def __init__(self, width, num_heads, **options):
            super().__init__(width, num_heads, **options)
            self.options = options

        def forward(self, inputs, memory=None, is_real=None, cache=None):
            calls.append((self.options, len(inputs), is_real))
            return super().forward(inputs, memory, is_real, cache)

    probe(Listening)
    return calls


def test_padding_is_tried_on_both_sides_and_each_item_alone():
    calls = calls_of(PAGE.padding)
    whole = [(options["causal"], is_real) for options, items, is_real in calls if items == 3]
    expected = [(False, PAGE.left), (True, PAGE.left), (True, PAGE.right)]
    assert [causal for causal, _ in whole] == [causal for causal, _ in expected]
    assert all(map(torch.equal, (mask for _, mask in whole), (mask for _, mask in expected)))
    assert [items for _, items, _ in calls] == [3, 1, 1, 1] * 3


def test_the_pads_are_loud_and_the_sentence_is_not():
    inputs = PAGE.setup(PAGE.Attention)[1]
    heard = []

    def forward(self, tokens, *others, is_real=None):
        heard.append((tokens, is_real))
        return PAGE.Attention.forward(self, tokens, is_real=is_real)

    PAGE.padding(broken(forward=forward))
    for tokens, is_real in heard[::4]:
        assert torch.equal(tokens[is_real], inputs[is_real])
        assert torch.equal(tokens[~is_real], 1000 * inputs[~is_real])


@pytest.mark.parametrize("probe", PROBES)
def test_a_module_that_spoils_a_mask_spoils_no_other_call(probe):
    def visible(self, scores, is_real):
        found = PAGE.Attention.visible(self, scores, is_real)
        if is_real is not None:
            is_real.logical_not_()
        return found

    assert (getattr(PAGE, probe)(broken(visible=visible)) < 1e-4) == (probe != "state")


def test_state_is_tried_with_a_single_padded_sentence_between_two_calls():
    calls = calls_of(PAGE.state)
    assert [(options["causal"], items) for options, items, _ in calls] == [(True, 3), (True, 1), (True, 3)]
    assert torch.equal(calls[1][2], PAGE.right[:1])


def test_the_kit_calls_the_module_71_times():
    calls = []

    def forward(self, *given, **named):
        calls.append(given)
        return PAGE.Attention.forward(self, *given, **named)

    PAGE.examine(broken(forward=forward))
    assert len(calls) == 71


def test_the_bias_of_the_keys_gets_a_gradient_of_0():
    attention = PAGE.Attention(8, 2).double()
    attention(torch.randn(3, 5, 8, dtype=torch.float64))[0].square().sum().backward()
    gradients = {name: value.grad.abs().max() for name, value in attention.named_parameters()}
    assert gradients.pop("to_keys.bias") < 1e-14
    assert min(gradients.values()) > 1e-4


# -- the museum: for each exhibit, exactly these probes fail ----------------------------------------

ROOMS = {
    "room-weights": {
        "thrown away": "causality padding empty cross cache gradient sdpa",
        "query softmax": "causality padding empty cross cache gradient sdpa",
        "late mask": "causality padding cross cache gradient sdpa",
        "divided again": "padding empty dtype",
        "zero scores": "causality padding empty cross cache gradient sdpa",
        "mask added": "causality padding empty cross cache gradient sdpa",
        "0 read as hide": "dtype sdpa",
        "empty rows": "empty",
        "-1e9": "empty dtype",
    },
    "room-scores": {
        "no softmax": "sdpa",
        "naive softmax": "dtype",
        "scaled by width": "sdpa",
        "scaled twice": "sdpa",
        "values inside": "modes sdpa",
    },
    "room-dropout": {
        "dropped scores": "modes",
        "divided by p": "modes",
        "dropped in eval": "modes",
    },
    "room-triangle": {
        "upper triangle": "causality empty cache gradient sdpa",
        "past only": "gradient sdpa",
        "top left": "cache",
        "open cache": "cache",
        "open in eval": "causality empty modes cache gradient sdpa",
    },
    "room-masks": {
        "padding ignored": "padding empty cross sdpa",
        "no mask": "causality padding empty cross cache gradient sdpa",
        "inverted": "causality padding empty cross modes cache gradient sdpa",
        "always causal": "order cross cache sdpa",
        "finfo.min twice": "empty",
    },
    "room-shapes": {
        "cut by view": "causality padding order cross cache gradient sdpa",
        "decoder length": "cross sdpa",
        "batch second": "padding empty batch cross state cache gradient sdpa",
    },
    "room-roles": {
        "Q and K swapped": "cross sdpa",
        "K and V swapped": "sdpa",
        "keys twice": "gradient sdpa",
        "no bias": "gradient sdpa",
        "heads reversed": "sdpa",
    },
    "room-state": {
        "saved mask": "state",
        "mask in place": "padding empty cross state sdpa",
        "flipped in place": "state",
    },
}
MUSEUM = {bug: set(probes.split()) for room in ROOMS.values() for bug, probes in room.items()}


@pytest.mark.parametrize("room", ROOMS)
def test_of_each_exhibit_exactly_the_stated_probes_fail(room):
    lines = p.run_cell(SLUG, room)[1].splitlines()
    found = {line[:16].strip(): " ".join(sorted(line[24:].split(), key=PROBES.index)) for line in lines}
    ordered = {bug: " ".join(sorted(probes.split(), key=PROBES.index)) for bug, probes in ROOMS[room].items()}
    assert found == ordered


def test_every_probe_catches_an_exhibit():
    assert set().union(*MUSEUM.values()) == set(PROBES)


def test_sdpa_alone_lets_12_of_38_through_and_with_five_others_none():
    let_through = {bug for bug, probes in MUSEUM.items() if "sdpa" not in probes}
    assert len(MUSEUM) == 38
    named = {"divided again", "empty rows", "-1e9", "finfo.min twice", "naive softmax", *ROOMS["room-dropout"]}
    assert let_through == named | {"top left", "open cache", "saved mask", "flipped in place"}
    six = {"sdpa", "empty", "dtype", "modes", "cache", "state"}
    assert all(probes & six for probes in MUSEUM.values())
    assert all(any(probes <= {probe} for probes in MUSEUM.values()) for probe in six)


def test_the_two_bugs_of_the_first_question_fail_cache_alone():
    assert {bug for bug, probes in MUSEUM.items() if probes == {"cache"}} == {"top left", "open cache"}


@pytest.mark.parametrize("spoken", p.languages(SLUG))
def test_the_tables_of_the_page_name_the_exhibits_and_the_probes(spoken):
    text = (p.ROOT / "docs" / spoken / f"{SLUG}.md").read_text(encoding="utf-8")
    for room, bugs in ROOMS.items():
        behind = text.split(f'"{SLUG}.md:{room}"')[1].split("\n#")[0]
        assert re.findall(r"^\| ([A-Za-z0-9 .-]+?) \|", behind, re.MULTILINE)[-len(bugs) :] == list(bugs)
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == PROBES


def test_the_picture_shows_the_museum():
    picture = (p.ROOT / "docs/assets/capstone-museum.svg").read_text(encoding="utf-8")
    cells = re.findall(r'<rect class="accent" id="museum-(\d+)-(\d+)"', picture)
    bugs = list(MUSEUM)
    assert {(int(row), int(column)) for row, column in cells} == {
        (row, PROBES.index(probe)) for row, bug in enumerate(bugs) for probe in MUSEUM[bug]
    }
    words = re.findall(r">([^<>\n]+)</text>", picture)
    assert words == [*PROBES, *(str(number) for number in range(1, len(ROOMS) + 1))]


# -- other claims ----------------------------------------------------------------------------------


def test_with_neutral_options_it_is_the_cross_attention_of_the_page_before():
    before = p.page_code("cross/cross-attention", "class")
    cross = before.CrossAttention(8, 12, 2)
    attention = PAGE.Attention(8, 2, memory_width=12)
    attention.load_state_dict(cross.state_dict())
    outputs, weights = cross(before.inputs, before.memory, before.is_real)
    ours, _, mine = attention(before.inputs, before.memory, before.is_real)
    assert torch.equal(ours, outputs)
    assert torch.equal(mine, weights)


def test_with_identity_layers_it_is_a_weighted_average_with_a_scale():
    inputs = p.page_code("foundations/weighted-average", "contexts").inputs
    attention = PAGE.Attention(3, 1, bias=False)
    for layer in (attention.to_queries, attention.to_keys, attention.to_values, attention.to_output):
        nn.init.eye_(layer.weight)
    expected = (inputs @ inputs.T / 3**0.5).softmax(dim=-1) @ inputs
    p.close(attention(inputs[None], inputs[None])[0][0], expected, 1e-6)


def test_the_mask_takes_one_byte_per_pair_and_item():
    attention = PAGE.Attention(8, 2, causal=True)
    scores = torch.zeros(3, 2, 5, 5)
    mask = attention.visible(scores, torch.ones(3, 5, dtype=torch.bool))
    assert (mask.dtype, mask.numel(), mask.element_size()) == (torch.bool, 3 * 5 * 5, 1)


# -- the exercise ----------------------------------------------------------------------------------


def rows(build, causal=True, of=lambda found: found.abs().max(), alone=False, equal=True, **options):
    """The solution, with each of its steps open to a mistake."""
    module, inputs, _ = PAGE.setup(build, causal=causal)
    tokens = inputs[:, :1].expand(-1, PAGE.T, -1) if equal else inputs
    outputs = module(tokens, **options)[0]
    expected = module(inputs[:, :1])[0] if alone else module.to_output(module.to_values(tokens))
    return of((outputs - expected).detach()).item()


def summed(build):
    module, inputs, _ = PAGE.setup(build, causal=True)
    return (module(inputs)[2].sum(dim=-1) - 1).abs().detach().max().item()


def with_ones(build):
    """Values that are all 1, through layers made for it."""
    module, inputs, _ = PAGE.setup(build, causal=True)
    nn.init.zeros_(module.to_values.weight)
    nn.init.ones_(module.to_values.bias)
    expected = module.to_output(torch.ones(PAGE.E))
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
    "the smallest difference": lambda build: rows(build, of=lambda found: found.abs().min()),
    "the most negative difference": lambda build: rows(build, of=lambda found: found.min()),
    "one row against the next": lambda build: rows(build, of=lambda found: found.diff(dim=1).abs().max()),
    "causality": lambda build: float(PAGE.causality(build)),
    "equality with torch": lambda build: float(PAGE.sdpa(build)),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_probe", RIGHT, WRONG
