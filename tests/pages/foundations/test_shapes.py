"""Shapes: the page's code against named einsum and plain loops, the errors it quotes, and axes that are mixed up."""

import importlib.util
import itertools
import re
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.bugs import Bugs
from tests.pages.exercise import Exercise

SLUG = "foundations/shapes"
PAGE, SOLUTION = p.page_code(SLUG, "attend"), p.page_code(SLUG, "solution")
B, H, T, D, E = 2, 4, 6, 5, 3
TOKENS = p.page_code("foundations/weighted-average", "contexts").inputs

CUT = {"projected.view(B, T, H, width // H).transpose(1, 2)": "projected.view(B, H, T, width // H)"}
GLUE = {"context.transpose(1, 2).reshape": "context.reshape"}


def with_roles(case):
    """Queries, keys and values in four axes, a mask for each head, and tokens before the split."""
    case.roles = [case.randn(case.B, case.H, case.T, case.D) for _ in range(3)]
    case.mask = case.randn(case.H, case.T, case.T)
    case.projected = case.randn(case.B, case.T, case.H * case.D)
    return case


SIZES = p.sizes(B=3, H=(2, 4), T=(2, 5), D=(2, 4)).map(with_roles)

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


def by_einsum(queries, keys, values, mask=0.0):
    """The formula of the page, an index for each axis."""
    scores = torch.einsum("bhid,bhjd->bhij", queries, keys) / queries.shape[-1] ** 0.5 + mask
    weights = scores.exp() / scores.exp().sum(dim=3, keepdim=True)
    return torch.einsum("bhij,bhjd->bhid", weights, values)


def by_loops(queries, keys, values, mask=0.0):
    """One item and one head at a time."""
    B, H, T, D = queries.shape
    mask = torch.as_tensor(mask, dtype=queries.dtype).expand(B, H, T, T)
    items = []
    for b, h in itertools.product(range(B), range(H)):
        scores = torch.stack([keys[b, h] @ query for query in queries[b, h]]) * D**-0.5 + mask[b, h]
        items.append(torch.softmax(scores, dim=1) @ values[b, h])
    return torch.stack(items).view(B, H, T, D)


def layer(projected, H, split, attend, merge):
    return merge(attend(*(split(role, H) for role in projected)))


# -- what holds for the page's functions -----------------------------------------------------------


def heads_are_columns(code):
    p.equals_reference(
        lambda case: code.split(case.projected, case.H), lambda case: cut_by_loops(case.projected, case.H), SIZES
    )


def tokens_get_their_columns_back(code):
    p.equals_reference(lambda case: code.merge(case.roles[0]), lambda case: joined_by_loops(case.roles[0]), SIZES)


def merge_undoes_split(code):
    p.for_all(SIZES, lambda case: p.close(code.merge(code.split(case.projected, case.H)), case.projected, 0))


def equals_einsum(code):
    def prove(case):
        p.close(code.attend(*case.roles), by_einsum(*case.roles))
        p.close(code.attend(*case.roles, case.mask), by_einsum(*case.roles, case.mask))

    p.for_all(SIZES, prove)


