"""The kit on attention of other libraries: `pip install timm diffusers`.

Each function returns what `check` takes:

    python attention_probes.py attention_adapters.py:timm_attention
"""

import copy


# --8<-- [start:timm]
def timm_attention(fused=True):
    from timm.layers import Attention

    attention = Attention(32, num_heads=4)
    attention.fused_attn = fused

    def padding(tokens, is_real):  # a boolean mask, True is kept
        return attention(tokens, attn_mask=is_real[:, None, None, :])

    return {
        "call": attention,
        "width": 32,
        "module": attention,
        "padding": padding,
    }


# check(**timm_attention())
# --8<-- [end:timm]


# --8<-- [start:diffusers]
def diffusers_attention(**options):
    from diffusers.models.attention_processor import (
        Attention,
        AttnProcessor,
        AttnProcessor2_0,
    )

    attention = Attention(query_dim=32, heads=4, dim_head=8, **options)
    eager = copy.deepcopy(attention).eval()
    attention.set_processor(AttnProcessor2_0())
    eager.set_processor(AttnProcessor())

    def padding(tokens, is_real):  # it adds the mask: 0 is kept
        mask = tokens.new_zeros(is_real.shape).masked_fill(~is_real, -1e4)
        return attention(tokens, attention_mask=mask[:, None])

    return {
        "call": attention,
        "width": 32,
        "module": attention,
        "padding": padding,
        "reference": eager,
    }


# check(**diffusers_attention())
# --8<-- [end:diffusers]
