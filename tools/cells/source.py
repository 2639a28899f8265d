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
"""

import codecs
import difflib
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

START = re.compile(r"<!-- --8<-- \[start:([a-z][a-z0-9-]*)\](?: (\S.*))? -->")
SAYING = re.compile(r"(rows and columns|rows|columns|measures|needs (\w+)): (\S.*)")
FIRST_MARK = (
    "<!-- --8<-- [start:name] -->, name in a-z, 0-9 and -, behind ] perhaps ' needs cuda: why', ' measures: why', "
    "' rows: a b; columns: c d' or ' rows and columns: a b'"
)
OUTPUT_MARK = "<!--pytest-codeblocks:expected-output-->"
NOT_IN_A_BLOCK = re.compile("```.|<!--")
INCLUDE = re.compile(r'( *)--8<-- "([\w/-]+)\.md:([a-z][a-z0-9-]*)"')
Reader = Callable[[Path], str]


class SourceError(ValueError):
    """A file is not written as it must be; the message names the file, the line and the mend."""


@dataclass(frozen=True)
class Cell:
    """One cell. Lines count from 1: `fence` is that of ```python, `end` that of the last closing fence.

    `needs` is the device that it needs, "" where every device will do, and `why` the reason. `measures` is why its
    figures differ from machine to machine, "" where they do not. `rows` and `columns` are the names of those of the
    matrices that it prints, where it gives them; `path` is the file in which it is written.
    """

    name: str
    code: str
    output: str | None
    fence: int
    end: int
    needs: str = ""
    why: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    measures: str = ""
    path: str = ""

    @property
    def at_its_lines(self) -> str:
        """The code below so many empty lines that each line has the number that it has in the file."""
        return "\n" * self.fence + self.code

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


@dataclass(frozen=True)
class Include:
    """A line of a page that shows a cell: `--8<-- "masks/padding.md:leak"`."""

    line: int
    slug: str
    name: str


class Lines:
    """The lines of a file, taken one after the other."""

    def __init__(self, path, text):
        self.path, self.at = path, 0
        self.lines = split_lines(text)

    def error(self, message, line=None):
        return SourceError(f"{self.path}:{line or self.at + 1}: {message}")

    def next_is(self, text):
        return self.at < len(self.lines) and self.lines[self.at] == text

    def skip_blank(self):
        """Whether there is a line that is not empty; it comes next."""
        while self.next_is(""):
            self.at += 1
        return self.at < len(self.lines)

    def take(self, wanted):
        """Take the line that must come now."""
        if not self.next_is(wanted):
            raise self.unexpected(wanted)
        self.at += 1

    def unexpected(self, wanted):
        found = self.lines[self.at].strip() if self.at < len(self.lines) else "the end of the file"
        return self.error(f"expected {wanted}, found {found!r}")

    def take_fence(self, opening):
        """Take a fenced block; return its text."""
        self.take(opening)
        first = self.at
        while not self.next_is("```"):
            if self.at == len(self.lines) or NOT_IN_A_BLOCK.match(self.lines[self.at]):
                raise self.error(f"the {opening} block has no closing ```", line=first)
            self.at += 1
        self.at += 1
        return "".join(f"{line}\n" for line in self.lines[first : self.at - 1])


def read_text(path: str | Path) -> str:
    """The text of a file, its lines ended by LF; `SourceError` where it is not UTF-8, or holds a NUL."""
    data = Path(path).read_bytes()
    if data.startswith(codecs.BOM_UTF8):
        raise SourceError(f"{path}:1: begins with a byte order mark; save the file as UTF-8 without BOM")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise SourceError(f"{path}:{line}: holds a NUL, which no page can show; take it out")
    try:
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


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
    lines, found = Lines(path, text), []
    while lines.skip_blank():
        line = lines.at + 1
        if include := INCLUDE.fullmatch(lines.lines[lines.at]):
            lines.at += 1
            found.append((line, Include(line, include[2], include[3])))
        else:
            found.append((line, take_cell(lines)))
    return tuple(found)


