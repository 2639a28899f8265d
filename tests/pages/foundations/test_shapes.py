"""Shapes: the page's functions against torch and the formula, the errors it quotes, and axes that are mixed up."""

import re
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/shapes"
PAGE, SOLUTION, BY_VIEW = (p.page_code(SLUG, cell) for cell in ("attend", "solution", "mixing"))
B, H, T, D, E = 2, 4, 6, 5, 3
ZEROS = torch.zeros


def with_roles(case):
    """Queries, keys and values in four axes, a bias for each head, and tokens before the split."""
    case.roles = [case.randn(case.B, case.H, case.T, case.D) for _ in range(3)]
    case.bias = case.randn(case.H, case.T, case.T)
    case.projected = case.randn(case.B, case.T, case.H * case.D)
    return case


SIZES = p.sizes(B=3, H=(2, 4), T=(2, 5), D=(2, 4)).map(with_roles)
OF_THE_PAGE = p.sizes(B=(B, B), H=(H, H), T=(T, T), D=(D, D)).map(with_roles)

# -- references ----------------------------------------------------------------------------------


def cut_by_loops(projected, H):
    """Entry (b, h, t, d) is column h D + d of token t of item b."""
    B, T, width = projected.shape
    D = width // H
    table = projected.tolist()
    rows = [[[table[b][t][h * D : h * D + D] for t in range(T)] for h in range(H)] for b in range(B)]
    return torch.tensor(rows, dtype=projected.dtype)


def joined_by_loops(context):
    """The rows of a token in all heads, one after the other."""
    B, H, T, _ = context.shape
    table = context.tolist()
    rows = [[[x for h in range(H) for x in table[b][h][t]] for t in range(T)] for b in range(B)]
    return torch.tensor(rows, dtype=context.dtype)


def by_einsum(queries, keys, values, bias):
    """The formula of the page, an index for each axis."""
    scores = torch.einsum("bhid,bhjd->bhij", queries, keys) / queries.shape[-1] ** 0.5 + bias
    weights = scores.exp() / scores.exp().sum(dim=3, keepdim=True)
    return torch.einsum("bhij,bhjd->bhid", weights, values)


# -- what holds for the page's functions -----------------------------------------------------------


def heads_are_columns(code, cases=SIZES):
    p.equals_reference(
        lambda case: code.split(case.projected, case.H), lambda case: cut_by_loops(case.projected, case.H), cases
    )


def tokens_get_their_columns_back(code, cases=SIZES):
    p.equals_reference(lambda case: code.merge(case.roles[0]), lambda case: joined_by_loops(case.roles[0]), cases)


def merge_undoes_split(code, cases=SIZES):
    p.for_all(cases, lambda case: p.close(code.merge(code.split(case.projected, case.H)), case.projected, 0))


def a_token_moves_its_own_row_and_the_later_ones(code, cases=SIZES):
    """Split, causal attention and merge: the support of the Jacobian is the triangle."""

    def function(case):
        future = torch.full((case.T, case.T), -torch.inf, dtype=torch.float64).triu(1)

        def attend(tokens):
            roles = [code.split(factor * tokens[None], case.H) for factor in (1.0, 0.5, 2.0)]
            return code.merge(code.attend(*roles, future))[0]

        return attend, case.projected[0], torch.ones(case.T, case.T).tril().bool()

    p.reaches_exactly(function, cases)


def equals_the_formula(code):
    p.equals_reference(
        lambda case: code.attend(*case.roles, case.bias), lambda case: by_einsum(*case.roles, case.bias), SIZES
    )


def equals_sdpa(code):
    p.equals_reference(
        lambda case: code.attend(*case.roles), lambda case: F.scaled_dot_product_attention(*case.roles), SIZES
    )


def items_and_heads_do_not_mix(code):
    """Another first item and another last head: nothing else moves, not by one bit."""

    def prove(case):
        before = code.attend(*case.roles)
        item, head = [[role.clone() for role in case.roles] for _ in range(2)]
        for role in item:
            role[0] += 1 + case.randn(*role[0].shape)
        for role in head:
            role[:, -1] += 1 + case.randn(*role[:, -1].shape)
        assert torch.equal(code.attend(*item)[1:], before[1:])
        assert torch.equal(code.attend(*head)[:, :-1], before[:, :-1])

    p.for_all(SIZES, prove)


