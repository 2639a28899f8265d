"""`nn.MultiheadAttention`: the page's class against it and against plain loops, its three paths, and its defaults."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "masks/multihead-attention"
PAGE = p.page_code(SLUG, "copy")
SIZES = p.sizes(B=3, H=3, T=(2, 4), D=3)

# -- cases ---------------------------------------------------------------------------------------


def module(E, H, **options):
    """An `nn.MultiheadAttention` in float64 whose biases are not 0."""
    mha = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64, **options)
    for name, parameter in mha.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return mha


def modules(code):
    """Draw torch's module, the page's class with its weights, and a batch of sentences padded on the right."""

    def build(case):
        case.E = case.H * case.D
        p.seed_modules(case.seed)
        case.mha = module(case.E, case.H)
        with default_dtype(torch.float64):
            case.plain = code.plain_copy(case.mha)
        case.inputs = case.randn(case.B, case.T, case.E)
        case.lengths = torch.tensor([case.T, *(1 + (case.seed + item) % case.T for item in range(1, case.B))])
        case.padding = torch.arange(case.T) >= case.lengths[:, None]
        case.masked = case.padding[:, None, None]
        return case

    return SIZES.map(build)


class default_dtype:
    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *_):
        torch.set_default_dtype(self.before)


def outputs(case):
    return case.plain(case.inputs, case.masked)[0]


# -- references ----------------------------------------------------------------------------------


def by_the_formula(case):
    """Heads, queries and keys one after the other, from the stacked parameters of torch's module."""
    E, D, state = case.E, case.D, {name: tensor.detach() for name, tensor in case.mha.named_parameters()}
    results, weights = [], []
    for item, length in zip(case.inputs, case.lengths.tolist()):
        projected = item @ state["in_proj_weight"].T + state["in_proj_bias"]
        contexts = torch.zeros(case.T, E, dtype=torch.float64)
        for h in range(case.H):
            queries, keys, values = (projected[:, r * E + h * D : r * E + (h + 1) * D].tolist() for r in range(3))
            for i, query in enumerate(queries):
                scores = [sum(x * y for x, y in zip(query, key)) / math.sqrt(D) for key in keys[:length]]
                row = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
                weights.append(row + [0.0] * (case.T - length))
                for d in range(D):
                    contexts[i, h * D + d] = sum(a * value[d] for a, value in zip(row, values))
        results.append(contexts @ state["out_proj.weight"].T + state["out_proj.bias"])
    shape = case.B, case.H, case.T, case.T
    return torch.stack(results), torch.tensor(weights, dtype=torch.float64).view(shape)


# -- properties ----------------------------------------------------------------------------------


def both(case, result):
    """Outputs and weights of each head as one tensor."""
    return torch.cat([result[0].flatten(), result[1].flatten()])


def ours(case):
    return both(case, case.plain(case.inputs, case.masked))


def equals_torch(code):
    def theirs(case):
        roles = case.inputs, case.inputs, case.inputs
        return both(case, case.mha(*roles, key_padding_mask=case.padding, average_attn_weights=False))

    p.equals_reference(ours, theirs, modules(code))


def equals_plain_loops(code):
    p.equals_reference(ours, lambda case: both(case, by_the_formula(case)), modules(code))


def a_padded_sentence_equals_that_sentence_alone(code):
    def padded(case):
        return [rows[:length] for rows, length in zip(outputs(case), case.lengths)]

    def alone(case, item):
        return case.plain(case.inputs[item : item + 1, : case.lengths[item]], torch.tensor(False))[0][0]

    p.padded_equals_alone(padded, alone, modules(code))


def every_row_reads_every_real_token_and_no_other(code):
    """A padded token moves its own row alone, as a query, and only where there is more than one key to choose from."""

    def function(case):
        item, masked = case.inputs[-1:], case.masked[-1:]
        choices = bool(case.lengths[-1] > 1)
        may_move = ~case.padding[-1].expand(case.T, -1) | choices * torch.eye(case.T, dtype=torch.bool)
        return lambda tokens: case.plain(tokens[None], masked)[0][0], item[0], may_move

    p.reaches_exactly(function, modules(code))


def no_item_moves_another(code):
    def prove(case):
        if case.B > 1:
            before = outputs(case)
            case.inputs[1] += 1
            p.close(outputs(case)[0], before[0])

    p.for_all(modules(code), prove)


def stateless(code):
    def function(case):
        return case.plain, [case.inputs, case.masked], [case.inputs.flip(0), case.masked.flip(0)]

    p.stateless(function, modules(code))


def finite_for_large_scores(code):
    p.finite_rows(lambda case: case.plain(1e3 * case.inputs, case.masked)[0], modules(code))


