"""Notebooks, places, pictures, formulas and Markdown, as plain functions."""

import re
from pathlib import Path
from textwrap import indent

import markdown
import nbformat
import pytest

from tests.cells.project import cell
from tests.site.made import after
from tools.cells.source import Cell, SourceError, resolve
from tools.labs.notebooks import notebook
from tools.languages.markdown import parse, read
from tools.site import plain, tree
from tools.site.body import enlarge_words, explain_tints, inline_pictures, keep_code, to_mathml
from tools.site.cells import FENCE, drawings, fill, with_places
from tools.site.head import without_indents
from tools.site.pages import minutes

CELLS = [Cell("data", "x = 1\n", None, 2), Cell("show", "print(x)\n", "1\n", 8)]
LONG = """# The six words of a title

Five words, `x` and $x$.

--8<-- "a/b.md:show"

权重每行，加起来。

??? question "Folded?"

    These words do not count.

    --8<-- "a/b.md:show"
"""
TEXT = """---
description: A page.
---

# Title

Prose with $x^2$ and [a link](../foundations/causal.md#row-zero), [here](#below), ![one
arc.](../../assets/arc.svg) `[code](is.md)`

--8<-- "a/b.md:data"

![It
rises.](#data)

[Move it](b.md#one-query){#one-query state="a=1"}

## A heading {#below}

??? question "Why?"

    Because.

    --8<-- "a/b.md:show"

    More.

Last.
"""


def parsed(text):
    return parse(text, Path("docs/en/a/b.md"))


PAGE = parsed(TEXT)


def sources(made, kind):
    return [cell["source"] for cell in made["cells"] if cell["cell_type"] == kind]


def test_a_page_takes_the_time_of_its_words_and_cells_but_not_of_what_is_folded():
    assert minutes(parsed(LONG), words_a_minute=6) == (6 + 5 + 7) / 6 + 1


# --- notebooks ------------------------------------------------------------------------------------


def test_a_notebook_has_the_prose_and_the_cells_of_a_page_in_order():
    """An explorer is a link to its page, and nothing says what a figure shows."""
    made = notebook(PAGE, CELLS, lambda target: target.replace("../foundations/causal.md", "https://site/causal/"))
    nbformat.validate(made)
    assert [cell.id for cell in made.cells] == ["text_0", "data", "text_1", "show", "text_2"]
    assert sources(made, "code") == ["x = 1", "print(x)"]
    assert [cell.outputs for cell in made.cells if cell.cell_type == "code"] == [
        [],
        [{"name": "stdout", "output_type": "stream", "text": "1\n"}],
    ]
    first, second, third = sources(made, "markdown")
    assert first.startswith("# Title\n\nProse with $x^2$ and [a link](https://site/causal/#row-zero)")
    assert "[here](#below)" in first
    assert second == '[Move it](b.md#one-query)\n\n## A heading <a id="below"></a>\n\n> **Why?**\n>\n> Because.'
    assert third == "> More.\n\nLast."


def test_a_folded_block_is_folded_in_a_notebook_too():
    text = TEXT + '\n??? success "Is `x < 1`?"\n\n    - No.\n\n      Never.\n\n    It is 1.\n\nThe end.\n'
    made = notebook(parsed(text), CELLS)
    hidden = {cell.id: cell.metadata for cell in made.cells if cell.cell_type == "code"}
    assert hidden == {"data": {}, "show": {"jupyter": {"source_hidden": True}}}
    assert sources(made, "markdown")[-1] == (
        "> More.\n\nLast.\n\n<details>\n<summary>Is <code>x &lt; 1</code>?</summary>\n\n"
        "- No.\n\n  Never.\n\nIt is 1.\n\n</details>\n\nThe end."
    )


# --- places ---------------------------------------------------------------------------------------

WORDS = {"output": 'the "output"', "rows": "rows: {names}", "columns": "columns: {names}"}
WORDS |= {"wrong": 'the "bug":', "right": "the fix:"}


