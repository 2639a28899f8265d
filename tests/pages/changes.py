"""Small changes of Python code such as people make by mistake, each of one statement inside a function or class."""

import ast
import copy
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
    "b_query": "b_key", "b_value": "b_key",
}  # fmt: skip
SYMMETRIC = {"allclose", "equal", "gap", "max", "min", "transpose"}  # two arguments may change places without effect
MODULES = ("torch", "nn", "F", "self", "super()")  # a call on one of these is none on a tensor
Expressions = Iterator[tuple[ast.expr, ast.expr]]


@dataclass(frozen=True)
class Change:
    """Code that has one statement changed, which begins on its `line` and now reads `text`, "# y = x" if left out."""

    line: int
    text: str
    code: str


def changes(code: str) -> Iterator[Change]:
    """Each change of some code, once."""
    texts = {code}
    for definition in ast.parse(code).body:
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            for statement, changed in changed_below(definition, read_names(definition)):
                change = written(code, statement, changed)
                if change.code not in texts and ast.dump(changed) != ast.dump(statement):
                    texts.add(change.code)
                    yield change


def written(code: str, old: ast.stmt, new: ast.stmt) -> Change:
    """A statement in the place of another; all other lines are as they were."""
    lines = code.splitlines(keepends=True)
    text = ast.unparse(new)
    title = text.partition("\n")[0]
    if isinstance(new, ast.Pass):
        title = "# " + ast.unparse(old).partition("\n")[0]
    if lines[old.lineno - 1].lstrip().startswith("elif "):
        text = "else:\n    pass" if isinstance(new, ast.Pass) else f"el{text}"
    lines[old.lineno - 1 : old.end_lineno] = [textwrap.indent(text, " " * old.col_offset) + "\n"]
    return Change(old.lineno, title, "".join(lines))


def changed_below(block: ast.stmt, read: set[str]) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Each statement in a block with what may stand in its place."""
    for statement in (statement for name in ("body", "orelse", "finalbody") for statement in getattr(block, name, [])):
        if only_for_comments(statement, read):
            continue
        if changes_state(statement):
            yield statement, ast.Pass()
        for old, new in changed_within(statement):
            yield statement, copy.deepcopy(statement, {id(old): new})
        yield from changed_below(statement, read)


def read_names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def only_for_comments(statement: ast.stmt, read: set[str]) -> bool:
    """Whether it names sizes that no code reads, as in `B, T, D = queries.shape`: shape comments do, and check them."""
    if not isinstance(statement, ast.Assign):
        return False
    targets = [node for target in statement.targets for node in ast.walk(target)]
    named = all(isinstance(node, ast.Name | ast.Tuple | ast.expr_context) for node in targets)
    return named and not read & {node.id for node in targets if isinstance(node, ast.Name)}


def changes_state(statement: ast.stmt) -> bool:
    """Whether code still runs without a statement: it defines no new name, and returns nothing."""
    if isinstance(statement, ast.Assign):
        loaded = read_names(statement.value)
        return all(not isinstance(target, ast.Name) or target.id in loaded for target in statement.targets)
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Expr | ast.AugAssign | ast.Raise | ast.If | ast.For) and not docstring


def changed_within(node: ast.AST) -> Expressions:
    """The expressions of one statement, without its decorators, each with what may stand in its place."""
    for name, field in ast.iter_fields(node):
        for child in field if isinstance(field, list) else [field]:
            if name == "decorator_list" or isinstance(child, ast.stmt | ast.JoinedStr):
                continue
            if isinstance(child, ast.expr):
                yield from ((child, new) for new in variants(child))
            if isinstance(child, ast.AST):
                yield from changed_within(child)


def variants(node: ast.expr) -> Iterator[ast.expr]:
    """What could stand in place of an expression by mistake."""

    def other(**fields: object) -> ast.expr:
        return type(node)(**vars(node) | fields)

    match node:
        case ast.BinOp(op=ast.MatMult()):
            yield other(left=node.right, right=node.left)
        case ast.BinOp() | ast.BoolOp() if type(node.op) in OPERATORS:
            yield other(op=OPERATORS[type(node.op)]())
        case ast.UnaryOp():
            yield node.operand
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            yield other(ops=[OPERATORS[type(op)]()])
        case ast.Constant(value=bool() as truth):
            yield other(value=not truth)
        case ast.Constant(value=int() as number):
            yield other(value=number + 1)
        case ast.Constant(value=float() as number):
            yield other(value=number * 2)
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


def calls(node: ast.Call, other: Callable[..., ast.expr]) -> Iterator[ast.expr]:
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
