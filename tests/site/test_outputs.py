"""The tint of an output: it adds colour, it never touches a character."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.browser import site
from tools.cells.source import read_cells
from tools.site.outputs import LEVELS, legend, show, tint

TAG = re.compile("<[^>]*>")
SPAN = re.compile(r'<span class="(\w+)">(.*?)</span>')


def tones(text):
    return [(match[2].strip(), match[1]) for match in SPAN.finditer(tint(text))]


@settings(deadline=None)  # a busy machine takes its time
@given(st.text(alphabet="tensor([,]) \n-.0123456789einfaTrue<>&\"'因"))
def test_the_characters_stay_the_same_whatever_is_printed(text):
    assert html.unescape(SPAN.sub(r"\2", tint(text))) == text


@pytest.mark.parametrize("page", [page for page in site.PAGES_WITH_CELLS if page.language == "en"], ids=str)
def test_the_outputs_of_every_page_stay_the_same(page):
    for cell in read_cells(page.snippets):
        if cell.output:
            assert html.unescape(TAG.sub("", show(cell.output, **cell.names))) == cell.output


def test_numbers_in_words_and_shapes_are_not_tinted():
    assert tones("row 3 sums to 1.0000\ntorch.Size([2, 3])\n[0.5, 1.5]\n") == []
    assert tones("tensor([[1., 2.]], device='cuda:0', dtype=torch.float64)\n") == [("1.", "plus4"), ("2.", "plus8")]


def test_a_number_is_tinted_by_its_share_of_the_largest_in_its_own_tensor():
    assert tones("tensor([0.1, 0.8, -0.8, -0.05])\n") == [
        ("0.1", "plus1"), ("0.8", "plus8"), ("-0.8", "minus8"), ("-0.05", "minus1"),
    ]  # fmt: skip
    assert tones("tensor([1.])\ntensor([1000., 1.])\n") == [("1.", "plus8"), ("1000.", "plus8"), ("1.", "plus1")]


def test_zero_and_minus_infinity_are_grey_and_nan_is_odd():
    text = "tensor([0.0000, -0.0000, -inf, inf, nan, 0.5])\ntensor([ True, False])\n"
    wanted = ["nil", "nil", "nil", "odd", "odd", f"plus{LEVELS}", "plus3", "nil"]
    assert [tone for _, tone in tones(text)] == wanted


def test_the_fill_of_a_mask_does_not_pale_its_neighbours():
    assert tones("tensor([-1.0000e+09, 2.0000e+00, 1.0000e+00])\n") == [
        ("-1.0000e+09", "minus8"), ("2.0000e+00", "plus8"), ("1.0000e+00", "plus4"),
    ]  # fmt: skip


# --- the names of rows and columns ----------------------------------------------------------------

TWO = "True\ntensor([[1, 0],\n        [0, 2]])\ntensor([3, 4])\n"


def test_names_are_attributes_of_the_rows_and_of_the_first_numbers():
    shown = show(TWO, rows=("a", "<pad>"), columns=("c", "d"))
    assert re.findall("<i[^>]*>", shown) == [
        "<i>", '<i class="top" data-row="a" >', '<i data-row="&lt;pad&gt;" >', "<i>",
    ]  # fmt: skip
    assert re.findall(r'data-column="(\w)" class="\w+">(\d)', shown) == [("c", "1"), ("d", "0")]
    assert html.unescape(TAG.sub("", shown)) == TWO


def test_each_matrix_of_a_cube_has_the_names():
    shown = show("tensor([[[1, 2]],\n\n        [[3, 4]]])\n", rows=("a",), columns=("b", "c"))
    assert re.findall(r'data-(?:row|column)="(\w)"', shown) == ["a", "b", "c"] * 2
    assert shown.count('class="top"') == 2


@pytest.mark.parametrize(("columns", "upright"), [(("abc", "b"), False), (("abcd", "b"), True), ((), False)])
def test_names_wider_than_their_columns_stand_upright(columns, upright):
    assert ("upright" in show(TWO, rows=("a", "b"), columns=columns)) == upright


def test_the_legend_is_tinted_as_outputs_are():
    assert legend("see {-1.0 0}, {nan}.") == (
        'see <code><span class="minus8">-1.0</span><span class="nil"> 0</span></code>, '
        '<code><span class="odd">nan</span></code>.'
    )


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_legend_explains_every_kind_of_tint_in_every_language(language):
    tones = set(re.findall(r'class="([a-z]+)\d?"', legend(site.LANGUAGES[language].extra["text"]["legend"])))
    assert tones == {"plus", "minus", "nil", "odd"}
