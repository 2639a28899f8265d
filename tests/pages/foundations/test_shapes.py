"""Shapes: the page's functions against torch and the formula, the errors it quotes, and axes that are mixed up."""

import re
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "foundations/shapes"
PAGE, BY_VIEW = (p.page_code(SLUG, cell) for cell in ("attend", "mixing"))
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
def test_view_in_place_of_transpose_keeps_the_shape_and_both_shortcuts_cancel_out(before, after, passes):
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
    assert all(torch.equal(item, tokens) for item in PAGE.batch)
    assert (PAGE.B, PAGE.T, PAGE.E, PAGE.H, PAGE.D) == (*PAGE.batch.shape, H, D) == (B, T, E, H, D)
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
    assert torch.equal(reversed_by_torch, names.reversed_keys)
    assert "deprecated" in str(caught[0].message)


def test_the_numbers_are_cut_by_the_split_of_the_page():
    names = p.page_code(SLUG, "numbered")
    assert names.tokens[3, 2] == 32
    assert torch.equal(PAGE.split(names.tokens[None], 2)[0], names.right)


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


def test_repeat_kv_and_enable_gqa_repeat_neighbouring_heads_and_repeat_does_not():
    names = p.page_code(SLUG, "fewer-heads")
    assert torch.equal(repeat_kv(names.keys, 2), names.neighbours[0])
    order = torch.arange(2).view(1, 2, 1, 1)
    assert repeat_kv(order, 2).flatten().tolist() == [0, 0, 1, 1]
    assert order.repeat(1, 2, 1, 1).flatten().tolist() == [0, 1, 0, 1]


def test_multihead_attention_reads_tokens_first_unless_told_otherwise():
    for options, shape in ({}, (T, B, B)), ({"batch_first": True}, (B, T, T)):
        _, weights = nn.MultiheadAttention(E, 1, **options)(PAGE.batch, PAGE.batch, PAGE.batch)
        assert weights.shape == shape


def test_multihead_attention_takes_the_masks_that_the_table_names(on_the_cpu):
    tokens, hidden = torch.randn(B, T, 8), torch.zeros(B, T, dtype=torch.bool)
    hidden[0, 5] = True
    attention = nn.MultiheadAttention(8, 4, batch_first=True)
    _, by_row = attention(tokens, tokens, tokens, key_padding_mask=hidden)
    masks = hidden[:, None].expand(B, T, T).repeat_interleave(4, dim=0)
    _, by_masks = attention(tokens, tokens, tokens, attn_mask=masks)
    torch.testing.assert_close(by_row, by_masks)
    assert (by_row[0, :, 5] == 0).all()
    assert (by_row[1, :, 5] > 0).all()


def test_one_item_and_one_head_give_the_contexts_of_queries_keys_and_values():
    book = p.page_code("foundations/queries-keys-values", "matrix")
    torch.testing.assert_close(p.page_code(SLUG, "reduce").before, book.context, rtol=0, atol=1e-6)


def test_transformers_takes_heads_first_and_returns_tokens_first():
    roles = [PAGE.split(PAGE.batch @ matrix, H) for matrix in PAGE.matrices]
    context, _ = sdpa_attention_forward(nn.Module(), *roles, None, is_causal=False)
    torch.testing.assert_close(context, PAGE.attend(*roles).transpose(1, 2))


def test_the_functions_run_on_another_device_than_the_default():
    projected = torch.empty(B, T, H * D, device="meta")
    roles = [PAGE.split(projected, H)] * 3
    assert PAGE.merge(PAGE.attend(*roles)).device == projected.device
    assert BY_VIEW.glue(BY_VIEW.cut(projected, H)).device == projected.device
    tokens, matrices = torch.empty(B, T, E, device="meta"), torch.empty(3, E, H * D, device="meta")
    masked = torch.empty(B, T, dtype=torch.bool, device="meta")
    assert SOLUTION.attend_in_batch(tokens, matrices, masked, H).shape == (B, T, H * D)


# -- the errors that the page quotes ---------------------------------------------------------------


def with_mask(mask, **options):
    tokens = ZEROS(B, T, 8)
    return nn.MultiheadAttention(8, 4, batch_first=True, **options)(tokens, tokens, tokens, attn_mask=mask)


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
]


def message(wrong_line):
    with pytest.raises((AssertionError, IndexError, RuntimeError)) as error:
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


@pytest.mark.parametrize("batch_first", [False, True])
def test_where_axes_0_and_1_are_swapped_a_square_mask_should_be_one_of_the_items(batch_first):
    tokens = ZEROS(T, B, 8) if batch_first else ZEROS(B, T, 8)
    layer = nn.MultiheadAttention(8, 4, batch_first=batch_first)
    said = message(lambda: layer(tokens, tokens, tokens, attn_mask=ZEROS(T, T)))
    assert said.endswith("but should be (2, 2).")


def test_in_masked_fill_tensor_a_is_masked():
    swapped = message(lambda: ZEROS(2, 4, 6, 6).masked_fill(ZEROS(2, 6, 6).bool(), -torch.inf))
    assert swapped == message(WRONG_LINES[4]).replace("a (4)", "a (2)").replace("b (2)", "b (4)")


# -- the exercise --------------------------------------------------------------------------------

SOLUTION = executed(SLUG, "solution")[0]


