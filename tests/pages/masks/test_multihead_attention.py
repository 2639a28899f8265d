"""`nn.MultiheadAttention`: the page's class against it on each of its three paths, and what its arguments do."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed

SLUG = "masks/multihead-attention"
PAGE = p.page_code(SLUG, "copy")

# -- the class -----------------------------------------------------------------------------------


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def with_biases(mha):
    """A module whose biases are not 0, as those of a fresh one are."""
    for name, parameter in mha.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return mha


def build(case):
    """Torch's module, the page's class with its weights, and sentences padded on the right."""
    p.seed_modules(case.seed)
    case.mha = with_biases(nn.MultiheadAttention(case.H * case.D, case.H, batch_first=True))
    case.plain = PAGE.plain_copy(case.mha)
    case.inputs = case.randn(case.B, case.T, case.H * case.D)
    lengths = torch.tensor([1 + (case.seed + item) % case.T for item in range(case.B)])
    case.masked = torch.arange(case.T) >= lengths[:, None]
    case.ours = case.plain(case.inputs, case.masked)
    return case


CASES = p.sizes(B=3, H=3, T=4, D=3).map(build)


def theirs(case, **options):
    return case.mha(case.inputs, case.inputs, case.inputs, key_padding_mask=case.masked, **options)


@pytest.mark.usefixtures("in_float64")
def test_the_class_gives_the_outputs_of_torch_and_the_weights_of_each_head():
    def prove(case):
        for ours, torchs in zip(case.ours, theirs(case, average_attn_weights=False)):
            p.close(ours, torchs)

    p.for_all(CASES, prove)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_where_a_key_is_visible_each_path_gives_the_outputs_of_the_class(training, grad, need_weights):
    def prove(case):
        case.mha.train(training)
        with torch.set_grad_enabled(grad):
            p.close(theirs(case, need_weights=need_weights)[0], case.ours[0])

    p.for_all(CASES, prove)


@pytest.mark.usefixtures("in_float64")
def test_in_float64_ours_and_theirs_differ_by_less_than_ten_to_the_minus_14():
    p.seed_modules(1)
    mha, inputs = with_biases(nn.MultiheadAttention(PAGE.E, PAGE.H, batch_first=True)), PAGE.inputs.double()
    ours, _ = PAGE.plain_copy(mha)(inputs, PAGE.masked)
    assert (ours - mha(inputs, inputs, inputs, key_padding_mask=PAGE.masked)[0]).abs().max() < 1e-14


def test_the_class_refuses_indivisible_widths_and_masks_of_another_shape():
    with pytest.raises(ValueError, match="3 heads cannot share 8"):
        PAGE.PlainAttention(8, 3)
    for shape in ((5, 5), (3, 1, 1, 5), (3, 4)):
        with pytest.raises(ValueError, match=r"masked is .* not \(3, 5\)"):
            PAGE.PlainAttention(8, 2)(PAGE.inputs, torch.zeros(shape, dtype=torch.bool))


def test_the_class_takes_an_empty_batch_and_no_tokens():
    for B, T in ((0, 5), (3, 0)):
        outputs, weights = PAGE.PlainAttention(8, 2)(torch.ones(B, T, 8), torch.zeros(B, T, dtype=torch.bool))
        assert (outputs.shape, weights.shape) == ((B, T, 8), (B, 2, T, T))


def test_class_copy_and_solution_run_on_another_device_than_the_default():
    with torch.device("meta"):
        mha, layers = nn.MultiheadAttention(8, 2, batch_first=True), [nn.Linear(8, 8) for _ in range(4)]
        inputs, masked = torch.empty(3, 5, 8), torch.empty(3, 5, dtype=torch.bool)
    assert PAGE.plain_copy(mha)(inputs, masked)[0].is_meta
    executed(SLUG, "solution")[0].load_into(mha, *layers)
    assert all(parameter.is_meta for parameter in mha.parameters())


# -- which path a call takes ---------------------------------------------------------------------


class Operators(TorchDispatchMode):
    """The names of the operators that run inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.add(operator.overloadpacket.__name__)
        return operator(*args, **(kwargs or {}))


