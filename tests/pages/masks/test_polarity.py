"""The polarity of masks: each door of the page against plain loops and transformers, and the bugs that flip a mask."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo import funcname_cache
from torch.nn.attention import flex_attention as flex_module
from transformers import BertConfig, BertModel
from transformers.masking_utils import create_bidirectional_mask

from tests.pages import properties as p
from tests.pages.exercise import Exercise
from tools.cells import compare
from tools.cells.source import read_cells

SLUG = "masks/polarity"
FILE = p.ROOT / "snippets" / f"{SLUG}.md"
# TorchDynamo would read the Markdown file as if all of it were Python.
funcname_cache.cache[str(FILE)] = {}
PAGE = p.page_code(SLUG, "convert")
CELLS = {cell.name: cell for cell in read_cells(FILE)}
PRINTING = [name for name, cell in CELLS.items() if not cell.shared]
SPELLED = {  # what stands for a visible key, and for a hidden one
    "attend": (True, False),
    "ignore": (False, True),
    "ints": (1, 0),
    "floats": (1.0, 0.0),
    "added": (0.0, -math.inf),
}
DOORS = {
    "masked_fill": "ignore",
    "mha_attn": "ignore",
    "mha_padding": "ignore",
    "sdpa": "attend",
    "flex": "attend",
    "hf_2d": "ints",
}
OF_PAIRS = ["masked_fill", "mha_attn", "sdpa"]  # the doors that take a mask of shape (Tq, Tk), but for `flex`


@pytest.fixture(autouse=True, scope="module")
def compiled_anew():
    """TorchDynamo recompiles a function only so often in a process."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def spell(hidden, convention):
    """A nested list of True = hidden as a tensor, entry by entry."""
    return torch.tensor([[SPELLED[convention][entry] for entry in row] for row in hidden])


# -- references ----------------------------------------------------------------------------------


def by_the_loop(tokens, values, hidden):
    """One Python float at a time, over the visible keys only; `hidden` has one row for all queries or one for each."""
    tokens, values, contexts = tokens.tolist(), values.tolist(), []
    for i, query in enumerate(tokens):
        visible = [j for j, entry in enumerate(hidden[i % len(hidden)]) if not entry]
        scores = [sum(x * y for x, y in zip(query, tokens[j])) / math.sqrt(len(query)) for j in visible]
        weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        contexts.append([sum(a * values[j][e] for a, j in zip(weights, visible)) for e in range(len(values[0]))])
    return torch.tensor(contexts, dtype=torch.float64)


def of_transformers(mask, tokens, implementation="sdpa"):
    """What transformers makes of a two-dimensional `attention_mask` before it calls the attention."""
    config = BertConfig(attn_implementation=implementation)
    return create_bidirectional_mask(config=config, inputs_embeds=tokens[None], attention_mask=mask)


# -- drawn cases: tokens, values and what is hidden; every query sees at least one key ------------------


def drawn(rows):
    def build(case):
        case.tokens, case.values = case.randn(case.T, 3), case.randn(case.T, 3)
        bits = case.randn(rows or case.T, case.T) > 0
        bits[:, case.seed % case.T] = False
        case.hidden = bits.tolist()
        return case

    return p.sizes(T=(2, 5)).map(build)


def on_tokens(code, tokens):
    """The doors of the page for other tokens."""
    scope = code.sdpa.__globals__
    scope.update(inputs=tokens, T=len(tokens))
    scope["mha"].double()
    return code


def equals_the_loop(code, names, rows):
    def prove(case):
        here = on_tokens(code, case.tokens)
        expected = by_the_loop(case.tokens, case.values, case.hidden)
        for name in names:
            mask = spell(case.hidden, DOORS[name])
            given = mask.clone()
            p.close(getattr(here, name)(case.values, mask), expected)
            assert torch.equal(mask, given)

    p.for_all(drawn(rows), prove)


# -- what holds for the doors ----------------------------------------------------------------------


def every_door_hides_keys(code):
    equals_the_loop(code, [name for name in DOORS if name != "flex"], rows=1)


def doors_of_pairs_hide_pairs(code):
    equals_the_loop(code, OF_PAIRS, rows=None)


def flex_hides_keys_and_pairs(code):
    values = torch.arange(12.0).reshape(4, 3) / 7
    triangle = [[j > i for j in range(4)] for i in range(4)]
    for hidden in (triangle, [[True, False, True, False]]):
        context = code.flex(values, spell(hidden, "attend"))
        torch.testing.assert_close(context.double(), by_the_loop(code.inputs, values, hidden), rtol=1e-6, atol=1e-6)


