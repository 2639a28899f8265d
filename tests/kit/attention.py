"""An attention in small steps, each of which a planted bug can replace: grouped heads, rotation, masks, a cache."""

import torch
import torch.nn.functional as F
from torch import nn

from snippets.attention_probes import check

WIDTH, BASE = 32, 100.0


class Attention(nn.Module):
    """Causal, or not; `window` tokens are visible, or all; `is_real` (B, T) is True where a token is no pad."""

    causal, window, rotates = True, None, True

    def __init__(self, num_heads=4, num_kv_heads=2, dropout=0.1):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.dropout = num_heads, num_kv_heads, dropout
        D = WIDTH // num_heads
        self.to_queries = nn.Linear(WIDTH, num_heads * D)
        self.to_keys = nn.Linear(WIDTH, num_kv_heads * D)
        self.to_values = nn.Linear(WIDTH, num_kv_heads * D)
        self.to_output = nn.Linear(num_heads * D, WIDTH)

    def forward(self, tokens, is_real=None, cache=None):
        queries, keys, values = self.roles(tokens)
        past = cache["keys"].shape[2] if cache else 0
        if self.rotates:
            places = self.places(tokens, past, is_real)
            queries, keys = self.rotate(queries, places), self.rotate(keys, places)
        if cache is not None:
            keys, values = self.keep(cache, keys, values)
        visible = self.visible(tokens.shape[1], keys.shape[2])
        if is_real is not None:
            visible = self.with_pads(visible, is_real)
        keys, values = self.repeat(keys), self.repeat(values)
        weights = self.weigh(queries @ keys.mT * self.scale(), visible)
        return self.to_output(self.merge(self.drop(weights) @ values))

    def roles(self, tokens):
        heads = self.num_heads, self.num_kv_heads, self.num_kv_heads
        layers = self.to_queries, self.to_keys, self.to_values
        return [self.split(layer(tokens), H) for layer, H in zip(layers, heads)]

    def split(self, projected, H):
        return projected.unflatten(-1, (H, -1)).transpose(1, 2)

    def merge(self, context):
        return context.transpose(1, 2).flatten(2)

    def places(self, tokens, past, is_real):
        if is_real is not None:
            return is_real.cumsum(dim=1).sub(1).clamp(min=0)[:, None, :, None]
        return torch.arange(past, past + tokens.shape[1])[None, None, :, None]

    def rotate(self, heads, places):
        D = heads.shape[-1]
        angles = places * BASE ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
        cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
        left, right = heads.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)

    def keep(self, cache, keys, values):
        if cache:
            keys, values = torch.cat([cache["keys"], keys], dim=2), torch.cat([cache["values"], values], dim=2)
        cache |= {"keys": keys, "values": values}
        return keys, values

    def visible(self, Tq, Tk):
        visible = torch.ones(Tq, Tk, dtype=torch.bool)
        if self.causal:
            visible = visible.tril(Tk - Tq)
        return visible.triu(Tk - Tq - self.window + 1) if self.window else visible

    def with_pads(self, visible, is_real):
        return visible & is_real[:, None, None]

    def repeat(self, heads):
        return heads.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)

    def scale(self):
        return (WIDTH // self.num_heads) ** -0.5

    def weigh(self, scores, visible):
        empty = ~visible.any(dim=-1, keepdim=True)
        weights = scores.masked_fill(~visible, -torch.inf).masked_fill(empty, 0).softmax(dim=-1)
        return weights.masked_fill(empty, 0)

    def drop(self, weights):
        return F.dropout(weights, self.dropout, self.training)


def report(kind=Attention, against=None, **options):
    """What the kit says of a class, with every option; `against` is the class of a reference with its parameters."""
    torch.manual_seed(0)
    module, other = kind(), (against or Attention)()
    other.load_state_dict(module.state_dict(), strict=False)

    def cache():
        held = {}
        return lambda chunk: module(chunk, cache=held)

    given = {"width": WIDTH, "causal": kind.causal, "module": module, "padding": module, "cache": cache}
    given["reference"] = lambda tokens: other.eval().to(tokens.dtype)(tokens)
    return check(module, **given | options)
