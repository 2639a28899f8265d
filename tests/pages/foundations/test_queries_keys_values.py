"""Queries, keys, values: the page's code and numbers against PyTorch and plain loops, and roles that are mixed up."""

import importlib.util
import itertools
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/queries-keys-values"
PAGE, BOOK, SOLUTION = (p.page_code(SLUG, cell) for cell in ("train", "matrix", "solution"))
MATRICES = PAGE.W_query, PAGE.W_key, PAGE.W_value
NAMES = ["noun", "pronoun", "alive", "flat", "tired", "wide", "fur", "asphalt"]
ANIMAL, STREET, IT, TIRED = range(4)
JOURNEY = 1


def sdpa(*roles):
    return F.scaled_dot_product_attention(*(role[None, None] for role in roles))[0, 0]


def fetched(tokens, *matrices):
    return PAGE.self_attend(tokens, *(matrices or MATRICES))


# -- the sentence ----------------------------------------------------------------------------------


def test_a_plain_average_gives_it_mostly_itself_and_does_not_tell_the_nouns_apart():
    contexts, weights = PAGE.attend(PAGE.tokens, PAGE.tokens, PAGE.tokens)
    assert weights[IT].argmax() == IT
    assert weights[IT, ANIMAL] == weights[IT, STREET]
    assert NAMES[contexts[IT].argmax()] == "tired"


def test_the_matrices_give_it_the_noun_that_is_alive_and_nothing_of_its_key():
    contexts, weights = fetched(PAGE.tokens)
    p.close(weights[IT, :2], contexts[IT])
    assert weights[IT, ANIMAL] > 8 * weights[IT, STREET]
    assert not (PAGE.W_key @ PAGE.W_value.T).diagonal().any()


def test_the_probe_tells_keys_queries_and_values_apart():
    contexts, weights = fetched(PAGE.tokens)
    for feature, name in enumerate(NAMES):
        nudged = PAGE.tokens.clone()
        nudged[ANIMAL, feature] += 1
        after, reweighted = fetched(nudged)
        assert torch.equal(reweighted[IT], weights[IT]) == (name not in ("noun", "alive"))
        assert torch.equal(after[IT], contexts[IT]) == (name in ("pronoun", "tired", "flat", "wide"))


def test_only_the_product_of_query_and_key_matrix_counts():
    def prove(case):
        M = torch.eye(2, dtype=torch.float64) + 0.1 * case.randn(2, 2)
        W_query, W_key, W_value = (matrix.double() for matrix in MATRICES)
        tokens = PAGE.tokens.double()
        turned = fetched(tokens, W_query @ M, W_key @ M.inverse().T, W_value)
        for ours, theirs in zip(turned, fetched(tokens, W_query, W_key, W_value)):
            p.close(ours, theirs, 1e-9)

    p.for_all(p.sizes(T=1), prove)


def test_a_vector_added_to_every_key_moves_no_weight_and_values_may_come_last():
    def prove(case):
        queries, keys, values = case.randn(case.Tq, 4), case.randn(case.Tk, 4), case.randn(case.Tk, 3)
        contexts, weights = PAGE.attend(queries, keys, values)
        p.close(PAGE.attend(queries, keys + case.randn(4), values)[1], weights)
        W_value = case.randn(3, 5)
        p.close(PAGE.attend(queries, keys, values @ W_value)[0], contexts @ W_value)

    p.for_all(p.sizes(Tq=5, Tk=6), prove)


def test_below_one_and_a_half_times_the_width_the_projections_cost_more():
    difference = [3 * T * 100 * 7 - 2 * T * T * 7 for T in (149, 150, 151)]
    assert difference[0] > difference[1] == 0 > difference[2]
    assert 3 * 4096 * 4096 // 10**6 == 50


# -- training --------------------------------------------------------------------------------------


def trained(seed, steps=100):
    torch.manual_seed(seed)
    starts = [*(0.1 * torch.randn(2, 8, 2))]
    return [*starts, *PAGE.train(*starts, PAGE.W_value, steps)]


def test_ten_seeds_give_the_right_nouns_the_weight_and_the_product_its_signs():
    rows = {name: place for place, name in enumerate(NAMES)}
    for seed in range(10):
        *_, W_query, W_key = trained(seed)
        weights = [fetched(tokens, W_query, W_key, PAGE.W_value)[1][IT] for tokens in PAGE.sentences]
        assert min(weights[0][ANIMAL], weights[1][STREET]) > 0.98
        product = W_query @ W_key.T
        for asks, signs in ("tired", (1, -1)), ("wide", (-1, 1)):
            assert [product[rows[asks], rows[found]].sign() for found in ("alive", "flat")] == list(signs)


