"""The kit says nothing of healthy modules, and finds planted bugs; it leaves everything as it was."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertConfig, DynamicCache, LlamaConfig

from snippets import attention_probes as kit
from tests.kit.attention import WIDTH, Attention, report
from tests.pages.properties import ROOT


class Bidirectional(Attention):
    causal = False


class Window(Attention):
    window = 3


def within(window):
    return lambda T: torch.ones(T, T, dtype=torch.bool).tril().triu(1 - window)


def broken(kind=Attention, **methods):
    return type("Broken", (kind,), methods)


# -- healthy modules -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Attention, Bidirectional, Window])
def test_a_healthy_module_passes_each_probe_that_applies(kind):
    options = {"visible": within(3)} if kind is Window else {}
    found = report(kind, kind, **options)
    assert found.failed == {}
    assert found.left_out.keys() == {"memory"} | ({"prefix", "steps"} if kind is Bidirectional else set())


def multihead(causal):
    """`nn.MultiheadAttention` as the kit takes it."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def padding(tokens, is_real=None):
        T = tokens.shape[1]
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
        pads = None if is_real is None else ~is_real
        return module(tokens, tokens, tokens, key_padding_mask=pads, attn_mask=hidden)

    return module, padding


@pytest.mark.parametrize("causal", [False, True])
def test_of_multihead_attention_it_finds_the_nan_of_empty_rows_and_nothing_else(causal):
    module, call = multihead(causal)
    found = kit.check(call, width=WIDTH, causal=causal, module=module, padding=call)
    assert found.failed.keys() == {"empty"}
    assert found.failed["empty"].endswith(
        "are nan or infinite. A softmax over no key is nan, and spreads: masks/combining"
    )


def test_causal_either_takes_a_module_for_what_it_does():
    for causal in (False, True):
        module, call = multihead(causal)
        assert kit.check(call, width=WIDTH, causal="either", module=module).failed == {}


def test_pure_cross_attention_needs_no_other_call():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, 4, kdim=12, vdim=12, batch_first=True)

    def memory(tokens, memory, is_real):
        return module(tokens, memory, memory, key_padding_mask=None if is_real is None else ~is_real)

    found = kit.check(memory=memory, memory_width=12, width=WIDTH, module=module)
    assert found.failed == {}
    assert {"memory", "batch", "state", "modes", "gradients", "formats"} <= found.passed.keys()


SMALL = {"vocab_size": 32, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "max_position_embeddings": 64}


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_llama_passes_with_its_cache_and_padding(implementation):
    torch.manual_seed(0)
    config = LlamaConfig(**SMALL, num_key_value_heads=2)
    model = AutoModel.from_config(config, attn_implementation=implementation)

    def call(tokens, is_real=None, cache=None):
        options = {"attention_mask": is_real, "past_key_values": cache, "use_cache": cache is not None}
        return model(inputs_embeds=tokens, **options).last_hidden_state

    def cache():
        held = DynamicCache(config=config)
        return lambda chunk: call(chunk, cache=held)

    found = kit.check(call, width=WIDTH, causal=True, module=model, padding=call, cache=cache)
    assert found.failed == {}


def test_a_bert_whose_positions_count_pads_fails_on_the_left_alone():
    torch.manual_seed(0)
    model = AutoModel.from_config(BertConfig(**SMALL))

    def call(tokens, is_real=None):
        return model(inputs_embeds=tokens, attention_mask=is_real).last_hidden_state

    found = kit.check(call, width=WIDTH, module=model, padding=call)
    assert found.failed.keys() == {"pads_left"}
    assert kit.check(call, width=WIDTH, module=model, padding=call, pads=("right",)).failed == {}


# -- planted bugs: what each replaces, and probes that must find it --------------------------------


def softmax_along(dim):
    return lambda self, scores, visible: scores.masked_fill(~visible, -1e30).softmax(dim).masked_fill(~visible, 0)


def fill(number):
    return lambda self, scores, visible: scores.masked_fill(~visible, number).softmax(dim=-1)


def changed_roles(change):
    return lambda self, tokens: change(*Attention.roles(self, tokens))


def pairs(self, heads, places):
    D = heads.shape[-1]
    angles = places * 100.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    left, right = heads[..., ::2], heads[..., 1::2]
    return torch.stack([left * cos - right * sin, right * cos + left * sin], dim=-1).flatten(-2)


