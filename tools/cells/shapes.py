"""Shape comments that are executed: `scores = queries @ keys.mT  # (B, H, Tq, Tk)`.

Behind an assignment or a return, such a comment becomes an assertion on the tensor that was assigned or returned. Each
entry is evaluated with the integers in scope; a tuple is checked element by element.
"""

import ast
import io
import re
import tokenize

SHAPE = re.compile(r"#\s*\((.*)\)")
CHECK = "__check_shape__"


class ShapeError(AssertionError):
    """A shape comment says something else than the tensor, or cannot be checked."""


def shape_comments(source):
    """The comments of a cell by line; `ShapeError` for one that is not a shape, since a cell has no other comments."""
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            if not (match := SHAPE.fullmatch(token.string.strip())):
                raise ShapeError(f"{line}: a comment in a cell is a shape, as in # (B, H, T, D), not {token.string!r}")
            comments[line] = match[1]
    return comments


def instrument(source, filename):
    """The syntax tree of a cell with its shape comments as calls of `CHECK`, and the lines of these comments."""
    tree = ast.parse(source, filename)
    comments = shape_comments(source)
    visitor = Instrument(comments)
    tree = ast.fix_missing_locations(visitor.visit(tree))
    for line in comments.keys() - visitor.used:
        raise ShapeError(
            f"{line}: this shape cannot be checked; put it behind the last line of an assignment or return"
        )
    return tree, set(comments)


class Instrument(ast.NodeTransformer):
    def __init__(self, comments):
        self.comments, self.used = comments, set()

    def call(self, statement, value):
        """The call that checks `value`, if a shape comment ends the statement."""
        line = statement.end_lineno
        if line not in self.comments:
            return None
        self.used.add(line)
        scope = ast.Call(ast.Name("locals", ast.Load()), [], [])
        arguments = [value, ast.Constant(self.comments[line]), scope, ast.Constant(line)]
        return ast.copy_location(ast.Call(ast.Name(CHECK, ast.Load()), arguments, []), statement)

    def visit_Return(self, statement):
        statement.value = self.call(statement, statement.value) or statement.value
        return statement

    def visit_Assign(self, statement):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        check = self.call(statement, ast.parse(ast.unparse(target), mode="eval").body)
        return [statement, ast.copy_location(ast.Expr(check), statement)] if check else statement

    visit_AugAssign = visit_AnnAssign = visit_Assign


def checker(namespace, executed):
    """The function behind `CHECK` for programs that run in `namespace`; it adds the lines it checked to `executed`."""

    def check(value, comment, scope, line):
        if isinstance(value, (tuple, list)):
            for element in value:
                check(element, comment, scope, line)
            return value
        if not hasattr(value, "shape"):
            raise ShapeError(f"the comment says ({comment}), but this is a {type(value).__name__}, not a tensor")
        sizes = {k: v for k, v in {**namespace, **scope}.items() if type(v) is int}
        try:
            wanted = eval(f"({comment.rstrip(', ')},)" if comment.strip() else "()", {"__builtins__": {}}, sizes)
        except NameError as error:
            raise ShapeError(f"the comment says ({comment}), but {error.name} is no integer here") from None
        except SyntaxError:
            raise ShapeError(f"the comment ({comment}) is not a shape; write it as (B, H, T, D)") from None
        if tuple(value.shape) != wanted:
            meaning = f"({comment})" + (f" = {wanted}" if str(wanted) != f"({comment})" else "")
            raise ShapeError(
                f"the comment says {meaning}, the tensor has {tuple(value.shape)}; mend the comment or the code"
            )
        executed.add(line)
        return value

    return check
