"""KV cache: chunks of every size against the full pass, and against Llama and Mistral with their caches."""

import copy
import inspect
import io
import itertools
import re
import weakref

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import nn
from torch.nn.attention.bias import causal_lower_right

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "cache/kv-cache"
PAGE, SOLUTION = (p.page_code(SLUG, cell) for cell in ("rollback", "solution"))
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
        rows = PAGE.in_chunks(ours, tokens, sizes, [kind(room) for _ in ours.layers])
        p.close(rows, ours(tokens))
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


@torch.no_grad()
def test_the_simple_class_gives_the_rows_of_the_class_and_holds_no_old_keys():
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
    layers, past = [simple, simple], [past, simple(inputs)[1]]
    old = [weakref.ref(keys) for keys, _ in past]
    for i, layer in enumerate(layers):
        assert [keys() is None for keys in old] == [i == 1, False]
        past[i] = layer(token, past[i])[1]


def test_kept_keys_turn_back_and_become_int8_as_the_page_says():
    keys, places = torch.randn(3, 2, 5, 6), torch.arange(4, 9)
    p.close(PAGE.rotate(PAGE.rotate(keys, places), torch.full((5,), -2)), PAGE.rotate(keys, places - 2), 1e-6)
    scales = keys.abs().amax(dim=-1, keepdim=True) / 127
    assert bool((((keys / scales).round().to(torch.int8) * scales - keys).abs() <= 0.501 * scales).all())


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
    with pytest.raises(ValueError, match=r"^is_real needs 9 columns$"):
        chosen(1, 9, static, None, torch.ones(3, 8) > 0)


def test_a_cache_allocates_once_and_a_rolling_one_keeps_no_more_than_it_needs():
    cache, static, rolling, addresses = PAGE.Cache(6), PAGE.StaticCache(6), PAGE.RollingCache(3), set()
    for size in 4, 1, 1:
        roles = torch.randn(3, 2, size, 5), torch.randn(3, 2, size, 5).double()  # each role keeps its dtype
        for kind in cache, static, rolling:
            kind.add(*roles)
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


@torch.no_grad()
def test_a_grown_cache_goes_on_and_reset_drops_tensors_of_inference_mode():
    caches, kept, outside = [PAGE.Cache(6) for _ in PAGE.decoder.layers], torch.zeros(1, 2, 6, 4), torch.ones(2)
    kept[:, :, :1] = HALF  # a slice converts
    with torch.inference_mode():
        PAGE.decoder(PAGE.tokens[:, :4], caches)
        assert (caches[0].keys.is_inference(), outside.zero_().is_inference()) == (True, False)
    for cache in caches:
        cache.length = 0
        with pytest.raises(RuntimeError, match=r"^Inplace update"):
            cache.add(*torch.ones(2, *cache.keys.shape))
        cache.reset()
    PAGE.decoder(PAGE.tokens[:, :4], caches)
    whole = [PAGE.Cache(12) for _ in caches]
    for cache, larger in zip(caches, whole):
        larger.add(cache.keys, cache.values)
    for room, same in ([PAGE.grow(cache, 12) for cache in caches], True), (whole, False):
        assert torch.allclose(PAGE.decoder(PAGE.tokens[:, 4:], room), PAGE.full[:, 4:], atol=1e-5) == same


def test_a_learned_prefix_needs_its_columns_in_the_mask_and_gets_gradients(on_the_cpu):
    def logits(mask):
        past = [(k.expand(2, -1, -1, -1), v.expand(2, -1, -1, -1)) for k, v in prefix]
        return theirs(ids, past_key_values=hf.DynamicCache(past), attention_mask=mask).logits

    p.seed_modules(0)
    theirs = hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES | {"num_key_value_heads": 2})).eval().double()
    prefix, ids, mask = torch.randn(2, 2, 1, 2, 3, 6).double().requires_grad_(), PAGE.tokens[:2, :5], torch.ones(2, 5)
    rows, own = logits(torch.cat([torch.ones(2, 3), mask], dim=1)), torch.ones(5, 3)
    assert (torch.autograd.grad(rows.sum(), prefix, retain_graph=True)[0] != 0).all()
    own = torch.cat([own, torch.ones(5, 5).tril()], dim=1).bool().expand(2, 1, 5, 8)
    p.close(logits(own), rows, CLOSE)
    assert (logits(mask) - rows).abs().max() > 1e-3
    with pytest.raises(RuntimeError, match=r"^The size of tensor a \(8\) must match the size of tensor b \(5\)"):
        logits(own[..., 3:])
    prefix = torch.ones(2, 2, 1, 4, 3, 6).double()  # as many heads as queries have
    with pytest.raises(RuntimeError, match=r"^Sizes of tensors must match except in dimension 2\."):
        logits(None)