def stateless(code):
    p.stateless(lambda case: (code.attend, [*case.roles, case.bias], [*map(torch.neg, case.roles), case.bias]), SIZES)


OF_THE_LAYOUT = [
    heads_are_columns,
    tokens_get_their_columns_back,
    merge_undoes_split,
    a_token_moves_its_own_row_and_the_later_ones,
]


@pytest.mark.parametrize(
    "holds", [*OF_THE_LAYOUT, equals_the_formula, equals_sdpa, items_and_heads_do_not_mix, stateless]
)
def test_split_attend_and_merge_have_the_property(holds):
    holds(PAGE)


@pytest.mark.parametrize(
    ("before", "after", "passes"),
    [
        ("cut", "merge", [tokens_get_their_columns_back]),
        ("split", "glue", [heads_are_columns]),
        ("cut", "glue", [merge_undoes_split]),
    ],
)
def test_view_in_place_of_transpose_keeps_the_shape_and_both_shortcuts_undo_each_other(before, after, passes):
    before, after = getattr(BY_VIEW, before), getattr(BY_VIEW, after)
    code = SimpleNamespace(split=lambda projected, H: before(projected, H), attend=PAGE.attend, merge=after)
    assert after(before(PAGE.batch @ PAGE.matrices[0], H)).shape == (B, T, H * D)
    assert [holds for holds in OF_THE_LAYOUT if not p.catches(holds, code, OF_THE_PAGE)] == passes


def test_with_one_head_the_shortcuts_change_nothing():
    projected = torch.arange(B * T * D).view(B, T, D)
    assert torch.equal(PAGE.split(projected, 1), projected.view(B, 1, T, D))
    assert torch.equal(PAGE.merge(projected[:, None]), projected)


# -- the claims of the page ------------------------------------------------------------------------


def test_the_batch_is_twice_the_six_tokens_and_its_sizes_differ():
    tokens = p.page_code("foundations/weighted-average", "contexts").inputs
    assert PAGE.batch.shape == (B, T, E)
    assert all(torch.equal(item, tokens) for item in PAGE.batch)
    assert (PAGE.B, PAGE.T, PAGE.E, PAGE.H, PAGE.D) == (B, T, E, H, D)
    assert len({B, H, T, D, E}) == 5


def test_the_reversal_of_the_page_is_what_T_does_and_T_warns():
    names = p.page_code(SLUG, "transposed")
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            reversed_by_torch = names.keys.T
    finally:
        torch.set_warn_always(False)
    assert torch.equal(reversed_by_torch, names.backwards)
    assert "deprecated" in str(caught[0].message)


