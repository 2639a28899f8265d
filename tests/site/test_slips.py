"""What people do wrong gets one clear line that names the file, the line and the fix; nothing is lost by it."""

import re
from pathlib import Path

import pytest

from tests.browser import site
from tests.site.made import after, files
from tools.cells.source import SourceError
from tools.languages import markdown
from tools.languages.slips import refuse_slips
from tools.site.body import inline_pictures

HEAD = "---\ndescription: A page.\n---\n\n# Title\n\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("---\ndescription: A page.\n---\n", 1, "the page has no title"),
        ("# Title\n", 1, "the page has no description; write"),
        (f"{HEAD}```python\nx = 1\n", 7, "the block that begins here is not closed"),
        (f'{HEAD}```text\n\n--8<-- "foundations/causal.md:leak"\n\n```\n', 7, "is not closed where it ends"),
        (f"{HEAD}??? note\nNot indented.\n", 7, "the text of this block is not below it"),
        (f"{HEAD}Text.\n\n## B\n", 9, "a heading ends with an id"),
        (f"{HEAD}A formula $x^2 here.\n", 7, "a formula here is not closed"),
        (f"{HEAD}## About $x$ {{#x}}\n", 7, "no formula can stand"),
    ],
)
def test_a_slip_is_named_with_its_line_and_the_mend(text, line, said):
    with pytest.raises(SourceError, match=rf"page\.md:{line}: .*{said}"):
        refuse_slips(markdown.parse(text, Path("page.md")))


def test_what_only_looks_like_a_slip_is_left_alone():
    text = (
        f"{HEAD}`<script>`, \\$5, `$x`, <https://example.org>, $a <b$, 1 < 2 > 0, a<br>b, <!-- a <div> -->\n\n"
        "```html\n<div>\n<script>\n```\n\n!!! note\n\n    With a text.\n\n"
        "??? tip\n\n    ```python\n    x = 1\n    ```\n\n"
        '<p dir="rtl">العربية</p>\n\n``echo $HOME``\n\n[here](https://example.org/?a=$b)\n'
    )
    refuse_slips(markdown.parse(text, Path("page.md")))


@pytest.mark.parametrize("drawing", ["<svg><script>x</script></svg>", "<svg><g onclick='x'/></svg>", "png"])
def test_a_picture_that_holds_a_script_is_refused(tmp_path, drawing):
    (tmp_path / "a.svg").write_text(drawing, encoding="utf-8")
    with pytest.raises(SourceError, match=r"a\.svg:1: not an SVG picture, or one with a script"):
        after(inline_pictures, '<img alt="A" src="../../assets/a.svg">', tmp_path, {})


# --- in a build -----------------------------------------------------------------------------------


def refusal(project):
    """The one line with which a build stops; the project is as it was."""
    before = files(project)
    status, printed = site.mkdocs("build", "--strict", "--site-dir", str(project.parent / "site"), root=project)
    assert status != 0
    assert files(project) == before
    assert "Traceback" not in printed
    lines = {line for line in printed.splitlines() if line.strip() and not re.match("INFO |ERROR ", line)}
    assert len(lines) == 1, printed
    return lines.pop()


def test_a_build_stops_where_a_page_cannot_be_drawn(project):
    path = project / "docs/it/foundations/one-head.md"
    text = path.read_text("utf-8")
    path.write_text(f"{text}\n??? note\n\n    $$\n    A = 1\n    + \\frc{{1}}{{2}}\n    $$\n", encoding="utf-8")
    line = text.count("\n") + 5  # the first below $$
    assert refusal(project).startswith(rf'docs/it/foundations/one-head.md:{line}: Unknown command "\frc" in')


def test_a_build_stops_where_a_translation_is_missing_or_the_nav_is_misspelt(project):
    (project / "docs/zh/foundations/one-head.md").rename(project / "one-head.md")
    sentence = "docs/zh/foundations/one-head.md is missing: every page of the nav stands in every"
    assert refusal(project).startswith(sentence)
    nav = (project / "mkdocs.yml").read_text("utf-8").replace("foundations/softmax.md", "foundations/softmx.md")
    (project / "mkdocs.yml").write_text(nav, "utf-8")
    sentence = "the nav names 'foundations/softmx.md', which is no page; write the name of a file"
    line = nav.splitlines().index("      - foundations/softmx.md") + 1
    assert refusal(project).startswith(f"mkdocs.yml:{line}: {sentence}")