def test_the_solution_is_sdpa_of_each_head_alone():
    def by_sdpa(case):
        heads = zip(*((case.tokens @ matrix).chunk(case.H, dim=-1) for matrix in case.matrices))
        visible = ~case.masked[:, None, None]
        alone = [F.scaled_dot_product_attention(*(role[:, None] for role in head), visible)[:, 0] for head in heads]
        return torch.cat(alone, dim=-1)

    def drawn(case):
        case.tokens = case.randn(case.B, case.T, 3)
        case.matrices = case.randn(3, 3, case.H * case.D)
        case.masked = (case.randn(case.B, case.T) > 0).index_fill(1, torch.tensor([0]), False)
        return case

    cases = p.sizes(B=3, H=4, T=5, D=3).map(drawn)
    p.equals_reference(
        lambda case: SOLUTION.attend_in_batch(case.tokens, case.matrices, case.masked, case.H), by_sdpa, cases
    )


def split(role, H):
    return role.unflatten(-1, (H, -1)).transpose(1, 2)


def cut(role, H):
    return role.view(len(role), H, role.shape[1], -1)


def joined(context):
    return context.transpose(1, 2).flatten(2)


def glued(context):
    return context.reshape(len(context), context.shape[2], -1)


def by_keys(q, k):
    return q @ k / q.shape[-1] ** 0.5


def axes_of(masked):
    return masked[:, None, None]


def as_it_is(tensor):
    return tensor


def written(split=split, scores=lambda q, k: q @ k.mT / q.shape[-1] ** 0.5, axes=axes_of, softmax=None, join=joined):
    """An answer, each of its lines right unless another is given."""
    softmax = softmax or (lambda scores: scores.softmax(dim=-1))

    def answer(tokens, matrices, masked, H):
        q, k, v = (split(tokens @ matrix, H) for matrix in matrices)
        filled = scores(q, k).masked_fill(axes(masked), -torch.inf)
        return join(softmax(filled) @ v)

    return answer


def by_sdpa(tokens, matrices, masked, H, **options):
    q, k, v = (split(tokens @ matrix, H) for matrix in matrices)
    return joined(F.scaled_dot_product_attention(q, k, v, attn_mask=~axes_of(masked), **options))


def naive(scores):
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


def then(change):
    """The right answer, changed."""
    return lambda *given: change(written()(*given))


def spoiled(tokens, matrices, masked, H):
    context = written()(tokens, matrices, masked, H)
    tokens.zero_()
    return context


RIGHT = {
    "split and joined": written(),
    "SDPA": by_sdpa,
    "loops": SOLUTION.by_loops,
    "transposed scores": written(scores=lambda q, k: (k @ q.mT).mT / q.shape[-1] ** 0.5),
    "joined along the columns": written(join=lambda c: c.mT.flatten(1, 2).mT),
}
WRONG = {
    "nothing repaired": written(cut, by_keys, as_it_is, join=glued),
    "keys not transposed": written(scores=by_keys),
    "keys transposed by reshape": written(scores=lambda q, k: q @ k.reshape(k.mT.shape) / q.shape[-1] ** 0.5),
    "mask without axes": written(axes=as_it_is),
    "mask with one axis": written(axes=lambda m: m[:, None]),
    "mask of the queries": written(axes=lambda m: m[:, None, :, None]),
    "mask of the first item": written(axes=lambda m: m[:1, None, None]),
    "mask inverted": written(axes=lambda m: ~axes_of(m)),
    "no mask": written(axes=lambda m: m.new_zeros(1, 1, 1, 1)),
    "causal as well": written(axes=lambda m: axes_of(m) | m.new_ones(m.shape[1], m.shape[1]).triu(1)),
    "cut and joined": written(cut),
    "split and glued": written(join=glued),
    "cut and glued": written(cut, join=glued),
    "heads in alternate columns": written(lambda r, H: r.unflatten(-1, (-1, H)).movedim(-1, 1)),
    "joined in alternate columns": written(join=lambda c: c.permute(0, 2, 3, 1).flatten(2)),
    "not joined": written(join=as_it_is),
    "softmax over the queries": written(softmax=lambda s: s.softmax(dim=-2)),
    "softmax that overflows": written(softmax=naive),
    "a finite fill": written(softmax=lambda s: s.nan_to_num(neginf=-20.0).softmax(dim=-1)),
    "filled with -1e9": written(softmax=lambda s: s.nan_to_num(neginf=-1e9).softmax(dim=-1)),
    "weights detached": written(softmax=lambda s: s.softmax(dim=-1).detach()),
    "context detached": then(torch.Tensor.detach),
    "no scale": lambda *given: by_sdpa(*given, scale=1.0),
    "scale of all heads": lambda t, w, m, H: by_sdpa(t, w, m, H, scale=w.shape[-1] ** -0.5),
    "scale of the page": lambda *given: by_sdpa(*given, scale=5**-0.5),
    "one head": lambda t, w, m, H: by_sdpa(t, w, m, 1),
    "three heads": lambda t, w, m, H: by_sdpa(t, w, m, 3),
    "values of the keys": lambda t, w, m, H: by_sdpa(t, w[[0, 1, 1]], m, H),
    "float32": then(torch.Tensor.float),
    "tokens set to 0": spoiled,
    "mask changed in place": lambda t, w, m, H: by_sdpa(t, w, ~m.logical_not_(), H),
    "mask on the CPU": lambda t, w, m, H: by_sdpa(t, w, m.cpu(), H),
    "returns None": then(lambda context: None),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_attention", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "queries and keys have one shape on this page": [
        "D = keys.shape[-1]",
        "T, D = keys.shape",
    ],
}
ACCEPTED = {
    "queries and keys have one shape on this page": ["scores = queries @ keys.mT / keys.shape[-1] ** 0.5"],
}
