"""Break the code of the pages in small ways and see whether their tests notice.

    nox -s mutants                      every page whose code or tests have changed since it was counted
    nox -s mutants -- masks/causal      this page, in any case

A mutant is one small change inside a function or class that readers copy, in a shared cell or in the solution of the
exercise: an operator, a comparison, a number, an axis, a name of another role, a call or a statement left out. It is an
edit of the text at the place of that one node of the syntax tree; all else in the cell keeps its bytes. Left alone are:
code outside of functions, since its printed output checks it; the check of an exercise, `check...`, which is tried on
wrong answers; sizes that only shape comments read; and on which device a tensor lies, which `--device` checks.

The tests of its page alone, `tests/pages/...`, try a mutant. It is caught by the first test that fails after the
changed cell has run, be it in that test or before, when the file was imported. A test that fails before the cell has
run has found its text, not its fault, and does not count. So that no test counts that looks at the text of a cell later
on, two controls must pass all tests, or the page is not counted: its cells reprinted by `ast.unparse`, and its cells
with other spaces and no comments. Whatever does not end within a limit is stopped, and counted apart.

The result is `tests/pages/mutants.md`. It lists what no test catches, each with a reason that a person writes there in
place of `?`; `tests/structure/test_mutants.py` asks for these reasons, for 95 % per page, and for counts that are those
of the code and the tests as they are.
"""

import ast
import copy
import gc
import hashlib
import importlib
import io
import multiprocessing
import os
import re
import sys
import time
import tokenize
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path

import pytest
import torch

from tests.pages import properties
from tools.cells.execute import run
from tools.cells.source import Cell, SourceError, read_cells, slug_of

REPORT = properties.ROOT / "tests/pages/mutants.md"
NO_REASON = "?"
HEAD = """\
# Mutants

Written by `nox -s mutants`; only the reasons are written by people. A mutant is one small change in a function or class
of a page, as `tests/pages/mutants.py` says. The tests of that page alone catch it, or it is stopped because it does not
end, or it stands below. The digest is that of the mutants and of the tests.

| page | mutants | caught | stopped | share | digest |
|---|---|---|---|---|---|""".splitlines()
SURVIVORS = """
## Not caught

| page | cell | code | changed to | why no test can or need catch it |
|---|---|---|---|---|""".splitlines()
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
NAMES = {
    "tril": "triu", "triu": "tril", "sum": "mean", "mean": "sum", "amax": "amin", "max": "min", "min": "max",
    "any": "all", "all": "any", "zeros": "ones", "ones": "zeros", "zeros_like": "ones_like", "ones_like": "zeros_like",
    "queries": "keys", "keys": "values", "values": "keys", "to_queries": "to_keys", "to_keys": "to_values",
    "to_values": "to_keys", "W_query": "W_key", "W_key": "W_value", "W_value": "W_key", "scores": "weights",
    "W_Q": "W_K", "W_K": "W_V", "W_V": "W_K", "b_Q": "b_K", "b_V": "b_K",
}  # fmt: skip
SYMMETRIC = {"allclose", "equal", "gap", "max", "min", "transpose"}  # two arguments may change places without effect
MODULES = ("torch", "nn", "F", "self", "super()")  # a call on one of these is none on a tensor
FORK = multiprocessing.get_context("fork")  # a child has torch and pytest loaded


@dataclass(frozen=True)
class Mutant:
    """A cell with one change: its lines `old` then read `new`, the first time or the `nth` that they stand there."""

    slug: str
    cell: str
    old: str
    new: str
    code: str
    nth: int = 1

    @property
    def name(self) -> tuple:
        return self.slug, self.cell if self.nth == 1 else f"{self.cell} ({self.nth})", self.old, self.new


# -- what is changed -----------------------------------------------------------------------------


def changes(tree: ast.Module):
    """Each change as (node, what stands in its place), in the functions and classes of a cell."""
    for definition in tree.body:
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            yield from changes_below(definition, read_names(definition))


def read_names(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def changes_below(block, read):
    for statement in (statement for name in ("body", "orelse", "finalbody") for statement in getattr(block, name, [])):
        if only_for_comments(statement, read):
            continue
        if changes_state(statement):
            yield statement, ast.Pass()
        yield from changes_within(statement)
        yield from changes_below(statement, read)


def only_for_comments(statement, read):
    """Whether it names sizes that no code reads, as in `B, T, D = queries.shape`: shape comments do, and check them."""
    if not isinstance(statement, ast.Assign):
        return False
    targets = [node for target in statement.targets for node in ast.walk(target)]
    named = all(isinstance(node, ast.Name | ast.Tuple | ast.expr_context) for node in targets)
    return named and not read & {node.id for node in targets if isinstance(node, ast.Name)}


def changes_state(statement):
    """Whether code still runs without a statement: it defines no new name, and returns nothing."""
    if isinstance(statement, ast.Assign):
        loaded = read_names(statement.value)
        return all(not isinstance(target, ast.Name) or target.id in loaded for target in statement.targets)
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Expr | ast.AugAssign | ast.Raise | ast.If | ast.For) and not docstring


