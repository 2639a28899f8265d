"""Shared key heads against torch and transformers; a decoder that equals Llama and, with QK-norm, Qwen3."""

import inspect
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import FalconConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.integrations import sdpa_attention
from transformers.models.falcon.modeling_falcon import FalconAttention

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "cache/grouped"
SOLUTION, PAGE = p.page_code(SLUG, "solution"), p.page_code(SLUG, "wqkv")

# -- the class -------------------------------------------------------------------------------------


def test_steps_from_a_cache_are_the_whole_and_the_cache_holds_the_key_heads_alone():
    def prove(case):
        H, E = case.Hkv * case.groups, 5
        options = {"base": 100.0, "window": (None, 2)[case.seed % 2]}
        p.seed_modules(case.seed)
        attention = PAGE.Attention(E, H, num_kv_heads=case.Hkv, head_dim=4, **options).double()
        inputs, cache, rows = case.randn(case.B, case.T, E), PAGE.Cache(case.T), []
        with torch.no_grad():
            for token in inputs.split(1, dim=1):
                rows.append(attention(token, cache))
            p.close(torch.cat(rows, dim=1), attention(inputs))
        assert cache.keys.shape == cache.values.shape == (case.B, case.Hkv, case.T, 4)

    p.for_all(p.sizes(B=3, Hkv=3, groups=3, T=5), prove)


def test_tokens_are_chosen_for_a_group_where_query_heads_would_choose_others():
    B, Hkv, groups, T, D = 2, 3, 2, 7, 4
    torch.manual_seed(0)
    keys, scores = torch.randn(B, Hkv, T, D), torch.randn(B, Hkv * groups, T)
    chosen = scores.unflatten(1, (Hkv, groups)).mean(2)
    assert chosen.shape == keys.shape[:3]
    torch.testing.assert_close(chosen[:, 1], (scores[:, 2] + scores[:, 3]) / 2)
    assert not torch.equal(scores[:, 2].topk(3).indices, scores[:, 3].topk(3).indices)


REFUSED = {
    "3 heads do not divide 10": {"width": 10, "num_heads": 3},
    "num_kv_heads=3: give a divisor of 4": {"num_kv_heads": 3},
    "num_kv_heads=8: give a divisor of 4": {"num_kv_heads": 8},
    "num_kv_heads=0: give a divisor of 4": {"num_kv_heads": 0},
    "num_kv_heads=-2: give a divisor of 4": {"num_kv_heads": -2},
    "head_dim=0: give at least 1": {"head_dim": 0},
}


