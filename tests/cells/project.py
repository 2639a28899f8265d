"""A small project of its own in a temporary folder, on which the runner is tested as a command."""

import multiprocessing
import os
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHILDREN = multiprocessing.get_context("forkserver")  # of a process that has loaded torch and has done nothing yet
CHILDREN.set_forkserver_preload(["tools.cells.plugin"])


def cell(name, code, output=None, mark=""):
    """A cell as it stands in a snippet file; `mark` is what its first mark says, such as "needs cuda: why"."""
    below = "" if output is None else f"<!--pytest-codeblocks:expected-output-->\n```text\n{output}```\n"
    start = f"[start:{name}] {mark}".strip()
    return f"<!-- --8<-- {start} -->\n```python\n{code}```\n{below}<!-- --8<-- [end:{name}] -->\n"


def run_pytest(folder, arguments):
    """Run pytest in a folder, as a command would, and leave with its status; what it says goes to `said.txt`."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({"PATH": "", "OMP_NUM_THREADS": "1"})
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.exit(pytest.main(["-p", "no:cacheprovider", "--junitxml=report.xml", *arguments]))


class Project:
    def __init__(self, folder, conftest=""):
        self.folder = folder
        self.write("conftest.py", (ROOT / "conftest.py").read_text() + conftest)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def add(self, slug, *cells):
        """A snippet file; a cell is its name, its code and perhaps its output and its mark."""
        return self.write(f"snippets/{slug}.md", "\n".join(cell(*parts) for parts in cells))

    def add_all(self, files, *above):
        """Snippet files, {slug: cells}, each with these cells above its own."""
        return {slug: self.add(slug, *above, *cells) for slug, cells in files.items()}

    def pytest(self, *arguments):
        """Run the cells; return the status, the text, and by `slug::name` the message of each test, '' if passed."""
        run = CHILDREN.Process(target=run_pytest, args=(self.folder, ["--codeblocks", *arguments]))
        run.start()
        run.join()
        return run.exitcode, (self.folder / "said.txt").read_text("utf-8"), self.messages()

    def messages(self):
        report, messages = self.folder / "report.xml", {}
        if report.exists():
            for case in xml.etree.ElementTree.parse(report).iter("testcase"):
                slug = case.get("classname").removeprefix("snippets.").replace(".", "/").removesuffix("/md")
                messages[f"{slug}::{case.get('name')}"] = "\n".join(found.text or "" for found in case)
            report.unlink()
        return messages
