"""Classes and functions of the pages, each beside an implementation of the same that nobody here wrote.

A row is a function. It is given the names of its page and a drawn case: the sizes that it asks for, each between 1 and
its number, and `randn`, which draws float64 tensors. It gives ours, theirs, and what both are called with.
`tests/pages/test_references.py` compares results and gradients, and asks of ours what all attention must hold to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import einops
import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from tests.pages import properties as p
from tests.pages.exercise import executed

Page: TypeAlias = SimpleNamespace  # the names that its cells define
Case: TypeAlias = SimpleNamespace  # its sizes, and `randn`


@dataclass(frozen=True)
class Pair:
    """Ours and theirs, what both are called with, and the module of ours, whose parameters get gradients, too."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    given: Sequence[Tensor]
    module: nn.Module | None = None


@dataclass(frozen=True)
class Row:
    """A function that makes pairs, the page and the cell that it takes ours from, and the sizes that it draws."""

    slug: str
    cell: str
    sizes: dict[str, int]
    pair: Callable[[Page, Case], Pair]

    def __str__(self) -> str:
        return f"{self.slug} {self.pair.__name__}"

    def pairs(self) -> SearchStrategy[Pair]:
        page, _ = executed(self.slug, self.cell)

        def drawn(case: Case) -> Pair:
            p.seed_modules(case.seed)
            return self.pair(page, case)

        return p.sizes(**self.sizes).map(drawn)


ROWS: list[Row] = []


def row(slug: str, cell: str, **sizes: int) -> Callable[[Callable[[Page, Case], Pair]], None]:
    """Makes a row of the function below it."""

    def add(pair: Callable[[Page, Case], Pair]) -> None:
        ROWS.append(Row(slug, cell, sizes, pair))

    return add


# -- what rows share -----------------------------------------------------------------------------


def multihead_attention(state: dict[str, Tensor], num_heads: int, *roles: Tensor, **options: Any) -> Any:
    """`nn.MultiheadAttention` with these parameters, under its own names, as a function of queries, keys and values."""
    width, memory_width = roles[0].shape[-1], roles[1].shape[-1]
    bias = "in_proj_bias" in state
    module = nn.MultiheadAttention(width, num_heads, bias=bias, kdim=memory_width, vdim=memory_width, batch_first=True)
    return torch.func.functional_call(module, state, roles, options)


def three_projections(weights: Sequence[Tensor], biases: Sequence[Tensor], output: nn.Linear) -> dict[str, Tensor]:
    """The parameters of `nn.MultiheadAttention` for keys and values of another width than the queries."""
    state = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), weights))
    return state | {
        "in_proj_bias": torch.cat(list(biases)),
        "out_proj.weight": output.weight,
        "out_proj.bias": output.bias,
    }


def padded_cross_attention(module: nn.Module, num_heads: int) -> Callable[..., Any]:
    """`nn.MultiheadAttention` with the parameters of a module of ours: contexts and weights."""

    def theirs(inputs: Tensor, memory: Tensor, is_real: Tensor) -> Any:
        layers = module.to_queries, module.to_keys, module.to_values
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        options = {"key_padding_mask": ~is_real, "average_attn_weights": False}
        state = three_projections(weights, biases, module.to_output)
        return multihead_attention(state, num_heads, inputs, memory, memory, **options)

    return theirs


def is_real(case: Case, tokens: int) -> Tensor:
    """True at the tokens of each text, False behind its length; the first has no pads, and none is empty."""
    lengths = [tokens, *(1 + (case.seed + item) % tokens for item in range(1, case.B))]
    return torch.arange(tokens) < torch.tensor(lengths)[:, None]


# -- the table -----------------------------------------------------------------------------------


@row("foundations/queries-keys-values", "roles", T=6, E=4, D=3, wider=3)
def self_attend(page: Page, case: Case) -> Pair:
    def theirs(tokens: Tensor, *matrices: Tensor) -> Any:
        queries, keys, values = (tokens @ matrix for matrix in matrices)
        return sdpa(queries, keys, values), sdpa(queries, keys, torch.eye(case.T, dtype=keys.dtype))

    matrices = case.randn(case.E, case.D), case.randn(case.E, case.D), case.randn(case.E, case.D + case.wider)
    return Pair(page.self_attend, theirs, [case.randn(case.T, case.E), *matrices])


