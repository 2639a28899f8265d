"""Read the cells of a snippet file, and the lines of a page that show them.

How both are written, and what a first mark may say behind the name of its cell, is shown in CONTRIBUTING.md.
"""

import difflib
import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
SECTION = re.compile(r"^# --8<-- \[start:([a-z][a-z0-9-]*)\]\n(.*?)^# --8<-- \[end:\1\]$", re.M | re.S)
IMPORTED = re.compile(r"^ *(?:from|import) (\w+)", re.M)
DEVICES = {"cuda": "CUDA", "mps": "MPS", "xpu": "XPU", "sim": "PrivateUse1"}  # and what torch's dispatcher calls them
MARKED = "wrong", "right", "new"  # kinds of lines
WORDS = *MARKED, "rows", "columns", "rows and columns", "measures", *(f"needs {device}" for device in DEVICES)
INCLUDE = re.compile(r' *--8<-- "(?:([\w/-]+)\.md|(\w+\.py)):([a-z][a-z0-9-]*)"')


class SourceError(ValueError):
    """A file is not written as it must be; the message names the file, the line and the fix."""


@dataclass(frozen=True)
class Cell:
    """One cell. `fence` is the line of its ```python, counted from 1.

    `needs` is the device that it needs, "" where every device will do, and `why` the reason. `measures` is why its
    figures differ from machine to machine, "" where they do not. `rows` and `columns` are the names of those of the
    matrices that it prints, where it gives them; `marks` are the lines that the page marks, counted from 1, and how:
    as wrong, right or new; `path` is the file in which it is written. A section of a Python file is none that runs: its
    program is the file.
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
    marks: tuple[tuple[int, str], ...] = ()
    path: str = ""

    def fault(self, words: str) -> SourceError:
        """The error that says what is wrong with it."""
        return SourceError(f"{self.path}:{self.fence}: the cell {self.name!r} {words}")

    @property
    def shared(self) -> bool:
        """Whether every later cell of the file sees what it defines."""
        return self.output is None and not self.stands_alone and not self.is_section

    @property
    def is_section(self) -> bool:
        """Whether it is a section of a Python file, which readers download."""
        return self.path.endswith(".py")

    @property
    def stands_alone(self) -> bool:
        """Whether its mark says so, with or without an output."""
        return bool(self.needs or self.measures)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return {"rows": self.rows, "columns": self.columns}


@dataclass(frozen=True)
class Include:
    """A line of a page that shows a cell: `--8<-- "masks/padding.md:leak"`.

    Or a block of code that shows a section of a Python file, whose name is then the slug:

        ```python
        --8<-- "attention_probes.py:moves"
        ```
    """

    line: int
    slug: str
    name: str

    @property
    def is_section(self) -> bool:
        return self.slug.endswith(".py")

    @property
    def end(self) -> int:
        """The line behind it."""
        return self.line + (3 if self.is_section else 1)


def read_text(path: str | Path) -> str:
    """The text of a file; `SourceError` where it is not UTF-8."""
    try:
        return Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: {error}; save the file as UTF-8") from None


def split_lines(text: str) -> list[str]:
    """Lines as Python and pytest-codeblocks count them; `str.splitlines` also breaks at form feeds and the like."""
    return text.removesuffix("\n").split("\n")


def indent_of(line: str) -> str:
    """The spaces that a line begins with."""
    return line.removesuffix(line.lstrip())


def slug_of(path: str | Path) -> str:
    """The slug of a snippet file, which is its place below `snippets/`."""
    return Path(path).relative_to(folder_of(path)).with_suffix("").as_posix()


def folder_of(path: str | Path) -> Path:
    """The folder `snippets/` in which a snippet file lies."""
    return next(folder for folder in Path(path).parents if folder.name == "snippets")


def read_cells(path: str | Path) -> list[Cell]:
    """The cells of a snippet file in reading order, and in their places those that it shows of others."""
    cells: list[Cell] = []
    for line, part in parts(path, read_text(path)):
        cell = shown(part, path, folder_of(path)) if isinstance(part, Include) else part
        if cell.name in (other.name for other in cells):
            raise SourceError(f"{path}:{line}: a second cell is named {cell.name!r}; give it a name of its own")
        cells.append(cell)
    return cells


@functools.cache
def sections(path: str | Path, text: str) -> tuple[tuple[int, Cell], ...]:
    """The sections of a Python file, each with the line of the mark above it."""
    starts = ((text.count("\n", 0, match.start()) + 1, match) for match in SECTION.finditer(text))
    return tuple(
        (line, Cell(match[1], match[2].strip("\n") + "\n", None, line, path=str(path))) for line, match in starts
    )


@functools.cache
def parts(path: str | Path, text: str) -> tuple[tuple[int, Cell | Include], ...]:
    """The cells that are written in the text of a snippet file, and the lines that show others, each with its line."""
    lines = ((text.count("\n", 0, match.start()) + 1, match) for match in CELL.finditer(text))
    return tuple((line, part_of(match, path, line)) for line, match in lines)


def part_of(match: re.Match[str], path: str | Path, line: int) -> Cell | Include:
    """The cell that is written at a line of a snippet file, or the line that shows one of another file."""
    if match["name"]:
        told = meaning(match["mark"], match["code"], f"{path}:{line}")
        return Cell(match["name"], match["code"], match["output"], line + 1, path=str(path), **told)
    if (include := INCLUDE.fullmatch(match[0])) and include[1]:
        return Include(line, include[1], include[3])
    kinds = "neither a whole cell, as CONTRIBUTING.md shows one, nor a line that shows a cell of another file"
    raise SourceError(f"{path}:{line}: here begins {kinds}: {match[0]!r}")


def meaning(mark: str | None, code: str, where: str) -> dict[str, Any]:
    """What a first mark says behind the name, as arguments of `Cell`; `SourceError` for a word that no mark has."""
    arguments: dict[str, Any] = {"marks": ()}
    for part in mark.split("; ") if mark else []:
        word, _, content = part.partition(": ")
        if word not in WORDS or not content.strip():
            known = [f"{name}: …" for name in WORDS]
            example = f"CONTRIBUTING.md has an example of each word: {', '.join(known)}"
            raise SourceError(f"{where}: the mark says {part!r}; {example}{nearest(f'{word}: …', known)}")
        if word in MARKED:
            arguments["marks"] += tuple((line, word) for line in lines_with(content, code, where))
        elif word.startswith("needs"):
            arguments |= {"needs": word.removeprefix("needs "), "why": content}
        elif word == "measures":
            arguments["measures"] = content
        else:
            arguments |= dict.fromkeys(word.split(" and "), tuple(content.split()))
    return arguments


def lines_with(quote: str, code: str, where: str) -> list[int]:
    """The numbers of the lines that a mark quotes: by a piece of one, or of the first and the last, ` ... ` between."""
    first, _, last = quote.partition(" ... ")
    numbers = range(line_with(first, code, where), line_with(last or first, code, where) + 1)
    if not numbers:
        raise SourceError(f"{where}: {last!r} stands above {first!r}; quote the first line of a run first")
    return [number for number in numbers if split_lines(code)[number - 1]]


def line_with(piece: str, code: str, where: str) -> int:
    """The number of the line of a cell that has this piece; `SourceError` where it is not exactly one."""
    numbers = [number for number, line in enumerate(split_lines(code), start=1) if piece in line]
    if len(numbers) != 1:
        fault = f"the mark quotes {piece!r}, which {len(numbers) or 'no'} lines of the cell have"
        raise SourceError(f"{where}: {fault}; quote a piece that the line to be marked alone has")
    return numbers[0]


def program_cells(cells: Sequence[Cell], cell: Cell) -> list[Cell]:
    """The cells that run when `cell` runs: every shared cell above it, then itself."""
    return [above for above in cells[: cells.index(cell)] if above.shared] + [cell]


def program(cells: Sequence[Cell], cell: Cell) -> str:
    """The program of a cell as one text: what the copy button copies."""
    if cell.is_section:
        return read_text(cell.path)
    return "\n".join(part.code for part in program_cells(cells, cell))


def at_their_lines(cells: Iterable[Cell]) -> str:
    """The code of cells of one file, as a text in which every line has the number that it has there."""
    text = ""
    for cell in sorted(cells, key=lambda cell: cell.fence):
        text += "\n" * (cell.fence - text.count("\n")) + cell.code
    return text


def digest(cells: Sequence[Cell], cell: Cell) -> str:
    """A sha256 of the program of a cell, of its output, of the device that it needs, and of the files beside it."""
    needs = f"\0{cell.needs}" if cell.needs else ""
    files = dict.fromkeys(path for part in program_cells(cells, cell) for path in files_beside(part))
    texts = [f"{program(cells, cell)}\0{cell.output}{needs}", *map(read_text, files)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def files_beside(cell: Cell) -> list[Path]:
    """The Python files in `snippets/` that a cell imports; a reader needs them beside the program."""
    paths = (folder_of(cell.path) / f"{name}.py" for name in IMPORTED.findall(cell.code))
    return [path for path in paths if path.is_file()]


def read_includes(page: str | Path) -> list[Include]:
    """The lines of a page that show cells, in order; `SourceError` for one that would show nothing."""
    includes = []
    lines = ["", *split_lines(read_text(page)), ""]
    for number, line in enumerate(lines):
        match = INCLUDE.fullmatch(line)
        if match and match[1]:
            includes.append(Include(number, match[1], match[3]))
        elif match and [lines[number - 1].strip(), lines[number + 1].strip()] == ["```python", "```"]:
            includes.append(Include(number - 1, match[2], match[3]))
        elif match:
            fix = "write ```python above it and ``` below"
            raise SourceError(f"{page}:{number}: a section of {match[2]} is no Markdown; {fix}")
        elif "-8<-" in line:
            example = '--8<-- "masks/padding.md:leak", the name of its file in letters, digits, - and _ alone'
            raise SourceError(f"{page}:{number}: write a cell as {example}; found {line.strip()!r}")
    return includes


def resolve(page: str | Path, snippets: str | Path) -> list[Cell]:
    """The cells that a page shows, in order; `SourceError` names an include whose file or cell is not there."""
    return [shown(include, page, snippets) for include in read_includes(page)]


def shown(include: Include, page: str | Path, snippets: str | Path) -> Cell:
    """The cell that a line of a page, or of another snippet file, shows; where it is not its own, no line is new."""
    where = f"{page}:{include.line}"
    path = Path(snippets, include.slug if include.is_section else f"{include.slug}.md")
    if not path.is_file():
        raise SourceError(f"{where}: there is no file {path}")
    read = sections if include.is_section else parts
    cells = {part.name: part for _, part in read(path, read_text(path)) if isinstance(part, Cell)}
    if include.name not in cells:
        raise SourceError(f"{where}: {path} has no cell {include.name!r}{nearest(include.name, cells)}")
    cell = cells[include.name]
    if Path(page).match(f"{include.slug}.md"):
        return cell
    return replace(cell, marks=tuple((line, kind) for line, kind in cell.marks if kind != "new"))


def nearest(asked: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not there: the known name that may be meant, if one is near."""
    near = difflib.get_close_matches(asked, known, n=1)
    return f"; is it {near[0]!r}?" if near else ""


def with_outputs(path: str | Path, outputs: dict[str, str]) -> str:
    """The text of a snippet file in which the named cells show other outputs.

    `SourceError` for an output that a page cannot show, such as one without a line break at its end or with a fence.
    """

    def renewed(match: re.Match[str]) -> str:
        name, code = match["name"], match["code"]
        if name not in outputs:
            return str(match[0])
        if not outputs[name].endswith("\n") or re.search("^(```|<!--)|[^\n -~]", outputs[name], re.M):
            fix = "print whole lines of plain ASCII text, without ``` or <!-- at the start of a line"
            raise SourceError(f"{path}: a page cannot show what the cell {name!r} prints: {outputs[name]!r}; {fix}")
        mark = match[0].partition("\n")[0]
        return f"{mark}\n```python\n{code}```\n{OUTPUT_MARK}\n```text\n{outputs[name]}```\n<!-- --8<-- [end:{name}] -->"

    return CELL.sub(renewed, read_text(path))
