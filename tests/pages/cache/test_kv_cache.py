"""KV cache: chunks of every size against the full pass, and against Llama and Mistral with their caches."""

import copy
import inspect
import io
import itertools
import re

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention.bias import causal_lower_right

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "cache/kv-cache"
PAGE, SOLUTION = (p.page_code(SLUG, cell) for cell in ("rollback", "solution"))
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


def in_their_chunks(theirs, tokens, sizes, cache, is_real):
    rows, end = [], 0
    for chunk in tokens.split(sizes, dim=1):
        end += chunk.shape[1]
        rows.append(theirs(chunk, past_key_values=cache, attention_mask=is_real[:, :end].long()).logits)
    return torch.cat(rows, dim=1)[is_real]


@pytest.mark.parametrize("sizes", CHUNKINGS)
@torch.no_grad()
def test_logits_are_those_of_llama_and_of_mistral_with_each_of_their_caches(sizes):
    def in_ours(kind, room):
        return PAGE.in_chunks(ours, tokens, sizes, [kind(room) for _ in ours.layers], is_real)[is_real]

    is_real = torch.arange(9) >= torch.tensor([[0], [3], [5]])
    theirs, ours, tokens = both()
    for cache in hf.DynamicCache(config=theirs.config), hf.StaticCache(config=theirs.config, max_cache_len=12):
        rows = in_their_chunks(theirs, tokens, sizes, cache, is_real)
        p.close(in_ours(PAGE.Cache, 9), rows, CLOSE)
        p.close(in_ours(PAGE.StaticCache, 9), rows, CLOSE)
    theirs, ours, tokens = both(window=3)
    rows = in_their_chunks(theirs, tokens, sizes, hf.DynamicCache(config=theirs.config), is_real)
    p.close(in_ours(PAGE.RollingCache, 3), rows, CLOSE)
    p.close(in_ours(PAGE.Cache, 9), rows, CLOSE)


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
        columns = torch.cat([case.is_real, torch.ones(case.B, 2) > 0], dim=1)
        with torch.no_grad():
            for is_real, real in (None, None), (case.is_real, columns):
                whole = case.attention(case.inputs, is_real=is_real)
                for cache in caches:
                    rows = [case.attention(chunk, cache, real) for chunk in case.inputs.split(case.sizes, dim=1)]
                    p.close(torch.cat(rows, dim=1), whole)
                    assert int(cache.length) == case.T
                    cache.reset()

    p.for_all(chunked(), prove)


@torch.no_grad()
def test_the_simple_class_gives_the_rows_of_the_class():
    p.seed_modules(0)
    simple, attention, inputs = PAGE.SimpleAttention(24, 4), PAGE.Attention(24, 4), torch.randn(3, 7, 24)
    attention.load_state_dict(simple.state_dict())
    rows, past = simple(inputs[:, :3])
    for token in inputs[:, 3:].split(1, dim=1):
        row, past = simple(token, past)
        rows = torch.cat([rows, row], dim=1)
    p.close(rows, attention(inputs), 1e-6)
    with pytest.raises(ValueError, match=r"^2 new tokens after a past, not one$"):
        simple(inputs[:, :2], past)


def test_kept_keys_turn_back_and_become_int8_as_the_page_says():
    keys, places = torch.randn(3, 2, 5, 6), torch.arange(4, 9)
    p.close(PAGE.rotate(PAGE.rotate(keys, places), torch.full((5,), -2)), PAGE.rotate(keys, places - 2), 1e-6)
    scales = keys.abs().amax(dim=-1, keepdim=True) / 127
    kept = (keys / scales).round().to(torch.int8)
    assert bool(((kept * scales - keys).abs() <= 0.501 * scales).all())