def path(mha, x, grad=False, key=None, **options):
    with Operators() as seen, torch.set_grad_enabled(grad):
        mha(x, x if key is None else key, x, **options)
    if "_native_multi_head_attention" in seen.names:
        return "fast"
    return "sdpa" if any("scaled_dot_product" in name for name in seen.names) else "weights"


X = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0), device="cpu")


def evaluated(E=8, H=2, **options):
    return nn.MultiheadAttention(E, H, **({"batch_first": True} | options)).eval()


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_fast_path_comes_first_and_need_weights_decides_the_rest(need_weights):
    other = "weights" if need_weights else "sdpa"
    mha = evaluated()
    assert path(mha, X, need_weights=need_weights) == "fast"
    assert path(mha, X, grad=True, need_weights=need_weights) == other
    assert path(mha.requires_grad_(False), X, grad=True, need_weights=need_weights) == "fast"
    assert path(mha.train(), X, need_weights=need_weights) == other


SLOW = {
    "another tensor object": (evaluated, {"key": X.view_as(X)}),
    "odd number of heads": (lambda: evaluated(H=1), {}),
    "no bias": (lambda: evaluated(bias=False), {}),
    "time first": (lambda: evaluated(batch_first=False), {}),
    "a learned key": (lambda: evaluated(add_bias_kv=True), {}),
    "a key of zeros": (lambda: evaluated(add_zero_attn=True), {}),
    "a float mask": (evaluated, {"attn_mask": torch.zeros(4, 4, device="cpu")}),
    "a float padding mask": (evaluated, {"key_padding_mask": torch.zeros(2, 4, device="cpu")}),
}


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("condition", SLOW)
def test_each_condition_switches_the_fast_path_off(condition):
    make, options = SLOW[condition]
    assert path(make(), X, **options) == "weights"
    assert path(make(), X, need_weights=False, **options) == "sdpa"


@pytest.mark.usefixtures("on_the_cpu")
def test_no_batch_axis_another_width_a_default_device_and_the_switch_do_so_too():
    assert path(evaluated(), X[0]) == "weights"
    with torch.no_grad(), Operators() as seen:
        evaluated(kdim=6, vdim=6)(X, X[..., :6], X[..., :6])
    assert "_native_multi_head_attention" not in seen.names
    with torch.autocast("cpu"):  # the module asks for autocast on CUDA
        assert path(evaluated(), X) == "fast"
    try:
        torch.set_default_device("cpu")
        assert path(evaluated(), X) == "weights"
    finally:
        torch.set_default_device(None)
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        assert path(evaluated(), X) == "weights"
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert path(evaluated(), X) == "fast"
    with BaseTorchFunctionMode():
        assert path(evaluated(), X) == "weights"
    meta = evaluated(device="meta")
    assert path(meta, X.to("meta")) == "weights"
    with torch.no_grad():
        assert "native" not in make_fx(lambda x: evaluated()(x, x, x)[0])(X).code


@pytest.mark.usefixtures("on_the_cpu")
def test_torch_compile_leaves_the_fast_path():
    graphs, mha = [], evaluated()
    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(lambda x: mha(x, x, x)[0], backend=lambda graph, _: graphs.append(graph.code) or graph)(X)
    assert "native" not in "".join(graphs)
    assert "multi_head_attention_forward" in "".join(graphs)


EMPTY = torch.tensor([[False] * 4, [True] * 4], device="cpu")


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_an_empty_sequence_is_nan_zero_nan_by_path_and_the_other_item_is_untouched(dtype):
    mha, x = evaluated(dtype=dtype), X.to(dtype)
    nn.init.constant_(mha.out_proj.bias, 0.5)
    for grad, need_weights in ((True, True), (True, False), (False, True), (False, False)):
        with torch.set_grad_enabled(grad):
            found, _ = mha(x, x, x, key_padding_mask=EMPTY, need_weights=need_weights)
        assert found[0].isfinite().all()
        if grad and not need_weights:
            assert (found[1] == 0.5).all()
        else:
            assert found[1].isnan().all()