def changes_within(node):
    """Those of the expressions of one statement."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from ((child, new) for new in variants(child))
        if not isinstance(child, ast.stmt | ast.JoinedStr):
            yield from changes_within(child)


def variants(node):
    """What could stand in place of an expression by mistake."""

    def other(**fields):
        changed = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        return changed

    match node:
        case ast.BinOp(op=ast.MatMult()):
            yield other(left=node.right, right=node.left)
        case ast.BinOp() | ast.BoolOp() if type(node.op) in OPERATORS:
            yield other(op=OPERATORS[type(node.op)]())
        case ast.UnaryOp():
            yield node.operand
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            yield other(ops=[OPERATORS[type(op)]()])
        case ast.Constant(value=bool()):
            yield other(value=not node.value)
        case ast.Constant(value=int()):
            yield other(value=node.value + 1)
        case ast.Constant(value=float()):
            yield other(value=node.value * 2)
        case ast.Name(ctx=ast.Load()) if node.id in NAMES:
            yield other(id=NAMES[node.id])
        case ast.IfExp():
            yield other(body=node.orelse, orelse=node.body)
        case ast.Slice():
            yield from (other(**{end: None}) for end in ("lower", "upper") if getattr(node, end))
        case ast.Attribute(attr="T" | "mT"):
            yield node.value
        case ast.Attribute(ctx=ast.Load()) if node.attr in NAMES:
            yield other(attr=NAMES[node.attr])
        case ast.Call():
            yield from calls(node, other)


def calls(node, other):
    """A call without one of its keywords, with its first arguments swapped, or of a method, left out."""
    for keyword in (keyword for keyword in node.keywords if keyword.arg != "device"):
        yield other(keywords=[kept for kept in node.keywords if kept is not keyword])
    if len(node.args) > 1 and ast.unparse(node.func).rpartition(".")[2] not in SYMMETRIC:
        yield other(args=[node.args[1], node.args[0], *node.args[2:]])
    match node.func:
        case ast.Attribute(attr="cpu" | "to"):
            pass
        case ast.Attribute() if ast.unparse(node.func.value) not in MODULES:
            yield node.func.value


# -- the text of a change ------------------------------------------------------------------------


def edited(code: str, tree: ast.Module, old: ast.AST, new: ast.AST) -> str:
    """The code with the text of `old` replaced such that it means the tree with `new` in its place; else as it was."""
    wanted = ast.dump(copy.deepcopy(tree, {id(old): new}))
    if wanted == ast.dump(tree):  # two equal arguments were swapped
        return code
    source = code.encode()
    start, end = span(source, old)
    for text in spellings(source, old, new):
        changed = (source[:start] + text.encode() + source[end:]).decode()
        if meaning(changed) == wanted:
            return changed
    raise ValueError(f"no text puts {ast.unparse(new)} in the place of {ast.unparse(old)}")


def span(source, node):
    """Where a node begins and ends, in bytes."""
    lines = source.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def spellings(source, old, new):
    """Texts for `new`, its parts as they are written, with ever more parentheses."""
    if isinstance(new, ast.Pass):
        yield from ("pass", "else: pass")  # the latter for an elif
        return
    parts = []

    def hold(part):
        """A name in place of a part of `old`, so that `ast.unparse` writes what lies between the parts alone."""
        if isinstance(part, ast.keyword):
            return ast.keyword(part.arg, hold(part.value))
        if not isinstance(part, ast.expr):
            return part
        parts.append(source[slice(*span(source, part))].decode())
        return ast.Name(f"§{len(parts) - 1}§")

    def filled(text, around):
        return re.sub("§(\\d+)§", lambda place: around.format(parts[int(place[1])]), text)

    if new in ast.iter_child_nodes(old):
        frame = hold(new)
    else:
        fields = ast.iter_fields(new)
        held = {name: list(map(hold, part)) if isinstance(part, list) else hold(part) for name, part in fields}
        frame = type(new)(**held)
    for around in ("{}", "({})"):
        text = filled(ast.unparse(frame), around)
        yield from (text, f"({text})")


def meaning(code):
    """The tree of some code as a text, "" where it has none."""
    try:
        return ast.dump(ast.parse(code))
    except SyntaxError:
        return ""


def difference(old, new):
    """The lines in which two texts differ, of each as one line without shape comments."""
    texts = [properties.SHAPE_COMMENT.sub("", text).split("\n") for text in (old, new)]
    while texts[0] and texts[1] and texts[0][0] == texts[1][0]:
        texts = [lines[1:] for lines in texts]
    while texts[0] and texts[1] and texts[0][-1] == texts[1][-1]:
        texts = [lines[:-1] for lines in texts]
    return tuple(" ".join(map(str.strip, lines)) for lines in texts)


def mutated_cells(slug: str) -> list[Cell]:
    cells = read_cells(properties.ROOT / f"snippets/{slug}.md")
    shared = [cell for cell in cells if cell.shared and not cell.name.startswith("check")]
    return [*shared, *(cell for cell in cells if cell.name.startswith("solution"))]


def mutants_of(slug: str) -> list[Mutant]:
    """Every mutant of a page, each once."""
    found, names = {}, Counter()
    for cell in mutated_cells(slug):
        tree = ast.parse(cell.code)
        for old, new in changes(tree):
            code = edited(cell.code, tree, old, new)
            if code != cell.code and code not in found:
                lines = difference(cell.code, code)
                names[cell.name, *lines] += 1
                found[code] = Mutant(slug, cell.name, *lines, code, names[cell.name, *lines])
    return list(found.values())


def digest(slug: str) -> str:
    """Of the mutants of a page and of its tests, but for their comments and their layout."""
    cells = mutated_cells(slug)
    changed = [ast.dump(new) for cell in cells for _, new in changes(ast.parse(cell.code))]
    tests = ast.dump(ast.parse(tests_of(slug).read_text(encoding="utf-8")))
    return hashlib.sha256("\0".join([*(cell.code for cell in cells), *changed, tests]).encode()).hexdigest()[:12]


def tests_of(slug: str) -> Path:
    chapter, _, name = slug.rpartition("/")
    return properties.ROOT / "tests/pages" / chapter / f"test_{name.replace('-', '_')}.py"


# -- trying it -----------------------------------------------------------------------------------


@dataclass
class Notes:
    """A plugin of pytest, and what it notes down while the tests of a page try other `codes` of its cells."""

    slug: str
    codes: dict  # cell: code
    seconds: dict = field(default_factory=dict)  # of each test; quick ones come first
    status: int | None = None  # that of pytest, None if it did not end
    ran: bool = False  # one of the codes, by now
    caught: bool = False
    failed: str = ""  # the first test that did

    @property
    def page(self):
        return properties.ROOT / f"snippets/{self.slug}.md"

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0))

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def pytest_exception_interact(self, node, call):
        """A test fails, or the file cannot be imported."""
        self.failed = self.failed or node.nodeid
        if self.ran and not isinstance(call.excinfo.value, properties.NotThere):
            self.caught = True
            node.session.shouldstop = "caught"

    def read_cells(self, path):
        codes = self.codes if path == self.page else {}
        return [replace(cell, code=codes.get(cell.name, cell.code)) for cell in read_cells(path)]

    def run(self, path, parts, *options):
        self.ran |= path == self.page and any(part.name in self.codes for part in parts)
        return run(path, parts, *options)


def try_in_child(notes, sender):
    """Run the tests of a page in this process, which is a child, and send what was noted."""
    gc.freeze()  # it need not look for garbage through all that its parent has loaded
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    properties.read_cells, properties.run = notes.read_cells, notes.run
    options = "-p", "no:cacheprovider", "-p", "no:xdist"
    notes.status = int(pytest.main([str(tests_of(notes.slug)), *options], plugins=[notes]))
    sender.send(notes)


def tried(waiting: list[Notes], limit: float = 600) -> list[Notes]:
    """What the tests note of each, as many at a time as there are processors; each may take `limit` seconds."""
    running, done, waiting = {}, {}, list(enumerate(waiting))[::-1]
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            number, notes = waiting.pop()
            receiver, sender = FORK.Pipe(duplex=False)
            child = FORK.Process(target=try_in_child, args=(notes, sender))
            child.start()
            sender.close()  # so that the receiver ends with the child
            running[receiver] = number, notes, child, time.monotonic() + limit
        ready = wait(running, timeout=1)
        for receiver in [*running]:
            number, notes, child, end = running[receiver]
            if receiver in ready or time.monotonic() > end:
                if receiver not in ready:
                    child.kill()
                done[number] = received(receiver, notes)
                child.join()
                del running[receiver]
    return [done[number] for number in sorted(done)]


def received(receiver, notes):
    """What a child has sent, or what it was given if it ended otherwise."""
    try:
        return receiver.recv()
    except EOFError:
        return notes


class NotCounted(Exception):
    """The tests of a page fail although its code means the same; the message says which."""


def controls(slug: str) -> list[Notes]:
    """What the tests note of the cells of a page written otherwise; `NotCounted` unless they pass."""
    cells = mutated_cells(slug)
    unchanged, *others = ({cell.name: change(cell.code) for cell in cells} for change in (str, reprinted, respaced))
    noted = tried([Notes(slug, codes) for codes in others])
    if failed := next((notes.failed for notes in noted if notes.status != 0), None):
        [before] = tried([Notes(slug, unchanged)])
        if before.status != 0:
            raise NotCounted(f"{before.failed or tests_of(slug)} fails before anything is changed; mend it first")
        raise NotCounted(f"{failed} fails when the cells are only written otherwise; it must not look at their text")
    return noted


def reprinted(code):
    return ast.unparse(ast.parse(code)) + "\n"


def respaced(code):
    """Code with other spaces between its words and signs, and without comments."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return tokenize.untokenize((token.type, token.string) for token in tokens if token.type != tokenize.COMMENT)


