"""KV cache: chunks of every size against the full pass, and against Llama and Mistral with their caches."""

import copy
import inspect
import itertools

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from hypothesis import strategies as st
from torch.nn.attention.bias import causal_lower_right

from tests.pages import properties as p
from tests.pages.exercise import Exercise
from tools.cells.execute import run
from tools.cells.source import program_cells, read_cells

SLUG = "cache/kv-cache"
PAGE, SOLUTION = (p.page_code(SLUG, cell) for cell in ("turns", "solution"))
PAGE_BYTES = p.page_code(SLUG, "bytes").models
FROM_LLAMA = p.page_code("cache/grouped", "load").from_llama
SIZES = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64}
CHUNKINGS = [[9], [1] * 9, [4, 1, 1, 1, 1, 1], [4, 2, 3], [2, 2, 2, 2, 1]]
CLOSE = 1e-6  # the angles of both are float32


def both(window=None):
    """A model of transformers, the page's with the same parameters, and texts, all in float64."""
    p.seed_modules(0)
    llama, mistral = hf.LlamaConfig(**SIZES), hf.MistralConfig(**SIZES, sliding_window=window)
    theirs = hf.MistralForCausalLM(mistral) if window else hf.LlamaForCausalLM(llama)
    theirs, ours = theirs.eval().double(), PAGE.make_decoder(window).double()
    ours.load_state_dict(FROM_LLAMA(theirs.state_dict()))
    return theirs, ours, PAGE.tokens


def in_their_chunks(theirs, tokens, sizes, cache, mask=None):
    rows, end = [], 0
    for chunk in tokens.split(sizes, dim=1):
        end += chunk.shape[1]
        given = {} if mask is None else {"attention_mask": mask[:, :end].long()}
        rows.append(theirs(chunk, past_key_values=cache, use_cache=True, **given).logits)
    return torch.cat(rows, dim=1)


# -- references ----------------------------------------------------------------------------------


def in_ours(ours, tokens, sizes, kind, room, is_real=None):
    return PAGE.in_chunks(ours, tokens, sizes, [kind(room) for _ in ours.layers], is_real)


@pytest.mark.parametrize("sizes", CHUNKINGS)
@torch.no_grad()
def test_logits_are_those_of_llama_and_of_mistral_with_each_of_their_caches(sizes):
    theirs, ours, tokens = both()
    p.close(ours(tokens), theirs(tokens).logits, CLOSE)
    for cache in hf.DynamicCache(config=theirs.config), hf.StaticCache(config=theirs.config, max_cache_len=12):
        rows = in_their_chunks(theirs, tokens, sizes, cache)
        p.close(in_ours(ours, tokens, sizes, PAGE.Cache, 9), rows, CLOSE)
        p.close(in_ours(ours, tokens, sizes, PAGE.StaticCache, 12), rows, CLOSE)
    theirs, ours, tokens = both(window=3)
    full, cache = theirs(tokens).logits, hf.DynamicCache(config=theirs.config)
    p.close(in_their_chunks(theirs, tokens, sizes, cache), full, CLOSE)
    p.close(in_ours(ours, tokens, sizes, PAGE.RollingCache, 3), full, CLOSE)
    p.close(in_ours(ours, tokens, sizes, PAGE.Cache, 9), full, CLOSE)
    assert cache.layers[0].keys.shape[2] == 2


@torch.no_grad()
def test_left_padded_texts_give_what_llama_gives_with_a_mask_as_long_as_its_cache():
    theirs, ours, tokens = both()
    is_real = torch.arange(9) >= torch.tensor([[0], [3], [5]])
    rows = in_their_chunks(theirs, tokens, [6, 1, 2], hf.DynamicCache(config=theirs.config), is_real)
    for kind in PAGE.Cache, PAGE.StaticCache, PAGE.RollingCache:
        found = in_ours(ours, tokens, [6, 1, 2], kind, 10 if kind is PAGE.RollingCache else 9, is_real)
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
                seen = key <= query and near and (real is None or real[b, j])
                assert found[b, 0, i, j] == bool(seen or key == query)

    p.for_all(p.sizes(B=2, Tq=3, start=(0, 4), window=4), prove)


