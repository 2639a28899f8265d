"""Alignment: additive attention against plain loops, the map that training draws, and the ways to misread it."""

import math
import re
from itertools import pairwise

import pytest
import torch
from torch import nn
from transformers import BartConfig, BartModel

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "cross/alignment"
PAGE, SOLUTION = p.page_code(SLUG, "map"), p.page_code(SLUG, "solution")
CLAUSE, ORDER = "weil er vorgestern Tee kaufte", [0, 1, 4, 3, 2, 2, 2, 2]
SIZES = p.sizes(B=3, Tq=4, Tk=6, D=5, E=4)


def drawn(case):
    """A layer for states of two widths, its inputs, and a mask that shows at least one state of each sentence."""
    p.seed_modules(case.seed)
    case.layer = PAGE.AdditiveAttention(case.E + 1, case.E, case.D).double()
    case.inputs, case.states = case.randn(case.B, case.Tq, case.E + 1), case.randn(case.B, case.Tk, case.E)
    case.is_real = case.randn(case.B, case.Tk) > 0
    case.is_real[:, case.seed % case.Tk] = True
    return case


CASES = SIZES.map(drawn)


def attended(case):
    return torch.cat(case.layer(case.inputs, case.states, case.is_real), dim=-1)


def one_pair_at_a_time(case):
    """The formula for one query and one key, over the visible states of each sentence alone."""
    W_query, W_key, vector = case.layer.to_queries.weight.T, case.layer.to_keys.weight.T, case.layer.vector
    rows = []
    for b in range(case.B):
        kept = [j for j in range(case.Tk) if case.is_real[b, j]]
        for query in case.inputs[b] @ W_query:
            scores = torch.stack([(query + case.states[b, j] @ W_key).tanh().dot(vector) for j in kept])
            shares = scores.exp() / scores.exp().sum()
            weights = torch.zeros(case.Tk, dtype=torch.float64).index_put((torch.tensor(kept),), shares)
            context = sum(share * case.states[b, j] for share, j in zip(shares, kept))
            rows.append(torch.cat([context, weights]))
    return torch.stack(rows).view(case.B, case.Tq, -1)


def test_the_class_and_its_gradients_are_those_of_the_formula():
    p.equals_reference(attended, one_pair_at_a_time, CASES)
    p.gradients_equal(attended, one_pair_at_a_time, lambda case: [*case.layer.parameters(), case.inputs], CASES)


@pytest.mark.parametrize("shape", [(2, 4), (2, 1), (1, 5), (2, 1, 5), (2, 3, 5)])
def test_a_mask_of_another_shape_is_refused(shape):
    layer = PAGE.AdditiveAttention(4, 4, 3)
    with pytest.raises(ValueError, match="is_real needs one entry for each state"):
        layer(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.ones(shape, dtype=torch.bool))


def test_a_new_vector_keeps_the_scores_near_1_at_any_width():
    torch.manual_seed(0)
    for D in (64, 1024):
        norms = torch.stack([PAGE.AdditiveAttention(2, 2, D).vector.norm() for _ in range(20)])
        assert 0.9 < norms.mean() < 1.1


# -- the translator and its training ---------------------------------------------------------------


def translator(case):
    p.seed_modules(case.seed)
    case.model = PAGE.Translator(case.D + 2, case.D + 3, case.E, case.D).double()
    case.source = torch.randint(1, case.D + 2, (case.B, case.Tk))
    case.source[0, case.seed % case.Tk + 1 :] = 0
    case.target = torch.randint(case.D + 3, (case.B, case.Tq))
    return case


TRANSLATORS = SIZES.map(translator)


