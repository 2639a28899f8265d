"""Pages and cells fit each other, and the cells keep the style of the house."""

import ast
import builtins
import contextlib
import re
import sys
from pathlib import Path

import einops
import torch.nn.attention.bias
import torch.nn.functional as F
import transformers
from torch import nn

from tests.configuration import PAGES, ROOT, page_file
from tools.cells.labels import refuse_misfit
from tools.cells.plugin import LEGEND
from tools.cells.record import read_record, still_verified
from tools.cells.source import INCLUDE, SourceError, read_includes, slug_of
from tools.languages.glossary import read_rows
from tools.languages.markdown import read

ALLOWED_IMPORTS = {"torch", "math"}
ALLOWED_IN_LABS = ALLOWED_IMPORTS | {"attention_probes", "matplotlib"} | sys.stdlib_module_names
ALLOWED_ON = {  # where another package is the subject, what torch warns of, or a module is copied or inspected
    "practice/einsum": ALLOWED_IMPORTS | {"einops"},
    "cache/kv-cache": ALLOWED_IMPORTS | {"copy", "transformers"},
    "foundations/many-heads": ALLOWED_IMPORTS | {"copy"},
    "masks/combining": ALLOWED_IMPORTS | {"warnings"},
    "masks/transformer-layers": ALLOWED_IMPORTS | {"warnings"},
    "kernels/which-kernel": ALLOWED_IMPORTS | {"warnings"},
    "kernels/flex-attention": ALLOWED_IMPORTS | {"os", "textwrap", "timeit", "warnings"},
    "practice/kit": ALLOWED_IMPORTS | {"attention_probes", "transformers"},
    "practice/capstone": ALLOWED_IMPORTS | {"attention_probes"},
    "practice/museum": ALLOWED_IMPORTS | {"attention_probes"},
    "practice/look-inside": ALLOWED_IMPORTS | {"inspect", "transformers"},
    "practice/same-seed": ALLOWED_IMPORTS | {"io", "os", "random", "transformers"},
}
NAMES = ROOT / "tests/structure/names.csv"
HOLDERS = [torch, torch.Tensor, nn, F, nn.init, nn.attention, nn.attention.bias, torch.autograd, torch.compiler]
HOLDERS += [torch.cuda, torch.backends.cuda, torch.backends.cudnn, transformers, einops]
FILES = """
    torch/nn/functional torch/nn/modules/transformer torch/nn/modules/activation torch/nn/attention/flex_attention
    torch/_dynamo/config transformers/models/llama/modeling_llama transformers/models/gpt2/modeling_gpt2
    transformers/models/qwen3/modeling_qwen3 transformers/modeling_utils transformers/cache_utils
    transformers/generation/utils transformers/modeling_rope_utils transformers/tokenization_utils_base
    transformers/training_args"""


def test_every_cell_is_shown_once_and_in_order(cells, language, every_page):
    def look(page):
        includes = read_includes(page_file(language, page))
        shown = [(include.slug, include.name) for include in includes if not include.is_section]
        wanted = [(slug_of(cell.path), cell.name) for cell in cells.get(page, [])]
        assert shown == wanted, page_file(language, page)

    every_page(look)


def test_the_names_of_this_site_stand_in_cells_of_the_page_that_is_named_beside_them(cells, refuse):
    path = page_file("en", "symbols")
    rows = re.findall(r"^\| (`.+?) \| .+? \| \[.+\]\((.+)\.md\) \|$", path.read_text("utf-8"), re.M)
    assert rows, path
    refuse(
        f"{path}: no cell of {slug} says {name}"
        for names, slug in rows
        for name in re.findall("`(.+?)`", names)
        if not any(re.search(rf"\b{name}\b", cell.code) for cell in cells[slug])
    )


def test_what_is_code_on_a_page_is_a_cell_between_empty_lines_or_a_command(language, every_page):
    """Python in a page would be neither run nor shared between the languages; a comment could hide a cell."""

    def look(page):
        path = page_file(language, page)
        text = path.read_text("utf-8")
        lines = [*text.splitlines(), ""]
        for number, line in enumerate(lines):
            match = INCLUDE.fullmatch(line)
            alone = not match or match[2] or lines[number - 1] == "" == lines[number + 1]
            assert alone, f"{path}:{number + 1}: a cell has an empty line above it and one below"
        for block in read(path).of("code block"):
            if not block.text.startswith("sh "):
                fix = "this looks like an output of a cell; show a cell, or unindent it"
                raise SourceError(f"{path}:{block.line}: {fix}")
        assert not re.search("<!--|<pre|<code|<script", text), path

    every_page(look)


