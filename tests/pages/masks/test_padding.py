"""Padding: the page's class against PyTorch's, which sees each sentence alone, and the claims about averages,
positions, generation and recurrent networks in PyTorch's modules and Transformers' models."""

import functools
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "masks/padding"
PAGE = p.page_code(SLUG, "attention")
SENTENCES = [[1, 2, 3], [4, 5, 6, 7, 8], [9, 10, 1, 3]]
PAD = 0


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


# -- the class -----------------------------------------------------------------------------------


def pads(lengths, longest, side):
    """True at the pads, entry by entry."""
    at_pad = {"right": lambda n, j: j >= n, "left": lambda n, j: j < longest - n}[side]
    return torch.tensor([[at_pad(n, j) for j in range(longest)] for n in lengths])


def cases(shortest=1):
    """Draw a module and its `inputs`, a batch whose items have `lengths`, padded on a side that is drawn too."""

    def build(case):
        case.E = case.H * case.D
        p.seed_modules(case.seed)
        case.attention = PAGE.BidirectionalAttention(case.E, case.H).double()
        case.inputs = case.randn(case.B, case.T, case.E)
        case.lengths = [min(shortest + (case.seed + 2 * item) % case.T, case.T) for item in range(case.B)]
        case.masked = pads(case.lengths, case.T, ("right", "left")[case.seed % 2])
        return case

    return p.sizes(B=3, T=5, H=3, D=3).map(build)


def alone(module, tokens, causal=False):
    """The rows of one sentence (T, E) by PyTorch's attention, which has seen neither a pad nor a mask of ours."""
    qkv = F.linear(tokens, module.to_qkv.weight).unflatten(-1, (3, module.num_heads, -1))  # (T, 3, H, D)
    context = F.scaled_dot_product_attention(*qkv.permute(1, 2, 0, 3)[:, None], is_causal=causal)[0]  # (H, T, D)
    return module.to_output(context.transpose(0, 1).flatten(1))


def outputs_and_weights(results):
    return torch.cat([result.flatten() for result in results])


def test_outputs_and_weights_are_those_of_multihead_attention():
    """In all rows, those of the pads as queries included."""

    def multihead_attention(case):
        module = nn.MultiheadAttention(case.E, case.H, bias=False, batch_first=True, dtype=torch.float64)
        ours = case.attention.state_dict()
        module.load_state_dict({"in_proj_weight": ours["to_qkv.weight"], "out_proj.weight": ours["to_output.weight"]})
        roles = [case.inputs] * 3
        return outputs_and_weights(module(*roles, key_padding_mask=case.masked, average_attn_weights=False))

    p.equals_reference(
        lambda case: outputs_and_weights(case.attention(case.inputs, case.masked)), multihead_attention, cases()
    )


@pytest.mark.parametrize("hidden", [True, False])
def test_a_padded_sentence_gives_what_it_gives_alone_and_without_the_mask_it_does_not(hidden):
    def real_rows(case):
        outputs, _ = case.attention(case.inputs, case.masked & hidden)
        return [rows[~masked] for rows, masked in zip(outputs, case.masked)]

    def sentence_alone(case, item):
        return alone(case.attention, case.inputs[item, ~case.masked[item]])

    assert p.catches(p.padded_equals_alone, real_rows, sentence_alone, cases(shortest=2)) != hidden


def test_a_row_reacts_to_the_real_tokens_and_to_itself():
    """A pad reacts to itself, since it is a query, unless it has one key only, whose weight is 1 in any case."""

    def function(case):
        masked = case.masked[:1]
        reads = ~masked.expand(case.T, -1) | torch.eye(case.T, dtype=torch.bool)
        return lambda rows: case.attention(rows[None], masked)[0][0], case.inputs[0], reads

    p.reaches_exactly(function, cases(shortest=2).filter(lambda case: case.lengths[0] > 1))


def test_a_call_leaves_its_mask_and_the_next_call_as_they_were():
    p.stateless(
        lambda case: (case.attention, [case.inputs, case.masked], [case.inputs.flip(0), case.masked.flip(1)]), cases()
    )


def test_large_scores_stay_finite():
    p.finite_rows(lambda case: case.attention(1e3 * case.inputs, case.masked)[0], cases())


