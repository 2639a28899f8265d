"""Shared key heads against SDPA, plain loops and transformers; a decoder that equals Llama and, with QK-norm, Qwen3."""

import functools
import inspect
import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import FalconConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.integrations import sdpa_attention
from transformers.models.falcon.modeling_falcon import FalconAttention

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "cache/grouped"
SOLUTION, PAGE = p.page_code(SLUG, "solution"), p.page_code(SLUG, "wqkv")
KIT = p.page_code("practice/capstone", "solution")

# -- the class -------------------------------------------------------------------------------------


def drawn():
    """Modules with every number of key heads, with and without RoPE, a window, a bias, a width of their own."""

    def build(case, rope, bias, own_width, window):
        case.H, case.D, case.window = case.Hkv * case.groups, 2 * case.half, window
        case.E = case.H * case.D + own_width
        case.base = 100.0 if rope else None
        p.seed_modules(case.seed)
        options = {"head_dim": case.D if own_width else None, "base": case.base, "window": window, "bias": bias}
        case.attention = PAGE.Attention(case.E, case.H, num_kv_heads=case.Hkv, **options).double()
        for parameter in case.attention.parameters():
            nn.init.normal_(parameter)
        case.inputs = case.randn(case.B, case.T, case.E)
        return case

    sizes = p.sizes(B=3, Hkv=3, groups=3, T=5, half=2)
    return st.builds(build, sizes, *[st.booleans()] * 3, st.sampled_from([None, 2]))


def one_head_at_a_time(case):
    """Query head h with the key head h // groups, each cut out of its layer; what it sees by two loops."""
    layers, D, contexts = case.attention, case.D, []
    visible = torch.zeros(case.T, case.T, dtype=torch.bool)
    for i, j in itertools.product(range(case.T), repeat=2):
        visible[i, j] = j <= i and (case.window is None or i - j < case.window)
    for h in range(case.H):
        shared = h // case.groups
        queries = layers.to_queries(case.inputs)[..., h * D : (h + 1) * D]
        keys, values = (
            layer(case.inputs)[..., shared * D : (shared + 1) * D] for layer in (layers.to_keys, layers.to_values)
        )
        if case.base:
            queries, keys = (
                PAGE.rotate(role[:, None], torch.arange(case.T), case.base)[:, 0] for role in (queries, keys)
            )
        scores = queries @ keys.mT / D**0.5
        contexts.append(scores.masked_fill(~visible, -torch.inf).softmax(dim=-1) @ values)
    return layers.to_output(torch.cat(contexts, dim=-1))


def test_outputs_and_gradients_are_those_of_one_head_at_a_time():
    p.equals_reference(lambda case: case.attention(case.inputs), one_head_at_a_time, drawn())
    p.gradients_equal(
        lambda case: case.attention(case.inputs),
        one_head_at_a_time,
        lambda case: [case.inputs, *case.attention.parameters()],
        drawn(),
    )


def test_steps_from_a_cache_are_the_whole_and_the_cache_holds_the_key_heads_alone():
    def prove(case):
        cache, rows = PAGE.Cache(case.T), []
        for token in case.inputs.split(1, dim=1):
            rows.append(case.attention(token, cache))
        p.close(torch.cat(rows, dim=1), case.attention(case.inputs))
        assert cache.keys.shape == (case.B, case.Hkv, case.T, case.D)

    p.for_all(drawn(), prove)


def test_a_call_changes_nothing():
    p.stateless(lambda case: (case.attention, [case.inputs], [-case.inputs]), drawn())