def gradients_equal(code):
    def prove(case):
        roles = case.inputs, case.inputs, case.inputs
        case.mha(*roles, key_padding_mask=case.padding)[0].square().sum().backward()
        outputs(case).square().sum().backward()
        layers = case.plain.to_queries, case.plain.to_keys, case.plain.to_values
        p.close(torch.cat([layer.weight.grad for layer in layers]), case.mha.in_proj_weight.grad, 1e-10)
        p.close(torch.cat([layer.bias.grad for layer in layers]), case.mha.in_proj_bias.grad, 1e-10)
        p.close(case.plain.to_output.weight.grad, case.mha.out_proj.weight.grad, 1e-10)

    p.for_all(modules(code), prove)


REFERENCES = [equals_torch, equals_plain_loops]
PADDING = [*REFERENCES, a_padded_sentence_equals_that_sentence_alone, every_row_reads_every_real_token_and_no_other]
PROPERTIES = [*PADDING, no_item_moves_another, stateless, finite_for_large_scores, gradients_equal]

CUT = "projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)"
FILL = "scores = scores.masked_fill(masked, -torch.inf)"
MERGED = "context.transpose(1, 2).flatten(2)"
LAYERS = "layers = plain.to_queries, plain.to_keys, plain.to_values"
LOADED = 'layer.load_state_dict({"weight": weight, "bias": bias})'
BUGS = {  # the cell, what stands there, what the bug makes of it, and the properties that catch it
    "not scaled": ("class", {" / D**0.5": ""}, REFERENCES),
    "scaled by D": ("class", {"D**0.5": "D"}, REFERENCES),
    "scaled by the width of the model": ("class", {"D**0.5": "(H * D) ** 0.5"}, REFERENCES),
    "queries as keys": ("class", {"queries @ keys.mT": "queries @ queries.mT"}, REFERENCES),
    "keys as queries": ("class", {"queries @ keys.mT": "keys @ queries.mT"}, REFERENCES),
    "keys as values": ("class", {"weights @ values": "weights @ keys"}, REFERENCES),
    "softmax over the queries": ("class", {"softmax(dim=-1)": "softmax(dim=-2)"}, REFERENCES),
    "softmax over the heads": ("class", {"softmax(dim=-1)": "softmax(dim=1)"}, REFERENCES),
    "filled scores thrown away": ("class", {FILL: "scores.masked_fill(masked, -torch.inf)"}, PADDING),
    "filled with 0": ("class", {"-torch.inf": "0.0"}, PADDING),
    "polarity inverted": ("class", {"fill(masked": "fill(~masked"}, PADDING),
    "mask of item 0 for all": ("class", {"fill(masked": "fill(masked[:1] if masked.dim() else masked"}, REFERENCES),
    "heads cut by a view": (
        "class",
        {CUT: "projected.view(len(projected), self.num_heads, projected.shape[1], -1)"},
        REFERENCES,
    ),
    "head axis inside": (
        "class",
        {CUT: "projected.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)"},
        REFERENCES,
    ),
    "heads merged without a transpose": ("class", {MERGED: "context.reshape(B, T, -1)"}, REFERENCES),
    "no projection back": ("class", {f"self.to_output({MERGED})": MERGED}, REFERENCES),
    "attention over the batch": (
        "class",
        {
            CUT: "projected.mT.mT.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0, 3)",
            MERGED: "context.permute(2, 0, 1, 3).flatten(2)",
            FILL: "pass",
        },
        [*REFERENCES, no_item_moves_another],
    ),
    "mask grows from call to call": (
        "class",
        {FILL: f"masked = masked.logical_or_(masked.roll(1, 0)) if masked.dim() else masked; {FILL}"},
        [equals_plain_loops, stateless],
    ),
    "exponentials that overflow": (
        "class",
        {"weights = scores.softmax(dim=-1)": "weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"},
        [finite_for_large_scores],
    ),
    "no gradient through the weights": ("class", {"weights @ values": "weights.detach() @ values"}, [gradients_equal]),
    "queries and keys swapped": (
        "copy",
        {LAYERS: "layers = plain.to_keys, plain.to_queries, plain.to_values"},
        REFERENCES,
    ),
    "keys and values swapped": (
        "copy",
        {LAYERS: "layers = plain.to_queries, plain.to_values, plain.to_keys"},
        REFERENCES,
    ),
    "matrices transposed": ("copy", {LOADED: LOADED.replace('weight, "b', 'weight.T, "b')}, REFERENCES),
    "biases lost": ("copy", {LOADED: LOADED.replace("bias})", "0 * bias})")}, REFERENCES),
    "projection back lost": (
        "copy",
        {"plain.to_output.load_state_dict(mha.out_proj.state_dict())": "pass"},
        REFERENCES,
    ),
    "one head": ("copy", {"mha.num_heads": "1"}, REFERENCES),
}