@pytest.mark.usefixtures("on_the_cpu")
def test_without_gradients_and_in_eval_is_causal_alone_changes_nothing():
    mha = evaluated()
    with torch.no_grad():
        plain, flagged = mha(X, X, X), mha(X, X, X, is_causal=True)
    assert all(map(torch.equal, plain, flagged))
    for need_weights in (True, False):
        with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
            mha(X, X, X, is_causal=True, need_weights=need_weights)


@pytest.mark.usefixtures("on_the_cpu")
def test_with_flag_and_mask_the_sdpa_path_drops_the_mask():
    nothing = torch.zeros(4, 4, dtype=torch.bool)
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    mha = evaluated()
    causal, _ = mha(X, X, X, attn_mask=future)
    flagged, _ = mha(X, X, X, attn_mask=nothing, is_causal=True, need_weights=False)
    torch.testing.assert_close(flagged, causal)


# -- arguments -----------------------------------------------------------------------------------


def test_without_batch_first_the_module_attends_along_axis_0():
    for B, T in ((3, 5), (4, 4)):
        x = torch.randn(B, T, 8)
        mha = nn.MultiheadAttention(8, 2)
        columns = torch.stack([mha(x[:, t], x[:, t], x[:, t])[0] for t in range(T)], dim=1)
        torch.testing.assert_close(mha(x, x, x)[0], columns)


def test_a_padding_mask_shows_the_missing_batch_first_unless_the_sizes_agree():
    mha = nn.MultiheadAttention(8, 2)
    with pytest.raises(AssertionError, match="to be 5, but got 3"):
        mha(PAGE.inputs, PAGE.inputs, PAGE.inputs, key_padding_mask=PAGE.masked)
    square = torch.randn(4, 4, 8)
    masked = torch.zeros(4, 4, dtype=torch.bool)
    assert mha(square, square, square, key_padding_mask=masked)[0].shape == square.shape


@pytest.mark.usefixtures("on_the_cpu")
def test_masks_of_two_dtypes_are_deprecated_and_integers_refused():
    mha, masked = evaluated(), torch.zeros(2, 4, dtype=torch.bool)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask is deprecated"):
        mha(X, X, X, key_padding_mask=masked, attn_mask=torch.zeros(4, 4))
    with pytest.raises(AssertionError, match="only bool and floating types"):
        mha(X, X, X, key_padding_mask=masked.long())


def test_one_mask_for_each_sentence_without_copies_raises_the_error_of_the_page():
    text = "The shape of the 3D attn_mask is torch.Size([3, 5, 5]), but should be (6, 5, 5)."
    with pytest.raises(RuntimeError, match=re.escape(text)):
        nn.MultiheadAttention(8, 2, batch_first=True)(*PAGE.roles, attn_mask=PAGE.masked[:, None].expand(3, 5, 5))
    assert all(text in (p.ROOT / f"docs/{language}/{SLUG}.md").read_text() for language in ("en", "it", "zh"))


def test_shapes_and_defaults_are_those_of_the_tables():
    mha = nn.MultiheadAttention(8, 2, kdim=6, vdim=10, batch_first=True)
    queries, keys, values = torch.randn(3, 4, 8), torch.randn(3, 5, 6), torch.randn(3, 5, 10)
    found, weights = mha(queries, keys, values)
    assert (found.shape, weights.shape) == ((3, 4, 8), (3, 4, 5))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 4))
    _, heads = mha(queries, keys, values, average_attn_weights=False)
    assert heads.shape == (3, 2, 4, 5)
    torch.testing.assert_close(heads.mean(dim=1), weights)
    assert mha(queries, keys, values, need_weights=False)[1] is None
    for bias in (torch.zeros(4, 5), torch.zeros(6, 4, 5)):
        torch.testing.assert_close(mha(queries, keys, values, attn_mask=bias)[0], found)
    torch.testing.assert_close(mha(queries[0], keys[0], values[0])[0], found[0])
    assert (mha.in_proj_bias == 0).all()
    assert (mha.out_proj.bias == 0).all()
    assert mha.in_proj_weight is None
    with pytest.raises(AssertionError, match="divisible"):
        nn.MultiheadAttention(8, 3)


