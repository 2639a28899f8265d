"""Shapes: the errors that the page quotes, axes that are mixed up, and layouts of torch and of libraries."""

import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3Config, Qwen3Model
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/shapes"
PAGE = p.page_code(SLUG, "split-heads")
B, H, T, D, E = 2, 4, 6, 5, 3
ZEROS = torch.zeros

# -- the claims of the page ------------------------------------------------------------------------


def test_the_reversal_of_the_page_is_what_T_does_and_T_warns():
    names = p.page_code(SLUG, "transposed")
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            reversed_by_torch = names.keys.T
    finally:
        torch.set_warn_always(False)
    assert torch.equal(reversed_by_torch, names.reversed_keys)
    assert "deprecated" in str(caught[0].message)


def test_the_numbers_are_cut_by_the_split_of_the_page():
    names = p.page_code(SLUG, "numbered")
    assert names.tokens[3, 2] == 32
    assert torch.equal(PAGE.split_heads(names.tokens[None], 2)[0], names.right)


def test_the_picture_of_the_memory_shows_what_reshape_makes():
    picture = (p.ROOT / "docs/assets/shapes-memory.svg").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r">(\d+)</text>", picture)]
    names = p.page_code(SLUG, "copies")
    assert numbers == [*range(24), *names.context.new_tensor(range(24)).view(2, 4, 3).transpose(0, 1).flatten()]
    assert torch.equal(names.turned.contiguous().view(4, 6), names.turned.reshape(4, 6))


def test_with_as_many_items_as_heads_the_bias_of_item_2_goes_to_head_2():
    bias = torch.arange(4.0)[:, None, None].expand(4, 6, 6)
    assert ((ZEROS(4, 4, 6, 6) + bias)[:, 2] == 2).all()
    assert ((ZEROS(4, 4, 6, 6) + bias[:, None])[2] == 2).all()


def test_multihead_attention_reads_tokens_first_unless_told_otherwise():
    for options, shape in ({}, (T, B, B)), ({"batch_first": True}, (B, T, T)):
        _, weights = nn.MultiheadAttention(E, 1, **options)(PAGE.batch, PAGE.batch, PAGE.batch)
        assert weights.shape == shape


def test_multihead_attention_takes_the_masks_that_the_table_names(on_the_cpu):
    tokens, is_real = torch.randn(B, T, 8), torch.ones(B, T, dtype=torch.bool)
    is_real[0, 5] = False
    attention = nn.MultiheadAttention(8, 4, batch_first=True)
    _, by_row = attention(tokens, tokens, tokens, key_padding_mask=~is_real)
    visible = is_real[:, None].expand(B, T, T).repeat_interleave(4, dim=0)
    _, by_masks = attention(tokens, tokens, tokens, attn_mask=~visible)
    torch.testing.assert_close(by_row, by_masks)
    assert (by_row[0, :, 5] == 0).all()
    assert (by_row[1, :, 5] > 0).all()


def test_sdpa_takes_heads_first_and_transformers_returns_tokens_first():
    torch.manual_seed(0)
    queries, keys, values = (PAGE.split_heads(torch.randn(B, T, H * D), H) for _ in range(3))
    alone = [torch.softmax(q @ k.T / D**0.5, dim=-1) @ v for q, k, v in zip(queries[1], keys[1], values[1])]
    torch.testing.assert_close(F.scaled_dot_product_attention(queries, keys, values)[1], torch.stack(alone))
    context, _ = sdpa_attention_forward(nn.Module(), queries, keys, values, None, is_causal=False)
    torch.testing.assert_close(context[1].transpose(0, 1), torch.stack(alone))


# -- the errors that the page quotes ---------------------------------------------------------------


def with_mask(mask, **options):
    tokens = ZEROS(B, T, 8)
    return nn.MultiheadAttention(8, 4, batch_first=True, **options)(tokens, tokens, tokens, attn_mask=mask)


def swapped(batch_first):
    """Axes 0 and 1 are not those that the layer reads."""
    tokens = ZEROS(T, B, 8) if batch_first else ZEROS(B, T, 8)
    layer = nn.MultiheadAttention(8, 4, batch_first=batch_first)
    return layer(tokens, tokens, tokens, attn_mask=ZEROS(T, T))


def unpacked(tensor):
    B, T, E = tensor.shape
    return B, T, E