@pytest.mark.parametrize("said", REFUSED)
def test_sizes_that_do_not_fit_raise_and_say_what_to_give(said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        PAGE.Attention(**{"width": 8, "num_heads": 4} | REFUSED[said])


def test_a_bias_is_in_every_layer_or_in_none():
    for bias in (True, False):
        layers = PAGE.Attention(8, 4, num_kv_heads=2, bias=bias).children()
        assert [layer.bias is not None for layer in layers] == [bias] * 4


# -- the order of the heads ------------------------------------------------------------------------


def test_repeat_kv_is_that_of_transformers_and_gradients_add_up_over_a_group():
    ours = executed(SLUG, "repeat-kv")[0].repeat_kv

    def prove(case):
        queries = case.randn(case.B, case.Hkv * case.groups, case.T, case.D)
        shared = [case.randn(case.B, case.Hkv, case.T, case.D).requires_grad_() for _ in range(2)]
        copies = [ours(head, case.groups).detach().requires_grad_() for head in shared]
        assert torch.equal(copies[0], sdpa_attention.repeat_kv(shared[0], case.groups))
        contexts = F.scaled_dot_product_attention(queries, *shared, enable_gqa=True)
        of_copies = torch.autograd.grad(F.scaled_dot_product_attention(queries, *copies).sin().sum(), copies)
        for mine, theirs in zip(torch.autograd.grad(contexts.sin().sum(), shared), of_copies):
            p.close(mine, theirs.unflatten(1, (case.Hkv, case.groups)).sum(dim=2))

    p.for_all(p.sizes(B=3, Hkv=3, T=4, D=3, groups=3), prove)


def test_a_flat_tensor_repeats_numbers_until_its_heads_are_cut():
    flat = torch.arange(4)
    assert flat.repeat_interleave(2, dim=-1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    heads = flat.unflatten(-1, (2, 2)).repeat_interleave(2, dim=-2)
    assert heads.flatten().tolist() == [0, 1, 0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize("wrong", [["to_keys", "to_values"], ["to_keys"], ["to_values"]])
def test_the_probe_finds_the_tile_order_of_keys_and_of_values(wrong, monkeypatch):
    sdpa = F.scaled_dot_product_attention

    def tiled(queries, keys, values, *masks, is_causal, enable_gqa):
        keys = keys.repeat(1, 2, 1, 1) if "to_keys" in wrong else keys.repeat_interleave(2, dim=1)
        values = values.repeat(1, 2, 1, 1) if "to_values" in wrong else values.repeat_interleave(2, dim=1)
        return sdpa(queries, keys, values, *masks, is_causal=is_causal)

    monkeypatch.setattr(F, "scaled_dot_product_attention", tiled)
    said = p.run_cell(SLUG, "probe")[1]
    for name in "to_keys", "to_values":
        assert f"head 0 of {name} changes query heads {[0, 2] if name in wrong else [0, 1]}\n" in said


def test_weights_of_the_tile_order_are_reordered_head_by_head():
    ours = executed(SLUG, "tiled-weights")[0].from_tiles
    case = p.seeded({"seed": 3})
    for H, Hkv, D in itertools.product((6, 12), (1, 2, 3, 6), (1, 4)):
        weight = case.randn(H * D, 5)
        groups, heads = H // Hkv, weight.split(D)
        wanted = [heads[place * Hkv + shared] for shared in range(Hkv) for place in range(groups)]
        assert torch.equal(ours(weight, H, Hkv), torch.cat(wanted))


# -- the decoder -----------------------------------------------------------------------------------

SIZES = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64}


def llama(**options):
    torch.default_generator.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **options)).double().eval()


def decoder_like(**options):
    return PAGE.Decoder(11, 2, 24, 40, num_heads=6, num_kv_heads=2, base=10_000.0, **options).double()


def loaded(model, decoder):
    decoder.load_state_dict(PAGE.from_llama(model.state_dict()))
    return decoder


TOKENS = torch.arange(27).view(3, 9) * 7 % 11


@torch.no_grad()
def test_the_logits_are_those_of_llama():
    """The rotation is computed in float32, hence 1e-6."""
    model = llama()
    p.close(loaded(model, decoder_like())(TOKENS), model(TOKENS).logits, 1e-6)


@torch.no_grad()
def test_with_qk_norm_and_wide_heads_the_logits_are_those_of_qwen3():
    torch.default_generator.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)).double().eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter)
    decoder = decoder_like(head_dim=8)
    PAGE.add_qk_norm(decoder)
    state = PAGE.from_llama(model.state_dict())
    for old, new in (("q_norm", "to_queries.norm"), ("k_norm", "to_keys.norm")):
        state = {name.replace(f"self_attn.{old}", f"attention.{new}"): state[name] for name in state}
    for layer in "to_queries", "to_keys":
        state = {name.replace(f"{layer}.weight", f"{layer}.linear.weight"): state[name] for name in state}
    decoder.load_state_dict(state)
    p.close(decoder(TOKENS), model(TOKENS).logits, 1e-6)


@torch.no_grad()
def test_a_left_padded_prompt_writes_what_it_writes_alone_and_in_transformers():
    model = llama()
    decoder = loaded(model, decoder_like())
    is_real = torch.arange(9) >= torch.tensor([[0], [3], [5]])
    ours = PAGE.write(decoder, TOKENS, 6, is_real=is_real)
    for text, real, written in zip(TOKENS, is_real, ours):
        assert torch.equal(PAGE.write(decoder, text[real][None], 6)[0, -6:], written[-6:])
    given = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "attention_mask": is_real.long()}
    assert torch.equal(model.generate(TOKENS, **given), ours)
    assert not torch.equal(PAGE.write(decoder, TOKENS, 6), ours)
    assert torch.equal(PAGE.write(decoder, TOKENS, 6, -1.0), PAGE.write(decoder, TOKENS, 6))


