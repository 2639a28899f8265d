"""The polarity of masks: each door of the page against plain loops and transformers, and what flips a mask."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo import funcname_cache
from torch.nn.attention import flex_attention as flex_module
from transformers import BertConfig
from transformers.masking_utils import create_bidirectional_mask

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "masks/polarity"
# TorchDynamo would read the Markdown file as if all of it were Python.
funcname_cache.cache[str(p.ROOT / "snippets" / f"{SLUG}.md")] = {}
PAGE = p.page_code(SLUG, "convert")
SPELLED = {  # what stands for a visible key, and for a masked one
    "attend": (True, False),
    "ignore": (False, True),
    "ints": (1, 0),
    "floats": (1.0, 0.0),
    "added": (0.0, -math.inf),
}
DOORS = {door.__name__: convention for door, convention in p.page_code(SLUG, "round-trip").doors.items()}


@pytest.fixture(autouse=True, scope="module")
def compiled_anew():
    """TorchDynamo recompiles a function only so often in a process."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def spell(masked, convention):
    """A nested list of True = masked as a tensor, entry by entry."""
    return torch.tensor([[SPELLED[convention][entry] for entry in row] for row in masked])


# -- the doors -----------------------------------------------------------------------------------


def by_the_loop(tokens, values, masked):
    """One Python float at a time, over the visible keys only; `masked` has one row for all queries or one for each."""
    tokens, values, contexts = tokens.tolist(), values.tolist(), []
    for i, query in enumerate(tokens):
        visible = [j for j, entry in enumerate(masked[i % len(masked)]) if not entry]
        scores = [sum(x * y for x, y in zip(query, tokens[j])) / math.sqrt(len(query)) for j in visible]
        weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        contexts.append([sum(a * values[j][e] for a, j in zip(weights, visible)) for e in range(len(values[0]))])
    return torch.tensor(contexts, dtype=torch.float64)


def drawn(rows=None):
    """Draw tokens, values and what is masked, in a row for each query or in `rows`; every query sees a key."""

    def build(case):
        case.tokens, case.values = case.randn(case.T, 3), case.randn(case.T, 3)
        bits = case.randn(rows or case.T, case.T) > 0
        bits[:, case.seed % case.T] = False
        case.masked = bits.tolist()
        return case

    return p.sizes(T=(2, 5)).map(build)


@pytest.fixture(scope="module")
def doors_on():
    """The doors of the page, by their names, for other tokens."""
    doors = {door.__name__: door for door in p.page_code(SLUG, "round-trip").doors}
    scope = doors["sdpa"].__globals__
    scope["mha"].double()

    def on(tokens):
        scope.update(inputs=tokens)
        return doors

    return on


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        pytest.param(["masked_fill", "mha_attn", "mha_padding", "sdpa", "hf_2d"], 1, id="keys"),
        pytest.param(["masked_fill", "mha_attn", "sdpa"], None, id="pairs"),
    ],
)
def test_a_door_hides_what_is_masked_and_leaves_the_mask_as_it_is(doors_on, names, rows):
    def prove(case):
        doors = doors_on(case.tokens)
        expected = by_the_loop(case.tokens, case.values, case.masked)
        for name in names:
            given = spell(case.masked, DOORS[name])
            p.close(doors[name](case.values, given), expected)
            assert torch.equal(given, spell(case.masked, DOORS[name]))

    p.for_all(drawn(rows), prove)


def test_flex_hides_what_is_masked():
    masked = [[True, False, True, False]]
    values = torch.arange(12.0).reshape(4, 3) / 7
    context = PAGE.flex(values, spell(masked, "attend"))
    p.close(context.double(), by_the_loop(PAGE.inputs, values, masked), 1e-6)


def of_transformers(mask, tokens, implementation="sdpa"):
    """What transformers makes of an `attention_mask` before it calls the attention."""
    config = BertConfig(attn_implementation=implementation)
    return create_bidirectional_mask(config=config, inputs_embeds=tokens[None], attention_mask=mask)


@pytest.mark.parametrize("convention", SPELLED)
def test_hf_2d_does_what_transformers_does(doors_on, convention):
    def prove(case):
        given = spell(case.masked, convention)
        if not given.bool().any():
            return  # transformers leaves a mask out that it reads as empty
        roles = [role[None, None] for role in (case.tokens, case.tokens, case.values)]
        theirs = F.scaled_dot_product_attention(*roles, attn_mask=of_transformers(given, case.tokens))
        p.close(doors_on(case.tokens)["hf_2d"](case.values, given), theirs[0, 0])

    p.for_all(drawn(rows=1), prove)