@pytest.mark.parametrize("shape", [(3, 1, 1, 5), (5, 5), (1, 5), (3, 4)])
def test_other_shapes_of_the_mask_and_indivisible_widths_are_refused(shape):
    with pytest.raises(ValueError, match=r"masked is .* not \(3, 5\)"):
        PAGE.attention(PAGE.embedding[PAGE.ids], torch.zeros(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="3 heads cannot share 8"):
        PAGE.BidirectionalAttention(8, 3)


def test_the_module_runs_on_another_device_than_the_default():
    module = PAGE.BidirectionalAttention(8, 2).to("meta")
    outputs, _ = module(torch.empty(3, 5, 8, device="meta"), torch.empty(3, 5, dtype=torch.bool, device="meta"))
    assert outputs.is_meta


# -- what the page says of pads --------------------------------------------------------------------


def embed(sentence):
    return PAGE.embedding[torch.tensor(sentence)]


def test_the_words_are_those_of_the_figure():
    assert [sentence.tolist() for sentence in PAGE.sentences] == SENTENCES
    drawn = (p.ROOT / "docs/assets/padding-two-sides.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in drawn for word in PAGE.words[1:])


def test_ids_compared_with_0_are_the_mask_while_0_is_nothing_but_a_pad():
    assert torch.equal(PAGE.ids == PAD, PAGE.masked)


def test_three_ways_to_write_the_two_axes_agree_and_without_them_masked_fill_raises():
    axes = PAGE.masked[:, None, None, :]
    assert torch.equal(axes, PAGE.masked.view(3, 1, 1, 5))
    assert torch.equal(axes, PAGE.masked.unsqueeze(1).unsqueeze(2))
    text = "The size of tensor a (3) must match the size of tensor b (5) at non-singleton dimension 2"
    with pytest.raises(RuntimeError, match=re.escape(text)):
        torch.zeros(3, 2, 5, 5).masked_fill(PAGE.masked, -torch.inf)


@pytest.mark.parametrize("fill", [torch.nan, torch.inf])
def test_a_weight_of_0_does_not_stop_a_nan(fill):
    inputs = embed(PAGE.ids.tolist())
    inputs[PAGE.masked] = fill
    outputs, _ = PAGE.attention(inputs, PAGE.masked)
    assert outputs[0].isnan().all()
    assert outputs[1].isfinite().all()


def test_a_sentence_of_length_0_gives_nan():
    outputs, _ = PAGE.attention(embed(PAGE.ids.tolist()), PAGE.masked | torch.tensor([[False], [True], [False]]))
    assert outputs.isnan().all(dim=(1, 2)).tolist() == [False, True, False]


def test_a_pad_of_zeros_still_takes_weight():
    inputs = embed(PAGE.ids.tolist()).masked_fill(PAGE.masked[..., None], 0.0)
    _, weights = PAGE.attention(inputs, torch.zeros_like(PAGE.masked))
    assert weights[0, :, :3, 3:].min() > 0.1


def test_the_masked_mean_and_loss_are_those_of_the_sentences_alone():
    """The cell ends with the largest batch, in which a plain mean and a loss of every row are far off."""
    cell = names("average")
    hidden = [embed(sentence) + alone(PAGE.attention, embed(sentence)) for sentence in SENTENCES]
    means = torch.stack([rows.mean(dim=0) for rows in hidden])
    p.close(cell.mean, means, 1e-5)
    assert (cell.plain - means).abs().max() > 0.1
    loss = F.cross_entropy(torch.cat(hidden) @ PAGE.embedding.T, torch.cat(PAGE.sentences))
    p.close(cell.loss, loss, 1e-5)
    assert cell.every < loss / 2
    assert torch.equal(F.cross_entropy(cell.logits, cell.targets), cell.loss)  # -100 is ignored by default


def test_the_last_row_is_that_of_a_causal_layer():
    """So a layer that reads in both directions can play a language model."""
    cell = names("last")
    for item, sentence in enumerate(SENTENCES):
        causal, both = (alone(PAGE.attention, embed(sentence), causal) for causal in (True, False))
        p.close(causal[-1], both[-1], 1e-6)
        answer = ((embed(sentence) + both) @ PAGE.embedding.T)[-1].argmax()
        assert cell.left[item, -1] == cell.newest[item] == answer


def test_a_causal_mask_hides_the_pads_on_the_right_and_not_those_on_the_left():
    for sentence in SENTENCES:
        fill = [PAD] * (6 - len(sentence))
        rows, right, left = (
            alone(PAGE.attention, embed(ids), causal=True) for ids in (sentence, sentence + fill, fill + sentence)
        )
        p.close(right[: len(sentence)], rows, 1e-6)
        assert (left[-len(sentence) :] - rows).abs().max() > 0.01


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_packing_gives_a_recurrent_network_the_states_of_the_sentences_alone(kind):
    p.seed_modules(0)
    network = kind(8, 4, batch_first=True, bidirectional=True)
    rows = [PAGE.embedding.cpu()[sentence] for sentence in SENTENCES]
    states, _ = pad_packed_sequence(network(pack_sequence(rows, enforce_sorted=False))[0], batch_first=True)
    for item, tokens in enumerate(rows):
        p.close(states[item, : len(tokens)], network(tokens[None])[0][0], 1e-6)


# -- models of Transformers: BERT, generation, relative positions -----------------------------------

IDS = {side: pad_sequence(PAGE.sentences, batch_first=True, padding_side=side) for side in ("right", "left")}
IS_REAL = {side: ids != PAD for side, ids in IDS.items()}
COUNTED = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3]])
SMALL = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@functools.cache
def model(name):
    """A random model of two layers, in float64 and without dropout."""
    p.seed_modules(0)
    if name == "bert":
        from transformers.models.bert.modeling_bert import BertConfig, BertModel

        built = BertModel(BertConfig(**SMALL, max_position_embeddings=8))
    elif name == "llama":
        from transformers.models.llama.modeling_llama import LlamaConfig, LlamaModel

        built = LlamaModel(LlamaConfig(**SMALL, initializer_range=0.5))
    else:
        from transformers.models.gpt2.modeling_gpt2 import GPT2Config, GPT2LMHeadModel

        sizes = {"vocab_size": 20, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
        built = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.5, bos_token_id=0, eos_token_id=None))
    return built.double().eval()