def test_write_refuses_another_mask_and_a_pad_at_the_end():
    for wrong in (torch.ones(3, 8) > 0, torch.ones(1, 9) > 0, torch.ones(3, 9).long()):
        with pytest.raises(ValueError, match=r"^is_real must be boolean, with shape \(3, 9\)$"):
            PAGE.write(decoder_like(), TOKENS, 2, is_real=wrong)
    with pytest.raises(ValueError, match=r"^a text ends with a pad: pad on the left$"):
        PAGE.write(decoder_like(), TOKENS, 2, is_real=torch.arange(9) < torch.tensor([[9], [7], [9]]))


def test_a_drawn_text_has_the_weights_of_the_softmax_at_that_temperature():
    """One token for each of many equal texts, and again with a smaller temperature."""
    decoder = decoder_like()
    nn.init.normal_(decoder.to_logits.weight, std=0.2)
    text = TOKENS[:1, :4].expand(20_000, -1)
    with torch.no_grad():
        logits = decoder(text[:1])[0, -1]
    for temperature in (0.5, 2.0):
        torch.default_generator.manual_seed(0)
        drawn_tokens = PAGE.write(decoder, text, 1, temperature)[:, -1]
        share = drawn_tokens.bincount(minlength=11) / len(text)
        torch.testing.assert_close(share.double(), (logits / temperature).softmax(dim=-1), rtol=0, atol=0.02)


def test_with_a_key_head_for_each_query_head_it_prints_what_the_page_before_prints():
    theirs = executed("cache/kv-cache", "turns")[1]
    assert executed(SLUG, "reduce")[1].strip() in theirs


def test_a_smaller_eps_and_tied_weights_are_set_as_the_page_says():
    model = llama(rms_norm_eps=1e-2, tie_word_embeddings=True)
    decoder = loaded(model, decoder_like())
    for module in decoder.modules():
        if isinstance(module, nn.RMSNorm):
            module.eps = 1e-2
    with torch.no_grad():
        p.close(decoder(TOKENS), model(TOKENS).logits, 1e-6)
        assert torch.equal(decoder.to_logits.weight, decoder.embed.weight)


# -- kernels and copies ----------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "times"), [("flag", 1), ("copied", 3), ("expanded", 1)])
def test_who_copies_the_keys(way, times, on_the_cpu):
    """`expand` and `flatten(0, 1)` copy nothing, but the matrix products of the math kernel do."""
    queries, keys = torch.randn(2, 6, 1, 16).requires_grad_(), torch.randn(2, 2, 64, 16)
    code = executed(SLUG, "paths")[0]

    def expanded(queries, keys, values):
        roles = [role[:, :, None].expand(-1, -1, 3, -1, -1).flatten(0, 1) for role in (keys, values)]
        return F.scaled_dot_product_attention(queries.unflatten(1, (2, 3)).flatten(0, 1), *roles)

    wanted = F.scaled_dot_product_attention(queries, keys, keys, enable_gqa=True)
    for kernel, held in (SDPBackend.FLASH_ATTENTION, times), (SDPBackend.MATH, 3):
        with sdpa_kernel(kernel):
            context, size = SOLUTION.largest_kept(getattr(code, way, expanded), queries, keys, keys)
        assert size == held * keys.nbytes
        torch.testing.assert_close(context.reshape(wanted.shape), wanted)


def test_multihead_attention_of_torch_has_one_number_of_heads():
    names = inspect.signature(nn.MultiheadAttention).parameters
    assert [name for name in names if "head" in name] == ["num_heads"]


def test_transformers_sets_the_flag_without_a_mask_and_up_to_256():
    def flag(mask, D):
        role = torch.empty(1, 1, 1, D, device="meta")
        return sdpa_attention.use_gqa_in_sdpa(mask, role, role)

    assert flag(None, 256)
    assert not flag(None, 264)
    assert not flag(torch.ones(1, 1, 1, 1), 64)


