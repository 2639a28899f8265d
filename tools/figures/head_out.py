"""A layer of six heads, set by hand: their maps, and what the answer becomes without one of them."""

import torch
from torch import nn

from tools.figures.pages import Numbers, names_of, numbers

SLUG = "practice/look-inside"
WORDS = ["<start>", "Leo", "fish", "Bob", "soup", "Leo"]
FOODS = ["fish", "soup"]
# What a word is, and, behind foods, what an earlier layer may have written there.
FEATURES = ["start", "Leo", "Bob", "fish", "soup", "of Leo", "of Bob", "last food"]
OF_WORDS = [["start"], ["Leo"], ["fish", "of Leo"], ["Bob"], ["soup", "of Bob", "last food"], ["Leo"]]
WIDTH, HEADS, D = 24, 6, 4
SINKS = {2: 10, 3: 9, 5: 8}  # look at the start, so strongly, and have no values
FINDERS = {0: 0.1, 1: 1.0}  # look at the food of a name, and have values of that size
LAST, LAST_SIZE = 4, 0.6  # looks at the last food


def head_out() -> Numbers:
    """The weights of the last word in each head, their mean, and the answers without a head, removed in two places."""
    tokens, layer = torch.zeros(1, len(WORDS), WIDTH), by_hand()
    for i, features in enumerate(OF_WORDS):
        tokens[0, i, [FEATURES.index(feature) for feature in features]] = 1
    rows = names_of(SLUG)["weights_of"](layer, tokens, rows=[-1])[0, :, 0]
    weights = torch.cat([rows, rows.mean(dim=0, keepdim=True)])
    cases = [{"state": {"head": "none", "place": "context"}, "logits": logits(layer, layer(tokens))}]
    for head in range(HEADS):
        with names_of(SLUG)["remove_heads"](layer, head):
            before = layer(tokens)
        after = layer(tokens)
        after[..., head * D : (head + 1) * D] = 0
        for place, outputs in (("context", before), ("outputs", after)):
            cases.append({"state": {"head": str(head), "place": place}, "logits": logits(layer, outputs)})
    return {"words": WORDS, "foods": FOODS, "weights": numbers(weights), "cases": cases}


def by_hand() -> nn.Module:
    """The layer of the page with matrices set by hand; a random rotation mixes what its heads add."""
    torch.manual_seed(0)
    layer: nn.Module = names_of(SLUG)["FusedAttention"](WIDTH, HEADS, causal=True).requires_grad_(False)
    for parameter in (layer.to_qkv.weight, layer.to_qkv.bias, layer.to_output.bias):
        nn.init.zeros_(parameter)
    nn.init.orthogonal_(layer.to_output.weight)
    queries, keys, values = layer.to_qkv.weight.view(3, HEADS, D, WIDTH)
    always = layer.to_qkv.bias.view(3, HEADS, D)[0]  # what every query has
    at = FEATURES.index
    for head, size in SINKS.items():
        always[head, 0] = size
        keys[head, 0, at("start")] = 1
    for head in FINDERS:
        for i, name in enumerate(["Leo", "Bob"]):
            queries[head, i, at(name)] = 10
            keys[head, i, at(f"of {name}")] = 1
    always[LAST, 0] = 8
    keys[LAST, 0, at("last food")] = 1
    for head, value in [*FINDERS.items(), (LAST, LAST_SIZE)]:
        for i, food in enumerate(FOODS):
            values[head, i, at(food)] = value
    return layer


def logits(layer: nn.Module, outputs: torch.Tensor) -> Numbers:
    """The logits of the foods after the last word, what all heads have found of each, as they are shown."""
    found = torch.eye(D)[: len(FOODS)].repeat(1, HEADS)
    answers: Numbers = numbers((outputs[0, -1] @ layer.to_output.weight @ found.T).double().round(decimals=2))
    return answers
