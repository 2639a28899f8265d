"""One attention with all options, against a loop over queries; what its probes notice."""

import functools
import itertools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "practice/capstone"
PAGE, MUSEUM = p.page_code(SLUG, "solution"), p.ROOT / "snippets/practice/museum.md"
PIECES = p.page_code("practice/museum", "exhibit").Pieces
PROBES = ["causality", "padding", "empty", "batch", "order", "cross", "state", "modes"]
PROBES += ["dtype", "cache", "gradient", "sdpa"]
sdpa = F.scaled_dot_product_attention

# -- the class, in all its options -----------------------------------------------------------------


def drawn(**fixed):
    """Modules with every combination of options, inputs, and which keys are real; a row may have none."""

    def build(case, causal, cross, bias, wide):
        options = {"causal": causal and not cross, "cross": cross, "bias": bias, "wide": wide} | fixed
        case = SimpleNamespace(**vars(case) | options)
        case.E, case.width = case.H * case.D, case.D + case.wide
        case.inputs = case.randn(case.B, case.T, case.E)
        case.memory = case.randn(case.B, case.Tk, case.E + 2) if case.cross else None
        case.source = case.memory if case.cross else case.inputs
        case.is_real = case.randn(*case.source.shape[:2]) > -0.4
        p.seed_modules(case.seed)
        given = {"causal": case.causal, "bias": case.bias, "head_dim": case.width if case.wide else None}
        given["memory_width"] = case.E + 2 if case.cross else None
        case.attention = PAGE.UnifiedAttention(case.E, case.H, **given).double().eval()
        for parameter in case.attention.parameters():  # larger than torch's, or the weights are nearly equal
            nn.init.normal_(parameter)
        return case

    return st.builds(build, p.sizes(B=3, H=3, T=4, Tk=5, D=3), *[st.booleans()] * 4)


def ours(case, **options):
    return case.attention(case.inputs, case.memory, case.is_real, **options)


def one_query_at_a_time(case):
    """A softmax over the keys that the query sees, and nothing else; outputs and weights."""
    attention = case.attention
    sides = (attention.to_queries, case.inputs), (attention.to_keys, case.source), (attention.to_values, case.source)
    queries, keys, values = (torch.stack(layer(tokens).split(case.width, dim=-1), dim=1) for layer, tokens in sides)
    context, weights = torch.zeros_like(queries), torch.zeros(*queries.shape[:3], keys.shape[2], dtype=torch.float64)
    for item, head, i in itertools.product(*map(range, queries.shape[:3])):
        seen = [j for j in range(keys.shape[2]) if case.is_real[item, j] and (not case.causal or j <= i)]
        if seen:
            scores = keys[item, head, seen] @ queries[item, head, i] / case.width**0.5
            weights[item, head, i, seen] = scores.softmax(dim=0)
            context[item, head, i] = weights[item, head, i, seen] @ values[item, head, seen]
    return attention.to_output(torch.cat(context.unbind(1), dim=-1)), weights


@pytest.mark.parametrize("need_weights", [False, True])
def test_results_and_gradients_are_those_of_one_query_at_a_time(need_weights):
    def prove(case):
        outputs, weights = ours(case, need_weights=need_weights)
        p.close(outputs, one_query_at_a_time(case)[0])
        if need_weights:
            p.close(weights, one_query_at_a_time(case)[1])
        else:
            assert weights is None

    def leaves(case):
        return [case.inputs, *case.attention.parameters()] + ([case.memory] if case.cross else [])

    p.for_all(drawn(), prove)
    p.gradients_equal(
        lambda case: ours(case, need_weights=need_weights)[0],
        lambda case: one_query_at_a_time(case)[0],
        leaves,
        drawn(),
    )


@pytest.mark.parametrize(("causal", "cached"), [(False, 0), (True, 0), (True, 2)])
def test_without_padding_the_fused_kernel_gets_no_mask_but_for_a_causal_step(causal, cached, monkeypatch):
    given = []
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **o: given.append(o) or sdpa(*a, **o))
    cache = PAGE.Cache(5)
    attention, inputs = PAGE.UnifiedAttention(8, 2, causal=causal), torch.randn(3, 5, 8)
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
        p.close(newest, ours(case)[0][:, first:])

    p.for_all(drawn(causal=True, cross=False), prove)


def test_a_memory_is_projected_once_and_then_nothing_is_added():
    def prove(case):
        cache = PAGE.Cache(case.Tk)
        case.attention(case.inputs[:, :1], case.memory, case.is_real, cache)
        p.close(case.attention(case.inputs, case.memory[:, :0], case.is_real, cache)[0], ours(case)[0])

    p.for_all(drawn(causal=False, cross=True), prove)


