"""One attention with all options against plain loops, PyTorch and transformers; the probe kit; the museum."""

import functools
import itertools
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn
from transformers.models.gpt2.modeling_gpt2 import eager_attention_forward

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "practice/capstone"
PAGE, SOLUTION = p.page_code(SLUG, "exhibit"), p.page_code(SLUG, "solution")
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
        outputs, weights = theirs(case.inputs, case.memory, case.memory, **given)
        found, _, mine = attention(case.inputs, case.memory, case.is_real)
        p.close(found, outputs)
        p.close(mine, weights)

    p.for_all(drawn(causal=False, cross=True, bias=True, wide=False), prove)


def test_with_a_cache_the_newest_rows_are_those_of_the_whole_and_is_real_covers_the_cache():
    def prove(case):
        first = case.seed % case.T
        _, cache, _ = case.attention(case.inputs[:, :first], is_real=case.is_real[:, :first])
        newest, cache, _ = case.attention(case.inputs[:, first:], is_real=case.is_real, cache=cache)
        p.close(newest, ours(case)[:, first:])
        for held, role in zip(cache, roles_of(case)[0][1:]):
            p.close(held, role)

    p.for_all(drawn(causal=True, cross=False), prove)


def test_a_memory_is_projected_once_and_then_nothing_is_appended():
    def prove(case):
        _, cache, _ = case.attention(case.inputs[:, :1], case.memory, case.is_real)
        p.close(case.attention(case.inputs, case.memory[:, :0], case.is_real, cache)[0], ours(case))

    p.for_all(drawn(causal=False, cross=True), prove)


def test_dropout_thins_the_weights_in_training_only_after_they_are_returned():
    attention, inputs = PAGE.Attention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    torch.manual_seed(0)
    outputs, (_, values), weights = attention(inputs)
    p.close(weights.sum(dim=-1), torch.ones(2, 2, 5), 1e-5)
    torch.manual_seed(0)
    thinned = F.dropout(weights, 0.5) @ values
    p.close(outputs, attention.to_output(thinned.transpose(1, 2).flatten(2)), 1e-5)
    attention.eval()
    assert torch.equal(attention(inputs)[0], attention(inputs)[0])


def test_a_causal_attention_refuses_a_memory():
    with pytest.raises(ValueError, match="a memory has no future"):
        PAGE.Attention(8, 2, causal=True)(torch.randn(3, 5, 8), torch.randn(3, 5, 8))


def test_the_bias_is_an_option_and_so_is_the_width_of_a_head():
    shapes = {name: tuple(value.shape) for name, value in PAGE.Attention(8, 2, 12, 3, bias=False).named_parameters()}
    expected = {"to_queries": (6, 8), "to_keys": (6, 12), "to_values": (6, 12), "to_output": (8, 6)}
    assert shapes == {f"{name}.weight": shape for name, shape in expected.items()}
    assert len(PAGE.Attention(8, 2).state_dict()) == 8


def test_with_neutral_options_it_is_the_cross_attention_of_the_page_before_bit_for_bit():
    before = p.page_code("cross/cross-attention", "class")
    cross, attention = before.CrossAttention(24, 10, 4), PAGE.Attention(24, 4, memory_width=10)
    attention.load_state_dict(cross.state_dict())
    outputs, weights = cross(before.inputs, before.memory, before.is_real)
    found, _, mine = attention(before.inputs, before.memory, before.is_real)
    assert torch.equal(found, outputs)
    assert torch.equal(mine, weights)


def test_the_mask_takes_one_byte_per_pair_and_item():
    visible = PAGE.Attention(8, 2, causal=True).visible(torch.zeros(3, 2, 5, 5), torch.ones(3, 5, dtype=torch.bool))
    assert visible.nbytes == 3 * 5 * 5


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


def test_a_module_that_lacks_an_option_is_compared_with_torch_in_the_other_cases():
    lacking = refusing(PAGE.LacksOption(), "memory_width")
    assert set(PROBES) - set(PAGE.examine(lacking)) == {"cross"}
    lacking.score = staticmethod(lambda queries, keys: queries @ keys.mT)
    assert PAGE.examine(lacking)["sdpa"] > 1e-2


def test_what_torch_lacks_fails_a_probe_and_is_not_left_out():
    """It raises NotImplementedError where it has no kernel: `cdist` has none for half precision."""
    numbers = PAGE.examine(broken(score=staticmethod(lambda queries, keys: -torch.cdist(queries, keys))))
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


def normed(queries, keys):
    return PAGE.Attention.score(F.normalize(queries, dim=-1), F.normalize(keys, dim=-1))


def reading_the_mean(scores, visible):
    return scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1)


@pytest.mark.parametrize(
    ("probe", "methods"),
    [
        ("empty", {"weigh": staticmethod(reading_the_mean)}),
        ("modes", {"__init__": functools.partialmethod(PAGE.Attention.__init__, dropout=0.1)}),
        ("sdpa", {"score": staticmethod(normed)}),
        ("sdpa", {"score": staticmethod(lambda queries, keys: queries @ keys.mT)}),  # a wrong scale
    ],
)
def test_one_probe_alone_sees(probe, methods):
    assert failed(**methods) == [probe]