def test_neither_a_whole_text_nor_a_step_has_a_mask(monkeypatch):
    sdpa, calls = F.scaled_dot_product_attention, []

    def noted(*roles, **options):
        calls.append(options)
        return sdpa(*roles, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    attention, cache = PAGE.Attention(8, 4, num_kv_heads=2), PAGE.Cache(6)
    for T in (5, 1):
        attention(torch.ones(3, T, 8), cache)
    assert calls == [{"enable_gqa": True, "is_causal": True}, {"enable_gqa": True}]


def test_large_scores_stay_finite():
    p.finite_rows(lambda case: case.attention(1e4 * case.inputs), drawn())


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


class Examined(PAGE.Attention):
    """The page's class as the probes of the capstone call it: it is always causal, and returns no weights."""

    def __init__(self, width, num_heads, memory_width=None, causal=False, dropout=0.0, **options):
        if memory_width or dropout:
            raise KIT.LacksOption
        super().__init__(width, num_heads, **options)

    def forward(self, inputs, is_real=None, cache=None):
        if cache is not None:
            cache = vars(cache).setdefault("with_places", PAGE.Cache(cache.max_tokens))
        return super().forward(inputs, cache, is_real), None


@pytest.mark.parametrize("num_kv_heads", [None, 1])
@pytest.mark.parametrize("base", [None, 10_000.0])
def test_the_probes_of_the_capstone_pass_where_they_apply(num_kv_heads, base):
    """It has no dropout and no memory, it has an order, and a pad sees itself, which `empty` forbids."""
    options = {"num_kv_heads": num_kv_heads, "base": base}
    kit = functools.partial(Examined, **options)
    wide = functools.partial(Examined, head_dim=4, **options)
    for probe in (KIT.causality, KIT.padding, KIT.batch, KIT.state, KIT.dtype, KIT.cache, KIT.gradient):
        assert max(probe(kit), probe(wide)) < 1e-4, probe.__name__


# -- the order of the heads ------------------------------------------------------------------------


def test_repeat_kv_is_that_of_transformers():
    ours = executed(SLUG, "repeat-kv")[0].repeat_kv
    cases = p.sizes(B=3, Hkv=3, T=4, D=3, groups=3)

    def prove(case):
        heads = case.randn(case.B, case.Hkv, case.T, case.D)
        assert torch.equal(ours(heads, case.groups), sdpa_attention.repeat_kv(heads, case.groups))

    p.for_all(cases, prove)


def test_the_gradient_of_a_key_head_is_the_sum_over_its_group():
    def prove(case):
        queries = case.randn(case.B, case.Hkv * case.groups, case.T, case.D)
        shared = [case.randn(case.B, case.Hkv, case.T, case.D).requires_grad_() for _ in range(2)]
        copies = [head.detach().repeat_interleave(case.groups, dim=1).requires_grad_() for head in shared]
        contexts = F.scaled_dot_product_attention(queries, *shared, enable_gqa=True)
        of_copies = torch.autograd.grad(F.scaled_dot_product_attention(queries, *copies).sin().sum(), copies)
        for mine, theirs in zip(torch.autograd.grad(contexts.sin().sum(), shared), of_copies):
            p.close(mine, theirs.unflatten(1, (case.Hkv, case.groups)).sum(dim=2))

    p.for_all(p.sizes(B=3, Hkv=3, T=4, D=3, groups=3), prove)


@pytest.mark.parametrize(("H", "Hkv", "differs"), [(6, 6, False), (6, 3, True), (6, 2, True), (6, 1, False)])
def test_the_tile_order_is_wrong_unless_there_is_one_key_head_or_one_for_each(H, Hkv, differs):
    case = p.seeded({"seed": H + Hkv})
    queries, keys, values = case.randn(2, H, 4, 3), case.randn(2, Hkv, 4, 3), case.randn(2, Hkv, 4, 3)
    tiled = [role.repeat(1, H // Hkv, 1, 1) for role in (keys, values)]
    right = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
    assert ((F.scaled_dot_product_attention(queries, *tiled) - right).abs().max() > 1e-3) == differs


def test_the_probe_finds_the_tile_order(monkeypatch):
    """As the page says: key head 0 then changes the query heads 0 and 2."""
    sdpa = F.scaled_dot_product_attention

    def tiled(queries, keys, values, *masks, is_causal, enable_gqa):
        keys, values = (role.repeat(1, queries.shape[1] // role.shape[1], 1, 1) for role in (keys, values))
        return sdpa(queries, keys, values, *masks, is_causal=is_causal)

    monkeypatch.setattr(F, "scaled_dot_product_attention", tiled)
    said = p.run_cell(SLUG, "probe")[1]
    assert said == "key head 0 changes query heads [0, 2]\nkey head 1 changes query heads [1, 3]\n"


def test_weights_of_the_tile_order_are_reordered_head_by_head():
    ours = executed(SLUG, "tiled-weights")[0].from_tiles
    case = p.seeded({"seed": 3})
    for H, Hkv, D in itertools.product((6, 12), (1, 2, 3, 6), (1, 4)):
        weight = case.randn(H * D, 5)
        groups, heads = H // Hkv, weight.split(D)
        wanted = [heads[place * Hkv + shared] for shared in range(Hkv) for place in range(groups)]
        assert torch.equal(ours(weight, H, Hkv), torch.cat(wanted))


# -- the decoder -----------------------------------------------------------------------------------

SIZES = {
    "vocab_size": 11,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}
HEADS = {"num_attention_heads": 6, "num_key_value_heads": 2}


def llama(**options):
    torch.default_generator.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS, **options)).double().eval()


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
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES, **HEADS, head_dim=8)).double().eval()
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
def test_greedy_text_is_that_of_transformers():
    model = llama()
    given = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "attention_mask": torch.ones(3, 4)}
    theirs = model.generate(TOKENS[:, :4], **given)
    ours = PAGE.write(loaded(model, decoder_like()), TOKENS[:, :4], 6)
    assert torch.equal(ours, theirs)