def mask_in_place(self, visible, is_real):
    is_real[:, 1:] &= is_real[:, :-1].clone()
    return visible & is_real[:, None, None]


def counting(self, tokens):
    self.register_buffer("calls", getattr(self, "calls", torch.zeros(())) + 1)
    return Attention.roles(self, tokens)


def exponentials(self, scores, visible):
    shares = scores.exp() * visible
    return shares / (shares.sum(dim=-1, keepdim=True) + 1e-30)


def later_values_first(self, cache, keys, values):
    if cache:
        keys, values = torch.cat([cache["keys"], keys], dim=2), torch.cat([values, cache["values"]], dim=2)
    cache |= {"keys": keys, "values": values}
    return keys, values


def triangle(shift):
    return lambda self, Tq, Tk: torch.ones(Tq, Tk, dtype=torch.bool).tril(Tk - Tq + shift)


def from_the_top_left(self, Tq, Tk):
    return torch.ones(Tq, Tk, dtype=torch.bool).tril()


def none_with_a_cache(self, Tq, Tk):
    return torch.ones(Tq, Tk, dtype=torch.bool).tril() if Tq == Tk else torch.ones(Tq, Tk, dtype=torch.bool)


def cut_by_view(self, projected, H):
    return projected.reshape(len(projected), H, projected.shape[1], -1)


def merged_by_view(self, context):
    return context.reshape(len(context), context.shape[2], -1)