def test_positions_added_inside_fail_order():
    assert PAGE.order(broken(forward=calling(lambda inputs: inputs + torch.arange(inputs.shape[1])[:, None]))) > 1e-4


def test_the_kit_calls_the_module_71_times():
    calls = []

    def forward(self, *given, **named):
        calls.append(given)
        return PAGE.Attention.forward(self, *given, **named)

    PAGE.examine(broken(forward=forward))
    assert len(calls) == 71


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


def test_the_gradient_counts_idle_parameters_and_pairs_whatever_the_sign_of_the_slope():
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
def test_a_dtype_may_be_off_by_20_units_of_its_rounding_and_inputs_16_times_as_large_by_their_cube(kind, limit):
    def off(share):
        def forward(module, inputs, memory, is_real):
            return torch.zeros_like(inputs) + (share * limit if inputs.dtype == kind else 0)

        return PAGE.dtype(stub(forward))

    assert (off(0.99), off(1)) == (0, 1)


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ({"over": 1.5e-4, "at": 1e-4, "below": 9e-5}, ["0.00015", "over", "at"]),
        ({"raised": torch.inf, "counted": 2.0}, ["2", "raised", "counted"]),
        ({"raised": torch.inf}, ["inf", "raised"]),
    ],
)
def test_an_exhibit_shows_the_first_finite_number_and_each_failed_probe(numbers, shown, capsys, monkeypatch):
    monkeypatch.setitem(PAGE.exhibit.__globals__, "examine", lambda build: numbers)
    PAGE.exhibit("bug")
    assert capsys.readouterr().out.split() == ["bug", *shown]


# -- the museum ------------------------------------------------------------------------------------


@functools.cache
def museum():
    """By room, of each exhibit the probes that fail when it is shown."""
    cells = p.read_cells(p.ROOT / f"snippets/{SLUG}.md")
    rooms = {}
    for room in (cell.name for cell in cells if cell.name.startswith("room-")):
        lines = p.run_cell(SLUG, room)[1].splitlines()
        rooms[room] = {line[:16].strip(): line[24:].split() for line in lines}
    return rooms


def exhibits():
    return {bug: set(probes) for room in museum().values() for bug, probes in room.items()}


def test_the_picture_shows_which_probes_fail_for_each_exhibit():
    picture = (p.ROOT / "docs/assets/capstone-museum.svg").read_text(encoding="utf-8")
    filled = re.findall(r'<rect class="accent" id="museum-(\d+)-(\d+)"', picture)
    shown = [set() for _ in exhibits()]
    for row, column in filled:
        shown[int(row)].add(PROBES[int(column)])
    assert dict(zip(exhibits(), shown)) == exhibits()
    words = re.findall(r">([^<>\n]+)</text>", picture)
    assert words == [*PROBES, *(str(number) for number in range(1, len(museum()) + 1))]


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_tables_of_the_page_name_the_exhibits_and_the_probes(language):
    text = (p.ROOT / "docs" / language / f"{SLUG}.md").read_text(encoding="utf-8")
    for room, bugs in museum().items():
        behind = text.split(f'"{SLUG}.md:{room}"')[1].split("\n#")[0]
        assert re.findall(r"^\| ([A-Za-z0-9 .-]+?) \|", behind, re.MULTILINE)[-len(bugs) :] == list(bugs)
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == PROBES


def test_sdpa_alone_lets_12_of_38_through_and_with_five_others_none():
    assert len(exhibits()) == 38
    named = {"divided again", "empty rows", "-1e9", "finfo.min twice", "naive softmax", *museum()["room-dropout"]}
    named |= {"top left", "open cache", "saved mask", "flipped in place"}
    assert {bug for bug, probes in exhibits().items() if "sdpa" not in probes} == named
    assert len(named) == 12
    six = {"sdpa", "empty", "dtype", "modes", "cache", "state"}
    assert all(probes & six for probes in exhibits().values())
    assert all({probe} in exhibits().values() for probe in six)


def test_every_probe_catches_an_exhibit():
    assert set().union(*exhibits().values()) == set(PROBES)


def test_the_two_bugs_of_the_first_question_fail_cache_alone():
    assert {bug for bug, probes in exhibits().items() if probes == {"cache"}} == {"top left", "open cache"}


# -- the exercise ----------------------------------------------------------------------------------


def rows(build, causal=True, of=lambda found: found.abs().max(), alone=False, equal=True):
    """The solution, with each of its steps open to a mistake."""
    module, inputs, _ = PAGE.setup(build, causal=causal)
    tokens = inputs[:, :1].expand(-1, PAGE.T, -1) if equal else inputs
    expected = module(inputs[:, :1])[0] if alone else module.to_output(module.to_values(tokens))
    return of((module(tokens)[0] - expected).detach()).item()


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
