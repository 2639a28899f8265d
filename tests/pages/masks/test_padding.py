"""Padding: the page's class against PyTorch and plain loops, every cell computed again from sentences that run alone,
and the claims about positions, generation and recurrent networks in Transformers' models and PyTorch's."""

import functools
import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.pages import properties as p
from tests.pages.bugs import Bugs
from tests.pages.exercise import Exercise

SLUG = "masks/padding"
PAGE = p.page_code(SLUG, "attention")
SENTENCES = [[1, 2, 3], [4, 5, 6, 7, 8], [9, 10, 1, 3]]
LENGTHS, LONGEST = [3, 5, 4], 5
PAD = 0

# -- drawn batches -------------------------------------------------------------------------------


def pads(lengths, longest, side):
    """True at the pads, entry by entry."""
    at_pad = {"right": lambda n, j: j >= n, "left": lambda n, j: j < longest - n}[side]
    return torch.tensor([[at_pad(n, j) for j in range(longest)] for n in lengths])


def cases(code, shortest=1):
    """Draw the module and its `inputs`, a batch whose items have `lengths`, padded on a side that is drawn too."""

    def build(case):
        case.E = case.H * case.D
        p.seed_modules(case.seed)
        case.attention = code.BidirectionalAttention(case.E, case.H).double()
        case.inputs = case.randn(case.B, case.T, case.E)
        case.lengths = [min(shortest + (case.seed + 2 * item) % case.T, case.T) for item in range(case.B)]
        case.masked = pads(case.lengths, case.T, ("right", "left")[case.seed % 2])
        return case

    return p.sizes(B=3, T=5, H=3, D=3).map(build)


def heads(case, tokens, weight):
    """The queries, keys and values of some tokens (T, E), each (H, T, D): the weight cut into roles and heads."""
    parts = weight.unflatten(0, (3, case.H, case.D))
    return [torch.stack([tokens @ part[head].T for head in range(case.H)]) for part in parts]


# -- references: each returns the outputs and the weights ------------------------------------------


def by_the_formula(case):
    """Sentence by sentence, head by head, query by query; the sum runs over the real keys and knows no mask."""
    weights = torch.zeros(case.B, case.H, case.T, case.T, dtype=torch.float64)
    outputs = torch.zeros(case.B, case.T, case.E, dtype=torch.float64)
    for item, tokens in enumerate(case.inputs):
        queries, keys, values = heads(case, tokens, case.attention.to_roles.weight.detach())
        real = [j for j in range(case.T) if not case.masked[item, j]]
        for i in range(case.T):
            joined = []
            for h in range(case.H):
                scores = [(queries[h, i] @ keys[h, j]).item() / math.sqrt(case.D) for j in real]
                exponentials = [math.exp(score - max(scores)) for score in scores]
                for j, exponential in zip(real, exponentials):
                    weights[item, h, i, j] = exponential / sum(exponentials)
                joined += (weights[item, h, i] @ values[h]).tolist()
            outputs[item, i] = case.attention.to_output.weight.detach() @ torch.tensor(joined, dtype=torch.float64)
    return outputs, weights


def multihead_attention(case):
    module = nn.MultiheadAttention(case.E, case.H, bias=False, batch_first=True, dtype=torch.float64)
    ours = case.attention.state_dict()
    module.load_state_dict({"in_proj_weight": ours["to_roles.weight"], "out_proj.weight": ours["to_output.weight"]})
    x = case.inputs
    return module(x, x, x, key_padding_mask=case.masked, average_attn_weights=False)


def unpadded_sdpa(case, item):
    """The real rows of an item, its pads cut off before PyTorch's attention."""
    tokens = case.inputs[item, ~case.masked[item]]
    context = F.scaled_dot_product_attention(*heads(case, tokens, case.attention.to_roles.weight))
    return case.attention.to_output(context.transpose(0, 1).flatten(1))


def outputs_and_weights(results):
    return torch.cat([result.flatten() for result in results])


@pytest.mark.parametrize("reference", [by_the_formula, multihead_attention])
def test_the_class_computes_what_an_independent_reference_computes(reference):
    """All rows, those of the pads as queries included."""
    p.equals_reference(
        lambda case: outputs_and_weights(case.attention(case.inputs, case.masked)),
        lambda case: outputs_and_weights(reference(case)),
        cases(PAGE),
    )


# -- what holds for the class --------------------------------------------------------------------


def equals_multihead_attention(code):
    p.equals_reference(
        lambda case: outputs_and_weights(case.attention(case.inputs, case.masked)),
        lambda case: outputs_and_weights(multihead_attention(case)),
        cases(code),
    )


def padded_equals_alone(code):
    """And alone is PyTorch's attention, which has seen neither a pad nor a mask."""

    def padded(case):
        outputs, _ = case.attention(case.inputs, case.masked)
        return [rows[~hidden] for rows, hidden in zip(outputs, case.masked)]

    p.padded_equals_alone(padded, unpadded_sdpa, cases(code))


