"""Alignment: the additive score against plain loops, the map that training draws, and the ways to misread it."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import BartConfig, BartModel

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "cross/alignment"
PAGE, SOLUTION = p.page_code(SLUG, "after"), p.page_code(SLUG, "solution")
SIZES = p.sizes(B=3, Tq=4, Tk=(2, 6), D=5)

# -- additive scores -----------------------------------------------------------------------------


def roles(case):
    return case.randn(case.B, case.Tq, case.D), case.randn(case.B, case.Tk, case.D), case.randn(case.D)


def one_float_at_a_time(queries, keys, vector):
    def score(query, key):
        return sum(v * math.tanh(x + y) for v, x, y in zip(vector.tolist(), query, key))

    rows = [[[score(x, y) for y in ours] for x in theirs] for theirs, ours in zip(queries.tolist(), keys.tolist())]
    return torch.tensor(rows, dtype=queries.dtype)


def test_additive_scores_are_those_of_a_loop_over_floats():
    p.equals_reference(
        lambda case: PAGE.additive_scores(*case), lambda case: one_float_at_a_time(*case), SIZES.map(roles)
    )


def test_additive_scores_are_a_network_of_torch_with_one_hidden_layer():
    """With the projections of the formula, on the two vectors side by side."""
    torch.manual_seed(0)
    E, D = 3, 4
    W_query, W_key, vector = torch.randn(E, D), torch.randn(E, D), torch.randn(D)
    query, key = torch.randn(E), torch.randn(E)
    network = nn.Sequential(nn.Linear(2 * E, D, bias=False), nn.Tanh(), nn.Linear(D, 1, bias=False))
    network.load_state_dict({"0.weight": torch.cat([W_query, W_key]).T, "2.weight": vector[None]})
    ours = PAGE.additive_scores((query @ W_query)[None, None], (key @ W_key)[None, None], vector)
    p.close(ours.flatten(), network(torch.cat([query, key])).flatten(), 1e-5)


def test_additive_scores_change_nothing_that_they_are_given():
    p.stateless(lambda case: (PAGE.additive_scores, roles(case), roles(case)), SIZES)


# -- the model and its training --------------------------------------------------------------------


def with_model(case):
    case.V, case.E = case.D + 2, case.D + 1
    p.seed_modules(case.seed)
    case.model = PAGE.Translator(case.Tq, case.Tk, case.V, case.E, case.D).double()
    case.source = torch.randint(case.V, (case.B, case.Tk))
    return case


def translated(case):
    return torch.cat(case.model(case.source), dim=-1)


def by_the_formula(case):
    """Each sentence and each query alone, with the parameters of the model."""
    state = dict(case.model.named_parameters())
    logits, weights = [], []
    for sentence in case.source:
        words = state["words.weight"][sentence]
        keys = (words + state["places"]) @ state["to_keys.weight"].T
        queries = state["asks"] @ state["to_queries.weight"].T + state["to_queries.bias"]
        rows = [F.softmax((query + keys).tanh() @ state["vector"], dim=0) for query in queries]
        weights.append(torch.stack(rows))
        contexts = torch.stack([(row[:, None] * words).sum(dim=0) for row in rows])
        logits.append(contexts @ state["to_logits.weight"].T + state["to_logits.bias"])
    return torch.cat([torch.stack(logits), torch.stack(weights)], dim=-1)


def test_the_model_and_its_gradients_are_those_of_the_formula():
    models = SIZES.map(with_model)
    p.equals_reference(translated, by_the_formula, models)
    p.gradients_equal(translated, by_the_formula, lambda case: case.model.parameters(), models)


def test_training_takes_the_steps_of_a_loop_of_its_own():
    """The loss by hand, on the source reordered, with new gradients in each step; then comes an unseen source."""
    torch.manual_seed(2)
    model = PAGE.Translator(8, 5, 10, 12, 24)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(4):
        source = torch.randint(10, (20, 5))
        target = torch.stack([source[:, j] for j in (0, 1, 4, 3, 2, 2, 2, 2)], dim=1)
        logits, _ = model(source)
        loss = -logits.log_softmax(dim=-1).gather(-1, target[..., None]).mean()
        for tensor, gradient in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()])):
            tensor.grad = gradient
        optimizer.step()
    next_source = torch.randint(10, (20, 5))
    theirs, unseen = PAGE.train(4)
    for tensor, other in zip(model.parameters(), theirs.parameters()):
        p.close(tensor, other, 1e-4)
    assert torch.equal(unseen, next_source)


def test_the_map_of_the_page_is_far_from_the_edges_of_rounding_to_one_decimal():
    assert (PAGE.weights - F.one_hot(PAGE.order, 5)).abs().max() < 0.045


def test_the_lines_of_the_picture_are_those_of_the_map():
    picture = (p.ROOT / "docs/assets/alignment-lines.svg").read_text(encoding="utf-8")
    read, written = (
        re.findall(rf'<text class="code" x="([\d.]+)" y="{row}"[^>]*>(\w+)<', picture) for row in ("37", "165")
    )
    lines = re.findall(r'd="M([\d.]+) 48C.* ([\d.]+) 142"', picture)
    read_by = PAGE.weights.mean(dim=0).argmax(dim=-1).tolist()
    assert lines == [(read[j][0], x) for j, (x, _) in zip(read_by, written, strict=True)]


# -- the claims of the page ----------------------------------------------------------------------


def test_a_map_read_on_its_side_pairs_other_words():
    page = p.page_code(SLUG, "transposed")
    right = {"because": "weil", "he": "er", "drinks": "trinkt", "cold": "kalten", "tea": "Tee"}
    assert dict(SOLUTION.align(page.weights, page.source, page.target)) == right
    assert dict(SOLUTION.align(page.weights.T, page.source, page.target)) != right


def test_the_three_masks_are_those_that_a_loop_finds():
    page = p.page_code(SLUG, "three")
    sources, targets = [7, 4, 6], [5, 3, 4]
    may = {
        "encoder self": lambda b, i, j: j < sources[b],
        "decoder self": lambda b, i, j: j < targets[b] and j <= i,
        "cross": lambda b, i, j: j < sources[b],
    }
    for name, (scores, visible) in page.attentions.items():
        B, _, rows, columns = scores.shape
        wanted = [[[may[name](b, i, j) for j in range(columns)] for i in range(rows)] for b in range(B)]
        assert torch.equal(visible.expand(B, 1, rows, columns)[:, 0], torch.tensor(wanted))


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


# -- the exercise --------------------------------------------------------------------------------

PAD = "<pad>"


def real(words):
    return torch.tensor([word != PAD for word in words])


def pairs(best, source, target):
    return [(word, source[j]) for word, j in zip(target, best.tolist()) if word != PAD]


def unpadded(weights, source):
    return weights.masked_fill(~real(source), -torch.inf)


def by_rows(weights, source, target):
    """Plain Python, no masks."""
    found = []
    for row, word in zip(weights.tolist(), target):
        candidates = [(weight, j) for j, weight in enumerate(row) if source[j] != PAD]
        if word != PAD:
            found.append((word, source[max(candidates)[1]]))
    return found


def by_cutting(weights, source, target):
    kept = [word for word in source if word != PAD]
    return pairs(weights[:, real(source)].argmax(dim=-1), kept, target)


def greedy(weights, source, target):
    """Each source word once."""
    weights, found = unpadded(weights, source), []
    for i, word in enumerate(target):
        j = int(weights[i].argmax())
        weights[:, j] = -torch.inf
        found.append((word, source[j]))
    return [pair for pair in found if pair[0] != PAD]


def emptied(weights, source, target):
    found = by_rows(weights, source, target)
    source.clear()
    target.clear()
    weights.zero_()
    return found


def right_pads_only(w, s, t):
    return pairs(w[:, : len(s) - s.count(PAD)].argmax(-1), s, t)


def best_after_the_pads(w, s, t):
    return [pair for pair in pairs(w.argmax(-1), s, t) if pair[1] != PAD]


def words_of(best):
    return lambda w, s, t: pairs(best(unpadded(w, s), w, s), s, t)


RIGHT = {
    "the solution": lambda w, s, t: SOLUTION.align(w, s, t),
    "plain Python": by_rows,
    "pads cut out": by_cutting,
    "weights of pads set to 0": lambda w, s, t: pairs((w * real(s)).argmax(-1), s, t),
    "sorted": lambda w, s, t: pairs(unpadded(w, s).sort(dim=-1).indices[:, -1], s, t),
    "spoils what it was given": emptied,
}
WRONG = {
    "returns None": lambda w, s, t: None,
    "pads of the source kept": lambda w, s, t: pairs(w.argmax(-1), s, t),
    "pads of the target kept": lambda w, s, t: [(x, s[j]) for x, j in zip(t, unpadded(w, s).argmax(-1).tolist())],
    "rows dropped whose best word is a pad": best_after_the_pads,
    "map transposed": lambda w, s, t: pairs(w.T.argmax(-1), s, t),
    "best row of each column": lambda w, s, t: pairs(unpadded(w, s).argmax(dim=0), s, t),
    "pairs for each source word": lambda w, s, t: [(t[i], x) for x, i in zip(s, w.argmax(0).tolist()) if x != PAD],
    "smallest weight": words_of(lambda h, w, s: w.masked_fill(~real(s), torch.inf).argmin(-1)),
    "filled with 1 where real": lambda w, s, t: pairs(w.masked_fill(real(s), -torch.inf).argmax(-1), s, t),
    "one argmax for all": words_of(lambda h, w, s: h.flatten().argmax().repeat(len(w)) % len(s)),
    "second largest": words_of(lambda h, w, s: h.sort(dim=-1).indices[:, -2]),
    "in order of the source": words_of(lambda h, w, s: h.argmax(-1).sort().values),
    "never backwards": words_of(lambda h, w, s: h.argmax(-1).cummax(0).values),
    "each source word once": greedy,
    "pads cut off on the right only": right_pads_only,
    "the diagonal": lambda w, s, t: [(x, y) for x, y in zip(t, s) if PAD not in (x, y)],
    "source word first": lambda w, s, t: [(y, x) for x, y in by_rows(w, s, t)],
    "a dictionary": lambda w, s, t: dict(by_rows(w, s, t)),
    "pairs of a dictionary": lambda w, s, t: list(dict(by_rows(w, s, t)).items()),
    "a set, sorted": lambda w, s, t: sorted(set(by_rows(w, s, t))),
    "a tuple": lambda w, s, t: tuple(by_rows(w, s, t)),
    "a generator": lambda w, s, t: (pair for pair in by_rows(w, s, t)),
    "lists in a list": lambda w, s, t: [list(pair) for pair in by_rows(w, s, t)],
    "indices": lambda w, s, t: list(enumerate(unpadded(w, s).argmax(-1).tolist())),
    "source words alone": lambda w, s, t: [y for _, y in by_rows(w, s, t)],
    "strings": lambda w, s, t: [f"{x} {y}" for x, y in by_rows(w, s, t)],
    "only weights above one half": lambda w, s, t: [
        (x, s[j]) for i, x in enumerate(t) for j in range(len(s)) if w[i, j] > 0.5 and PAD not in (x, s[j])
    ],
    "kept words, old indices": lambda w, s, t: pairs(w[:, real(s)].argmax(-1), s, t),
    "reversed": lambda w, s, t: by_rows(w, s, t)[::-1],
    "stops at the first pad": lambda w, s, t: by_rows(w, s, t)[: t.index(PAD) if PAD in t else None],
    "two arguments": lambda w, s: None,
}  # fmt: skip


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_align", RIGHT, WRONG


def test_a_wrong_list_is_told_what_was_expected():
    assert "expected" in p.verdict(SOLUTION.check_align, WRONG["pads of the target kept"])