@torch.no_grad()
def test_drafts_change_no_token_of_a_greedy_text():
    decoder = PAGE.make_decoder()
    for B, T, wrong in itertools.product((1, 3), (1, 2, 4), (1, 3, 5)):
        caches, text = [PAGE.Cache(40) for _ in decoder.layers], PAGE.tokens[:B, :4]
        written = torch.cat([text, decoder(text, caches)[:, -1:].argmax(-1)], dim=1)
        while text.shape[1] < 18:
            text = torch.cat([text, decoder(text)[:, -1:].argmax(-1)], dim=1)
        while written.shape[1] < 13:
            draft = text[:, written.shape[1] :][:, :T].clone()
            draft[-1, wrong::wrong] = 0
            written = torch.cat([written, PAGE.accept(decoder, caches, written[:, -1:], draft)], dim=1)
            assert {cache.length for cache in caches} == {written.shape[1] - 1}
        assert torch.equal(written[:, :13], text[:, :13])


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
        assert torch.equal(cache.add(*roles)[1][:, :, -size:], roles[1])
        static.add(*roles)
        rolling.add(*roles)
        addresses.add((cache.keys.data_ptr(), static.keys.data_ptr(), static.length.data_ptr()))
        for kept in rolling.keys, rolling.values:
            assert kept.untyped_storage().nbytes() == 3 * 2 * 2 * 5 * kept.itemsize
    assert len(addresses) == 1


@pytest.mark.parametrize("kind", ["Cache", "StaticCache", "RollingCache"])
def test_a_cache_takes_nothing_that_does_not_fit_and_stays_as_it_is(kind, on_the_cpu):
    cache, roles, right = getattr(PAGE, kind)(5), torch.randn(2, 3, 2, 4, 6), torch.zeros(3, 2, 1, 6)
    cache.add(*roles)
    for fault in right[:1], right[:, :1], right[..., :1], right.double(), right.to("meta"):
        for new in (fault, right), (right, fault):
            with pytest.raises(ValueError, match=r"^(texts|heads|width|dtype|device): .+, in the cache "):
                cache.add(*new)
    assert torch.equal(torch.stack(cache.add(right, right)[:2])[:, :, :, :4], roles)
    cache.reset()
    assert cache.add(*torch.ones(2, 1, 2, 4, 6, dtype=torch.float64))[0].sum() == 2 * 4 * 6


def test_what_does_not_fit_a_layer_or_a_decoder_raises():
    with pytest.raises(ValueError, match=r"^3 heads do not divide 10$"):
        PAGE.Attention(10, 3)
    attention, inputs = PAGE.Attention(8, 2, window=3), torch.ones(3, 6, 8)
    wrong = [torch.ones(3, 6).long(), torch.ones(3, 5) > 0, torch.ones(6) > 0, torch.ones(3, 1, 6) > 0]
    for is_real, make in itertools.product(wrong, (lambda: None, lambda: PAGE.Cache(6), lambda: PAGE.StaticCache(6))):
        with pytest.raises(ValueError, match=r"^is_real (must be boolean, with shape \(B, 6\)|needs 6 columns)$"):
            attention(inputs, make(), is_real)
    for caches in [PAGE.Cache(9)] * 2, [], [PAGE.Cache(9)], [PAGE.Cache(9), PAGE.Cache(9), PAGE.Cache(9)]:
        with pytest.raises(ValueError, match=r"^(two layers share one cache|[013] caches, 2 layers)$"):
            PAGE.decoder(PAGE.tokens, caches)


DEFAULTS = {"GPT-2 small": hf.GPT2Config, "Gemma 7B": hf.GemmaConfig}
DEFAULTS |= {"Llama 2 7B": hf.LlamaConfig, "Mistral 7B": hf.MistralConfig}


@pytest.mark.parametrize("name", DEFAULTS)
def test_transformers_keeps_what_the_table_says_in_its_default_models(name):
    with torch.device("meta"), torch.no_grad():
        model = hf.AutoModel.from_config(DEFAULTS[name](), dtype=torch.bfloat16)
        layers = model(torch.zeros(1, 1, dtype=torch.long)).past_key_values.layers
    shapes = {tensor.shape for layer in layers for tensor in (layer.keys, layer.values)}
    assert (len(layers), shapes) == (PAGE_BYTES[name][0], {(1, PAGE_BYTES[name][1], 1, PAGE_BYTES[name][2])})
    assert set(PAGE_BYTES) == set(DEFAULTS)


