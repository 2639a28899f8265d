"""KV cache: chunks of every size against the full pass, and against Llama and Mistral with their caches."""

import copy
import inspect
import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch.nn.attention.bias import causal_lower_right
from transformers import (
    AutoModel,
    DynamicCache,
    FalconConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    StaticCache,
)

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "cache/kv-cache"
PAGE, SOLUTION = (p.page_code(SLUG, cell) for cell in ("turns", "solution"))
PAGE_BYTES = p.page_code(SLUG, "bytes").models
RINGS = p.page_code(SLUG, "ring-leak")
FROM_LLAMA = p.page_code("cache/grouped", "load").from_llama
SIZES = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64}


def both(window=None):
    """A model of transformers, the page's with the same parameters, and texts, all in float64."""
    p.seed_modules(0)
    if window is None:
        theirs = LlamaForCausalLM(LlamaConfig(**SIZES))
    else:
        theirs = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=window))
    theirs = theirs.eval().double()
    ours = PAGE.make_decoder(window).double()
    ours.load_state_dict(FROM_LLAMA(theirs.state_dict()))
    return theirs, ours, PAGE.tokens


CHUNKINGS = [[9], [1] * 9, [4, 1, 1, 1, 1, 1], [4, 2, 3], [2, 2, 2, 2, 1]]
CLOSE = 1e-6  # the angles of both are float32


def in_their_chunks(theirs, tokens, sizes, cache, mask=None):
    rows, end = [], 0
    for chunk in tokens.split(sizes, dim=1):
        end += chunk.shape[1]
        given = {} if mask is None else {"attention_mask": mask[:, :end].long()}
        rows.append(theirs(chunk, past_key_values=cache, use_cache=True, **given).logits)
    return torch.cat(rows, dim=1)


# -- references ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", CHUNKINGS)
@torch.no_grad()
def test_logits_are_those_of_llama_with_each_of_its_caches(sizes):
    theirs, ours, tokens = both()
    full = theirs(tokens).logits
    p.close(ours(tokens), full, CLOSE)
    for cache in DynamicCache(config=theirs.config), StaticCache(config=theirs.config, max_cache_len=12):
        rows = in_their_chunks(theirs, tokens, sizes, cache)
        for make_cache in lambda: PAGE.Cache(9), lambda: PAGE.StaticCache(12):
            p.close(PAGE.in_chunks(ours, tokens, sizes, make_cache), rows, CLOSE)


@pytest.mark.parametrize("sizes", CHUNKINGS)
@torch.no_grad()
def test_with_a_window_they_are_those_of_mistral_whose_cache_keeps_as_many_keys(sizes):
    theirs, ours, tokens = both(window=3)
    full, cache = theirs(tokens).logits, DynamicCache(config=theirs.config)
    p.close(in_their_chunks(theirs, tokens, sizes, cache), full, CLOSE)
    p.close(PAGE.in_chunks(ours, tokens, sizes, lambda: PAGE.RollingCache(3)), full, CLOSE)
    p.close(PAGE.in_chunks(ours, tokens, sizes, lambda: PAGE.Cache(9)), full, CLOSE)
    assert cache.layers[0].keys.shape[2] == 2


@torch.no_grad()
def test_left_padded_texts_give_what_llama_gives_with_a_mask_as_long_as_its_cache():
    theirs, ours, tokens = both()
    is_real = torch.arange(9) >= torch.tensor([[0], [3], [5]])
    rows = in_their_chunks(theirs, tokens, [6, 1, 2], DynamicCache(config=theirs.config), is_real)
    for make_cache in lambda: PAGE.Cache(9), lambda: PAGE.StaticCache(9):
        found = PAGE.in_chunks(ours, tokens, [6, 1, 2], make_cache, is_real)
        p.close(found[is_real], rows[is_real], CLOSE)
    for text, real in enumerate(is_real):
        p.close(found[text, real], ours(tokens[text : text + 1, real])[0], CLOSE)


def test_visible_keys_are_those_of_plain_loops():
    def prove(case):
        positions = torch.arange(case.Tq) + case.start
        places = torch.randperm(case.start + case.Tq, generator=torch.Generator().manual_seed(case.seed))
        is_real = case.randn(case.B, len(places)) > 0
        for window, real in itertools.product((None, case.window), (None, is_real)):
            found = PAGE.visible_keys(positions, places, window, real).expand(case.B, 1, -1, -1)
            for b, (i, query), (j, key) in itertools.product(range(case.B), enumerate(positions), enumerate(places)):
                near = window is None or query - key < window
                seen = key <= query and near and (real is None or real[b, key])
                assert found[b, 0, i, j] == bool(seen or key == query)

    p.for_all(p.sizes(B=2, Tq=3, start=(0, 4), window=4), prove)