def a_row_reacts_to_the_real_tokens_and_to_itself(code):
    """A pad reacts to itself, since it is a query, unless it has one key only, whose weight is 1 in any case."""

    def function(case):
        hidden = case.masked[:1]
        allowed = ~hidden.expand(case.T, -1) | torch.eye(case.T, dtype=torch.bool)
        return lambda rows: case.attention(rows[None], hidden)[0][0], case.inputs[0], allowed

    p.reaches_exactly(function, cases(code, shortest=2).filter(lambda case: case.lengths[0] > 1))


def gradients_are_the_sum_of_those_alone(code):
    """A loss on the real rows moves the parameters as if there were no pads."""

    def gradients(case, losses):
        case.attention.zero_grad()
        sum(losses).backward()
        return torch.cat([weight.grad.flatten() for weight in case.attention.parameters()])

    def padded(case):
        return gradients(case, [case.attention(case.inputs, case.masked)[0][~case.masked].square().sum()])

    def alone(case):
        return gradients(case, [unpadded_sdpa(case, item).square().sum() for item in range(case.B)])

    p.equals_reference(padded, alone, cases(code))


def an_empty_mask_is_no_mask(code):
    def prove(case):
        nothing = torch.zeros_like(case.masked)
        masked, plain = case.attention(case.inputs, nothing), case.attention(case.inputs)
        assert all(map(torch.equal, masked, plain))
        case.masked = nothing
        p.close(plain[0], torch.stack([unpadded_sdpa(case, item) for item in range(case.B)]))

    p.for_all(cases(code), prove)


def stateless(code):
    def function(case):
        return case.attention, [case.inputs, case.masked], [case.inputs.flip(0), case.masked.flip(1)]

    p.stateless(function, cases(code))


def finite_for_large_scores(code):
    p.finite_rows(lambda case: case.attention(1e3 * case.inputs, case.masked)[0], cases(code))


def two_parameters_without_a_bias(code):
    state = code.BidirectionalAttention(6, 3).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    assert shapes == {"to_roles.weight": (18, 6), "to_output.weight": (6, 6)}


PROPERTIES = [
    equals_multihead_attention,
    padded_equals_alone,
    a_row_reacts_to_the_real_tokens_and_to_itself,
    gradients_are_the_sum_of_those_alone,
    an_empty_mask_is_no_mask,
    stateless,
    finite_for_large_scores,
    two_parameters_without_a_bias,
]

# -- the bugs ------------------------------------------------------------------------------------

MASK, FILL = "mask = masked[:, None, None, :]", "scores = scores.masked_fill(mask, -torch.inf)"
SOFTMAX = "weights = torch.softmax(scores, dim=-1)"
EQUAL = [equals_multihead_attention, padded_equals_alone]
LEAK = [*EQUAL, a_row_reacts_to_the_real_tokens_and_to_itself, gradients_are_the_sum_of_those_alone]
BUGS = {  # what stands in the class instead, and the properties that catch it
    "mask forgotten": ({FILL: "pass"}, LEAK),
    "filled scores thrown away": ({FILL: "scores.masked_fill(mask, -torch.inf)"}, LEAK),
    "polarity inverted": ({"fill(mask,": "fill(~mask,"}, LEAK),
    "filled with 0": ({"-torch.inf": "0.0"}, LEAK),
    "filled with -1": ({"-torch.inf": "-1.0"}, LEAK),
    "filled with plus infinity": ({"-torch.inf": "torch.inf"}, [*LEAK, finite_for_large_scores]),
    "the mask of the caller changed": ({MASK: f"masked |= masked.roll(1, 0); {MASK}"}, [stateless]),
    "pads hidden as queries, not as keys": ({"[:, None, None, :]": "[:, None, :, None]"}, LEAK),
    "pads hidden as queries and as keys": (
        {FILL: "scores = scores.masked_fill(mask | mask.mT, -torch.inf)"},
        [equals_multihead_attention],
    ),
    "rows of pads set to 0": (
        {"context = weights @ values": "context = (weights @ values).masked_fill(mask.mT, 0.0)"},
        [equals_multihead_attention, a_row_reacts_to_the_real_tokens_and_to_itself],
    ),
    "mask of the first sentence for all": ({MASK: "mask = masked[:1, None, None, :]"}, EQUAL),
    "a triangle as well": ({MASK: f"{MASK} | torch.ones(T, T).triu(1).bool()"}, LEAK),
    "softmax over the queries": ({"dim=-1": "dim=-2"}, LEAK),
    "softmax over the heads": ({"dim=-1": "dim=1"}, LEAK),
    "weights masked after the softmax": (
        {FILL: "pass", SOFTMAX: f"{SOFTMAX}; weights = weights if masked is None else weights * ~mask"},
        LEAK,
    ),
    "pads as keys set to 0": ({FILL: "scores = queries @ (keys * ~mask.mT).mT / D**0.5"}, LEAK),
    "mask used only when something is hidden, from the second item on": (
        {"if masked is not None:": "if masked is not None and masked[1:].any():"},
        LEAK,
    ),
    "a mask is required": ({"masked=None": "masked"}, [an_empty_mask_is_no_mask]),
    "not scaled": ({" / D**0.5": ""}, EQUAL),
    "scaled by the width of a token": ({"D**0.5": "E**0.5"}, EQUAL),
    "scaled by D": ({"D**0.5": "D"}, EQUAL),
    "keys as values": ({"weights @ values": "weights @ keys"}, EQUAL),
    "queries as keys": ({"queries @ keys.mT": "queries @ queries.mT"}, EQUAL),
    "roles in another order": ({"queries, keys, values = roles": "keys, queries, values = roles"}, EQUAL),
    "heads before roles": ({"T, 3, H, D)": "T, H, 3, D)", "2, 0, 3, 1, 4": "3, 0, 2, 1, 4"}, EQUAL),
    "heads interleaved": ({"T, 3, H, D)": "T, 3, D, H)", "2, 0, 3, 1, 4": "2, 0, 4, 1, 3"}, EQUAL),
    "head and token axes joined in the wrong order": ({"context.transpose(1, 2)": "context.mT"}, EQUAL),
    "output not projected": ({"self.to_output(context": "(context"}, EQUAL),
    "a bias in the roles": ({"3 * width, bias=False": "3 * width"}, [two_parameters_without_a_bias]),
    "a bias in the output": ({"width, width, bias=False": "width, width"}, [two_parameters_without_a_bias]),
}


