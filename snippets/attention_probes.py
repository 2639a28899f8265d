"""Probes for attention: what does your module do with the future, with pads,
caches, memories, state and gradients? This file needs torch alone.

    from attention_probes import check

    attention = MyAttention(32, num_heads=4)
    report = check(attention, width=32, causal=True)
    assert not report.failed, report

In pytest, one line makes a test of each probe:

    test_attention = each_probe(lambda: check(attention, width=32))

`python attention_probes.py my_file.py:build` prints the report of
`check(**build())`, and exits with 1 if a probe failed.
"""

import contextlib
import functools
import importlib
import sys
import textwrap
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

B, T, SEED = 3, 11, 20170612
# Of the size of the outputs: what rounding may change, where norms and
# rotations run in float32; and what it may change where nothing is read.
EQUAL = {torch.float64: 1e-5, torch.float32: 2e-4}
HIDDEN = {torch.float64: 1e-11, torch.float32: 1e-5}
LOW = {torch.bfloat16: 0.2, torch.float16: 0.05}


class Fails(Exception):
    """What a probe found, in words for people."""


class LeftOut(Exception):
    """Why a probe does not apply."""


# --8<-- [start:check]
@dataclass
class Report:
    """{name of a probe: one sentence}, in three dicts."""

    failed: dict = field(default_factory=dict)
    passed: dict = field(default_factory=dict)
    left_out: dict = field(default_factory=dict)

    def __str__(self):
        lines = [("failed", f"{one}: {it}") for one, it in self.failed.items()]
        lines.append(("passed", ", ".join(self.passed)))
        names = {}
        for name, reason in self.left_out.items():
            names[reason] = [*names.get(reason, []), name]
        reasons = [f"{', '.join(names[it])}: {it}" for it in names]
        lines.append(("left out", "; ".join(reasons)))
        indent = " " * 10
        return "\n".join(
            textwrap.fill(f"{kind:10}{words}", 79, subsequent_indent=indent)
            for kind, words in lines
            if words
        )


def check(
    call=None,
    *,
    width,
    causal=False,
    module=None,
    padding=None,
    pads=("right", "left"),
    cache=None,
    memory=None,
    memory_width=None,
    visible=None,
    reference=None,
):
    """Run every probe that applies, and return a `Report`.

    call: tokens (B, T, width) to rows (B, T, any width), or to a tuple that
        begins with them.
    causal: True, False, or "either": then what it does decides.
    module: all that is behind the call; left out, it is `call` or `memory`
        if that is a module. It is put in eval mode and, where it can, in
        float64; afterwards it is as it was.
    padding: like `call`, of (tokens, is_real); is_real (B, T) is True where
        a token is no pad.
    pads: the sides on which pads may stand.
    cache: makes a function that is fed one chunk (B, t, width) after the
        other, and returns its rows.
    memory: of (tokens, memory, is_real); memory (B, Tk, memory_width),
        is_real (B, Tk) or None. Without `call`, it is pure cross-attention.
    visible: of T, a boolean (T, T) matrix, in place of `causal`: True where
        a row may react to a token, through all layers.
    reference: another implementation of `call`.

    All that is drawn comes from generators of its own. An exception in a
    call is a failure of the probe, with its type and words.
    """
    given = dict(locals())
    called = memory if call is None else call
    if module is None and isinstance(called, nn.Module):
        given["module"] = module = called
    if causal not in (True, False, "either"):
        raise ValueError(f'causal={causal!r}: give True, False or "either"')
    if call is None and memory is None:
        raise ValueError("give call, a function of tokens, or memory")
    weight = next(module.parameters(), None) if module is not None else None
    default = torch.get_default_device()
    device = default if weight is None else weight.device
    report = Report()
    drawn = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(drawn), eval_mode(module):
        torch.manual_seed(SEED)
        float32 = Subject(given, device, torch.float32)
        exact = Subject(given, device, torch.float64)
        with in_dtype(module, torch.float64):
            if not exact.runs():
                exact = float32
        for probe in PROBES:
            it = exact if probe.exact else float32
            with in_dtype(module, it.tokens.dtype):
                probe.run(it, report)
    return report


# --8<-- [end:check]


