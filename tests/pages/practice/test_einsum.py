"""Einsum: the module against PyTorch's own, mistakes that sizes let pass, and what the page says of einops."""

import einops
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "practice/einsum"
PAGE, FORWARD = p.page_code(SLUG, "attend"), p.page_code(SLUG, "solution-forward")
SIZES = p.sizes(B=2, H=3, T=4, D=3, E=5)
ROLES = ("query", "key", "value")

# -- the module, and the mask --------------------------------------------------------------------


def drawn(case, width):
    module = FORWARD.EinsumAttention(case.H, width, case.D).double()
    for parameter in module.parameters():
        parameter.data = case.randn(*parameter.shape)
    return module, case.randn(case.B, case.T, width)


def test_the_module_equals_multihead_attention():
    """`nn.MultiheadAttention` needs E = H D, and has the same numbers in another layout."""

    def prove(case):
        width = case.H * case.D
        ours, inputs = drawn(case, width)
        theirs = nn.MultiheadAttention(width, case.H, batch_first=True, dtype=torch.float64)
        theirs.load_state_dict(
            {
                "in_proj_weight": torch.cat([getattr(ours, f"W_{role}").mT.flatten(0, 1) for role in ROLES]),
                "in_proj_bias": torch.cat([getattr(ours, f"b_{role}").flatten() for role in ROLES]),
                "out_proj.weight": ours.W_output.flatten(0, 1).T,
                "out_proj.bias": ours.b_output,
            }
        )
        visible = torch.ones(case.T, case.T, dtype=torch.bool).tril()
        p.close(ours(inputs), theirs(inputs, inputs, inputs, attn_mask=~visible)[0])

    p.for_all(SIZES, prove)


def test_the_parameters_are_drawn_with_a_spread_for_their_width_and_biases_are_zero():
    p.seed_modules(0)
    state = FORWARD.Projections(num_heads=3, width=64, head_dim=40).state_dict()
    shapes = {f"W_{role}": (3, 64, 40) for role in ROLES} | {"W_output": (3, 40, 64)}
    shapes |= {f"b_{role}": (3, 1, 40) for role in ROLES} | {"b_output": (64,)}
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == shapes
    for name, tensor in state.items():
        if name.startswith("b"):
            assert not tensor.any()
        else:
            assert abs(tensor.mean()) < 0.01
            assert abs(tensor.std() * 8 - 1) < 0.05


def test_the_mask_gives_the_sum_with_the_mask_of_nn_transformer():
    def prove(case):
        scores = case.randn(case.B, case.H, case.T, case.T)
        bias = nn.Transformer.generate_square_subsequent_mask(case.T, dtype=torch.float64)
        assert torch.equal(FORWARD.apply_causal_mask(scores), scores + bias)
        assert FORWARD.apply_causal_mask(scores[0, 0].bfloat16()).dtype == torch.bfloat16

    p.for_all(SIZES, prove)


# -- the claims of the page ----------------------------------------------------------------------


def test_the_rules_of_einsum_hold():
    x, y = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    torch.testing.assert_close(torch.einsum("bqd,bkd->kqb", x, y), (x @ y.mT).permute(2, 1, 0))
    torch.testing.assert_close(torch.einsum("bqd,bkd->b", x, y), (x @ y.mT).sum(dim=(1, 2)))
    square = torch.randn(3, 3)
    assert torch.equal(torch.einsum("dd->d", square), square.diagonal())
    torch.testing.assert_close(torch.einsum("dd,bd->bd", square, x[0, :, :3]), x[0, :, :3] * square.diagonal())


def test_einops_hands_its_contraction_to_torch(monkeypatch):
    seen, einsum = [], torch.einsum
    monkeypatch.setattr(torch, "einsum", lambda equation, *tensors: seen.append(equation) or einsum(equation, *tensors))
    found = einops.einsum(torch.ones(2, 3), torch.ones(3, 4), "row column, column other -> row other")
    assert found.shape == (2, 4)
    assert len(seen) == 1


def test_with_the_head_axis_after_the_tokens_only_the_letters_change():
    queries, keys = torch.randn(2, 4, 3, 5), torch.randn(2, 6, 3, 5)
    scores = torch.einsum("...qhd,...khd->...hqk", queries, keys)
    torch.testing.assert_close(scores, queries.transpose(1, 2) @ keys.transpose(1, 2).mT)


