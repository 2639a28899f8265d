"""What the copy button copies prints, pasted into a fresh Python, what the page shows."""

import os
import subprocess
import sys

import pytest

from tests.browser import site
from tools.cells.compare import same


@pytest.mark.parametrize("page", site.TURNS, ids=str)
def test_a_copied_program_prints_in_a_fresh_python_what_the_page_shows(tab, page, tmp_path):
    """The first cell that prints, and the last, which is the folded solution of an exercise."""
    tab.open(page.path)
    tab.unfold()
    cells = tab.page.locator("article .language-python")
    printing = cells.evaluate_all(
        'cells => [...cells.keys()].filter(number => cells[number].nextElementSibling?.matches(".output"))'
    )
    runs = []
    for number in (printing[0], printing[-1]):
        shown = cells.nth(number).evaluate("cell => cell.nextElementSibling.textContent")
        runs.append((shown, start(tab.copy(number), tmp_path)))
    for shown, run in runs:
        printed, complaint = run.communicate(timeout=120)
        assert run.returncode == 0, complaint
        assert same(shown, printed), f"the page shows\n{shown}\nthe program prints\n{printed}"


def start(code, folder):
    """Start a fresh Python that reads a program as if it were pasted, outside the project."""
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    pipe = subprocess.PIPE
    run = subprocess.Popen(
        [sys.executable, "-"], cwd=folder, env=environment, encoding="utf-8", stdin=pipe, stdout=pipe, stderr=pipe
    )
    run.stdin.write(code)
    run.stdin.close()
    run.stdin = None  # communicate() would write to it
    return run