def gap(network, side, **arguments):
    """How far the real rows of a padded batch are from those of the sentences alone."""
    with torch.no_grad():
        rows = torch.cat([network(torch.tensor([s])).last_hidden_state[0] for s in SENTENCES])
        outputs = network(IDS[side], attention_mask=IS_REAL[side].long(), **arguments).last_hidden_state
    return float((outputs[IS_REAL[side]] - rows).abs().max())


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_learned_positions_need_pads_on_the_right_or_position_ids(name):
    network = model(name) if name == "bert" else model(name).transformer
    assert gap(network, "right") < 1e-12
    assert gap(network, "left") > 1
    assert gap(network, "left", position_ids=COUNTED) < 1e-12


def test_rotary_positions_do_not_change_with_the_shift():
    assert gap(model("llama"), "left") < 1e-5


def generated(ids, is_real, pad=PAD, **options):
    mask = {} if is_real is None else {"attention_mask": is_real.long()}
    options |= {"max_new_tokens": 4, "do_sample": False, "pad_token_id": pad}
    return model("gpt2").generate(ids, **mask, **options)[:, ids.shape[1] :].tolist()


def test_generate_derives_positions_from_the_mask_and_continues_left_padded_sentences_only():
    by_itself = [generated(torch.tensor([s]), torch.ones(1, len(s)))[0] for s in SENTENCES]
    assert generated(IDS["left"], IS_REAL["left"]) == by_itself
    wrong = generated(IDS["right"], IS_REAL["right"])
    assert wrong != by_itself
    assert wrong[1] == by_itself[1]


RIGHT_PADDING = "A decoder-only architecture is being used, but right-padding was detected!"
NO_MASK = (
    "The attention mask is not set with a batched input, and cannot be inferred from input because pad token is same "
    "as eos token."
)


@pytest.mark.parametrize(
    ("ids", "is_real", "options", "said"),
    [
        (IDS["left"], IS_REAL["left"], {}, []),
        (IDS["right"], IS_REAL["right"], {}, [RIGHT_PADDING]),
        (torch.tensor([[1, 2], [3, 19]]), None, {"pad": 19}, [RIGHT_PADDING]),
        (torch.tensor([[1, 2], [3, 19]]), None, {"pad": 19, "eos_token_id": 19}, [NO_MASK, RIGHT_PADDING]),
    ],
)
def test_the_messages_of_generate_are_those_of_the_page(ids, is_real, options, said, monkeypatch):
    model("gpt2")
    from transformers.generation import utils

    heard = []
    monkeypatch.setattr(utils.logger, "warning", heard.append)
    monkeypatch.setattr(utils.logger, "warning_once", heard.append)
    generated(ids, is_real, **options)
    assert [any(line.startswith(message) for line in heard) for message in said] == [True] * len(said)
    assert len(heard) == len(said)
    for language in p.languages(SLUG):
        text = " ".join((p.ROOT / f"docs/{language}/{SLUG}.md").read_text(encoding="utf-8").split())
        assert all(message in text for message in said)


# -- the exercise --------------------------------------------------------------------------------


def columns(masked):
    return torch.arange(masked.shape[1], device=masked.device)