BUGS = {
    "softmax over the queries": ({"weigh": softmax_along(-2)}, {"future", "steps"}),
    "softmax over the heads": ({"weigh": softmax_along(1)}, {"reference"}),
    "softmax over the batch": ({"weigh": softmax_along(0)}, {"batch"}),
    "masked after the softmax": ({"weigh": lambda self, s, v: s.softmax(dim=-1) * v}, {"future"}),
    "masked_fill thrown away": ({"weigh": lambda self, s, v: s.softmax(dim=-1)}, {"future"}),
    "hidden by -20": ({"weigh": fill(-20.0)}, {"future"}),
    "hidden by a small number": ({"weigh": fill(1e-9)}, {"future"}),
    "hidden by -1e9, too large for float16": ({"weigh": fill(-1e9)}, {"formats"}),
    "hidden by minus infinity, nan in empty rows": ({"weigh": fill(-torch.inf)}, {"empty"}),
    "exponentials that overflow": ({"weigh": exponentials}, {"formats"}),
    "weights that add up to 0.9": ({"weigh": lambda self, *s: 0.9 * Attention.weigh(self, *s)}, {"reference"}),
    "no scale": ({"scale": lambda self: 1.0}, {"reference"}),
    "the scale of the whole width": ({"scale": lambda self: WIDTH**-0.5}, {"reference"}),
    "the scale twice": ({"scale": lambda self: 1 / 8}, {"reference"}),
    "a scale that grows with the length": (
        {"weigh": lambda self, s, v: Attention.weigh(self, s * s.shape[-1] ** 0.1, v)},
        {"prefix", "steps"},
    ),
    "shared heads in tiles": ({"repeat": lambda self, heads: heads.repeat(1, 2, 1, 1)}, {"reference"}),
    "heads of the queries in another order": (
        {"roles": changed_roles(lambda q, k, v: (q.flip(1), k, v))},
        {"reference"},
    ),
    "keys and values exchanged": ({"roles": changed_roles(lambda q, k, v: (q, v, k))}, {"reference"}),
    "keys as values": ({"roles": changed_roles(lambda q, k, v: (q, k, k))}, {"reference"}),
    "keys detached": ({"roles": changed_roles(lambda q, k, v: (q, k.detach(), v))}, {"gradients"}),
    "weights detached": ({"drop": lambda self, weights: weights.detach()}, {"gradients"}),
    "heads cut by view": ({"split": cut_by_view}, {"future", "reads"}),
    "heads merged by view": ({"merge": merged_by_view}, {"future"}),
    "rotation of pairs, weights of halves": ({"rotate": pairs}, {"reference"}),
    "no offset with a cache": (
        {"places": lambda self, tokens, past, is_real: Attention.places(self, tokens, 0, is_real)},
        {"steps"},
    ),
    "no triangle": ({"causal": True, "visible": lambda self, Tq, Tk: torch.ones(Tq, Tk) > 0}, {"future"}),
    "the triangle one more": ({"visible": triangle(1)}, {"future"}),
    "the triangle one less": ({"visible": triangle(-1)}, {"reads"}),
    "the triangle turned round": (
        {"visible": lambda self, Tq, Tk: torch.ones(Tq, Tk).triu(Tk - Tq) > 0},
        {"future", "reads"},
    ),
    "the triangle of a chunk from the top left": ({"visible": from_the_top_left}, {"steps"}),
    "no mask with a cache": ({"visible": none_with_a_cache}, {"steps"}),
    "values of the last chunk first": ({"keep": later_values_first}, {"steps"}),
    "one cache for all texts": (
        {"keep": lambda self, cache, k, v, one={}: Attention.keep(self, one, k, v)},
        {"steps"},
    ),
    "padding mask ignored": ({"with_pads": lambda self, visible, is_real: visible}, {"pads_left"}),
    "padding mask inverted": ({"with_pads": lambda self, v, is_real: v & ~is_real[:, None, None]}, {"pads_right"}),
    "padding mask on the queries": ({"with_pads": lambda self, v, r: v & r[:, None, :, None]}, {"pads_left"}),
    "padding mask changed in place": ({"with_pads": mask_in_place}, {"pads_left"}),
    "dropout in eval mode": ({"drop": lambda self, weights: torch.dropout(weights, 0.1, True)}, {"modes", "state"}),
    "a buffer that counts calls": ({"roles": counting}, {"state"}),
    "a norm over the tokens": (
        {"roles": lambda self, tokens: Attention.roles(self, tokens / (1 + tokens.mean(dim=1, keepdim=True).abs()))},
        {"future", "prefix"},
    ),
    "batch and tokens exchanged": (
        {"roles": lambda self, x: Attention.roles(self, x.transpose(0, 1).reshape(x.shape))},
        {"batch", "future"},
    ),
    "float32 whatever comes in": ({"merge": lambda self, c: c.transpose(1, 2).flatten(2).float()}, {"formats"}),
}
IN_BOTH_DIRECTIONS = {
    "softmax over the queries": ({"weigh": softmax_along(-2)}, {"pads_right"}),
    "padding mask inverted": ({"with_pads": lambda self, v, is_real: v & ~is_real[:, None, None]}, {"pads_right"}),
    "heads cut and merged by view": ({"split": cut_by_view, "merge": merged_by_view}, {"reads"}),
    "a triangle left on": ({"visible": triangle(0)}, {"reads"}),
}
NO_PROBE_SEES = {
    "positions that count pads, under a rotation": {
        "places": lambda self, tokens, past, is_real: Attention.places(self, tokens, past, None)
    },
    "float32 inside, and back": {"roles": changed_roles(lambda q, k, v: (q.float().to(q.dtype), k, v))},
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name):
    methods, probes = BUGS[name]
    assert probes <= report(broken(**methods)).failed.keys()


@pytest.mark.parametrize("name", IN_BOTH_DIRECTIONS)
def test_a_bug_planted_where_rows_read_in_both_directions_is_found(name):
    methods, probes = IN_BOTH_DIRECTIONS[name]
    assert probes <= report(broken(Bidirectional, **methods), Bidirectional).failed.keys()


@pytest.mark.parametrize(("window", "probe"), [(4, "future"), (2, "reads"), (None, "future")])
def test_a_window_that_is_one_off_or_missing_is_found(window, probe):
    assert probe in report(broken(window=window), Window, visible=within(3)).failed


@pytest.mark.parametrize("name", NO_PROBE_SEES)
def test_what_no_probe_sees(name):
    assert report(broken(**NO_PROBE_SEES[name])).failed == {}


@pytest.mark.parametrize("bug", ["inputs for the memory", "pads read", "queries mixed"])
def test_bugs_of_a_memory_are_found(bug):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def memory(tokens, memory, is_real):
        if bug == "queries mixed":
            tokens = tokens + tokens.mean(dim=1, keepdim=True)
        pads = None if is_real is None or bug == "pads read" else ~is_real
        source = tokens[:, [0]].expand_as(memory) if bug == "inputs for the memory" else memory
        return module(tokens, source, source, key_padding_mask=pads)

    assert "memory" in kit.check(memory=memory, width=WIDTH).failed


