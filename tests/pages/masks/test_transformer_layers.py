"""`nn.TransformerEncoder` and `nn.TransformerDecoder`: the page's layer against torch's and BART's, and each path."""

import inspect
import re

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BartConfig
from transformers.models.bart.modeling_bart import BartDecoderLayer, BartEncoderLayer

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "masks/transformer-layers"
PAGE = p.page_code(SLUG, "equal")
STACKS = {"encoder": 0, "decoder": 1}

pytestmark = pytest.mark.filterwarnings("ignore:.*nested.tensor")

# -- the layer -----------------------------------------------------------------------------------


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def without_fast_path():
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def build(case):
    """A layer of torch with parameters that are not 0, the page's with its parameters, and masks with no empty row."""
    width = case.H * case.D
    kind = nn.TransformerDecoderLayer if case.decoder == 1 else nn.TransformerEncoderLayer
    p.seed_modules(case.seed)
    case.theirs = kind(width, case.H, case.hidden, 0.0, batch_first=True, norm_first=case.norm_first == 1)
    for parameter in case.theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    case.ours = PAGE.copied(case.theirs)
    case.inputs, case.memory = case.randn(case.B, case.Tq, width), case.randn(case.B, case.Tk, width)
    pairs, pads, read = (
        case.randn(*shape) > 0.5 for shape in ((case.Tq, case.Tq), (case.B, case.Tq), (case.B, case.Tk))
    )
    pads[:, 0] = pairs[:, 0] = read[:, 0] = False
    case.masks, case.read = (pairs, pads), read
    case.visible = ~(pairs | pads[:, None, None]), ~read[:, None, None]
    return case


SIZES = {"B": 3, "H": 3, "D": 3, "Tq": 4, "Tk": 4, "hidden": 5, "decoder": (0, 1), "norm_first": (0, 1)}
CASES = p.sizes(**SIZES).map(build)


def theirs(case):
    pairs, pads = case.masks
    if case.decoder:
        return case.theirs(case.inputs, case.memory, pairs, None, pads, case.read)
    return case.theirs(case.inputs, pairs, pads)


def ours(case):
    visible, read = case.visible
    return case.ours(case.inputs, visible, *((case.memory, read) if case.decoder else ()))


@pytest.mark.usefixtures("in_float64")
def test_the_layer_gives_what_those_of_torch_give():
    p.equals_reference(ours, theirs, CASES)


@pytest.mark.usefixtures("in_float64")
def test_it_gives_the_gradients_of_torch():
    p.gradients_equal(ours, theirs, lambda case: [case.inputs, case.memory], CASES)


def bart(case):
    """The same layer in transformers, which knows only norms after the sum."""
    width = case.H * case.D
    config = BartConfig(
        d_model=width,
        encoder_attention_heads=case.H,
        decoder_attention_heads=case.H,
        encoder_ffn_dim=case.hidden,
        decoder_ffn_dim=case.hidden,
        activation_function="relu",
        attn_implementation="sdpa",
    )
    layer = (BartDecoderLayer(config, 0) if case.decoder else BartEncoderLayer(config)).double().eval()
    attentions = [(layer.self_attn, case.ours.attend)]
    norms = [(layer.self_attn_layer_norm, case.ours.norm_attend), (layer.final_layer_norm, case.ours.norm_feed)]
    if case.decoder:
        attentions.append((layer.encoder_attn, case.ours.read))
        norms.append((layer.encoder_attn_layer_norm, case.ours.norm_read))
    names = {"q_proj": "to_queries", "k_proj": "to_keys", "v_proj": "to_values", "out_proj": "to_output"}
    pairs = [(getattr(a, old), getattr(b, new)) for a, b in attentions for old, new in names.items()]
    pairs += [(layer.fc1, case.ours.feed_forward[0]), (layer.fc2, case.ours.feed_forward[3])]
    for one, other in (*pairs, *norms):
        one.load_state_dict(other.state_dict())
    visible, read = case.visible
    read = read.expand(-1, -1, case.Tq, -1)
    return layer(
        case.inputs,
        visible,
        **({"encoder_hidden_states": case.memory, "encoder_attention_mask": read} if case.decoder else {}),
    )