@pytest.fixture
def drawn(tmp_path):
    """What becomes of the body of a page whose cells are those of a file a/b.md."""
    snippets, path = tmp_path / "snippets", tmp_path / "page.md"

    def draw(text, parts, figures=(), ran_on=()):
        (snippets / "a").mkdir(parents=True, exist_ok=True)
        (snippets / "a/b.md").write_text("\n".join(parts), "utf-8")
        path.write_text(text, "utf-8")
        page = parse(text, path)
        html = markdown.markdown(
            with_places(page),
            extensions=["admonition", "pymdownx.details", "pymdownx.superfences"],
            extension_configs={"pymdownx.superfences": {"custom_fences": [FENCE]}},
        )
        body = tree.parse(html)
        fill(body, drawings(page, resolve(path, snippets), dict(figures), dict(ran_on), WORDS), path)
        return tree.written(body)

    return draw


SHARED = cell("data", "x = 1 < 2\n")


def test_a_cell_has_its_name_and_output_and_a_block_of_the_page_stays_what_it_is(drawn):
    page = 'Text:\n\n--8<-- "a/b.md:data"\n\n```text\na < b\n```\n\n??? tip\n\n    --8<-- "a/b.md:show"\n\n    Said.\n'
    html = drawn(page, [SHARED, cell("show", "if x:\n\n    print(x)\n", "a < b\n")])
    assert re.findall('<div class="([^ "]*)[^>]*?(?: (id|role)="(.*?)"|>)', html) == [
        ("language-python", "id", "cell-data"),
        ("language-text", "", ""),
        ("language-python", "id", "cell-show"),
        ("output", "role", "group"),
    ]
    assert "<pre><code>a &lt; b\n</code></pre></div>\n<p>Said.</p>" in html
    assert "<p><div" not in html


@pytest.mark.parametrize("text", ["- Item.\n\n    {}\n", "!!! tip\n\n    - Item.\n\n        {}\n"])
def test_a_cell_stands_where_a_block_of_code_can(drawn, text):
    html = drawn(text.format('--8<-- "a/b.md:data"'), [SHARED])
    assert 'id="cell-data"' in html
    assert "<p></p>" not in html


def test_two_cells_that_are_alike_have_their_own_names(drawn):
    parts = [
        cell("one", "x = 1\n", "tensor([[1, 2]])\n"),
        cell("two", "x = 1\n", "tensor([[1, 2]])\n", "rows: <pad>; columns: b c"),
    ]
    html = drawn('--8<-- "a/b.md:two"\n\n--8<-- "a/b.md:one"\n', parts)
    said = "the &quot;output&quot;"
    assert re.findall('(?:id|aria-label)="(.*?)"', html) == [
        "cell-two", f"{said} · rows: &lt;pad&gt; · columns: b c", "cell-one", said,
    ]  # fmt: skip


def test_the_marked_lines_of_a_cell_are_marked_with_their_words(drawn):
    marked = cell("data", "y = 3\n\nprint()\nx = 1 < 2\n", mark="wrong: print; right: 1 < 2")
    html = drawn('--8<-- "a/b.md:data"\n\n```python\nprint()\n```\n', [marked])
    assert re.findall(r"<mark(.*?)>(.*\n)</mark>", re.sub("</?span.*?>", "", html)) == [
        (' class="wrong" data-says="the &quot;bug&quot;:"', "print()\n"),
        (' class="right" data-says="the fix:"', "x = 1 &lt; 2\n"),
    ]


def test_a_cell_that_markdown_takes_for_code_is_named_with_its_line(drawn):
    with pytest.raises(SourceError, match=r"page\.md:3: no cell can stand here; indent the line like the text around"):
        drawn('Text.\n\n      --8<-- "a/b.md:data"\n\nMore.\n', [SHARED])


LAB = '--8<-- "a/b.md:data"\n\n![A line.](#data)\n\n*Above.*\n\n![A\ndot.](#data)\n'


def test_a_lab_has_its_figures_where_it_describes_them_and_below_where_it_ran(drawn):
    figures = {"data": ["<svg><title>a line</title></svg>", r"<svg><title>\1</title></svg>"]}
    html = drawn(LAB, [SHARED], figures, {"data": "On 2026-11-20."})
    line, dot = (f'<div class="plot">{figure}</div>' for figure in figures["data"])
    assert html.partition("</code></pre></div>")[2].replace("\n", "") == (
        f'{line}<p><em>Above.</em></p>{dot}<p class="ran-on">On <time>2026-11-20</time>.</p>'
    )
    with pytest.raises(SourceError, match=r"page\.md: its notebook has other figures than the page"):
        drawn(LAB, [SHARED], {"data": figures["data"][:1]})


