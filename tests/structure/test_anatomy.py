"""A page can be read in one sitting, after those that it builds on, and what it defines can be taken home."""

import ast
import os
import re
import symtable

import pytest

from tests.configuration import PAGES, ROOT, SLUGS
from tools.cells.shapes import shape_comments
from tools.cells.source import program, slug_of
from tools.languages.glossary import read_rows
from tools.languages.markdown import TOP, Block, read

WRITTEN = [page for page in PAGES if page in SLUGS]
ENGLISH = {page: read(ROOT / f"docs/en/{page}.md") for page in PAGES}
BUILDS_ON = {page: ENGLISH[page].front.get("builds_on") for page in PAGES}
of_a_page = pytest.mark.parametrize("page", WRITTEN)
LAST = "recap"  # the section that says what a reader can do now, and where to go next


def visible(page: str) -> list[Block]:
    return [block for block in ENGLISH[page].blocks if not block.folded]


def fix_box(page: str) -> list[Block]:
    """The parts of the box above a page at which people arrive with a bug: what they copy before they read on."""
    blocks = ENGLISH[page].blocks
    boxes = [block for block in blocks if block.section == TOP and block.text == "!!! tip"]
    return [block for box in boxes[:1] for block in blocks if box.line < block.line < box.end]


def beneath(page: str) -> set[str]:
    """All that a page builds on, near and far."""
    return {other for base in BUILDS_ON.get(page) or () for other in (base, *beneath(base))}


def test_a_page_with_cells_and_no_other_builds_on_the_nearest_pages_before_it(every_page):
    """What these build on is beneath it already, and would draw an arc that says nothing."""

    def look(page):
        bases, written, here = BUILDS_ON[page], page in SLUGS, f"docs/en/{page}.md:1:"
        assert bool(ENGLISH[page].asks) == written, f"{here} `asks:` stands above each page with cells, and no other"
        at = f"{here} `builds_on: [chapter/page]`"
        assert (bases is not None) == written, f"{at} stands on a page with cells, and on no other"
        for base in bases or ():
            assert base in PAGES[: PAGES.index(page)], f"{at} names pages before this one, and not {base}"
            assert not any(base in beneath(other) for other in bases), f"{at}: {base} is beneath another of them"
        assert bases or not written or page == WRITTEN[0], f"{at} names nothing"
        assert len(set(bases or ())) == len(bases or ()), f"{at} names one twice"

    every_page(look)


def test_every_exercise_and_every_lab_has_its_minutes(every_page):
    def look(page):
        wanted = [name for name in ENGLISH[page].sections if re.match("exercise", name)]
        minutes = ENGLISH[page].front.get("exercises", {})
        if page.startswith("labs/"):
            assert len(minutes) == 1, (
                f"docs/en/{page}.md:1: `exercises: {{top: 30}}`, its minutes or those of a section"
            )
        else:
            fix = "the minutes of each, in order, such as `exercises: {exercise: 15}`"
            assert [*minutes] == wanted, f"docs/en/{page}.md:1: {fix}"
        assert all(number % 5 == 0 for number in minutes.values()), f"docs/en/{page}.md:1: an estimate ends in 0 or 5"

    every_page(look)


@pytest.mark.parametrize("key", ["builds_on", "exercises"])
def test_a_translation_takes_what_has_no_words_from_the_english_page(translation, key, refuse):
    paths = [ROOT / f"docs/{translation}/{page}.md" for page in PAGES]
    refuse(f"{path}:1: take out `{key}`" for path in paths if key in read(path).front)


@of_a_page
def test_what_is_not_folded_is_read_in_one_sitting(page):
    """Terms of a formula, names in code and what a picture shows are not counted: they are looked at, not read."""
    box = fix_box(page)
    blocks = [block for block in visible(page) if block not in box]
    assert words_in(block for block in blocks if not (block.pieces and block.pieces[0].kind == "picture")) <= 1100
    assert sum(block.kind == "cell" for block in blocks) <= 9
    assert LAST in ENGLISH[page].sections


def words_in(blocks):
    words = (piece.text for block in blocks for piece in block.pieces if piece.kind in ("words", "break"))
    return len(re.findall(r"[\w’'-]+", " ".join(words)))


@pytest.mark.parametrize("page", [page for page in WRITTEN if fix_box(page)])
def test_a_fix_box_is_short_and_what_it_copies_stands_alone(page, cells):
    box, first = fix_box(page), cells[page][0]
    assert words_in(block for block in box if block.kind != "title") <= 40
    assert [block.text for block in box if block.kind == "cell"] == [where_shown(first)]
    assert sum(map(bool, map(str.strip, first.code.splitlines()))) <= 12


@of_a_page
def test_a_line_that_is_marked_new_stands_on_no_page_that_this_one_builds_on(page, cells, refuse):
    code = "\n".join(cell.code for base in BUILDS_ON[page] or () for cell in cells.get(base, ()))
    known = set(map(str.strip, code.splitlines()))
    refuse(
        f"{cell.path}:{cell.fence + number}: {line.strip()!r} is marked as new and stands on a page before {page}"
        for cell in cells[page]
        for number, line in enumerate(cell.code.splitlines(), start=1)
        if (number, "new") in cell.marks and line.strip() in known
    )


