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
PAGE, SOLUTION = p.page_code(SLUG, "train"), p.page_code(SLUG, "solution")
SIZES = p.sizes(B=3, Tq=4, Tk=(2, 6), D=5)

# -- additive scores -----------------------------------------------------------------------------


def roles(case):
    return case.randn(case.B, case.Tq, case.D), case.randn(case.B, case.Tk, case.D), case.randn(case.D)


def one_float_at_a_time(queries, keys, vector):
    def score(query, key):
        return sum(v * math.tanh(x + y) for v, x, y in zip(vector.tolist(), query, key))

    rows = [[[score(x, y) for y in ours] for x in theirs] for theirs, ours in zip(queries.tolist(), keys.tolist())]
    return torch.tensor(rows, dtype=queries.dtype)


def scores_equal_the_loop(code):
    p.equals_reference(
        lambda case: code.additive_scores(*roles_once(case)),
        lambda case: one_float_at_a_time(*case.roles),
        SIZES,
    )


def roles_once(case):
    case.roles = roles(case)
    return case.roles


def scores_stay_below_the_sum_of_the_vector(code):
    def prove(case):
        queries, keys, vector = roles(case)
        scores = code.additive_scores(100 * queries, 100 * keys, vector)
        assert scores.shape == (case.B, case.Tq, case.Tk)
        assert (scores.abs() <= vector.abs().sum() + 1e-12).all()

    p.for_all(SIZES, prove)


def scores_are_stateless(code):
    p.stateless(lambda case: (code.additive_scores, roles(case), roles(case)), SIZES)


SCORE_PROPERTIES = [scores_equal_the_loop, scores_stay_below_the_sum_of_the_vector, scores_are_stateless]

# -- the model -----------------------------------------------------------------------------------


def translators(code):
    def build(case):
        case.V, case.E = case.D + 2, case.D + 1
        p.seed_modules(case.seed)
        case.model = code.Translator(case.Tq, case.Tk, case.V, case.E, case.D).double()
        generator = torch.Generator().manual_seed(case.seed)
        case.source = torch.randint(case.V, (case.B, case.Tk), generator=generator)
        return case

    return p.sizes(B=3, Tq=4, Tk=(2, 6), D=5).map(build)


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


def the_model_equals_the_formula(code):
    p.equals_reference(lambda case: torch.cat(case.model(case.source), dim=-1), by_the_formula, translators(code))


def every_parameter_learns_as_by_the_formula(code):
    def ours(case):
        return torch.cat(case.model(case.source), dim=-1)

    p.gradients_equal(ours, by_the_formula, lambda case: case.model.parameters(), translators(code))


def rows_sum_to_one(code):
    def prove(case):
        sums = case.model(case.source)[1].sum(dim=-1)
        p.close(sums, torch.ones(case.B, case.Tq, dtype=torch.float64))

    p.for_all(translators(code), prove)


MODEL_PROPERTIES = [the_model_equals_the_formula, every_parameter_learns_as_by_the_formula, rows_sum_to_one]
ROWS = "softmax(dim=-1)"
BUGS = {  # what stands in the code, what the bug makes of it, and the properties that catch it
    "keys along the queries": ("additive", {"keys[:, None]": "keys[:, :, None]"}, [scores_equal_the_loop]),
    "difference in place of sum": ("additive", {" + keys": " - keys"}, [scores_equal_the_loop]),
    "no tanh": (
        "additive", {"sums.tanh()": "sums"}, [scores_equal_the_loop, scores_stay_below_the_sum_of_the_vector]
    ),
    "in place": ("additive", {"sums.tanh()": "sums.tanh_().add_(keys.mul_(1.5).sum() * 0)"}, [scores_are_stateless]),
    "no vector": ("additive", {"sums.tanh() @ vector": "sums.tanh().sum(dim=-1)"}, [scores_equal_the_loop]),
    "softmax over the queries": ("model", {ROWS: "softmax(dim=1)"}, [the_model_equals_the_formula, rows_sum_to_one]),
    "no softmax": ("model", {f".{ROWS}": ""}, [the_model_equals_the_formula, rows_sum_to_one]),
    "no places": ("model", {"words + self.places": "words"}, [the_model_equals_the_formula]),
    "keys as values": (
        "model", {"weights @ words": "weights @ (words + self.places)"}, [the_model_equals_the_formula]
    ),
    "weights cut from the gradient": (
        "model", {ROWS: f"{ROWS}.detach()"}, [every_parameter_learns_as_by_the_formula]
    ),
    "a vector that does not learn": (
        "model",
        {"self.vector).softmax": "self.vector.detach()).softmax"},
        [every_parameter_learns_as_by_the_formula],
    ),
}  # fmt: skip


