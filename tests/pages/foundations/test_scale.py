"""Scores grow like √D: the page against PyTorch and plain loops, its tables computed in other ways, and the bugs."""

import importlib.util
import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/scale"
PAGE, SOLUTION = p.page_code(SLUG, "attend"), p.page_code(SLUG, "solution")
SCALES = (None, 0.0, 1.0, 0.3)  # each is tried on every case


def roles(case):
    return case.randn(case.Tq, case.D), case.randn(case.Tk, case.D), case.randn(case.Tk, case.E)


CASES = p.sizes(Tq=4, Tk=5, D=6, E=3).map(roles)

# -- references ----------------------------------------------------------------------------------


def by_the_formula(queries, keys, values, scale=None):
    """One Python float at a time."""
    contexts = []
    for query in queries.tolist():
        factor = 1 / math.sqrt(len(query)) if scale is None else scale
        scores = [factor * sum(x * y for x, y in zip(query, key)) for key in keys.tolist()]
        weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        contexts.append([sum(a * x for a, x in zip(weights, column)) for column in zip(*values.tolist())])
    return torch.tensor(contexts, dtype=torch.float64)


def sdpa(queries, keys, values, scale=None):
    return F.scaled_dot_product_attention(queries, keys, values, scale=scale)


def multihead_attention(queries, keys, values, scale=None):
    """`nn.MultiheadAttention` with one head, no projections and, since it divides by √D, queries that are larger."""
    width = queries.shape[1]
    attention = nn.MultiheadAttention(width, num_heads=1, bias=False, dtype=torch.float64)
    eye = torch.eye(width, dtype=torch.float64)
    attention.load_state_dict({"in_proj_weight": eye.repeat(3, 1), "out_proj.weight": eye})
    queries = queries if scale is None else queries * scale * width**0.5
    weights = attention(queries, keys, keys)[1].detach()
    return weights @ values


@pytest.mark.parametrize("reference", [by_the_formula, sdpa, multihead_attention])
@pytest.mark.parametrize("scale", SCALES)
def test_the_page_computes_what_an_independent_reference_computes(reference, scale):
    p.equals_reference(lambda case: PAGE.scaled_attend(*case, scale), lambda case: reference(*case, scale), CASES)


# -- what holds for `attend` ---------------------------------------------------------------------


def equals_sdpa_by_default(attend):
    p.equals_reference(lambda case: attend(*case), lambda case: sdpa(*case), CASES)


def equals_sdpa_for_a_given_scale(attend):
    def all_scales(function):
        return lambda case: torch.stack([function(*case, scale) for scale in SCALES[1:]])

    p.equals_reference(all_scales(attend), all_scales(sdpa), CASES)


def random_scores_have_a_spread_of_1(attend):
    """The weights are taken from the output, and the scores, up to a constant for each query, from the weights."""
    generator = torch.Generator().manual_seed(0)
    for width in (4, 64, 256):
        queries, keys = (torch.randn(60, width, generator=generator, dtype=torch.float64) for _ in range(2))
        scores = attend(queries, keys, torch.eye(60, dtype=torch.float64)).log()
        assert 0.9 < (scores - scores.mean(dim=-1, keepdim=True)).std() < 1.1


def stateless(attend):
    p.stateless(lambda case: (attend, case, [tensor.flip(0) for tensor in case]), CASES)


def finite_for_large_scores(attend):
    p.finite_rows(lambda case: attend(1e5 * case[0], case[1], case[2]), CASES)


PROPERTIES = [
    equals_sdpa_by_default,
    equals_sdpa_for_a_given_scale,
    random_scores_have_a_spread_of_1,
    stateless,
    finite_for_large_scores,
]


@pytest.mark.parametrize("holds", PROPERTIES)
def test_the_page_has_the_property(holds):
    holds(PAGE.scaled_attend)


def test_the_page_runs_on_another_device_than_the_default():
    queries, keys, values = (torch.empty(*shape, device="meta") for shape in ((4, 6), (5, 6), (5, 3)))
    assert PAGE.scaled_attend(queries, keys, values).is_meta


def test_the_scales_that_the_check_hides_lie_where_the_page_says():
    found = []
    p.verdict(SOLUTION.check_scale, lambda a, d: found.append(a.__defaults__[0]) or SOLUTION.find_scale(a, d))
    assert (min(found), max(found)) == (1 / 256, 5)


# -- what the page says of its tables --------------------------------------------------------------


def spread(scores):
    return np.std(scores, ddof=1)


def drawn(*shape):
    return torch.randn(*shape).double().cpu().numpy()