class TestBugs(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "attention", PROPERTIES, BUGS


# -- the cells, computed again: what a sentence gives alone ----------------------------------------


@functools.cache
def cell(name):
    """The names that a cell of the page defines, and what it prints."""
    return p.run_cell(SLUG, name)


def decimals(name):
    return [float(number) for number in re.findall(r"-?\d+\.\d+", cell(name)[1])]


def rounded(printed, values):
    """What is printed, to four decimals, are these values."""
    assert len(printed) == len(values)
    assert printed == pytest.approx([float(value) for value in values], abs=6e-5)


def attend(rows, causal=False):
    """PyTorch's attention with the page's parameters, over (T, E), with no pads and no mask of ours."""
    module = PAGE.attention
    roles = (rows @ module.to_roles.weight.T).unflatten(-1, (3, 2, 4)).permute(1, 2, 0, 3)
    context = F.scaled_dot_product_attention(*roles, is_causal=causal)
    return (context.transpose(0, 1).flatten(1) @ module.to_output.weight.T).detach()


def embed(sentence):
    return PAGE.embedding[torch.tensor(sentence)]


def test_the_batch_holds_the_sentences_padded_on_the_right_and_its_mask_is_true_at_the_pads():
    assert [sentence.tolist() for sentence in PAGE.sentences] == SENTENCES
    assert PAGE.ids.tolist() == [sentence + [PAD] * (LONGEST - len(sentence)) for sentence in SENTENCES]
    assert PAGE.lengths.tolist() == [len(sentence) for sentence in SENTENCES] == LENGTHS
    assert torch.equal(PAGE.masked, pads(LENGTHS, LONGEST, "right"))
    assert PAGE.embedding.shape == (1 + max(max(sentence) for sentence in SENTENCES), 8)
    assert PAGE.embedding.abs().min() > 0
    assert PAGE.attention.num_heads == 2


def test_the_mask_has_one_entry_per_key_and_is_printed_for_both_sides():
    names, printed = cell("mask")
    tables = [pads(LENGTHS, LONGEST, side) for side in ("right", "left")]
    assert printed == f"{tables[0]}\n{tables[1]}\nTrue True\n"
    for way in (names.mask, names.viewed, names.twice):
        assert way.shape == (3, 1, 1, 5)
        assert torch.equal(way[:, 0, 0], tables[0])


@pytest.mark.parametrize(("old", "new"), [("None, None, :", "None, :, None"), ("unsqueeze(2)", "unsqueeze(-1)")])
def test_another_place_for_the_axes_is_another_mask(old, new):
    assert "False" in p.run_cell(SLUG, "mask", ("mask", {old: new}))[1].splitlines()[-1]


def test_a_pad_weighs_nothing_and_has_a_row_of_its_own():
    names, printed = cell("weights")
    assert printed.startswith("torch.Size([3, 5, 8]) torch.Size([3, 2, 5, 5])\n")
    weights, outputs = names.weights.detach(), names.outputs.detach()
    rounded(decimals("weights"), [*weights[0, 0].flatten(), *outputs[0, 3, :4]])
    queries, keys = (
        (embed([*SENTENCES[0], PAD, PAD]) @ part.T)[:, :4] for part in PAGE.attention.to_roles.weight[:16].split(8)
    )
    head = torch.softmax((queries @ keys[:3].T).detach() / 2, dim=-1)
    p.close(weights[0, 0, :, :3], head, 1e-6)
    for item, length in enumerate(LENGTHS):
        assert (weights[item, :, :, length:] == 0).all()
        assert (weights[item, :, :, :length] > 0).all()
    p.close(weights.sum(dim=-1), torch.ones(3, 2, 5), 1e-6)
    assert outputs[PAGE.masked].abs().min() > 0
    assert torch.equal(weights[0, 0, 3], weights[0, 0, 4])


def test_the_probe_moves_no_real_row_and_finds_each_sentence_as_it_is_alone():
    names, _ = cell("probe")
    change = names.change.detach().abs().amax(dim=-1)
    assert (change[~PAGE.masked] == 0).all()
    assert (change[PAGE.masked] > 0.01).all()
    assert torch.equal(names.inputs, embed(PAGE.ids.tolist()))
    nudged = torch.where(PAGE.masked[..., None], embed(PAGE.ids.tolist()) + 1, embed(PAGE.ids.tolist()))
    assert torch.equal(names.nudged, nudged)
    lost = []
    for item, sentence in enumerate(SENTENCES):
        alone = attend(embed(sentence))
        p.close(names.outputs[item, : len(sentence)].detach(), alone, 1e-6)
        lost += [0.0, (attend(embed(PAGE.ids[item].tolist()))[: len(sentence)] - alone).abs().max()]
    rounded(decimals("probe"), [*change.flatten(), *lost])
    assert [round(float(gap), 4) for gap in lost[1::2]] == [0.2826, 0.0, 0.1631]
    assert re.findall(r"^sentence (\d): off by", cell("probe")[1], re.M) == ["0", "1", "2"]


def test_the_probe_of_the_page_sees_a_forgotten_mask():
    printed = p.run_cell(SLUG, "probe", ("attention", BUGS["mask forgotten"][0]))[1]
    assert "sentence 0: off by 0.2826" in printed


def test_a_weight_of_0_does_not_stop_a_nan():
    inputs = PAGE.embedding[PAGE.ids]
    inputs[PAGE.masked] = torch.nan
    outputs, weights = PAGE.attention(inputs, PAGE.masked)
    assert (weights[0, :, :3, 3:] == 0).all()
    assert outputs[0].isnan().all()
    assert outputs[1].isfinite().all()


def test_a_sentence_without_a_token_gives_nan():
    outputs, weights = PAGE.attention(PAGE.embedding[PAGE.ids], torch.arange(5) >= torch.tensor([3, 0, 4])[:, None])
    assert outputs[1].isnan().all()
    assert weights[1].isnan().all()
    assert outputs[[0, 2]].isfinite().all()


def test_a_fifth_of_the_tokens_and_a_third_of_the_scores_are_wasted():
    assert (PAGE.masked.sum(), PAGE.masked.numel()) == (3, 15)
    real = ~PAGE.masked
    assert (real[:, :, None] & real[:, None, :]).sum() == 9 + 25 + 16 == 50
    assert cell("weights")[0].weights[:, 0].numel() == 75


def own_token_logits(sentence):
    """The logits of a sentence alone: input plus attention, against all embeddings."""
    return (embed(sentence) + attend(embed(sentence))) @ PAGE.embedding.T


def test_the_averages_are_those_of_the_sentences_alone_and_of_the_pads_with_them():
    alone = embed(SENTENCES[0]) + attend(embed(SENTENCES[0]))
    losses = [F.cross_entropy(own_token_logits(s), torch.tensor(s), reduction="none") for s in SENTENCES]
    loss = torch.cat(losses).mean()
    queries_of_pads = []  # what a pad computes, as one more query to the sentence
    for sentence in SENTENCES:
        roles = [embed([*sentence, PAD]) @ part.T for part in PAGE.attention.to_roles.weight.split(8)]
        query, keys, values = (role.detach().unflatten(-1, (2, 4)).transpose(0, 1) for role in roles)
        context = F.scaled_dot_product_attention(query[:, -1:], keys[:, :-1], values[:, :-1])
        queries_of_pads.append(embed([PAD])[0] + PAGE.attention.to_output.weight.detach() @ context.flatten())
    pad_losses = [F.cross_entropy((row @ PAGE.embedding.T)[None], torch.tensor([PAD])) for row in queries_of_pads]
    expected = []
    for longest in (5, 10, 50):
        plain = (alone.sum(dim=0) + (longest - 3) * queries_of_pads[0]) / longest
        every = sum(own.sum() + (longest - len(own)) * pad for own, pad in zip(losses, pad_losses)) / (3 * longest)
        expected += [plain[0], alone.mean(dim=0)[0], every, loss]
    rounded(decimals("average"), expected)
    assert max(pad_losses) < 0.1 < loss
    assert re.findall(r"^T (\d+): (\w+)", cell("average")[1], re.M) == [
        (longest, kind) for longest in ("5", "10", "50") for kind in ("mean", "loss")
    ]
    means = cell("average")[0].mean.detach()
    p.close(means, torch.stack([(embed(s) + attend(embed(s))).mean(dim=0) for s in SENTENCES]), 1e-5)


@pytest.mark.parametrize(
    "replacements",
    [
        {"real.sum(dim=1) / lengths[:, None]": "real.mean(dim=1)"},
        {"/ lengths[:, None]": "/ lengths.sum()"},
        {"hidden.masked_fill(pads[:, :, None], 0.0)": "hidden"},
        {"padded.masked_fill(pads, -100)": "padded"},
    ],
)
def test_a_bug_of_the_averages_shows_in_the_print(replacements):
    assert p.run_cell(SLUG, "average", ("average", replacements))[1] != cell("average")[1]


def test_minus_100_is_what_cross_entropy_ignores_by_default():
    names = cell("average")[0]
    assert torch.equal(F.cross_entropy(names.logits, names.targets), names.loss)
    assert (names.targets == -100).sum() == 150 - 12


def test_the_last_row_is_a_pad_with_right_padding_and_the_last_token_with_left_padding():
    names, printed = cell("last")
    alone = [own_token_logits(sentence)[-1] for sentence in SENTENCES]
    p.close(torch.stack(names.alone).detach(), torch.stack(alone), 1e-5)
    p.close(names.left[:, -1].detach(), torch.stack(alone), 1e-5)
    p.close(names.newest.detach(), torch.stack(alone), 1e-5)
    wrong = (names.right[:, -1] - torch.stack(alone)).abs().amax(dim=-1)
    assert ((wrong > 0.1) == PAGE.masked[:, -1]).all()
    rows = [re.findall(r"\d+", line.split("tensor")[1]) for line in printed.splitlines()]
    assert rows == [["3", "8", "3"], ["0", "8", "0"], ["3", "8", "3"], ["3", "8", "3"]]
    assert [row.argmax() for row in alone] == [sentence[-1] for sentence in SENTENCES]
    assert [line.split("tensor")[0].strip() for line in printed.splitlines()] == [
        "alone",
        "right, row -1",
        "left, row -1",
        "right, lengths-1",
    ]


def test_the_last_row_of_a_causal_layer_is_that_of_this_layer():
    for sentence in SENTENCES:
        causal, both = attend(embed(sentence), causal=True), attend(embed(sentence))
        p.close(causal[-1], both[-1], 1e-6)
        assert (causal[0] - both[0]).abs().max() > 0.01


def test_a_causal_mask_hides_the_pads_on_the_right_and_not_those_on_the_left():
    for sentence in SENTENCES:
        alone, fill = attend(embed(sentence), causal=True), [PAD] * (6 - len(sentence))
        p.close(attend(embed(sentence + fill), causal=True)[: len(sentence)], alone, 1e-6)
        assert (attend(embed(fill + sentence), causal=True)[-len(sentence) :] - alone).abs().max() > 0.01


def test_position_ids_count_the_real_tokens_and_left_padding_needs_them():
    names, printed = cell("positions")
    counted = [[0] * (5 - n) + list(range(n)) for n in LENGTHS]
    assert names.position_ids.tolist() == counted
    assert printed.startswith(f"{torch.tensor(counted)}\n")
    assert names.left_ids.tolist() == [[PAD] * (5 - len(s)) + s for s in SENTENCES]

    def alone(sentence, first):
        return attend(embed(sentence) + names.positions[first : first + len(sentence)])

    shifted = [(alone(s, 5 - len(s)) - alone(s, 0)).abs().max() for s in SENTENCES]
    p.close(torch.cat(names.alone).detach(), torch.cat([alone(s, 0) for s in SENTENCES]), 1e-6)
    rounded(decimals("positions"), [0.0, max(shifted), 0.0])
    assert re.findall(r"^(.*): off", printed, re.M) == ["right", "left", "left, position_ids"]


@pytest.mark.parametrize(("old", "new"), [(" - 1).clamp", ").clamp"), ("cumsum(dim=1)", "cumsum(dim=0)")])
def test_wrong_position_ids_are_off(old, new):
    with_bug = p.run_cell(SLUG, "positions", ("positions", {old: new, "torch.randn(T, E)": "torch.randn(2 * T, E)"}))
    assert not with_bug[1].endswith("left, position_ids: off by 0.0000\n")


# -- recurrent networks: the final state -----------------------------------------------------------


def step_by_step(gru, rows):
    """The final state of a GRU, by its equations."""
    state = torch.zeros(gru.hidden_size)
    for row in rows:
        inputs = (gru.weight_ih_l0 @ row + gru.bias_ih_l0).split(gru.hidden_size)
        memory = (gru.weight_hh_l0 @ state + gru.bias_hh_l0).split(gru.hidden_size)
        reset, update = (torch.sigmoid(a + b) for a, b in zip(inputs[:2], memory[:2]))
        state = (1 - update) * torch.tanh(inputs[2] + reset * memory[2]) + update * state
    return state.detach()


@pytest.mark.usefixtures("on_the_cpu")
def test_the_final_state_of_a_gru_counts_the_pads_unless_they_are_packed_away():
    names, printed = cell("gru")
    assert names.gru.hidden_size == 4
    rows, zeros = [names.embedding[sentence] for sentence in SENTENCES], torch.zeros(5, 8)
    alone = torch.stack([step_by_step(names.gru, x) for x in rows])
    p.close(names.alone.detach(), alone, 1e-6)
    after = torch.stack([step_by_step(names.gru, torch.cat([x, zeros[len(x) :]])) for x in rows])
    before = torch.stack([step_by_step(names.gru, torch.cat([zeros[len(x) :], x])) for x in rows])
    rounded(decimals("gru"), [(after - alone).abs().max(), (before - alone).abs().max(), 0.0])
    assert re.findall(r"^(\w+): off by", printed, re.M) == ["right", "left", "packed"]


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_packing_gives_every_recurrent_network_the_states_of_the_sentences_alone(kind):
    p.seed_modules(0)
    network = kind(8, 4, batch_first=True, bidirectional=True)
    rows = [PAGE.embedding.cpu()[sentence] for sentence in SENTENCES]  # as the cell does
    batch = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    packed = pack_padded_sequence(batch, LENGTHS, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(network(packed)[0], batch_first=True)
    padded, _ = network(batch)
    for item, x in enumerate(rows):
        alone = network(x[None])[0][0]
        p.close(states[item, : len(x)], alone, 1e-6)
        assert len(x) == LONGEST or (padded[item, : len(x)] - alone).abs().max() > 0.01


# -- models of Transformers: encoder, generation, relative positions --------------------------------

IDS = {
    side: torch.tensor([s + [0] * (5 - len(s)) if side == "right" else [0] * (5 - len(s)) + s for s in SENTENCES])
    for side in ("right", "left")
}
KEEP = {side: ~pads(LENGTHS, LONGEST, side) for side in IDS}
COUNTED = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3]])
SMALL = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@functools.cache
def model(name):
    """A random model of two layers, in float64 and without dropout."""
    torch.default_generator.manual_seed(0)
    if name == "bert":
        from transformers.models.bert.modeling_bert import BertConfig, BertModel

        return BertModel(BertConfig(**SMALL, max_position_embeddings=8)).double().eval()
    if name == "llama":
        from transformers.models.llama.modeling_llama import LlamaConfig, LlamaModel

        return LlamaModel(LlamaConfig(**SMALL, initializer_range=0.5)).double().eval()
    from transformers.models.gpt2.modeling_gpt2 import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 20, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
    return (
        GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.5, bos_token_id=0, eos_token_id=None)).double().eval()
    )