@pytest.mark.usefixtures("in_float64")
def test_bart_of_transformers_is_the_same_layer_with_masks_of_four_axes():
    cases = p.sizes(**{**SIZES, "norm_first": (0, 0)}).map(build)
    p.equals_reference(ours, lambda case: first(bart(case)), cases)


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("decoder", [False, True])
def test_in_training_it_drops_where_torch_drops(decoder):
    kind = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    x, memory = PAGE.target[:1].cpu(), PAGE.source[:1].cpu()  # more sentences lie in memory in another order
    layer = kind(12, 2, 24, 0.25, batch_first=True)
    mine = PAGE.copied(layer)
    torch.manual_seed(3)
    wanted = layer(x, memory) if decoder else layer(x)
    torch.manual_seed(3)
    found = mine(x, None, memory) if decoder else mine(x)
    torch.testing.assert_close(found, wanted)
    assert not torch.allclose(found, mine.eval()(x, None, memory) if decoder else mine.eval()(x))
    assert not PAGE.copied(layer.eval()).training
    assert mine.attend.rate == 0.25


def test_a_width_that_the_heads_cannot_share_and_a_mask_without_four_axes_are_errors():
    with pytest.raises(ValueError, match="5 heads cannot share 12"):
        PAGE.Attention(12, 5)
    for shape in ((5,), (5, 5), (3, 5, 5)):
        with pytest.raises(ValueError, match=f"visible has {len(shape)} axes, not 4"):
            PAGE.Attention(12, 2)(PAGE.source, PAGE.source, torch.ones(shape, dtype=torch.bool))
    with pytest.raises(RuntimeError):
        PAGE.Attention(12, 2)(PAGE.source, PAGE.source, torch.ones(3, 1, 1, 4, dtype=torch.bool))


def test_a_memory_that_nobody_reads_and_one_that_is_missing_are_errors():
    encoder, decoder = (PAGE.Layer(12, 2, 24, decoder, False, 0.0) for decoder in (False, True))
    visible = torch.ones(3, 1, 1, 5, dtype=torch.bool)
    for given in ({"memory": PAGE.source}, {"memory_visible": visible}):
        with pytest.raises(ValueError, match=r"^an encoder layer takes no memory$"):
            encoder(PAGE.target, **given)
    for given in ({}, {"memory_visible": visible}):
        with pytest.raises(ValueError, match=r"^a decoder layer needs a memory$"):
            decoder(PAGE.target, **given)
    assert encoder(PAGE.target).shape == decoder(PAGE.target, memory=PAGE.source).shape == PAGE.target.shape
    assert len(list(encoder.parameters())) == 16


@pytest.mark.parametrize(
    "options", [{"activation": "gelu"}, {"activation": nn.ReLU()}, {"bias": False}, {"batch_first": False}]
)
def test_a_layer_that_ours_cannot_be_is_an_error(options):
    layer = nn.TransformerEncoderLayer(12, 2, 24, **{"batch_first": True, **options})
    with pytest.raises(ValueError, match=r"^copied takes F\.relu, bias=True, batch_first=True$"):
        PAGE.copied(layer)


def test_the_copy_divides_as_the_layer_does():
    layer = nn.TransformerEncoderLayer(12, 2, 24, 0.0, batch_first=True, layer_norm_eps=0.1)
    torch.testing.assert_close(PAGE.copied(layer)(PAGE.source), layer(PAGE.source))


