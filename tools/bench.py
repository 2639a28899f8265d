"""Measure what a reader and an author wait for: `nox -s bench`. It prints; nothing is asserted.

Times are the best of some runs, since the other work of a machine only ever adds to them. `-- --peers` builds one page
with other generators too, which takes minutes and the network.
"""

import contextlib
import functools
import io
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

from tests.browser import site
from tests.cells.project import cell
from tools import peers

PAGES = (30, 60, 120)
COPIED = "masks/causal"
CELLS = {
    "attention": """\
import torch

torch.manual_seed({seed})
queries, keys, values = torch.randn(3, 2, 4, 8)
weights = torch.softmax(queries @ keys.mT / 8**0.5, dim=-1)
print((weights @ values)[0, 0])
""",
    "multi-head": """\
import torch
from torch import nn

torch.manual_seed({seed})
attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
inputs = torch.randn(1, 3, 8)
output, _ = attention(inputs, inputs, inputs)
output.sum().backward()
print(output.shape)
""",
    "training": """\
import torch
from torch import nn

torch.manual_seed({seed})
layer = nn.Linear(3, 2)
optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    layer(torch.rand(4, 3)).pow(2).sum().backward()
    optimizer.step()
print(layer.weight.shape)
""",
}


def best(function, runs=3):
    """The shortest time in seconds of some runs of a function."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def say(what, value, target=""):
    print(f"{what:58} {value:>12} {target}", flush=True)


def processor(function):
    """The seconds that all processors together work while a function waits for its commands."""

    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start = used()
    function()
    return used() - start


def bench_build(folder):
    site.build(folder / "site")
    for pages in PAGES:
        project = grown(folder / f"{pages}-pages", pages)
        for languages, only in (("three languages", ""), ("one language", "zh")):
            seconds = processor(functools.partial(site.build, folder / "grown", root=project, ONLY_LANGUAGE=only))
            say(
                f"strict build, {pages} pages, {languages}",
                f"{seconds:.1f} s",
                f"of work, {seconds / pages:.3f} a page",
            )


def grown(folder, pages):
    """A copy of the project with as many pages as wanted, by copies of one page in every language."""
    site.copy_project(folder)
    names = [f"{COPIED}-{number}" for number in range(pages - len(site.SLUGS))]
    for path in [*folder.glob(f"docs/*/{COPIED}.md"), folder / f"snippets/{COPIED}.md"]:
        text = path.read_text("utf-8")
        for name in names:
            copied = text.replace(f'--8<-- "{COPIED}.md', f'--8<-- "{name}.md')
            path.with_name(f"{Path(name).name}.md").write_text(copied, encoding="utf-8")
    settings = folder / "mkdocs.yml"
    entries = "".join(f"  - {name}.md\n" for name in names)
    settings.write_text(settings.read_text("utf-8").replace("  - glossary.md\n", f"{entries}  - glossary.md\n", 1))
    return folder


def bench_reload(copy, language):
    """The time from saving a page to the new page being served, in a copy of the project."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "ONLY_LANGUAGE": language, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "serve", "--quiet", "-a", address]
    server = subprocess.Popen(command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    page = copy / "docs/en/masks/causal.md"
    text, times = page.read_text("utf-8"), []
    try:
        for number in range(4):
            page.write_text(f"{text}\nEdit number {number}.\n", encoding="utf-8")
            start = time.perf_counter()
            wait_for(f"http://{address}/attention/masks/causal/", f"Edit number {number}.")
            times.append(time.perf_counter() - start)
    finally:
        server.terminate()
        server.wait()
        page.write_text(text, encoding="utf-8")  # or the next server would show these edits at once
    return min(times[1:])  # the first is the start of the server


def wait_for(url, words, limit=60):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if words in answer.read().decode():
                return
        time.sleep(0.02)
    raise TimeoutError(f"{url} did not show {words!r} in {limit} s")


def bench_runner(folder, files):
    """Our runner, which runs everything more than once, against pytest-codeblocks alone, on generated cells."""
    for number in range(files):
        cells, page = [], []
        for name, code in CELLS.items():
            code = code.format(seed=number)
            cells.append(cell(name, code, printed_by(code)))
            page.append(f'--8<-- "many/page{number}.md:{name}"\n')
        for path, parts in ((f"snippets/many/page{number}.md", cells), (f"docs/en/many/page{number}.md", page)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("\n".join(parts), encoding="utf-8")
    bare = best(lambda: run_pytest(folder))
    ours = best(lambda: run_pytest(folder, "-p", "tools.cells.plugin"))
    count = files * len(CELLS)
    say(f"{count} cells, pytest-codeblocks alone", f"{bare:.1f} s")
    say(f"{count} cells, this runner", f"{ours:.1f} s")
    say("this runner against pytest-codeblocks alone", f"{ours / bare:.2f} x", "target 1.5 x")
    say("overhead per cell", f"{1000 * (ours - bare) / count:.1f} ms")


def printed_by(code):
    """What a generated cell prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {"__name__": "__main__"})
    return output.getvalue()


def run_pytest(folder, *options):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--quiet",
        "--codeblocks",
        "-p",
        "no:cacheprovider",
        *options,
        "snippets",
    ]
    environment = {**os.environ, "PYTHONPATH": str(site.ROOT.resolve())}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


PARTS = {"": "HTML", ".css": "CSS", ".js": "JS", ".woff2": "font", ".woff": "font"}


def visit(server, tab, path):
    """The kilobytes that the server sends for a page, by part."""
    before = len(server.visits)
    tab.goto(server.url + path, wait_until="networkidle")
    parts = Counter()
    for answer in server.visits[before:]:
        parts[PARTS.get(Path(answer.path.partition("?")[0]).suffix, "pictures")] += answer.size / 1000
    return parts


def say_visit(what, parts):
    shown = ", ".join(f"{name} {size:.1f}" for name, size in parts.items())
    say(what, f"{sum(parts.values()):.1f} KB", shown)


def bench_bytes(folder):
    """What the server sends for a first visit and a next page: the lightest, the middle and the heaviest of all."""

    def weight(page):
        return len(site.compressed((folder / page.path / "index.html").read_bytes()))

    weighed = sorted(site.PAGES, key=weight)
    with site.serve(folder) as server, site.browser() as chromium:
        for page in (weighed[0], weighed[len(weighed) // 2], weighed[-1]):
            tab = chromium.new_context().new_page()
            visit(server, tab, site.Page(page.language, "masks/padding").path)
            say_visit(f"next page, {page}", visit(server, tab, page.path))
            say_visit(f"first visit, {page}", visit(server, chromium.new_context().new_page(), page.path))


def bench_peers(built, folder):
    """The build of the site, and a first visit to one page of it, here and by the peers."""
    builds = {"this site": peers.own(folder / "own"), "Zensical": peers.zensical(folder / "zensical")}
    rounds = [[processor(build) for build in builds.values()] for _ in range(5)]  # in turn: a machine has slow minutes
    for name, seconds in zip(builds, zip(*rounds)):
        say(f"build of all pages, {name}", f"{min(seconds):.1f} s", "of work")
    sites = {"this site": (built, peers.PAGE.path)}
    sites |= {name: (made, "") for name, made in peers.build(built, folder).items()}
    with site.browser() as chromium:
        for name, (made, path) in sites.items():
            with site.serve(made) as server:
                say_visit(f"first visit, {peers.PAGE}, {name}", visit(server, chromium.new_context().new_page(), path))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench_build(folder)
        bench_bytes(folder / "site")
        if "--peers" in sys.argv:
            bench_peers(folder / "site", folder / "peers")
        for pages in PAGES:
            project = folder / f"{pages}-pages"
            say(f"edit to reload, {pages} pages, one language", f"{bench_reload(project, 'en'):.1f} s", "target 1 s")
            say(f"edit to reload, {pages} pages, three languages", f"{bench_reload(project, ''):.1f} s")
        for files in (17, 167, 667):
            bench_runner(folder / f"{files}-files", files)


if __name__ == "__main__":
    main()
