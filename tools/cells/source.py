"""Read the cells of a snippet file, and the lines of a page that show them.

A snippet file holds the cells of one page in reading order. Each stands between section marks:

    <!-- --8<-- [start:leak] -->
    ```python
    print(weights)
    ```
    <!--pytest-codeblocks:expected-output-->
    ```text
    tensor(...)
    ```
    <!-- --8<-- [end:leak] -->

A cell without an output is shared: every later cell of the file sees it. A cell with an output stands on its own: its
program is every shared cell above it, then itself.

A cell that the CPU cannot run says so, and why, in its first mark:

    <!-- --8<-- [start:fused] needs cuda: its kernel is compiled by Triton -->

It runs on that device only and stands on its own; until it has run there, it has no output.

A cell of a lab whose figure shows other numbers on every machine says so, and why; it stands on its own, too:

    <!-- --8<-- [start:time] measures: how long each takes here -->

A file may show a cell of another, in its place among its own, by the line that a page has for it:

    --8<-- "practice/capstone.md:kit"

A cell that prints a matrix may name its rows and columns there, one word each, for the page to show beside it:

    <!-- --8<-- [start:weights] rows and columns: Your journey starts -->
    <!-- --8<-- [start:map] rows: because he bought; columns: weil er kaufte; needs cuda: why -->

A cell that shows a bug quotes there a piece of its wrong line, and one that shows the fix a piece of the right line,
for the page to mark it; no other line of the cell has that piece:

    <!-- --8<-- [start:leak] wrong: softmax(-2) -->
    <!-- --8<-- [start:both] wrong: softmax(-2); right: softmax(-1) -->
"""

import difflib
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

OUTPUT_MARK = "<!--pytest-codeblocks:expected-output-->"
LINES = "(?:(?!```|<!--).*\n)*"  # of a block, whose closing fence is not lost
CELL = re.compile(
    rf"""<!-- --8<-- \[start:(?P<name>[a-z][a-z0-9-]*)\](?: (?P<mark>\S.*))? -->
```python
(?P<code>{LINES})```
(?:{OUTPUT_MARK}
```text
(?P<output>{LINES})```
)?<!-- --8<-- \[end:(?P=name)\] -->|.+"""
)
SAYING = re.compile(r"(rows and columns|rows|columns|measures|wrong|right|needs (\w+)): (\S.*)")
INCLUDE = re.compile(r'( *)--8<-- "([\w/-]+)\.md:([a-z][a-z0-9-]*)"')
Reader = Callable[[Path], str]


class SourceError(ValueError):
    """A file is not written as it must be; the message names the file, the line and the fix."""


@dataclass(frozen=True)
class Cell:
    """One cell. `fence` is the line of its ```python, counted from 1.

    `needs` is the device that it needs, "" where every device will do, and `why` the reason. `measures` is why its
    figures differ from machine to machine, "" where they do not. `rows` and `columns` are the names of those of the
    matrices that it prints, where it gives them; `wrong` and `right` are the lines that the page marks, counted from 1;
    `path` is the file in which it is written.
    """

    name: str
    code: str
    output: str | None
    fence: int
    needs: str = ""
    why: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    measures: str = ""
    wrong: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    path: str = ""

    @property
    def shared(self) -> bool:
        return self.output is None and not self.stands_alone

    @property
    def stands_alone(self) -> bool:
        """Whether its mark says so, with or without an output."""
        return bool(self.needs or self.measures)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return {"rows": self.rows, "columns": self.columns}

    @property
    def marks(self) -> dict[str, tuple[int, ...]]:
        return {"wrong": self.wrong, "right": self.right}


@dataclass(frozen=True)
class Include:
    """A line of a page that shows a cell: `--8<-- "masks/padding.md:leak"`."""

    line: int
    slug: str
    name: str


def read_text(path: str | Path) -> str:
    """The text of a file; `SourceError` where it is not UTF-8."""
    try:
        return Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: {error}; save the file as UTF-8") from None


def split_lines(text: str) -> list[str]:
    """Lines as Python and pytest-codeblocks count them; `str.splitlines` also breaks at form feeds and the like."""
    return text.removesuffix("\n").split("\n")


def slug_of(path: str | Path) -> str:
    """The slug of a snippet file, which is its place below `snippets/`."""
    return Path(path).relative_to(folder_of(path)).with_suffix("").as_posix()


def folder_of(path: str | Path) -> Path:
    """The folder `snippets/` in which a snippet file lies."""
    return next(folder for folder in Path(path).parents if folder.name == "snippets")


def read_cells(path: str | Path, read: Reader = read_text) -> list[Cell]:
    """The cells of a snippet file in reading order, and in their places those that it shows of others.

    `read` gives the text of each file.
    """
    cells: list[Cell] = []
    for line, part in parts(path, read):
        if isinstance(part, Include):
            cell = find(Path(folder_of(path), f"{part.slug}.md"), part.name, f"{path}:{line}", read)
        else:
            cell = part
        if cell.name in (other.name for other in cells):
            raise SourceError(f"{path}:{line}: a second cell is named {cell.name!r}; give it a name of its own")
        cells.append(cell)
    return cells


def parts(path: str | Path, read: Reader = read_text) -> tuple[tuple[int, "Cell | Include"], ...]:
    """The cells that are written in a snippet file, and the lines that show cells of others, each with its line."""
    return parts_of(path, read(Path(path)))


