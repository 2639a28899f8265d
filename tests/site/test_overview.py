"""What the site says of all its pages together: the map, the index of names, what the first page counts."""

from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

from tests.configuration import LANGUAGES
from tests.site.made import edition, page
from tools.cells.source import Cell, SourceError
from tools.languages.markdown import parse
from tools.site.overview import bases, counted, exercises, index, names, rows

ONE = page("a/one", "One")
TWO = page("a/two", "Two", builds_on=["a/one"])
THREE = page("b/three", "Three", builds_on=["a/one", "a/two"])
EDITION = edition(("A", [ONE, TWO]), ("B", [THREE]), loose=[page("index", "Home")])


def cell(name, code, output=None):
    return Cell(name, code, output, 2)


def test_the_map_has_a_line_for_each_chapter_and_page_with_both_directions():
    assert list(rows(EDITION)) == [
        {"title": "A"},
        {"title": "One", "page": ONE, "bases": [], "next_steps": [TWO, THREE]},
        {"title": "Two", "page": TWO, "bases": [ONE], "next_steps": [THREE]},
        {"title": "B"},
        {"title": "Three", "page": THREE, "bases": [ONE, TWO], "next_steps": []},
    ]


def test_an_arc_of_the_map_swings_wider_to_a_base_that_is_further_away():
    arc = Environment(loader=FileSystemLoader("theme")).get_template("partials/arcs.html").module.arc
    assert arc(66, 44, 110) == "M150 66C67 66 67 44 150 44"
    assert arc(110, 44, 110) == "M150 110C5 110 5 44 150 44"


def test_a_page_builds_on_none_but_those_before_it_and_one_outside_the_nav_on_any():
    with pytest.raises(SourceError, match=r"docs/en/a/two\.md:1: builds_on names 'b/three'"):
        bases(replace(TWO, builds_on=["b/three"]), EDITION.in_nav)

    assert bases(page("a/new", "New", builds_on=["b/three"]), EDITION.in_nav) == [THREE]


def asking(title, **exercises):
    """A page with a section and a cell `exercise`, and the minutes of its exercises."""
    source = parse(f"# A\n\n## {title} {{#exercise}}\n", Path("docs/en/a/b.md"))
    cells = [cell("exercise", "import torch\ndef mask(size, *, device=None):\n    return\nmask(3)\n", "not yet\n")]
    return page("a/b", "B", source=source, own_cells=cells, exercises=exercises)


@pytest.mark.parametrize("title", ["Exercise: a mask: 2 axes", "Esercizio 1: a mask: 2 axes", "练习 2：a mask: 2 axes"])
def test_the_exercises_stand_by_chapter_with_their_tasks_and_their_minutes(title):
    one = asking(title, exercise=15, top=30)
    task = {
        "page": one,
        "anchor": "#exercise",
        "title": "A mask: 2 axes",
        "task": "mask(size, *, device=None)",
        "minutes": 15,
    }
    whole = {"page": one, "anchor": "", "title": "A", "task": "", "minutes": 30}
    chapters = [*exercises(edition(("A", [TWO, one]), ("B", [THREE])))]
    assert chapters == [{"title": "A", "minutes": 45, "exercises": [task, whole]}]


def test_an_exercise_is_a_section_of_its_page():
    with pytest.raises(SourceError, match=r"docs/en/a/b\.md:1: exercises names 'exercize'; .* is it 'exercise'\?"):
        [*exercises(edition(("A", [asking("Exercise: one", exercize=10)])))]


TEXT = LANGUAGES["en"].extra["text"]
CELLS = [
    cell("setup", "import torch\nx = torch.ones(2)  # (T,)\n"),
    cell("sum", "y = x + x  # (T,)\nprint(y)\n", "tensor([2., 2.])\n"),
]


def ran(verified, behind=()):
    badges = {device: {"device": device, "verified": count} for device, count in verified.items()}
    return page("a/b", "B", own_cells=CELLS, badges=badges, behind=behind)


def test_every_promise_is_followed_by_what_was_counted_for_it():
    """The two pages show the same cells, which are written once; a GPU that ran none of them has not run the pages."""
    assert counted([ran({"CPU": 2}), ran({"CPU": 1, "CUDA": 0}, ["probe"])], 3, TEXT) == [
        ["3 of 4 cells verified on CPU.", TEXT["no_gpu"]],
        ["2 shape comments."],
        ["1 programs."],
        [],
        ["3 languages; in this one, 1 of 2 pages are up to date."],
    ]
    of_each_device = ["2 of 2 cells verified on CPU.", "1 of 2 cells verified on CUDA."]
    assert counted([ran({"CPU": 2, "CUDA": 1})], 3, TEXT)[0] == of_each_device


IMPORTS = """import math
import torch
import torch.nn.functional as F
from einops import einsum
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
"""


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("torch.triu(F.relu(x))", {"torch.triu", "F.relu"}),
        ("print(F.dropout.__name__)", {"F.dropout"}),
        ("class A(nn.Module): pass", {"nn.Module", "A"}),
        ("class A:\n    @staticmethod\n    def make(): return A.other(nn.Identity())", {"A", "nn.Identity"}),
        ("def check(attend):\n    return torch.triu(attend)", {"torch.triu"}),
        ("with sdpa_kernel(SDPBackend.MATH): pass", {"nn.attention.sdpa_kernel", "nn.attention.SDPBackend.MATH"}),
        ("for i in range(3): print(x.item() + math.prod([2]), math, torch)", set()),
        ("triu(x), 'torch.triu', a.torch", set()),
    ],
)
def test_the_names_of_a_cell_are_those_that_it_imports_or_defines(code, wanted):
    assert names((cell("imports", IMPORTS), cell("use", code, "1\n"))) == dict.fromkeys(wanted, "use")


def test_the_index_goes_by_the_last_part_of_a_name_and_leaves_out_what_all_pages_use():
    tokens, use = cell("tokens", f"{IMPORTS}x = torch.ones(3)\n"), cell("use", "torch.ones(2), F.relu(x)\n", "1\n")
    one, other = (page(slug, slug, own_cells=cells) for slug, cells in (("a", [tokens, use]), ("b", [tokens])))
    third = page("c", "C", own_cells=[cell("own", "class Own: pass\n")])
    assert [(symbol["name"], symbol["uses"]) for symbol in index([one, other, third, page("d", "D")])] == [
        ("torch.ones", [(one, "tokens"), (other, "tokens")]),
        ("Own", [(third, "own")]),
        ("F.relu", [(one, "use")]),
    ]
    assert [symbol["name"] for symbol in index([one, other])] == ["F.relu"]