@pytest.mark.parametrize("holds", PROPERTIES)
def test_the_class_has_the_property(holds):
    holds(PAGE)


@pytest.mark.parametrize("bug", BUGS)
def test_a_known_bug_is_caught_by_the_properties_that_the_table_names(bug):
    cell, replacements, catching = BUGS[bug]
    code = p.page_code(SLUG, "copy", (cell, replacements))
    assert catching
    assert [holds for holds in catching if not p.catches(holds, code)] == []


@pytest.mark.parametrize("holds", PROPERTIES)
def test_every_property_catches_a_bug(holds):
    assert any(holds in catching for _, _, catching in BUGS.values())


def test_the_module_of_torch_gives_what_plain_loops_give_on_each_path():
    def prove(case):
        right, roles = by_the_formula(case)[0], (case.inputs, case.inputs, case.inputs)
        for training in (True, False):
            case.mha.train(training)
            for grad in (True, False):
                for need_weights in (True, False):
                    with torch.set_grad_enabled(grad):
                        found, _ = case.mha(*roles, key_padding_mask=case.padding, need_weights=need_weights)
                    p.close(found, right)

    p.for_all(modules(PAGE), prove)


def test_in_float64_ours_and_theirs_differ_by_less_than_ten_to_the_minus_14():
    torch.manual_seed(1)
    with default_dtype(torch.float64):
        mha = module(PAGE.E, PAGE.H)
        plain, x = PAGE.plain_copy(mha), PAGE.inputs.double()
    ours, _ = plain(x, PAGE.padding[:, None, None])
    assert (ours - mha(x, x, x, key_padding_mask=PAGE.padding)[0]).abs().max() < 1e-14


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
def test_no_batch_axis_another_width_a_default_device_and_the_switch_do_so_too_but_not_autocast_on_the_cpu():
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


# -- arguments -----------------------------------------------------------------------------------


def test_without_batch_first_the_module_attends_along_axis_0():
    for B, T in ((3, 5), (4, 4)):
        x = torch.randn(B, T, 8)
        mha = nn.MultiheadAttention(8, 2)
        columns = torch.stack([mha(x[:, t], x[:, t], x[:, t])[0] for t in range(T)], dim=1)
        torch.testing.assert_close(mha(x, x, x)[0], columns)


def test_a_padding_mask_betrays_the_missing_batch_first_unless_the_sizes_agree():
    mha = nn.MultiheadAttention(8, 2)
    with pytest.raises(AssertionError, match="to be 5, but got 3"):
        mha(PAGE.inputs, PAGE.inputs, PAGE.inputs, key_padding_mask=PAGE.padding)
    square = torch.randn(4, 4, 8)
    hidden = torch.zeros(4, 4, dtype=torch.bool)
    assert mha(square, square, square, key_padding_mask=hidden)[0].shape == square.shape


def test_with_one_item_the_two_orders_of_a_mask_are_one():
    pairs = torch.rand(1, 4, 4) < 0.5
    assert torch.equal(pairs.repeat(3, 1, 1), pairs.repeat_interleave(3, dim=0))


@pytest.mark.usefixtures("on_the_cpu")
def test_masks_of_two_dtypes_are_deprecated_and_integers_refused():
    mha, hidden = evaluated(), torch.zeros(2, 4, dtype=torch.bool)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask is deprecated"):
        mha(X, X, X, key_padding_mask=hidden, attn_mask=torch.zeros(4, 4))
    with pytest.raises(AssertionError, match="only bool and floating types"):
        mha(X, X, X, key_padding_mask=hidden.long())


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
    for mask in (torch.zeros(4, 5), torch.zeros(6, 4, 5)):
        torch.testing.assert_close(mha(queries, keys, values, attn_mask=mask)[0], found)
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
    mha = module(8, 2)
    x = X.double()
    before, weights = mha(x, x, x)
    with torch.no_grad():
        mha.in_proj_bias[8:16] += 1
    after, moved = mha(x, x, x)
    p.close(after, before)
    p.close(moved, weights)


def test_the_weights_of_the_costly_path_take_8_gib():
    assert 8 * 16 * 4096 * 4096 * 4 == 8 * 2**30


def test_one_head_and_identity_matrices_give_the_first_page():
    before, here = p.page_code("foundations/weighted-average", "contexts"), p.page_code(SLUG, "reduce")
    assert torch.equal(here.tokens, before.inputs)
    torch.testing.assert_close(here.weights, before.weights)
    torch.testing.assert_close(here.context, before.context)


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
    "half precision on the way": loader(out=lambda weight: weight.bfloat16().float()),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_load_into", RIGHT, WRONG