# --- pictures and outputs -------------------------------------------------------------------------


def test_a_picture_becomes_part_of_the_page_keeps_its_name_and_can_have_larger_words(tmp_path):
    (tmp_path / "a.svg").write_text(
        '<?xml version="1.0"?>\n<!-- x -->\n<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="old" '
        'viewBox="0 0 7 5" width="7" height="5"><text font-size="3.5">a</text></svg>\n'
    )
    body = '<p><img alt="six &quot;tokens&quot;" src="../../assets/a.svg" /></p>'
    assert after(lambda tree: (inline_pictures(tree, tmp_path, {}), enlarge_words(tree)), body) == (
        '<p><svg role="img" aria-label="six &quot;tokens&quot;" viewBox="0 0 7 5" class="picture" style="--wide:7">'
        '<text style="font-size:max(3.5px,var(--least,0px))">a</text></svg></p>'
    )


def test_what_tints_mean_stands_below_the_first_tinted_output_alone():
    plain, tinted = (f'<div class="output"><code>{text}</code></div>' for text in ("1", '<span class="nil"></span>'))
    legend = '<p class="legend" data-pagefind-ignore="">words</p>'
    assert after(explain_tints, plain + tinted + tinted, "words") == plain + tinted + legend + tinted
    assert after(explain_tints, plain, "words") == plain


def test_no_line_ends_inside_short_code():
    long = f"<code>{'a ' * 13}</code>"
    assert after(keep_code, "<code>lengths - 1</code>") == '<code class="kept">lengths - 1</code>'
    for other in ("<pre><code>a - 1\n</code></pre>", f"{long}<code>lengths</code>"):
        assert after(keep_code, other) == other


# --- mathematics ----------------------------------------------------------------------------------


def formula(tex, mark="()"):
    return f'<span class="arithmatex">\\{mark[0]}{tex}\\{mark[1]}</span>'


def test_a_formula_becomes_mathml():
    assert after(to_mathml, formula("T &lt; 3"), "page.md").startswith("<math><mi>T</mi><mo>&lt;</mo>")
    display = after(to_mathml, '<div class="arithmatex">\\[\nA\n\\]</div>', "page.md")
    assert re.match('<math data-pagefind-ignore="" [^>]*display="block"', display)


def test_the_comma_behind_a_formula_stays_with_it():
    t = formula("T")
    html = after(to_mathml, f"{t}, then {t} and 在{t}，里 {t}&gt;", "page.md")
    math = "<math><mi>T</mi></math>"
    kept = '<span class="kept">{}</span>'.format
    assert html == f"{kept(f'{math},')} then {math} and 在{kept(f'{math}，')}里 {math}&gt;"


# --- what machines and browsers read --------------------------------------------------------------

IN_MARKDOWN = {  # what of TEXT is written in another way
    '--8<-- "a/b.md:data"': "```python\nx = 1\n```",
    '    --8<-- "a/b.md:show"': indent("```python\nprint(x)\n```\n\n```text\n1\n```\n\nMeasured here", " " * 4, bool),
    "](../foundations/causal.md#row-zero)": "](https://site/../foundations/causal.md#row-zero)",
    "](#below)": "](https://site/#below)",
    "](../../assets/arc.svg)": "](https://site/../../assets/arc.svg)",
    '](b.md#one-query){#one-query state="a=1"}': "](https://site/b.md#one-query)",
    "![It\nrises.](#data)": "[It\nrises.](https://site/#cell-data)",
}


def test_the_markdown_of_a_page_has_its_cells_and_outputs_and_whole_addresses(tmp_path):
    path, wanted = tmp_path / "page.md", TEXT.partition("---\n\n")[2]
    path.write_text(TEXT, encoding="utf-8")
    for one, other in IN_MARKDOWN.items():
        assert wanted.count(one) == 1
        wanted = wanted.replace(one, other)
    assert plain.page(read(path), CELLS, "https://site/", "https://site/".__add__, {"show": "Measured here"}) == wanted


def test_a_finished_page_has_no_indents_but_those_of_its_code():
    page = '</head>\n  <body>\n\n    <pre>if x:\n    y\n</pre>\n    <p data-code="if x:\n    y">'
    assert without_indents(page) == '</head>\n<body>\n<pre>if x:\n    y\n</pre>\n<p data-code="if x:\n    y">'