@pytest.mark.parametrize("holds", [*SCORE_PROPERTIES, *MODEL_PROPERTIES])
def test_the_code_has_the_property(holds):
    holds(PAGE)


@pytest.mark.parametrize("bug", BUGS)
def test_a_known_bug_is_caught_by_the_properties_that_the_table_names(bug):
    cell, replacements, catching = BUGS[bug]
    code = p.page_code(SLUG, "train", (cell, replacements))
    assert [holds for holds in catching if not p.catches(holds, code)] == []


@pytest.mark.parametrize("holds", [*SCORE_PROPERTIES, *MODEL_PROPERTIES])
def test_every_property_catches_a_bug(holds):
    assert any(holds in catching for _, _, catching in BUGS.values())


def test_the_score_is_a_network_with_one_hidden_layer():
    """The formula of the page, with projections, is a network of torch on the two vectors side by side."""
    torch.manual_seed(0)
    E, D = 3, 4
    W_Q, W_K, vector = torch.randn(E, D), torch.randn(E, D), torch.randn(D)
    query, key = torch.randn(E), torch.randn(E)
    network = nn.Sequential(nn.Linear(2 * E, D, bias=False), nn.Tanh(), nn.Linear(D, 1, bias=False))
    with torch.no_grad():
        network[0].weight.copy_(torch.cat([W_Q, W_K]).T)
        network[2].weight.copy_(vector[None])
    ours = PAGE.additive_scores((query @ W_Q)[None, None], (key @ W_K)[None, None], vector)
    p.close(ours.flatten(), network(torch.cat([query, key])[None]).flatten(), 1e-5)


# -- training ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    return p.page_code(SLUG, "after")


def test_training_draws_the_order_of_the_picture(trained):
    """Far from the edges of rounding to one decimal, so that another machine prints the same."""
    wanted = F.one_hot(trained.order, 5).to(trained.weights)
    assert trained.weights.shape == (20, 8, 5)
    assert (trained.weights - wanted).abs().max() < 0.045
    assert trained.right.all()


def test_the_lines_of_the_picture_are_in_this_order(trained):
    picture = (p.ROOT / "docs/assets/alignment-lines.svg").read_text(encoding="utf-8")
    read, written = (
        re.findall(rf'<text class="code" x="([\d.]+)" y="{row}"[^>]*>(\w+)<', picture) for row in ("37", "165")
    )
    lines = re.findall(r'd="M([\d.]+) 48C.* ([\d.]+) 142"', picture)
    assert lines == [(read[j][0], x) for j, (x, _) in zip(trained.order.tolist(), written, strict=True)]


def test_no_training_leaves_the_start():
    start = p.page_code(SLUG, "before")
    torch.manual_seed(2)
    fresh = start.Translator(8, 5, 10, 12, 24)
    assert all(map(torch.equal, fresh.parameters(), start.model.parameters()))
    p.close(start.source, torch.randint(10, (20, 5)))
    assert set(start.weights.mean(dim=0).argmax(dim=-1).tolist()) == {4}


def test_training_takes_the_steps_of_a_loop_of_its_own(trained):
    """The loss by hand, on the source reordered, with new gradients in each step."""
    torch.manual_seed(2)
    model = trained.Translator(8, 5, 10, 12, 24)
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
    theirs, unseen = trained.train(4)
    for tensor, other in zip(model.parameters(), theirs.parameters()):
        p.close(tensor, other, 1e-4)
    assert torch.equal(unseen, next_source)


def test_the_map_says_what_the_probe_says():
    probe = p.page_code(SLUG, "probe")
    moved = probe.before.argmax(dim=-1) != probe.after.argmax(dim=-1)
    assert torch.equal(moved[0], probe.order == 2)
    assert torch.equal(moved[0], probe.weights[0, :, 2] > 0.5)


def test_the_column_of_the_fourfold_word_sums_to_4(trained):
    assert trained.weights.mean(dim=0).sum(dim=0).round(decimals=1).tolist() == [1, 1, 4, 1, 1]


# -- the claims of the page ----------------------------------------------------------------------


def test_the_last_state_forgets_the_first_token_and_the_first_state_does_not():
    page = p.page_code(SLUG, "bottleneck")
    p.close(page.last[0], page.states[:, -1], 1e-6)
    assert page.moved[0] > 1.5 > 0.001 > page.moved[15]
    assert (page.moved[1:] < page.moved[:-1]).all()
    shorter, _ = page.gru(page.inputs[:, :8])
    p.close(shorter, page.states[:, :8], 1e-6)  # the state after 8 tokens is the last state of 8 tokens


