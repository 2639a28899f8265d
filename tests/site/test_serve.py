"""`mkdocs serve`: an edit is shown, a mistake is reported, and the preview outlives it."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.browser import site
from tests.site.made import files

LIMIT = 240  # seconds; a busy machine is ten times slower than a quiet one


@pytest.fixture
def preview(project):
    """A preview of the Chinese pages alone: what it says and shows, its project, and the folder that it builds in."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    log, scratch = project.parent / "log", project.parent / "scratch"
    scratch.mkdir()
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "ONLY_LANGUAGE": "zh",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
    }
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "mkdocs", "serve", "-a", address],
            cwd=project,
            env=environment,
            stdout=output,
            stderr=output,
            # A shell makes what it starts in the background deaf to Ctrl-C, and all that this starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        yield Preview(server, project, log, scratch, f"http://{address}{site.PREFIX}")
        server.terminate()
        server.wait()


class Preview:
    def __init__(self, server, project, log, scratch, url):
        self.server, self.project, self.log, self.scratch, self.url = server, project, log, scratch, url

    def said(self):
        return self.log.read_text("utf-8")

    def shows(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def wait(self, condition):
        """Wait for a condition, as long as the server is alive."""
        end = time.monotonic() + LIMIT
        while not condition():
            assert self.server.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.2)


def test_the_preview_shows_an_edit_reports_a_mistake_recovers_and_ends_quietly(preview):
    page, before = "foundations/one-head/", files(preview.project)
    preview.wait(lambda: "<article" in preview.shows(page))
    assert preview.shows(page).count("a_fresh_name") == 0
    assert "Content-Security-Policy" not in preview.shows(page), "it would stop the script that reloads"

    snippet = preview.project / "snippets/foundations/one-head.md"
    text = snippet.read_text("utf-8")
    snippet.write_text(text.replace("one_head", "a_fresh_name"), encoding="utf-8")
    preview.wait(lambda: "a_fresh_name" in preview.shows(page))

    def first_cells():
        return re.findall('<div[^>]* id="cell-([a-z-]+)"', preview.shows(page))[:2]

    first, second = first_cells()
    source = preview.project / "docs/zh/foundations/one-head.md"
    good = source.read_text("utf-8")
    swapped = {f"one-head.md:{first}": f"one-head.md:{second}", f"one-head.md:{second}": f"one-head.md:{first}"}
    names = re.compile(f'({"|".join(swapped)})(?=")')
    source.write_text(names.sub(lambda name: swapped[name[0]], good), encoding="utf-8")
    preview.wait(lambda: first_cells() == [second, first])

    source.write_text(good.replace("one-head.md:call-v1", "one-head.md:call-v2x"), encoding="utf-8")
    preview.wait(lambda: "has no cell 'call-v2x'; is it 'call-v2'?" in preview.said())

    source.write_text(good + "\n\nFixed again.\n", encoding="utf-8")
    preview.wait(lambda: "Fixed again." in preview.shows(page))
    preview.wait(lambda: '"zh"' in preview.shows("pagefind/pagefind-entry.json"))

    preview.server.send_signal(signal.SIGINT)
    preview.server.wait(LIMIT)
    assert "Traceback" not in preview.said()
    assert files(preview.scratch) == {}
    edited = {snippet: snippet.read_bytes(), source: source.read_bytes()}
    assert files(preview.project) == before | edited, "it leaves nothing behind"