def hf_2d_does_what_transformers_does(code):
    def prove(case):
        here = on_tokens(code, case.tokens)
        for convention in ("ints", "floats", "attend", "ignore", "added"):
            mask = spell(case.hidden, convention)
            if not mask.to(torch.bool).any():
                continue
            roles = [role[None, None] for role in (case.tokens, case.tokens, case.values)]
            theirs = F.scaled_dot_product_attention(*roles, attn_mask=of_transformers(mask, case.tokens))
            p.close(here.hf_2d(case.values, mask), theirs[0, 0])

    p.for_all(drawn(rows=1), prove)


OF_THE_DOORS = [
    every_door_hides_keys,
    doors_of_pairs_hide_pairs,
    flex_hides_keys_and_pairs,
    hf_2d_does_what_transformers_does,
]

# -- what holds for the converter ------------------------------------------------------------------


def converts_between_all_spellings(code):
    assert list(code.write) == list(code.read) == ["ignore", "attend", "ints", "added"]

    def prove(case):
        for source in code.write:
            for target in code.write:
                mask = spell(case.hidden, source)
                given, expected = mask.clone(), spell(case.hidden, target)
                converted = code.convert(mask, source, target)
                assert converted.dtype == expected.dtype
                assert torch.equal(converted, expected)
                assert torch.equal(mask, given)

    p.for_all(drawn(rows=None), prove)


def reads_what_transformers_writes_for_eager(code):
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    config = BertConfig(attn_implementation="eager")
    added = create_bidirectional_mask(config=config, inputs_embeds=torch.zeros(2, 4, 3), attention_mask=mask)
    assert added.isfinite().all()
    assert torch.equal(code.convert(added, "added", "ignore"), (mask == 0)[:, None, None].expand(2, 1, 4, 4))


def every_integer_but_0_is_visible_as_in_transformers(code):
    mask = torch.tensor([[2, -1, 0, 1]])
    visible = of_transformers(mask, torch.zeros(4, 3))[:, 0, 0]
    assert torch.equal(code.convert(mask, "ints", "attend"), visible)


def a_bias_is_no_mask(code):
    bias = torch.tensor([[0.5, -3.0, -1e30]])
    assert not code.convert(bias, "added", "ignore").any()


def knows_who_wants_what(code):
    assert {door.__name__: convention for door, convention in code.doors.items()} == DOORS


OF_THE_CONVERTER = [
    converts_between_all_spellings,
    reads_what_transformers_writes_for_eager,
    every_integer_but_0_is_visible_as_in_transformers,
    a_bias_is_no_mask,
    knows_who_wants_what,
]
PROPERTIES = OF_THE_DOORS + OF_THE_CONVERTER

# -- the bugs ------------------------------------------------------------------------------------