@pytest.mark.parametrize("page", [page for page in WRITTEN if "overview" not in ENGLISH[page].front])
def test_no_page_uses_what_a_later_one_introduces(page, refuse):
    """In the text that is not folded; where to go next may name what comes, and so may an overview."""
    known, rows = {page, *beneath(page)}, read_rows(ROOT / "languages/glossary.csv")
    terms = {row["en"]: other for row in rows if (other := row["where"].partition("#")[0]) in SLUGS}
    blocks = [block for block in visible(page) if block.section != LAST]
    refuse(
        f"docs/en/{page}.md:{block.line}: {what} comes from {other}, which this page does not build on"
        for block in blocks
        for what, other in (*terms_in(block, terms), *links_in(block, page))
        if other not in known
    )


def terms_in(block, terms):
    words = " ".join(piece.text for piece in block.pieces if piece.kind == "words")
    return [(repr(term), terms[term]) for term in terms if re.search(rf"(?<!\w){re.escape(term)}s?(?!\w)", words)]


def links_in(block, page):
    for piece in block.pieces:
        target = os.path.normpath(os.path.join(os.path.dirname(page), piece.text.partition("#")[0]))
        if piece.kind == "link" and target.removesuffix(".md") in SLUGS:
            yield f"the link {piece.text}", target.removesuffix(".md")


@of_a_page
def test_no_class_or_function_reads_a_size_from_a_global(page, cells, refuse):
    """Who copies it would copy the size, too."""
    refuse(
        f"{cell.path}:{cell.fence}: {function} reads the global {name}; take it from an input or an argument"
        for cell in cells[page]
        for function, name in globals_read(cell.code, sizes(program(cells[page], cell)))
    )


def sizes(code):
    """The names that a program binds at its top to a whole number, a shape, a dtype or a device."""
    assigned = [node for node in ast.parse(code).body if isinstance(node, ast.Assign)]
    pairs = [pair for node in assigned for pair in parts(node.targets[0], node.value)]
    return {target.id for target, value in pairs if isinstance(target, ast.Name) and is_size(value)}


def parts(target, value):
    """The names of an assignment, each with its value: `B, T = 2, 3` is two, and so is `B, T = x.shape`."""
    if not isinstance(target, ast.Tuple):
        return [(target, value)]
    values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
    return [pair for one, its in zip(target.elts, values, strict=True) for pair in parts(one, its)]


def is_size(value):
    if isinstance(value, ast.Constant):
        return type(value.value) is int
    while isinstance(value, ast.Subscript | ast.Call):
        value = value.value if isinstance(value, ast.Subscript) else value.func
    return re.fullmatch(r"len|torch\.b?float\d*|.*\.(shape|size|device|dtype)", ast.unparse(value)) is not None


of_a_subject = pytest.mark.parametrize("page", [page for page in WRITTEN if not page.startswith("labs/")])


@of_a_subject
def test_no_open_cell_calls_what_only_a_fold_of_its_page_defines(page, cells):
    """A fold holds what no open cell needs; the check of an exercise may be folded."""
    folded = {block.text for block in ENGLISH[page].blocks if block.kind == "cell" and block.folded}
    folded = {text for text in folded if text.partition(":")[0] not in beneath(page)}
    hidden, faults = {}, []
    for cell in cells[page]:
        code = ast.parse(cell.code)
        if where_shown(cell) not in folded:
            used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)} & hidden.keys()
            faults += [f"{cell.path}:{cell.fence}: {cell.name} uses {name}, folded in {hidden[name]}" for name in used]
        elif cell.shared:
            hidden |= {name: cell.name for name in defined(code) if not name.startswith("check")}
    assert not faults, "\n".join(sorted(faults))


def where_shown(cell):
    return f"{slug_of(cell.path)}:{cell.name}"


def defined(code):
    """The classes and functions at the top of a cell."""
    return [node.name for node in code.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]


@of_a_subject
def test_every_forward_says_its_shapes(page, cells):
    faults = [
        f"{cell.path}:{cell.fence + method.lineno}: no line of this `forward` says a shape, such as # (B, H, T, D)"
        for cell in cells[page]
        for method in ast.walk(ast.parse(cell.code))
        if isinstance(method, ast.FunctionDef) and method.name == "forward" and not says_shape(cell, method)
        if where_shown(cell) == f"{page}:{cell.name}"
    ]
    assert not faults, "\n".join(faults)


def says_shape(cell, method):
    return any(method.lineno <= line - cell.fence <= method.end_lineno for line in shape_comments(cell))


def globals_read(code, names):
    """The functions of a cell, methods and those within others, too, each with a name of these that it reads."""

    def look(table, function=None):
        for child in table.get_children():
            inside = function or (child.get_name() if not child.get_name().endswith(("comp", "genexpr")) else None)
            if inside and child.get_type() == "function":
                yield from ((inside, one.get_name()) for one in child.get_symbols() if one.is_global())
            yield from look(child, inside)

    return [(function, name) for function, name in look(symtable.symtable(code, "cell", "exec")) if name in names]


READERS = {  # of a global that is a size
    "T = 3\ndef f(x):\n    return x[:T]": ("f", "T"),
    "B, T = x.shape\nclass A:\n    def g(self):\n        return [T for _ in 'ab']": ("A", "T"),
    "kind = x.dtype\nf = lambda x: x.to(kind)": ("lambda", "kind"),
}
OTHERS = ["T = 3\ndef f(x, T):\n    return x[:T]", "T = 3\nrows = [T for _ in 'ab']", "m = 'a'\ndef f():\n    return m"]


def test_a_global_is_seen_where_it_is_read():
    assert {code: globals_read(code, sizes(code)) for code in READERS} == {code: [READERS[code]] for code in READERS}
    assert [code for code in OTHERS if globals_read(code, sizes(code))] == []