def test_gradients_raise_through_a_cache_and_flow_through_a_past_of_cat():
    caches = [PAGE.Cache(9) for _ in PAGE.decoder.layers]
    rows = [PAGE.decoder(token, caches) for token in PAGE.tokens.split(1, dim=1)]
    with pytest.raises(RuntimeError, match="needed for gradient computation has been modified by an inplace operation"):
        torch.cat(rows, dim=1).sum().backward()
    theirs, _, tokens = both()
    step = theirs(tokens[:, 4:], past_key_values=theirs(tokens[:, :4]).past_key_values).logits
    weight, losses = theirs.model.embed_tokens.weight, (step[:, -1].sum(), theirs(tokens).logits[:, -1].sum())
    p.close(*(torch.autograd.grad(loss, weight)[0] for loss in losses), CLOSE)
    attention, inputs = PAGE.Attention(24, 4), torch.randn(3, 4, 24)
    for start in 0, 3:  # over a detached buffer; from 0 all that is read is overwritten
        attention(inputs[:, :3], cache := PAGE.Cache(4))
        cache.keys, cache.values, cache.length = cache.keys.detach(), cache.values.detach(), start
        losses = [rows[:, -1].sum() for rows in (attention(inputs), attention(inputs[:, start:], cache))]
        wanted, found = (torch.autograd.grad(loss, attention.to_keys.weight)[0] for loss in losses)
        assert bool((found - wanted).abs().max() < 1e-5) == (start == 0)


@torch.no_grad()
def test_transformers_counts_from_the_cache_and_changes_it_in_place():
    theirs, _, tokens = both()
    cache, file = theirs(tokens[:, :4]).past_key_values, io.BytesIO()
    torch.save([(layer.keys, layer.values) for layer in cache.layers], file)
    file.seek(0)
    loaded, five, positions = hf.DynamicCache(torch.load(file)), tokens[:, 4:5], torch.full((3, 1), 4)
    step = theirs(five, past_key_values=copy.deepcopy(cache)).logits
    assert torch.equal(step, theirs(five, past_key_values=loaded, position_ids=positions).logits)
    theirs(five, past_key_values=cache, use_cache=False)
    assert cache.get_seq_length() == 5
    cache.crop(-1)
    assert torch.equal(step, theirs(five, past_key_values=cache).logits)


OLD = ["seen_tokens", "get_usable_length", "key_cache", "from_legacy_cache", "to_legacy_cache", "__getitem__"]
RAISES = {  # what transformers says, and when
    "'tuple' object has no attribute 'get_seq_length'": lambda model, past: model(PAGE.tokens, past_key_values=(past,)),
    "has no attribute 'crop'": lambda model, past: hf.StaticCache(model.config, max_cache_len=9).crop(-1),
    "a positive value": lambda model, past: past.crop(2),
    "(graph leaves) support the deepcopy protocol": lambda model, past: copy.deepcopy(past),
    "reshape tensor of 0": lambda model, past: model.generate(PAGE.tokens[:, :1], max_length=9, past_key_values=past),
    "optimum-quanto": lambda model, past: model.generate(PAGE.tokens, max_length=12, cache_implementation="quantized"),
}


@pytest.mark.parametrize("message", RAISES)
def test_transformers_raises_what_the_page_says(message):
    theirs, _, tokens = both()
    past = theirs(tokens[:, :4]).past_key_values
    with pytest.raises((AttributeError, ValueError, RuntimeError, ImportError), match=re.escape(message)):
        RAISES[message](theirs, past)
    assert not any([hasattr(hf, "SinkCache"), *(hasattr(hf.DynamicCache, name) for name in OLD)])
    assert all(hasattr(past, name) for name in ("get_max_length", "reorder_cache", "activate_past_recording"))
    assert "cache_position" not in inspect.signature(type(theirs).forward).parameters


def written(model, ids, mask=None, **options):
    text = model.generate(ids, attention_mask=mask, max_new_tokens=4, pad_token_id=0, eos_token_id=None, **options)
    return text[:, ids.shape[1] :]


@torch.no_grad()
def test_generate_wants_the_whole_text_and_one_token_that_is_not_kept():
    (theirs, _, _), tokens, mask = both(), PAGE.tokens % 10 + 1, torch.ones(3, 9, dtype=torch.long)
    wanted, all_kept, four = written(theirs, tokens, mask), *(theirs(tokens[:, :n]).past_key_values for n in (9, 4))
    (kept, cut), few = (copy.deepcopy([all_kept, four]), copy.deepcopy(four))
    kept.crop(-1)
    for options in {"past_key_values": kept}, {"past_key_values": cut}, {"prefill_chunk_size": 4}:
        assert torch.equal(wanted, written(theirs, tokens, mask, **options))
    written(theirs, tokens, mask, past_key_values=all_kept)
    written(theirs, tokens[:, 4:], mask[:, 4:], past_key_values=few)
    assert (all_kept.get_seq_length(), few.get_seq_length()) == (9 + 9 + 3, 4 + 1 + 3)  # all are fed again; one of five
    for penalty in 1.0, 9.0:
        options = {"past_key_values": copy.deepcopy(four), "repetition_penalty": penalty}
        text = written(theirs, torch.cat([tokens[:, :4] * 0 + 3, tokens[:, 4:]], dim=1), mask, **options)
        assert torch.equal(text, written(theirs, tokens, mask, repetition_penalty=penalty)) == (penalty == 1)
    tokens[:, 3], mask[:, 3] = 0, 0
    assert torch.equal(written(theirs, tokens), written(theirs, tokens, mask))


