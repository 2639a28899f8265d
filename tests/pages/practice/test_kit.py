"""Test your own attention: what the page says of the kit, of torch and of its own numbers."""

import re
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from snippets.attention_probes import PROBES, check
from tests.families import test_families as families
from tests.kit import test_attention_probes as planted
from tests.pages import properties as p
from tests.pages.exercise import Exercise, executed
from tools.cells.source import read_cells
from tools.figures.explorers import stored

SLUG = "practice/kit"
PAGE = p.page_code(SLUG, "matrix")
SOLUTION, _ = executed(SLUG, "solution")
ENGLISH = (p.ROOT / f"docs/en/{SLUG}.md").read_text("utf-8")


def module():
    p.seed_modules(0)
    return PAGE.MyAttention(32, 4)


# -- what it says of the kit -----------------------------------------------------------------------


def test_the_table_has_each_probe_once_and_in_order():
    table = ENGLISH.partition("{#probes}")[2].partition("##")[0]
    names = [name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert names == [probe.name for probe in PROBES]


def test_every_page_that_a_report_names_is_a_page():
    pages = {page for probe in PROBES for page in re.findall(r"\w+/[\w-]+", probe.usual)}
    assert all((p.ROOT / f"docs/en/{page}.md").is_file() for page in pages), pages


def test_planted_bugs_and_families_are_as_many_as_the_page_says():
    missed = len(planted.NO_PROBE_SEES)
    found = len(planted.BUGS) + len(planted.IN_BOTH_DIRECTIONS) + 3 + 3  # windows, memories
    assert (found + missed, found) == (54, 52)
    assert (len(families.DECODERS), len(families.ENCODERS)) == (47, 17)
    assert families.FINDINGS.keys() == {"ctrl", "nystromformer"}


def test_a_triangle_that_is_one_off_gives_ten_pairs_and_no_mask_all_fifty_five():
    said = {case["state"]["bug"]: case["said"] for case in stored("planted-bug")["cases"]}
    assert "(10 of 121 pairs)" in said["triangle off"]["future"]
    assert "(55 of 121 pairs)" in said["thrown away"]["future"]
    assert said["no scale"].keys() == {"reference"}
    assert len(said["dropped in eval"]) > 7


LINE = re.search(r"^`(test_attention = .+)`$", ENGLISH, re.MULTILINE)[1]
ATTENTION = next(cell.code for cell in read_cells(p.ROOT / f"snippets/{SLUG}.md") if cell.name == "attention")
BUILD = re.search(r"returns the arguments, `(\{.+?\})`", ENGLISH)[1]


@pytest.mark.parametrize("way", ["pytest", "command"])
def test_the_line_for_pytest_and_the_command_run(tmp_path, way):
    shutil.copy(p.ROOT / "snippets/attention_probes.py", tmp_path)
    head = f"from attention_probes import check, each_probe\n{ATTENTION}\n"
    body = {"pytest": LINE, "command": f"def build():\n    return {BUILD}"}[way]
    name = {"pytest": "test_mine.py", "command": "my_file.py"}[way]
    (tmp_path / name).write_text(f"{head}\n\n{body}\n", encoding="utf-8")
    command = {"pytest": ["-m", "pytest", "-q", name], "command": ["attention_probes.py", "my_file.py:build"]}[way]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    wanted = {"pytest": "8 passed, 6 skipped", "command": "passed    future, reads, prefix, batch, state, modes, "}
    assert (done.returncode, wanted[way] in done.stdout) == (0, True), done.stdout + done.stderr


def test_of_a_function_without_its_module_the_report_says_that_equal_calls_differ():
    mine = module()
    found = check(lambda tokens: mine(tokens), width=32, causal=True)
    assert found.failed["modes"].startswith("two equal calls differ")


# -- what no probe sees ----------------------------------------------------------------------------


def test_positions_that_are_missing_and_a_scale_without_a_reference_are_not_seen():
    mine = module().eval()
    tokens = torch.randn(1, 5, 32)
    torch.testing.assert_close(mine(tokens)[:, -1], mine(tokens[:, [2, 0, 3, 1, 4]])[:, -1])
    with torch.no_grad():
        mine.to_qkv.weight[:32] *= 8**0.5  # the scale is gone
    assert check(mine, width=32, causal=True, module=mine, padding=mine).failed == {}


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_gives_nan_in_empty_rows_where_it_returns_weights(need_weights):
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    tokens, hidden = torch.randn(1, 3, 8), torch.tensor([[True, True, True]])
    outputs, _ = layer(tokens, tokens, tokens, key_padding_mask=hidden, need_weights=need_weights)
    assert outputs.isnan().any() == need_weights


# -- the exercise ----------------------------------------------------------------------------------


def adapted(pads=lambda is_real: ~is_real, **options):
    """The solution with another mask of the pads, or without options."""

    def adapter(layer, tokens, is_real=None):
        T, inputs = tokens.shape[1], tokens.transpose(0, 1)
        given = {"attn_mask": torch.ones(T, T).triu(1) > 0, "need_weights": False}
        given |= {"key_padding_mask": None if is_real is None else pads(is_real)} | options
        return layer(inputs, inputs, inputs, **given)[0].transpose(0, 1)

    return adapter


def test_the_check_stops_at_the_pads_after_the_middle_step():
    said = p.verdict(SOLUTION.check_adapter, adapted(pads=lambda is_real: None))
    assert said.startswith("not yet: pads_left: ")


ACCEPTED = {"with what SDPA hides is not for an answer to choose": ["hidden by -10000.0"]}
RIGHT = {"the same": adapted()}
WRONG = {
    "polarity": adapted(pads=lambda is_real: is_real),
    "not causal": adapted(attn_mask=None),
    "nan": adapted(need_weights=True),
}


class TestExercise(Exercise):
    SLUG, CHECK = SLUG, "check_adapter"
    RIGHT, WRONG = RIGHT, WRONG