def gap(network, side, **arguments):
    """How far the real rows of a padded batch are from those of the sentences alone."""
    with torch.no_grad():
        alone = torch.cat([network(torch.tensor([s])).last_hidden_state[0] for s in SENTENCES])
        outputs = network(IDS[side], attention_mask=KEEP[side].long(), **arguments).last_hidden_state
    return float((outputs[KEEP[side]] - alone).abs().max())


def test_bert_wants_its_pads_on_the_right_or_position_ids():
    assert gap(model("bert"), "right") < 1e-12
    assert gap(model("bert"), "left") > 1
    assert gap(model("bert"), "left", position_ids=COUNTED) < 1e-12


def test_bert_is_not_blind_to_order():
    with torch.no_grad():
        forth, back = (
            model("bert")(torch.tensor([s])).last_hidden_state[0] for s in (SENTENCES[1], SENTENCES[1][::-1])
        )
    assert (forth - back.flip(0)).abs().max() > 1


def test_rotary_positions_do_not_notice_the_shift_and_learned_ones_do():
    assert gap(model("llama"), "left") < 1e-5
    assert gap(model("gpt2").transformer, "left") > 1
    assert gap(model("gpt2").transformer, "left", position_ids=COUNTED) < 1e-12


def generated(ids, keep):
    tokens = model("gpt2").generate(ids, attention_mask=keep.long(), max_new_tokens=4, do_sample=False, pad_token_id=0)
    return tokens[:, ids.shape[1] :].tolist()