def equals_loops_over_items_and_heads(code):
    p.equals_reference(
        lambda case: code.attend(*case.roles, case.mask), lambda case: by_loops(*case.roles, case.mask), SIZES
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


def every_row_moves_with_every_token_it_may_see(code):
    """Split, causal attention and merge: the support of the Jacobian is the triangle."""

    def function(case):
        future = torch.full((case.T, case.T), -torch.inf, dtype=torch.float64).triu(1)

        def attend(tokens):
            roles = [code.split(factor * tokens[None], case.H) for factor in (1.0, 0.5, 2.0)]
            return code.merge(code.attend(*roles, future))[0]

        return attend, case.projected[0], torch.ones(case.T, case.T).tril().bool()

    p.reaches_exactly(function, SIZES)


def stateless(code):
    p.stateless(lambda case: (code.attend, [*case.roles, case.mask], [*map(torch.neg, case.roles), case.mask]), SIZES)


PROPERTIES = [
    heads_are_columns,
    tokens_get_their_columns_back,
    merge_undoes_split,
    equals_einsum,
    equals_loops_over_items_and_heads,
    equals_sdpa,
    items_and_heads_do_not_mix,
    every_row_moves_with_every_token_it_may_see,
    stateless,
]
REFERENCES = [equals_einsum, equals_loops_over_items_and_heads, equals_sdpa]
JACOBIAN = every_row_moves_with_every_token_it_may_see

BUGS = {  # what the bug makes of the cell, and the properties that catch it
    "view in place of transpose": (CUT, [heads_are_columns, JACOBIAN, merge_undoes_split]),
    "no transpose on the way back": (GLUE, [tokens_get_their_columns_back, JACOBIAN, merge_undoes_split]),
    "both shortcuts": ({**CUT, **GLUE}, [heads_are_columns, tokens_get_their_columns_back, JACOBIAN]),
    "columns dealt out to the heads": (
        {"T, H, width // H).transpose(1, 2)": "T, width // H, H).permute(0, 3, 1, 2)"},
        [heads_are_columns, merge_undoes_split],
    ),
    "batch and heads swapped": (
        {"context.transpose(1, 2).reshape(B, T": "context.permute(2, 0, 1, 3).reshape(B, T"},
        [tokens_get_their_columns_back],
    ),
    "T on the keys": ({"keys.mT": "keys.permute(3, 2, 1, 0)"}, REFERENCES),
    "heads transposed": ({"keys.mT": "keys.transpose(1, 2)"}, REFERENCES),
    "not scaled": ({" / D**0.5": ""}, REFERENCES),
    "scaled by the tokens": ({"D**0.5": "T**0.5"}, REFERENCES),
    "mask not heard": ({" + mask": ""}, [equals_einsum, equals_loops_over_items_and_heads]),
    "softmax over the queries": ({"dim=-1": "dim=-2"}, REFERENCES),
    "softmax over the heads": ({"dim=-1": "dim=1"}, [*REFERENCES, items_and_heads_do_not_mix]),
    "keys as values": ({"weights @ values": "weights @ keys"}, REFERENCES),
    "weights transposed": ({"weights @ values": "weights.mT @ values"}, REFERENCES),
    "items averaged": ({"weights @ values": "weights @ values.mean(0)"}, [*REFERENCES, items_and_heads_do_not_mix]),
    "scaled in place": ({"scores = queries @": "scores = queries.mul_(2) @"}, [stateless]),
    "heads flipped": ({"weights @ values": "weights @ values.flip(1)"}, [*REFERENCES, items_and_heads_do_not_mix]),
}


class TestBugs(Bugs):
    SLUG, CELL, PROPERTIES, BUGS = SLUG, "attend", PROPERTIES, BUGS


# -- what the cells print ------------------------------------------------------------------------


def printed(cell):
    return p.run_cell(SLUG, cell)[1]


def decimals(values):
    return [f"{float(value):.4f}" for value in values]


def test_the_batch_is_twice_the_six_tokens_and_its_sizes_differ():
    assert torch.equal(PAGE.inputs, TOKENS)
    assert PAGE.batch.shape == (B, T, E)
    assert all(torch.equal(item, TOKENS) for item in PAGE.batch)
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
    assert names.backwards.shape == (D, T, B)
    assert "deprecated" in str(caught[0].message)


def test_T_fails_where_sizes_differ_and_mT_gives_the_scores():
    names, lines = p.run_cell(SLUG, "transposed")
    assert lines.splitlines() == [
        "T: The size of tensor a (2) must match the size of tensor b (5)",
        "mT: (2, 6, 6)",
        "True",
    ]
    torch.testing.assert_close(names.scores, torch.einsum("bid,bjd->bij", names.queries, names.keys))


def test_T_runs_where_batch_tokens_and_width_are_equal_with_wrong_scores():
    queries, keys = torch.randn(2, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    wrong = queries @ keys.permute(2, 1, 0)
    assert wrong.shape == (3, 3, 3)
    assert not torch.allclose(wrong, queries @ keys.mT, atol=0.1)


def test_the_matmul_of_four_axes_is_the_loop_over_the_heads():
    names, lines = p.run_cell(SLUG, "loop")
    table = names.numbers[0].tolist()
    scores = [[[sum(x * y for x, y in zip(i, j)) for j in head] for i in head] for head in table]
    assert names.scores[0].tolist() == scores
    assert [int(number) for number in re.findall(r"\d+", lines)] == [x for head in scores for row in head for x in row]
    assert lines.endswith("True\n")
    assert names.numbers.shape == (1, 2, 3, 4)


def test_entry_32_is_token_3_column_2_and_view_gives_head_0_two_whole_tokens():
    names, lines = p.run_cell(SLUG, "numbered")
    right = [[10 * token + column for column in range(3)] for token in range(4)]
    wrong = [[0, 1, 2], [3, 4, 5], [10, 11, 12], [13, 14, 15]]
    assert names.tokens[3, 2] == 32
    assert [int(number) for number in re.findall(r"\d+", lines)] == [x for row in right + wrong for x in row]


def test_the_numbers_are_cut_by_the_split_of_the_page():
    names = p.page_code(SLUG, "numbered")
    assert torch.equal(PAGE.split(names.tokens[None], 2)[0], names.right)


def reference_rows(token, cut, glue):
    """How far each row of item 0 moves when a token is nudged, in float64, by loops."""
    future = torch.full((T, T), -torch.inf, dtype=torch.float64).triu(1)
    outputs = []
    for nudge in (0.0, 1.0):
        tokens = TOKENS.double().clone()
        tokens[token] += nudge
        roles = [tokens @ matrix.double() for matrix in PAGE.matrices]
        if cut:
            heads = [role.flatten().view(1, H, T, D) for role in roles]
        else:
            heads = [cut_by_loops(role[None], H) for role in roles]
        context = by_loops(*heads, future)
        outputs.append(context.flatten().view(T, H * D) if glue else joined_by_loops(context)[0])
    return (outputs[1] - outputs[0]).abs().amax(dim=1)


@pytest.mark.parametrize(
    ("line", "cut", "glue"), [(1, False, False), (2, True, False), (3, False, True), (4, True, True)]
)
def test_the_shortcuts_move_the_rows_that_the_page_prints(line, cut, glue):
    lines = printed("mixing").splitlines()
    assert lines[0].split() == ["token", "0", "token", "5", "leak"]
    assert len(lines) == 5
    first, last = (reference_rows(token, cut, glue) for token in (0, 5))
    rows = ["".join(str(i) for i in range(T) if moves[i] > 1e-9) for moves in (first, last)]
    names = f"{'cut' if cut else 'split'}, {'glue' if glue else 'merge'}"
    assert lines[line] == f"{names:13} {rows[0]:7} {rows[1]:7} {last[:5].max():.4f}"


def test_the_functions_of_the_mixing_cell_do_what_they_are_said_to_do():
    names = p.page_code(SLUG, "mixing")
    projected = torch.arange(B * T * H * D).view(B, T, H * D)
    assert names.cut(projected, H).shape == (B, H, T, D)
    assert names.cut(projected, H).flatten().tolist() == projected.flatten().tolist()
    context = projected.view(B, H, T, D)
    assert names.glue(context).shape == (B, T, H * D)
    assert names.glue(context).flatten().tolist() == context.flatten().tolist()
    for token in range(T):
        moves = names.moved(token, names.split, names.merge)
        torch.testing.assert_close(moves.double(), reference_rows(token, False, False), rtol=1e-4, atol=1e-5)


def test_all_four_pairs_return_one_shape():
    names = p.page_code(SLUG, "mixing")
    projected = PAGE.batch @ PAGE.matrices[0]
    pairs = itertools.product((names.split, names.cut), (names.merge, names.glue))
    assert {tuple(after(before(projected, H)).shape) for before, after in pairs} == {(2, 6, 20)}


def test_a_head_of_cut_holds_a_token_and_a_half():
    assert T * D / (H * D) == 1.5


def test_with_one_head_the_shortcuts_change_nothing():
    projected = torch.randn(B, T, D, generator=torch.Generator().manual_seed(0))
    heads = PAGE.split(projected, 1)
    assert torch.equal(heads, projected.view(B, 1, T, D))
    assert torch.equal(PAGE.merge(heads), heads.reshape(B, T, D))


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


def test_view_fails_after_the_transpose_and_copies_have_960_bytes():
    names, lines = p.run_cell(SLUG, "copies")
    error, *rows = lines.splitlines()
    assert [message for message in MESSAGES if message.startswith(f"{error} (")] != []
    copied = {}
    for row in rows:
        name, strides, count = re.fullmatch(r"(\w+) +(\([\d, ]+\)) +(\d+) bytes copied", row).groups()
        assert strides == str(names.results[name].stride())
        copied[name] = int(count)
    whole = 4 * B * T * H * D
    assert copied == {"view": 0, "transpose": 0, "expand": 0, "contiguous": whole, "reshape": whole}
    assert whole == 960
    for name, result in names.results.items():
        sources = {memory(names.projected), memory(names.context)}
        assert (memory(result) in sources) == (copied[name] == 0)


def test_a_step_to_the_next_head_is_30_and_0_repeats_an_axis():
    names = p.page_code(SLUG, "copies")
    assert names.turned.stride(2) == 30
    assert names.turned.shape[3] == 5
    assert names.results["expand"].stride(0) == 0


def test_contiguous_and_view_do_what_reshape_does():
    turned = torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    assert torch.equal(turned.contiguous().view(B, T, H * D), turned.reshape(B, T, H * D))


def test_the_masks_that_fit_give_the_shape_of_the_scores_and_the_others_an_error():
    lines = printed("masks").splitlines()
    shapes = ["(6, 6)", "(2, 1, 1, 6)", "(2, 1, 6, 6)", "(1, 4, 1, 1)", "(4, 6, 6)", "(2, 6, 6)", "(2, 6)", "(4, 4)"]
    assert [line[: len(shape)] for line, shape in zip(lines, shapes, strict=True)] == shapes
    assert [line[14:] for line in lines[:5]] == ["(2, 4, 6, 6)"] * 5
    for line, shape in zip(lines[5:], ((2, 6, 6), (2, 6), (4, 4))):
        with pytest.raises(RuntimeError) as error:
            torch.zeros(2, 4, 6, 6) + torch.zeros(shape)
        assert line[14:] == str(error.value).split(" at ")[0]


def test_with_as_many_items_as_heads_a_mask_of_item_2_goes_to_head_2():
    mask = torch.arange(4.0)[:, None, None].expand(4, 6, 6)
    result = torch.zeros(4, 4, 6, 6) + mask
    assert (result[:, 2] == 2).all()
    mended = torch.zeros(4, 4, 6, 6) + mask[:, None]
    assert (mended[2] == 2).all()


def test_only_the_default_layout_of_multihead_attention_mixes_the_items():
    names, lines = p.run_cell(SLUG, "independence")
    nudged = torch.stack([TOKENS + 1, TOKENS]).double()
    both = torch.stack([TOKENS, TOKENS]).double()

    def ours(tokens):
        roles = [cut_by_loops(tokens @ matrix.double(), H) for matrix in PAGE.matrices]
        return joined_by_loops(by_loops(*roles))

    def theirs(tokens, transposed):
        torch.manual_seed(0)
        module = nn.MultiheadAttention(E, 1)
        weights = module.in_proj_weight.detach().double().chunk(3)
        rows = tokens if transposed else tokens.transpose(0, 1)
        roles = [(rows @ matrix.T).transpose(0, 1)[:, None] for matrix in weights]
        context = by_loops(*roles)[:, 0].transpose(0, 1)
        outputs = context @ module.out_proj.weight.detach().double().T
        return outputs if transposed else outputs.transpose(0, 1)

    runs = {
        "ours": ours,
        "batch_first=True": lambda tokens: theirs(tokens, False),
        "batch_first=False": lambda tokens: theirs(tokens, True),
    }
    for line, (name, run) in zip(lines.splitlines(), runs.items(), strict=True):
        moved = (run(nudged) - run(both)).abs().amax(dim=(1, 2))
        assert line[:18].strip() == name
        found = torch.tensor([float(number) for number in re.findall(r"\d\.\d{4}", line)], dtype=torch.float64)
        torch.testing.assert_close(found, moved, rtol=0, atol=6e-5)
    assert torch.equal(names.ours(names.nudged)[1], names.ours(names.batch)[1])
    torch.testing.assert_close(names.ours(nudged.float()).double(), ours(nudged), rtol=1e-4, atol=1e-5)


def test_one_item_and_one_head_give_the_context_of_the_page_before():
    before = p.page_code("foundations/queries-keys-values", "matrix")
    names, lines = p.run_cell(SLUG, "reduce")
    assert lines.splitlines() == ["tensor([0.3061, 0.8210])", "(1, 6, 2) True", "(2, 6, 2) True"]
    torch.testing.assert_close(names.before, before.context, rtol=0, atol=1e-6)
    roles = [names.split(names.inputs[None] @ matrix, 1) for matrix in names.single]
    torch.testing.assert_close(names.merge(names.attend(*roles))[0], before.context, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bug", [{"weights @ values": "weights @ keys"}, {" / D**0.5": ""}])
def test_the_reduction_sees_a_bug(bug):
    assert "True" not in p.run_cell(SLUG, "reduce", ("attend", bug))[1]


def test_sdpa_without_the_transpose_attends_over_the_heads_of_a_token():
    names, lines = p.run_cell(SLUG, "in-torch")
    first, shape, moved = lines.splitlines()
    assert (first, shape) == ("True", "(2, 6, 4, 5)")
    tokens = TOKENS.double()
    last = tokens.clone()
    last[5] += 1
    contexts = []
    for rows in (tokens, last):
        queries, keys, values = ((rows @ matrix.double()).view(T, H, D) for matrix in PAGE.matrices)
        weights = torch.softmax(torch.einsum("thd,tgd->thg", queries, keys) / D**0.5, dim=2)
        contexts.append(torch.einsum("thg,tgd->thd", weights, values))
    expected = (contexts[1] - contexts[0]).abs().amax(dim=(1, 2))
    assert re.findall(r"\d\.\d{4}", moved) == decimals(expected)
    assert (expected[:5] == 0).all()
    torch.testing.assert_close(names.outputs[0][0].double(), contexts[0], rtol=1e-4, atol=1e-5)


def test_with_the_transpose_every_row_moves_with_token_5():
    last = PAGE.batch.clone()
    last[:, 5] += 1
    outputs = [PAGE.attend(*(PAGE.split(tokens @ W, H) for W in PAGE.matrices)) for tokens in (PAGE.batch, last)]
    assert ((outputs[1] - outputs[0]).abs().amax(dim=(1, 3)) > 1e-3).all()


# -- the errors that the page quotes ---------------------------------------------------------------

ZEROS = torch.zeros
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


def test_the_numbers_in_the_messages_are_those_that_the_table_explains():
    assert B * T == 12
    assert B * H == 8
    assert B * T * H * D == 240
    assert H * 2 * 6 * 5 == 240


def test_in_masked_fill_tensor_a_is_the_mask():
    swapped = message(lambda: ZEROS(2, 4, 6, 6).masked_fill(ZEROS(2, 6, 6).bool(), -torch.inf))
    assert swapped == MESSAGES[4].replace("a (4)", "a (2)").replace("b (2)", "b (4)")


def test_the_head_axis_mends_the_mask():
    assert (ZEROS(2, 4, 6, 6) + ZEROS(2, 6, 6)[:, None]).shape == (2, 4, 6, 6)


def test_the_answer_to_the_first_question():
    mask = torch.arange(8)[:, None] + 10 * torch.arange(6)
    full = (ZEROS(8, 4, 6, 6) + mask[:, None, None, :]).long()
    assert full.shape == (8, 4, 6, 6)
    assert (full == torch.arange(8)[:, None, None, None] + 10 * torch.arange(6)).all()


# -- the layouts of other code ---------------------------------------------------------------------


def test_multihead_attention_reads_tokens_first_unless_told_otherwise():
    module = nn.MultiheadAttention(E, 1)
    assert module.batch_first is False
    _, weights = module(PAGE.batch, PAGE.batch, PAGE.batch)
    assert weights.shape == (T, B, B)
    _, weights = nn.MultiheadAttention(E, 1, batch_first=True)(PAGE.batch, PAGE.batch, PAGE.batch)
    assert weights.shape == (B, T, T)


def test_transformers_takes_heads_first_and_returns_tokens_first():
    folder = Path(importlib.util.find_spec("transformers").submodule_search_locations[0])
    code = (folder / "integrations" / "sdpa_attention.py").read_text(encoding="utf-8")
    assert "q_length = query.shape[2]" in code
    assert "attn_output = attn_output.transpose(1, 2).contiguous()" in code


# -- the exercise --------------------------------------------------------------------------------


def by_torch(queries, keys, mask):
    try:
        return tuple((ZEROS(queries) @ ZEROS(keys).mT + ZEROS(mask)).shape)
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


def test_meet_is_broadcasting():
    for left, right in itertools.product(itertools.product((1, 2, 3), repeat=2), [(), (1,), (2,), (3, 1), (1, 2, 1)]):
        try:
            expected = tuple(torch.broadcast_shapes(left, right))
        except RuntimeError:
            expected = None
        assert SOLUTION.meet(left, right) == expected


def on_meta(queries, keys, mask):
    queries, keys, mask = (torch.empty(shape, device="meta") for shape in (queries, keys, mask))
    try:
        return (queries @ keys.mT + mask).shape
    except RuntimeError:
        return None


def by_broadcast_shapes(queries, keys, mask):
    try:
        scores = torch.broadcast_shapes((*queries[:-1], 1), (*keys[:-2], 1, keys[-2]), mask)
    except RuntimeError:
        return None
    return tuple(scores) if queries[-1] == keys[-1] else None


def right(queries, keys, mask):
    return SOLUTION.scores_shape(queries, keys, mask)


def scores_only(queries, keys):
    return right(queries, keys, ())


def except_where(condition, otherwise):
    """Right, but for the cases that a condition picks."""
    return lambda q, k, m: otherwise(q, k, m) if condition(q, k, m) else right(q, k, m)


def stretched(q, k, m):
    wanted = right(q, k, m)
    return wanted is not None and wanted != scores_only(q, k)


def left_aligned(q, k, m):
    scores = scores_only(q, k)
    return scores and SOLUTION.meet(scores, (*m, *[1] * (len(scores) - len(m))))


def of_scores_and_last(q, k, m):
    scores = scores_only(q, k)
    return scores if scores and m[-1] in (1, scores[-1]) else None


RIGHT = {
    "the device without memory": on_meta,
    "broadcast_shapes": by_broadcast_shapes,
    "tensors of zeros": by_torch,
    "the function of the page": right,
    "a torch.Size": lambda q, k, m: right(q, k, m) and torch.Size(right(q, k, m)),
}
WRONG = {
    "returns None": lambda q, k, m: None,
    "raises": lambda q, k, m: q[9],
    "a list": lambda q, k, m: right(q, k, m) and list(right(q, k, m)),
    "a tensor": lambda q, k, m: torch.zeros(right(q, k, m) or (1,)),
    "text": lambda q, k, m: str(right(q, k, m)),
    "False in place of None": lambda q, k, m: right(q, k, m) or False,
    "an empty tuple in place of None": lambda q, k, m: right(q, k, m) or (),
    "lets torch raise": lambda q, k, m: tuple((ZEROS(q) @ ZEROS(k).mT + ZEROS(m)).shape),
    "queries before keys": lambda q, k, m: (*q[:-1], k[-2]),
    "no mask": lambda q, k, m: scores_only(q, k),
    "the mask where there is one of four axes": lambda q, k, m: m if len(m) == 4 else scores_only(q, k),
    "the last axis of the mask alone": of_scores_and_last,
    "scores transposed": lambda q, k, m: right(k, q, m),
    "keys not transposed": lambda q, k, m: right(q, (*k[:-2], k[-1], k[-2]), m),
    "queries against values": lambda q, k, m: right(q, k, m) and (*right(q, k, m)[:-1], k[-1]),
    "width ignored": lambda q, k, m: right(q, (*k[:-1], q[-1]), m),
    "width that stretches": lambda q, k, m: right(q, (*k[:-1], q[-1]) if k[-1] == 1 else k, m),
    "batch of the queries": lambda q, k, m: right(q, (*q[:2], *k[2:]), m),
    "batch of the keys": lambda q, k, m: right((*k[:2], *q[2:]), k, m),
    "heads must be equal": except_where(lambda q, k, m: q[1] != k[1], lambda q, k, m: None),
    "items must be equal": except_where(lambda q, k, m: q[0] != k[0], lambda q, k, m: None),
    "mask must have four axes": except_where(lambda q, k, m: len(m) != 4, lambda q, k, m: None),
    "mask of three axes gets a head axis": lambda q, k, m: right(q, k, (m[0], 1, *m[1:]) if len(m) == 3 else m),
    "mask must not stretch the scores": except_where(stretched, lambda q, k, m: None),
    "mask that stretches is ignored": except_where(stretched, lambda q, k, m: scores_only(q, k)),
    "aligned from the left": left_aligned,
    "1 only on the side of the mask": except_where(
        lambda q, k, m: 1 in q[:2] + k[:2] and q[:2] != k[:2], lambda q, k, m: None
    ),
    "the larger size wins": lambda q, k, m: tuple(map(max, (*q[:3], k[2]), (*k[:2], 1, 1), (1,) * (4 - len(m)) + m)),
    "mask transposed": lambda q, k, m: right(q, k, (*m[:-2], *m[-2:][::-1])),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_wrong_somewhere_in_the_cases_of_the_check(wrong):
    """Not only rejected: it differs from torch, so the rejection is deserved."""

    def answer(case):
        try:
            return WRONG[wrong](*case)
        except Exception:
            return "raised"

    shapes = [(2, 4, 6, 5), (4, 4, 6, 5), (1, 4, 6, 5)]
    cases = itertools.product(shapes, SOLUTION.others, SOLUTION.masks)
    differs = (not isinstance(answer(case), tuple | None) or answer(case) != by_torch(*case) for case in cases)
    assert any(differs)


def test_the_check_asks_165_times_and_hears_none_and_shapes():
    heard = []

    def answer(queries, keys, mask):
        heard.append(right(queries, keys, mask))
        return heard[-1]

    assert p.verdict(SOLUTION.check_shape, answer) == "correct: 165 checks pass\n"
    assert len(heard) == 165
    assert None in heard
    assert len(set(heard)) > 4


def test_the_check_says_what_is_wrong():
    say = SOLUTION.find_fault
    shapes = ((2, 4, 6, 5), (2, 4, 7, 5), (6, 7))
    assert say(right, shapes) == ""
    assert say(lambda *given: [2], shapes) == "it must return a tuple or None, not list"
    assert say(lambda *given: 1 / 0, shapes) == "it stops with ZeroDivisionError"
    assert say(lambda *given: (2,), shapes) == "(2,), but torch says (2, 4, 6, 7)"
    assert say(lambda *given: (2,), (*shapes[:2], (7, 6))) == "(2,), but torch says None"


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_shape", RIGHT, WRONG