def test_additive_sums_take_64_times_the_bytes_of_the_scores():
    page = p.page_code(SLUG, "bytes")
    assert page.sums.nbytes == page.D * page.scores.nbytes == 512 * 1024 * 64 * 4
    assert page.D == 64


def test_the_literal_map_is_right_read_upright_and_wrong_on_its_side():
    page = p.page_code(SLUG, "transposed")
    p.close(page.weights.sum(dim=-1), torch.ones(5), 1e-6)
    assert SOLUTION.align(page.weights, page.source, page.target) == [
        ("because", "weil"), ("he", "er"), ("drinks", "trinkt"), ("cold", "kalten"), ("tea", "Tee"),
    ]  # fmt: skip


def test_the_three_masks_are_those_that_a_loop_finds():
    page = p.page_code(SLUG, "three")
    sources, targets = [7, 4, 6], [5, 3, 4]
    may = {
        "encoder self": lambda b, i, j: j < sources[b],
        "decoder self": lambda b, i, j: j < targets[b] and j <= i,
        "cross": lambda b, i, j: j < sources[b],
    }
    for name, (scores, mask) in page.attentions.items():
        B, _, rows, columns = scores.shape
        wanted = [[[may[name](b, i, j) for j in range(columns)] for i in range(rows)] for b in range(B)]
        assert torch.equal(mask.expand(B, 1, rows, columns)[:, 0], torch.tensor(wanted))


def test_a_translator_without_the_second_mask_reads_padding():
    page = p.page_code(SLUG, "torch")
    assert page.moved[1].abs().max() > 0.1
    assert (page.moved[[0, 2]] == 0).all()
    later = page.target.clone()
    later[:, 3:] += torch.randn(3, 2, 8)
    page.masks["memory_key_padding_mask"] = page.padding
    moved = page.model(page.source, later, **page.masks) - page.model(page.source, page.target, **page.masks)
    assert (moved[:, :3] == 0).all()
    assert (moved[:, 3:] != 0).any()


@pytest.mark.parametrize(("implementation", "layers"), [("eager", 3), (None, 0)])
def test_transformers_returns_cross_attentions_from_eager_attention_only(implementation, layers):
    config = BartConfig(
        vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=3, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=16,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    chosen = {"attn_implementation": implementation} if implementation else {}
    torch.manual_seed(0)
    model = BartModel._from_config(config, **chosen).eval()
    source, target = torch.randint(3, 20, (3, 7)), torch.randint(3, 20, (3, 5))
    found = model(input_ids=source, decoder_input_ids=target, output_attentions=True).cross_attentions
    assert [tuple(weights.shape) for weights in found] == layers * [(3, 2, 5, 7)]
    for weights in found:
        p.close(weights.sum(dim=-1), torch.ones(3, 2, 5), 1e-5)


# -- the exercise --------------------------------------------------------------------------------

PAD = "<pad>"


def real(words):
    return torch.tensor([word != PAD for word in words])


def pairs(best, source, target):
    return [(word, source[j]) for word, j in zip(target, best.tolist()) if word != PAD]


def hidden(weights, source):
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
    weights, found = hidden(weights, source), []
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
    return lambda w, s, t: pairs(best(hidden(w, s), w, s), s, t)


RIGHT = {
    "the solution": lambda w, s, t: SOLUTION.align(w, s, t),
    "plain Python": by_rows,
    "pads cut out": by_cutting,
    "weights of pads set to 0": lambda w, s, t: pairs((w * real(s)).argmax(-1), s, t),
    "sorted": lambda w, s, t: pairs(hidden(w, s).sort(dim=-1).indices[:, -1], s, t),
    "spoils what it was given": emptied,
}
WRONG = {
    "returns None": lambda w, s, t: None,
    "pads of the source kept": lambda w, s, t: pairs(w.argmax(-1), s, t),
    "pads of the target kept": lambda w, s, t: [(x, s[j]) for x, j in zip(t, hidden(w, s).argmax(-1).tolist())],
    "rows dropped whose best word is a pad": best_after_the_pads,
    "map transposed": lambda w, s, t: pairs(w.T.argmax(-1), s, t),
    "best row of each column": lambda w, s, t: pairs(hidden(w, s).argmax(dim=0), s, t),
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
    "indices": lambda w, s, t: list(enumerate(hidden(w, s).argmax(-1).tolist())),
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