def test_a_stack_starts_smaller_by_the_root_of_two():
    printed = p.page_code(SLUG, "widths").parameters
    for name, bound in (
        ("in_proj", math.sqrt(6 / 256)),
        ("q_proj", math.sqrt(6 / 128)),
        ("k_proj", math.sqrt(6 / 112)),
        ("v_proj", math.sqrt(6 / 144)),
        ("out_proj", 0.125),
        ("nn.Linear", 0.125),
    ):
        assert 0.99 * bound < printed[name].abs().max() <= bound
    assert math.isclose(math.sqrt(6 / 128) / math.sqrt(6 / 256), math.sqrt(2))


@pytest.mark.usefixtures("on_the_cpu")
def test_a_key_of_zeros_adds_one_below_the_fraction_bar():
    plain, sink = evaluated(), evaluated(add_zero_attn=True)
    sink.load_state_dict(plain.state_dict())
    queries, keys, _ = F.linear(X, plain.in_proj_weight, plain.in_proj_bias).unflatten(-1, (3, 2, 4)).unbind(2)
    odds = (queries.transpose(1, 2) @ keys.transpose(1, 2).mT / 2).exp()
    _, weights = sink(X, X, X, average_attn_weights=False)
    torch.testing.assert_close(weights[..., :-1], odds / (1 + odds.sum(dim=-1, keepdim=True)))


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("option", ["add_zero_attn", "add_bias_kv"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_with_an_extra_key_an_empty_sequence_is_finite_on_every_path(option, need_weights):
    mha = evaluated(**{option: True})
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert mha(X, X, X, key_padding_mask=EMPTY, need_weights=need_weights)[0].isfinite().all()


def test_the_returned_weights_are_those_after_dropout():
    torch.manual_seed(0)
    x = torch.randn(64, 8, 8)
    mha = nn.MultiheadAttention(8, 2, dropout=0.25, batch_first=True)
    kept = mha.eval()(x, x, x, average_attn_weights=False)[1]
    dropped = mha.train()(x, x, x, average_attn_weights=False)[1]
    ratio = dropped / kept
    assert ratio[ratio > 0].sub(4 / 3).abs().max() < 1e-5
    assert abs((ratio == 0).float().mean() - 0.25) < 0.02
    assert (dropped.sum(dim=-1) > 1.01).any()
    assert abs(dropped.sum(dim=-1).mean() - 1) < 0.02


@pytest.mark.usefixtures("on_the_cpu")
def test_the_bias_of_the_keys_shows_in_no_output():
    mha = nn.MultiheadAttention(8, 2, batch_first=True)
    before = mha(X, X, X)
    with torch.no_grad():
        mha.in_proj_bias[8:16] += 1
    for moved, unmoved in zip(mha(X, X, X), before):
        p.close(moved, unmoved, 1e-6)


# -- the encoder ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("layer", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_the_layers_of_torch_ask_for_no_weights(layer, monkeypatch):
    asked, forward = [], nn.MultiheadAttention.forward

    def recorded(self, *args, **kwargs):
        asked.append(kwargs["need_weights"])
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(nn.MultiheadAttention, "forward", recorded)
    built = layer(8, 2, 16)
    assert not built.self_attn.batch_first
    built(*[X] * (1 if layer is nn.TransformerEncoderLayer else 2))
    assert asked
    assert not any(asked)


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.filterwarnings("ignore:.*nested tensors")
def test_the_encoder_returns_pads_as_zeros_in_eval_and_computes_them_with_gradients():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    with torch.no_grad():
        packed = encoder(X, src_key_padding_mask=padding)
    computed = encoder(X, src_key_padding_mask=padding)
    torch.testing.assert_close(packed[~padding], computed[~padding])
    assert (packed[padding] == 0).all()
    assert (computed[padding] != 0).all()


# -- the exercise --------------------------------------------------------------------------------


def loader(weights=lambda q, k, v: (q, k, v), biases=lambda q, k, v: (q, k, v), out=lambda w: w, out_bias=lambda b: b):
    """An answer that does something to the matrices and biases on their way."""

    def load(mha, to_queries, to_keys, to_values, to_output):
        layers = to_queries, to_keys, to_values
        state = {"out_proj.weight": out(to_output.weight)}
        loaded = weights(*(layer.weight for layer in layers))
        if mha.in_proj_weight is None:
            state |= {f"{role}_proj_weight": weight for role, weight in zip("qkv", loaded)}
        else:
            state["in_proj_weight"] = torch.cat(loaded)
        if mha.in_proj_bias is not None:
            state["in_proj_bias"] = torch.cat(biases(*(layer.bias for layer in layers)))
            state["out_proj.bias"] = out_bias(to_output.bias)
        mha.load_state_dict(state)

    return load


def piece_by_piece(mha, to_queries, to_keys, to_values, to_output):
    E, layers = mha.embed_dim, (to_queries, to_keys, to_values)
    with torch.no_grad():
        for r, (role, layer) in enumerate(zip("qkv", layers)):
            stacked = mha.in_proj_weight is not None
            part = mha.in_proj_weight[r * E : (r + 1) * E] if stacked else getattr(mha, f"{role}_proj_weight")
            part.copy_(layer.weight)
            if layer.bias is not None:
                mha.in_proj_bias[r * E : (r + 1) * E] = layer.bias
        mha.out_proj.load_state_dict(to_output.state_dict())


def new_parameters(mha, to_queries, to_keys, to_values, to_output):
    layers = to_queries, to_keys, to_values
    if mha.in_proj_weight is None:
        for role, layer in zip("qkv", layers):
            setattr(mha, f"{role}_proj_weight", nn.Parameter(layer.weight.detach().clone()))
    else:
        mha.in_proj_weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]))
    if to_queries.bias is not None:
        mha.in_proj_bias = nn.Parameter(torch.cat([layer.bias.detach() for layer in layers]))
        mha.out_proj.bias = nn.Parameter(to_output.bias.detach().clone())
    mha.out_proj.weight = nn.Parameter(to_output.weight.detach().clone())