@row("foundations/scale", "attend", Tq=4, Tk=5, D=6, E=3)
def scaled_attend(page: Page, case: Case) -> Pair:
    """By default, and with a scale, 0 among them."""
    scale = (None, 0.0, 1.0, 0.3)[case.seed % 4]

    def ours(*roles: Tensor) -> Any:
        return page.scaled_attend(*roles, scale=scale)

    def theirs(*roles: Tensor) -> Any:
        return sdpa(*roles, scale=scale)

    return Pair(ours, theirs, [case.randn(case.Tq, case.D), case.randn(case.Tk, case.D), case.randn(case.Tk, case.E)])


@row("foundations/one-head", "function", B=3, T=6, E=4, D=5)
def one_head(page: Page, case: Case) -> Pair:
    def theirs(inputs: Tensor, *matrices: Tensor) -> Tensor:
        return sdpa(*(inputs @ matrix for matrix in matrices))

    matrices = case.randn(3, case.E, case.D).unbind()
    return Pair(page.one_head, theirs, [case.randn(case.B, case.T, case.E), *matrices])


@row("foundations/one-head", "v1", B=3, T=6, E=4, D=5)
def head_of_parameters(page: Page, case: Case) -> Pair:
    ours = page.SelfAttention_v1(case.E, case.D).double()

    def theirs(inputs: Tensor) -> Tensor:
        return sdpa(*(inputs @ matrix for matrix in (ours.W_query, ours.W_key, ours.W_value)))

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.E)], ours)


def head_of_layers(kind: Callable[..., nn.Module], case: Case) -> Pair:
    """With biases, and without."""
    ours: Any = kind(case.E, case.D, qkv_bias=bool(case.seed % 2)).double()

    def theirs(inputs: Tensor) -> Tensor:
        layers = ours.W_query, ours.W_key, ours.W_value
        return sdpa(*(inputs @ layer.weight.T + (0 if layer.bias is None else layer.bias) for layer in layers))

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.E)], ours)


@row("foundations/one-head", "v2", B=3, T=6, E=4, D=5)
def head_of_linear_layers(page: Page, case: Case) -> Pair:
    return head_of_layers(page.SelfAttention_v2, case)


@row("foundations/one-head", "in-torch", B=3, T=6, E=4, D=5)
def fused_head(page: Page, case: Case) -> Pair:
    return head_of_layers(page.FusedHead, case)


@row("foundations/causal", "attend", T=6)
def attend(page: Page, case: Case) -> Pair:
    def ours(tokens: Tensor, visible: Tensor) -> Any:
        return page.attend(tokens, visible)[0]

    def theirs(tokens: Tensor, visible: Tensor) -> Any:
        return sdpa(tokens, tokens, tokens, is_causal=True, scale=1)

    return Pair(ours, theirs, [case.randn(case.T, 3), page.visible[: case.T, : case.T]])


@row("foundations/causal", "module", B=3, T=6, E=3, D=4)
def causal_attention(page: Page, case: Case) -> Pair:
    ours = page.CausalAttention(case.E, case.D, context_length=6).double()

    def theirs(inputs: Tensor) -> Tensor:
        layers = ours.to_queries, ours.to_keys, ours.to_values
        queries, keys, values = (inputs @ layer.weight.T for layer in layers)
        return sdpa(queries, keys, values, is_causal=True)

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.E)], ours)


def head_by_head(layers: Sequence[Sequence[nn.Linear]], num_heads: int, inputs: Tensor) -> Tensor:
    """The contexts of all heads side by side, each computed alone; each of some layers makes those of `num_heads`."""
    contexts = [
        sdpa(*(inputs @ rows.T for rows in head), is_causal=True)
        for roles in layers
        for head in zip(*(layer.weight.chunk(num_heads) for layer in roles))
    ]
    return torch.cat(contexts, dim=-1)