def test_three_rows_of_queries_learn_and_features_of_one_word_learn_alike():
    start_query, start_key, W_query, W_key = trained(1)
    learned = dict(zip(NAMES, W_key - start_key, strict=True))
    moved = (W_query != start_query).any(dim=1)
    assert [name for name, moves in zip(NAMES, moved, strict=True) if moves] == ["pronoun", "tired", "wide"]
    assert (W_key != start_key).all()
    torch.testing.assert_close(learned["alive"], learned["fur"])


def test_a_step_subtracts_the_gradient_and_changes_nothing_that_it_is_given():
    start_query, start_key, W_query, W_key = trained(0, steps=1)
    leaves = [start_query.clone().requires_grad_(), start_key.clone().requires_grad_()]
    contexts = [fetched(tokens, *leaves, PAGE.W_value)[0][IT] for tokens in PAGE.sentences]
    loss = sum((context - meaning).square().sum() for context, meaning in zip(contexts, torch.eye(2)))
    p.close(loss, PAGE.loss_of(start_query, start_key, PAGE.W_value), 1e-6)
    loss.backward()
    for start, leaf, after in zip((start_query, start_key), leaves, (W_query, W_key), strict=True):
        assert torch.equal(start, leaf)
        p.close(start - leaf.grad, after, 1e-6)
        assert not start.requires_grad
        assert not after.requires_grad


def test_with_a_trained_value_matrix_the_loss_falls_and_no_noun_is_looked_at():
    for seed in range(4):
        torch.manual_seed(seed)
        matrices = [*(0.1 * torch.randn(3, 8, 2))]
        for _ in range(300):
            matrices = [matrix.detach().requires_grad_() for matrix in matrices]
            loss = PAGE.loss_of(*matrices)
            gradients = torch.autograd.grad(loss, matrices)
            matrices = [matrix - 0.2 * gradient for matrix, gradient in zip(matrices, gradients)]
        assert loss < 1e-6
        for tokens in PAGE.sentences:
            assert (fetched(tokens, *matrices)[1][IT] - 1 / 4).abs().max() < 0.04


# -- the numbers of the book -----------------------------------------------------------------------


def test_the_tokens_and_the_numbers_are_those_of_the_book():
    assert torch.equal(BOOK.inputs, p.page_code("foundations/weighted-average", "contexts").inputs)
    torch.manual_seed(123)
    roles = [BOOK.inputs.double() @ torch.rand(3, 2).double() for _ in range(3)]
    contexts = sdpa(*roles)
    p.close(roles[0][JOURNEY], torch.tensor([0.4306, 1.4551], dtype=torch.float64), 1e-4)
    p.close(roles[0][JOURNEY] @ roles[1][JOURNEY], torch.tensor(1.8524, dtype=torch.float64), 1e-4)
    p.close(contexts[JOURNEY], torch.tensor([0.3061, 0.8210], dtype=torch.float64), 1e-4)
    p.close(BOOK.context.double(), contexts, 1e-6)


# -- the mixed-up roles ----------------------------------------------------------------------------


def test_each_mix_up_has_the_right_shape_and_other_contexts():
    contexts = p.page_code(SLUG, "mix-ups").mix_ups(PAGE.tokens)
    right = contexts.pop("right")
    p.close(right, sdpa(*(PAGE.tokens @ matrix for matrix in MATRICES)), 1e-6)
    for context in contexts.values():
        assert context.shape == right.shape
        assert not torch.allclose(context, right, atol=0.01)
    torch.testing.assert_close(contexts["V in the softmax"].sum(dim=1), torch.ones(4))
    assert (PAGE.tokens @ PAGE.W_value).max() == 1


def test_equal_roles_hide_keys_as_values_and_a_swap():
    queries, keys, values = [BOOK.keys] * 3
    right = PAGE.attend(queries, keys, values)[0]
    assert torch.equal(PAGE.attend(queries, keys, keys)[0], right)
    assert torch.equal(PAGE.attend(keys, queries, values)[0], right)


