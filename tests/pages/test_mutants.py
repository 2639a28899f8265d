"""Which changes are made of the code of a page, and what counts as noticed."""

import multiprocessing

import pytest

from tests.pages import mutants
from tests.pages.changes import changes

CELLS = '''\
<!-- --8<-- [start:double] -->
```python
def double(x):
    """Twice, 两倍."""
    y = x*2  # (T,)
    return y
```
<!-- --8<-- [end:double] -->
'''
TESTS = """\
from tests.pages import properties as p

p.ROOT = p.Path({root!r})
SURVIVORS = {{"a reason": ["y = x * 3"]}}

def test_a_claim():
    assert p.page_code("a/b", "double").double(2) {claim}
"""


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("y = x**2+1", ["y = x ** 2 - 1", "y = x * 2 + 1", "y = x ** 3 + 1", "y = x ** 2 + 2"]),
        ("y = '两' < x[1:]", ["y = '两' <= x[1:]", "y = '两' < x[:]", "y = '两' < x[2:]"]),
        ("y = f(x, 2, d=3)", ["y = f(x, 2)", "y = f(2, x, d=3)", "y = f(x, 3, d=3)", "y = f(x, 2, d=4)"]),
        ("scores = scores.masked_fill(x)", ["# ...", "scores = scores", "scores = weights.masked_fill(x)"]),
        ("if x:\n        y = x\n    elif y:\n        x()", ["# if x:", "# if y:", "# x()"]),
    ],
)
def test_a_change_is_one_of_one_statement(line, changed):
    code = f"def f(x):\n    {line}\n    return y\n"
    made = list(changes(code))
    assert [change.text for change in made] == [text.replace("...", line) for text in changed]
    for change in made:
        compile(change.code, "", "exec")
        others = [kept for kept in code.splitlines() if kept in change.code]
        assert {"def f(x):", "    return y"} <= set(others)


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """What is printed of a page whose test claims this of `double(2)`."""
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "SHARED", [str(tmp_path / "tests/pages/a/test_b.py")])  # none has a name with a/b
    for folder in ("snippets/a", "tests/pages/a"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "snippets/a/b.md").write_text(CELLS, "utf-8")

    def report(claim):
        mutants.tests_of("a/b").write_text(TESTS.format(root=str(tmp_path), claim=claim), "utf-8")
        with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
            mutants.report("a/b", pool)
        return capsys.readouterr().out.splitlines()

    return report


def test_a_survivor_is_printed_with_its_line_unless_a_reason_excuses_it(printed):
    assert printed("> 3") == ["a/b: 1 of 2 noticed"]
    assert printed("< 5") == [
        "a/b: 1 of 2 noticed",
        "  snippets/a/b.md:5: y = x / 2",
        "  tests/pages/a/test_b.py: this is noticed, take it out of SURVIVORS: y = x * 3",
    ]


def test_a_page_whose_tests_fail_as_it_is_is_refused(printed):
    with pytest.raises(mutants.source.SourceError, match=r"test_b\.py: a test fails on the page as it is"):
        printed("== 5")