@row("foundations/many-heads", "heads", B=3, T=6, E=5, H=3, D=4)
def loop_over_heads(page: Page, case: Case) -> Pair:
    ours = page.MultiHeadAttentionWrapper(case.E, case.D, case.H).double()

    def theirs(inputs: Tensor) -> Tensor:
        layers = [(head.to_queries, head.to_keys, head.to_values) for head in ours.heads]
        return head_by_head(layers, 1, inputs)

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.E)], ours)


@row("foundations/many-heads", "split", B=3, T=6, E=5, H=3, D=4)
def split_heads(page: Page, case: Case) -> Pair:
    ours = page.MultiHeadAttention(case.E, case.H * case.D, case.H).double()

    def theirs(inputs: Tensor) -> Tensor:
        layers = [(ours.to_queries, ours.to_keys, ours.to_values)]
        return head_by_head(layers, case.H, inputs) @ ours.to_output.weight.T + ours.to_output.bias

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.E)], ours)


@row("foundations/many-heads", "attention", B=3, T=6, H=3, D=4)
def attention_of_many_heads(page: Page, case: Case) -> Pair:
    width, bias = case.H * case.D, case.seed % 2 == 0
    ours = page.Attention(width, case.H, bias=bias).double()

    def theirs(inputs: Tensor) -> Any:
        parameters = dict(ours.named_parameters())
        state = {}
        for kind in ("weight", "bias") if bias else ("weight",):
            roles = [parameters[f"to_{role}.{kind}"] for role in ("queries", "keys", "values")]
            state |= {f"in_proj_{kind}": torch.cat(roles), f"out_proj.{kind}": parameters[f"to_output.{kind}"]}
        hidden = torch.ones(case.T, case.T, dtype=torch.bool).triu(1)
        return multihead_attention(state, case.H, inputs, inputs, inputs, attn_mask=hidden)[0]

    return Pair(ours, theirs, [case.randn(case.B, case.T, width)], ours)


@row("foundations/shapes", "split-heads", B=3, H=4, T=5, D=4)
def split_and_merge(page: Page, case: Case) -> Pair:
    def ours(projected: Tensor, context: Tensor) -> Any:
        return page.split_heads(projected, case.H), page.merge_heads(context)

    def theirs(projected: Tensor, context: Tensor) -> Any:
        heads = einops.rearrange(projected, "b t (h d) -> b h t d", h=case.H)
        return heads, einops.rearrange(context, "b h t d -> b t (h d)")

    return Pair(
        ours,
        theirs,
        [case.randn(case.B, case.T, case.H * case.D), case.randn(case.B, case.H, case.T, case.D)],
    )


@row("foundations/shapes", "solution", B=3, T=5, E=4, H=4, D=3)
def attend_in_batch(page: Page, case: Case) -> Pair:
    def ours(tokens: Tensor, matrices: Tensor, real: Tensor) -> Any:
        return page.attend_in_batch(tokens, matrices, real, case.H)

    def theirs(tokens: Tensor, matrices: Tensor, real: Tensor) -> Tensor:
        heads = zip(*((tokens @ matrix).chunk(case.H, dim=-1) for matrix in matrices))
        return torch.cat([sdpa(*(role[:, None] for role in head), real[:, None, None])[:, 0] for head in heads], dim=-1)

    matrices = case.randn(3, case.E, case.H * case.D)
    return Pair(ours, theirs, [case.randn(case.B, case.T, case.E), matrices, is_real(case, case.T)])


@row("practice/fused-qkv", "class", B=3, T=6, H=3, D=4)
def fused_attention(page: Page, case: Case) -> Pair:
    width, causal = case.H * case.D, case.seed % 2 == 0
    ours = page.FusedAttention(width, case.H, causal=causal).double()

    def theirs(inputs: Tensor) -> Any:
        names = {"to_qkv.weight": "in_proj_weight", "to_qkv.bias": "in_proj_bias"}
        state = {names.get(name, name.replace("to_output", "out_proj")): one for name, one in ours.named_parameters()}
        hidden = torch.ones(case.T, case.T, dtype=torch.bool).triu(1) if causal else None
        return multihead_attention(state, case.H, inputs, inputs, inputs, attn_mask=hidden)[0]

    return Pair(ours, theirs, [case.randn(case.B, case.T, width)], ours)