@functools.cache
def parts_of(path, text):
    found = []
    for match in CELL.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["name"]:
            said = said_by(match["mark"], match["code"], f"{path}:{line}")
            cell = Cell(match["name"], match["code"], match["output"], line + 1, path=str(path), **said)
            found.append((line, cell))
        elif include := INCLUDE.fullmatch(match[0]):
            found.append((line, Include(line, include[2], include[3])))
        else:
            raise SourceError(
                f"{path}:{line}: here begins neither a whole cell, as tools/cells/source.py shows one, "
                f"nor a line that shows a cell of another file: {match[0]!r}"
            )
    return tuple(found)


def said_by(mark, code, where):
    """What a first mark says behind the name, as arguments of `Cell`."""
    said = {}
    for saying in mark.split("; ") if mark else []:
        if not (match := SAYING.fullmatch(saying)):
            raise SourceError(
                f"{where}: the mark says {saying!r}; it may say 'needs cuda: why', 'measures: why', 'rows: a b', "
                "'columns: c d', 'rows and columns: a b', 'wrong: a piece of a line' or 'right: a piece of a line', "
                "with '; ' between them"
            )
        if match[2]:
            said |= {"needs": match[2], "why": match[3]}
        elif match[1] == "measures":
            said["measures"] = match[3]
        elif match[1] in ("wrong", "right"):
            said[match[1]] = (*said.get(match[1], ()), line_with(match[3], code, where))
        else:
            said |= dict.fromkeys(match[1].split(" and "), tuple(match[3].split()))
    return said


def line_with(piece, code, where):
    """The number of the line of a cell that has this piece; `SourceError` where it is not exactly one."""
    found = [number for number, line in enumerate(split_lines(code), start=1) if piece in line]
    if len(found) != 1:
        raise SourceError(
            f"{where}: the mark quotes {piece!r}, which {len(found) or 'no'} lines of the cell have; "
            "quote a piece that the line to be marked alone has"
        )
    return found[0]


def program_cells(cells: Sequence[Cell], cell: Cell) -> list[Cell]:
    """The cells that run when `cell` runs: every shared cell above it, then itself."""
    return [above for above in cells[: cells.index(cell)] if above.shared] + [cell]


def program(cells: Sequence[Cell], cell: Cell) -> str:
    """The program of a cell as one text: what the copy button copies."""
    return "\n".join(part.code for part in program_cells(cells, cell))


def at_their_lines(cells: Iterable[Cell]) -> str:
    """The code of cells of one file, as a text in which every line has the number that it has there."""
    text = ""
    for cell in sorted(cells, key=lambda cell: cell.fence):
        text += "\n" * (cell.fence - text.count("\n")) + cell.code
    return text


def digest(cells: Sequence[Cell], cell: Cell) -> str:
    """A sha256 of the program of a cell, of its output, and of the device that it needs."""
    needs = f"\0{cell.needs}" if cell.needs else ""
    return hashlib.sha256(f"{program(cells, cell)}\0{cell.output}{needs}".encode()).hexdigest()


def read_includes(page: str | Path, read: Reader = read_text) -> list[Include]:
    """The lines of a page that show cells, in order; `SourceError` for one that would show nothing."""
    includes = []
    for number, line in enumerate(split_lines(read(Path(page))), start=1):
        if match := INCLUDE.fullmatch(line):
            includes.append(Include(number, match[2], match[3]))
        elif "-8<-" in line:
            raise SourceError(
                f'{page}:{number}: write a cell as --8<-- "masks/padding.md:leak", the name of its file in letters, '
                f"digits, - and _ alone; found {line.strip()!r}"
            )
    return includes


def resolve(page: str | Path, snippets: str | Path, read: Reader = read_text) -> list[Cell]:
    """The cells that a page shows, in order; `SourceError` names an include whose file or cell is not there."""
    return [
        find(Path(snippets, f"{include.slug}.md"), include.name, f"{page}:{include.line}", read)
        for include in read_includes(page, read)
    ]


def find(path, name, where, read):
    """The cell `name` that is written in a snippet file; `SourceError` says `where` it is asked for in vain."""
    if not path.is_file():
        raise SourceError(f"{where}: there is no file {path}")
    cells = {part.name: part for _, part in parts(path, read) if isinstance(part, Cell)}
    if name not in cells:
        raise SourceError(f"{where}: {path} has no cell {name!r}{nearest(name, cells)}")
    return cells[name]


def nearest(asked: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not there: the known name that may be meant, if one is near."""
    near = difflib.get_close_matches(asked, known, n=1)
    return f"; is it {near[0]!r}?" if near else ""


def with_outputs(path: str | Path, outputs: dict[str, str]) -> str:
    """The text of a snippet file in which the named cells show other outputs.

    `SourceError` for an output that a page cannot show, such as one without a line break at its end or with a fence.
    """

    def renewed(match):
        name, code = match["name"], match["code"]
        if name not in outputs:
            return match[0]
        if not outputs[name].endswith("\n") or re.search("^(```|<!--)|[^\n -~]", outputs[name], re.M):
            raise SourceError(
                f"{path}: a page cannot show what the cell {name!r} prints: {outputs[name]!r}; "
                "print whole lines of plain ASCII text, without ``` or <!-- at the start of a line"
            )
        mark = match[0].partition("\n")[0]
        return f"{mark}\n```python\n{code}```\n{OUTPUT_MARK}\n```text\n{outputs[name]}```\n<!-- --8<-- [end:{name}] -->"

    return CELL.sub(renewed, read_text(path))
