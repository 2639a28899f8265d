"""Where each name of torch is used: an index of the cells, made from their source text while the site is built.

theme/symbols.html shows it. torch itself is not asked, so the methods and arguments worth an entry are listed here; a
test compares them with torch, and with what the cells use.
"""

import ast
import functools
from dataclasses import dataclass

from tools.cells.source import program_cells

PACKAGES = ("torch", "einops", "transformers")
SHORT = {"torch.nn.functional.": "F.", "torch.nn.": "nn."}
METHODS = {
    "Tensor": """amax amin aminmax argmax argsort backward chunk clamp clone contiguous copy_ cumsum data_ptr detach
        diagonal div_ expand flatten flip grad isfinite isnan logical_not logical_not_ masked_fill median mT mul_
        nan_to_num new_ones nonzero norm permute prod repeat repeat_interleave requires_grad requires_grad_ reshape
        scatter softmax squeeze stride T to transpose tril triu unbind unflatten unsqueeze untyped_storage var view
        where zero_""",
    "nn.Module": "eval load_state_dict named_parameters parameters register_buffer state_dict train training",
    "nn.MultiheadAttention": "in_proj_bias in_proj_weight k_proj_weight out_proj q_proj_weight v_proj_weight",
}
OWNERS = {name: owner for owner, names in METHODS.items() for name in names.split()}
ARGUMENTS = """attn_mask average_attn_weights batch_first dropout_p enable_gqa generator is_causal kdim keepdim
    key_padding_mask need_weights padding_side persistent scale vdim"""
NOBODY_ASKS = """abs all any arange bool cpu cuda data device double dtype embed_dim equal exp float float32 half int
    int32 is_floating_point is_meta item log long manual_seed max mean min name nbytes numel randn round shape std sum
    tanh Tensor tensor tolist type zero_grad zeros"""


@dataclass(frozen=True)
class Symbol:
    """A name, and each page that uses it with the names of its cells that do."""

    name: str
    uses: list


def index(pages):
    """The symbols of some pages from A to Z, whatever stands before the last dot."""
    found = {}
    for page in pages:
        cells = {}
        for cell in page.cells_to_verify:
            for name in names(page.cells_to_verify, cell):
                cells.setdefault(name, []).append(cell.name)
        for name in cells:
            found.setdefault(name, []).append((page, cells[name]))
    return [Symbol(name, found[name]) for name in sorted(found, key=alphabetical)]


def alphabetical(name):
    return name.rpartition(".")[2].lower(), name


def names(cells, cell):
    """The names that a cell uses, each once, as the imports of its program mean them."""
    return names_in(tuple(part.code for part in program_cells(cells, cell)))


@functools.cache
def names_in(program):
    """The names that the last of some parts of a program uses; cached, since every language has the same cells."""
    meant, own = {}, set()
    for code in program:
        imported_here, methods = defined(code)
        meant |= imported_here
        own |= methods
    return dict.fromkeys(used(nodes(program[-1]), meant, OWNERS.keys() - own))


@functools.cache
def nodes(code):
    """The syntax tree of a part of a program, from the outside in."""
    return list(ast.walk(ast.parse(code)))


@functools.cache
def defined(code):
    """What each name stands for that a cell imports, and the methods that it defines itself."""
    methods = {node.name for node in nodes(code) if isinstance(node, ast.FunctionDef) and is_method(node)}
    return imports(nodes(code)), methods


def is_method(function):
    return [argument.arg for argument in function.args.args[:1]] == ["self"]


def imports(nodes):
    """What each name stands for that a program imports."""
    meant = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            meant |= {alias.asname or alias.name: package + alias.name for alias in node.names}
    return meant


def used(nodes, meant, methods):
    """The names in a part of a program: of packages, of methods, of arguments."""
    arguments, nobody_asks = ARGUMENTS.split(), NOBODY_ASKS.split()
    inside = set()  # of a longer name
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg in arguments:
            yield f"{node.arg}="
        elif name := imported(node, meant):
            if isinstance(node, ast.Attribute):
                inside.add(node.value)
            package, _, rest = name.partition(".")
            if node not in inside and package in PACKAGES and rest and rest.rpartition(".")[2] not in nobody_asks:
                yield short(name)
        elif isinstance(node, ast.Attribute) and node.attr in methods:
            yield f"{OWNERS[node.attr]}.{node.attr}"


def imported(node, meant):
    """The whole name of something that a program has imported, such as torch.nn.Linear; nothing for anything else."""
    rest = []
    while isinstance(node, ast.Attribute):
        rest.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in meant:
        return ""
    return ".".join([meant[node.id], *(name for name in reversed(rest) if not name.startswith("__"))])


def short(name):
    """A name as the cells write it."""
    for long, alias in SHORT.items():
        name = name.replace(long, alias, 1)
    return name