@st.composite
def chunked(draw):
    """An attention layer, inputs, the sizes of chunks, and a window or none."""
    case = p.seeded({name: draw(st.integers(1, top)) for name, top in (("B", 3), ("H", 3), ("T", 7), ("seed", 10**6))})
    case.sizes, case.window = [], draw(st.sampled_from([None, 1, 2, 3, 9]))
    while sum(case.sizes) < case.T:
        case.sizes.append(draw(st.integers(1, case.T - sum(case.sizes))))
    p.seed_modules(case.seed)
    case.attention = PAGE.Attention(4 * case.H, case.H, base=100.0, window=case.window, bias=False).double()
    case.inputs = case.randn(case.B, case.T, 4 * case.H)
    case.is_real = case.randn(case.B, case.T) > 0
    return case


def test_chunks_of_drawn_sizes_give_the_rows_of_the_whole_with_every_cache():
    def prove(case):
        caches = [PAGE.Cache(case.T), PAGE.StaticCache(case.T + 2)]
        caches += [PAGE.RollingCache(case.window)] if case.window else []
        pads = torch.ones(case.B, 2) > 0
        with torch.no_grad():
            for is_real in None, case.is_real:
                whole = case.attention(case.inputs, is_real=is_real)
                for cache in caches:
                    real = None if is_real is None else torch.cat([is_real, pads], dim=1)
                    rows = [case.attention(chunk, cache, real) for chunk in case.inputs.split(case.sizes, dim=1)]
                    p.close(torch.cat(rows, dim=1), whole)
                    assert int(cache.length) == case.T
                    cache.reset()

    p.for_all(chunked(), prove)


def test_the_simple_class_and_the_fix_give_the_rows_of_the_class():
    def prove(case):
        simple = PAGE.SimpleAttention(4 * case.H, case.H).double()
        attention = PAGE.Attention(4 * case.H, case.H).double()
        attention.load_state_dict(simple.state_dict())
        with torch.no_grad():
            whole = attention(case.inputs)
            rows, past = simple(case.inputs[:, : case.sizes[0]])
            p.close(rows, whole[:, : case.sizes[0]])
            for token in range(case.sizes[0], case.T):
                row, past = simple(case.inputs[:, token : token + 1], past)
                p.close(row[:, 0], whole[:, token])
            queries, *roles = case.randn(3, case.B, case.H, case.T, 4)
            rows = F.scaled_dot_product_attention(queries, *roles, is_causal=True)[:, :, case.sizes[0] :]
            p.close(PAGE.attend(queries[:, :, case.sizes[0] :], *roles), rows)

    p.for_all(chunked(), prove)
    with pytest.raises(ValueError, match=r"^2 new tokens after a past, not one$"):
        PAGE.SimpleAttention(8, 2)(torch.ones(3, 2, 8), [torch.ones(3, 2, 1, 4)] * 2)


ROPE = read_cells(p.ROOT / "snippets/position/rope.md")
OURS = [cell for cell in read_cells(p.ROOT / f"snippets/{SLUG}.md") if cell.name in ("cache", "visible", "attention")]


CALLERS = [cell for cell in ROPE if cell.output and "= Attention(" in cell.code]


@pytest.mark.parametrize("cell", CALLERS, ids=[cell.name for cell in CALLERS])
def test_the_class_prints_what_that_of_the_page_before_prints(cell):
    parts = program_cells(ROPE, cell)
    if not any("(Attention)" in part.code for part in parts):  # a class that builds on theirs
        parts = [new for part in parts for new in (OURS if "class Attention" in part.code else [part])]
        outputs = run(cell.path, parts, str(torch.get_default_device())).outputs
        assert outputs[cell.name].getvalue() == cell.output


# -- what the caches and classes promise ---------------------------------------------------------


def test_a_whole_text_and_a_step_have_no_mask_and_all_else_has_one():
    def chosen(Tq, Tk, cache, window=None, is_real=None):
        return PAGE.choose_mask(torch.arange(Tk - Tq, Tk), torch.arange(Tk), cache, window, is_real)

    cache, static = PAGE.Cache(9), PAGE.StaticCache(9)
    assert chosen(6, 6, None) == chosen(4, 4, cache) == {"is_causal": True}
    assert chosen(1, 5, cache) == {}
    for given in (2, 6, cache), (1, 5, cache, 3), (1, 9, static), (1, 5, cache, None, torch.ones(3, 5) > 0):
        assert list(chosen(*given)) == ["attn_mask"]