@row("masks/padding", "attention", B=3, T=5, H=3, D=3)
def bidirectional_attention(page: Page, case: Case) -> Pair:
    ours = page.BidirectionalAttention(case.H * case.D, case.H).double()

    def theirs(inputs: Tensor, is_real: Tensor) -> Any:
        state = {"in_proj_weight": ours.to_qkv.weight, "out_proj.weight": ours.to_output.weight}
        options = {"key_padding_mask": ~is_real, "average_attn_weights": False}
        return multihead_attention(state, case.H, inputs, inputs, inputs, **options)

    real = is_real(case, case.T)
    real = real.flip(1) if case.seed % 2 else real  # pads on the left, or on the right
    return Pair(ours, theirs, [case.randn(case.B, case.T, case.H * case.D), real], ours)


@row("masks/combining", "module", B=2, T=4, H=2, D=2)
def padded_causal_attention(page: Page, case: Case) -> Pair:
    """Pads on either side, and texts without a token."""
    ours = page.PaddedCausalAttention(case.H * case.D, case.H, context_length=4).double()
    lengths = torch.tensor([(case.seed + 2 * item) % (case.T + 1) for item in range(case.B)])
    real = torch.arange(case.T) < lengths[:, None]
    real = real.flip(1) if case.seed % 2 else real

    def theirs(inputs: Tensor, is_real: Tensor) -> Any:
        state = {"in_proj_weight": ours.to_qkv.weight, "out_proj.weight": ours.to_output.weight}
        places = torch.arange(case.T)
        allowed = (places <= places[:, None]) & is_real[:, None] | (places == places[:, None])
        attn_mask = (~allowed).repeat_interleave(case.H, dim=0)
        return multihead_attention(state, case.H, inputs, inputs, inputs, attn_mask=attn_mask)[0]

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.H * case.D), real], ours)


@row("masks/multihead-attention", "class", B=3, T=5, H=3, D=3)
def plain_attention(page: Page, case: Case) -> Pair:
    ours = page.PlainAttention(case.H * case.D, case.H).double()

    def theirs(inputs: Tensor, is_real: Tensor) -> Any:
        layers = ours.to_queries, ours.to_keys, ours.to_values
        state = {"in_proj_weight": torch.cat([layer.weight for layer in layers])}
        state |= {"in_proj_bias": torch.cat([layer.bias for layer in layers])}
        state |= {"out_proj.weight": ours.to_output.weight, "out_proj.bias": ours.to_output.bias}
        options = {"key_padding_mask": ~is_real, "average_attn_weights": False}
        return multihead_attention(state, case.H, inputs, inputs, inputs, **options)

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.H * case.D), is_real(case, case.T)], ours)


def each_head_alone(inputs: Tensor, matrices: Sequence[Tensor], biases: Sequence[Any], **options: Any) -> list[Tensor]:
    """The contexts of heads that have matrices of their own, (H, E, D)."""
    roles = [[inputs @ head for head in matrix] for matrix in matrices]
    roles = [
        [head + bias for head, bias in zip(heads, more)] if torch.is_tensor(more) else heads
        for heads, more in zip(roles, biases)
    ]
    return [sdpa(*head, **options) for head in zip(*roles)]


@row("practice/einsum", "attend", B=2, H=3, T=4, D=3, E=5)
def attend_by_letters(page: Page, case: Case) -> Pair:
    def theirs(inputs: Tensor, W_query: Tensor, W_key: Tensor, W_value: Tensor, W_output: Tensor) -> Any:
        contexts = each_head_alone(inputs, [W_query, W_key, W_value], [0, 0, 0])
        return sum(context @ head for context, head in zip(contexts, W_output))

    matrices = case.randn(3, case.H, case.E, case.D).unbind()
    return Pair(
        page.attend,
        theirs,
        [case.randn(case.B, case.T, case.E), *matrices, case.randn(case.H, case.D, case.E)],
    )