@pytest.fixture(scope="module")
def saturation():
    """By width and scale: the weights of 2000 queries, the largest first, from the numbers that the cell draws."""
    torch.manual_seed(0)
    rows = {}
    for width in (4, 64, 1024):
        queries, keys = torch.randn(2000, 1, width), torch.randn(2000, 16, width)
        products = torch.einsum("bd,btd->bt", queries[:, 0], keys).double()
        for scale in (1.0, width**-0.5):
            rows[width, scale] = (products * scale).softmax(dim=-1).sort(dim=-1, descending=True).values
    return rows


def test_three_queries_in_four_have_settled_and_with_the_scale_none_has(saturation):
    above = {key: (rows[:, 0] > 0.99).double().mean().item() for key, rows in saturation.items()}
    assert f"{above[1024, 1.0]:.0%}" == "77%"
    assert f"{saturation[1024, 1.0][:, 0].mean():.2f}" == "0.96"
    assert [above[width, width**-0.5] for width in (4, 64, 1024)] == [0, 0, 0]


def test_the_derivative_of_a_weight_is_hundreds_of_times_larger_with_the_scale(saturation):
    scores = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = scores.softmax(dim=0)
    p.close(torch.func.jacrev(lambda row: row.softmax(dim=0))(scores).diagonal(), weights * (1 - weights))
    slopes = {key: (rows[:, 0] * (1 - rows[:, 0])).sort().values[999] for key, rows in saturation.items()}
    reaches = slopes[1024, 1 / 32] / 32
    assert f"{reaches:.3f}" == "0.005"
    assert 200 < reaches / slopes[1024, 1.0] < 1000


def test_the_picture_shows_the_weights_of_the_cell(saturation):
    text = (p.ROOT / "docs/assets/scale-saturation.svg").read_text(encoding="utf-8")
    bars = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" [^>]*height="([\d.]+)"[^>]*class="accent"/>', text)
    panels = {}
    for x, y, height in bars:
        panels.setdefault((round(float(y) + float(height)), float(x) > 550), []).append(float(height) / 76)
    assert len(panels) == 6
    for panel, rows in zip(panels.values(), saturation.values()):
        missing = [0.0] * (16 - len(panel))
        assert panel + missing == pytest.approx(rows.mean(dim=0).tolist(), abs=1e-3)


def test_scale_1_gives_the_contexts_of_the_page_before():
    before, names = p.page_code("foundations/weighted-average", "contexts"), p.page_code(SLUG, "reduce")
    assert torch.equal(names.inputs, before.inputs)
    assert torch.equal(PAGE.scaled_attend(*[names.inputs] * 3, scale=1.0), before.context)


# -- the claims of the page ----------------------------------------------------------------------


def test_a_ratio_of_79_trillion():
    assert f"{math.exp(32) / 1e12:.0f}" == "79"