def test_a_cache_allocates_once_and_a_rolling_one_keeps_no_more_than_it_needs():
    cache, static, rolling, addresses = PAGE.Cache(6), PAGE.StaticCache(6), PAGE.RollingCache(3), set()
    for size in 4, 1, 1:
        roles = torch.randn(3, 2, size, 5), torch.randn(3, 2, size, 5).double()  # each role keeps its dtype
        keys, values, places = cache.add(*roles)
        assert keys.data_ptr() == cache.keys.data_ptr()
        assert torch.equal(values[:, :, -size:], roles[1])
        assert places.tolist() == list(range(cache.length))
        static.add(*roles)
        addresses.add((static.keys.data_ptr(), static.values.data_ptr(), static.length.data_ptr()))
        rolling.add(*roles)
        for kept in rolling.keys, rolling.values:
            assert kept.shape == (3, 2, 2, 5)
            assert kept.untyped_storage().nbytes() == 3 * 2 * 2 * 5 * kept.itemsize
    assert len(addresses) == 1


MISFITS = {  # what is new, where the cache has keys (3, 2, 4, 6) in float32 on the CPU
    "texts: 1, in the cache 3": {"shape": (1, 2, 1, 6)},
    "heads: 1, in the cache 2": {"shape": (3, 1, 1, 6)},
    "width: 1, in the cache 6": {"shape": (3, 2, 1, 1)},
    "dtype: torch.float64, in the cache torch.float32": {"dtype": torch.float64},
    "device: meta, in the cache cpu": {"device": "meta"},
}


@pytest.mark.parametrize("kind", [PAGE.Cache, PAGE.StaticCache, PAGE.RollingCache])
@pytest.mark.parametrize("message", MISFITS)
def test_a_cache_takes_nothing_that_does_not_fit_and_stays_as_it_is(kind, message, on_the_cpu):
    cache, roles = kind(5), torch.randn(2, 3, 2, 4, 6)
    cache.add(*roles)
    options = {"shape": (3, 2, 1, 6), "dtype": torch.float32, "device": "cpu"} | MISFITS[message]
    wrong, right = torch.zeros(options.pop("shape"), **options), torch.zeros(3, 2, 1, 6)
    for new in (wrong, right), (right, wrong):
        with pytest.raises(ValueError, match=f"^{message}$"):
            cache.add(*new)
    assert int(cache.length) == 4
    keys, values, places = cache.add(right, right)
    assert torch.equal(torch.stack([keys, values])[:, :, :, :4], roles)
    assert places.tolist() == [0, 1, 2, 3, 4]
    cache.reset()
    assert cache.add(*torch.ones(2, 1, 2, 4, 6, dtype=torch.float64))[0].sum() == 2 * 4 * 6


def test_what_is_too_long_or_too_short_raises():
    cache = PAGE.Cache(4)
    cache.add(*torch.ones(2, 3, 2, 3, 5))
    with pytest.raises(ValueError, match=r"^5 tokens, room for 4$"):
        cache.add(*torch.ones(2, 3, 2, 2, 5))
    assert cache.length == 3
    with pytest.raises(ValueError, match=r"^3 heads do not divide 10$"):
        PAGE.Attention(10, 3)
    attention, inputs = PAGE.Attention(8, 2, window=3), torch.ones(3, 6, 8)
    for cache in PAGE.Cache(6), PAGE.StaticCache(6), PAGE.RollingCache(3):
        with torch.no_grad():
            attention(inputs[:, :5], cache, torch.ones(3, 6) > 0)
        with pytest.raises(ValueError, match=r"^is_real needs 6 columns$"):
            attention(inputs[:, 5:], cache, torch.ones(3, 5) > 0)
    wrong = [torch.ones(3, 6).long(), torch.ones(3, 5) > 0, torch.ones(6) > 0, torch.ones(3, 1, 6) > 0]
    for is_real, make in itertools.product(wrong, (lambda: None, lambda: PAGE.Cache(6))):
        with pytest.raises(ValueError, match=r"^is_real (must be boolean, with shape \(B, 6\)|needs 6 columns)$"):
            attention(inputs, make(), is_real)


def test_a_decoder_takes_one_cache_of_its_own_for_each_layer_and_asks_for_base():
    with pytest.raises(ValueError, match=r"^two layers share one cache$"):
        PAGE.decoder(PAGE.tokens, [PAGE.Cache(9)] * 2)
    for count in 0, 1, 3:
        with pytest.raises(ValueError, match=f"^{count} caches, 2 layers$"):
            PAGE.decoder(PAGE.tokens, [PAGE.Cache(9) for _ in range(count)])
    with pytest.raises(TypeError, match="base"):
        PAGE.Decoder(11, 2, 24, 40, num_heads=4)
    assert PAGE.Decoder(11, 1, 24, 40, num_heads=4, base=None).layers[0].attention.base is None


# -- the claims of the page ----------------------------------------------------------------------


