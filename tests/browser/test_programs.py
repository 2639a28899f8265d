"""What the copy button copies prints, pasted into a fresh Python, what the page shows.

The runner proves it of every program, and `test_pages.py` that the button copies each: three pages are the control.
"""

import os
import subprocess
import sys

import pytest

from tests.browser import site
from tools.cells.compare import same

SLUGS = ["foundations/softmax", "masks/padding", "cross/cross-attention"]


@pytest.mark.parametrize("page", site.in_turn(SLUGS), ids=str)
def test_a_copied_program_prints_in_a_fresh_python_what_the_page_shows(tab, page, tmp_path):
    """The last cell that prints: the folded solution of an exercise, with most of the cells above it."""
    tab.open(page.path)
    tab.unfold()
    cells = tab.page.locator("article .language-python")
    number = cells.evaluate_all("cells => cells.findLastIndex(cell => cell.nextElementSibling?.matches('.output'))")
    shown = cells.nth(number).evaluate("cell => cell.nextElementSibling.textContent")
    run = paste(tab.copy(number), tmp_path)
    assert run.returncode == 0, run.stderr
    assert same(shown, run.stdout), f"the page shows\n{shown}\nthe program prints\n{run.stdout}"


def paste(code, folder):
    """Run a program in a fresh Python that reads it as if it were pasted, outside the project."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [sys.executable, "-"]
    return subprocess.run(
        command, cwd=folder, env=environment, input=code, encoding="utf-8", capture_output=True, timeout=120
    )