def stack_only(mha, *layers):
    mha.in_proj_weight.data = torch.cat([layer.weight for layer in layers[:3]]).detach()


def then(do):
    """The right answer, and one thing more."""

    def load(mha, *layers):
        piece_by_piece(mha, *layers)
        do(mha, *layers)

    return load


def by_head(*parts):
    """The rows of head 0 of all three roles first."""
    return torch.cat([part.unflatten(0, (3, -1)) for part in parts], dim=1).flatten(0, 1).chunk(3)


def square(weight):
    return weight.T if weight.shape[0] == weight.shape[1] else weight


def shared_output(mha, q, k, v, o):
    mha.out_proj = o


def shared_queries(mha, q, k, v, o):
    if mha.q_proj_weight is not None:
        mha.q_proj_weight = q.weight


def names_of_linear(mha, q, k, v, o):
    layers = {"to_queries": q, "to_keys": k, "to_values": v, "to_output": o}
    state = {f"{name}.{part}": t for name, layer in layers.items() for part, t in layer.state_dict().items()}
    mha.load_state_dict(state, strict=False)


def only_separate(mha, q, k, v, o):
    for role, layer in zip("qkv", (q, k, v)):
        setattr(mha, f"{role}_proj_weight", nn.Parameter(layer.weight.detach().clone()))
    mha.out_proj.load_state_dict(o.state_dict())


def biases_expected(mha, q, k, v, o):
    mha.in_proj_bias.data = torch.cat([layer.bias for layer in (q, k, v)]).detach()
    loader()(mha, q, k, v, o)


def wide_keys_ignored(mha, q, k, v, o):
    if k.in_features == q.in_features:
        piece_by_piece(mha, q, k, v, o)