@row("practice/einsum", "solution-forward", B=2, H=3, T=4, D=3, E=5)
def attention_by_letters(page: Page, case: Case) -> Pair:
    ours = page.EinsumAttention(case.H, case.E, case.D).double()
    for parameter in ours.parameters():
        parameter.data = case.randn(*parameter.shape)

    def theirs(inputs: Tensor) -> Any:
        matrices, biases = [ours.W_query, ours.W_key, ours.W_value], [ours.b_query, ours.b_key, ours.b_value]
        contexts = each_head_alone(inputs, matrices, biases, is_causal=True)
        return sum(context @ head for context, head in zip(contexts, ours.W_output)) + ours.b_output

    return Pair(ours, theirs, [case.randn(case.B, case.T, case.E)], ours)


def two_lengths(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, and a memory of another length and width, with its mask."""
    memory = case.randn(case.B, case.Tk, case.H * case.D + case.wider)
    return case.randn(case.B, case.Tq, case.H * case.D), memory, is_real(case, case.Tk)


@row("cross/cross-attention", "class", B=3, H=2, Tq=4, Tk=6, D=3, wider=4)
def cross_attention(page: Page, case: Case) -> Pair:
    width = case.H * case.D
    ours = page.CrossAttention(width, width + case.wider, case.H).double()

    return Pair(ours, padded_cross_attention(ours, case.H), two_lengths(case), ours)


@row("practice/capstone", "attention", B=3, H=2, Tq=4, Tk=6, D=3, wider=4)
def unified_attention(page: Page, case: Case) -> Pair:
    width = case.H * case.D
    module = page.UnifiedAttention(width, case.H, memory_width=width + case.wider).double()

    def ours(inputs: Tensor, memory: Tensor, is_real: Tensor) -> Any:
        return module(inputs, memory, is_real, need_weights=True)

    return Pair(ours, padded_cross_attention(module, case.H), two_lengths(case), module)


@row("cross/cross-attention", "fused", B=3, H=2, Tq=4, Tk=6, D=3, wider=4)
def fused_cross_attention(page: Page, case: Case) -> Pair:
    width = case.H * case.D
    module = page.FusedCrossAttention(width, width + case.wider, case.H).double()

    def ours(inputs: Tensor, memory: Tensor, is_real: Tensor) -> Any:
        return module(inputs, module.project(memory), is_real)

    def theirs(inputs: Tensor, memory: Tensor, is_real: Tensor) -> Any:
        weights = module.to_queries.weight, *module.to_kv.weight.chunk(2)
        biases = module.to_queries.bias, module.to_kv.bias
        state = three_projections(weights, biases, module.to_output)
        return multihead_attention(state, case.H, inputs, memory, memory, key_padding_mask=~is_real)[0]

    return Pair(ours, theirs, two_lengths(case), module)


def turned_halves(heads: Tensor, positions: Tensor, base: float) -> Tensor:
    """The rotation of Llama, with angles of its formula in float64."""
    angles = positions[..., None] * base ** -(
        torch.arange(0, heads.shape[-1], 2, dtype=torch.float64) / heads.shape[-1]
    )
    doubled = torch.cat([angles, angles], dim=-1)
    return modeling_llama.apply_rotary_pos_emb(heads, heads, doubled.cos(), doubled.sin())[0]


def turned_pairs(heads: Tensor, positions: Tensor, base: float) -> Tensor:
    """The rotation of GPT-J, which has the tokens before the heads."""
    angles = positions[..., None] * base ** -(
        torch.arange(0, heads.shape[-1], 2, dtype=torch.float64) / heads.shape[-1]
    )
    return modeling_gptj.apply_rotary_pos_emb(heads.transpose(1, 2), angles.sin(), angles.cos()).transpose(1, 2)


@row("position/rope", "pairs", B=3, H=3, T=5, D=4)
def rotate(page: Page, case: Case) -> Pair:
    """Positions of each text, or the same for all."""
    case.D *= 2
    positions = torch.randint(100, (case.B, case.T), generator=torch.Generator("cpu").manual_seed(case.seed))
    base = (10_000.0, 100.0)[case.seed % 2]

    def ours(heads: Tensor, positions: Tensor) -> Tensor:
        return page.rotate(heads, positions[:, None], base)

    def theirs(heads: Tensor, positions: Tensor) -> Tensor:
        return turned_halves(heads, positions, base)

    return Pair(ours, theirs, [case.randn(case.B, case.H, case.T, case.D), positions])


@row("position/rope", "pairs", B=3, H=3, T=5, D=4)
def rotate_pairs(page: Page, case: Case) -> Pair:
    positions = torch.arange(case.T) + case.seed % 100

    def ours(heads: Tensor) -> Tensor:
        return page.rotate_pairs(heads, positions)

    def theirs(heads: Tensor) -> Tensor:
        return turned_pairs(heads, positions[None], 10_000.0)

    return Pair(ours, theirs, [case.randn(case.B, case.H, case.T, 2 * case.D)])


def rotary(module: Any, turn: Callable[..., Tensor] | None, base: float, inputs: Tensor) -> Tensor:
    """Causal attention with the layers of a module, whose queries and keys are turned, or not."""
    layers = module.to_queries, module.to_keys, module.to_values
    queries, keys, values = (layer(inputs).unflatten(-1, (-1, module.head_dim)).transpose(1, 2) for layer in layers)
    if turn:
        positions = torch.arange(inputs.shape[1])[None]
        queries, keys = turn(queries, positions, base), turn(keys, positions, base)
    return module.to_output(sdpa(queries, keys, values, is_causal=True).transpose(1, 2).flatten(2))


@row("position/rope", "bug", B=3, H=3, T=5, D=4)
def rotary_attention(page: Page, case: Case) -> Pair:
    """With a base, and without one."""
    E, base = case.H * 2 * case.D, (None, 10_000.0, 100.0)[case.seed % 3]
    ours = page.Attention(E, case.H, base=base, bias=bool(case.seed % 2)).double()

    def theirs(inputs: Tensor) -> Tensor:
        return rotary(ours, base and turned_halves, base, inputs)

    return Pair(ours, theirs, [case.randn(case.B, case.T, E)], ours)


@row("position/rope", "bug", B=3, H=3, T=5, D=4)
def converted_attention(page: Page, case: Case) -> Pair:
    """Weights of pairs, run by halves after `to_halves`."""
    E = case.H * 2 * case.D
    module = page.Attention(E, case.H, base=100.0, bias=bool(case.seed % 2)).double()

    def ours(inputs: Tensor) -> Any:
        state = dict(module.named_parameters())
        for name in state:
            if "queries" in name or "keys" in name:
                state[name] = page.to_halves(state[name], case.H)
        return torch.func.functional_call(module, state, (inputs,))

    def theirs(inputs: Tensor) -> Tensor:
        return rotary(module, turned_pairs, 100.0, inputs)

    return Pair(ours, theirs, [case.randn(case.B, case.T, E)], module)


@row("cache/grouped", "write", B=3, Hkv=3, groups=3, T=5, D=2)
def grouped_attention(page: Page, case: Case) -> Pair:
    """With and without a base, a window, a bias, and heads of a width of their own."""
    H, D = case.Hkv * case.groups, 2 * case.D
    E, base, window = H * D + case.seed % 2, (None, 100.0)[case.seed // 2 % 2], (None, 2)[case.seed // 4 % 2]
    options = {"head_dim": D if E > H * D else None, "base": base, "window": window, "bias": bool(case.seed // 8 % 2)}
    ours = page.Attention(E, H, num_kv_heads=case.Hkv, **options).double()
    layers = ours.to_queries, ours.to_keys, ours.to_values
    distance = torch.arange(case.T)[:, None] - torch.arange(case.T)
    visible = (distance >= 0) & (distance < (window or case.T))

    def llama(inputs: Tensor) -> Tensor:
        queries, keys, values = (layer(inputs).unflatten(-1, (-1, D)).transpose(1, 2) for layer in layers)
        if base:
            positions = torch.arange(case.T)[None]
            queries, keys = turned_halves(queries, positions, base), turned_halves(keys, positions, base)
        keys, values = (modeling_llama.repeat_kv(role, case.groups) for role in (keys, values))
        return ours.to_output(sdpa(queries, keys, values, visible).transpose(1, 2).flatten(2))

    return Pair(ours, llama, [case.randn(case.B, case.T, E)], ours)
