"""Scores grow like √D: what the page says of its tables and of its figure, of torch and of models in transformers."""

import importlib.util
import inspect
import json
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

from tests.pages import properties as p
from tests.pages.exercise import Exercise

SLUG = "foundations/scale"
PAGE, SOLUTION = p.page_code(SLUG, "attend"), p.page_code(SLUG, "solution")
sdpa = F.scaled_dot_product_attention

# -- what the page says of its tables, and its figure ----------------------------------------------


@pytest.fixture(scope="module")
def saturation():
    """By width and scale: the weights of 2000 queries, the largest first, from the numbers that the cell draws."""
    rows = {}
    for width in (4, 64, 1024):
        torch.manual_seed(0)
        queries, keys = torch.randn(2000, 1, width), torch.randn(2000, 16, width)
        products = torch.einsum("bd,btd->bt", queries[:, 0], keys).double()
        for scale in (1.0, width**-0.5):
            rows[width, scale] = (products * scale).softmax(dim=-1).sort(dim=-1, descending=True).values
    return rows


def test_three_queries_in_four_have_settled_and_with_the_scale_none_has(saturation):
    above = {key: (rows[:, 0] > 0.99).double().mean().item() for key, rows in saturation.items()}
    assert f"{above[1024, 1.0]:.0%}" == "76%"
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


def test_the_figure_shows_the_weights_of_the_cell(saturation):
    stored = json.loads((p.ROOT / "verified/explorers/head-width.json").read_text(encoding="utf-8"))
    shown = {(case["D"], case["state"]["scale"]): case for case in stored["cases"]}
    for (width, scale), rows in saturation.items():
        case = shown[width, "none" if scale == 1.0 else "root"]
        assert case["weights"] == pytest.approx(rows.mean(dim=0).tolist(), abs=1e-5)
        assert case["summary"][1] == pytest.approx(rows[:, 0].mean().item(), abs=1e-5)
    assert [case["D"] for case in stored["cases"][3::3]] == [4, 8, 16, 32, 128, 256, 512, 1024]


# -- the claims of the page ------------------------------------------------------------------------


def test_a_ratio_of_79_trillion():
    assert f"{math.exp(32) / 1e12:.0f}" == "79"


def test_the_width_of_the_values_has_no_part_in_the_scale_of_torch():
    assert SOLUTION.find_scale(lambda q, k, v: sdpa(q, k, v.repeat(1, 6)), 64) == pytest.approx(1 / 8, rel=1e-3)


def test_queries_four_times_as_wide_with_the_old_scale_have_a_deviation_of_2():
    torch.manual_seed(0)
    assert (torch.randn(500, 256) @ torch.randn(600, 256).T / 8).std().item() == pytest.approx(2, rel=0.01)


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

    def prove(case):
        queries, keys, values = (case.randn(size, 6) for size in (case.Tq, case.Tk, case.Tk))
        grown = PAGE.scaled_attend(queries * 6**0.5, keys, values, (6 * 6) ** -0.5)
        p.close(grown, sdpa(queries, keys, values))

    p.for_all(p.sizes(Tq=4, Tk=5), prove)


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


def test_the_solution_finds_any_scale():
    def prove(case):
        width, scale = case
        found = SOLUTION.find_scale(lambda queries, keys, values: sdpa(queries, keys, values, scale=scale), width)
        assert found == pytest.approx(scale, rel=5e-3)

    p.for_all(st.tuples(st.integers(1, 300), st.floats(0.002, 8)), prove)


def test_the_scales_that_the_check_hides_lie_where_the_page_says():
    found = []
    p.verdict(SOLUTION.check_scale, lambda a, d: found.append(a.__defaults__[0]) or SOLUTION.find_scale(a, d))
    assert (min(found), max(found)) == (1 / 256, 5)


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


def in_half_precision(attention, width):
    first, second = torch.tensor(pair(attention, width), dtype=torch.bfloat16)
    return (first / second).log().item()


def nearest_convention(attention, width):
    found = right(attention, width)
    return min((1.0, width**-0.5, 1 / width), key=lambda scale: abs(math.log(scale / found)))


RIGHT = {
    "logarithm of a ratio": right,
    "derivative": by_its_derivative,
    "half a percent too large": lambda a, d: 1.005 * right(a, d),
}
WRONG = {
    "half precision": in_half_precision,
    "nearest convention": nearest_convention,
    "2 percent too small": lambda a, d: 0.98 * right(a, d),
    "score of a millionth": lambda a, d: 1e6 * math.log(pair(a, d, 1e-3)[0] / pair(a, d, 1e-3)[1]),
}


class TestExercise(Exercise):
    SLUG, CHECK, RIGHT, WRONG = SLUG, "check_scale", RIGHT, WRONG


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "only `D` is read, and queries and keys share it": ["Tq, D = keys.shape"],
    "a matrix has two axes: 1 is the last": [
        "weights = torch.softmax(scores, dim=1)",
        "largest = weights.amax(dim=1)",
    ],
    "no weight is 0.99 exactly": ["above = (largest >= 0.99).float()"],
}
ACCEPTED = {
    "row 0 of `keys` is that query": ["weights = attention(keys, keys, torch.eye(2))[0]"],
    "it is the softmax of the module that is measured that overflows": ["exponentials that overflow"],
}