# -- the converter -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", PAGE.write)
@pytest.mark.parametrize("target", PAGE.write)
def test_the_converter_turns_each_spelling_into_each_other_and_leaves_its_input(source, target):
    def prove(case):
        given, expected = spell(case.masked, source), spell(case.masked, target)
        converted = PAGE.convert(given, source, target)
        assert converted.dtype == expected.dtype
        assert torch.equal(converted, expected)
        assert torch.equal(given, spell(case.masked, source))

    p.for_all(drawn(), prove)


def test_it_reads_what_transformers_writes_for_eager():
    added = of_transformers(torch.tensor([[1, 1, 0, 0]]), torch.zeros(4, 3), "eager")
    assert added.isfinite().all()
    assert PAGE.convert(added, "added", "ignore")[0, 0].tolist() == [[False, False, True, True]] * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_fill_of_any_dtype_is_read_as_masked_also_once_cast_and_a_bias_is_not(dtype):
    added = torch.tensor([[0.0, -3.0, -1e4, torch.finfo(dtype).min, -torch.inf]]).to(dtype)
    for given in (added, added.float()):
        assert PAGE.convert(given, "added", "ignore").tolist() == [[False, False, True, True, True]]


def test_what_is_read_as_masked_leaves_no_weight_in_any_dtype():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.tensor([0.0, -1000.0], dtype=dtype).softmax(dim=0)[1] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_with_weights_mha_refuses_an_added_mask_of_another_dtype(dtype):
    mha = nn.MultiheadAttention(3, 1, dtype=dtype)
    tokens, added = PAGE.inputs.to(dtype), PAGE.write["added"](PAGE.masked[0])
    with pytest.raises(RuntimeError, match="dtype"):
        mha(tokens, tokens, tokens, key_padding_mask=added)
    assert mha(tokens, tokens, tokens, key_padding_mask=added.to(dtype))[0].dtype == dtype


def test_every_integer_but_0_is_visible_as_in_transformers():
    ints = torch.tensor([[2, -1, 0, 1]])
    assert torch.equal(PAGE.convert(ints, "ints", "attend"), of_transformers(ints, torch.zeros(4, 3))[:, 0, 0])


# -- the claims of the page ----------------------------------------------------------------------


def printed(cell):
    return executed(SLUG, cell)[1].splitlines()


def test_of_thirty_combinations_11_are_right_9_stop_and_10_are_silently_wrong():
    entries = [entry for row in printed("atlas")[1:] for entry in row.split()[1:]]
    right, error, inverted, nothing = (entries.count(entry) for entry in ("0.0000", "error", "1.0000", "0.0846"))
    assert (right, error, inverted + nothing, len(entries)) == (11, 9, 10, 30)


def test_a_nudge_of_one_moves_the_output_by_the_weight():
    weights = PAGE.sdpa(torch.eye(4), None)
    for j in range(4):
        nudged = PAGE.inputs.clone()
        nudged[j, 0] += 1
        change = PAGE.sdpa(nudged, None) - PAGE.sdpa(PAGE.inputs, None)
        p.close(change, weights[:, j : j + 1] * torch.tensor([[1.0, 0.0, 0.0]]), 1e-6)


def test_ignore_as_floats_doubles_the_weight_of_the_padding():
    nudged = PAGE.inputs.clone()
    nudged[3] += 1
    floats = (PAGE.mha_attn(nudged, PAGE.masked.float()) - PAGE.mha_attn(PAGE.inputs, PAGE.masked.float()))[0, 0]
    assert (f"{PAGE.sdpa(torch.eye(4), None)[0, 3]:.2f}", f"{floats:.2f}") == ("0.20", "0.41")