def test_dropout_thins_the_weights_in_training_only_after_they_are_returned():
    attention, inputs = PAGE.UnifiedAttention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    torch.manual_seed(0)
    outputs, weights = attention(inputs, need_weights=True)
    p.close(weights.sum(dim=-1), torch.ones(2, 2, 5), 1e-5)
    torch.manual_seed(0)
    thinned = F.dropout(weights, 0.5) @ attention.split_heads(attention.to_values(inputs))
    p.close(outputs, attention.to_output(attention.merge_heads(thinned)), 1e-5)
    for given in ({}, {"is_real": torch.ones(2, 5) > 0}):
        assert not torch.equal(attention.train()(inputs, **given)[0], attention(inputs, **given)[0])
        assert torch.equal(attention.eval()(inputs, **given)[0], attention(inputs, **given)[0])


@pytest.mark.parametrize(
    ("options", "call", "error"),
    [
        ({"causal": True}, {"memory": torch.randn(3, 5, 8)}, "^a memory has no future: causal must be False$"),
        ({"num_heads": 3}, {}, "^3 heads do not divide 8$"),
        ({"head_dim": 0}, {}, "^head_dim=0: give at least 1$"),
        ({}, {"is_real": torch.ones(3, 1, 1, 5) > 0}, r"^is_real must be boolean, with shape \(3, 5\)$"),
        ({}, {"is_real": torch.ones(5) > 0}, r"with shape \(3, 5\)$"),
        ({}, {"is_real": torch.ones(3, 5)}, "must be boolean"),
    ],
)
def test_what_would_run_silently_raises(options, call, error):
    with pytest.raises(ValueError, match=error):
        PAGE.UnifiedAttention(**{"width": 8, "num_heads": 2} | options)(torch.randn(3, 5, 8), **call)


def test_the_bias_of_the_keys_gets_a_gradient_of_0():
    attention = PAGE.UnifiedAttention(8, 2).double()
    attention(torch.randn(3, 5, 8, dtype=torch.float64))[0].square().sum().backward()
    gradients = {name: value.grad.abs().max() for name, value in attention.named_parameters()}
    assert gradients.pop("to_keys.bias") < 1e-14
    assert min(gradients.values()) > 1e-4


# -- the kit ---------------------------------------------------------------------------------------


def broken(**methods):
    return type("Broken", (PAGE.UnifiedAttention,), methods)


def failed(build):
    return [name for name, number in PAGE.examine(build).items() if not number < 1e-4]


@pytest.mark.parametrize("options", [{}, {"head_dim": 4}, {"bias": False}])
def test_the_module_keeps_every_promise_with_options_that_no_probe_sets_too(options):
    numbers = PAGE.examine(functools.partial(PAGE.UnifiedAttention, **options))
    assert list(numbers) == PROBES
    assert max(numbers.values()) < 1e-4
    assert {type(probe(PAGE.UnifiedAttention)) for probe in PAGE.probes} <= {int, float, bool}


def refusing(error, option):
    """A module that raises where an option of its constructor, or of its call, is given."""

    class Refusing(PAGE.UnifiedAttention):
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
    """Even that which torch raises where it has no kernel."""
    for error in (KeyError("no"), NotImplementedError("no")):
        build = refusing(error, "cache")
        assert failed(build) == ["cache"]
        assert PAGE.examine(build)["cache"] == torch.inf


def test_a_mean_in_an_empty_row_and_normed_roles_fail_one_probe_each():
    """Two of the failures that need not be bugs."""

    def weigh(self, scores, visible):
        return scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1)

    def score(self, queries, keys):
        return PIECES.score(self, F.normalize(queries, dim=-1), F.normalize(keys, dim=-1))

    assert failed(type("Mean", (PIECES,), {"weigh": weigh})) == ["empty"]
    assert failed(type("Normed", (PIECES,), {"score": score})) == ["sdpa"]


def test_a_module_that_lacks_an_option_is_left_out_of_its_probe_alone():
    lacking = refusing(PAGE.LacksOption(), "memory_width")
    assert set(PROBES) - set(PAGE.examine(lacking)) == {"cross"}
    assert failed(lacking) == []


def test_what_goes_wrong_in_a_plain_call_is_raised_at_once():
    with pytest.raises(TypeError, match="return a tuple"):
        PAGE.examine(broken(forward=lambda self, *given: PAGE.UnifiedAttention.forward(self, *given)[0]))
    with pytest.raises(AttributeError, match="no_such_thing"):
        PAGE.examine(broken(forward=lambda self, inputs: inputs.no_such_thing))


def test_dropout_by_default_fails_modes_and_positions_or_one_size_fail_their_probes():
    def forward(self, inputs, *others, **named):
        return PAGE.UnifiedAttention.forward(self, inputs + torch.arange(inputs.shape[1])[:, None], *others, **named)

    def split_heads(self, projected):
        return projected.unflatten(-1, (2, 4)).transpose(1, 2)

    assert failed(functools.partial(PAGE.UnifiedAttention, dropout=0.1)) == ["modes"]
    assert "order" in failed(broken(forward=forward))
    assert failed(broken(split_heads=split_heads)) == ["batch", "order", "sdpa"]


