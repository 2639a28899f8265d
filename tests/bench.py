"""Print what the house weighs: `nox -s bench`. Nothing is asserted; each line says the limit that we want to keep.

Times are seconds of all processors together, so that other work on the machine changes them little.
"""

import ast
import io
import os
import resource
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.browser import site

PAGE = "cache/grouped"  # the newest
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
OF_ALL_PAGES = ["tests/structure", *(f"tests/browser/test_{name}.py" for name in ("build", "html", "links"))]
LATER = ["languages/review.md", "tests/bench.py", "tests/pages/*/*.py"]  # and the tests of other pages


def say(what: str, value: object, limit: str = "") -> None:
    print(f"{what:64} {value:>10}  {limit}", flush=True)


def lines_of_code(path: Path) -> int:
    """The lines of a Python file that hold anything but comments and docstrings."""
    text = path.read_text()
    parts = [part for part in ast.walk(ast.parse(text)) if isinstance(part, DOCUMENTED)]
    docstrings = [part.body[0] for part in parts if ast.get_docstring(part) is not None]
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in LAYOUT]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(code.difference(*(range(one.lineno, (one.end_lineno or 0) + 1) for one in docstrings)))


def touched(slug: str) -> list[Path | str]:
    """The files that the commit which adds a page touches by hand; what other pages say of it is theirs."""
    chapter, _, name = slug.rpartition("/")
    test = f"tests/pages/{chapter}/test_{name.replace('-', '_')}.py"
    pictures = ["languages/pictures.csv", *Path("docs/assets").glob(f"{name}-*.svg")]
    own = [*Path("docs").glob(f"*/{slug}.md"), f"snippets/{slug}.md", test, *(pictures if len(pictures) > 1 else [])]
    others = (f":!{path}" for path in ("docs", "snippets", "verified", *LATER))
    return own + subprocess.check_output(["git", "grep", "-lF", slug, "--", *others], encoding="utf-8").split()


def sizes() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in Path("tests").rglob("*.py")}
    shared = [count for path, count in lines.items() if path.parts[1] not in ("pages", "labs")]
    pages = [count for path, count in lines.items() if path.match("tests/pages/*/test_*.py")]
    tools = [Path("noxfile.py"), *Path("tools").rglob("*.py")]
    say("lines of code of tools/ and noxfile.py", sum(map(lines_of_code, tools)), "at most 3,000")
    say("lines of tests/ but tests/pages and tests/labs", sum(shared), "at most 7,000")
    say("lines of the tests of a page, mean and most", f"{sum(pages) // len(pages)}, {max(pages)}", "at most 230, 350")
    say(f"files that are touched by hand to add {PAGE}", len(touched(PAGE)), "at most 10")


def seconds_of(function: Callable[[], object]) -> float:
    """The seconds that all processors work while a function waits for the commands that it runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    function()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def visits(built: Path) -> None:
    """What the server sends for a first visit to a page and to the one with most HTML, by part."""
    longest = max(site.PAGES, key=lambda page: len(site.compressed((built / page.path / "index.html").read_bytes())))
    with site.serve(built) as server, site.browser() as chromium:
        for page in (site.Page("en", PAGE), longest):
            before = len(server.visits)
            chromium.new_context().new_page().goto(server.url + page.path, wait_until="networkidle")
            parts = Counter()
            for answer in server.visits[before:]:
                parts[Path(answer.path.partition("?")[0]).suffix or "HTML"] += answer.size / 1000
            sent = " ".join(f"{size:.1f} {part}" for part, size in parts.items())
            say(f"first visit, {page}", f"{parts.total():.1f} KB", f"at most 65 ({sent})")


def pytest(*arguments: str) -> None:
    """Run some tests; what they print is shown where they fail."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "--quiet", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode not in (0, 5):  # 5: none was selected
        sys.exit(done.stdout + done.stderr)


def tests_of(page: str, chosen: str, *how: str) -> None:
    """The checks of one page in its languages: its cells, its tests, and what it adds to those of all pages."""
    chapter, _, name = page.rpartition("/")
    pytest(f"snippets/{page}.md", f"tests/pages/{chapter}/test_{name.replace('-', '_')}.py", *how)
    pytest("tests/pages", "tests/browser", "-k", chosen)


def main() -> None:
    sizes()
    with tempfile.TemporaryDirectory() as folder:
        seconds = seconds_of(lambda: site.build(Path(folder, "site")))
        say(f"strict build of {len(site.PAGES)} pages", f"{seconds:.1f} s", f"{seconds / len(site.PAGES):.3f} s a page")
        visits(Path(folder, "site"))
    share = seconds_of(lambda: pytest(*OF_ALL_PAGES)) / len(site.SLUGS)
    start = seconds_of(lambda: tests_of(PAGE, "slips_in", "--collect-only"))  # imports, a build, a browser
    seconds = seconds_of(lambda: tests_of(PAGE, f"({PAGE}) or slips_in")) - start + share
    say(f"all checks of {PAGE} in all languages", f"{seconds:.1f} s", "at most 12")


if __name__ == "__main__":
    main()