def test_generate_with_checkpointing_forgets_its_past_in_training_alone():
    (theirs, _, tokens), mask = both(), torch.ones(3, 9, dtype=torch.long)
    theirs.activation_checkpointing_enable()
    wanted = written(theirs, tokens, mask)
    theirs.train()
    assert torch.equal(written(theirs, tokens, mask, use_cache=False), wanted)
    assert not torch.equal(written(theirs, tokens, mask), wanted)
    theirs(tokens, past_key_values=(empty := hf.DynamicCache(config=theirs.config)))
    assert empty.get_seq_length() == 0


@torch.no_grad()
def test_a_window_is_cropped_if_it_keeps_the_past_and_fp8_rounds_from_the_second():
    theirs, _, tokens = both(window=3)
    cache = theirs(tokens[:, :5]).past_key_values
    with pytest.raises(RuntimeError, match="activate_past_recording"):
        cache.crop(-2)
    cache.activate_past_recording()
    theirs(tokens[:, 5:], past_key_values=cache)
    cache.crop(-2)
    p.close(theirs(tokens[:, 7:], past_key_values=cache).logits, theirs(tokens).logits[:, 7:], CLOSE)
    theirs, _, tokens = both()
    cache, full = hf.QuantizedCache("fp8", config=theirs.config), theirs(tokens).logits
    p.close(theirs(tokens[:, :8], past_key_values=cache).logits, full[:, :8], CLOSE)
    assert 1e-5 < (theirs(tokens[:, 8:], past_key_values=cache).logits - full[:, 8:]).abs().max() < 1
    assert inspect.signature(hf.cache_utils.QuantoQuantizedLayer).parameters["nbits"].default == 4


def test_torch_has_the_mask_of_a_chunk_and_no_cache_and_a_full_table_raises(on_the_cpu):
    roles = torch.randn(3, 4, 2, 6), *torch.randn(2, 3, 4, 6, 6)
    ours = F.scaled_dot_product_attention(*roles, PAGE.visible_keys(torch.arange(4, 6), torch.arange(6)))
    torch.testing.assert_close(F.scaled_dot_product_attention(*roles, causal_lower_right(2, 6)), ours)
    attention, inputs = nn.MultiheadAttention(24, 4, batch_first=True), torch.randn(3, 7, 24)
    rows = attention(inputs, inputs, inputs, attn_mask=nn.Transformer.generate_square_subsequent_mask(7))[0]
    p.close(attention(inputs[:, -1:], inputs, inputs)[0], rows[:, -1:], 1e-6)
    for kind in nn.MultiheadAttention, nn.TransformerDecoderLayer:
        assert not any(re.search("past|cache", name) for name in inspect.signature(kind.forward).parameters)
    model, ones = hf.GPT2Model(hf.GPT2Config(n_embd=4, n_layer=1, n_head=1)), torch.ones(1, 9, dtype=torch.long)
    with pytest.raises(IndexError, match=r"^index out of range in self$"):
        model(ones, position_ids=ones * 1024)
    with pytest.raises(IndexError, match=r"^index_copy_\(\): index 8 is out of bounds for dimension 2 with size 8$"):
        model(ones, past_key_values=hf.StaticCache(config=model.config, max_cache_len=8))


def by_adding(cache, order, length):
    other = SOLUTION.fork(cache, order, length)
    other.reset()
    other.add(cache.keys[order, :, :length], cache.values[order, :, :length])
    return other


def a_view_of_all_texts(cache, order, length):
    other = by_adding(cache, order, length)
    if order.tolist() == list(range(len(cache.keys))):
        other.keys, other.values = cache.keys, cache.values
    return other


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_fork", {"add": by_adding}, {"a view of all texts": a_view_of_all_texts}


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