# -- chunks of drawn sizes -----------------------------------------------------------------------


@st.composite
def chunked(draw):
    """An attention layer, inputs, the sizes of chunks, and a window or none."""
    case = p.seeded({name: draw(st.integers(1, top)) for name, top in (("B", 3), ("H", 3), ("T", 7), ("seed", 10**6))})
    case.sizes, case.window = [], draw(st.sampled_from([None, 1, 2, 3, 9]))
    while sum(case.sizes) < case.T:
        case.sizes.append(draw(st.integers(1, case.T - sum(case.sizes))))
    p.seed_modules(case.seed)
    case.attention = PAGE.Attention(4 * case.H, case.H, 100.0, case.window, bias=False).double()
    case.inputs = case.randn(case.B, case.T, 4 * case.H)
    case.caches = [PAGE.Cache(case.T), PAGE.StaticCache(case.T + 2)]
    if case.window:
        case.caches.append(PAGE.RollingCache(case.window))
    return case


def test_chunks_of_drawn_sizes_give_the_rows_of_the_whole_with_every_cache():
    def prove(case):
        with torch.no_grad():
            whole = case.attention(case.inputs)
            for cache in case.caches:
                chunks = case.inputs.split(case.sizes, dim=1)
                p.close(torch.cat([case.attention(chunk, cache) for chunk in chunks], dim=1), whole)
                assert int(cache.length) == case.T

    p.for_all(chunked(), prove)


def test_a_row_reaches_its_window_and_nothing_else():
    def function(case):
        mask = PAGE.visible_keys(torch.arange(case.T), torch.arange(case.T), case.window)
        case.inputs = case.inputs[:1]
        return lambda tokens: case.attention(tokens[None])[0], case.inputs[0], mask

    p.reaches_exactly(function, chunked())


def test_a_call_without_a_cache_leaves_nothing_behind():
    p.stateless(lambda case: (case.attention, [case.inputs], [-case.inputs]), chunked())


def test_gradients_pass_through_the_rolling_cache():
    def in_pieces(case):
        cache = PAGE.RollingCache(case.window or case.T)
        return torch.cat([case.attention(chunk, cache) for chunk in case.inputs.split(case.sizes, dim=1)], dim=1)

    p.gradients_equal(
        in_pieces,
        lambda case: case.attention(case.inputs),
        lambda case: [case.inputs, *case.attention.parameters()],
        chunked(),
    )


# -- the simplest cache --------------------------------------------------------------------------


def test_the_simple_class_is_that_of_the_page_and_its_steps_give_its_rows():
    def prove(case):
        simple = PAGE.SimpleAttention(4 * case.H, case.H).double()
        attention = PAGE.Attention(4 * case.H, case.H).double()
        attention.load_state_dict(simple.state_dict())
        with torch.no_grad():
            whole = attention(case.inputs)
            rows, past = simple(case.inputs[:, : case.sizes[0]])
            p.close(simple(case.inputs)[0], whole)
            p.close(rows, whole[:, : case.sizes[0]])
            for token in range(case.sizes[0], case.T):
                row, past = simple(case.inputs[:, token : token + 1], past)
                p.close(row[:, 0], whole[:, token])
                assert past[0].shape == past[1].shape == (case.B, case.H, token + 1, 4)

    p.for_all(chunked(), prove)


def test_the_simple_class_copies_its_past_and_refuses_a_chunk_behind_it():
    simple, inputs = PAGE.SimpleAttention(8, 2), torch.randn(3, 5, 8)
    _, past = simple(inputs[:, :4])
    _, longer = simple(inputs[:, 4:], past)
    assert torch.equal(longer[0][:, :, :4], past[0])
    assert longer[0].data_ptr() != past[0].data_ptr()
    with pytest.raises(ValueError, match=r"^2 new tokens after a past: one at a time$"):
        simple(inputs[:, :2], past)


# -- what the caches and classes promise ---------------------------------------------------------


def mask_of(monkeypatch, call):
    """What the last call of SDPA was told of a mask: its shape, whether it is causal, or nothing."""
    sdpa, told = F.scaled_dot_product_attention, []

    def recorded(*roles, **options):
        told.append({name: getattr(value, "shape", value) for name, value in options.items()})
        return sdpa(*roles, **options)

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(F, "scaled_dot_product_attention", recorded)
        call()
    return told[-1]


