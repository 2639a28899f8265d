"""Cross-attention: the probe and the two bugs that shapes let pass, and what is said of torch and transformers."""

import re

import pytest
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2Model

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "cross/cross-attention"
PAGE = p.page_code(SLUG, "fused")
SURVIVORS = {
    "only `D` is read, and queries and keys share it; `Tq` stands in comments": ["H, Tq, D = keys.shape[1:]"],
    "keys and values have one shape": ["_, H, Tk, D = values.shape"],
    "`project` makes keys and values of one memory": ["if is_real.shape != (B, Tk) or B != len(values):"],
}
ACCEPTED = {
    "keys and values have one shape": ["B, H, Tk, D = values.shape"],
    "keys and values are on one device": ["positions = torch.arange(Tk, device=values.device)"],
}


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


def both_kinds(test):
    return pytest.mark.parametrize("kind", ["CrossAttention", "FusedCrossAttention"])(test)


def call(cross, inputs, memory, is_real):
    """The outputs of either class."""
    if hasattr(cross, "project"):
        return cross(inputs, cross.project(memory), is_real)
    return cross(inputs, memory, is_real)[0]


# -- the probe, and the bugs -----------------------------------------------------------------------


def causal(cross, inputs, memory, is_real):
    """Contexts with the causal flag of SDPA, which has no place here."""
    layers = (cross.to_queries, inputs), (cross.to_keys, memory), (cross.to_values, memory)
    roles = [cross.split_heads(layer(tokens)) for layer, tokens in layers]
    return F.scaled_dot_product_attention(*roles, is_causal=True).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("attend", [call, causal])
def test_the_probe_finds_a_causal_flag_that_hides_real_memory(attend):
    def probed(case):
        p.seed_modules(case.seed)
        cross = PAGE.CrossAttention(2 * case.D, case.width, 2).double()
        inputs, memory = case.randn(1, case.Tq, 2 * case.D), case.randn(case.Tk, case.width)
        is_real = torch.arange(case.Tk) <= case.seed % case.Tk
        return lambda tokens: attend(cross, inputs, tokens[None], is_real[None])[0], memory, is_real.expand(case.Tq, -1)

    cases = p.sizes(Tq=4, Tk=(2, 6), D=3, width=5)
    assert p.catches(p.reaches_exactly, probed, cases) == (attend is causal)


def test_the_length_of_the_decoder_is_right_where_the_lengths_agree():
    page = names("length")
    square = page.memory[:, : page.Tq]
    everything = torch.ones(square.shape[:2], dtype=torch.bool)
    right, _ = page.cross(page.inputs, square, everything)
    joined = page.wrong(page.cross, page.inputs, square).transpose(1, 2).flatten(2)
    p.close(page.cross.to_output(joined), right, 1e-6)


# -- what the page says of its classes, of torch and of its picture ---------------------------------


@both_kinds
def test_widths_batches_and_masks_that_do_not_fit_are_refused(kind):
    cross = getattr(PAGE, kind)(8, 6, 2)
    inputs, memory, is_real = torch.randn(2, 3, 8), torch.randn(2, 5, 6), torch.ones(2, 5, dtype=torch.bool)
    call(cross, inputs, memory, is_real)
    wrong = [
        (inputs, memory, is_real[:, :3]),
        (inputs, memory, is_real[:, :1]),
        (inputs, memory, is_real[:1]),
        (inputs[:1], memory, is_real),
        (inputs, memory[:1], is_real[:1]),
        (inputs, memory[:1], is_real),
    ]
    for given in wrong:
        with pytest.raises(ValueError, match="is_real must be"):
            call(cross, *given)
    with pytest.raises(RuntimeError):
        call(getattr(PAGE, kind)(8, 6, 3), inputs, memory, is_real)


def test_an_empty_memory_is_nan_or_0_in_sdpa_and_harms_no_other_item():
    cross, is_real = PAGE.CrossAttention(8, 6, 2), torch.ones(2, 5, dtype=torch.bool)
    inputs, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    before, _ = cross(inputs, memory, is_real)
    is_real[0] = False
    after, _ = cross(inputs, memory, is_real)
    assert after[0].isnan().all()
    assert torch.equal(after[1], before[1])
    nothing = torch.zeros(1, 1, 1, 5, dtype=torch.bool, device="cpu")
    tokens = torch.ones(1, 1, 5, 3, device="cpu")
    assert not F.scaled_dot_product_attention(tokens, tokens, tokens, attn_mask=nothing).any()


def test_in_transformers_1_in_the_encoder_attention_mask_means_attend():
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 8, "vocab_size": 11}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, add_cross_attention=True)
    model, memory = GPT2Model(config).eval(), torch.randn(1, 5, 16)

    def hidden(memory):
        mask = torch.tensor([[1, 1, 1, 0, 0]])
        ids = torch.tensor([[1, 2, 3]])
        return model(ids, encoder_hidden_states=memory, encoder_attention_mask=mask).last_hidden_state

    def moved(j):
        nudged = memory.clone()
        nudged[0, j, 0] += 1
        return (hidden(nudged) - hidden(memory)).abs().amax(dim=-1)[0] > 1e-6

    assert [moved(j).tolist() for j in range(5)] == 3 * [[True] * 3] + 2 * [[False] * 3]


def test_the_numbers_of_the_picture_are_the_weights_of_the_words():
    picture = (p.ROOT / "docs/assets/cross-attention-two-sentences.svg").read_text(encoding="utf-8")
    weights = names("steps").weights.flatten().tolist()
    assert re.findall(r">(0\.\d\d)<", picture) == [f"{weight:.2f}" for weight in weights]
    tints = [float(tint) for tint in re.findall(r'fill-opacity="([\d.]+)"', picture)]
    assert tints == pytest.approx([0.6 * weight for weight in weights], abs=1e-3)


# -- the exercise --------------------------------------------------------------------------------


def by_hand(q, k, v, n):
    is_real = torch.arange(k.shape[2], device=k.device) < n[:, None]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(~is_real[:, None, None], -torch.inf).softmax(dim=-1) @ v


def masked_late(q, k, v, n):
    """Padding hidden after the softmax, and each row divided by what is left of it."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    weights = weights * (torch.arange(k.shape[2], device=k.device) < n[:, None])[:, None, None]
    return F.normalize(weights, p=1, dim=-1) @ v


RIGHT = {"by hand": by_hand}
WRONG = {
    "padding on the left": lambda q, k, v, n: by_hand(q, k.flip(2), v.flip(2), n),
    "masked late, divided again": masked_late,
    "the largest length for all": lambda q, k, v, n: by_hand(q, k, v, n.amax() + 0 * n),
    "four heads": lambda q, k, v, n: by_hand(*(role.view(len(n), 4, -1, role.shape[-1]) for role in (q, k, v)), n),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attend", RIGHT, WRONG
