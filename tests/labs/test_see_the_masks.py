"""What the lab tells beside its prints: which lines to change, and what the masks mean for an attention."""

import torch

from tests.pages import properties as p

SLUG = "labs/see-the-masks"
PAGE = p.page_code(SLUG, "in-torch")


def changed(cell, old, new, at=None):
    """What a cell defines and prints after a change of one line, there or in a cell above it."""
    return p.run_cell(SLUG, cell, bug=(at or cell, {old: new}))


def patterns(line):
    return changed("in-torch", "lengths, width, prefix = [3, 5], 3, 4", line, at="tokens")[0]


def test_three_masks_become_the_causal_one():
    masks = patterns("lengths, width, prefix = [8], 8, 1").patterns
    assert all(torch.equal(masks[name], masks["causal"]) for name in ("window", "prefix", "documents"))
    assert not torch.equal(masks["padding"], masks["causal"])


def test_a_prefix_of_all_tokens_hides_nothing():
    assert patterns("lengths, width, prefix = [3, 5], 3, 8").patterns["prefix"].all()


def test_a_token_that_is_a_text_of_its_own_is_its_own_output():
    page = patterns("lengths, width, prefix = [1] * 8, 3, 4")
    _, weights, outputs = page.attend(page.inputs, page.patterns["documents"])
    assert torch.equal(weights, torch.eye(8))
    assert torch.equal(outputs, page.inputs)


def test_three_masks_agree_in_the_row_of_step():
    step = [PAGE.attend(PAGE.inputs, PAGE.patterns[name])[2][5] for name in ("causal", "padding", "prefix")]
    assert torch.equal(step[0], step[1])
    assert torch.equal(step[0], step[2])


def test_packed_texts_give_what_each_gives_alone():
    packed = PAGE.attend(PAGE.inputs, PAGE.patterns["documents"])[2]
    alone = [PAGE.attend(text, torch.ones(len(text), len(text)).tril() > 0)[2] for text in PAGE.inputs.split([3, 5])]
    assert torch.allclose(packed, torch.cat(alone), atol=1e-6)
    assert not torch.allclose(PAGE.attend(PAGE.inputs, PAGE.patterns["causal"])[2], packed, atol=1e-2)


def test_a_mask_changes_no_visible_score_and_gives_what_its_bias_gives():
    plain = PAGE.attend(PAGE.inputs, torch.ones(8, 8) > 0)[0]
    for visible in PAGE.patterns.values():
        scores, weights, _ = PAGE.attend(PAGE.inputs, visible)
        assert torch.equal(scores[visible], plain[visible])
        bias = torch.zeros(8, 8).masked_fill(~visible, -torch.inf)
        assert torch.equal(weights, torch.softmax(plain + bias, dim=-1))


def test_every_row_adds_up_to_one_once_a_token_sees_itself():
    old = 'left = patterns["causal"] & (j >= 2)'
    _, printed = changed("row-sums", old, f"{old} | (i == j)")
    assert "nan" not in printed
    assert printed.count("1.") == 6 * 8


def test_a_nudge_below_the_rounding_finds_no_change_even_in_the_bug():
    _, printed = changed("leak-meter", "nudged[token, 0] += 1", "nudged[token, 0] += 1e-12")
    assert printed.count("changed 0  leaks 0") == 6


def test_the_opposite_mask_gives_another_output_without_an_error():
    _, printed = changed("in-torch", "attn_mask=visible", "attn_mask=~visible")
    assert printed.count("same output: False") == 5


def test_attend_runs_where_its_inputs_are():
    inputs, visible = PAGE.inputs.to("meta"), PAGE.patterns["causal"].to("meta")
    assert all(tensor.is_meta for tensor in PAGE.attend(inputs, visible))