def test_with_keys_as_values_the_value_matrix_gets_no_gradient():
    W_query, W_key, W_value = (matrix.clone().requires_grad_() for matrix in MATRICES)
    queries, keys = PAGE.tokens @ W_query, PAGE.tokens @ W_key
    _ = PAGE.tokens @ W_value
    PAGE.attend(queries, keys, keys)[0].sum().backward()
    assert W_value.grad is None
    assert W_key.grad is not None


# -- in PyTorch ------------------------------------------------------------------------------------


def test_three_linear_layers_and_one_call_give_the_context_of_it():
    names = p.page_code(SLUG, "in-torch")
    torch.testing.assert_close(names.context[0, 0], fetched(PAGE.tokens)[0])
    for layer, matrix in zip((names.q_proj, names.k_proj, names.v_proj), MATRICES):
        assert torch.equal(layer.weight, matrix.T)


def test_the_thirds_of_in_proj_weight_are_those_of_the_table():
    names = p.page_code(SLUG, "in-proj")
    weight, E = names.layer.in_proj_weight, 8
    for ours, rows in zip((names.W_q, names.W_k, names.W_v), (slice(E), slice(E, 2 * E), slice(2 * E, None))):
        assert torch.equal(ours, weight[rows].T)


@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_the_model_has_four_linear_layers_with_a_bias_where_the_configuration_asks(model):
    folder = Path(importlib.util.find_spec("transformers").submodule_search_locations[0]) / "models" / model
    code = (folder / f"modeling_{model}.py").read_text(encoding="utf-8")
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        assert re.search(rf"self\.{name} = nn\.Linear\([^=]*bias=config\.attention_bias\s*\)", code)
    assert "attention_bias: bool = False" in (folder / f"configuration_{model}.py").read_text(encoding="utf-8")


# -- the exercise ----------------------------------------------------------------------------------


def two_columns(noun, pronoun, alive, flat, tired, wide, fur, asphalt):
    """What training finds: opposite signs in place of a third column."""
    W_query = 5 * torch.stack([pronoun, tired - wide], dim=1)
    return W_query, torch.stack([noun, alive - flat], dim=1), torch.stack([fur, asphalt], dim=1)


def changed(change):
    return lambda *features: change(*SOLUTION.set_matrices(*features))


CALLS = itertools.count()


def one_of_two(noun, pronoun, alive, flat, tired, wide, fur, asphalt):
    """In turn what serves the one sentence, and what serves the other."""
    end, state = ((tired, alive), (wide, flat))[next(CALLS) % 2]
    W_query = 9 * torch.stack([pronoun, end], dim=1)
    return W_query, torch.stack([noun, state], dim=1), torch.stack([fur, asphalt], dim=1)


def label_in_the_meaning(*features):
    W_query, W_key, W_value = SOLUTION.set_matrices(*features)
    return W_query, W_key, W_value + 0.001 * W_key[:, :2]


RIGHT = {
    "opposite signs": two_columns,
    "the factor on the keys": changed(lambda q, k, v: (q / 5, 5 * k, v)),
}
WRONG = {
    "keys as values": changed(lambda q, k, v: (q, k, k)),
    "label mixed into the meaning": label_in_the_meaning,
    "another set for each sentence": one_of_two,
    "trained on other features": lambda *features: (*trained(1)[2:], PAGE.W_value),
}


def test_the_middle_step_changes_one_feature_in_each_matrix():
    W_query, W_key = PAGE.W_query.clone(), PAGE.W_key.clone()
    W_query[:, 1], W_key[:, 1] = 3 * PAGE.wide, PAGE.flat
    tokens = PAGE.tokens.clone()
    tokens[IT] = PAGE.pronoun + PAGE.wide
    weights = fetched(tokens, W_query, W_key, PAGE.W_value)[1]
    torch.testing.assert_close(weights[IT, STREET], fetched(PAGE.tokens)[1][IT, ANIMAL])


def test_the_warm_up_a_pronoun_alone_gives_both_nouns_one_weight():
    tokens = PAGE.tokens.clone()
    tokens[IT] = PAGE.pronoun
    _, weights = fetched(tokens)
    assert weights[IT, ANIMAL] == weights[IT, STREET]
    assert weights[IT, TIRED] == weights[IT, IT]


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_matrices", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "a matrix has two axes: 1 is the last": ["weights = torch.softmax(scores, dim=1)"],
    "queries and keys have one width, and Tq stands in shape comments alone": ["Tq, D = keys.shape"],
}
ACCEPTED = {
    "every factor from 5 on gives a weight above 0.9": ["W_query = 6 * torch.stack([pronoun, tired, wide], dim=1)"],
}
