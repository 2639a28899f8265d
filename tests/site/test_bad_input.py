"""What people do wrong gets one clear line that names the file, the line and the mend; nothing is lost by it."""

import hashlib
import re
import socket

import pytest

from tests.browser import site

OF_MKDOCS = r"Aborted with|INFO |ERROR +-  Error (reading|building) page"


def tree(project):
    return {
        path.relative_to(project).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in project.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def edit(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def refusal(project, *arguments, **environment):
    """The one line with which MkDocs refuses to build; it adds the page at which it was. The tree is as before."""
    before = tree(project)
    command = arguments or ("build", "--strict", "--site-dir", str(project.parent / "site"))
    status, said = site.mkdocs(*command, root=project, **environment)
    assert status != 0
    assert tree(project) == before
    assert "Traceback" not in said
    lines = {line for line in said.splitlines() if line.strip() and not re.match(OF_MKDOCS, line)}
    assert len(lines) == 1, said
    return lines.pop()


def line_of(path, words):
    lines = path.read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if words in line)


def test_an_unknown_cell_is_named_with_the_page_the_line_and_the_nearest_name(project):
    page = project / "docs/it/masks/causal.md"
    edit(page, "masks/causal.md:triangle", "masks/causal.md:triangel")
    line = line_of(page, "triangel")
    said = refusal(project, ONLY_LANGUAGE="it")
    assert f"docs/it/masks/causal.md:{line}: snippets/masks/causal.md has no cell 'triangel'; is it 'triangle'?" in said


def test_an_include_that_would_be_skipped_is_named_with_the_way_to_write_it(project):
    page = project / "docs/en/masks/causal.md"
    edit(page, '--8<-- "masks/causal.md:triangle"', '--8<-- "masks/causal:triangle"')
    said = refusal(project, ONLY_LANGUAGE="en")
    assert f"docs/en/masks/causal.md:{line_of(page, 'causal:triangle')}: write a cell as" in said


def test_a_page_that_builds_on_none_is_named_with_the_nearest_one(project):
    edit(project / "docs/en/masks/causal.md", "foundations/one-head", "foundations/onehead")
    said = refusal(project, ONLY_LANGUAGE="it")  # its map comes before the page
    assert "docs/en/masks/causal.md:1: builds_on names 'foundations/onehead'; no page" in said
    assert "; is it 'foundations/one-head'?" in said


def test_a_page_of_the_nav_that_is_misspelt_is_named_with_the_nearest_one(project):
    edit(project / "mkdocs.yml", "masks/causal.md", "masks/casual.md")
    said = refusal(project)
    assert "mkdocs.yml: the nav names masks/casual.md, and docs/en has no such page; is it 'masks/causal.md'?" in said


def test_a_state_that_no_explorer_has_is_named_with_the_nearest_one(project):
    page = project / "docs/en/masks/padding.md"
    edit(page, "bug=", "bug=x")
    said = refusal(project, ONLY_LANGUAGE="en")
    assert f"docs/en/masks/padding.md:{line_of(page, 'bug=x')}: leak-meter has no numbers for the state" in said
    assert "; is it 'bug=padding ignored'?" in said


def test_a_language_without_words_is_named(project):
    before, italian, after = (project / "mkdocs.yml").read_text("utf-8").partition("- locale: it\n")
    (project / "mkdocs.yml").write_text(before + italian + after.replace("text:", "test:", 1), encoding="utf-8")
    for language in ("", "it"):
        said = refusal(project, ONLY_LANGUAGE=language)
        assert "mkdocs.yml: extra.text of 'it' lacks" in said


def test_a_missing_translation_is_named(project):
    (project / "docs/zh/masks/causal.md").unlink()
    said = refusal(project)
    assert "docs/zh/masks/causal.md is missing: every page of the nav stands in every language" in said


def test_a_malformed_section_mark_is_named_with_the_mark_that_is_meant(project):
    snippet = project / "snippets/masks/causal.md"
    edit(snippet, "<!-- --8<-- [start:attend] -->", "<!-- --8<-- [start: attend] -->")
    said = refusal(project, ONLY_LANGUAGE="en")
    line = line_of(snippet, "[start: attend]")
    assert f"snippets/masks/causal.md:{line}: expected <!-- --8<-- [start:name] -->" in said


def test_names_that_do_not_fit_a_matrix_are_named_with_the_cell(project):
    snippet = project / "snippets/masks/causal.md"
    edit(snippet, "rows and columns: Your journey", "rows and columns: Your")
    said = refusal(project, ONLY_LANGUAGE="en")
    line = line_of(snippet, "rows and columns: Your starts")
    assert (
        f"snippets/masks/causal.md:{line}: the cell 'weights' names 5 rows, but a matrix that it prints has 6" in said
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("print(weights)", "print(weights", "'(' was never closed"),
        ("print(weights)", "  print(weights)", "unexpected indent"),
        ("print(weights)", "weights[0]  # the first", "a comment in a cell is a shape, as in # (B, H, T, D)"),
    ],
)
def test_a_cell_with_a_mistake_is_named_with_its_line(project, old, new, said):
    snippet = project / "snippets/masks/causal.md"
    edit(snippet, f"\n{old}\n", f"\n{new}\n")
    assert f"snippets/masks/causal.md:{line_of(snippet, new)}: {said}" in refusal(project, ONLY_LANGUAGE="it")