def test_T_runs_where_batch_tokens_and_width_are_equal_with_wrong_scores():
    queries, keys = torch.randn(2, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    wrong = queries @ keys.permute(2, 1, 0)
    assert wrong.shape == (3, 3, 3)
    assert not torch.allclose(wrong, queries @ keys.mT, atol=0.1)


def test_the_numbers_are_cut_by_the_split_of_the_page():
    names = p.page_code(SLUG, "numbered")
    assert names.tokens[3, 2] == 32
    assert torch.equal(PAGE.split(names.tokens[None], 2)[0], names.right)


def test_contiguous_and_view_do_what_reshape_does():
    turned = torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    assert torch.equal(turned.contiguous().view(B, T, H * D), turned.reshape(B, T, H * D))


def test_with_as_many_items_as_heads_a_bias_of_item_2_goes_to_head_2_and_the_head_axis_mends_it():
    bias = torch.arange(4.0)[:, None, None].expand(4, 6, 6)
    assert ((ZEROS(4, 4, 6, 6) + bias)[:, 2] == 2).all()
    assert ((ZEROS(4, 4, 6, 6) + bias[:, None])[2] == 2).all()


def test_a_padding_mask_of_two_axes_becomes_one_row_of_keys_per_item():
    masked = torch.arange(8)[:, None] + 10 * torch.arange(6)
    full = ZEROS(8, 4, 6, 6) + masked[:, None, None, :]
    assert full.shape == (8, 4, 6, 6)
    assert (full == torch.arange(8)[:, None, None, None] + 10 * torch.arange(6)).all()


def test_one_item_and_one_head_give_the_context_of_the_page_before():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    torch.testing.assert_close(p.page_code(SLUG, "reduce").before, before.context, rtol=0, atol=1e-6)


def test_with_the_transpose_every_row_moves_with_token_5():
    last = PAGE.batch.clone()
    last[:, 5] += 1
    outputs = [PAGE.attend(*(PAGE.split(tokens @ W, H) for W in PAGE.matrices)) for tokens in (PAGE.batch, last)]
    assert ((outputs[1] - outputs[0]).abs().amax(dim=(1, 3)) > 1e-3).all()


def test_multihead_attention_reads_tokens_first_unless_told_otherwise():
    for options, shape in ({}, (T, B, B)), ({"batch_first": True}, (B, T, T)):
        _, weights = nn.MultiheadAttention(E, 1, **options)(PAGE.batch, PAGE.batch, PAGE.batch)
        assert weights.shape == shape


def test_transformers_takes_heads_first_and_returns_tokens_first():
    roles = [PAGE.split(PAGE.batch @ matrix, H) for matrix in PAGE.matrices]
    context, _ = sdpa_attention_forward(nn.Module(), *roles, None, is_causal=False)
    torch.testing.assert_close(context, PAGE.attend(*roles).transpose(1, 2))


# -- the errors that the page quotes ---------------------------------------------------------------

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
]


def message(wrong_line):
    with pytest.raises((RuntimeError, IndexError)) as error:
        wrong_line()
    return str(error.value)


MESSAGES = [message(line) for line in WRONG_LINES]