def test_generate_derives_positions_from_the_mask_and_continues_left_padded_sentences_only():
    alone = [generated(torch.tensor([s]), torch.ones(1, len(s)))[0] for s in SENTENCES]
    assert generated(IDS["left"], KEEP["left"]) == alone
    wrong = generated(IDS["right"], KEEP["right"])
    assert wrong != alone
    assert wrong[1] == alone[1]


def test_generate_warns_of_right_padding(monkeypatch):
    model("gpt2")
    from transformers.generation import utils

    said = []
    monkeypatch.setattr(utils.logger, "warning", said.append)
    generated(IDS["left"], KEEP["left"])
    assert said == []
    generated(IDS["right"], KEEP["right"])
    assert "right-padding was detected" in said[0]


# -- the claims of the page ----------------------------------------------------------------------


def test_a_mask_that_hides_nothing_changes_nothing():
    names, printed = cell("reduce")
    assert printed == "True\n[False, True, False]\n"
    for item, row in enumerate(PAGE.ids.tolist()):
        p.close(names.plain[item].detach(), attend(embed(row)), 1e-6)
    assert not names.nothing.any()
    assert names.nothing.shape == (3, 5)


def test_torch_computes_the_same_and_the_mask_of_transformers_is_1_where_a_token_is_real():
    names, printed = cell("in-torch")
    assert printed == f"True\nTrue\nTrue\n{torch.tensor([[1, 1, 1, 0, 0], [1] * 5, [1, 1, 1, 1, 0]])}\n"
    assert torch.equal(names.keep, ~pads(LENGTHS, LONGEST, "right")[:, None, None])
    for item, sentence in enumerate(SENTENCES):
        for ours in (names.fused, names.ours):
            p.close(ours[item, : len(sentence)].detach(), attend(embed(sentence)), 1e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [("keep = ~masked", "keep = masked"), ("mask=masked)", "mask=~masked)"), ("mean(dim=1)", "sum(dim=1)")],
)
def test_torch_disagrees_when_the_cell_is_wrong(old, new):
    assert "False" in p.run_cell(SLUG, "in-torch", ("in-torch", {old: new}))[1]