DEFAULTS = {
    "GPT-2 small": hf.GPT2Config,
    "Gemma 7B": hf.GemmaConfig,
    "Falcon 7B": hf.FalconConfig,
    "Llama 2 7B": hf.LlamaConfig,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_transformers_keeps_what_the_table_says_in_its_default_models(name):
    with torch.device("meta"), torch.no_grad():
        model = hf.AutoModel.from_config(DEFAULTS[name](), dtype=torch.bfloat16)
        cache = model(torch.zeros(1, 1, dtype=torch.long)).past_key_values
    layers, kv_heads, head_dim = PAGE_BYTES[name]
    assert len(cache.layers) == layers
    assert cache.layers[0].keys.shape == cache.layers[0].values.shape == (1, kv_heads, 1, head_dim)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert held == 2 * layers * head_dim * kv_heads * torch.bfloat16.itemsize


def test_the_heads_of_qwen3_and_gemma_have_a_width_of_their_own():
    assert {PAGE_BYTES[name][2] for name in PAGE_BYTES if "Qwen3" in name} == {hf.Qwen3Config().head_dim}
    assert hf.GemmaConfig().hidden_size // hf.GemmaConfig().num_attention_heads == 192 != hf.GemmaConfig().head_dim


def test_the_mask_of_a_chunk_is_causal_lower_right():
    roles = torch.randn(3, 4, 2, 6), *torch.randn(2, 3, 4, 6, 6)
    ours = F.scaled_dot_product_attention(*roles, PAGE.visible_keys(torch.arange(4, 6), torch.arange(6)))
    torch.testing.assert_close(F.scaled_dot_product_attention(*roles, causal_lower_right(2, 6)), ours)


def test_gradients_through_a_cache_raise_the_message_of_the_page():
    caches = [PAGE.Cache(9) for _ in PAGE.decoder.layers]
    rows = [PAGE.decoder(token, caches) for token in PAGE.tokens.split(1, dim=1)]
    with pytest.raises(RuntimeError, match="needed for gradient computation has been modified by an inplace operation"):
        torch.cat(rows, dim=1).sum().backward()


@torch.no_grad()
def test_transformers_says_what_the_page_says_of_it():
    theirs, _, tokens = both()
    cache = theirs(tokens[:, :4]).past_key_values
    assert isinstance(cache, hf.DynamicCache)
    assert cache.get_seq_length() == 4
    step = theirs(tokens[:, 4:5], past_key_values=copy.deepcopy(cache)).logits
    positions = {"position_ids": torch.full((3, 1), 4)}
    assert torch.equal(step, theirs(tokens[:, 4:5], past_key_values=copy.deepcopy(cache), **positions).logits)
    assert "cache_position" not in inspect.signature(type(theirs).forward).parameters
    with pytest.raises(ValueError, match="positive value"):
        cache.crop(2)
    cache.crop(-1)
    assert cache.get_seq_length() == 3
    static = hf.StaticCache(config=theirs.config, max_cache_len=12)
    theirs(tokens, past_key_values=static)
    with pytest.raises(AttributeError, match="crop"):
        static.crop(-1)
    assert {"reorder_cache", "batch_repeat_interleave"} <= set(dir(cache))


def by_adding(cache, order, length):
    if not 0 < length <= cache.length:
        raise ValueError("no such length")
    other = SOLUTION.Cache(cache.max_tokens)
    other.add(cache.keys[order, :, :length], cache.values[order, :, :length])
    return other


def a_view_of_all_texts(cache, order, length):
    other = by_adding(cache, order, length)
    if order.tolist() == list(range(len(cache.keys))):
        other.keys, other.values = cache.keys, cache.values
    return other


RIGHT, WRONG = {"add": by_adding}, {"a view of all texts": a_view_of_all_texts}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_fork", RIGHT, WRONG


SURVIVORS = {
    "`distance == 0` shows a token to itself anyway": ["visible = distance > 0", "visible = distance >= 1"],
    "shape comments alone use it": ["H = E * D"],
    "nothing drops out in training": ["return decoder"],
    "keys and values come together": ["# self.values = None", "if self.values is None:", "if self.values is not None:"],
    "they have one shape": ["B, H, T, D = values.shape", "B, H, Tk, D = values.shape"],
    "and so one length": ["end = self.length + values.shape[2]", "Tq, Tk = (queries.shape[2], values.shape[2])"],
    "they have one device": ["device = values.device", "places = torch.arange(Tk, device=values.device)"],
    "in a rolling cache, too": ["places = torch.arange(end - Tk, end, device=values.device)"],
}