def take_cell(lines):
    """The cell whose first mark comes now."""
    match = START.fullmatch(lines.lines[lines.at])
    said = said_by(match[2]) if match else None
    if said is None:
        raise lines.unexpected(FIRST_MARK)
    name = match[1]
    if name == "notebook":  # the test that runs them all has this name
        raise lines.error("a cell cannot be named 'notebook'; give it another name")
    lines.at += 1
    fence = lines.at + 1
    code = lines.take_fence("```python")
    output = None
    if lines.next_is(OUTPUT_MARK):
        lines.at += 1
        output = lines.take_fence("```text")
    end = lines.at
    lines.take(f"<!-- --8<-- [end:{name}] -->")
    return Cell(name, code, output, fence, end, path=str(lines.path), **said)


def said_by(mark):
    """What a first mark says behind the name, as arguments of `Cell`; None where that is not how it is said."""
    said = {}
    for saying in mark.split("; ") if mark else []:
        if not (match := SAYING.fullmatch(saying)):
            return None
        if match[2]:
            said |= {"needs": match[2], "why": match[3]}
        elif match[1] == "measures":
            said["measures"] = match[3]
        else:
            said |= dict.fromkeys(match[1].split(" and "), tuple(match[3].split()))
    return said


def program_cells(cells: Sequence[Cell], cell: Cell) -> list[Cell]:
    """The cells that run when `cell` runs: every shared cell above it, then itself."""
    return [above for above in cells[: cells.index(cell)] if above.shared] + [cell]


def program(cells: Sequence[Cell], cell: Cell) -> str:
    """The program of a cell as one text: what the copy button copies."""
    return "\n".join(part.code for part in program_cells(cells, cell))


def at_their_lines(cells: Iterable[Cell]) -> str:
    """The code of cells as one text in which every line has the number that it has in the file."""
    lines = [""] * max((cell.end for cell in cells), default=0)
    for cell in cells:
        code = split_lines(cell.code)
        lines[cell.fence : cell.fence + len(code)] = code
    return "\n".join(lines) + "\n"


def digest(cells: Sequence[Cell], cell: Cell) -> str:
    """A sha256 of the program of a cell, of its output, and of the device that it needs."""
    needs = f"\0{cell.needs}" if cell.needs else ""
    return hashlib.sha256(f"{program(cells, cell)}\0{cell.output}{needs}".encode()).hexdigest()


def read_includes(page: str | Path, read: Reader = read_text) -> list[Include]:
    """The lines of a page that show cells, in order; `SourceError` for one that would show nothing."""
    text = read(Path(page))
    includes: list[Include] = []
    for number, line in enumerate(split_lines(text), start=1):
        if match := INCLUDE.fullmatch(line):
            if match[3] in {include.name for include in includes}:
                raise SourceError(f"{page}:{number}: a cell named {match[3]!r} is shown above; show each once")
            includes.append(Include(number, match[2], match[3]))
        elif re.search("-8<-", line):
            raise SourceError(
                f'{page}:{number}: write a cell as --8<-- "masks/padding.md:leak", the name of its file in letters, '
                f"digits, - and _ alone; found {line.strip()!r}"
            )
    return includes


def resolve(page: str | Path, snippets: str | Path, read: Reader = read_text) -> list[Cell]:
    """The cells that a page shows, in order; `SourceError` names an include whose file or cell is not there."""
    read = functools.cache(read)
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
    lines, cells = split_lines(read_text(path)), read_cells(path)
    for cell in reversed(cells):
        if cell.name in outputs and cell.path == str(path):
            output = outputs[cell.name]
            if not output.endswith("\n") or not output.isascii() or re.search("^(```|<!--)|[^\n -~]", output, re.M):
                raise SourceError(
                    f"{path}:{cell.fence}: a page cannot show what the cell {cell.name!r} prints: {output!r}; "
                    "print whole lines of plain ASCII text, without ``` or <!-- at the start of a line"
                )
            closing = cell.fence + cell.code.count("\n")  # the index of the ``` that ends the code
            lines[closing + 1 : cell.end] = [OUTPUT_MARK, "```text", *split_lines(output), "```"]
    return "\n".join(lines) + "\n"