def test_a_pad_of_zeros_still_takes_weight():
    inputs = PAGE.embedding[PAGE.ids].masked_fill(PAGE.masked[..., None], 0.0)
    _, weights = PAGE.attention(inputs)
    assert weights[0, :, :3, 3:].min() > 0.1


def test_rows_that_hide_everything_are_nan():
    row = torch.full((5,), -torch.inf)
    assert torch.softmax(row, dim=-1).isnan().all()
    assert (torch.zeros(2) @ torch.tensor([[torch.nan], [1.0]])).isnan().all()


def test_ids_compared_with_0_are_the_mask_only_while_0_is_nothing_but_a_pad():
    assert torch.equal(PAGE.ids == 0, PAGE.masked)
    ends = PAGE.ids.clone()
    ends[0, 2] = PAD  # the sentence ends in its end-of-text token, which is the pad too
    assert ((ends == 0) & ~PAGE.masked).sum() == 1


@pytest.mark.parametrize("name", ["weights", "probe"])
def test_numbers_are_printed_without_their_gradients(name):
    assert "grad" not in cell(name)[1]


@pytest.mark.parametrize(
    ("name", "quoted"),
    {
        "probe": ["0.2826"],
        "average": ["-0.4930", "-1.0684", "-0.0668", "0.5725", "0.1215", "0.7012"],
        "positions": ["0.6406"],
        "gru": ["0.4951", "0.0275"],
    }.items(),
)
def test_the_numbers_of_the_prose_are_printed(name, quoted):
    """The seeds are part of the page."""
    printed = [f"{number:.4f}" for number in decimals(name)]
    assert [number for number in quoted if number not in printed] == []
    page = (p.ROOT / f"docs/en/{SLUG}.md").read_text(encoding="utf-8")
    assert [number for number in quoted if number.replace("-", "−") not in page] == []