@pytest.mark.parametrize("width", [2, 12])
def test_the_width_of_the_values_has_no_part_in_the_scale_of_torch(width):
    assert SOLUTION.find_scale(lambda q, k, v: sdpa(q, k, v.repeat(1, width // 2)), 64) == pytest.approx(
        1 / 8, rel=1e-3
    )


def test_heads_four_times_as_wide_with_the_old_scale_have_a_spread_of_2():
    torch.manual_seed(0)
    assert spread(drawn(500, 256) @ drawn(600, 256).T) / 8 == pytest.approx(2, rel=0.01)


def test_multihead_attention_has_no_scale_and_takes_the_width_of_its_heads():
    assert not any("scale" in name for name in inspect.signature(nn.MultiheadAttention).parameters)
    width, heads = 12, 3
    attention = nn.MultiheadAttention(width, heads, bias=False, dtype=torch.float64)
    eye = torch.eye(width, dtype=torch.float64)
    attention.load_state_dict({"in_proj_weight": eye.repeat(3, 1), "out_proj.weight": eye})
    tokens = torch.randn(5, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    split = tokens.view(5, heads, -1).transpose(0, 1)
    for need_weights in (True, False):
        context, _ = attention(tokens, tokens, tokens, need_weights=need_weights)
        p.close(context, sdpa(split, split, split, scale=0.5).transpose(0, 1).reshape(5, width))


def test_queries_that_grow_in_training_make_up_for_a_wrong_scale():
    """The bug of the lecture, √(384/64) too small a scale, and queries larger by as much."""

    def grown(case):
        queries, keys, values = case
        return PAGE.scaled_attend(queries * 6**0.5, keys, values, (6 * queries.shape[1]) ** -0.5)

    p.equals_reference(grown, lambda case: sdpa(*case), CASES)


# -- transformers ----------------------------------------------------------------------------------

MODELS = Path(importlib.util.find_spec("transformers").origin).parent / "models"


def source(model, name):
    """The text of a class in the modeling file of a model."""
    text = (MODELS / model / f"modeling_{model}.py").read_text(encoding="utf-8")
    return re.search(rf"^class {name}\(.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)[0]


def test_how_many_modeling_files_scale_by_the_root_of_the_width_of_a_head():
    files = list(MODELS.glob("*/modeling_*.py"))
    found = [file for file in files if "self.scaling = self.head_dim**-0.5\n" in file.read_text(encoding="utf-8")]
    assert (len(found), len(files)) == (244, 530)
    assert MODELS / "llama/modeling_llama.py" in found


@pytest.mark.parametrize("model", ["gemma3n", "gemma4"])
def test_gemma_normalises_queries_and_keys_and_scales_by_1(model):
    name = f"{model.capitalize()}TextAttention"
    assert {"self.q_norm(", "self.k_norm(", "self.scaling = 1.0\n"} <= set(
        re.findall(r"self\.[qk]_norm\(|self\.scaling = .*\n", source(model, name))
    )
    assert "torch.ones(dim)" in source(model, f"{model.capitalize()}RMSNorm")


def test_inkling_normalises_queries_and_keys_and_scales_by_one_over_the_width():
    text = source("inkling", "InklingAttention")
    assert "self.q_norm(" in text
    assert "self.k_norm(" in text
    assert "self.scaling = 1.0 / self.head_dim\n" in text


def test_t5_scales_by_1_and_draws_smaller_queries():
    assert "self.scaling = 1.0\n" in source("t5", "T5Attention")
    text = source("t5", "T5PreTrainedModel")
    assert "init.normal_(module.q.weight, mean=0.0, std=factor * ((d_model * key_value_proj_dim) ** -0.5))" in text
    assert "init.normal_(module.k.weight, mean=0.0, std=factor * (d_model**-0.5))" in text


def test_opt_scales_its_queries_and_passes_1_to_the_attention_function():
    text = source("opt", "OPTAttention")
    assert "self.q_proj(hidden_states) * self.scaling\n" in text
    assert "scaling=1.0,\n" in text


# -- the exercise --------------------------------------------------------------------------------


def finds_any_scale(find_scale):
    def prove(case):
        width, scale = case
        found = find_scale(lambda queries, keys, values: sdpa(queries, keys, values, scale), width)
        assert found == pytest.approx(scale, rel=5e-3)

    p.for_all(st.tuples(st.integers(1, 300), st.floats(0.002, 8)), prove)


def test_the_solution_finds_any_scale():
    finds_any_scale(SOLUTION.find_scale)


@pytest.mark.parametrize("factor", [0.995, 1.005])
def test_a_scale_within_1_percent_is_right(factor):
    verdict = p.verdict(SOLUTION.check_scale, lambda a, d: factor * SOLUTION.find_scale(a, d))
    assert verdict == "correct: 6 checks pass\n"


def pair(attention, width, size=1.0):
    """The two weights of a query, the first key pointing its way and the second zero."""
    queries, keys = torch.zeros(1, width), torch.zeros(2, width)
    queries[0, 0], keys[0, 0] = size, size
    first, second = attention(queries, keys, torch.eye(2))[0].tolist()
    return first, second


def right(attention, width):
    first, second = pair(attention, width)
    return math.log(first / second)


def by_its_derivative(attention, width):
    """Where both weights are a half, the slope of the first is a quarter of the scale."""
    query = torch.zeros(1, width, requires_grad=True)
    keys = torch.zeros(2, width)
    keys[0, -1] = 1.0
    attention(query, keys, torch.tensor([[1.0], [0.0]])).sum().backward()
    return 4 * query.grad[0, -1].item()


def by_bisection(attention, width):
    queries, keys, values = torch.ones(1, width), torch.cat([torch.zeros(1, width), torch.ones(1, width)]), torch.eye(2)
    queries = queries / width
    target, low, high = attention(queries, keys, values)[0, 1].item(), 1e-4, 20.0
    while high > low * 1.0001:
        middle = (low + high) / 2
        low, high = (middle, high) if sdpa(queries, keys, values, middle)[0, 1].item() < target else (low, middle)
    return low


def by_least_squares(attention, width):
    torch.manual_seed(1)
    queries, keys = F.normalize(torch.randn(9, width), dim=-1), F.normalize(torch.randn(8, width), dim=-1)
    weights = attention(queries, keys, torch.eye(8)).log()
    products = queries @ keys.T
    x, y = (products - products[:, :1]).flatten(), (weights - weights[:, :1]).flatten()
    return float((x @ y) / (x @ x))


def with_random_vectors(attention, width):
    """Fine where the scores are small, 0 divided by 0 where they are not."""
    torch.manual_seed(0)
    queries, keys = 9 * torch.randn(1, width), torch.randn(2, width)
    first, second = attention(queries, keys, torch.eye(2))[0]
    return float((first / second).log() / (queries @ (keys[0] - keys[1])))


def in_half_precision(attention, width):
    first, second = torch.tensor(pair(attention, width), dtype=torch.bfloat16)
    return (first / second).log().item()


def with_ones(attention, width):
    keys = torch.cat([torch.ones(1, width), torch.zeros(1, width)])
    first, second = attention(torch.ones(1, width) / 4, keys, torch.eye(2))[0].tolist()
    return math.log(first / second)


def nearest_convention(attention, width):
    found = right(attention, width)
    return min((1.0, width**-0.5, 1 / width), key=lambda scale: abs(math.log(scale / found)))


def one_key(attention, width):
    context = attention(torch.ones(1, width), torch.ones(1, width), torch.ones(1, 1))
    return math.log(context.item())


RIGHT = {
    "logarithm of a ratio": right,
    "derivative": by_its_derivative,
    "bisection": by_bisection,
    "least squares": by_least_squares,
    "larger vectors": lambda a, d: math.log(pair(a, d, 1.5)[0] / pair(a, d, 1.5)[1]) / 2.25,
    "logit": lambda a, d: torch.logit(torch.tensor(pair(a, d)[0])).item(),
}
WRONG = {
    "returns None": lambda a, d: None,
    "root of the width": lambda a, d: d**-0.5,
    "one over the width": lambda a, d: 1 / d,
    "always 1": lambda a, d: 1.0,
    "always an eighth": lambda a, d: 0.125,
    "infinite": lambda a, d: math.inf,
    "nan": lambda a, d: math.nan,
    "a tensor": lambda a, d: torch.tensor(right(a, d)),
    "a list": lambda a, d: [right(a, d)],
    "a string": lambda a, d: f"{right(a, d)}",
    "the weight": lambda a, d: pair(a, d)[0],
    "the ratio": lambda a, d: pair(a, d)[0] / pair(a, d)[1],
    "logarithm of one weight": lambda a, d: -math.log(pair(a, d)[1]),
    "difference of the weights": lambda a, d: pair(a, d)[0] - pair(a, d)[1],
    "first order only": lambda a, d: 2 * (pair(a, d)[0] - pair(a, d)[1]),
    "logarithm to base 2": lambda a, d: right(a, d) / math.log(2),
    "logarithm to base 10": lambda a, d: right(a, d) / math.log(10),
    "another sign": lambda a, d: -right(a, d),
    "inverse": lambda a, d: 1 / right(a, d),
    "square": lambda a, d: right(a, d) ** 2,
    "square root": lambda a, d: right(a, d) ** 0.5,
    "relative to the default": lambda a, d: right(a, d) * d**0.5,
    "two decimals": lambda a, d: round(right(a, d), 2),
    "1 at most": lambda a, d: min(right(a, d), 1.0),
    "score of 2 not divided out": lambda a, d: math.log(pair(a, d, 2**0.5)[0] / pair(a, d, 2**0.5)[1]),
    "score of a millionth": lambda a, d: 1e6 * math.log(pair(a, d, 1e-3)[0] / pair(a, d, 1e-3)[1]),
    "large random vectors": with_random_vectors,
    "ones, score not divided out": with_ones,
    "half precision": in_half_precision,
    "nearest convention": nearest_convention,
    "one key": one_key,
    "same keys": lambda a, d: math.log(a(torch.ones(1, d), torch.ones(2, d), torch.eye(2))[0, 0].item() * 2),
    "2 percent too large": lambda a, d: 1.02 * right(a, d),
    "2 percent too small": lambda a, d: 0.98 * right(a, d),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_scale", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "only `D` is read, and queries and keys share it": ["Tq, D = keys.shape"],
    "a matrix has two axes: 1 is the last": ["weights = torch.softmax(scores, dim=1)"],
}
ACCEPTED = {
    "row 0 of `keys` is that query": ["weights = attention(keys, keys, torch.eye(2))[0]"],
    "it is the softmax of the module that is measured that overflows": ["exponentials that overflow"],
}
