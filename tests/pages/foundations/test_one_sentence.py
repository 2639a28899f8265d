"""One sentence through attention: its numbers against PyTorch, what hides the next word, and what the figure says."""

import csv
import re

import pytest
import torch
from torch import nn

from tests.configuration import LANGUAGES, ROOT
from tests.pages import properties as p

SLUG = "foundations/one-sentence"
PAGE = p.page_code(SLUG, "next")
ONE, STEP = PAGE.words.index("one"), PAGE.words.index("step")


def attended(queries, keys, values):
    """`nn.MultiheadAttention` with one head, whose projections change nothing."""
    attention = nn.MultiheadAttention(PAGE.D, num_heads=1, bias=False)
    eye = torch.eye(PAGE.D)
    attention.load_state_dict({"in_proj_weight": eye.repeat(3, 1), "out_proj.weight": eye})
    return attention(queries, keys, values, attn_mask=~PAGE.visible)


def test_weights_and_contexts_are_those_of_multihead_attention():
    contexts, weights = attended(PAGE.queries, PAGE.keys, PAGE.values)
    torch.testing.assert_close(PAGE.weights, weights)
    torch.testing.assert_close(PAGE.contexts, contexts)


def test_the_next_word_reaches_no_earlier_row_and_would_without_the_mask():
    other = PAGE.inputs.clone()
    other[STEP] += 1
    changed = p.page_code(SLUG, "next", tokens=other)
    torch.testing.assert_close(changed.outputs[:STEP], PAGE.outputs[:STEP], rtol=0, atol=0)
    assert not torch.equal(changed.outputs[STEP], PAGE.outputs[STEP])
    assert torch.softmax(PAGE.scores[ONE], dim=-1).argmax() == STEP


def test_the_order_of_the_words_before_one_changes_nothing_for_it():
    shuffled = PAGE.inputs[[3, 1, 2, 0, ONE, STEP]]
    torch.testing.assert_close(p.page_code(SLUG, "next", tokens=shuffled).contexts[ONE], PAGE.contexts[ONE])


def test_a_query_for_actions_would_find_starts():
    products = PAGE.keys @ torch.tensor([0.0, 1.0])
    assert dict(zip(PAGE.words, products.tolist())) == pytest.approx(
        {"Your": 0, "journey": 0, "starts": 0.9, "with": 0.1, "one": 0, "step": 0.1}
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_number_that_a_step_of_the_figure_says_stands_in_its_tensor(language):
    rows = csv.DictReader((ROOT / "languages/explorers.csv").open(encoding="utf-8"))
    said = {row["key"].removeprefix("one_"): row[language] for row in rows if row["key"].startswith("one_")}
    made = {name: vars(PAGE)[name] for name in said if isinstance(vars(PAGE).get(name), torch.Tensor)}
    printed = {name: {f"{number:.2f}" for number in tensor.flatten()} for name, tensor in made.items()}
    printed["outputs"] |= printed["inputs"]  # before and afterwards
    printed["scores"] |= printed["queries"] | printed["keys"]
    taken = PAGE.weights[ONE, :, None] * PAGE.values
    printed["contexts"] |= printed["weights"] | printed["values"] | {f"{number:.2f}" for number in taken.flatten()}
    numbers = {name: re.findall(r"\d\.\d\d", said[name]) for name in printed}
    assert sum(map(len, numbers.values())) >= 10
    assert {name: set(found) - printed[name] for name, found in numbers.items()} == {name: set() for name in numbers}