@pytest.mark.parametrize("tongue", p.languages(SLUG))
def test_the_table_quotes_what_torch_says(tongue):
    page = (p.ROOT / "docs" / tongue / f"{SLUG}.md").read_text(encoding="utf-8")
    section = re.search(r"\{#errors\}$(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1]
    quoted = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert quoted == MESSAGES


def test_keys_with_another_number_of_heads_raise_the_message_of_a_mask_without_heads():
    assert message(lambda: ZEROS(2, 4, 6, 5) @ ZEROS(2, 2, 5, 6)) == MESSAGES[4]


def test_in_masked_fill_tensor_a_is_masked():
    swapped = message(lambda: ZEROS(2, 4, 6, 6).masked_fill(ZEROS(2, 6, 6).bool(), -torch.inf))
    assert swapped == MESSAGES[4].replace("a (4)", "a (2)").replace("b (2)", "b (4)")


# -- the exercise --------------------------------------------------------------------------------


def by_torch(queries, keys, bias):
    try:
        return tuple((ZEROS(queries) @ ZEROS(keys).mT + ZEROS(bias)).shape)
    except RuntimeError:
        return None


def drawn_shapes():
    """Shapes of 0 to 2 axes in front, sizes 1 to 3, so that each rule is met and broken."""
    generator = torch.Generator().manual_seed(6)

    def sizes(count):
        return tuple(torch.randint(1, 4, (count,), generator=generator).tolist())

    for _ in range(400):
        axes = torch.randint(0, 3, (3,), generator=generator).tolist()
        yield sizes(axes[0] + 2), sizes(axes[1] + 2), sizes(2 * axes[2])


def test_the_solution_predicts_what_torch_does_with_drawn_shapes():
    cases = list(drawn_shapes())
    found = [SOLUTION.scores_shape(*case) for case in cases]
    assert found == [by_torch(*case) for case in cases]
    assert 50 < sum(shape is None for shape in found) < 350


def on_meta(queries, keys, bias):
    queries, keys, bias = (torch.empty(shape, device="meta") for shape in (queries, keys, bias))
    try:
        return (queries @ keys.mT + bias).shape
    except RuntimeError:
        return None


def by_broadcast_shapes(queries, keys, bias):
    try:
        scores = torch.broadcast_shapes((*queries[:-1], 1), (*keys[:-2], 1, keys[-2]), bias)
    except RuntimeError:
        return None
    return tuple(scores) if queries[-1] == keys[-1] else None


def right(queries, keys, bias):
    return SOLUTION.scores_shape(queries, keys, bias)


def scores_only(queries, keys):
    return right(queries, keys, ())


def except_where(condition, otherwise):
    """Right, but for the cases that a condition picks."""
    return lambda q, k, b: otherwise(q, k, b) if condition(q, k, b) else right(q, k, b)


def stretched(q, k, b):
    wanted = right(q, k, b)
    return wanted is not None and wanted != scores_only(q, k)


def left_aligned(q, k, b):
    scores = scores_only(q, k)
    return scores and SOLUTION.meet(scores, (*b, *[1] * (len(scores) - len(b))))


def of_scores_and_last(q, k, b):
    scores = scores_only(q, k)
    return scores if scores and b[-1] in (1, scores[-1]) else None


RIGHT = {
    "the device without memory": on_meta,
    "broadcast_shapes": by_broadcast_shapes,
    "tensors of zeros": by_torch,
    "the function of the page": right,
    "a torch.Size": lambda q, k, b: right(q, k, b) and torch.Size(right(q, k, b)),
}
WRONG = {
    "returns None": lambda q, k, b: None,
    "raises": lambda q, k, b: q[9],
    "a list": lambda q, k, b: right(q, k, b) and list(right(q, k, b)),
    "a tensor": lambda q, k, b: torch.zeros(right(q, k, b) or (1,)),
    "text": lambda q, k, b: str(right(q, k, b)),
    "False in place of None": lambda q, k, b: right(q, k, b) or False,
    "an empty tuple in place of None": lambda q, k, b: right(q, k, b) or (),
    "lets torch raise": lambda q, k, b: tuple((ZEROS(q) @ ZEROS(k).mT + ZEROS(b)).shape),
    "queries before keys": lambda q, k, b: (*q[:-1], k[-2]),
    "no mask": lambda q, k, b: scores_only(q, k),
    "the mask where there is one of four axes": lambda q, k, b: b if len(b) == 4 else scores_only(q, k),
    "the last axis of the mask alone": of_scores_and_last,
    "scores transposed": lambda q, k, b: right(k, q, b),
    "keys not transposed": lambda q, k, b: right(q, (*k[:-2], k[-1], k[-2]), b),
    "queries against values": lambda q, k, b: right(q, k, b) and (*right(q, k, b)[:-1], k[-1]),
    "width ignored": lambda q, k, b: right(q, (*k[:-1], q[-1]), b),
    "width that stretches": lambda q, k, b: right(q, (*k[:-1], q[-1]) if k[-1] == 1 else k, b),
    "batch of the queries": lambda q, k, b: right(q, (*q[:2], *k[2:]), b),
    "batch of the keys": lambda q, k, b: right((*k[:2], *q[2:]), k, b),
    "heads must be equal": except_where(lambda q, k, b: q[1] != k[1], lambda q, k, b: None),
    "items must be equal": except_where(lambda q, k, b: q[0] != k[0], lambda q, k, b: None),
    "mask must have four axes": except_where(lambda q, k, b: len(b) != 4, lambda q, k, b: None),
    "mask of three axes gets a head axis": lambda q, k, b: right(q, k, (b[0], 1, *b[1:]) if len(b) == 3 else b),
    "mask must not stretch the scores": except_where(stretched, lambda q, k, b: None),
    "mask that stretches is ignored": except_where(stretched, lambda q, k, b: scores_only(q, k)),
    "aligned from the left": left_aligned,
    "1 only on the side of the mask": except_where(
        lambda q, k, b: 1 in q[:2] + k[:2] and q[:2] != k[:2], lambda q, k, b: None
    ),
    "the larger size wins": lambda q, k, b: tuple(map(max, (*q[:3], k[2]), (*k[:2], 1, 1), (1,) * (4 - len(b)) + b)),
    "mask transposed": lambda q, k, b: right(q, k, (*b[:-2], *b[-2:][::-1])),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_shape", RIGHT, WRONG