def test_a_name_in_the_prose_is_one_of_a_cell_a_library_or_the_list(cells, refuse):
    """In English; the other languages have the same names."""
    places = {}
    for path in (page_file("en", page) for page in PAGES):
        for _, piece in read(path).pieces("code"):
            places |= dict.fromkeys(names_in(piece.text), f"{path}:{piece.line}")
    text = " ".join(f"{cell.code} {cell.output}" for part in cells.values() for cell in part)
    unknown = places.keys() - set(re.findall(r"\w+", text)) - names_of_libraries()
    listed = {name for row in read_rows(NAMES) for name in row["names"].split()}
    fix = f"no cell and no library has this name; correct it, or add it to {NAMES}"
    refuse(f"{places[name]}: {name!r}: {fix}" for name in unknown - listed)
    refuse(f"{NAMES}: {name!r} needs no row, or stands on no page; take it out" for name in listed - unknown)


def names_in(code):
    """The identifiers in Python, a file name and what is no Python having none."""
    for text in (code, f"{code}: pass", f"{code}\n    pass"):
        with contextlib.suppress(SyntaxError):
            nodes = [] if re.fullmatch(r"\w+\.(?:py|md|json)", code) else ast.walk(ast.parse(text))
            return {getattr(node, key, None) for node in nodes for key in ("id", "attr", "arg", "name")} - {None}
    return set()


def names_of_libraries():
    """The attributes of modules and classes, and all that some files name, so that arguments are among it."""
    files = (Path(torch.__file__).parents[1] / f"{name}.py" for name in FILES.split())
    return set().union(*map(dir, [builtins, *HOLDERS]), *(names_in(path.read_text("utf-8")) for path in files))


def test_names_are_read_from_python_alone():
    assert names_in("fill_masked(x.T, dim=-1)") == {"fill_masked", "x", "T", "dim"}
    assert names_in("persist=False") | names_in("def f(y)") == {"persist", "f", "y"}
    assert names_in("model.py") | names_in("CUDA out of memory") == set()


def test_a_cell_keeps_the_style_of_the_house(cells, refuse):
    refuse(
        f"{cell.path}:{cell.fence}: {cell.name} {fault}"
        for slug, part in cells.items()
        for cell in part
        for fault in (*faults_of_code(slug, cell), *faults_of_output(slug, cell))
    )


def faults_of_code(slug, cell):
    """Short, for a reader who has nothing but torch, and with the letters of the legend for its sizes."""
    nodes = list(ast.walk(ast.parse(cell.code)))
    limit = 45 if is_shown_whole(cell) else 25
    if cell.code.count("\n") > limit:
        yield f"has more than {limit} lines"
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    allowed = ALLOWED_IN_LABS if slug.startswith("labs/") else ALLOWED_ON.get(slug, ALLOWED_IMPORTS)
    for name in imported:
        if name.partition(".")[0] not in allowed:
            yield f"imports {name}; a reader has torch alone"
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    for name in names - LEGEND - {"F"}:
        if re.fullmatch(r"[A-Z][a-z]{0,2}\d?", name):
            yield f"has the size {name}, which is no letter of the legend"
    if cell.needs and (cell.needs != "cuda" or slug.startswith("labs/")):
        yield f"needs {cell.needs}; no job has it"
    if cell.measures and not slug.startswith("labs/"):
        yield "measures; only the page of a lab says where it did"


def is_shown_whole(cell):
    """Whether a cell holds, below its imports, one class or one function: nothing in it need be squeezed."""
    body = [node for node in ast.parse(cell.code).body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    return len(body) == 1 and isinstance(body[0], (ast.ClassDef, ast.FunctionDef))


def faults_of_output(slug, cell):
    """Narrow, short, with few decimals: Python's own print of a float has more than another machine agrees with."""
    refuse_misfit(cell)
    rows = (cell.output or "").splitlines()
    if len(rows) > 10 or max(map(len, rows), default=0) > 79:
        yield "prints more than 10 rows or 79 columns"
    if re.search(r"\.\d{7}", cell.output or ""):
        yield "prints a number with seven decimals"
    if cell.output is not None and not cell.output.strip():
        yield "has an empty output"
    if slug.startswith("labs/") and (cell.rows or cell.columns):
        yield "names rows or columns, which the page of a lab does not show"


def test_the_record_is_that_of_these_cells(cells, refuse):
    """Of the device that a cell needs, the CPU for most; a cell that has not run there yet shows no output."""
    for device in ("cpu", "cuda"):
        pages = read_record(ROOT / f"verified/{device}.json")
        refuse(f"verified/{device}.json names {slug}, which is gone" for slug in pages.keys() - cells.keys())
        for slug, part in cells.items():
            ran = {cell.name for cell in still_verified(pages.get(slug), part, device)}
            due = {cell.name for cell in part if (cell.needs or "cpu") == device and (cell.output or not cell.needs)}
            fix = f"update -- {slug}" if device == "cpu" else f"gpu -- --update snippets/{slug}.md"
            refuse(f"{slug}:{name} has not run on {device} since it changed: nox -s {fix}" for name in due - ran)