def test_a_page_that_is_behind_is_built_alone_too(project):
    edit(project / "docs/it/masks/causal.md", "made_from:", "behind: [probe]\nmade_from:")
    site.build(project.parent / "behind", root=project, ONLY_LANGUAGE="it")
    html = (project.parent / "behind/masks/causal/index.html").read_text("utf-8")
    assert 'class="behind"' in html


def test_a_corrupt_record_is_named_with_the_way_to_write_it_anew(project):
    (project / "verified/cpu.json").write_text('{\n "masks/causal": {')
    said = refusal(project, ONLY_LANGUAGE="en")
    assert "verified/cpu.json:2: not JSON" in said
    assert "; delete the file and write it anew with `nox -s update`" in said


@pytest.mark.parametrize("name", ["snippets/masks/causal.md", "docs/en/masks/causal.md"])
def test_a_file_that_is_not_utf_8_is_named_with_the_line_and_the_byte(project, name):
    path = project / name
    lines = path.read_bytes().splitlines(keepends=True)
    lines[6] = b"\xb1" + lines[6]
    path.write_bytes(b"".join(lines))
    assert f"{name}:7: byte 0xb1 is not UTF-8; save the file as UTF-8" in refusal(project, ONLY_LANGUAGE="en")


def test_wrong_tex_is_named_with_the_page_and_the_line(project):
    page = project / "docs/zh/masks/causal.md"
    edit(page, r"\operatorname{softmax}", r"\operatornam{softmax}")
    said = refusal(project, ONLY_LANGUAGE="zh")
    assert re.search(rf"docs/zh/masks/causal\.md:{line_of(page, 'operatornam{')}: .*operatornam", said)


def test_a_taken_port_is_named_with_the_command_for_another(project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(project, "serve", "-a", f"127.0.0.1:{port}", ONLY_LANGUAGE="en")
    assert f"port {port} of 127.0.0.1 cannot be used" in said
    assert f"mkdocs serve -a 127.0.0.1:{port + 1}" in said


def test_a_link_to_nowhere_is_named(project):
    page = project / "docs/en/masks/causal.md"
    edit(page, "../foundations/weighted-average.md", "../foundations/weighted-averag.md")
    said = refusal(project, ONLY_LANGUAGE="en")
    assert "Doc file 'en/masks/causal.md' contains a link '../foundations/weighted-averag.md'" in said
