"""Print what the house weighs: `nox -s bench`. Nothing is asserted; each line says the limit that we want to keep.

Times are seconds of all processors together, so that other work on the machine changes them little.
"""

import ast
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.browser import site

PAGE = "foundations/causal"
PARTS = {"": "HTML", ".css": "CSS", ".js": "JS", ".woff2": "font"}


def say(what: str, value: str, limit: str = "") -> None:
    print(f"{what:56} {value:>10}  {limit}", flush=True)


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def longest_function(paths: Iterable[Path]) -> tuple[int, str]:
    """The number of lines of the longest function, and where it is."""
    functions = (
        (node.end_lineno - node.lineno + 1, f"{path}:{node.lineno} {node.name}")
        for path in paths
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    )
    return max(functions)


def sizes() -> None:
    tools = [Path("noxfile.py"), *Path("tools").rglob("*.py")]
    tests = list(Path("tests").rglob("*.py"))
    say("lines of tools/ and noxfile.py", f"{lines(tools)}", "at most 3,500")
    say("lines of tools/site/hooks.py", f"{lines([Path('tools/site/hooks.py')])}", "at most 150")
    say("lines of tests/", f"{lines(tests)}", "at most 14,000")
    length, where = longest_function([*tools, *tests])
    say(f"longest function, {where}", f"{length}", "at most 40")


def processor(function: Callable[[], object]) -> float:
    """The seconds that all processors work while a function waits for the commands that it runs."""

    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start = used()
    function()
    return used() - start


def weight(file: Path) -> int:
    """The bytes of a page and of the files that it loads, gzipped."""
    loaded = re.findall(r'(?:href|src)="([^":]*\.(?:css|js|woff2))"', file.read_text("utf-8"))
    return sum(len(site.compressed((file.parent / name).read_bytes())) for name in ("index.html", *loaded))


def visits(built: Path) -> None:
    """What the server sends for a first visit to a page and to the heaviest one, by part."""
    heaviest = max(site.PAGES, key=lambda page: weight(built / page.path / "index.html"))
    with site.serve(built) as server, site.browser() as chromium:
        for page in (site.Page("en", PAGE), heaviest):
            before = len(server.visits)
            chromium.new_context().new_page().goto(server.url + page.path, wait_until="networkidle")
            parts = Counter()
            for answer in server.visits[before:]:
                parts[PARTS.get(Path(answer.path.partition("?")[0]).suffix, "other")] += answer.size / 1000
            shown = ", ".join(f"{part} {size:.1f}" for part, size in parts.items())
            say(f"first visit, {page}", f"{parts.total():.1f} KB", f"at most 55 ({shown})")


def pytest(*arguments: str) -> None:
    """Run some tests; what they print is shown where they fail."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "--quiet", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode not in (0, 5):  # 5: none was selected
        sys.exit(done.stdout + done.stderr)


def page_tests(page: str, chosen: str) -> None:
    """The checks of one page in its languages: its cells, its tests, and what the browser tests do with it."""
    chapter, _, name = page.rpartition("/")
    pytest(f"snippets/{page}.md", f"tests/pages/{chapter}/test_{name.replace('-', '_')}.py", "-k", chosen)
    pytest("tests/browser", "-k", f"({page}) and ({chosen})")


def main() -> None:
    sizes()
    with tempfile.TemporaryDirectory() as folder:
        seconds = processor(lambda: site.build(Path(folder, "site")))
        say(f"strict build of {len(site.PAGES)} pages", f"{seconds:.1f} s", f"{seconds / len(site.PAGES):.3f} s a page")
        visits(Path(folder, "site"))
    start = processor(lambda: page_tests(PAGE, "nothing_at_all"))  # what each run of pytest takes before its tests
    share = processor(lambda: pytest("tests/structure")) / len(site.SLUGS)
    seconds = processor(lambda: page_tests(PAGE, "not nothing_at_all")) - start + share
    say(f"all checks of {PAGE} in all languages", f"{seconds:.1f} s", "at most 15")


if __name__ == "__main__":
    main()