def test_one_feature_shows_the_leak_of_a_gpt2_block_and_all_features_alike_do_not():
    """Its eager attention is called without a mask; its LayerNorm takes away what all features have in common."""
    p.seed_modules(0)
    block = GPT2Block(GPT2Config(n_embd=8, n_head=2, attn_implementation="eager"), layer_idx=0).eval()
    inputs = p.seeded({"seed": 0}).randn(1, 5, 8).float()
    with torch.no_grad():
        assert PAGE.moves(block, inputs)[0].min() > 1e-4
        moved = (block(inputs + torch.eye(5)[3, :, None]) - block(inputs)).abs().amax(dim=(0, 2))
    assert moved[3] > 0.9
    assert moved[[0, 1, 2, 4]].max() < 1e-6


def test_the_kit_calls_the_module_70_times_and_keeps_its_masks():
    masks = [mask.clone() for mask in (PAGE.real_first, PAGE.real_last, PAGE.real_memory)]
    calls = []

    def forward(self, inputs, memory=None, is_real=None, cache=None):
        calls.append(is_real)
        outputs = PAGE.UnifiedAttention.forward(self, inputs, memory, is_real, cache)
        return outputs if is_real is None else (is_real.logical_not_(), outputs)[1]

    assert failed(broken(forward=forward)) == ["state"]
    assert len(calls) == 70
    assert all(map(torch.equal, masks, (PAGE.real_first, PAGE.real_last, PAGE.real_memory)))


def test_of_the_184_of_multihead_attention_80_gradients_count_twice():
    cell = executed(SLUG, "yours")[0]
    module, inputs, _ = PAGE.setup(cell.Theirs, causal=True)
    inputs.requires_grad_()
    outputs = module(inputs, is_real=PAGE.real_last)[0]
    outputs.sum().backward()
    assert (outputs.isnan().sum(), inputs.grad.isnan().sum()) == (24, 80)
    assert cell.numbers["empty"] == 24 + 2 * 80


# -- what each probe notices -----------------------------------------------------------------------


@pytest.mark.parametrize("room", [cell.name for cell in p.read_cells(MUSEUM) if cell.name.startswith("room-")])
def test_the_probes_say_of_each_exhibit_what_the_museum_shows(room):
    """Name and verdicts to the letter, the number but for its rounding."""
    shown = next(cell.output for cell in p.read_cells(MUSEUM) if cell.name == room).splitlines()
    for found, wanted in zip(p.run_cell("practice/museum", room)[1].splitlines(), shown, strict=True):
        assert found[:16] + found[24:] == wanted[:16] + wanted[24:]
        assert float(found[16:23]) == pytest.approx(float(wanted[16:23]), rel=1e-2)


# -- the exercise ----------------------------------------------------------------------------------


def rows(build, which=slice(None)):
    module, inputs, _ = PAGE.setup(build, causal=True)
    tokens = inputs[:, :1].expand_as(inputs)
    return (module(tokens)[0] - module.to_output(module.to_values(tokens)))[:, which].abs().detach().max().item()


def summed(build):
    module, inputs, _ = PAGE.setup(build, causal=True)
    return (module(inputs, need_weights=True)[1].sum(dim=-1) - 1).abs().detach().max().item()


RIGHT = {"equal tokens": rows, "the weights, which it returns": summed}
WRONG = {
    "row 0 alone": lambda build: rows(build, [0]),
    "the even rows": lambda build: rows(build, slice(0, None, 2)),
    "a truth": lambda build: rows(build) < 1e-4,
    "causality": lambda build: float(PAGE.causality(build)),
}


def test_the_check_stops_after_the_middle_step_as_the_page_says():
    said = p.verdict(PAGE.check_probe, WRONG["row 0 alone"])
    assert said == "not yet: row 1 without weights gives 0.0000, not more than 1e-4\n"


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_probe", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "for kernels that return nan for an empty row; SDPA returns 0 on the CPU": ["# visible = visible | ~has_key"],
    "any large factor will do": ["loud = inputs.where(is_real[..., None], 1001 * inputs)"],
    "only the first text of this call is read; `batch` asks whether the others change it": [
        "alone = module(inputs[item:, keep])[0]",
        "alone = module(inputs[item:item + 2, keep])[0]",
    ],
    "any rate will do whose drops are seen, and 4,096 copies level out": [
        "module, inputs, _ = setup(build, dropout=0.4)"
    ],
    "two equal tokens are attended as one": ["alone = inputs[:1, :1].repeat(4096, 2, 1)"],
    "only whether a gradient is 0, and finite, or there at all, is looked at": [
        "outputs[~real_last].mean().backward(retain_graph=True)",
        "outputs[real_last].mean().backward()",
        "outputs.mean().backward()",
    ],
}
ACCEPTED = {
    "the answer is a probe: what is spoiled is the module that it tests": [
        "exponentials that overflow",
        "hidden by -20.0",
        "hidden by -10000.0",
    ],
}