@dataclass
class Probe:
    """A function that raises what it finds; its docstring is its promise."""

    test: object
    usual: str
    exact: bool

    @property
    def name(self):
        return self.test.__name__

    def run(self, it, report):
        try:
            self.test(it)
            report.passed[self.name] = self.test.__doc__
        except LeftOut as error:
            report.left_out[self.name] = str(error)
        except Fails as error:
            report.failed[self.name] = f"{error}. {self.usual}"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            report.failed[self.name] = f"{said}{place_of(error)}"


def place_of(error):
    """Where an exception came from, outside torch and this file."""
    library = str(Path(torch.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    files = [(frame.filename, frame.lineno) for frame in frames]
    own = [
        f" at {Path(file).name}:{line}"
        for file, line in files
        if file != __file__ and not file.startswith(library)
    ]
    return own[-1] if own else ""


PROBES = []


def probe(usual, exact=True):
    """Registers the function below it. `usual`: what a failure means most
    often, and a page; not `exact`: in float32, for which fills are made."""

    def add(test):
        PROBES.append(Probe(test, usual, exact))
        return test

    return add


class Subject(SimpleNamespace):
    """What `check` was given, and the tensors that all probes share."""

    def __init__(self, given, device, dtype):
        super().__init__(**given)
        self.generator = torch.Generator("cpu").manual_seed(SEED)
        self.like = torch.empty(0, device=device, dtype=dtype)
        self.tokens = self.draw(B, T, self.width)
        self.remembered = self.draw(B, T + 2, self.memory_width or self.width)

    def draw(self, *shape):
        exact = {"dtype": torch.float64, "device": "cpu"}
        return torch.randn(shape, generator=self.generator, **exact).to(
            self.like
        )

    def rows(self, tokens, text=0):
        """The outputs of a call, which gets a copy to write into."""
        if self.call is not None:
            return first(self.call(tokens.clone()))
        memory = self.remembered[text : text + len(tokens)].to(tokens.dtype)
        return first(self.memory(tokens.clone(), memory.clone(), None))

    def runs(self):
        """Whether the call takes this dtype."""
        try:
            return self.rows(self.tokens).dtype == self.tokens.dtype
        except Exception:
            return False

    @functools.cached_property
    def moved(self):
        return moved(self.rows, self.tokens)

    def may_read(self):
        """The boolean (T, T) matrix that was promised."""
        full = self.like.new_ones(T, T, dtype=torch.bool)
        if self.visible is not None:
            return self.visible(T).to(full)
        if self.call is None:
            return full.tril().triu()
        causal = self.causal
        if causal == "either":
            causal = not self.moved.triu(1).any()
        return full.tril() if causal else full

    def is_real(self, side):
        """True at the tokens (B, T) of texts of unequal length."""
        lengths = torch.tensor([[T], [T - 4], [2]], device=self.like.device)
        right = torch.arange(T, device=self.like.device) < lengths
        return right if side == "right" else right.flip(1)


def first(result):
    return result[0] if isinstance(result, tuple | list) else result


def size_of(rows):
    return rows.detach().double().square().mean().sqrt().item() or 1.0


def compare(ours, theirs, what):
    """Raise `Fails` where two tensors differ by more than rounding."""
    if ours.shape != theirs.shape:
        shapes = f"{tuple(ours.shape)}, not {tuple(theirs.shape)}"
        raise Fails(f"{what}: shape {shapes}")
    gap = (ours - theirs).detach().abs().max().item()
    size = size_of(theirs)
    if not gap <= EQUAL[theirs.dtype] * size:
        raise Fails(f"{what} by {gap:.1e}; their size is {size:.1e}")


def pairs(matrix):
    """The first places of a boolean (rows, tokens) matrix, for people."""
    places = matrix.nonzero().tolist()
    named = ", ".join(f"row {row} token {token}" for row, token in places[:3])
    more = " ..." if len(places) > 3 else ""
    return f"{named}{more} ({len(places)} of {matrix.numel()} pairs)"


# --8<-- [start:moves]
@torch.no_grad()
def moved(call, tokens):
    """Nudge one token after the other: which rows change?

    `call` maps (B, T, E) to (B, Tq, any width). Returns a boolean
    (B, Tq, T): row i of text b changes with token j. A nudge of all features
    alike would not pass a LayerNorm, so each token is moved in one feature,
    then in a random direction.
    """
    generator = torch.Generator("cpu").manual_seed(SEED)
    width = tokens.shape[-1]
    one = torch.eye(width)[0]
    nudges = one, torch.randn(width, generator=generator, device="cpu")
    before = call(tokens)
    limit = HIDDEN[before.dtype] * size_of(before)
    columns = []
    for token in range(tokens.shape[1]):
        column = torch.zeros_like(before[..., 0]) > 0
        for nudge in nudges:
            nudged = tokens.clone()
            nudged[:, token] += nudge.to(tokens)
            change = (call(nudged) - before).abs().amax(dim=-1)
            column |= ~(change <= limit)
        columns.append(column)
    return torch.stack(columns, dim=-1)


# --8<-- [end:moves]


# --8<-- [start:future]
@probe(
    "No mask, a mask that is inverted, one off or lost (`masked_fill` does "
    "not write), heads cut or merged by `view`, or a softmax over queries: "
    "foundations/causal"
)
def future(it):
    """No row changes with a token that it may not read."""
    leaks = (it.moved & ~it.may_read()).any(dim=0)
    if leaks.any():
        raise Fails(f"rows change with hidden tokens: {pairs(leaks)}")


@probe("The window or the triangle is one off, or True hides: masks/polarity")
def reads(it):
    """Each row changes with each token that it may read."""
    deaf = (it.may_read() & ~it.moved).any(dim=0)
    if torch.equal(deaf, it.may_read()):
        raise Fails("no nudge changes a row; are the last weights still 0?")
    if deaf.any():
        raise Fails(f"rows do not change with tokens: {pairs(deaf)}")


@probe("If `future` passes, tokens are counted: foundations/causal")
def prefix(it):
    """The first tokens alone give the rows that they have in the whole."""
    needs_causal(it)
    whole = it.rows(it.tokens)
    for t in (1, 2, T - 1):
        alone = it.rows(it.tokens[:, :t].contiguous())
        compare(alone, whole[:, :t], f"cut after token {t - 1}, rows differ")


def needs_causal(it):
    if it.may_read().triu(1).any():
        raise LeftOut("rows may read what comes later")


# --8<-- [end:future]


# --8<-- [start:batch]
@probe(
    "Batch and tokens are swapped (`batch_first`), or a softmax or a norm "
    "runs over the batch: foundations/shapes"
)
def batch(it):
    """Each text gives alone what it gives in a batch."""
    whole = it.rows(it.tokens)
    for item in range(B):
        alone = it.rows(it.tokens[item : item + 1], text=item)
        compare(alone[0], whole[item], f"text {item} alone differs")


# --8<-- [end:batch]


# --8<-- [start:pads]
def pads_on(it, side):
    if it.padding is None:
        raise LeftOut("give padding")
    if side not in it.pads:
        raise LeftOut(f"pads={it.pads}")
    is_real = it.is_real(side)
    rows = first(it.padding(it.tokens.clone(), is_real.clone()))
    loud = it.tokens.where(is_real[..., None], 7 * it.draw(B, T, it.width))
    other = first(it.padding(loud, is_real.clone()))
    compare(other[is_real], rows[is_real], "real rows change with pads")
    for item, keep in enumerate(is_real):
        alone = it.rows(it.tokens[item : item + 1, keep])
        compare(rows[item, keep], alone[0], f"text {item} alone differs")


@probe("The mask is lost, inverted, or on a wrong axis: masks/padding", False)
def pads_right(it):
    """With pads on the right, texts give what they give alone."""
    pads_on(it, "right")


@probe(
    "The mask is lost, inverted or on a wrong axis, or positions count pads: "
    "masks/padding",
    False,
)
def pads_left(it):
    """With pads on the left, texts give what they give alone."""
    pads_on(it, "left")


@probe("A softmax over no key is nan, and spreads: masks/combining", False)
def empty(it):
    """Rows that may read no key are finite, and so are the gradients."""
    if it.padding is None:
        raise LeftOut("give padding")
    is_real = it.is_real("left")
    if it.may_read().triu(1).any():
        is_real[2] = False  # elsewhere, the first pads have no key
    tokens = it.tokens.clone().requires_grad_()
    rows = first(it.padding(tokens.clone(), is_real.clone()))
    loss = rows[is_real].square().sum()
    slopes = torch.autograd.grad(loss, tokens)[0]
    for name, tensor in (("outputs", rows), ("gradients", slopes)):
        wrong = (~tensor.isfinite()).sum().item()
        if wrong:
            raise Fails(f"{wrong} {name} are nan or infinite")


# --8<-- [end:pads]


# --8<-- [start:steps]
@probe(
    "The mask of a chunk is cut from the top left, positions lack their "
    "offset, or two texts share a cache: cache/kv-cache"
)
@torch.no_grad()
def steps(it):
    """Fed in chunks with a cache, a text gives the rows of the whole."""
    if it.cache is None:
        raise LeftOut("give cache")
    needs_causal(it)
    whole = it.rows(it.tokens)
    for sizes in ([1] * T, [5, 4, 2], [T - 1, 1], [1, 3, T - 4]):
        feed = it.cache()
        chunks = it.tokens.split(sizes, dim=1)
        rows = [first(feed(chunk.clone())) for chunk in chunks]
        compare(torch.cat(rows, dim=1), whole, f"chunks of {sizes} differ")


# --8<-- [end:steps]


# --8<-- [start:memory]
@probe(
    "The mask lies on a wrong axis, heads are cut by `view`, the softmax "
    "runs over queries, or values come from them: cross/cross-attention"
)
def memory(it):
    """Rows read the real tokens of the memory, and a query its own row."""
    if it.memory is None:
        raise LeftOut("give memory")
    places = torch.arange(T + 2, device=it.like.device)
    short = places < torch.tensor([[T + 2], [6], [2]], device=places.device)
    for is_real in (None, short):

        def attend(memory, is_real=is_real):
            mask = None if is_real is None else is_real.clone()
            return first(it.memory(it.tokens.clone(), memory, mask))

        wanted = (places >= 0) if is_real is None else is_real[:, None]
        wrong = (moved(attend, it.remembered) != wanted).any(dim=0)
        if wrong.any():
            raise Fails(f"rows read pads, or miss tokens: {pairs(wrong)}")

    def query(tokens):
        return first(it.memory(tokens, it.remembered.clone(), None))

    wrong = (moved(query, it.tokens) != it.may_read()).any(dim=0)
    if wrong.any():
        raise Fails(f"a nudge of a query changes wrong rows: {pairs(wrong)}")


# --8<-- [end:memory]


# --8<-- [start:state]
@probe("It writes in place (`&=`, `*=`) or keeps something: masks/combining")
def state(it):
    """A call changes no input, no parameter, no buffer, and no later call."""
    before, whole = held(it.module), it.rows(it.tokens)
    tokens, is_real = it.tokens.clone(), it.is_real("right")
    given = is_real.clone()
    if it.call is not None:
        it.call(tokens)
        it.rows(it.draw(1, T - 3, it.width))
    if it.padding is not None:
        it.padding(tokens, given)
    if not torch.equal(tokens, it.tokens):
        raise Fails("a call writes into the tokens that it is given")
    if not torch.equal(given, is_real):
        raise Fails("a call writes into the mask that it is given")
    for name, tensor in held(it.module).items():
        old = before.get(name, tensor)  # what is new, nobody had
        if not torch.equal(tensor.nan_to_num(), old.nan_to_num()):
            raise Fails(f"a call in eval mode changes {name}")
    compare(it.rows(it.tokens), whole, "the same call later differs")


def held(module):
    if module is None:
        return {}
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: one.detach().clone() for name, one in tensors}


@probe(
    "`F.dropout` and SDPA need `self.training`; then other probes fail, too: "
    "practice/dropout"
)
def modes(it):
    """Eval mode draws nothing; where nothing drops, training is the same."""
    whole = it.rows(it.tokens)
    compare(it.rows(it.tokens), whole, "two equal calls differ")
    if it.module is None:
        raise LeftOut("give module")
    it.module.train()
    try:
        training, again = it.rows(it.tokens), it.rows(it.tokens)
    finally:
        it.module.eval()
    if torch.equal(training, again):
        compare(training, whole, "train() changes rows, and nothing drops")


@contextlib.contextmanager
def eval_mode(module):
    parts = [] if module is None else list(module.modules())
    modes = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, training in zip(parts, modes):
            part.training = training


# --8<-- [end:state]


# --8<-- [start:gradients]
@probe("Something is detached, or goes through `.item()` or `.data`")
def gradients(it):
    """Gradients are those of difference quotients."""
    tokens = it.tokens.clone().requires_grad_()
    weights = [] if it.module is None else it.module.parameters()
    weights = [one for one in weights if one.requires_grad]
    rows = it.rows(tokens)
    slope = it.draw(*rows.shape)
    (rows * slope).sum().backward(inputs=[tokens, *weights])
    for name, leaves in (("tokens", [tokens]), ("parameters", weights)):
        ways = [it.draw(*one.shape).to(one) for one in leaves]
        ours = sum(
            (one.grad * way).sum().item()
            for one, way in zip(leaves, ways)
            if one.grad is not None
        )
        quotients = []
        for step in (4e-3, 1e-3, 3e-4):
            ends = []
            for end in (step, -step):
                with torch.no_grad(), shifted(leaves, ways, end):
                    ends.append((it.rows(tokens) * slope).sum().item())
            quotients.append((ends[0] - ends[1]) / (2 * step))
        spread = max(quotients) - min(quotients)
        if spread > 0.1 * abs(quotients[1]):
            raise LeftOut(f"its {name} have jumps, or it rounds")
        if not abs(ours - quotients[1]) <= 3 * spread + 1e-3 * abs(ours):
            raise Fails(
                f"{name}: gradient {ours:.4g}, quotient {quotients[1]:.4g}"
            )


@contextlib.contextmanager
def shifted(tensors, ways, step):
    before = [one.detach().clone() for one in tensors]
    for one, way in zip(tensors, ways):
        one.add_(way, alpha=step)
    try:
        yield
    finally:
        for one, old in zip(tensors, before):
            one.copy_(old)


# --8<-- [end:gradients]


# --8<-- [start:formats]
@probe("Scores or a fill are too large for a format: masks/combining")
@torch.no_grad()
def formats(it):
    """Large tokens stay finite; in 16 bits only rounding changes rows."""
    if it.module is None:
        raise LeftOut("give module")
    whole = it.rows(it.tokens)
    with in_dtype(it.module, torch.float32):
        if not it.rows(1000 * it.tokens.float()).isfinite().all():
            raise Fails("a thousandfold tokens give nan or infinity")
    for dtype, limit in LOW.items():
        with in_dtype(it.module, dtype):
            rows = it.rows(it.tokens.to(dtype))
        if rows.dtype != dtype:
            raise Fails(f"given {dtype}, it returns {rows.dtype}")
        off = size_of(rows.double() - whole.double()) / size_of(whole)
        if not off <= limit:
            raise Fails(f"in {dtype} outputs are {off:.0%} off")


@contextlib.contextmanager
def in_dtype(module, dtype):
    """The module in another dtype; then its own tensors again."""
    parts = [] if module is None else list(module.modules())
    kept = [(one, one.data) for part in parts for one in part.parameters()]
    buffers = [(part._buffers, dict(part._buffers)) for part in parts]
    if module is not None:
        module.to(dtype)
    try:
        yield
    finally:
        for one, data in kept:
            one.data, one.grad = data, None
        for now, before in buffers:
            now.update(before)


# --8<-- [end:formats]


# --8<-- [start:reference]
@probe(
    "The scale, a norm, the order of heads or of q, k, v, or the layout of "
    "the rotation differs: practice/fused-qkv, position/rope",
    exact=False,  # the reference may have parameters of its own, in float32
)
def reference(it):
    """Outputs and gradients are those of the reference."""
    if it.reference is None:
        raise LeftOut("give reference")
    ours, theirs = (it.tokens.clone().requires_grad_() for _ in range(2))
    rows, wanted = it.rows(ours), first(it.reference(theirs))
    compare(rows, wanted, "outputs differ")
    slope = it.draw(*rows.shape)
    found = torch.autograd.grad((rows * slope).sum(), ours)[0]
    expected = torch.autograd.grad((wanted * slope).sum(), theirs)[0]
    compare(found, expected, "outputs agree, and gradients differ")


# --8<-- [end:reference]


# --8<-- [start:pytest]
def each_probe(make):
    """A test for each probe of a report, which `make` returns."""
    import pytest

    made = functools.cache(make)

    @pytest.mark.parametrize("probe", [probe.name for probe in PROBES])
    def test(probe):
        report = made()
        if probe in report.left_out:
            pytest.skip(report.left_out[probe])
        assert probe not in report.failed, report.failed[probe]

    return test


def main(arguments):
    if len(arguments) != 1 or ":" not in arguments[0]:
        print("usage: python attention_probes.py my_file.py:build")
        return 2
    path, name = arguments[0].rsplit(":", 1)
    sys.path.insert(0, str(Path(path).parent.resolve()))
    build = getattr(importlib.import_module(Path(path).stem), name)
    report = check(**build())
    print(report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
# --8<-- [end:pytest]