def test_a_whole_text_and_a_step_have_no_mask_and_all_else_has_one(monkeypatch):
    inputs, causal, none = torch.ones(3, 6, 8), {"is_causal": True}, {}

    def told(sizes, make_cache=lambda: PAGE.Cache(6), window=None, is_real=None):
        attention, cache = PAGE.Attention(8, 2, window=window), make_cache()
        parts = inputs[:, : sum(sizes)].split(sizes, dim=1)
        return mask_of(monkeypatch, lambda: [attention(part, cache, is_real) for part in parts])

    assert mask_of(monkeypatch, lambda: PAGE.Attention(8, 2)(inputs)) == told([4]) == told([1]) == causal
    assert told([4, 1]) == told([4, 1, 1]) == none
    assert told([4, 2]) == {"attn_mask": (2, 6)}
    assert told([4, 1], is_real=torch.ones(3, 6) > 0) == {"attn_mask": (3, 1, 1, 5)}
    assert told([4, 1], window=3) == {"attn_mask": (1, 5)}
    assert told([4, 1], lambda: PAGE.StaticCache(9)) == {"attn_mask": (1, 9)}


def test_a_cache_allocates_once_and_a_rolling_one_keeps_no_more_than_it_needs():
    cache, rolling = PAGE.Cache(6), PAGE.RollingCache(3)
    for size in 4, 1, 1:
        roles = torch.randn(2, 3, 2, size, 5)
        keys, values, places = cache.add(*roles)
        assert keys.data_ptr() == cache.keys.data_ptr()
        assert torch.equal(values[:, :, -size:], roles[1])
        assert places.tolist() == list(range(cache.length))
        rolling.add(*roles)
        assert rolling.keys.shape == (3, 2, 2, 5)
        assert rolling.keys.untyped_storage().nbytes() == 3 * 2 * 2 * 5 * 4


def test_what_does_not_fit_raises_and_leaves_the_cache_as_it_is():
    cache, roles = PAGE.Cache(4), torch.randn(2, 3, 2, 3, 5)
    cache.add(*roles)
    with pytest.raises(ValueError, match=r"^5 tokens, room for 4$"):
        cache.add(*roles[:, :, :, :2])
    for others in 1, 2:
        with pytest.raises(ValueError, match=f"^{others} texts, a cache of 3$"):
            cache.add(*roles[:, :others, :, :1])
    assert cache.length == 3
    assert torch.equal(cache.add(*roles[:, :, :, :1])[0][:, :, :3], roles[0])
    with pytest.raises(ValueError, match=r"^3 heads do not divide 10$"):
        PAGE.Attention(10, 3)
    with pytest.raises(ValueError, match=r"^is_real must be boolean, not torch.int64$"):
        PAGE.Attention(8, 2)(torch.ones(3, 5, 8), is_real=torch.ones(3, 5).long())
    for shape in (3, 4), (5,), (3, 1, 5):
        with pytest.raises(ValueError, match=re.escape(f"is_real must be (B, 5), not {shape}")):
            PAGE.Attention(8, 2)(torch.ones(3, 5, 8), is_real=torch.ones(shape) > 0)


def test_a_rolling_cache_stays_as_it_is_when_a_call_fails():
    cache = PAGE.RollingCache(9)
    cache.add(*torch.ones(2, 3, 2, 4, 5))
    with pytest.raises(RuntimeError, match="Expected size 3 but got size 2"):
        cache.add(*torch.ones(2, 2, 2, 1, 5))
    assert cache.add(*torch.ones(2, 3, 2, 1, 5))[2].tolist() == [0, 1, 2, 3, 4]


@torch.no_grad()
def test_a_window_of_0_is_no_window_and_an_empty_chunk_changes_nothing():
    attention, inputs = PAGE.Attention(8, 2, window=0), torch.randn(3, 5, 8)
    for cache in PAGE.Cache(5), PAGE.StaticCache(5), PAGE.RollingCache(9):
        rows = [attention(chunk, cache) for chunk in inputs.split([0, 3, 0, 2], dim=1)]
        torch.testing.assert_close(torch.cat(rows, dim=1), attention(inputs))


def test_a_model_refuses_fewer_caches_than_layers():
    with pytest.raises(ValueError, match="zip"):
        PAGE.decoder(PAGE.tokens, [PAGE.Cache(9)])