KEYS, PAIRS = [every_door_hides_keys], [every_door_hides_keys, doors_of_pairs_hide_pairs]
FLEX, HF = [flex_hides_keys_and_pairs], [every_door_hides_keys, hf_2d_does_what_transformers_does]
CONVERTER = [converts_between_all_spellings]
BUGS = {  # the cell, what the bug makes of its lines, and the properties that catch it
    "projections not the identity": ("example", {"eye.repeat(3, 1)": "2 * eye.repeat(3, 1)"}, PAIRS),
    "output projection turned off": ("example", {'"out_proj.weight": eye': '"out_proj.weight": 0 * eye'}, PAIRS),
    "projections with a bias": ("example", {"bias=False": "bias=True"}, PAIRS),
    "masked_fill not scaled": ("torch-core", {" / E**0.5": ""}, PAIRS),
    "masked_fill scaled by the width": ("torch-core", {"E**0.5": "E"}, PAIRS),
    "masked_fill thrown away": ("torch-core", {"    scores = scores.masked": "    scores.masked"}, PAIRS),
    "masked_fill inverted": ("torch-core", {"fill(mask, ": "fill(~mask, "}, PAIRS),
    "filled with 0": ("torch-core", {"-torch.inf": "0.0"}, PAIRS),
    "softmax over the queries": ("torch-core", {"dim=-1": "dim=0"}, PAIRS),
    "tokens as values in masked_fill": ("torch-core", {"@ values": "@ inputs"}, PAIRS),
    "tokens as values in SDPA": (
        "torch-core",
        {"attend(inputs, inputs, values, attn_mask": "attend(inputs, inputs, inputs, attn_mask"},
        PAIRS,
    ),
    "SDPA without the mask": ("torch-core", {"values, attn_mask=mask)": "values)"}, PAIRS),
    "SDPA inverted": ("torch-core", {"attn_mask=mask": "attn_mask=~mask"}, PAIRS),
    "attn_mask inverted": ("torch-core", {"attn_mask=pairs": "attn_mask=~pairs"}, PAIRS),
    "attn_mask not used": ("torch-core", {", attn_mask=pairs": ""}, PAIRS),
    "tokens as values in attn_mask": (
        "torch-core",
        {"inputs, values, attn_mask=pairs": "inputs, inputs, attn_mask=pairs"},
        PAIRS,
    ),
    "attn_mask transposed": ("torch-core", {"mask.expand(T, T)": "mask.expand(T, T).T"}, PAIRS),
    "weights in place of the context": ("torch-core", {"attn_mask=pairs)[0]": "attn_mask=pairs)[1]"}, PAIRS),
    "padding mask inverted": ("torch-core", {"mask=mask[0]": "mask=~mask[0]"}, KEYS),
    "padding mask not used": ("torch-core", {", key_padding_mask=mask[0]": ""}, KEYS),
    "tokens as values behind the padding mask": (
        "torch-core",
        {"values, key_padding_mask": "inputs, key_padding_mask"},
        KEYS,
    ),
    "weights behind the padding mask": ("torch-core", {"mask[0])[0]": "mask[0])[1]"}, KEYS),
    "mask_mod inverted": ("flex-and-hf", {"pairs[q, k]": "~pairs[q, k]"}, FLEX),
    "mask_mod transposed": ("flex-and-hf", {"pairs[q, k]": "pairs[k, q]"}, FLEX),
    "no block mask": ("flex-and-hf", {"*roles, block_mask=block_mask": "*roles"}, FLEX),
    "hf_2d inverted": ("flex-and-hf", {"mask.to(torch.bool)[": "~mask.to(torch.bool)["}, HF),
    "hf_2d adds the mask": ("flex-and-hf", {"mask.to(torch.bool)[": "mask.to(inputs.dtype)["}, HF),
    "hf_2d without the mask": ("flex-and-hf", {"(*roles, attn_mask=visible)": "(*roles)"}, HF),
    "ints inverted with a tilde": ("convert", {"mask == 0": "(~mask).bool()"}, CONVERTER),
    "ints read as attend": ("convert", {"mask == 0": "mask == 1"}, CONVERTER),
    "ints below 0 read as hidden": (
        "convert",
        {"mask == 0": "mask <= 0"},
        [every_integer_but_0_is_visible_as_in_transformers],
    ),
    "ints written as ignore": ("convert", {"(~hidden).long()": "hidden.long()"}, CONVERTER),
    "floats written for ints": ("convert", {"(~hidden).long()": "(~hidden).float()"}, CONVERTER),
    "attend not inverted when read": ("convert", {"lambda mask: ~mask": "lambda mask: mask.clone()"}, CONVERTER),
    "attend not inverted when written": ("convert", {"lambda hidden: ~hidden": "lambda hidden: hidden * 1"}, CONVERTER),
    "ignore inverted when read": ("convert", {"lambda mask: mask,": "lambda mask: ~mask,"}, CONVERTER),
    "ignore inverted when written": ("convert", {"lambda hidden: hidden,": "lambda hidden: ~hidden,"}, CONVERTER),
    "read in place": ("convert", {"lambda mask: ~mask": "lambda mask: mask.logical_not_()"}, CONVERTER),
    "added the wrong way round": ("convert", {"hidden, -torch.inf, 0.0": "hidden, 0.0, -torch.inf"}, CONVERTER),
    "added 1": ("convert", {"hidden, -torch.inf, 0.0": "hidden, -torch.inf, 1.0"}, CONVERTER),
    "only minus infinity read": (
        "convert",
        {"mask <= torch.finfo(mask.dtype).min": "mask == -torch.inf"},
        [reads_what_transformers_writes_for_eager],
    ),
    "the lowest number left out": (
        "convert",
        {"<= torch.finfo": "< torch.finfo"},
        [reads_what_transformers_writes_for_eager],
    ),
    "a negative bias read as a mask": (
        "convert",
        {"mask <= torch.finfo(mask.dtype).min": "mask < 0"},
        [a_bias_is_no_mask],
    ),
    "visible read as hidden": ("convert", {"mask <= torch": "mask > torch"}, CONVERTER),
    "source and target swapped": (
        "convert",
        {"write[target](read[source](mask))": "write[source](read[target](mask))"},
        CONVERTER,
    ),
    "SDPA listed as ignore": ("convert", {'sdpa: "attend"': 'sdpa: "ignore"'}, [knows_who_wants_what]),
}


