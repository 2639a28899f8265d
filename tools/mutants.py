"""Break the code of the pages in small ways and see whether their tests notice: `nox -s mutants`

A mutant is one small change inside a function or class that readers copy, in a shared cell or in the solution of the
exercise: an operator, a comparison, a number, an axis, a name of another role, a call or a statement left out. It is
caught if the tests of its page, `tests/pages/...`, fail. Left alone are: code outside of functions, since its printed
output checks it; the check of an exercise, `check...`, which is tried on wrong answers; sizes that only shape comments
read; and on which device a tensor lies, which `--device` checks.

The result is `tests/pages/mutants.md`. It lists what no test catches, each with a reason that a person writes there.
"""

import ast
import copy
import importlib
import os
import re
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from tests.pages import exercise, properties
from tools.cells.record import write_atomically
from tools.cells.source import SourceError, read_cells

REPORT = Path("tests/pages/mutants.md")
SECONDS = 120  # for the tests of one mutant; one that runs longer is caught
NO_REASON = "?"
HEAD = """\
# Mutants

Written by `nox -s mutants`; only the reasons are written by people. A mutant is one small change in a function or class
of a page, as `tools/mutants.py` says. The tests of that page alone catch it, or it stands below.

| page | mutants | caught | share |
|---|---|---|---|""".splitlines()
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


@dataclass(frozen=True)
class Mutant:
    """A cell with one change in the statement `old`, which then reads `new`."""

    slug: str
    cell: str
    old: str
    new: str
    code: str

    @property
    def name(self):
        return self.slug, self.cell, self.old, self.new


MODULES = ("torch", "nn", "F", "self", "super()")  # a call on one of these is none on a tensor


# -- making them ---------------------------------------------------------------------------------


def mutants_of(slug):
    """Every mutant of a page, each once."""
    found = {}
    for cell in read_cells(Path("snippets", f"{slug}.md")):
        if cell.name.startswith("solution") or (cell.shared and not cell.name.startswith("check")):
            unchanged = ast.unparse(ast.parse(cell.code)) + "\n"
            for number in range(len(list(changes(ast.parse(cell.code))))):
                tree = ast.parse(cell.code)  # each change is made in a tree of its own
                old, new = list(changes(tree))[number]()
                mutant = Mutant(slug, cell.name, old, new, ast.unparse(ast.fix_missing_locations(tree)) + "\n")
                if mutant.code != unchanged:  # two equal arguments were swapped
                    found.setdefault(mutant.code, mutant)
    return list(found.values())


def changes(tree):
    """Functions that each make one change in the tree, and return the statement before and after."""
    for definition in tree.body:
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            yield from changes_below(definition, read_names(definition))