def step_by_step(case, target=None):
    """Each sentence alone and without its pads, the two recurrences written out."""
    model, sentences = case.model, []
    for b, source in enumerate(case.source):
        states, state = [], torch.zeros(case.E, dtype=torch.float64)
        for word in source[source > 0]:
            state = recur(model.encoder, "_l0", model.read.weight[word], state)
            states.append(state)
        states, state = torch.stack(states), torch.zeros(case.E, dtype=torch.float64)
        previous, rows = 0, []
        for i in range(case.Tq):
            everywhere = torch.ones(1, len(states), dtype=torch.bool)
            context, weights = model.attend(state[None, None], states[None], everywhere)
            state = recur(model.decoder, "", torch.cat([model.written.weight[previous], context[0, 0]]), state)
            logits = model.to_logits(state)
            previous = logits.argmax() if target is None else target[b, i]
            rows.append(torch.cat([logits, weights[0, 0], weights.new_zeros(case.Tk - len(states))]))
        sentences.append(torch.stack(rows))
    return torch.stack(sentences)


def recur(layer, name, inputs, state):
    from_inputs = getattr(layer, f"weight_ih{name}") @ inputs + getattr(layer, f"bias_ih{name}")
    from_state = getattr(layer, f"weight_hh{name}") @ state + getattr(layer, f"bias_hh{name}")
    return (from_inputs + from_state).tanh()


def given(case):
    return torch.cat(case.model(case.source, case.Tq, case.target), dim=-1)


def taught(case):
    return step_by_step(case, case.target)


def test_the_translator_and_its_gradients_are_those_of_the_recurrences_written_out():
    p.equals_reference(given, taught, TRANSLATORS)
    p.gradients_equal(given, taught, lambda case: case.model.parameters(), TRANSLATORS)
    p.equals_reference(lambda case: torch.cat(case.model(case.source, case.Tq), dim=-1), step_by_step, TRANSLATORS)


def test_every_fourth_clause_is_new_and_short_ones_end_in_pads():
    assert (len(PAGE.source), int(PAGE.is_new.sum()), int((~PAGE.is_new).sum())) == (324, 81, 243)
    assert PAGE.is_new.nonzero().flatten().tolist() == list(range(0, 324, 4))
    pairs = (PAGE.german, PAGE.source, PAGE.german_words), (PAGE.english, PAGE.target, PAGE.english_words)
    for texts, ids, words in pairs:
        assert [[words[i] for i in row if i] for row in ids.tolist()] == [text.split() for text in texts]
    assert (PAGE.german[0], PAGE.english[0]) == (CLAUSE, "because he bought tea the day before yesterday")


def test_the_map_reads_the_word_that_is_translated_and_column_2_has_the_largest_sum():
    weights = PAGE.weights[0]
    assert weights.argmax(dim=-1).tolist() == ORDER
    assert weights.sum(dim=0).argmax() == 2
    assert 3 < weights.sum(dim=0)[2] < 3.5
    assert (weights.detach() * 100 % 1 - 0.5).abs().min() > 1e-3, "too near to another second decimal"


def test_with_seed_0_the_words_stay_right_and_yesterday_reads_weil():
    logits, weights = PAGE.train_translator(100, seed=0)(PAGE.source, 8)
    assert torch.equal(logits.argmax(dim=-1)[PAGE.is_new], PAGE.target[PAGE.is_new])
    assert weights[0].argmax(dim=-1).tolist() == [*ORDER[:-1], 0]


def test_the_pictures_show_the_map():
    lines, step = (
        (p.ROOT / f"docs/assets/alignment-{name}.svg").read_text(encoding="utf-8") for name in ("lines", "decoder")
    )
    read, written = (re.findall(rf'<text class="code" x="([\d.]+)" y="{row}"', lines) for row in ("37", "165"))
    drawn = re.findall(r'd="M([\d.]+) 48C.* ([\d.]+) 142"', lines)
    assert drawn == [(read[j], x) for j, x in zip(ORDER, written, strict=True)]
    assert re.findall(r">(\d\.\d\d)<", step) == [f"{weight:.2f}" for weight in PAGE.weights[0, 2].tolist()]


# -- the claims of the page ------------------------------------------------------------------------