def row(hidden, places):
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


def last_place(masked):
    return columns(masked).masked_fill(masked, -1).argmax(dim=1)


def zeroed_in_place(hidden, masked):
    hidden.data[masked] = 0
    return hidden[:, -1]


def everything_hidden_in_place(hidden, masked):
    rows = row(hidden, last_place(masked))
    masked.fill_(False)
    return rows


RIGHT = {
    "loop": lambda h, m: torch.stack([rows[~masked][-1] for rows, masked in zip(h, m)]),
    "columns times the mask": lambda h, m: row(h, (columns(m) * ~m).argmax(dim=1)),
    "first real token from behind": lambda h, m: row(h, m.shape[1] - 1 - (~m).int().flip(1).argmax(dim=1)),
    "gathered": lambda h, m: h.gather(1, last_place(m)[:, None, None].expand(-1, 1, h.shape[2]))[:, 0],
    "in place, on its own": lambda h, m: row(h, columns(m).repeat(len(m), 1).masked_fill_(m, -1).argmax(1)),
}
WRONG = {
    "returns None": lambda h, m: None,
    "raises": lambda h, m: h[:, m.shape[1]],
    "the places": lambda h, m: last_place(m),
    "an axis too many": lambda h, m: row(h, last_place(m))[:, None],
    "detached": lambda h, m: row(h.detach(), last_place(m)),
    "detached, but with a gradient": lambda h, m: row(h.detach(), last_place(m)) + 0 * h.sum(),
    "no device": lambda h, m: row(h, torch.arange(m.shape[1]).masked_fill(m, -1).argmax(dim=1)),
    "no device for the sentences": lambda h, m: h[torch.arange(len(h)), last_place(m)],
    "row -1": lambda h, m: h[:, -1],
    "row -1, pads set to 0": zeroed_in_place,
    "first real token": lambda h, m: row(h, (~m).int().argmax(dim=1)),
    "length - 1": lambda h, m: row(h, (~m).sum(dim=1) - 1),
    "the largest length - 1": lambda h, m: h[:, (~m).sum(dim=1).max() - 1],
    "before the first pad": lambda h, m: row(h, m.int().argmax(dim=1) - 1),
    "the one before": lambda h, m: row(h, last_place(m) - 1),
    "the place of the first sentence": lambda h, m: h[:, last_place(m)[0]],
    "polarity inverted by ~ on integers": lambda h, m: row(h, (columns(m) * ~m.int()).argmax(dim=1)),
    "mean of the real tokens": lambda h, m: h.masked_fill(m[..., None], 0).sum(1) / (~m).sum(1, keepdim=True),
    "largest of the real tokens": lambda h, m: h.masked_fill(m[..., None], -torch.inf).amax(dim=1),
    "float32": lambda h, m: row(h, last_place(m)).float(),
    "width 7": lambda h, m: row(h.view(len(h), -1, 7), last_place(m)),
    "one-hot in float32": lambda h, m: (F.one_hot(last_place(m), m.shape[1]).float()[:, None] @ h)[:, 0],
    "five columns": lambda h, m: row(h, columns(torch.zeros(1, 5).to(m)).masked_fill(m, -1).argmax(dim=1)),
    "three sentences": lambda h, m: h[[0, 1, 2], last_place(m)],
    "right if a sentence starts at 0": lambda h, m: row(h, (~m).sum(1) - 1) if not m[:, 0].any() else h[:, -1],
    "all but single sentences": lambda h, m: row(h, last_place(m)) if len(h) > 1 else h[:, 0],
    "pads made real, in place": everything_hidden_in_place,
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_last_token", RIGHT, WRONG

    @pytest.mark.parametrize(
        ("answer", "said"),
        {
            "an axis too many": "xxx.. xxxxx xxxx.: no tensor of shape (3, 7)",
            "length - 1": "..xxx xxxxx .xxxx: a row is not the last real token, or the mask has changed",
            "no device for the sentences": "xxx.. xxxxx xxxx.: the gradient is wrong, or a new tensor lacks device=",
            "all but single sentences": "..x: a row is not the last real token, or the mask has changed",
        }.items(),
    )
    def test_the_check_names_the_first_fault(self, answer, said):
        assert self.verdict(WRONG[answer]) == f"not yet: {said}\n"

    def test_the_solution_runs_on_another_device_than_the_default(self):
        hidden, masked = torch.empty(3, 5, 7, device="meta"), torch.empty(3, 5, dtype=torch.bool, device="meta")
        assert self.solution()[0].last_token(hidden, masked).is_meta