@pytest.mark.parametrize("holds", PROPERTIES)
def test_the_page_has_the_property(holds):
    holds(p.page_code(SLUG, "convert"))


@pytest.mark.parametrize("bug", BUGS)
def test_a_known_bug_is_caught_by_the_properties_that_the_table_names(bug):
    cell, replacements, catching = BUGS[bug]
    assert catching

    def caught(holds):
        return p.catches(lambda: holds(p.page_code(SLUG, "convert", (cell, replacements))))

    assert [holds for holds in catching if not caught(holds)] == []


@pytest.mark.parametrize("holds", PROPERTIES)
def test_every_property_catches_a_bug(holds):
    assert any(holds in catching for _, _, catching in BUGS.values())


# -- the claims of the page ----------------------------------------------------------------------


@pytest.mark.parametrize("name", PRINTING)
def test_a_cell_prints_what_the_page_shows(name):
    assert compare.same(CELLS[name].output, p.run_cell(SLUG, name)[1])


@pytest.mark.parametrize(("name", "row"), [("round-trip", "sdpa ignore False"), ("reduce", "sdpa False")])
def test_a_wrong_door_shows_in_the_cells_that_compare(name, row):
    assert row in p.run_cell(SLUG, name, ("convert", {'sdpa: "attend"': 'sdpa: "ignore"'}))[1]


def test_of_thirty_combinations_11_are_right_9_stop_and_10_are_silently_wrong():
    head, *rows = (row.split() for row in CELLS["atlas"].output.splitlines())
    assert head == list(SPELLED)
    assert [row[0] for row in rows] == list(DOORS)
    entries = [entry for row in rows for entry in row[1:]]
    counts = [entries.count(entry) for entry in ("0.0000", "error", "1.0000", "0.0846")]
    assert (counts[0], counts[1], counts[2] + counts[3], len(entries)) == (11, 9, 10, 30)


def test_what_stops_in_the_atlas_is_the_dtype_of_the_mask():
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        PAGE.masked_fill(PAGE.inputs, spell([[False] * 4], "floats"))
    for door in (PAGE.mha_attn, PAGE.mha_padding):
        with pytest.raises(AssertionError, match="only bool and floating types"):
            door(PAGE.inputs, spell([[False] * 4], "ints"))
    with pytest.raises(AssertionError, match=r"must be torch\.bool"):
        PAGE.flex(PAGE.inputs, spell([[False] * 4], "floats"))


def test_a_nudge_of_one_moves_the_output_by_the_weight():
    weights = PAGE.sdpa(torch.eye(4), None)
    for j in range(4):
        nudged = PAGE.inputs.clone()
        nudged[j] += 1
        change = PAGE.sdpa(nudged, None) - PAGE.sdpa(PAGE.inputs, None)
        torch.testing.assert_close(change, weights[:, j : j + 1].expand(4, 3), rtol=0, atol=1e-6)


def test_a_float_mask_of_ones_multiplies_the_odds_by_e():
    _, plain, floats, _ = CELLS["floats"].output.splitlines()
    odds = [float(row[8:14]) / float(row[32:38]) for row in (plain, floats)]
    assert f"{odds[1] / odds[0]:.2f}" == f"{math.e:.2f}" == "2.72"


def test_ignore_as_floats_doubles_the_weight_of_the_padding():
    plain = PAGE.sdpa(torch.eye(4), None)[0, 3]
    nudged = PAGE.inputs.clone()
    nudged[3] += 1
    floats = (PAGE.mha_attn(nudged, PAGE.masked.float()) - PAGE.mha_attn(PAGE.inputs, PAGE.masked.float()))[0, 0]
    assert (f"{plain:.2f}", f"{floats:.2f}") == ("0.20", "0.41")


