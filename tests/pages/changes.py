"""Small changes of Python code such as people make by mistake, each an edit of the text at one place."""

import ast
import copy
import re
from collections.abc import Iterator
from itertools import accumulate

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


def changed_texts(code: str) -> Iterator[str]:
    """The code with one change inside one of its functions and classes, for each change."""
    tree = ast.parse(code)
    for old, new in changes(tree):
        text = edited(code, tree, old, new)
        if text != code:
            yield text


# -- what is changed -----------------------------------------------------------------------------


def changes(tree):
    """Each change as (node, what stands in its place)."""
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


def edited(code, tree, old, new):
    """The code with another text in the place of `old`, such that it means the tree with `new` there."""
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
    starts = list(accumulate(map(len, source.splitlines(keepends=True)), initial=0))
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


class Parts(ast.NodeTransformer):
    """Puts names in the place of the expressions in a node: `ast.unparse` then writes what lies between them alone."""

    def __init__(self, source):
        self.source, self.texts = source, []

    def visit(self, node):
        if not isinstance(node, ast.expr):
            return self.generic_visit(node)
        self.texts.append(self.source[slice(*span(self.source, node))].decode())
        return ast.Name(f"§{len(self.texts) - 1}§")

    def filled(self, frame, around):
        """The text of a node whose expressions are names, with their texts, and `around` each what it says."""
        return re.sub("§(\\d+)§", lambda place: around.format(self.texts[int(place[1])]), frame)


def spellings(source, old, new):
    """Texts for `new` with ever more parentheses; the parts that it has of `old` are written as they were."""
    if isinstance(new, ast.Pass):
        yield from ("pass", "else: pass")  # the latter for an elif
        return
    parts = Parts(source)
    is_part = new in ast.iter_child_nodes(old)
    frame = ast.unparse(parts.visit(new) if is_part else parts.generic_visit(copy.deepcopy(new)))
    for around in ("{}", "({})"):
        text = parts.filled(frame, around)
        yield from (text, f"({text})")


def meaning(code):
    """The tree of some code as a text, "" where it has none."""
    try:
        return ast.dump(ast.parse(code))
    except SyntaxError:
        return ""