def test_a_gated_network_keeps_more_of_the_first_token():
    page = p.page_code(SLUG, "bottleneck")

    def kept(encoder):
        moved = (encoder(page.changed)[0] - encoder(page.inputs)[0]).norm(dim=-1).mean(dim=1)
        return moved[15] / moved[0]

    torch.manual_seed(0)
    gated = [kind(page.E, page.E, device="cpu") for kind in (nn.GRU, nn.LSTM)]
    page.inputs, page.changed, page.encoder = page.inputs.cpu(), page.changed.cpu(), page.encoder.cpu()
    assert min(map(kept, gated)) > 10 * kept(page.encoder)


def test_an_additive_score_is_bounded_and_deviations_grow_like_the_root_of_width():
    page, printed = p.run_cell(SLUG, "widths")
    assert (page.additive.abs() <= page.vectors.abs().sum(dim=-1)).all()
    rows = [[float(number) for number in re.findall(r"\d+\.\d", line)] for line in printed.splitlines()]
    for smaller, larger in pairwise(rows):
        ratios = [y / x for x, y in zip(smaller, larger)]
        assert [round(math.log2(ratio)) for ratio in ratios] == [2, 2, 4]  # 16 times the width: 4, 4 and 16 times


@pytest.mark.parametrize(("implementation", "layers"), [("eager", 3), (None, 0)])
def test_transformers_returns_cross_attentions_from_eager_attention_only(implementation, layers):
    config = BartConfig(
        vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=3, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=16,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    chosen = {"attn_implementation": implementation} if implementation else {}
    model = BartModel._from_config(config, **chosen).eval()
    source, target = torch.randint(3, 20, (3, 7)), torch.randint(3, 20, (3, 5))
    found = model(input_ids=source, decoder_input_ids=target, output_attentions=True).cross_attentions
    assert [tuple(weights.shape) for weights in found] == layers * [(3, 2, 5, 7)]


def among_the_real(weights, is_real):
    return weights.mean(dim=1).masked_fill(~is_real[:, None], -torch.inf)


def by_where(w, v, at_least):
    maps = among_the_real(w, v)
    return torch.where(maps.amax(-1) < at_least, -1, maps.argmax(-1))


def renormalised(w, v, at_least):
    maps = w.mean(1) * v[:, None]
    return by_where((maps / maps.sum(-1, keepdim=True))[:, None], v, at_least)


RIGHT = {"where": by_where}
WRONG = {
    "the largest weight of any head": lambda w, v, t: by_where(w.amax(1, keepdim=True), v, t),
    "renormalised without the pads": renormalised,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_align", RIGHT, WRONG


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda w, r, t: w.mean(1).argmax(-1), "sentence 0: it returns [1, 4, 4, 0], not [1, 4, -1, 0]"),
        (lambda w, r, t: by_where(w, r, t).float(), "the dtype is torch.float32"),
        (lambda w, r, t: by_where(w, r, t)[:, None], "the shape is (2, 1, 4), not (2, 4)"),
        (lambda w, r, t: w.masked_fill(~r[:, None], 0), "RuntimeError: The size of tensor a"),
        (lambda w, r, t: by_where(w, r, t + 0 * w.sum().item()), "on the device meta"),
    ],
)
def test_the_check_says_what_is_wrong_with_an_answer(answer, said):
    assert f"not yet: sizes (2, 3, 4, 6): {said}" in p.verdict(SOLUTION.check_align, answer)


SURVIVORS = {
    "the two tensors have two axes: 1 is the last": ["inputs = torch.cat([self.written(word), context[:, 0]], dim=1)"],
    "the logits of a step have two axes: 1 is the last": [
        "word = logits[i].argmax(dim=1) if target is None else target[:, i]"
    ],
}
ACCEPTED = {
    "weights lie between 0 and 1, so any number below 0 hides one": [
        "hidden by -20.0",
        "hidden by -10000.0",
    ],
}