@pytest.mark.parametrize(("need_weights", "visible"), [(True, [0, 1, 2, 3]), (False, [0])])
def test_mha_believes_the_flag_without_a_warning_where_no_weights_are_wanted(need_weights, visible):
    nothing = torch.zeros(4, 4, dtype=torch.bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context, _ = PAGE.mha(*[PAGE.inputs] * 3, attn_mask=nothing, is_causal=True, need_weights=need_weights)
    hidden = [[j not in visible for j in range(4)]]
    torch.testing.assert_close(context[0].double(), by_the_loop(PAGE.inputs, PAGE.inputs, hidden)[0], rtol=0, atol=1e-6)


def test_need_weights_is_the_default_of_mha_and_a_true_triangle_is_safe():
    triangle = torch.ones(4, 4, dtype=torch.bool).triu(1)
    calls = [{}, {"need_weights": True}, {"is_causal": True}, {"is_causal": True, "need_weights": False}]
    default, *others = (PAGE.mha(*[PAGE.inputs] * 3, attn_mask=triangle, **call) for call in calls)
    assert default[1] is not None
    for other in others:
        torch.testing.assert_close(other[0], default[0])


def test_an_upper_triangle_of_true_runs_backwards_in_sdpa():
    weights = PAGE.sdpa(torch.eye(4), torch.ones(4, 4, dtype=torch.bool).triu())
    assert (weights > 0).sum(dim=-1).tolist() == [4, 3, 2, 1]
    assert weights[3].tolist() == [0, 0, 0, 1]


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


def test_the_reduction_holds_within_mha_too():
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    plain, _ = PAGE.mha(*[PAGE.inputs] * 3)
    for door in (PAGE.mha_attn, PAGE.mha_padding):
        torch.testing.assert_close(door(PAGE.inputs, nothing), plain)


# -- transformers --------------------------------------------------------------------------------


def bert():
    p.seed_modules(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=11, max_position_embeddings=8, initializer_range=1.0, **sizes)
    return BertModel(config, add_pooling_layer=False).eval()


def rows_that_move(attention_mask, token):
    """The rows of a BERT that react to one of six tokens."""
    ids = torch.tensor([[1, 2, 3, 4, 0, 0]])
    changed = ids.clone()
    changed[0, token] = 7
    with torch.no_grad():
        model = bert()
        before, after = (model(tokens, attention_mask=attention_mask)[0] for tokens in (ids, changed))
    assert before.isfinite().all()
    return [i for i in range(6) if not torch.equal(before[0, i], after[0, i])]


def test_bert_takes_an_inverted_mask_without_an_error_and_reads_the_padding_alone():
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    assert rows_that_move(mask, token=1) == [0, 1, 2, 3, 4, 5]
    assert rows_that_move(mask, token=4) == [4]
    assert rows_that_move(1 - mask, token=1) == [1]
    assert rows_that_move(1 - mask, token=4) == [0, 1, 2, 3, 4, 5]


def test_transformers_inverts_an_added_mask_of_two_axes_and_returns_one_of_four_untouched():
    tokens = torch.zeros(4, 3)
    added = spell([[False, False, False, True]], "added")
    assert of_transformers(added, tokens)[0, 0, 0].tolist() == [False, False, False, True]
    four = added[:, None, None]
    assert of_transformers(four, tokens) is four


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_lowest_number_of_any_dtype_is_read_as_hidden(dtype):
    mask = torch.tensor([[0.0, torch.finfo(dtype).min, -torch.inf]]).to(dtype)
    assert PAGE.read["added"](mask).tolist() == [[False, True, True]]


# -- the exercise --------------------------------------------------------------------------------

AXES = (slice(None), None, None, slice(None))


def to_sdpa(mask, convention):
    return (mask == 0 if convention in ("added", "ignore") else mask != 0)[AXES]


def but_for(conventions, otherwise):
    """The right answer, except for some conventions."""
    return lambda mask, name: otherwise(mask) if name in conventions.split() else to_sdpa(mask, name)


def in_place(mask, convention):
    return mask.logical_not_()[AXES] if convention == "ignore" else to_sdpa(mask, convention)


def from_lists(mask, convention):
    seen = SPELLED[convention][0]
    return torch.tensor([[[[entry == seen for entry in row]]] for row in mask.tolist()])


RIGHT = {
    "one line for each": to_sdpa,
    "lists": from_lists,
    "compared with what stands for a visible key": lambda mask, name: (mask == SPELLED[name][0]).unsqueeze(1)[:, None],
    "through an additive mask": lambda mask, name: torch.where(to_sdpa(mask, name), 0.0, -torch.inf) == 0,
    "the page's own reader": lambda mask, name: ~PAGE.read.get(name, lambda floats: floats == 0)(mask)[AXES],
}
WRONG = {
    "returns None": lambda mask, name: None,
    "raises": lambda mask, name: mask.no_such_method(),
    "a nested list": lambda mask, name: to_sdpa(mask, name).tolist(),
    "a numpy array": lambda mask, name: to_sdpa(mask, name).numpy(),
    "the mask as it is": lambda mask, name: mask[AXES],
    "a cast and no more": lambda mask, name: mask.bool()[AXES],
    "everything inverted": lambda mask, name: ~to_sdpa(mask, name),
    "everything visible": lambda mask, name: torch.ones_like(to_sdpa(mask, name)),
    "everything hidden": lambda mask, name: torch.zeros_like(to_sdpa(mask, name)),
    "attend taken for ignore": but_for("attend", lambda mask: ~mask[AXES]),
    "ignore taken for attend": but_for("ignore", lambda mask: mask[AXES]),
    "ints inverted with a tilde": but_for("ints", lambda mask: (~mask).bool()[AXES]),
    "ints taken for ignore": but_for("ints", lambda mask: (mask == 0)[AXES]),
    "ints passed through": but_for("ints", lambda mask: mask[AXES]),
    "floats taken for ignore": but_for("floats", lambda mask: (mask == 0)[AXES]),
    "floats passed through": but_for("floats", lambda mask: mask[AXES]),
    "floats taken for added": but_for("floats", lambda mask: (mask > -1)[AXES]),
    "added cast to bool": but_for("added", lambda mask: mask.bool()[AXES]),
    "added passed through": but_for("added", lambda mask: mask[AXES]),
    "added taken for 1 = attend": but_for("added", lambda mask: (mask == 1)[AXES]),
    "only minus infinity taken for hidden": but_for("added", lambda mask: (mask > -math.inf)[AXES]),
    "floats forgotten": lambda mask, name: to_sdpa(mask, name) if name != "floats" else None,
    "no new axes": lambda mask, name: to_sdpa(mask, name)[:, 0, 0],
    "one new axis": lambda mask, name: to_sdpa(mask, name)[:, 0],
    "axes in front": lambda mask, name: to_sdpa(mask, name)[None, None, :, 0, 0],
    "axes behind": lambda mask, name: to_sdpa(mask, name)[:, 0, 0, :, None, None],
    "spread over the queries": lambda mask, name: to_sdpa(mask, name).expand(-1, 1, mask.shape[1], -1),
    "a batch of one loses its axis": lambda mask, name: to_sdpa(mask, name).squeeze(0),
    "a float mask of 0 and minus infinity": lambda mask, name: torch.where(to_sdpa(mask, name), 0.0, -torch.inf),
    "integers": lambda mask, name: to_sdpa(mask, name).long(),
    "inverted in place": in_place,
    "shifted by one key": lambda mask, name: to_sdpa(mask, name).roll(1, dims=-1),
    "the keys backwards": lambda mask, name: to_sdpa(mask, name).flip(-1),
    "the first row for all": lambda mask, name: to_sdpa(mask, name)[:1].expand(len(mask), -1, -1, -1),
    "a triangle": lambda mask, name: torch.ones_like(mask, dtype=torch.bool).tril()[AXES],
}


FAULTS = {  # what the check says about a wrong answer
    "a nested list": "ignore: it does not return a boolean tensor",
    "integers": "ignore: it does not return a boolean tensor",
    "no new axes": "ignore: shape (1, 5) for a mask (1, 5)",
    "axes in front": "ignore: shape (1, 1, 2, 5) for a mask (2, 5)",
    "raises": "ignore: it stops with AttributeError",
    "inverted in place": "ignore: it changes the mask that it was given",
    "everything inverted": "ignore: it shows or hides the wrong keys",
    "ints inverted with a tilde": "ints: it shows or hides the wrong keys",
    "floats passed through": "floats: it does not return a boolean tensor",
    "added cast to bool": "added: it shows or hides the wrong keys",
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_sdpa", RIGHT, WRONG

    @pytest.mark.parametrize("wrong_answer", FAULTS)
    def test_the_check_names_the_fault(self, wrong_answer):
        assert self.verdict(WRONG[wrong_answer]) == f"not yet: {FAULTS[wrong_answer]}\n"