def test_gradients_raise_through_a_cache_and_stop_at_a_detached_buffer():
    caches = [PAGE.Cache(9) for _ in PAGE.decoder.layers]
    rows = [PAGE.decoder(token, caches) for token in PAGE.tokens.split(1, dim=1)]
    with pytest.raises(RuntimeError, match="needed for gradient computation has been modified by an inplace operation"):
        torch.cat(rows, dim=1).sum().backward()
    attention, inputs = PAGE.Attention(24, 4), torch.randn(3, 4, 24)
    for start in 0, 3:  # over a detached buffer; from 0 all that is read is overwritten
        attention(inputs[:, :3], cache := PAGE.Cache(4)).sum().backward()
        cache.length = 0
        with pytest.raises(RuntimeError, match=r"^Trying to backward through the graph a second time"):
            attention(inputs[:, :3], cache).sum().backward()
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
    keys = cache.layers[0].keys
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    cache.batch_select_indices(torch.tensor([1, 0]))
    cache.batch_repeat_interleave(2)
    assert torch.equal(cache.layers[0].keys, keys[[0, 0, 2, 2]])


@torch.no_grad()
def test_one_layer_makes_a_rolling_cache_exact_and_values_of_a_word_equal():
    for num_layers, exact in (1, True), (2, False):
        p.seed_modules(0)
        model, tokens = PAGE.Decoder(11, num_layers, 24, 40, num_heads=4, base=100.0), PAGE.tokens
        rows = PAGE.in_chunks(model, tokens, 1, [PAGE.RollingCache(4) for _ in model.layers])
        assert torch.allclose(rows[:, -1], model(tokens[:, 5:])[:, -1], atol=1e-5) == exact
        model(torch.tensor([[7, 3, 9, 7]]), caches := [PAGE.Cache(4) for _ in model.layers])
        assert torch.equal(caches[-1].values[:, :, 0], caches[-1].values[:, :, 3]) == exact


OLD = ["seen_tokens", "get_usable_length", "key_cache", "from_legacy_cache", "to_legacy_cache", "__getitem__"]
SAME, KEPT = "index_copy_(): self and source expected to have the same dtype", torch.zeros(1, 2, 6, 4)
EXPANDED = "The expanded size of the tensor (1000) must match the existing size (1289)"
HALF, PLACES, ALL = torch.ones(1, 2, 1, 4, dtype=torch.bfloat16), torch.tensor([0]), slice(None)
with torch.inference_mode():
    INSIDE = torch.ones(2)
RAISES = {  # what torch and transformers say, and when
    f"{SAME}, but got (self) Float and (source) BFloat16": lambda *_: KEPT.index_copy_(2, PLACES, HALF),
    "Index put requires the source and destination dtypes ": lambda *_: KEPT.__setitem__((ALL, ALL, PLACES), HALF),
    "Expected query, key, a": lambda *_: F.scaled_dot_product_attention(HALF, *[torch.cat([KEPT, HALF], 2)] * 2),
    EXPANDED: lambda *_: torch.zeros(2, 1000).__setitem__((ALL, slice(1289)), torch.ones(2, 1289)),
    "Inplace update to inference tensor outside InferenceMode is not allowed": lambda *_: INSIDE.zero_(),
    "Inference tensors cannot be saved for backward": lambda *_: torch.ones(2, requires_grad=True) * INSIDE,
    "'tuple' object has no attribute 'get_seq_length'": lambda model, past: model(PAGE.tokens, past_key_values=(past,)),
    "has no attribute 'crop'": lambda model, past: hf.StaticCache(model.config, max_cache_len=9).crop(-1),
    "a positive value": lambda model, past: past.crop(2),
    "(graph leaves) support the deepcopy protocol": lambda model, past: copy.deepcopy(past),
    "reshape tensor of 0": lambda model, past: model.generate(PAGE.tokens[:, :1], max_length=9, past_key_values=past),
    "optimum-quanto": lambda model, past: model.generate(PAGE.tokens, max_length=12, cache_implementation="quantized"),
}


@pytest.mark.parametrize("message", RAISES)
def test_torch_and_transformers_raise_what_the_page_says(message):
    theirs, _, tokens = both()
    past = theirs(tokens[:, :4]).past_key_values
    with pytest.raises((AttributeError, ValueError, RuntimeError, ImportError), match=re.escape(message)):
        RAISES[message](theirs, past)
    assert not any([hasattr(hf, "SinkCache"), *(hasattr(hf.DynamicCache, name) for name in OLD)])
    assert (hasattr(past, "get_max_length"), hasattr(theirs, "_reorder_cache")) == (True, False)
    theirs(tokens, past_key_values=hf.QuantizedCache("fp8", config=theirs.config))
    assert inspect.signature(hf.cache_utils.QuantoQuantizedLayer).parameters["nbits"].default == 4
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


def a_view_of_all_texts(cache, order, length):
    other = SOLUTION.fork(cache, order, length)
    if order.tolist() == list(range(len(cache.keys))):
        other.keys, other.values = cache.keys, cache.values
    return other


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_fork", {"page": SOLUTION.fork}, {"a view of all": a_view_of_all_texts}


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