def stack_whenever_the_keys_fit(mha, q, k, v, o):
    if k.in_features == q.in_features:
        mha.load_state_dict({"in_proj_weight": torch.cat([q.weight, k.weight, v.weight])}, strict=False)
    loader()(mha, q, k, v, o)


def zeroed(mha, *layers):
    layers[0].weight.data.zero_()


def layers_frozen(mha, *layers):
    for layer in layers:
        layer.requires_grad_(False)


def plain_tensor(mha, *layers):
    """Where the stack is, it is no parameter any more."""
    if mha.in_proj_weight is not None:
        del mha.in_proj_weight
        mha.in_proj_weight = torch.cat([layer.weight for layer in layers[:3]])


def queries_kept(mha, *layers):
    mha.to_queries = layers[0]


def output_from_lists(mha, *layers):
    mha.out_proj.weight = nn.Parameter(torch.tensor(layers[3].weight.tolist()))


RIGHT = {
    "the solution": loader(),
    "piece by piece": piece_by_piece,
    "new parameters": new_parameters,
    "returns the module": lambda mha, *layers: piece_by_piece(mha, *layers) or mha,
}
WRONG = {
    "does nothing": lambda mha, *layers: None,
    "raises": lambda mha, *layers: layers[4],
    "one argument": lambda mha: None,
    "queries and keys swapped": loader(weights=lambda q, k, v: (k, q, v), biases=lambda q, k, v: (k, q, v)),
    "keys and values swapped": loader(weights=lambda q, k, v: (q, v, k), biases=lambda q, k, v: (q, v, k)),
    "values first": loader(weights=lambda q, k, v: (v, k, q), biases=lambda q, k, v: (v, k, q)),
    "keys and values of the biases swapped": loader(biases=lambda q, k, v: (q, v, k)),
    "all three transposed": loader(weights=lambda *parts: tuple(map(square, parts))),
    "queries transposed": loader(weights=lambda q, k, v: (q.T, k, v)),
    "output transposed": loader(out=lambda weight: weight.T),
    "stacked by head": loader(weights=by_head, biases=by_head),
    "the same matrix three times": loader(weights=lambda q, k, v: tuple(map(torch.Tensor.clone, (q, q, q)))),
    "queries scaled": loader(weights=lambda q, k, v: (q / 2, k, v)),
    "biases left at 0": loader(biases=lambda *parts: [0 * part for part in parts], out_bias=torch.zeros_like),
    "bias of the queries lost": loader(biases=lambda q, k, v: (0 * q, k, v)),
    "bias of the keys lost": loader(biases=lambda q, k, v: (q, 0 * k, v)),
    "bias of the values lost": loader(biases=lambda q, k, v: (q, k, 0 * v)),
    "bias of the output lost": loader(out_bias=torch.zeros_like),
    "output left alone": lambda mha, *layers: loader(out=lambda w: mha.out_proj.weight)(mha, *layers),
    "stack alone": stack_only,
    "stack only": lambda mha, *layers: stack_only(mha, *layers) or mha.out_proj.load_state_dict(layers[3].state_dict()),
    "separate only": only_separate,
    "biases expected": biases_expected,
    "another width of keys ignored": wide_keys_ignored,
    "width of the values not looked at": stack_whenever_the_keys_fit,
    "names that fit nothing": names_of_linear,
    "output shared": then(shared_output),
    "queries shared": then(shared_queries),
    "frozen": then(lambda mha, *layers: mha.requires_grad_(False)),
    "a layer zeroed": then(zeroed),
    "layers frozen": then(layers_frozen),
    "a plain tensor in place of a parameter": then(plain_tensor),
    "a layer of its own more": then(queries_kept),
    "from lists, so on the default device": then(output_from_lists),
    "half precision on the way": loader(out=lambda weight: weight.bfloat16().float()),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_load_into", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "queries and keys have one shape": ["scores = queries @ keys.mT / keys.shape[-1] ** 0.5"],
}
