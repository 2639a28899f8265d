"""Causal masks: the page's function and module against PyTorch, and what lets the future in."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.bias import causal_lower_right
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2Model

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/causal"
PAGE = p.page_code(SLUG, "module")
LIMIT = 6


def names(cell):
    """What a cell of the page defines."""
    return executed(SLUG, cell)[0]


# -- the page's two ways to attend, as functions of a batch of tokens (B, T, E) --------------------


def attend_each(attend):
    """A function of one sentence and its triangle, as a function of a batch."""

    def attend_all(batch):
        return torch.stack([attend(tokens, PAGE.masked[: len(tokens), : len(tokens)])[0] for tokens in batch])

    return attend_all


def cases(kind):
    """Draw `attend`, which takes a batch, the `batch`, what makes the three roles of it, and the scale."""

    def build(case):
        case.batch = case.randn(case.B, case.T, case.E)
        if kind == "attend":
            case.attend, case.roles, case.scale = attend_each(PAGE.attend), [nn.Identity()] * 3, 1.0
        else:
            p.seed_modules(case.seed)
            case.attend = module = PAGE.CausalAttention(case.E, case.D, LIMIT).double()
            case.roles, case.scale = (module.to_queries, module.to_keys, module.to_values), None
        return case

    return p.sizes(B=3, T=LIMIT, E=3, D=4).map(build)


def both_kinds(test):
    return pytest.mark.parametrize("kind", ["attend", "module"])(test)


def ours(case):
    return case.attend(case.batch)


def sdpa(case):
    roles = [role(case.batch) for role in case.roles]
    return F.scaled_dot_product_attention(*roles, is_causal=True, scale=case.scale)


@both_kinds
def test_contexts_are_those_of_sdpa(kind):
    p.equals_reference(ours, sdpa, cases(kind))


@both_kinds
def test_gradients_are_those_of_sdpa(kind):
    def leaves(case):
        return [case.batch, *(weight for role in case.roles for weight in role.parameters())]

    p.gradients_equal(ours, sdpa, leaves, cases(kind))


def visible(case):
    """Where a row may move with a token: its own and the later ones."""
    return torch.ones(case.T, case.T, dtype=torch.bool).tril()


@both_kinds
def test_a_token_moves_its_own_row_and_the_later_ones(kind):
    p.reaches_exactly(
        lambda case: (lambda tokens: case.attend(tokens[None])[0], case.batch[0], visible(case)), cases(kind)
    )


@both_kinds
def test_a_call_changes_nothing_of_the_next(kind):
    """Between two calls comes a batch whose last token is padding, all zeros."""

    def function(case):
        padded = case.batch.clone()
        padded[:, -1] = 0
        return case.attend, [case.batch], [padded]

    p.stateless(function, cases(kind))


@both_kinds
def test_large_scores_stay_finite(kind):
    p.finite_rows(lambda case: case.attend(1e3 * case.batch), cases(kind))


def test_a_checkpoint_holds_the_three_matrices_transposed():
    state = PAGE.CausalAttention(3, 2, LIMIT).state_dict()
    roles = "to_queries", "to_keys", "to_values"
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {f"{role}.weight": (2, 3) for role in roles}


def test_a_checkpoint_fits_another_length_unless_the_mask_is_in_it():
    short, long = (PAGE.CausalAttention(3, 2, length) for length in (8, 9))
    long.load_state_dict(short.state_dict())
    for module in (short, long):
        module.register_buffer("masked", module.masked)
    with pytest.raises(RuntimeError, match="size mismatch for masked"):
        long.load_state_dict(short.state_dict())


def test_a_sequence_beyond_the_limit_is_refused():
    with pytest.raises(ValueError, match=f"{LIMIT + 1} tokens, but context_length is {LIMIT}"):
        PAGE.CausalAttention(3, 2, LIMIT)(torch.randn(4, LIMIT + 1, 3))


def test_inputs_and_modules_may_be_on_another_device_than_the_default():
    words = torch.empty(2, LIMIT, 3, device="meta")
    assert PAGE.CausalAttention(3, 2, LIMIT).to("meta")(words).shape == (2, LIMIT, 2)
    assert PAGE.attend(words[0], PAGE.masked.to("meta"))[0].shape == (LIMIT, 3)
    assert names("thrown-away").forgetful(words[0], PAGE.masked.to("meta"))[0].is_meta
    assert names("whole-model").Block(3, LIMIT).to("meta")(words).is_meta


def test_dropout_takes_the_weights_while_training_and_nothing_in_eval():
    torch.manual_seed(0)
    plain, dropping = (PAGE.CausalAttention(3, 2, LIMIT, **options) for options in ({}, {"dropout": 0.5}))
    dropping.load_state_dict(plain.state_dict())
    words = torch.randn(4, LIMIT, 3)
    scores = dropping.to_queries(words) @ dropping.to_keys(words).mT / 2**0.5
    weights = scores.masked_fill(PAGE.masked, -torch.inf).softmax(dim=-1)
    torch.manual_seed(1)
    dropped = F.dropout(weights, 0.5) @ dropping.to_values(words)
    torch.manual_seed(1)
    assert torch.allclose(dropping(words), dropped, atol=1e-6)
    assert torch.equal(dropping.eval()(words), plain(words))


# -- the bugs that the page shows ----------------------------------------------------------------


def test_a_filled_tensor_thrown_away_lets_the_future_in():
    forgetful = attend_each(names("thrown-away").forgetful)
    cases = p.sizes(T=(2, LIMIT), E=3)
    with pytest.raises(AssertionError, match="may move"):
        p.reaches_exactly(
            lambda case: (lambda tokens: forgetful(tokens[None])[0], case.randn(case.T, case.E), visible(case)), cases
        )


def gpt_2(part, causal):
    """GPT-2 of transformers, tiny, or a block of it, with its causal mask or without, as a function of embeddings."""
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 8, "vocab_size": 11}
    model = GPT2Model(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")).double().eval()
    for block in model.h:
        block.attn.is_causal = causal
    return model.h[0] if part == "block" else lambda tokens: model(inputs_embeds=tokens).last_hidden_state


@pytest.mark.parametrize("part", ["block", "model"])
@pytest.mark.parametrize(
    ("causal", "features", "finds_a_leak"),
    [(True, 0, False), (False, slice(None), False), (False, 0, True)],
    ids=["causal", "leaking, all features", "leaking, one feature"],
)
@torch.no_grad()
def test_in_gpt_2_of_transformers_a_leak_is_found_by_a_nudge_of_one_feature_only(part, causal, features, finds_a_leak):
    model, tokens = gpt_2(part, causal), torch.randn(1, LIMIT, 16, dtype=torch.float64)
    nudged = tokens.clone()
    nudged[0, -1, features] += 1
    earlier = (model(nudged) - model(tokens))[0, :-1].abs().amax(dim=-1)
    assert (earlier > 1e-9).all() if finds_a_leak else (earlier < 1e-12).all()


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_sdpa_takes_its_fused_kernel_for_four_axes_and_the_math_without_a_warning_for_fewer(lead, recwarn):
    class Kernels(TorchDispatchMode):
        fused = False

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            self.fused |= "flash" in str(function)
            return function(*arguments, **options or {})

    tokens = torch.zeros(*lead, LIMIT, 8)
    with Kernels() as kernels:
        F.scaled_dot_product_attention(tokens, tokens, tokens, is_causal=True)
    assert kernels.fused == (len(lead) == 2)
    assert not recwarn.list


# -- the claims of the page ----------------------------------------------------------------------


def test_with_an_empty_mask_the_contexts_are_those_of_the_page_before():
    before = p.page_code("foundations/weighted-average", "contexts")
    assert torch.equal(PAGE.inputs, before.inputs)
    assert torch.equal(names("reduce").full, before.context)
    _, causal = PAGE.attend(PAGE.inputs, PAGE.masked)
    for weights in (before.weights, causal):
        assert f"{weights[1, 1] / weights[1, 0]:.2f}" == "1.72"


def test_the_seeded_head_is_that_of_the_page_before():
    v2 = p.page_code("foundations/one-head", "v2").SelfAttention_v2
    torch.manual_seed(789)
    head, cell = v2(3, 2), names("three-ways")
    assert torch.equal(head.W_query.weight, cell.to_queries.weight)
    assert torch.equal(head.W_key.weight, cell.to_keys.weight)


def test_the_bars_of_the_picture_are_the_scores_and_the_weights_of_token_3():
    picture = (p.ROOT / "docs/assets/causal-wall.svg").read_text(encoding="utf-8")
    scores, weights = (
        torch.tensor([float(height) for height in re.findall(rf'<rect class="{ink}".* height="([\d.]+)"', picture)])
        for ink in ("muted", "accent")
    )
    assert torch.allclose(scores / 62, (PAGE.inputs @ PAGE.inputs.T)[3], atol=1e-3)
    assert torch.allclose(weights / 200, PAGE.attend(PAGE.inputs, PAGE.masked)[1][3, :4], atol=1e-3)


def test_of_36_scores_15_are_thrown_away():
    assert (PAGE.masked.numel(), PAGE.masked.sum()) == (36, 15)


def test_without_the_diagonal_row_0_is_nan():
    context, _ = PAGE.attend(PAGE.inputs, torch.ones_like(PAGE.masked).triu(diagonal=0))
    assert context[0].isnan().all()
    assert context[1:].isfinite().all()


def test_minus_infinity_among_the_weights_comes_out_as_minus_infinity_or_nan():
    values = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    weights = torch.tensor([[0.5, -torch.inf]])
    assert (weights @ values).tolist() == [[-math.inf, -math.inf]]
    assert (weights @ values.flip(0))[0, 1].isnan()


# -- the exercise --------------------------------------------------------------------------------


def on_a_cache(attn_mask):
    """The rows of the newest queries, with the mask that `attn_mask` makes of their number and that of the keys."""

    def rows(case):
        Tq, Tk = case.Tq, case.Tq + case.earlier
        queries, keys, values = case.roles[:, None, None]
        return F.scaled_dot_product_attention(queries[..., -Tq:, :], keys, values, attn_mask=attn_mask(Tq, Tk))[0, 0]

    return rows


@pytest.mark.parametrize("attn_mask", [lambda q, k: ~names("solution").causal_mask(q, k), causal_lower_right])
def test_the_solution_and_the_bias_of_torch_give_the_newest_rows_of_a_full_pass(attn_mask):
    def build(case):
        case.roles = case.randn(3, case.Tq + case.earlier, case.D)
        return case

    def full(case):
        return F.scaled_dot_product_attention(*case.roles, is_causal=True)[-case.Tq :]

    p.equals_reference(on_a_cache(attn_mask), full, p.sizes(Tq=4, earlier=(0, 3), D=3).map(build))


def triangle(q, k, device=None, offset=1, dtype=torch.bool):
    """True from `offset` keys beyond the place of the query on."""
    return torch.ones(q, k, dtype=dtype, device=device).triu(k - q + offset)


def top_left(q, k, device=None):
    return torch.ones(q, k, dtype=torch.bool, device=device).triu(1)


def nothing(q, k, device=None):
    return torch.zeros(q, k, dtype=torch.bool, device=device)


def compared(q, k, device=None):
    return torch.arange(k, device=device) > torch.arange(k - q, k, device=device)[:, None]


def one_by_one(q, k, device=None):
    return torch.tensor([[j > i + k - q for j in range(k)] for i in range(q)], device=device)


RIGHT = {
    "triangle": triangle,
    "rows of a square": lambda q, k, device: top_left(k, k, device)[k - q :],
    "positions compared": compared,
    "two loops": one_by_one,
    "what is not below": lambda q, k, device: ~torch.ones(q, k, dtype=torch.bool, device=device).tril(k - q),
}
WRONG = {
    "returns None": lambda q, k, device: None,
    "a nested list": lambda q, k, device: triangle(q, k).tolist(),
    "a numpy array": lambda q, k, device: triangle(q, k, "cpu").numpy(),
    "the default device": lambda q, k, device: triangle(q, k),
    "the CPU": lambda q, k, device: triangle(q, k, "cpu"),
    "a square of the keys": lambda q, k, device: top_left(k, k, device),
    "transposed": lambda q, k, device: top_left(k, q, device).triu(k - q + 1),
    "a batch axis": lambda q, k, device: triangle(q, k, device)[None],
    "floats 0 and 1": lambda q, k, device: triangle(q, k, device, dtype=torch.float32),
    "a bias": lambda q, k, device: torch.zeros(q, k, device=device).masked_fill(triangle(q, k, device), -torch.inf),
    "integers": lambda q, k, device: triangle(q, k, device, dtype=torch.int64),
    "polarity inverted": lambda q, k, device: ~triangle(q, k, device),
    "top left": top_left,
    "token itself hidden": lambda q, k, device: triangle(q, k, device, offset=0),
    "one token of the future visible": lambda q, k, device: triangle(q, k, device, offset=2),
    "the wrong side": lambda q, k, device: triangle(q, k, device, offset=2 * (q - k) + 1),
    "nothing hidden": nothing,
    "everything hidden": lambda q, k, device: ~nothing(q, k, device),
    "top left but for one query": lambda q, k, device: (nothing if q == 1 else top_left)(q, k, device),
    "top left between one query and all": lambda q, k, device: (top_left if 1 < q < k else triangle)(q, k, device),
    "rows flipped": lambda q, k, device: triangle(q, k, device).flip(0),
    "columns flipped": lambda q, k, device: triangle(q, k, device).flip(1),
    "offset k // q": lambda q, k, device: torch.ones(q, k, dtype=torch.bool, device=device).triu(k // q),
    "an offset of three at most": lambda q, k, device: triangle(q, k, device, offset=min(k - q, 3) - (k - q) + 1),
    "an offset of sixteen at most": lambda q, k, device: triangle(q, k, device, offset=min(k - q, 16) - (k - q) + 1),
    "64 keys at most": lambda q, k, device: top_left(64, 64, device)[k - q : k, :k],
    "six keys at most": lambda q, k, device: top_left(6, 6, device)[k - q : k, :k],
    "last row only": lambda q, k, device: torch.cat([nothing(q - 1, k, device), triangle(1, k, device)]),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_mask", RIGHT, WRONG