@torch.no_grad()
def test_a_left_padded_prompt_writes_what_it_writes_alone_and_what_transformers_writes():
    model = llama()
    decoder = loaded(model, decoder_like())
    is_real = torch.arange(9) >= torch.tensor([[0], [3], [5]])
    ours = PAGE.write(decoder, TOKENS, 6, is_real=is_real)
    for text, real, written in zip(TOKENS, is_real, ours):
        assert torch.equal(PAGE.write(decoder, text[real][None], 6)[0, -6:], written[-6:])
    given = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "attention_mask": is_real.long()}
    assert torch.equal(model.generate(TOKENS, **given), ours)
    assert not torch.equal(PAGE.write(decoder, TOKENS, 6), ours)


@pytest.mark.parametrize(
    ("is_real", "said"),
    [
        (torch.ones(3, 8) > 0, r"is_real must be boolean, with shape \(3, 9\)"),
        (torch.ones(1, 9) > 0, r"is_real must be boolean, with shape \(3, 9\)"),
        (torch.ones(3, 9).long(), r"is_real must be boolean, with shape \(3, 9\)"),
        (torch.arange(9) < torch.tensor([[9], [7], [9]]), "a text ends with a pad: pad on the left"),
    ],
)
def test_write_refuses_another_mask_and_a_pad_at_the_end(is_real, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        PAGE.write(decoder_like(), TOKENS, 2, is_real=is_real)


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


def test_write_takes_no_token_and_draws_at_temperatures_above_0_alone():
    decoder = decoder_like()
    assert torch.equal(PAGE.write(decoder, TOKENS, 4, -1.0), PAGE.write(decoder, TOKENS, 4))
    assert torch.equal(PAGE.write(decoder, TOKENS, 0), TOKENS)
    assert PAGE.write(decoder, TOKENS, 2).shape == (3, 11)


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


def test_what_a_reader_takes_home_runs_on_another_device():
    decoder = decoder_like().to("meta")
    tokens = TOKENS.to("meta")
    assert decoder(tokens).shape == (3, 9, 11)
    assert PAGE.write(decoder, tokens, 2).shape == (3, 11)
    assert PAGE.write(decoder, tokens, 2, 1.0).shape == (3, 11)
    PAGE.add_qk_norm(decoder)
    assert {parameter.device.type for parameter in decoder.parameters()} == {"meta"}
    assert decoder(tokens).is_meta


# -- kernels and copies ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "way", "times"),
    [
        *((SDPBackend.FLASH_ATTENTION, way, times) for way, times in (("flag", 1), ("copied", 3), ("expanded", 1))),
        *((SDPBackend.MATH, way, 3) for way in ("flag", "copied", "expanded")),
    ],
)
def test_who_copies_the_keys(kernel, way, times, on_the_cpu):
    """`expand` and `flatten(0, 1)` copy nothing, but the matrix products of the math kernel do."""
    queries, keys = torch.randn(2, 6, 1, 16).requires_grad_(), torch.randn(2, 2, 64, 16)
    code = executed(SLUG, "paths")[0]

    def expanded(queries, keys, values):
        roles = [role[:, :, None].expand(-1, -1, 3, -1, -1).flatten(0, 1) for role in (keys, values)]
        return F.scaled_dot_product_attention(queries.unflatten(1, (2, 3)).flatten(0, 1), *roles)

    with sdpa_kernel(kernel):
        context, size = SOLUTION.largest_kept(getattr(code, way, expanded), queries, keys, keys)
    assert size == times * keys.nbytes
    wanted = F.scaled_dot_product_attention(queries, keys, keys, enable_gqa=True)
    torch.testing.assert_close(context.reshape(wanted.shape), wanted)


