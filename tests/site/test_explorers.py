"""Where explorers stand, what they begin with, and what is refused."""

import json
import math
import re

import pytest
from jinja2 import DictLoader, Environment

from tests.configuration import ROOT
from tools.cells.source import SourceError, read_cells
from tools.figures import explorers as torch_side
from tools.figures import shape_tracer
from tools.site import tree
from tools.site.explorers import drawing, show, words

TRACED = [
    ("shapes", "foundations/shapes"),
    ("one-head", "foundations/one-head"),
    ("many-heads", "foundations/many-heads"),
    ("cross-attention", "cross/cross-attention"),
    ("einsum", "practice/einsum"),
]
LINK = '<p><a href="#{0}" id="{0}" state="{1}">Move it</a></p>'
PAGE = '<p><a href="#a-figure" id="a-figure">Move it</a></p>\n<p><a href="#a-figure">There</a> it is.</p>'


@pytest.fixture
def draw(tmp_path):
    cases = [{"state": {"x": "1", "y": "2"}, "numbers": [1.5]}, {"state": {"x": "3", "y": "2"}, "numbers": [math.nan]}]
    (tmp_path / "a-figure.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    template = "{{ legend }}: {{ case.state.x }} {{ case.numbers[0] | tone(case.numbers | largest) }} {{ words.unit }}"
    env = Environment(loader=DictLoader({"explorers/a-figure.html": template}))
    return drawing(env, tmp_path, {"unit": "m"})


def test_a_link_of_a_page_to_itself_becomes_an_explorer_and_no_other_link(draw):
    body = tree.parse(PAGE)
    assert show(body, "page.md", draw) == ["explorer", "a-figure"]
    assert tree.written(body) == 'Move it: 1 plus8 m\n<p><a href="#a-figure">There</a> it is.</p>'


@pytest.mark.parametrize("name", torch_side.EXPLORERS)
def test_an_explorer_comes_with_what_its_script_needs_and_no_more(name):
    script = (ROOT / f"theme/assets/explorers/{name}.js").read_text("utf-8")
    shared = [*["painting"] * ("extends Painter" in script), *["moving"] * ("extends Moving" in script)]
    scripts = [*["kernel"] * ("kernel." in script), "explorer", *shared, name]
    assert show(tree.parse(LINK.format(name, "")), "page.md", lambda *_: "") == scripts


@pytest.mark.parametrize(
    ("name", "state", "message"),
    [
        ("figure", "x=3", "page.md: no explorer is named 'figure'"),
        ("a-figure", "x=4", "page.md: a-figure has no numbers for the state 'x=4'"),
    ],
)
def test_what_no_explorer_can_show_is_refused(draw, name, state, message):
    with pytest.raises(SourceError, match=f"^{re.escape(message)}"):
        show(tree.parse(LINK.format(name, state)), "page.md", draw)


def test_a_language_without_words_has_the_english(tmp_path):
    (tmp_path / "explorers.csv").write_text("key,en,it,ja\nunit,metre,metro,\n", encoding="utf-8")
    assert [words(tmp_path / "explorers.csv", one)["unit"] for one in ("it", "ja", "fr")] == ["metro", "metre", "metre"]


@pytest.mark.parametrize("name", torch_side.EXPLORERS)
def test_the_stored_numbers_are_those_of_torch(name):
    assert torch_side.same(torch_side.golden(name), torch_side.stored(name)), "write them anew: nox -s update"


LEAK_METER = json.loads((ROOT / torch_side.FOLDER / "leak-meter.json").read_text("utf-8"))


def test_the_leak_meter_shows_each_leak_of_which_the_probe_future_knows():
    leaks = {
        name: {case["state"]["bug"] for case in LEAK_METER["cases"] if case[name] and leaking(case[name])}
        for name in ("causal", "cache")
    }
    found = {case["state"]["bug"] for case in LEAK_METER["cases"] if "future" in case["probes"]}
    found -= {"dropped in eval"}  # here the rate is 0
    assert leaks["causal"] == found - {"cut by view"}, "one head is not cut"
    assert found <= leaks["cache"] == found | {"open cache"}
    assert len(LEAK_METER["cases"]) == 41


def leaking(moved):
    return any(number > 1e-4 for i, row in enumerate(moved) for number in row[i + 1 :])


def test_the_leak_meter_has_the_numbers_that_its_pages_print():
    right, _, _, thrown_away, *_ = LEAK_METER["cases"]
    wanted = [[f"{row[5]:.4f}" for row in case["causal"]] for case in (thrown_away, right)]
    assert changes("foundations/causal", "thrown-away") == wanted
    pads = [f"{max(row[3:]):.4f}" for row in right["padding"]]
    assert changes("masks/padding", "probe")[0] == pads


def changes(slug, name):
    """What a cell prints for `change of each row`."""
    [cell] = [cell for cell in read_cells(ROOT / f"snippets/{slug}.md") if cell.name == name]
    return [re.findall(r"[\d.]+", row) for row in re.findall(r"change of each row\s+tensor\(\[+(.*?)\]", cell.output)]


# How the pages write what stands inside functions and classes there.
INLINED = {
    "self.": "",
    "width // H": "D",
    "merge_heads(context)": "merged",
    "(width, width)": "(E, E)",
    "(memory_width, width)": "(memory_width, E)",
    "split_heads(to_keys(memory))": "to_keys(memory).view(B, Tk, H, D).transpose(1, 2)",
    "split_heads(to_values(memory))": "to_values(memory).view(B, Tk, H, D).transpose(1, 2)",
    "to_output(context": "to_output(joined) context",
    "~visible, -torch.inf) # (B, H, Tq, Tk) weights = scores.softmax": "~visible, -torch.inf).softmax",
}


@pytest.mark.parametrize(("code", "slug"), TRACED)
def test_the_lines_of_the_shape_tracer_are_those_of_the_page(code, slug):
    text = " ".join(
        " ".join((ROOT / folder / f"{slug}.md").read_text("utf-8") for folder in ("snippets", "docs/en")).split()
    )
    for one, other in INLINED.items():
        text = text.replace(one, other)
    for line, *_ in shape_tracer.PROGRAMS[code]:
        code, _, _ = line.partition(shape_tracer.MARK)
        assert code.rpartition(" = ")[2] in text


@pytest.mark.parametrize("code", shape_tracer.PROGRAMS)
def test_the_letters_of_the_shape_tracer_are_true(code):
    state = {"code": code, "line": shape_tracer.AS_WRITTEN, "sizes": "0"}
    traced = shape_tracer.trace(state)
    assert traced["error"] == ""
    for (_, letters), step in zip(shape_tracer.written(state), traced["steps"], strict=True):
        assert step.endswith(str(eval(letters, shape_tracer.sizes_of(state))) if letters else "")


def test_what_the_clocks_say_of_angles_and_scores_is_true():
    stored = torch_side.stored("rope-clocks")
    fast, _ = stored["speeds"]
    assert {(57, 6), (1, 252)} < set(map(tuple, stored["angles"]))
    assert 7 < 44 * fast / math.tau < 7.01
    for case in stored["cases"]:
        of_distance = {}
        for (query, key), score in zip(stored["places"], case["scores"], strict=True):
            of_distance.setdefault(query - key, []).append(score)
        assert {len(scores) for scores in of_distance.values()} == {1, 2, 6}
        assert all(max(scores) - min(scores) < 1e-5 for scores in of_distance.values())
    same = [abs(right - wrong) < 1e-5 for right, wrong in zip(*(case["scores"] for case in stored["cases"]))]
    assert same == [query == key for query, key in stored["places"]]


def test_what_the_grid_of_the_cache_says_is_true():
    stored = torch_side.stored("kv-grid")
    right, upper_left, none = stored["cases"]
    assert (stored["anew"][-1], stored["calls"][-1]) == (34, [8, 9])
    assert all(gap < 1e-5 for gap in right["gaps"])
    assert not any(right["leaks"] + right["lost"] + upper_left["leaks"] + none["lost"])
    assert upper_left["seen"][4:6] == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert sum(map(sum, right["seen"][4:6])) == 11
    assert upper_left["lost"][:2] == [0, 8]
    assert [sum(row) for row in upper_left["seen"][6:]] == [1, 1, 1]
    assert none["leaks"] == [6, 1, 0, 0, 0]
    assert [gap > 1e-3 for case in (upper_left, none) for gap in case["gaps"]] == [False] + [True] * 9


def test_without_a_mask_flash_runs_and_with_three_axes_math():
    stored = torch_side.stored("kernel-choice")
    chosen = [stored["kernels"][case["runs"].index(1)] for case in stored["cases"]]
    assert chosen[:3] == ["efficient", "flash", "math"]
    assert [case["state"] for case in stored["cases"][1:3]] == torch_side.states("kernel-choice")[1:3]


def test_the_written_words_read_theirs_and_a_pad_keeps_weight_0():
    first, *cases = torch_side.stored("word-lines")["cases"]
    assert [row.index(max(row)) for row in first["weights"]] == [0, 1, 4, 3, 2, 2, 2, 2]
    padded = [case["weights"] for case in cases if case["read"][-1] == "<pad>"]
    assert len(padded) == 3
    assert not any(row[-1] for weights in padded for row in weights)


def test_only_query_heads_that_read_a_wrong_key_head_have_other_contexts():
    stored = torch_side.stored("grouped-heads")
    wrong_heads = {}
    for case in stored["cases"]:
        state, H = case["state"], stored["heads"]
        Hkv = 2 ** int(state["doublings"])
        wrong = [read != h // (H // Hkv) for h, read in enumerate(case["reads"])]
        assert [gap > 1e-3 for gap in case["gaps"]] == wrong
        assert not any(gap > 1e-5 for gap, other in zip(case["gaps"], wrong) if not other)
        wrong_heads[state["order"], Hkv] = sum(wrong)
    tiled = {1: 0, 2: 4, 4: 6, 8: 0}
    assert wrong_heads == {
        (order, Hkv): count * (order == "repeat")
        for order in ("repeat_interleave", "repeat")
        for Hkv, count in tiled.items()
    }


def test_dropped_rows_rarely_sum_to_1_and_their_mean_comes_close_to_the_weights():
    stored = torch_side.stored("dropout-draws")
    *training, evaluated, other = stored["cases"]
    assert evaluated["row"] == evaluated["mean"] == other["row"] == other["mean"] == evaluated["weights"]
    assert sum(f"{case['sums'][1]:.2f}" == "1.00" for case in training) <= len(training) // 20
    for case in training:
        factor = stored["factors"][case["state"]["percent"]]
        for weight, dropped in zip(case["weights"], case["row"], strict=True):
            assert dropped in (0, pytest.approx(factor * weight, abs=3e-4))
        if stored["calls"][int(case["state"]["calls"])] == 1000:
            assert case["mean"] == pytest.approx(case["weights"], abs=0.011)


def test_each_layout_has_a_cut_that_fits_and_others_err_as_the_page_prints():
    cases = torch_side.stored("qkv-rows")["cases"]
    gaps = {(case["state"]["stored"], case["state"]["cut"]): case["gaps"] for case in cases}
    [bug] = [cell for cell in read_cells(ROOT / "snippets/practice/fused-qkv.md") if cell.name == "bug"]
    assert f"per head, read as blocks {gaps['heads', 'chunk'][0]:.4f}" in bug.output
    right = {"heads": {"view"}, "blocks": {"chunk", "split"}, "groups": {"view"}, "unequal": {"split"}}
    for case in cases:
        stored, cut = case["state"].values()
        is_right = cut in right[stored]
        assert any(case["wrong"]) != is_right
        assert bool(case["error"]) == (not case["gaps"]) == (cut == "chunk" and stored in {"groups", "unequal"})
        assert all(gap < 1e-5 if is_right else gap > 1 for gap in case["gaps"])
        at_home = [place == slot for place, slot in enumerate(case["slots"])]
        assert all(home for home, wrong in zip(at_home, case["wrong"]) if not wrong) or case["error"]


def test_rounding_shrinks_with_the_dtype_and_a_bug_stays_in_every_order():
    stored = torch_side.stored("last-digits")
    gaps = {
        name: [{float(gap) for _, gap in column} for column in second["results"]]
        for name, second in stored["seconds"].items()
    }
    half, single, double = gaps["moved"]
    assert (max(half), max(single), max(double)) == (8e-3, 1e-7, 4e-16)
    assert gaps["cuda"] == [{1.0}] * 3
    assert gaps["bug"][1:] == [{3e-3}] * 2
    assert max(gaps["bug"][0]) <= 2 * 4 * 2**-8, "two programs with four sums below 2, each off by half a step"
    assert len(stored["seconds"]["bug"]["orders"]) == math.factorial(5)


def test_the_answer_needs_one_of_two_heads_with_one_map_and_none_that_leads_the_mean():
    stored = torch_side.stored("head-out")
    start, *_ = [place for place, word in enumerate(stored["words"]) if word == "<start>"]
    *heads, mean = stored["weights"]
    logits = {(case["state"]["head"], case["state"]["place"]): case["logits"] for case in stored["cases"]}
    whole = logits.pop(("none", "context"))
    assert heads[0] == heads[1]
    assert stored["words"][heads[1].index(max(heads[1]))] == "fish"
    assert mean.index(max(mean)) == start
    assert [head for head, row in enumerate(heads) if row[start] > 0.9] == [2, 3, 5]
    assert all(logits[f"{head}", "context"] == pytest.approx(whole, abs=1e-5) for head in (2, 3, 5))
    assert not any(logits[f"{head}", "outputs"] == pytest.approx(whole, abs=1e-2) for head in range(6))
    assert whole[0] > whole[1]
    assert [key for key, (fish, soup) in logits.items() if fish < soup] == [("1", "context")]


def test_what_the_three_roles_say_of_weights_and_rows_is_true():
    stored = torch_side.stored("three-roles")
    rows = {name: i for i, name in enumerate(stored["features"])}
    assert stored["steps"] == [100, 0, 3, 6, 10, 100]
    for case in stored["cases"]:
        right = ["tired", "wide"].index(case["state"]["end"])
        first, start, *_, tenth, last = case["weights"]
        by_hand = case["state"]["start"] == "hand"
        assert first == last
        assert (f"{last[right]:.2f}", tenth[right] >= 0.88) == ("0.99", True)
        assert case["losses"][4] < 0.03
        assert by_hand or all(abs(weight - 0.25) < 0.01 for weight in start)
        assert not (by_hand and right) or [f"{weight:.2f}" for weight in start[:2]] == ["0.45", "0.45"]
        before, after = case["matrices"][1], case["matrices"][-1]
        changed = {name for name, i in rows.items() if before[i][:2] != after[i][:2]}
        assert changed == {"pronoun", "tired", "wide"}
        changes = [[new - old for new, old in zip(*pair)][2:] for pair in zip(after, before)]
        for one, other in ("alive", "fur"), ("flat", "asphalt"):
            assert changes[rows[one]] == pytest.approx(changes[rows[other]], abs=1e-5)
        signs = {
            (asks, found): product(after[rows[asks]][:2], after[rows[found]][2:]) > 0
            for asks in ("tired", "wide")
            for found in ("alive", "flat")
        }
        assert [pair for pair, positive in signs.items() if positive] == [("tired", "alive"), ("wide", "flat")]


def product(one, other):
    return sum(x * y for x, y in zip(one, other, strict=True))
