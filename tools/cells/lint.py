"""Run `ruff check` on the code inside the cells: `python -m tools.cells.lint`.

`ruff format` reads Markdown by itself; `ruff check` does not. The rules stand in snippets/ruff.toml.
"""

import subprocess
import sys
from pathlib import Path

from tools.cells.source import SourceError, at_their_lines, read_cells


def faults(path: Path) -> list[str]:
    """What ruff says about the cells of a snippet file, one line each, with the lines of the file."""
    try:
        program = read_cells(path)
    except SourceError as error:
        return [str(error)]
    cells = [cell for cell in program if cell.path == str(path)]
    lent = {name for cell in program if cell not in cells for name in compile(cell.code, cell.path, "exec").co_names}
    options = ["--quiet", "--output-format=concise", f"--stdin-filename={path}.py", f"--config=builtins={sorted(lent)}"]
    command = [sys.executable, "-m", "ruff", "check", *options, "-"]
    ruff = subprocess.run(command, input=at_their_lines(cells), capture_output=True, encoding="utf-8", check=False)
    return (ruff.stderr + ruff.stdout).replace(".md.py:", ".md:").splitlines()


def main() -> None:
    """Print the faults of all cells and leave with an error, or say that there are none."""
    if lines := [line for path in sorted(Path("snippets").rglob("*.md")) for line in faults(path)]:
        sys.exit("\n".join(lines))
    print("The cells are in the style of the house.")


if __name__ == "__main__":
    main()