@pytest.mark.parametrize(("need_weights", "visible"), [(True, [0, 1, 2, 3]), (False, [0])])
def test_mha_believes_the_flag_without_a_warning_where_no_weights_are_wanted(need_weights, visible):
    nothing = torch.zeros(4, 4, dtype=torch.bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context, _ = PAGE.mha(*[PAGE.inputs] * 3, attn_mask=nothing, is_causal=True, need_weights=need_weights)
    masked = [[j not in visible for j in range(4)]]
    p.close(context[0].double(), by_the_loop(PAGE.inputs, PAGE.inputs, masked)[0], 1e-6)


def test_a_fused_kernel_on_the_cpu_applies_the_mask_and_the_flag():
    values = torch.eye(4, 3)
    roles = [PAGE.inputs.cpu()[None, None]] * 2
    visible = torch.tensor([[True, False, True, True]])
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
        weights = F.scaled_dot_product_attention(*roles, values[None, None], attn_mask=visible, is_causal=True)
    allowed = visible & torch.ones(4, 4, dtype=torch.bool).tril()
    assert ((weights[0, 0] > 0) == allowed[:, :3]).all()


def test_need_weights_is_the_default_of_mha_and_a_true_triangle_is_safe():
    triangle = torch.ones(4, 4, dtype=torch.bool).triu(1)
    calls = [{}, {"need_weights": True}, {"is_causal": True}, {"is_causal": True, "need_weights": False}]
    default, *others = (PAGE.mha(*[PAGE.inputs] * 3, attn_mask=triangle, **call) for call in calls)
    assert default[1] is not None
    for other in others:
        p.close(other[0], default[0], 1e-6)


def test_a_tilde_on_integers_hides_everything():
    attention_mask = torch.tensor([1, 1, 1, 0])
    assert (~attention_mask).tolist() == [-2, -2, -2, -1]
    assert (~attention_mask).bool().all()
    assert (attention_mask == 0).tolist() == [False, False, False, True]


def test_the_layers_of_nn_transformer_hand_their_masks_to_mha():
    p.seed_modules(0)
    layer = nn.TransformerEncoderLayer(6, nhead=2, dropout=0.0, batch_first=True).eval()
    tokens = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    nudged = tokens.clone()
    nudged[0, 3] += torch.arange(6.0)
    for masks in ({"src_key_padding_mask": PAGE.masked}, {"src_mask": PAGE.masked.expand(4, 4)}):
        change = (layer(nudged, **masks) - layer(tokens, **masks))[0].abs().amax(dim=-1)
        assert (change > 0).tolist() == [False, False, False, True]


def test_flex_warns_when_it_is_not_compiled():
    flex_module._WARNINGS_SHOWN.discard("flex_attention_performance")
    with pytest.warns(UserWarning, match="without torch.compile"):
        flex_module.flex_attention(*[PAGE.inputs[None, None].cpu()] * 3)


def test_flex_documents_true_as_allowed():
    assert "which attention connections are allowed (True)" in " ".join(flex_module.create_block_mask.__doc__.split())


# -- the exercise --------------------------------------------------------------------------------

AXES = (slice(None), None, None, slice(None))


def to_sdpa(given, convention):
    return (given == 0 if convention in ("added", "ignore") else given != 0)[AXES]


def but_for(conventions, otherwise):
    """The right answer, except for some conventions."""
    return lambda given, name: otherwise(given) if name in conventions.split() else to_sdpa(given, name)


def in_place(given, convention):
    return given.logical_not_()[AXES] if convention == "ignore" else to_sdpa(given, convention)


def from_lists(given, convention):
    seen = SPELLED[convention][0]
    return torch.tensor([[[[entry == seen for entry in row]]] for row in given.tolist()])


RIGHT = {
    "one line for each": to_sdpa,
    "compared with the visible key": lambda given, name: (given == SPELLED[name][0]).unsqueeze(1)[:, None],
    "through an additive mask": lambda given, name: torch.where(to_sdpa(given, name), 0.0, -torch.inf) == 0,
    "the page's own reader": lambda given, name: ~PAGE.read.get(name, lambda floats: floats == 0)(given)[AXES],
}
WRONG = {
    "returns None": lambda given, name: None,
    "a nested list": lambda given, name: to_sdpa(given, name).tolist(),
    "a numpy array": lambda given, name: to_sdpa(given, name).numpy(),
    "the mask as it is": lambda given, name: given[AXES],
    "a cast and no more": lambda given, name: given.bool()[AXES],
    "everything inverted": lambda given, name: ~to_sdpa(given, name),
    "everything visible": lambda given, name: torch.ones_like(to_sdpa(given, name)),
    "everything hidden": lambda given, name: torch.zeros_like(to_sdpa(given, name)),
    "attend taken for ignore": but_for("attend", lambda given: ~given[AXES]),
    "ignore taken for attend": but_for("ignore", lambda given: given[AXES]),
    "ints inverted with a tilde": but_for("ints", lambda given: (~given).bool()[AXES]),
    "ints taken for ignore": but_for("ints", lambda given: (given == 0)[AXES]),
    "ints passed through": but_for("ints", lambda given: given[AXES]),
    "floats taken for ignore": but_for("floats", lambda given: (given == 0)[AXES]),
    "floats passed through": but_for("floats", lambda given: given[AXES]),
    "floats taken for added": but_for("floats", lambda given: (given > -1)[AXES]),
    "added cast to bool": but_for("added", lambda given: given.bool()[AXES]),
    "hidden below -1e9 only": but_for("added", lambda given: (given > -1e9)[AXES]),
    "hidden at the lowest float32 only": but_for("added", lambda given: (given > torch.finfo().min)[AXES]),
    "hidden at the lowest of its dtype only": but_for(
        "added", lambda given: (given > torch.finfo(given.dtype).min)[AXES]
    ),
    "hidden at the lowest of the mask": but_for("added", lambda given: (given > given.min())[AXES]),
    "visible at the highest of the mask": but_for("attend ints floats", lambda given: (given == given.max())[AXES]),
    "added passed through": but_for("added", lambda given: given[AXES]),
    "added taken for 1 = attend": but_for("added", lambda given: (given == 1)[AXES]),
    "only minus infinity taken for hidden": but_for("added", lambda given: (given > -math.inf)[AXES]),
    "floats forgotten": lambda given, name: to_sdpa(given, name) if name != "floats" else None,
    "no new axes": lambda given, name: to_sdpa(given, name)[:, 0, 0],
    "one new axis": lambda given, name: to_sdpa(given, name)[:, 0],
    "axes in front": lambda given, name: to_sdpa(given, name)[None, None, :, 0, 0],
    "axes behind": lambda given, name: to_sdpa(given, name)[:, 0, 0, :, None, None],
    "spread over the queries": lambda given, name: to_sdpa(given, name).expand(-1, 1, given.shape[1], -1),
    "a batch of one loses its axis": lambda given, name: to_sdpa(given, name).squeeze(0),
    "a float mask of 0 and minus infinity": lambda given, name: torch.where(to_sdpa(given, name), 0.0, -torch.inf),
    "integers": lambda given, name: to_sdpa(given, name).long(),
    "inverted in place": in_place,
    "shifted by one key": lambda given, name: to_sdpa(given, name).roll(1, dims=-1),
    "the keys backwards": lambda given, name: to_sdpa(given, name).flip(-1),
    "the first row for all": lambda given, name: to_sdpa(given, name)[:1].expand(len(given), -1, -1, -1),
    "from lists, so on the default device": from_lists,
    "three keys": lambda given, name: to_sdpa(given, name).view(-1, 1, 1, 3),
    "a triangle": lambda given, name: torch.ones_like(given, dtype=torch.bool).tril()[AXES],
}


def test_the_solution_and_the_converter_take_what_is_below_minus_1000_as_masked():
    added = torch.tensor([[-999.5, -1000.0, -1000.5]])
    visible = executed(SLUG, "solution")[0].to_sdpa(added, "added")
    assert visible.flatten().tolist() == PAGE.convert(added, "added", "attend")[0].tolist() == [True, True, False]


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_sdpa", RIGHT, WRONG


@pytest.mark.parametrize("convention", SPELLED)
def test_the_solution_and_the_converter_run_on_another_device(convention):
    given = spell([[False, True]], convention).to("meta")
    assert executed(SLUG, "solution")[0].to_sdpa(given, convention).device.type == "meta"
    if convention in PAGE.read:
        assert PAGE.convert(given, convention, "attend").device.type == "meta"


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "a matrix has two axes: 1 is the last": [
        "scores = inputs @ inputs.T / inputs.shape[1] ** 0.5",
        "return torch.softmax(scores, dim=1) @ values",
    ],
}
ACCEPTED = {
    "the exercise names no number between a bias and a mask": [
        "visible = given > -1000",
        "visible = given >= -1001",
    ],
}
