"""Shape comments that are executed: `scores = queries @ keys.mT  # (B, H, Tq, Tk)`.

Behind an assignment or a return, such a comment becomes an assertion on the tensor that was assigned or returned. Each
entry is evaluated with the integers in scope; a tuple is checked element by element.
"""

import ast
import functools
import io
import re
import tokenize
import types
from collections.abc import Callable
from typing import Any

from tools.cells.source import Cell, SourceError, at_their_lines

SHAPE = re.compile(r"#\s*\(([\w ,*/+-]*)\)")  # names, numbers and arithmetic
CHECK = "__check_shape__"
LAST = "__last_line__"


@functools.cache
def shape_comments(cell: Cell) -> dict[int, str]:
    """The comments of a cell by line of its file; `SourceError` for one that is no shape: a cell has no other."""
    comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(at_their_lines([cell])).readline):
        if token.type == tokenize.COMMENT:
            where = f"{cell.path}:{token.start[0]}"
            if not (match := SHAPE.fullmatch(token.string.strip())):
                rule = "a comment in a cell is a shape, as in # (B, H, T, D)"
                raise SourceError(f"{where}: {rule}, not {token.string!r}")
            sizes_of(match[1], where)
            comments[token.start[0]] = match[1]
    return comments


def sizes_of(comment: str, where: str) -> types.CodeType:
    """A comment as the code of a tuple of sizes."""
    try:
        return compile(f"({comment.rstrip(', ')},)" if comment.strip() else "()", where, "eval")
    except SyntaxError:
        raise SourceError(f"{where}: the comment ({comment}) is no shape; write it as (B, H, T, D)") from None


@functools.cache
def compiled(cell: Cell) -> types.CodeType:
    """The code object of a cell, with its shape comments as calls of `CHECK`.

    The value of a last line that is no assignment goes through `LAST`, since a notebook would show it. `SourceError`
    where the cell is no Python, or has a comment that is no shape or stands where none is checked.
    """
    try:
        tree = ast.parse(at_their_lines([cell]), cell.path)
    except SyntaxError as error:
        raise SourceError(f"{cell.path}:{error.lineno}: SyntaxError: {error.msg}") from None
    comments = shape_comments(cell)
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        arguments = [ast.Constant(f"{cell.path}:{last.lineno}"), last.value]
        last.value = ast.copy_location(ast.Call(ast.Name(LAST, ast.Load()), arguments, []), last)
    visitor = Instrument(cell.path, comments)
    tree = visitor.visit(tree)
    for line in comments.keys() - visitor.used:
        fix = "put it behind the last line of an assignment or return"
        raise SourceError(f"{cell.path}:{line}: this shape cannot be checked; {fix}")
    return compile(ast.fix_missing_locations(tree), cell.path, "exec", dont_inherit=True)


class Instrument(ast.NodeTransformer):
    """Puts the calls of `CHECK` into the code of a file; `used` are the lines whose comments are checked then."""

    def __init__(self, filename: str, comments: dict[int, str]) -> None:
        self.filename, self.comments = filename, comments
        self.used: set[int] = set()

    def call(self, statement: ast.stmt, value: ast.expr) -> ast.Call:
        """The call that checks `value` by the shape comment that ends the statement."""
        line = statement.end_lineno or 0
        self.used.add(line)
        scope = ast.Call(ast.Name("locals", ast.Load()), [], [])
        arguments = [value, ast.Constant(self.comments[line]), scope, ast.Constant(f"{self.filename}:{line}")]
        return ast.copy_location(ast.Call(ast.Name(CHECK, ast.Load()), arguments, []), statement)

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value and node.end_lineno in self.comments:
            node.value = self.call(node, node.value)
        return node

    def visit_Assign(self, node: Any) -> Any:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.end_lineno not in self.comments or len(targets) > 1 or not is_named(targets[0]):
            return node
        check = self.call(node, ast.parse(ast.unparse(targets[0]), mode="eval").body)
        return [node, ast.copy_location(ast.Expr(check), node)]

    visit_AugAssign = visit_AnnAssign = visit_Assign


def is_named(target: ast.expr) -> bool:
    """Whether a target can be read again without side effects: a name, an attribute, or a tuple of such."""
    named = ast.Name, ast.Attribute, ast.Tuple, ast.List, ast.expr_context
    return all(isinstance(node, named) for node in ast.walk(target))


def checker(namespace: dict[str, Any], executed: set[str], lies: list[str]) -> Callable[..., Any]:
    """The function behind `CHECK` for programs that run in `namespace`.

    It adds the comments that it checked to `executed`, as `file:line`, and those that are not true to `lies`: a cell
    could catch what is raised. While torch compiles or exports, tensors have no numbers, and nothing is checked.
    """
    import torch  # the site, which reads comments, is built without

    def check(value: Any, comment: str, scope: dict[str, Any], where: str) -> Any:
        if torch.compiler.is_compiling():
            return value
        executed.add(where)
        sizes = {name: size for name, size in (namespace | scope).items() if type(size) is int}
        try:
            wanted = eval(sizes_of(comment, where), {"__builtins__": {}}, sizes)
        except NameError as error:
            wanted = f"{error.name}, which is no integer here"
        for tensor in flat(value):
            shape = tuple(tensor.shape) if hasattr(tensor, "shape") else f"no tensor, but {type(tensor).__name__}"
            if shape != wanted:
                lies.append(f"{where}: the comment says ({comment}) = {wanted}, the code makes {shape}; fix one")
        return value

    return check


def flat(value: Any) -> list[Any]:
    """A tensor, or the tensors of a tuple."""
    return [tensor for part in value for tensor in flat(part)] if isinstance(value, (tuple, list)) else [value]