def test_nothing_kept_has_no_bytes():
    assert SOLUTION.largest_kept(lambda: "nothing") == ("nothing", 0)


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


def test_no_head_is_nearer_to_a_group_than_its_mean():
    case = p.seeded({"seed": 1})
    keys = case.randn(2, 4, 6, 5)
    mean = keys.mean(dim=1, keepdim=True)
    others = [keys[:, :1], torch.zeros_like(mean), mean + 0.1 * case.randn(*mean.shape)]
    assert all((keys - mean).square().sum() < (keys - other).square().sum() for other in others)


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


def grouped(queries, keys, values, visible, rows=None, order=(0, 1, 2, 3, 4), **options):
    """Right, unless the rows of the mask or the order of the axes are others."""
    (B, H, Tq, D), Hkv = queries.shape, keys.shape[1]
    split = queries.unflatten(1, (Hkv, H // Hkv)).permute(order)
    rows = visible.repeat(H // Hkv, 1) if rows is None else rows(visible, H // Hkv)
    context = F.scaled_dot_product_attention(split.reshape(B, Hkv, -1, D), keys, values, rows, **options)
    return context.reshape(B, H, Tq, -1)


def by_einsum(queries, keys, values, visible, hidden=-torch.inf, product="bngts,bnsd->bngtd"):
    split = queries.unflatten(1, (keys.shape[1], -1))
    scores = torch.einsum("bngtd,bnsd->bngts", split, keys) / queries.shape[-1] ** 0.5
    weights = scores.masked_fill(~visible, hidden).softmax(dim=-1)
    return torch.einsum(product, weights, values).flatten(1, 2)


def values_copied(queries, keys, values, visible):
    copies = values[:, :, None].repeat(1, 1, queries.shape[1] // keys.shape[1], 1, 1)
    return by_einsum(queries, keys, copies, visible, product="bngts,bngsd->bngtd")


def copied_without_gradients(queries, keys, values, visible):
    with torch.no_grad():
        copies = [role.repeat_interleave(queries.shape[1] // role.shape[1], dim=1) for role in (keys, values)]
    return F.scaled_dot_product_attention(queries, *copies, visible)


def by_view(queries, keys, values, visible):
    """Heads that `split` has cut are not contiguous."""
    rows = queries.view(len(queries), keys.shape[1], -1, queries.shape[-1])
    context = F.scaled_dot_product_attention(rows, keys, values, visible.repeat(queries.shape[1] // keys.shape[1], 1))
    return context.view(*queries.shape[:3], -1)


def head_by_head(queries, keys, values, visible):
    groups = queries.shape[1] // keys.shape[1]
    heads = [
        F.scaled_dot_product_attention(queries[:, h], keys[:, h // groups], values[:, h // groups], visible)
        for h in range(queries.shape[1])
    ]
    return torch.stack(heads, dim=1)


def with_roles(change):
    """SDPA on keys and values that are changed first."""

    def answer(queries, keys, values, visible):
        groups = queries.shape[1] // keys.shape[1]
        return F.scaled_dot_product_attention(queries, *(change(one, groups) for one in (keys, values)), visible)

    return answer


def in_place(queries, keys, values, visible):
    visible.logical_not_()
    return grouped(queries, keys, values, ~visible)


def fixed(queries, keys, values, visible):
    context = grouped(queries, keys, values, visible)
    return context if queries.shape[:2] == (3, 6) else context.flip(1)


RIGHT = {"by reshape": grouped, "by einsum": by_einsum, "a loop over the heads": head_by_head}
WRONG = {
    "nothing": lambda *_: None,
    "stops": lambda *_: 1 / 0,
    "the flag": lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
    "repeat_interleave": with_roles(lambda one, groups: one.repeat_interleave(groups, dim=1)),
    "expand, merged": with_roles(lambda one, groups: one[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)),
    "tile order": with_roles(lambda one, groups: one.repeat(1, groups, 1, 1)),
    "the first key head for all": with_roles(lambda one, groups: one[:, :1]),
    "the mean of the key heads": with_roles(lambda one, groups: one.mean(dim=1, keepdim=True)),
    "rows of the mask interleaved": lambda *given: grouped(*given, rows=lambda m, g: m.repeat_interleave(g, dim=0)),
    "mask the wrong way round": lambda q, k, v, m: grouped(q, k, v, ~m),
    "no mask": lambda q, k, v, m: grouped(q, k, v, torch.ones_like(m)),
    "no scale": lambda *given: grouped(*given, scale=1.0),
    "the scale of the values": lambda q, k, v, m: grouped(q, k, v, m, scale=v.shape[-1] ** -0.5),
    "groups before key heads": lambda q, k, v, m: grouped(
        q.unflatten(1, (-1, k.shape[1])).transpose(1, 2).flatten(1, 2), k, v, m
    ),
    "tokens before heads": lambda *given: grouped(*given, order=(0, 1, 3, 2, 4)),
    "heads reversed": lambda *given: grouped(*given).flip(1),
    "keys and values exchanged": lambda q, k, v, m: grouped(q, v[..., :-2], F.pad(k, (0, 2)), m),
    "still in groups": lambda q, k, v, m: grouped(q, k, v, m).unflatten(1, (k.shape[1], -1)),
    "heads merged": lambda *given: grouped(*given).transpose(1, 2).flatten(2),
    "in float32": lambda q, k, v, m: grouped(q.float(), k.float(), v.float(), m).double(),
    "keys detached": lambda q, k, v, m: grouped(q, k.detach(), v, m),
    "no gradient": lambda *given: grouped(*given).detach(),
    "the mask turned in place": in_place,
    "right for the first sizes": fixed,
    "values alone copied": values_copied,
    "copied without gradients": copied_without_gradients,
    "a finite mask": lambda *given: by_einsum(*given, hidden=-1e9),
    "a view of the queries": by_view,
    "on the default device": lambda q, k, v, m: grouped(q, k, v, m.to(torch.get_default_device())),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_share", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "with as many key heads as query heads the flag changes nothing": [
        "self.base, self.window, self.gqa = (base, window, shared <= num_heads)"
    ],
    "the logits of a step have two axes: 1 is the last": [
        "weights = (logits / temperature).softmax(dim=1)",
        "new = logits.argmax(dim=1, keepdim=True)",
    ],
    "it has four axes, so -2 is axis 2": ["return self.norm(projected).flatten(2)"],
}
ACCEPTED = {
    "keys and values have as many heads": ["Hkv = values.shape[1]"],
}