def count(slug: str) -> tuple[list, list]:
    """The mutants of a page with what its tests note of each."""
    seconds = controls(slug)[0].seconds
    mutants = mutants_of(slug)
    noted = tried(
        [Notes(slug, {mutant.cell: mutant.code}, seconds) for mutant in mutants], 60 + 5 * sum(seconds.values())
    )
    return list(zip(mutants, noted))


# -- telling of it -------------------------------------------------------------------------------


def read_report() -> tuple[dict, dict]:
    """The pages of the report as {slug: (mutants, caught, stopped, digest)}, and {survivor: reason}."""
    lines = REPORT.read_text(encoding="utf-8").splitlines() if REPORT.exists() else []
    rows = [
        [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
        if re.match(r"\| (?!page)", line)
    ]
    pages = {row[0]: (int(row[1]), int(row[2]), int(row[3]), row[5]) for row in rows if len(row) == 6}
    survivors = [row for row in rows if len(row) == 5]
    return pages, {(slug, cell, old[1:-1], new[1:-1]): reason for slug, cell, old, new, reason in survivors}


def write_report(pages: dict, reasons: dict):
    lines = [*HEAD]
    for slug, (made, caught, stopped, code) in sorted(pages.items()):
        lines.append(f"| {slug} | {made} | {caught} | {stopped} | {(caught + stopped) / made:.1%} | {code} |")
    lines += SURVIVORS
    for (slug, cell, old, new), reason in sorted(reasons.items()):
        lines.append(f"| {slug} | {cell} | `{escaped(old)}` | `{escaped(new)}` | {escaped(reason)} |")
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def escaped(text):
    return text.replace("|", r"\|")


def changed_pages(pages: dict) -> list[str]:
    """The pages with tests that are not counted as they are now."""
    slugs = map(slug_of, sorted(properties.ROOT.glob("snippets/**/*.md")))
    return [slug for slug in slugs if tests_of(slug).is_file() and pages.get(slug, [""])[-1] != digest(slug)]


def main(named: list[str]) -> str | None:
    """Count pages, and write the report after each; return what stands in the way."""
    pages, reasons = read_report()
    slugs, refused = named or changed_pages(pages), []
    torch.set_num_threads(1)
    importlib.import_module("transformers.models.gpt2.modeling_gpt2")  # once, not in each child
    for slug in slugs:
        try:
            noted = count(slug)
        except NotCounted as error:
            print(f"{slug}: not counted: {error}")
            refused.append(slug)
            continue
        stopped = [notes.status is None for _, notes in noted].count(True)
        alive = [mutant.name for mutant, notes in noted if notes.status is not None and not notes.caught]
        pages[slug] = len(noted), len(noted) - len(alive) - stopped, stopped, digest(slug)
        reasons = {name: reason for name, reason in reasons.items() if name[0] != slug} | {
            name: reasons.get(name, NO_REASON) for name in alive
        }
        write_report(pages, reasons)
        print(f"{slug}: {len(noted) - len(alive)} of {len(noted)} caught, {stopped} of them stopped")
    for slug, cell, old, new in (name for name, reason in reasons.items() if reason == NO_REASON):
        print(f"{slug}, {cell}: no test catches, and no reason is given for\n    {old}\n    {new}")
    return f"not counted: {', '.join(refused)}" if refused else None


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SourceError as error:
        sys.exit(str(error))