WRONG_LINES = [  # one for each row of the table
    lambda: nn.Linear(12, 20)(ZEROS(B, T, E)),
    lambda: ZEROS(T, D) @ ZEROS(T, D),
    lambda: ZEROS(B, H, T, D) @ ZEROS(B, H, T, D),
    lambda: ZEROS(B, T, D) @ ZEROS(B, T, D).permute(2, 1, 0),
    lambda: ZEROS(B, H, T, T) + ZEROS(B, T, T),
    lambda: ZEROS(B, H, T, T) + ZEROS(4, 4),
    lambda: ZEROS(B, T, H * D).view(B, T, 3, D),
    lambda: ZEROS(B, H, T, D).transpose(1, 2).view(B, T, H * D),
    lambda: ZEROS(B, T, D).transpose(2, 3),
    lambda: torch.stack([ZEROS(6, E), ZEROS(5, E)]),
    lambda: nn.MultiheadAttention(10, 3),
    lambda: with_mask(ZEROS(B, T)),
    lambda: with_mask(ZEROS(B, T, T)),
    lambda: F.scaled_dot_product_attention(ZEROS(B, H, T, D), *[ZEROS(B, 3, T, D)] * 2, enable_gqa=True),
    lambda: torch.bmm(ZEROS(B, H, T, D), ZEROS(B, H, D, T)),
    lambda: ZEROS(B * H, T, T) + ZEROS(B, T, T),
    lambda: torch.einsum("bhid,bhjd->bhij", ZEROS(B, T, H * D), ZEROS(B, T, H * D)),
    lambda: torch.einsum("bhid,bhdj->bhij", ZEROS(B, H, T, D), ZEROS(B, H, T, D)),
    lambda: torch.einsum("bid,bjd->bij", ZEROS(4 * 8, 64, 40), ZEROS(1 * 8, 77, 40)),
    lambda: unpacked(ZEROS(B, H, T, D)),
    lambda: unpacked(ZEROS(T, E)),
    lambda: F.cross_entropy(ZEROS(B, T, 11), ZEROS(B, T).long()),
    lambda: F.cross_entropy(ZEROS(B * T, 11), ZEROS(B, T).long()),
]


def message(wrong_line):
    with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)) as error:
        wrong_line()
    return str(error.value).strip()