def read_names(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def changes_below(block, read):
    for body in (getattr(block, name, []) for name in ("body", "orelse", "finalbody")):
        for number, statement in enumerate(body):
            if only_for_comments(statement, read):
                continue
            if changes_state(statement):
                yield lambda body=body, number=number: leave_out(body, number)
            for parent, field, index, new in replacements(statement):
                yield lambda s=statement, p=parent, f=field, i=index, n=new: put(s, p, f, i, n)
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


def replacements(node):
    """Each (parent, field, index or None, new expression) among the expressions of one statement."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.expr):
                yield from ((node, field, index, new) for new in variants(child))
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt | ast.JoinedStr):
                yield from replacements(child)


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
    if len(node.args) > 1 and called(node) not in SYMMETRIC:
        yield other(args=[node.args[1], node.args[0], *node.args[2:]])
    match node.func:
        case ast.Attribute(attr="cpu" | "to"):
            pass
        case ast.Attribute() if ast.unparse(node.func.value) not in MODULES:
            yield node.func.value


def called(node):
    """The last name of what is called: `allclose` of `torch.allclose(a, b)`."""
    return ast.unparse(node.func).rpartition(".")[2]


def leave_out(body, number):
    old, body[number] = body[number], ast.Pass()
    return head(old), "pass"


def put(statement, parent, field, index, new):
    old = head(statement)
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
    return old, head(statement)


def head(statement):
    return ast.unparse(statement).splitlines()[0]


# -- catching them -------------------------------------------------------------------------------


def survivors(mutants):
    """The mutants that the tests of their page do not catch; as many at a time as there are processors."""
    waiting, running, alive = list(reversed(mutants)), {}, []
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            mutant = waiting.pop()
            running[start(mutant)] = mutant
        process, status = os.wait()
        mutant = running.pop(process)
        if status == 0:
            alive.append(mutant)
    return sorted(alive, key=mutants.index)


def start(mutant):
    """Run the tests of a mutant in a child, which has torch and pytest loaded; return its process id."""
    if process := os.fork():
        return process
    signal.alarm(SECONDS)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os._exit(run_tests(mutant))


def run_tests(mutant):
    """The exit status of the tests of a page whose snippets hold a mutant: 0 if none notices."""

    def read_mutant(path):
        cells = read_cells(path)
        if path.resolve() != Path("snippets", f"{mutant.slug}.md").resolve():
            return cells
        return [replace(cell, code=mutant.code) if cell.name == mutant.cell else cell for cell in cells]

    def with_bug(parts, cell, changed):
        """A bug upon the mutant: a text that the mutant has changed is no failure of the page's code."""
        for old, new in changed.items():
            parts = [replace(part, code=part.code.replace(old, new)) if part.name == cell else part for part in parts]
        return parts

    properties.read_cells, properties.with_bug = read_mutant, with_bug
    exercise.executed.cache_clear()
    return pytest.main([str(tests_of(mutant.slug)), "-x", "-q", "-p", "no:cacheprovider"])


def tests_of(slug):
    chapter, _, name = slug.rpartition("/")
    return Path("tests/pages", chapter, f"test_{name.replace('-', '_')}.py")


# -- telling of them -----------------------------------------------------------------------------


def read_report():
    """The pages of the report as {slug: (mutants, caught)}, and {survivor: reason}."""
    lines = REPORT.read_text(encoding="utf-8").splitlines() if REPORT.exists() else []
    rows = [
        [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
        if re.match(r"\| (?!page)", line)
    ]
    pages = {row[0]: (int(row[1]), int(row[2])) for row in rows if len(row) == 4}
    survivors = [row for row in rows if len(row) == 5]
    return pages, {(slug, cell, old[1:-1], new[1:-1]): reason for slug, cell, old, new, reason in survivors}


def write_report(pages, reasons):
    lines = [
        *HEAD,
        *(f"| {slug} | {made} | {caught} | {caught / made:.1%} |" for slug, (made, caught) in sorted(pages.items())),
        *SURVIVORS,
    ]
    for (slug, cell, old, new), reason in sorted(reasons.items()):
        lines.append(f"| {slug} | {cell} | `{escaped(old)}` | `{escaped(new)}` | {escaped(reason)} |")
    write_atomically(REPORT, "\n".join(lines) + "\n")


def escaped(text):
    return text.replace("|", r"\|")


def main(slugs):
    torch.set_num_threads(1)
    importlib.import_module("transformers.models.gpt2.modeling_gpt2")  # once, not per mutant
    pages, reasons = read_report()
    for slug in (slug for slug in slugs if tests_of(slug).is_file()):  # a lab has none
        unchanged = Mutant(slug, "", "", "", "")
        if survivors([unchanged]) != [unchanged]:
            sys.exit(f"{slug}: its tests fail before anything is changed; mend them first: nox -s cells -- tests/pages")
        mutants = mutants_of(slug)
        alive = [mutant.name for mutant in survivors(mutants)]
        pages[slug] = len(mutants), len(mutants) - len(alive)
        kept = {name: reason for name, reason in reasons.items() if name[0] != slug}
        reasons = kept | {name: reasons.get(name, NO_REASON) for name in alive}
        write_report(pages, reasons)
        print(f"{slug}: {pages[slug][1]} of {pages[slug][0]} caught")
    for name in (name for name, reason in reasons.items() if reason == NO_REASON):
        print("not caught, and without a reason in", REPORT, *name, sep="\n    ")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SourceError as error:
        sys.exit(str(error))