# -- checkpoints -----------------------------------------------------------------------------------


def test_a_group_gets_the_mean_of_its_weights():
    def prove(case):
        weight = case.randn(case.Hkv * case.groups * case.D, case.E)
        heads = weight.split(case.D)
        wanted = [sum(heads[h * case.groups : (h + 1) * case.groups]) / case.groups for h in range(case.Hkv)]
        p.close(PAGE.mean_heads(weight, case.Hkv, case.D), torch.cat(wanted))
        p.close(PAGE.mean_heads(weight[:, 0], case.Hkv, case.D), torch.cat(wanted)[:, 0])

    p.for_all(p.sizes(Hkv=3, groups=3, D=3, E=4), prove)


def test_converting_a_decoder_changes_its_keys_and_values_alone():
    old = PAGE.Decoder(11, 2, 24, 40, num_heads=6, base=None)
    new = PAGE.Decoder(11, 2, 24, 40, num_heads=6, num_kv_heads=2, base=None)
    pooled = PAGE.to_grouped(old.state_dict(), 2, 4)
    new.load_state_dict(pooled)
    changed = {name for name, weight in old.state_dict().items() if weight.shape != pooled[name].shape}
    wanted = {f"layers.{n}.attention.{layer}.weight" for n in range(2) for layer in ("to_keys", "to_values")}
    assert changed == wanted
    assert all(torch.equal(pooled[name], old.state_dict()[name]) for name in pooled.keys() - wanted)


def test_falcon_stores_group_by_group_as_the_cell_does():
    config = FalconConfig(
        hidden_size=24, num_attention_heads=6, num_kv_heads=2, new_decoder_architecture=True, num_hidden_layers=1
    )
    theirs = FalconAttention(config, layer_idx=0)
    fused = torch.arange(40.0).view(1, 1, 40)
    queries, keys, values = theirs._split_heads(fused)
    blocks = fused.unflatten(-1, (2, 5, 4))[0, 0]
    assert torch.equal(queries[0, 0], blocks[:, :3].flatten(0, 1))
    for ours, repeated in ((blocks[:, 3], keys), (blocks[:, 4], values)):
        assert torch.equal(repeated[0, 0], ours.repeat_interleave(3, dim=0))


# -- the exercise ----------------------------------------------------------------------------------


def grouped(queries, keys, values, visible, rows=None):
    """Right, unless the rows of the mask are others."""
    (B, H, Tq, D), Hkv = queries.shape, keys.shape[1]
    rows = visible.repeat(H // Hkv, 1) if rows is None else rows
    return F.scaled_dot_product_attention(queries.reshape(B, Hkv, -1, D), keys, values, rows).reshape(B, H, Tq, -1)


def in_float32(queries, keys, values, visible):
    return grouped(queries.float(), keys.float(), values.float(), visible).double()


def rows_interleaved(queries, keys, values, visible):
    return grouped(queries, keys, values, visible, visible.repeat_interleave(queries.shape[1] // keys.shape[1], dim=0))


RIGHT = {"by reshape": grouped}
WRONG = {
    "the flag": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
    "in float32": in_float32,
    "rows of the mask interleaved": rows_interleaved,
}
SAID = {"the flag": "it keeps 82944 bytes, more than any input has", "in float32": "other contexts"}


@pytest.mark.parametrize("answer", SAID)
def test_the_check_names_what_differs(answer):
    assert p.verdict(SOLUTION.check_share, WRONG[answer]) == f"not yet: (3, 6, 2, 4, 32, 16): {SAID[answer]}\n"


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_share", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "the logits of a step have two axes: 1 is the last": [
        "weights = (logits / temperature).softmax(dim=1)",
        "new = logits.argmax(dim=1, keepdim=True)",
    ],
    "it has four axes, so -2 is axis 2": ["return self.norm(projected).flatten(2)"],
}
ACCEPTED = {
    "keys and values have as many heads": ["Hkv = values.shape[1]"],
}