def test_rearrange_divides_the_width_by_heads_and_a_view_mixes_tokens():
    split = p.page_code(SLUG, "split")
    width = split.projected.shape[-1] // split.H
    for head in range(split.H):
        assert torch.equal(split.heads[:, head], split.projected[..., head * width : (head + 1) * width])
    rows = split.viewed[0, 0].reshape(-1, 4)
    assert torch.equal(rows[:3].flatten(), split.projected[0, 0]), "head 0 of the view holds all of token 0"


def test_without_the_k_of_the_values_each_token_reads_itself_whatever_the_weights():
    def prove(case):
        weights = case.randn(case.B, case.H, case.T, case.T).softmax(dim=-1)
        values = case.randn(case.B, case.H, case.T, case.D)
        p.close(torch.einsum("bhqk->bhq", weights), torch.ones_like(weights[..., 0]))
        p.close(torch.einsum("bhqk,bhqd->bhqd", weights, values), values)

    p.for_all(SIZES, prove)


def test_the_bias_of_the_keys_changes_nothing():
    def prove(case):
        module, inputs = drawn(case, case.E)
        before = module(inputs)
        module.b_key.data += 3
        p.close(module(inputs), before, tolerance=1e-8)

    p.for_all(SIZES, prove)


# -- the report ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_weights_notice_each_mistake_whatever_the_seed_and_ones_none(seed):
    names, matrices = p.page_code(SLUG, "report"), [PAGE.W_query, PAGE.W_key, PAGE.W_value, PAGE.W_output]
    p.seed_modules(seed)
    assert not any(names.noticed(*map(torch.ones_like, matrices)).values())
    found = names.noticed(*(torch.randn_like(matrix) / 32**0.5 for matrix in matrices))
    assert len(found) == 6
    assert all(found.values())


def test_with_ones_the_scores_are_in_the_hundreds():
    queries = PAGE.inputs @ torch.ones_like(PAGE.W_query[0])
    assert 100 < (queries @ queries.mT / 2).min() < 1000


# -- the exercise --------------------------------------------------------------------------------


def answer(forward):
    return type("EinsumAttention", (FORWARD.Projections,), {"forward": forward})


def by_fused_call(self, inputs, key_bias=True):
    roles = [inputs[:, None] @ getattr(self, f"W_{role}") for role in ROLES]
    biases = self.b_query, self.b_key if key_bias else 0, self.b_value
    roles = [role + bias for role, bias in zip(roles, biases)]
    context = F.scaled_dot_product_attention(*roles, is_causal=True)
    return torch.einsum("bhqd,hde->bqe", context, self.W_output) + self.b_output


def masked(fill=-torch.inf, detached=False, limit=None):
    """The forward of the solution, but for its mask and its weights."""

    def forward(self, inputs):
        queries, keys, values = (
            inputs[:, None] @ getattr(self, f"W_{role}") + getattr(self, f"b_{role}") for role in ROLES
        )
        scores = queries @ keys.mT / queries.shape[-1] ** 0.5
        visible = torch.ones_like(scores, dtype=torch.bool).tril()
        if limit:
            visible = visible.triu(1 - limit)
        weights = scores.masked_fill(~visible, fill).softmax(dim=-1)
        weights = weights.detach() if detached else weights
        return torch.einsum("bhqd,hde->bqe", weights @ values, self.W_output) + self.b_output

    return answer(forward)


RIGHT = {
    "by SDPA": answer(by_fused_call),
    "without the bias of the keys": answer(lambda self, inputs: by_fused_call(self, inputs, key_bias=False)),
    "by matmul": masked(),
}
WRONG = {
    "masked with -20": masked(fill=-20.0),
    "masked with -1e9, which float16 lacks": masked(fill=-1e9),
    "weights detached": masked(detached=True),
    "a window of 8 tokens": masked(limit=8),
}


class TestForward(Exercise):
    SLUG, PART, CHECK, RIGHT, WRONG = SLUG, "-forward", "check_forward", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "the matrices of the roles have one shape": ["H, E, D = W_key.shape"],
}
ACCEPTED = {
    "the matrices of the roles have one shape": ["H, E, D = self.W_key.shape"],
    "a bias of the keys adds one number to a whole row of scores, and the softmax cancels it": [
        "keys = keys - self.b_key",
        "# keys = keys + self.b_key",
    ],
}