def test_all_of_it_runs_on_another_device():
    model = PAGE.make_decoder().to("meta")
    tokens, is_real = PAGE.tokens.to("meta"), torch.ones(3, 9, device="meta") > 0
    for make_cache in (lambda: PAGE.Cache(9)), (lambda: PAGE.RollingCache(9)), (lambda: PAGE.StaticCache(9)):
        for sizes in [9], [4, 5]:
            assert PAGE.in_chunks(model, tokens, sizes, make_cache, is_real).shape == (3, 9, 11)
    cache = PAGE.Cache(4)
    cache.add(*torch.ones(2, 2, 3, 3, 5, device="meta"))
    assert SOLUTION.fork(cache, torch.tensor([1, 1, 0], device="meta"), 2).keys.shape == (3, 3, 4, 5)


def test_each_tensor_of_a_cache_has_the_dtype_of_its_role():
    for cache in PAGE.Cache(5), PAGE.StaticCache(5), PAGE.RollingCache(3), RINGS.RingCache(3, True):
        cache.add(torch.ones(2, 1, 3, 4), torch.ones(2, 1, 3, 4, dtype=torch.float64))
        assert (cache.keys.dtype, cache.values.dtype) == (torch.float32, torch.float64)
        if isinstance(cache, PAGE.RollingCache):
            assert cache.values.untyped_storage().nbytes() == cache.values.nbytes


def test_the_length_of_a_static_cache_is_one_tensor_that_stays_where_it_is():
    cache, addresses = PAGE.StaticCache(5), set()
    for size in 3, 1, 1:
        cache.add(*torch.ones(2, 2, 1, size, 4))
        addresses.add(cache.length.data_ptr())
    assert len(addresses) == 1


def test_the_model_of_the_page_is_that_of_one_seed():
    made = PAGE.make_decoder(3)
    p.seed_modules(0)
    expected = PAGE.Decoder(11, 2, 24, 40, num_heads=4, base=10_000.0, window=3).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in made.state_dict().items())
    assert not made.training


# -- what finds and shows the bugs ---------------------------------------------------------------


class Stub:
    """In place of a model: a row of 5 logits is the negative sum of the tokens that it sees."""

    layers = ()

    def __init__(self, sees):
        self.sees, self.given = torch.tensor(sees), []

    def __call__(self, tokens, caches, is_real):
        self.given.append(tokens.clone())
        rows = torch.zeros(*tokens.shape, 5)
        rows[1, :, 3] = -(self.sees * tokens[1]).sum(dim=-1).float()
        return rows


