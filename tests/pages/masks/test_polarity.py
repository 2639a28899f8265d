"""The polarity of masks: each function of the page against plain loops and transformers, and what flips a mask."""

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
PAGE = p.page_code(SLUG, "more")
SPELLED = {  # what stands for a visible key, and for a hidden one
    "attend": (True, False),
    "ignore": (False, True),
    "ints": (1, 0),
    "floats": (1.0, 0.0),
    "added": (0.0, -math.inf),
}
TAKES = {"by_fill": "ignore", "mha_attn": "ignore", "mha_padding": "ignore", "sdpa": "attend", "hf_2d": "ints"}


@pytest.fixture(autouse=True, scope="module")
def compiled_anew():
    """TorchDynamo recompiles a function only so often in a process."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def spell(visible, convention):
    """A nested list of True = visible as a tensor, entry by entry."""
    return torch.tensor([[SPELLED[convention][not entry] for entry in row] for row in visible])


# -- the functions -------------------------------------------------------------------------------


def by_the_loop(tokens, values, visible):
    """One Python float at a time, over the visible keys only; `visible` has one row for all queries or one for each."""
    tokens, values, contexts = tokens.tolist(), values.tolist(), []
    for i, query in enumerate(tokens):
        keys = [j for j, entry in enumerate(visible[i % len(visible)]) if entry]
        scores = [sum(x * y for x, y in zip(query, tokens[j])) / math.sqrt(len(query)) for j in keys]
        weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        contexts.append([sum(a * values[j][e] for a, j in zip(weights, keys)) for e in range(len(values[0]))])
    return torch.tensor(contexts, dtype=torch.float64)


def drawn(rows=None):
    """Draw tokens, values and what is visible, in a row for each query or in `rows`; every query sees a key."""

    def build(case):
        case.tokens, case.values = case.randn(case.T, 3), case.randn(case.T, 3)
        bits = case.randn(rows or case.T, case.T) > 0
        bits[:, case.seed % case.T] = True
        case.visible = bits.tolist()
        return case

    return p.sizes(T=(2, 5)).map(build)


@pytest.fixture(scope="module")
def on():
    """The functions of the page, for other tokens."""
    page = p.page_code(SLUG, "more")
    scope = page.sdpa.__globals__
    scope["mha"].double()

    def on(tokens):
        scope.update(inputs=tokens)
        return page

    return on


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        pytest.param([*TAKES], 1, id="keys"),
        pytest.param(["by_fill", "mha_attn", "sdpa"], None, id="pairs"),
    ],
)
def test_a_function_hides_what_is_not_visible_and_leaves_the_mask_as_it_is(on, names, rows):
    def prove(case):
        page = on(case.tokens)
        expected = by_the_loop(case.tokens, case.values, case.visible)
        for name in names:
            given = spell(case.visible, TAKES[name])
            p.close(getattr(page, name)(case.values, given), expected)
            assert torch.equal(given, spell(case.visible, TAKES[name]))

    p.for_all(drawn(rows), prove)


def test_flex_hides_what_is_not_visible():
    visible = [[False, True, False, True]]
    values = torch.arange(12.0).reshape(4, 3) / 7
    context = PAGE.flex(values, spell(visible, "attend"))
    p.close(context.double(), by_the_loop(PAGE.inputs, values, visible), 1e-6)


def of_transformers(mask, tokens, implementation="sdpa"):
    """What transformers makes of an `attention_mask` before it calls the attention."""
    config = BertConfig(attn_implementation=implementation)
    return create_bidirectional_mask(config=config, inputs_embeds=tokens[None], attention_mask=mask)


@pytest.mark.parametrize("convention", SPELLED)
def test_hf_2d_does_what_transformers_does(on, convention):
    def prove(case):
        given = spell(case.visible, convention)
        if not given.bool().any():
            return  # transformers leaves a mask out that it reads as empty
        roles = [role[None, None] for role in (case.tokens, case.tokens, case.values)]
        theirs = F.scaled_dot_product_attention(*roles, attn_mask=of_transformers(given, case.tokens))
        p.close(on(case.tokens).hf_2d(case.values, given), theirs[0, 0])

    p.for_all(drawn(rows=1), prove)


# -- the ways to write a mask ----------------------------------------------------------------------


def read(given, convention):
    return executed(SLUG, "solution")[0].to_sdpa(given, convention)[:, 0, 0].tolist()


def test_an_added_mask_of_transformers_for_eager_is_read_by_the_number_of_the_page():
    added = of_transformers(torch.tensor([[1, 1, 0, 0]]), torch.zeros(4, 3), "eager")
    assert added.isfinite().all()
    assert read(added[0, 0], "added") == [[True, True, False, False]] * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_fill_of_any_dtype_is_read_as_hidden_also_once_cast_and_a_bias_is_not(dtype):
    added = torch.tensor([[0.0, -3.0, -1e4, torch.finfo(dtype).min, -torch.inf]]).to(dtype)
    for given in (added, added.float()):
        assert read(given, "added") == [[True, True, False, False, False]]


def test_what_is_read_as_hidden_leaves_no_weight_in_any_dtype():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.tensor([0.0, -1000.0], dtype=dtype).softmax(dim=0)[1] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_with_weights_mha_raises_for_an_added_mask_of_another_dtype(dtype):
    mha = nn.MultiheadAttention(3, 1, dtype=dtype)
    tokens, added = PAGE.inputs.to(dtype), torch.where(PAGE.is_real[0], 0.0, -torch.inf)
    with pytest.raises(RuntimeError, match="dtype"):
        mha(tokens, tokens, tokens, key_padding_mask=added)
    assert mha(tokens, tokens, tokens, key_padding_mask=added.to(dtype))[0].dtype == dtype


def test_every_integer_but_0_is_visible_as_in_transformers():
    ints = torch.tensor([[2, -1, 0, 1]])
    assert read(ints, "ints") == of_transformers(ints, torch.zeros(4, 3))[:, 0, 0].tolist()


# -- the claims of the page ----------------------------------------------------------------------


@pytest.mark.parametrize(("cell", "counts"), [("atlas", (6, 4, 5)), ("more", (5, 5, 5))])
def test_of_fifteen_combinations_five_are_silently_wrong(cell, counts):
    printed = executed(SLUG, cell)[1].partition("added\n")[2]
    entries = [entry for row in printed.splitlines() for entry in row.split()[1:]]
    right, error, inverted, nothing = (entries.count(entry) for entry in ("0.0000", "error", "1.0000", "0.0846"))
    assert (right, error, inverted + nothing) == counts


def test_a_nudge_of_one_moves_the_output_by_the_weight():
    weights = PAGE.sdpa(torch.eye(4), None)
    for j in range(4):
        nudged = PAGE.inputs.clone()
        nudged[j, 0] += 1
        change = PAGE.sdpa(nudged, None) - PAGE.sdpa(PAGE.inputs, None)
        p.close(change, weights[:, j : j + 1] * torch.tensor([[1.0, 0.0, 0.0]]), 1e-6)


def test_ignore_as_floats_doubles_the_weight_of_the_padding():
    nudged, floats = PAGE.inputs.clone(), (~PAGE.is_real).float()
    nudged[3] += 1
    weight = (PAGE.mha_attn(nudged, floats) - PAGE.mha_attn(PAGE.inputs, floats))[0, 0]
    assert (f"{PAGE.sdpa(torch.eye(4), None)[0, 3]:.2f}", f"{weight:.2f}") == ("0.20", "0.41")


@pytest.mark.parametrize(("need_weights", "keys"), [(True, [0, 1, 2, 3]), (False, [0])])
def test_mha_uses_the_flag_without_a_warning_where_no_weights_are_asked_for(need_weights, keys):
    nothing = torch.zeros(4, 4, dtype=torch.bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context, _ = PAGE.mha(*[PAGE.inputs] * 3, attn_mask=nothing, is_causal=True, need_weights=need_weights)
    visible = [[j in keys for j in range(4)]]
    p.close(context[0].double(), by_the_loop(PAGE.inputs, PAGE.inputs, visible)[0], 1e-6)


def test_a_fused_kernel_on_the_cpu_applies_the_mask_and_the_flag():
    values = torch.eye(4, 3)
    roles = [PAGE.inputs.cpu()[None, None]] * 2
    visible = torch.tensor([[True, False, True, True]])
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
        weights = F.scaled_dot_product_attention(*roles, values[None, None], attn_mask=visible, is_causal=True)
    allowed = visible & torch.ones(4, 4, dtype=torch.bool).tril()
    assert ((weights[0, 0] > 0) == allowed[:, :3]).all()


def test_need_weights_is_the_default_and_the_causal_mask_beside_the_flag_is_safe():
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    calls = [{}, {"need_weights": True}, {"is_causal": True}, {"is_causal": True, "need_weights": False}]
    default, *others = (PAGE.mha(*[PAGE.inputs] * 3, attn_mask=future, **call) for call in calls)
    assert default[1] is not None
    for other in others:
        p.close(other[0], default[0], 1e-6)


def test_the_layers_of_nn_transformer_hand_their_masks_to_mha():
    p.seed_modules(0)
    layer = nn.TransformerEncoderLayer(6, nhead=2, dropout=0.0, batch_first=True).eval()
    tokens = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    nudged, pads = tokens.clone(), ~PAGE.is_real
    nudged[0, 3] += torch.arange(6.0)
    for masks in ({"src_key_padding_mask": pads}, {"src_mask": pads.expand(4, 4)}):
        change = (layer(nudged, **masks) - layer(tokens, **masks))[0].abs().amax(dim=-1)
        assert (change > 0).tolist() == [False, False, False, True]


def test_flex_documents_true_as_allowed():
    assert "which attention connections are allowed (True)" in " ".join(flex_module.create_block_mask.__doc__.split())


# -- the exercise --------------------------------------------------------------------------------


def to_sdpa(given, convention):
    return (given == 0 if convention in ("added", "ignore") else given != 0)[:, None, None]


def but_for(convention, otherwise):
    """The right answer, except for one convention."""
    return lambda given, name: otherwise(given)[:, None, None] if name == convention else to_sdpa(given, name)


def in_place(given, convention):
    return given.logical_not_()[:, None, None] if convention == "ignore" else to_sdpa(given, convention)


RIGHT = {
    "one line for each": to_sdpa,
    "through an additive mask": lambda given, name: torch.where(to_sdpa(given, name), 0.0, -torch.inf) == 0,
}
WRONG = {
    "ints inverted with a tilde": but_for("ints", lambda given: (~given).bool()),
    "floats passed through": but_for("floats", lambda given: given),
    "only minus infinity taken for hidden": but_for("added", lambda given: given > -math.inf),
    "inverted in place": in_place,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_sdpa", RIGHT, WRONG

    def test_after_the_middle_step_the_check_says_ignore(self):
        assert self.verdict(lambda given, name: (given != 0)[:, None, None]).startswith("not yet: ignore: [[False, ")


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "a matrix has two axes: 1 is the last": [
        "scores = inputs @ inputs.T / inputs.shape[1] ** 0.5",
        "weights = torch.softmax(scores, dim=1)",
    ],
}
ACCEPTED = {
    "the exercise names no number between a bias and a mask": [
        "visible = given >= -1000",
        "visible = given > -1001",
    ],
}
