"""A head learns: the weights of *it* in two sentences, and the matrices of queries and keys, step by step."""

import torch

from tools.figures.pages import Numbers, names_of, numbers

SLUG = "foundations/queries-keys-values"
FEATURES = ["noun", "pronoun", "alive", "flat", "tired", "wide", "fur", "asphalt"]
ENDS = ["tired", "wide"]  # of the sentence
STEPS = [100, 0, 3, 6, 10, 100]  # of training, in each frame
READER = 2  # *it*


def three_roles() -> Numbers:
    """Training that begins with the random numbers of the page, and training that begins with its matrices."""
    page = names_of(SLUG)
    torch.manual_seed(1)
    scattered = 0.1 * torch.randn(2, *page["W_query"].shape)
    starts = {"random": scattered, "hand": torch.stack([page["W_query"], page["W_key"]])}
    cases = [{"state": {"end": end, "start": start}} | learned(end, *starts[start]) for start in starts for end in ENDS]
    return {"features": FEATURES, "steps": STEPS, "reader": READER, "cases": cases}


def learned(end: str, W_query: torch.Tensor, W_key: torch.Tensor) -> Numbers:
    """In each frame the weights of *it* in one sentence, the loss of both, and the matrices."""
    page = names_of(SLUG)
    found: Numbers = {"weights": [], "losses": [], "matrices": []}
    for steps in STEPS:
        matrices = page["train"](W_query, W_key, page["W_value"], steps)
        _, weights = page["self_attend"](page["sentences"][ENDS.index(end)], *matrices, page["W_value"])
        found["weights"].append(numbers(weights[READER]))
        found["losses"].append(numbers(page["loss_of"](*matrices, page["W_value"])))
        found["matrices"].append(numbers(torch.cat(matrices, dim=1)))
    return found