@pytest.mark.parametrize("tongue", p.languages(SLUG))
def test_the_table_quotes_what_torch_says(tongue, on_the_cpu):
    page = (p.ROOT / "docs" / tongue / f"{SLUG}.md").read_text(encoding="utf-8")
    section = re.search(r"\{#errors\}$(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1]
    quoted = re.findall(r"^ *\| `([^`]+)` \|", section, re.MULTILINE)
    assert quoted == [message(line) for line in WRONG_LINES]


def test_keys_with_fewer_heads_raise_the_message_of_a_mask_without_heads_in_sdpa_too(on_the_cpu):
    queries, keys = ZEROS(2, 4, 6, 5), ZEROS(2, 2, 6, 5)
    for line in (lambda: queries @ keys.mT), (lambda: F.scaled_dot_product_attention(queries, keys, keys)):
        assert message(line) == message(WRONG_LINES[4])


def test_tokens_in_front_of_heads_raise_in_sdpa_only_where_the_lengths_differ(on_the_cpu):
    queries, keys = ZEROS(B, 6, H, D), ZEROS(B, 7, H, D)
    said = message(lambda: F.scaled_dot_product_attention(queries, keys, keys))
    assert said == "The size of tensor a (6) must match the size of tensor b (7) at non-singleton dimension 1"
    assert F.scaled_dot_product_attention(keys, keys, keys).shape == keys.shape


def test_keys_without_the_batch_broadcast_in_sdpa_and_not_in_multihead_attention(on_the_cpu):
    names = p.page_code(SLUG, "own-batch")
    torch.testing.assert_close(
        F.scaled_dot_product_attention(names.queries, *[names.context[None]] * 2), names.attended
    )
    attention, single = nn.MultiheadAttention(32, 4, batch_first=True), names.context[:, None]
    assert "is invalid for input of size" in message(lambda: attention(names.queries, *[names.context[None]] * 2))
    assert (attention(names.readings, single, single)[1] == 1).all()


def test_minus_one_for_the_length_hides_a_wrong_batch():
    assert ZEROS(4, 12, 256).reshape(3, -1, 4, 64).shape == (3, 16, 4, 64)


@pytest.mark.parametrize("batch_first", [False, True])
def test_where_axes_0_and_1_are_swapped_a_square_mask_should_be_one_of_the_items(batch_first):
    said = "The shape of the 2D attn_mask is torch.Size([6, 6]), but should be (2, 2)."
    assert message(lambda: swapped(batch_first)) == said


def test_in_masked_fill_tensor_a_is_the_mask():
    said = message(lambda: ZEROS(2, 4, 6, 6).masked_fill(ZEROS(2, 6, 6).bool(), -torch.inf))
    assert said == message(WRONG_LINES[4]).replace("a (4)", "a (2)").replace("b (2)", "b (4)")


def test_in_mat1_and_mat2_the_inner_numbers_are_the_width_given_and_the_one_wanted():
    said = message(lambda: nn.Linear(512, 171)(ZEROS(4, 4, 1024)))
    assert said == "mat1 and mat2 shapes cannot be multiplied (16x1024 and 512x171)"
    heads = message(lambda: nn.Linear(H * D, E)(ZEROS(B, T, H, D)))
    assert heads == f"mat1 and mat2 shapes cannot be multiplied ({B * T * H}x{D} and {H * D}x{E})"


@pytest.mark.parametrize(
    ("shape", "size", "trusted", "quotient"),
    [
        ((64, 49, 3, 3, 21), 602112, 64 * 49 * 3, 64),
        ((16, 2048, 32, 128), 33554432, 16 * 2048 * 128, 8),
        ((64, 1024, 8, 128), 65536, 64 * 1024, 1),
        ((3, 11, 4, 64), 11264, 11 * 4 * 64, 4),
    ],
)
def test_the_size_by_the_numbers_that_are_right_is_the_one_that_was_meant(shape, size, trusted, quotient):
    said = message(lambda: torch.empty(size, device="meta").view(shape))
    assert said == f"shape '{list(shape)}' is invalid for input of size {size}"
    assert size == trusted * quotient


def test_a_mask_per_item_is_repeated_in_the_order_of_the_joined_axis():
    scores, mask = torch.randn(B, H, T, T), torch.randn(B, T, T)
    right = (scores + mask[:, None]).flatten(0, 1)
    assert torch.equal(scores.flatten(0, 1) + mask.repeat_interleave(H, dim=0), right)
    assert not torch.equal(scores.flatten(0, 1) + mask.repeat(H, 1, 1), right)
    assert torch.equal(right.unflatten(0, (B, H)), scores + mask[:, None])


def test_a_text_expanded_before_the_split_gives_the_keys_that_are_expanded_after_it():
    text, matrix = torch.randn(1, 7, E), torch.randn(E, H * D)
    before = PAGE.split_heads(text.expand(4, -1, -1) @ matrix, H).flatten(0, 1)
    heads = PAGE.split_heads(text @ matrix, H).flatten(0, 1)
    torch.testing.assert_close(heads.unflatten(0, (1, H)).expand(4, H, 7, D).flatten(0, 1), before)


def test_a_model_with_a_head_dim_of_its_own_has_projections_of_these_shapes():
    sizes = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 1}
    with torch.device("meta"):
        model = Qwen3Model(Qwen3Config(hidden_size=2560, intermediate_size=8, vocab_size=5, **sizes))
    cell = executed(SLUG, "projections")[0]
    for name in ("q_proj", "k_proj", "o_proj"):
        assert model.get_submodule(f"layers.0.self_attn.{name}").weight.shape == getattr(cell, name).weight.shape
    assert "size mismatch" in message(lambda: nn.Linear(E, H * D).load_state_dict(nn.Linear(4, H * D).state_dict()))


# -- the exercise --------------------------------------------------------------------------------

SOLUTION = executed(SLUG, "solution")[0]


def test_two_lines_of_the_starter_raise_what_the_solution_names():
    scores = ZEROS(2, 2, 4, 4)
    said = message(lambda: scores.masked_fill(ZEROS(2, 4).bool(), -torch.inf))
    assert said == "The size of tensor a (2) must match the size of tensor b (4) at non-singleton dimension 2"
    assert "batch2 tensor" in executed(SLUG, "exercise")[1]


def by_sdpa(split=SOLUTION.split_heads, axes=lambda is_real: is_real[:, None, None], join=SOLUTION.merge_heads):
    """An answer with SDPA, each of its parts right unless another is given."""

    def answer(tokens, matrices, is_real, H):
        queries, keys, values = (split(tokens @ matrix, H) for matrix in matrices)
        return join(F.scaled_dot_product_attention(queries, keys, values, attn_mask=axes(is_real)))

    return answer


def cut(role, H):
    return role.view(len(role), H, role.shape[1], -1)


def glued(context):
    return context.reshape(len(context), context.shape[2], -1)


RIGHT = {"SDPA": by_sdpa(), "loops": SOLUTION.by_loops}
WRONG = {
    "cut by view": by_sdpa(split=cut),
    "joined by reshape": by_sdpa(join=glued),
    "cut and joined so": by_sdpa(split=cut, join=glued),
    "mask of the queries": by_sdpa(axes=lambda is_real: is_real[:, None, :, None]),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attention", RIGHT, WRONG