# -- what people see -------------------------------------------------------------------------------


def test_an_exception_is_a_failure_with_its_words_and_harms_no_other_probe():
    def padding(tokens, is_real):
        raise KeyError("no mask here")

    found = report(padding=padding)
    assert found.failed.keys() == {"pads_right", "pads_left", "empty", "state"}
    assert found.failed["empty"].startswith("KeyError: 'no mask here' at test_attention_probes.py:")


def test_a_failure_says_what_moved_by_how_much_and_where_to_read():
    said = report(broken(visible=triangle(1))).failed["future"]
    assert "row 0 token 1, row 1 token 2, row 2 token 3 ... (10 of 121 pairs)" in said
    assert said.endswith("foundations/causal")


def test_outputs_that_are_zero_are_told_apart_from_a_mask():
    module = Attention()
    nn.init.zeros_(module.to_output.weight)
    assert "are the last weights still 0?" in kit.check(module, width=WIDTH, causal=True).failed["reads"]


def test_a_report_is_narrow_and_says_once_why_probes_are_left_out():
    lines = str(kit.check(Attention().eval(), width=WIDTH, causal=True)).splitlines()
    assert max(map(len, lines)) < 80
    assert lines[0] == "passed    future, reads, prefix, batch, state, modes, gradients, formats"
    assert lines[1] == "left out  pads_right, pads_left, empty: give padding; steps: give cache;"
    lines = str(kit.check(lambda tokens: tokens, width=WIDTH)).splitlines()
    assert "modes, formats: give module" in " ".join(map(str.strip, lines))


def test_a_call_that_is_a_module_is_taken_for_the_module():
    module = Attention()
    module.train()
    assert {"modes", "formats"} <= kit.check(module, width=WIDTH, causal=True).passed.keys()
    assert module.training


def test_modes_dtypes_gradients_and_the_global_generator_are_left_as_they_were():
    module = Attention()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    torch.manual_seed(3)
    kit.check(module, width=WIDTH, causal=True, module=module, padding=module)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))
    assert module.training
    assert all(one.grad is None for one in module.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r'^causal=1\.5: give True, False or "either"$'):
        kit.check(Attention(), width=WIDTH, causal=1.5)
    with pytest.raises(ValueError, match="give call, a function of tokens, or memory"):
        kit.check(width=WIDTH)


def test_each_probe_is_a_test_of_pytest():
    test = kit.each_probe(lambda: report(broken(visible=triangle(1))))
    assert test.pytestmark[0].args == ("probe", [probe.name for probe in kit.PROBES])
    test("batch")
    with pytest.raises(AssertionError, match=r"^rows change with hidden tokens: "):
        test("future")
    with pytest.raises(pytest.skip.Exception, match=r"^give memory$"):
        test("memory")


MINE = """
import torch

def running_mean(tokens):
    return tokens.cumsum(dim=1) / torch.arange(1, tokens.shape[1] + 1)[:, None].to(tokens)

def build():
    return {"call": running_mean, "width": 8}
"""


def test_a_file_of_ones_own_is_checked_from_the_command_line(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    command = [sys.executable, ROOT / "snippets/attention_probes.py", f"{tmp_path}/mine.py:build"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("failed    reads: rows do not change with tokens: row 0 token 1, ")
    assert kit.main(["mine.py"]) == 2


def test_a_reference_keeps_its_own_parameters_and_dtype():
    module, other = Attention(), Attention()
    other.load_state_dict(module.state_dict())
    assert "reference" in kit.check(module, width=WIDTH, causal=True, reference=other.eval()).passed


def test_an_exception_names_the_line_of_the_module_and_none_of_torch():
    def call(tokens):
        return torch.cat([tokens, tokens[..., :3]], dim=1)  # the line

    lines = Path(__file__).read_text("utf-8").splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith("# the line"))
    said = kit.check(call, width=WIDTH).failed["batch"]
    assert said.startswith("RuntimeError: Sizes of tensors must match")
    assert said.endswith(f" at test_attention_probes.py:{number}")