# -- the exercise --------------------------------------------------------------------------------


def columns(masked):
    return torch.arange(masked.shape[1])


def row(hidden, places):
    return hidden[torch.arange(len(hidden)), places]


def last_place(masked):
    return torch.where(masked, -1, columns(masked)).argmax(dim=1)


def zeroed_in_place(hidden, masked):
    hidden[masked] = 0
    return hidden[:, -1]


def all_zeros_in_place(hidden, masked):
    hidden.zero_()
    return row(hidden, last_place(masked))


def everything_hidden_in_place(hidden, masked):
    masked.fill_(False)
    return hidden[:, -1]


RIGHT = {
    "loop": lambda h, m: torch.stack([rows[~hidden][-1] for rows, hidden in zip(h, m)]),
    "columns times the mask": lambda h, m: row(h, (columns(m) * ~m).argmax(dim=1)),
    "first real token from behind": lambda h, m: row(h, m.shape[1] - 1 - (~m).int().flip(1).argmax(dim=1)),
    "first place of the largest count": lambda h, m: row(h, (~m).cumsum(dim=1).argmax(dim=1)),
    "gathered": lambda h, m: h.gather(1, last_place(m)[:, None, None].expand(-1, 1, h.shape[2]))[:, 0],
    "in place, on what it was given": lambda h, m: row(h, columns(m).repeat(len(m), 1).masked_fill_(m, -1).argmax(1)),
}
WRONG = {
    "returns None": lambda h, m: None,
    "a list": lambda h, m: row(h, last_place(m)).tolist(),
    "a numpy array": lambda h, m: row(h, last_place(m)).numpy(),
    "raises": lambda h, m: h[:, m.shape[1]],
    "the places": lambda h, m: last_place(m),
    "float64": lambda h, m: row(h, last_place(m)).double(),
    "an axis too many": lambda h, m: row(h, last_place(m))[:, None],
    "one matrix per place": lambda h, m: h[:, last_place(m)],
    "row -1": lambda h, m: h[:, -1],
    "row -1, pads set to 0": zeroed_in_place,
    "row 0": lambda h, m: h[:, 0],
    "first real token": lambda h, m: row(h, (~m).int().argmax(dim=1)),
    "length - 1": lambda h, m: row(h, (~m).sum(dim=1) - 1),
    "length": lambda h, m: row(h, (~m).sum(dim=1) % m.shape[1]),
    "the largest length - 1": lambda h, m: h[:, (~m).sum(dim=1).max() - 1],
    "before the first pad": lambda h, m: row(h, m.int().argmax(dim=1) - 1),
    "before the last pad": lambda h, m: row(h, torch.where(m, columns(m), 0).argmax(dim=1) - 1),
    "the first pad": lambda h, m: row(h, m.int().argmax(dim=1)),
    "the last pad": lambda h, m: row(h, torch.where(m, columns(m), -1).argmax(dim=1)),
    "the one before": lambda h, m: row(h, last_place(m) - 1),
    "the one after": lambda h, m: row(h, (last_place(m) + 1) % m.shape[1]),
    "the place of the first sentence": lambda h, m: h[:, last_place(m)[0]],
    "polarity inverted by ~ on integers": lambda h, m: row(h, (columns(m) * ~m.int()).argmax(dim=1)),
    "mean of the real tokens": lambda h, m: h.masked_fill(m[..., None], 0).sum(1) / (~m).sum(1, keepdim=True),
    "mean of all": lambda h, m: h.mean(dim=1),
    "sum of the real tokens": lambda h, m: h.masked_fill(m[..., None], 0).sum(dim=1),
    "largest of the real tokens": lambda h, m: h.masked_fill(m[..., None], -torch.inf).amax(dim=1),
    "five columns": lambda h, m: row(h, torch.where(m, -1, torch.arange(5)).argmax(dim=1)),
    "three sentences": lambda h, m: h[torch.arange(3), last_place(m)],
    "last row that is not 0": lambda h, m: row(h, columns(m).expand(m.shape).masked_fill(h[..., 0] == 0, -1).argmax(1)),
    "right if a sentence starts at 0": lambda h, m: row(h, (~m).sum(1) - 1) if not m[:, 0].any() else h[:, -1],
    "all but single sentences": lambda h, m: row(h, last_place(m)) if len(h) > 1 else h[:, 0],
    "all but unpadded batches": lambda h, m: row(h, last_place(m)) if m.any() else h[:, 0],
    "zeros, in place": all_zeros_in_place,
    "pads made real, in place": everything_hidden_in_place,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_last_token", RIGHT, WRONG

    @pytest.mark.parametrize(
        ("answer", "said"),
        {
            "returns None": "xxx.. xxxxx xxxx.: it does not return a tensor of floats",
            "float64": "xxx.. xxxxx xxxx.: it does not return a tensor of floats",
            "raises": "xxx.. xxxxx xxxx.: it stops with IndexError",
            "an axis too many": "xxx.. xxxxx xxxx.: shape (3, 1, 7), not (3, 7)",
            "row -1": "xxx.. xxxxx xxxx.: row 0 is not the last real token",
            "length - 1": "..xxx xxxxx .xxxx: row 0 is not the last real token",
            "before the first pad": "..xx. x.... ...x. .xxxx: row 0 is not the last real token",
            "right if a sentence starts at 0": "..xx. x.... ...x. .xxxx: row 0 is not the last real token",
            "all but unpadded batches": "xx xx: row 0 is not the last real token",
            "all but single sentences": "..x: row 0 is not the last real token",
        }.items(),
    )
    def test_the_check_names_the_first_fault(self, answer, said):
        assert self.verdict(WRONG[answer]) == f"not yet: {said}\n"
