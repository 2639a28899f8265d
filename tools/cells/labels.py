"""The names of rows and columns that a cell gives to the matrices that it prints."""

import re

from tools.cells.source import Cell, SourceError

ROW = r"\[[^][\n]+\]"
MATRIX = re.compile(rf"^(?:.*\btensor\(\[*| +\[*)\[{ROW}(?:,\n +{ROW})*\]", re.M)  # its numbers may stand in spans


def first_row(matrix: str) -> list[str]:
    """The numbers in the first row of a printed matrix."""
    return matrix.partition("]")[0].rpartition("[")[2].split(",")


def sizes(matrix: str) -> dict[str, int]:
    """How many rows and columns a printed matrix has."""
    return {"rows": matrix.count("\n") + 1, "columns": len(first_row(matrix))}


def refuse_misfit(cell: Cell) -> None:
    """`SourceError` where the names of a cell do not fit every matrix that it prints."""
    if not any(cell.names.values()) or (cell.needs and cell.output is None):
        return
    where = f"{cell.path}:{cell.fence - 1}: the cell {cell.name!r}"
    matrices = MATRIX.findall(cell.output or "")
    if not matrices:
        raise SourceError(f"{where} names rows or columns, but shows no matrix; take the names out of its mark")
    for matrix in matrices:
        for axis, size in sizes(matrix).items():
            names = cell.names[axis]
            if names and len(names) != size:
                fault = f"names {len(names)} {axis}, but a matrix that it prints has {size}"
                raise SourceError(f"{where} {fault}; give each one word")