def test_layer_copy_and_solution_run_on_another_device_than_the_default():
    with torch.device("meta"):
        inputs, visible = torch.empty(3, 4, 12), torch.empty(3, 1, 1, 4, dtype=torch.bool)
        layer = nn.TransformerDecoderLayer(12, 2, 24, batch_first=True)
    assert PAGE.copied(layer)(inputs, visible, inputs, visible).is_meta
    assert executed(SLUG, "solution")[0].to_sdpa(None, visible[:, 0, 0], 2).is_meta


def test_the_stacks_are_those_of_the_page():
    encoder, decoder = PAGE.stacks(12, 2)
    assert (encoder.num_layers, decoder.num_layers, encoder.use_nested_tensor) == (2, 2, True)
    for layer in (*encoder.layers, *decoder.layers):
        assert layer.self_attn.batch_first
        assert (layer.linear1.out_features, layer.dropout.p, layer.norm_first) == (24, 0, False)
    encoder, _ = PAGE.stacks(12, 2, nested=False, norm_first=True)
    assert encoder.layers[0].norm_first
    assert not encoder.enable_nested_tensor
    assert not torch.equal(
        *(part.flatten() for part in (encoder.layers[0].linear1.weight, decoder.layers[0].linear1.weight))
    )


# -- the masks -----------------------------------------------------------------------------------


def names_of(module):
    return [name for name in inspect.signature(module.forward).parameters if name.endswith("mask")]


def test_the_table_has_every_mask_of_nn_transformer():
    assert set(names_of(nn.Transformer)) == set(p.page_code(SLUG, "arguments").shapes)
    assert names_of(nn.TransformerEncoder) == ["mask", "src_key_padding_mask"]
    assert names_of(nn.TransformerDecoder) == names_of(nn.TransformerDecoderLayer)


def decoded(stack=None, target=PAGE.target, source=PAGE.source, **masks):
    stack = stack or PAGE.stacks(12, 2)[1]
    return stack(target, source, **masks)


def test_pads_on_the_right_need_no_padding_mask_beside_a_causal_one():
    masks = {"tgt_mask": PAGE.future, "memory_key_padding_mask": PAGE.source_pads}
    with_pads = decoded(tgt_key_padding_mask=PAGE.target_pads, **masks)
    p.close(decoded(**masks)[~PAGE.target_pads], with_pads[~PAGE.target_pads], 1e-5)
    left = PAGE.target_pads.flip(1)
    assert (decoded(tgt_key_padding_mask=left, **masks) - decoded(**masks))[~left].abs().max() > 1e-3


def test_a_key_is_hidden_as_soon_as_one_of_two_masks_hides_it():
    encoder, _ = PAGE.stacks(12, 2)
    pairs = torch.ones(5, 5, dtype=torch.bool).triu(1)
    both = (pairs | PAGE.source_pads[:, None]).repeat_interleave(2, dim=0)
    p.close(encoder(PAGE.source, pairs, PAGE.source_pads), encoder(PAGE.source, both), 1e-5)


def test_where_all_sizes_are_equal_a_wrong_mask_raises_nothing():
    encoder, decoder = PAGE.stacks(12, 2)
    square = torch.randn(4, 4, 12)
    pads = torch.zeros(4, 4, dtype=torch.bool)
    assert encoder(square, pads).shape == square.shape
    decoder(square, square, pads, pads, pads, pads)


@pytest.mark.usefixtures("on_the_cpu")
def test_with_the_flag_a_mask_of_a_wrong_shape_raises_in_evaluation_alone():
    encoder, _ = PAGE.stacks(12, 2)
    wide = nn.Transformer.generate_square_subsequent_mask(7)
    assert encoder(SOURCE, wide, is_causal=True).isfinite().all()
    with (
        pytest.raises(RuntimeError, match=re.escape("shape '[1, 1, 5, 5]' is invalid for input of size 49")),
        torch.no_grad(),
    ):
        encoder.eval()(SOURCE, wide, is_causal=True)


@pytest.mark.parametrize("name", ["tgt_is_causal", "memory_is_causal"])
def test_the_hints_of_the_decoder_need_a_mask_too(name):
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        decoded(**{name: True})


