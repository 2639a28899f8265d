"""Ruff reads the code inside the cells and names the line of the snippet file."""

import re

import pytest

from tests.cells.project import ROOT, cell
from tools.cells.lint import faults


def snippet_file(folder):
    """A place for cells, under the rules of `snippets/`."""
    rules = (ROOT / "snippets/ruff.toml").read_text("utf-8").replace('extend = "../pyproject.toml"\n', "")
    (folder / "ruff.toml").write_text(rules, encoding="utf-8")
    return folder / "page.md"


SIZES = "import torch\n\n\ndef f(x):\n    T, D = x.shape\n    return x.mT  # (D, T)\n\n\ny = f(torch.ones(2, 3))\n"
UNUSED, UNKNOWN, LONG = "import os\n\nx = 1\n", "x = undefined\n", f"x = '{'a' * 80}'\n"


@pytest.mark.parametrize(
    ("code", "rules"), [(UNUSED, ["3:8: F401"]), (UNKNOWN, ["3:5: F821"]), (LONG, ["3:80: E501"]), (SIZES, [])]
)
def test_a_fault_is_named_with_its_line_and_a_size_in_a_shape_comment_is_none(tmp_path, code, rules):
    path = snippet_file(tmp_path)
    path.write_text(cell("code", code), encoding="utf-8")
    assert re.findall(r"page\.md:(\d+:\d+: \w+)", "\n".join(faults(path))) == rules


def test_a_name_of_a_cell_of_another_file_is_known_and_another_is_not(tmp_path):
    (tmp_path / "snippets").mkdir()
    above = cell("above", "import os\n\n\ndef f():\n    y = 1\n    return y\n")
    snippet_file(tmp_path / "snippets").write_text(above, "utf-8")
    path = tmp_path / "snippets/lab.md"
    path.write_text('--8<-- "page.md:above"\n\n' + cell("own", "x = f(), os, y\n"), "utf-8")
    assert [fault.partition(": ")[2] for fault in faults(path)] == ["F821 Undefined name `y`"]
