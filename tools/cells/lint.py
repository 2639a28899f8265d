"""Run ruff on the code inside the cells: `python -m tools.cells.lint`.

The house style of a cell is narrower than that of our own Python: 79 columns, since a page is that wide.
"""

import subprocess
import sys
from pathlib import Path

from tools.cells.source import SourceError, at_their_lines, read_cells

COLUMNS = "--config=line-length=79"
RULES = "--select=E,F,UP,B"
NOT_FOR_CELLS = "--ignore=E402,B905,F841"  # F841: a size that only a shape comment names


def ruff(*arguments, code):
    command = [sys.executable, "-m", "ruff", *arguments, "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, encoding="utf-8", check=False)


def faults(path):
    """What ruff says about the cells of a snippet file, one line each, with the lines of the file."""
    cells = read_cells(path)
    chosen = ["check", "--quiet", "--output-format=concise", COLUMNS, RULES, NOT_FOR_CELLS]
    complaints = ruff(*chosen, f"--stdin-filename={path}.py", code=at_their_lines(cells)).stdout
    yield from complaints.replace(".md.py:", ".md:").splitlines()
    for cell in cells:
        formatted = ruff("format", "--quiet", COLUMNS, code=cell.code).stdout
        if formatted != cell.code:
            yield f"{path}:{cell.fence}: ruff would format the cell {cell.name!r} so:\n{formatted}"


def main():
    found = []
    for path in sorted(Path("snippets").rglob("*.md")):
        try:
            found += faults(path)
        except SourceError as error:
            found.append(str(error))
    if found:
        sys.exit("\n".join(found))
    print("The cells are in the style of the house.")


if __name__ == "__main__":
    main()