def test_the_stack_finds_a_causal_mask_by_itself(monkeypatch):
    seen = []
    monkeypatch.setattr(
        nn.MultiheadAttention,
        "forward",
        lambda self, x, *_, is_causal=False, **__: (seen.append(is_causal), (x, None))[1],
    )
    encoder, _ = PAGE.stacks(12, 2)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    for mask in (causal, causal.T, None):
        encoder(PAGE.source, mask)
    assert seen == [True, True, False, False, False, False]


def test_nn_transformer_without_batch_first_compares_tokens():
    with pytest.raises(RuntimeError, match="the batch number of src and tgt must be equal"):
        nn.Transformer(12, 2, 1, 1, 24, batch_first=False)(PAGE.source, PAGE.target)
    nn.Transformer(12, 2, 1, 1, 24, batch_first=True)(PAGE.source, PAGE.target)


# -- the paths -----------------------------------------------------------------------------------


class Operators(TorchDispatchMode):
    """The names of the operators that run inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.add(operator.overloadpacket.__name__)
        return operator(*args, **(kwargs or {}))


SOURCE, PADS = PAGE.source.cpu(), PAGE.source_pads.cpu()
PAIRS = torch.zeros(5, 5, dtype=torch.bool, device="cpu")


def path(encoder, *inputs, grad=False):
    """Which code an encoder runs: "nested", "fast" or "slow"."""
    with Operators() as seen, torch.set_grad_enabled(grad):
        encoder.eval()(*inputs)
    if "_transformer_encoder_layer_fwd" not in seen.names:
        return "slow"
    return "nested" if "_nested_tensor_from_mask" in seen.names else "fast"


@pytest.mark.usefixtures("on_the_cpu")
def test_the_conditions_of_the_paths_are_those_of_the_page():
    encoder, _ = PAGE.stacks(12, 2)
    assert path(encoder, SOURCE, None, PADS) == "nested"
    assert path(encoder, SOURCE, None, PADS, grad=True) == "slow"
    assert path(encoder, SOURCE, None, PADS.flip(1)) == "fast"
    assert path(encoder, SOURCE, PAIRS, PADS) == path(encoder, SOURCE, PAIRS.float()) == "fast"
    assert path(encoder, SOURCE) == "fast"
    assert path(PAGE.stacks(12, 2, nested=False)[0], SOURCE, None, PADS) == "fast"
    assert path(PAGE.stacks(12, 2, norm_first=True)[0], SOURCE, None, PADS) == "fast"
    assert path(PAGE.stacks(12, 2, activation="gelu")[0], SOURCE, None, PADS) == "nested"
    for options in ({"activation": torch.tanh}, {"bias": False}, {"batch_first": False}):
        assert path(PAGE.stacks(12, 2, **options)[0], SOURCE) == "slow", options
    assert path(PAGE.stacks(12, 3)[0], SOURCE) == "slow"
    other_eps, _ = PAGE.stacks(12, 2)
    for layer in other_eps.layers:
        layer.norm2.eps = 1e-6
    assert path(other_eps, SOURCE) == "slow"
    encoder.layers[0].self_attn.register_forward_hook(lambda *_: None)
    encoder.layers[1].linear1.register_forward_hook(lambda *_: None)
    assert path(encoder, SOURCE) == "slow"


@pytest.mark.usefixtures("on_the_cpu", "without_fast_path")
def test_the_switch_turns_every_fast_path_off():
    encoder, decoder = PAGE.stacks(12, 2)
    assert path(encoder, SOURCE, None, PADS) == "slow"
    with Operators() as seen, torch.no_grad():
        decoder.eval()(SOURCE, SOURCE)
    assert "_native_multi_head_attention" not in seen.names


@pytest.mark.usefixtures("on_the_cpu", "in_float64")
def test_all_paths_agree_on_real_tokens():
    for nested in (True, False):
        encoder, _ = PAGE.stacks(12, 2, nested=nested)
        wanted = encoder(SOURCE.double(), src_key_padding_mask=PADS)
        with torch.no_grad():
            found = encoder.eval()(SOURCE.double(), src_key_padding_mask=PADS)
        p.close(found[~PADS], wanted[~PADS])
        assert (found[PADS] == 0).all() == nested


@pytest.mark.usefixtures("on_the_cpu")
def test_autocast_on_the_cpu_turns_neither_nesting_nor_the_fast_path_off():
    plain, nested = (PAGE.stacks(12, 2, nested=nested)[0].eval() for nested in (False, True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plain(SOURCE, None, PADS).dtype == nested(SOURCE, None, PADS).dtype == torch.float32
        with torch.no_grad():
            assert plain(SOURCE, None, PADS).dtype == torch.bfloat16
            with pytest.raises(RuntimeError, match="expected scalar type Float but found BFloat16"):
                nested(SOURCE, None, PADS)


@pytest.mark.usefixtures("on_the_cpu", "in_float64")
def test_the_fast_path_has_the_exact_gelu_alone():
    layers = [PAGE.stacks(12, 2, activation=nn.GELU(approximate=kind))[0].layers[0] for kind in ("none", "tanh")]
    exact, approximate = (layer.eval()(SOURCE.double()) for layer in layers)
    with torch.no_grad():
        found = layers[1](SOURCE.double())
    p.close(found, exact)
    assert (approximate - exact).abs().max() > 1e-6


@pytest.mark.usefixtures("on_the_cpu")
def test_a_bias_without_zeros_is_nan_on_the_fast_path_and_minus_infinity_is_fine():
    encoder, _ = PAGE.stacks(12, 2)
    bias, causal = torch.full((5, 5), -0.5), nn.Transformer.generate_square_subsequent_mask(5)
    right = encoder(SOURCE, bias), encoder(SOURCE, causal)
    with torch.no_grad():
        found = encoder.eval()(SOURCE, bias), encoder(SOURCE, causal)
    assert right[0].isfinite().all()
    assert found[0].isnan().all()
    torch.testing.assert_close(found[1], right[1])


@pytest.mark.usefixtures("on_the_cpu")
def test_an_empty_row_of_the_target_is_nan_in_eval_through_the_fast_path_of_mha():
    _, decoder = PAGE.stacks(12, 2)
    target, pads = PAGE.target.cpu(), torch.zeros(3, 4, dtype=torch.bool)
    pads[1, 0] = True
    masks = {"tgt_mask": PAGE.future.cpu(), "tgt_key_padding_mask": pads}
    assert decoder(target, SOURCE, **masks).isfinite().all()
    with torch.no_grad():
        found = decoder.eval()(target, SOURCE, **masks)
    assert found[1].isnan().any()
    assert found[0].isfinite().all()


@pytest.mark.usefixtures("on_the_cpu")
def test_jagged_tensors_never_take_the_fast_path():
    encoder, _ = PAGE.stacks(12, 2)
    ragged = torch.nested.nested_tensor([SOURCE[1, :3], SOURCE[2, :4]], layout=torch.jagged)
    with torch.no_grad(), pytest.raises(AssertionError, match="outside of its fast path"):
        encoder.eval()(ragged)


@pytest.mark.usefixtures("on_the_cpu")
def test_an_exported_encoder_never_nests():
    encoder, _ = PAGE.stacks(12, 2)
    with torch.no_grad():
        program = torch.export.export(encoder.eval(), (SOURCE, None, PADS)).module()
        assert (program(SOURCE, None, PADS)[PADS] != 0).all()
        assert (encoder(SOURCE, None, PADS)[PADS] == 0).all()


# -- details -------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_weights_that_the_page_asks_for_are_those_that_the_layer_uses(norm_first):
    encoder, _ = PAGE.stacks(12, 2, nested=False, norm_first=norm_first)
    layer, kept = encoder.layers[0], []
    layer.self_attn.register_forward_hook(lambda module, inputs, output: kept.append((inputs[0], output[0])))
    layer(PAGE.source, src_key_padding_mask=PAGE.source_pads)
    asked = layer.norm1(PAGE.source) if norm_first else PAGE.source
    again, weights = layer.self_attn(asked, asked, asked, key_padding_mask=PAGE.source_pads)
    torch.testing.assert_close(kept[0], (asked, again))
    assert (weights[1, :, 3:] == 0).all()


def test_nn_transformer_draws_each_layer_and_adds_the_last_norm():
    model = nn.Transformer(12, 2, 2, 2, 24, batch_first=True)
    for stack in (model.encoder, model.decoder):
        one, other = (dict(layer.named_parameters()) for layer in stack.layers)
        assert all(torch.equal(one[name], other[name]) == (one[name].dim() == 1) for name in one)
        assert isinstance(stack.norm, nn.LayerNorm)


def test_a_mask_of_ones_in_floats_hides_nothing_in_training():
    encoder = PAGE.stacks(12, 2, dropout=0.0)[0].train()
    nudged = SOURCE.clone()
    nudged[1, -1] += torch.arange(12.0)
    for mask, hides in ((PADS, True), (PADS.float(), False)):
        before, after = (encoder(tokens, src_key_padding_mask=mask)[1, 0] for tokens in (SOURCE, nudged))
        assert torch.equal(before, after) == hides


def test_the_decoder_needs_a_memory():
    with pytest.raises(TypeError, match="memory"):
        PAGE.stacks(12, 2)[1](PAGE.target)


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_numbers_and_messages_of_the_page_are_printed(language):
    text = (p.ROOT / f"docs/{language}/{SLUG}.md").read_text(encoding="utf-8")
    printed = {cell: p.run_cell(SLUG, cell)[1] for cell in ("probe", "messages", "hint", "warnings")}
    assert re.findall(r"\*\*(0\.\d{4})\*\*", text) == ["0.1042", "0.0000", "0.0425"]
    assert all(number in printed["probe"] for number in ("0.1042", "0.0425"))
    for cell, message in (
        ("messages", "The shape of the 2D attn_mask is torch.Size([3, 5]), but should be (5, 5)."),
        ("messages", "For mask_type == 2 mask shape should match input shape"),
        ("hint", "Need attn_mask if specifying the is_causal hint"),
        ("warnings", "self.use_nested_tensor is False because encoder_layer.norm_first was True"),
    ):
        assert message in text
        assert message.removesuffix(".") in " ".join(printed[cell].split())


# -- the exercise --------------------------------------------------------------------------------


def joined(pairs, pads):
    return pairs if pads is None else pads if pairs is None else pairs | pads


def answer(
    planes=lambda m, H: m.unflatten(0, (-1, H)),
    square=lambda m: m[None, None],
    pads=lambda m: m[:, None, None],
    join=joined,
    last=torch.logical_not,
):
    """An answer that does something else with one of the masks."""

    def convert(attn_mask, key_padding_mask, num_heads):
        pairs = (
            None if attn_mask is None else planes(attn_mask, num_heads) if attn_mask.dim() == 3 else square(attn_mask)
        )
        keys = None if key_padding_mask is None else pads(key_padding_mask)
        masked = join(pairs, keys)
        return None if masked is None else last(masked)

    return convert


def in_place(attn_mask, key_padding_mask, num_heads):
    masked = answer(last=lambda m: m)(attn_mask, key_padding_mask, num_heads)
    return None if masked is None else masked.logical_not_()


def device_of_the_default(attn_mask, key_padding_mask, num_heads):
    found = answer()(attn_mask, key_padding_mask, num_heads)
    return (
        None
        if found is None
        else torch.empty_like(found, device=torch.get_default_device()).fill_(0)
        if found.is_meta
        else found
    )


def fixed(B, H):
    def convert(attn_mask, key_padding_mask, num_heads):
        return answer(planes=lambda m, _: m.unflatten(0, (B, H)))(attn_mask, key_padding_mask, num_heads)

    return convert


RIGHT = {
    "the solution again": answer(),
    "visible joined by and": lambda attn_mask, pads, H: answer(
        planes=lambda m, H: ~m.unflatten(0, (-1, H)),
        square=lambda m: ~m[None, None],
        pads=lambda m: ~m[:, None, None],
        join=lambda a, b: b if a is None else a if b is None else a & b,
        last=lambda m: m,
    )(attn_mask, pads, H),
    "by comparing with False": answer(last=lambda m: m == 0),
}
WRONG = {
    "nothing": lambda *_: None,
    "raises": lambda attn_mask, key_padding_mask, num_heads: attn_mask.missing,
    "two arguments": lambda attn_mask, key_padding_mask: None,
    "polarity kept": answer(last=lambda m: m),
    "numbers": answer(last=lambda m: (~m).float()),
    "a bias": answer(last=lambda m: torch.zeros(m.shape, device=m.device).masked_fill(m, -torch.inf)),
    "and for or": answer(join=lambda a, b: b if a is None else a if b is None else a & b),
    "exclusive or": answer(join=lambda a, b: b if a is None else a if b is None else a ^ b),
    "visible joined by or": answer(
        planes=lambda m, H: ~m.unflatten(0, (-1, H)),
        square=lambda m: ~m[None, None],
        pads=lambda m: ~m[:, None, None],
        join=lambda a, b: b if a is None else a if b is None else a | b,
        last=lambda m: m,
    ),
    "padding forgotten": answer(join=lambda a, b: b if a is None else a),
    "pairs forgotten": answer(join=lambda a, b: a if b is None else b),
    "heads first": answer(planes=lambda m, H: m.unflatten(0, (H, -1)).transpose(0, 1)),
    "heads and sentences exchanged": answer(planes=lambda m, H: m.unflatten(0, (H, -1))),
    "head 0 for all": answer(planes=lambda m, H: m.unflatten(0, (-1, H))[:, :1]),
    "sentence 0 for all": answer(planes=lambda m, H: m.unflatten(0, (-1, H))[:1]),
    "three axes": answer(square=lambda m: m[None]),
    "two axes": answer(square=lambda m: m),
    "padding hides queries": answer(pads=lambda m: m[:, None, :, None]),
    "padding on the axis of the heads": answer(pads=lambda m: m[:, :, None, None]),
    "padding without axes": answer(pads=lambda m: m),
    "pairs transposed": answer(square=lambda m: m.mT[None, None], planes=lambda m, H: m.mT.unflatten(0, (-1, H))),
    "masks changed in place": in_place,
    "sizes of the page": fixed(3, 2),
    "3-D masks alone": answer(square=lambda m: m.unflatten(0, (-1, 2))),
    "2-D masks alone": answer(planes=lambda m, H: m[None, None]),
    "a mask for nothing": lambda attn_mask, pads, H: (
        torch.ones(1, 1, 1, 1, dtype=torch.bool) if attn_mask is pads is None else answer()(attn_mask, pads, H)
    ),
    "always on the default device": device_of_the_default,
}


def test_the_solution_takes_masks_of_no_queries_and_batches_of_no_sentences():
    to_sdpa = executed(SLUG, "solution")[0].to_sdpa
    for shape, wanted in (((0, 5), (1, 1, 0, 5)), ((6, 0, 5), (3, 2, 0, 5)), ((0, 4, 5), (0, 2, 4, 5))):
        assert to_sdpa(torch.zeros(shape, dtype=torch.bool), None, 2).shape == wanted


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_to_sdpa", RIGHT, WRONG