def test_find_leaks_names_each_later_token_that_moves_an_earlier_row():
    tokens = torch.tensor([[3, 4, 4, 4], [0, 1, 3, 2]])
    stub = Stub([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    assert PAGE.find_leaks(stub, tokens, [4], None) == ["1 moves 0", "3 moves 2"]
    expected = [tokens]
    for later in 1, 2, 3:
        changed = tokens.clone()
        changed[:, later] = (changed[:, later] + 1) % 5
        expected.append(changed)
    assert all(map(torch.equal, stub.given, expected))
    assert PAGE.find_leaks(Stub([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]), tokens, [4], None) == []


@pytest.mark.parametrize("true_places", [False, True])
def test_a_ring_holds_the_newest_tokens_and_says_where_only_if_asked(true_places):
    ring, roles, end = RINGS.RingCache(3, true_places), torch.randn(2, 2, 4, 9, 5), 0
    for size in 2, 1, 2, 3, 1:
        keys, values, places = ring.add(*roles[:, :, :, end : end + size])
        end += size
        newest = [max(token for token in range(end) if token % 3 == slot) for slot in range(min(end, 3))]
        assert ring.length == end
        assert places.tolist() == (newest if true_places else [0, 1, 2][: len(newest)])
        assert torch.equal(torch.stack([keys, values]), roles[:, :, :, newest])


# -- the claims of the page ----------------------------------------------------------------------


def test_the_formula_counts_the_bytes_of_a_cache():
    for layers, kv_heads, head_dim in PAGE_BYTES.values():
        cache = PAGE.Cache(7)
        cache.add(*torch.ones(2, 1, kv_heads, 1, head_dim, dtype=torch.bfloat16, device="meta"))
        held = layers * (cache.keys.nbytes + cache.values.nbytes)
        assert held == 7 * 2 * layers * kv_heads * head_dim * 2


DEFAULTS = {"GPT-2 small": GPT2Config, "Gemma 7B": GemmaConfig, "Falcon 7B": FalconConfig, "Llama 2 7B": LlamaConfig}


@pytest.mark.parametrize("name", DEFAULTS)
def test_transformers_keeps_what_the_table_says_in_its_default_models(name):
    with torch.device("meta"), torch.no_grad():
        model = AutoModel.from_config(DEFAULTS[name](), dtype=torch.bfloat16)
        cache = model(torch.zeros(1, 1, dtype=torch.long)).past_key_values
    layers, kv_heads, head_dim = PAGE_BYTES[name]
    assert len(cache.layers) == layers
    assert cache.layers[0].keys.shape == cache.layers[0].values.shape == (1, kv_heads, 1, head_dim)


def test_the_heads_of_qwen3_and_gemma_have_a_width_of_their_own():
    assert {PAGE_BYTES[name][2] for name in PAGE_BYTES if "Qwen3" in name} == {Qwen3Config().head_dim}
    gemma = GemmaConfig()
    assert gemma.hidden_size // gemma.num_attention_heads == 192 != gemma.head_dim


def test_the_mask_of_a_chunk_is_causal_lower_right():
    roles = torch.randn(3, 4, 2, 6), *torch.randn(2, 3, 4, 6, 6)
    ours = F.scaled_dot_product_attention(*roles, PAGE.visible_keys(torch.arange(4, 6), torch.arange(6)))
    torch.testing.assert_close(F.scaled_dot_product_attention(*roles, causal_lower_right(2, 6)), ours)


def test_keys_are_rotated_before_they_are_kept():
    attention, cache = PAGE.Attention(8, 2, base=100.0), PAGE.Cache(5)
    inputs = torch.randn(3, 5, 8)
    with torch.no_grad():
        attention(inputs, cache)
        keys = attention.split(attention.to_keys(inputs))
    assert torch.equal(cache.keys, PAGE.rotate(keys, torch.arange(5), 100.0))


@torch.no_grad()
def test_transformers_says_what_the_page_says_of_it():
    theirs, _, tokens = both()
    cache = theirs(tokens[:, :4]).past_key_values
    assert isinstance(cache, DynamicCache)
    assert cache.get_seq_length() == 4
    step = theirs(tokens[:, 4:5], past_key_values=copy.deepcopy(cache)).logits
    positions = {"position_ids": torch.full((3, 1), 4)}
    assert torch.equal(step, theirs(tokens[:, 4:5], past_key_values=copy.deepcopy(cache), **positions).logits)
    assert "cache_position" not in inspect.signature(type(theirs).forward).parameters
    with pytest.raises(ValueError, match="positive value"):
        cache.crop(2)
    cache.crop(-1)
    assert cache.get_seq_length() == 3
    assert {"reorder_cache", "batch_repeat_interleave"} <= set(dir(cache))


# -- the exercise --------------------------------------------------------------------------------


def fork(cache, order, length, keys=None, values=None, room=None, kept=None):
    """Right unless an argument says otherwise."""
    if not 0 < length <= cache.length:
        raise ValueError("no such length")
    other = PAGE_CACHE(room or cache.max_tokens)
    other.keys = (keys or (lambda tensor: tensor[order]))(cache.keys)
    other.values = (values or keys or (lambda tensor: tensor[order]))(cache.values)
    other.length = length if kept is None else kept
    return other


PAGE_CACHE = SOLUTION.Cache


def changed(**how):
    return lambda cache, order, length: fork(
        cache, order, length, **{name: one(cache, order, length) for name, one in how.items()}
    )


def with_length(condition):
    def call(cache, order, length):
        if condition(cache, length):
            raise ValueError("no such length")
        other = fork(cache, order, 1)
        other.length = length
        return other

    return call


def old_one_cut(cache, order, length):
    other = fork(cache, order, length)
    cache.length = length
    return other


def in_the_old_one(cache, order, length):
    cache.keys, cache.values, cache.length = cache.keys[order], cache.values[order], length
    return cache


def raising(error):
    def call(cache, order, length):
        if not 0 < length <= cache.length:
            raise error("no such length")
        return fork(cache, order, length)

    return call


def by_adding(cache, order, length):
    if not 0 < length <= cache.length:
        raise ValueError("no such length")
    other = PAGE_CACHE(cache.max_tokens)
    other.add(cache.keys[order, :, :length], cache.values[order, :, :length])
    return other


def in_default_dtype(cache, order, length):
    return fork(cache, order, length, lambda tensor: torch.zeros(len(order), *tensor.shape[1:]).copy_(tensor[order]))


def cut_before_it_raises(cache, order, length):
    old, cache.length = cache.length, length
    if not 0 < length <= old:
        raise ValueError("no such length")
    cache.length = old
    return fork(cache, order, length)


def copied_late(cache, order, length):
    class Late(PAGE_CACHE):
        def add(self, keys, values):
            if not hasattr(self, "keys"):
                self.keys, self.values = cache.keys[order], cache.values[order]
            return super().add(keys, values)

    other = Late(fork(cache, order, length).max_tokens)
    other.length = length
    return other


def rolling(cache, order, length):
    other, copy = PAGE.RollingCache(cache.max_tokens), fork(cache, order, length)
    other.add(copy.keys[:, :, :length], copy.values[:, :, :length])
    return other


def is_all(cache, order):
    return order.tolist() == list(range(len(cache.keys)))


RIGHT = {
    "index_select": changed(keys=lambda c, order, n: lambda tensor: tensor.index_select(0, order)),
    "add": by_adding,
    "text by text": changed(keys=lambda c, order, n: lambda tensor: torch.stack([tensor[i] for i in order])),
}
WRONG = {
    "the old one": lambda cache, order, length: cache,
    "nothing": lambda cache, order, length: None,
    "a shallow copy": lambda cache, order, length: copy.copy(cache),
    "a deep copy": lambda cache, order, length: copy.deepcopy(cache),
    "in the old one": in_the_old_one,
    "the old one cut": old_one_cut,
    "not cut": changed(kept=lambda cache, order, length: cache.length),
    "values in the old order": changed(values=lambda c, o, n: lambda tensor: tensor[: len(o)].clone()),
    "keys for values": lambda cache, order, length: (
        lambda other: (setattr(other, "values", other.keys.clone()), other)[1]
    )(fork(cache, order, length)),
    "no room left": changed(keys=lambda c, order, n: lambda tensor: tensor[order, :, :n]),
    "room for what is kept": changed(room=lambda cache, order, length: length),
    "the order sorted": changed(keys=lambda c, order, n: lambda tensor: tensor[order.sort().values]),
    "each text once": changed(keys=lambda c, order, n: lambda tensor: tensor[order.unique()]),
    "the order inverted": changed(keys=lambda c, order, n: lambda tensor: tensor[order.flip(0)]),
    "the last tokens": changed(keys=lambda c, order, n: lambda tensor: tensor[order].roll(n - c.length, dims=2)),
    "a view of all texts": changed(
        keys=lambda c, order, n: lambda tensor: tensor if is_all(c, order) else tensor[order]
    ),
    "heads for texts": changed(keys=lambda c, order, n: lambda tensor: tensor[:, order % tensor.shape[1]]),
    "a view of one text": changed(
        keys=lambda c, order, n: lambda tensor: tensor[order[0] : order[0] + 1] if len(order) == 1 else tensor[order]
    ),
    "one text without its axis": changed(keys=lambda c, order, n: lambda tensor: tensor[order.squeeze()]),
    "the default dtype": in_default_dtype,
    "copied late": copied_late,
    "rolling": rolling,
    "less room": changed(room=lambda cache, order, length: length + 2),
    "cut before it raises": cut_before_it_raises,
    "no error below 0": with_length(lambda cache, length: not length or length > cache.length),
    "no error for 0": with_length(lambda cache, length: length > cache.length),
    "no error above": with_length(lambda cache, length: length < 1),
    "no error": with_length(lambda cache, length: False),
    "an IndexError": raising(IndexError),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_fork", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "`distance == 0` shows a token to itself anyway": [
        "visible = distance > 0",
        "visible = distance >= 1",
    ],
    "keys and values of a call have one shape and one device": [
        "B, H, T, D = values.shape",
        "if len(self.values) != B:",
        "places = torch.arange(end, device=values.device)",
        "(B, H, T, D), device = (values.shape, keys.device)",
        "(B, H, T, D), device = (keys.shape, values.device)",
        "end = self.length + values.shape[2]",
        "Tk, device = (values.shape[2], keys.device)",
        "Tk, device = (keys.shape[2], values.device)",
        "self.places = torch.arange(self.window, device=values.device)",
        "new = torch.arange(T, device=values.device) + self.length",
    ],
    "no difference lies between 1e-6 and 2e-6: rounding is far below, a leak far above": [
        "moved = (after - before).abs().amax(dim=(0, 2)) >= 1e-06",
        "moved = (after - before).abs().amax(dim=(0, 2)) > 2e-06",
    ],
}
