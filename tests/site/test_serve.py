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
from tools.site import hooks, search

LIMIT = 60  # seconds; a busy machine needs some


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


def test_the_preview_shows_an_edited_cell_reports_a_mistake_and_recovers(preview):
    page = "masks/causal/"
    preview.wait(lambda: "<article" in preview.shows(page))
    assert preview.shows(page).count("a_fresh_name") == 0

    snippet = preview.project / "snippets/masks/causal.md"
    text = snippet.read_text("utf-8")
    snippet.write_text(text.replace("visible", "a_fresh_name"), encoding="utf-8")
    preview.wait(lambda: "a_fresh_name" in preview.shows(page))

    def first_cells():
        return re.findall('id="cell-([a-z-]+)"', preview.shows(page))[:2]

    first, second = first_cells()
    source = preview.project / "docs/zh/masks/causal.md"
    good = source.read_text("utf-8")
    swapped = {f"causal.md:{first}": f"causal.md:{second}", f"causal.md:{second}": f"causal.md:{first}"}
    names = re.compile(f'({"|".join(swapped)})(?=")')
    source.write_text(names.sub(lambda name: swapped[name[0]], good), encoding="utf-8")
    preview.wait(lambda: first_cells() == [second, first])

    source.write_text(good.replace("causal.md:triangle", "causal.md:triangel"), encoding="utf-8")
    preview.wait(lambda: "has no cell 'triangel'; is it 'triangle'?" in preview.said())

    source.write_text(good + "\n\nMended again.\n", encoding="utf-8")
    preview.wait(lambda: "Mended again." in preview.shows(page))
    preview.wait(lambda: '"zh"' in preview.shows("pagefind/pagefind-entry.json"))


def test_a_new_description_of_a_page_without_a_text_of_its_own_is_shown(preview):
    source = preview.project / "docs/zh/foundations/softmax.md"
    for words in ("First words of it.", "Second words of it."):
        source.write_text(f"---\ndescription: {words}\nbehind: all\n---\n", encoding="utf-8")
        preview.wait(lambda words=words: words in preview.shows("foundations/softmax/"))


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_kill_in_the_middle_of_a_build_leaves_the_project_as_it_is(preview):
    preview.wait(lambda: "<article" in preview.shows("masks/causal/"))
    settings = preview.project / "mkdocs.yml"  # of which every page is made anew
    settings.write_text(settings.read_text("utf-8") + "# more\n", encoding="utf-8")
    before, builds = files(preview.project), preview.said().count("Building documentation")
    preview.wait(lambda: preview.said().count("Building documentation") > builds)
    preview.server.kill()
    preview.server.wait()
    assert "Documentation built" not in preview.said().rpartition("Building documentation")[2]
    assert files(preview.project) == before


def test_a_preview_that_is_ended_ends_quietly_and_leaves_nothing_behind(preview):
    """Even while its search is being indexed."""
    preview.wait(lambda: "<article" in preview.shows("masks/causal/"))
    source = preview.project / "docs/zh/masks/causal.md"
    source.write_text(source.read_text("utf-8") + "\n\nMore.\n", encoding="utf-8")
    preview.wait(lambda: "More." in preview.shows("masks/causal/"))
    preview.server.send_signal(signal.SIGINT)
    preview.server.wait(LIMIT)
    assert "Traceback" not in preview.said()
    assert files(preview.scratch) == {}


@pytest.mark.parametrize("event", [lambda: hooks.on_pre_build({}), hooks.on_shutdown], ids=["next build", "end"])
def test_the_search_of_a_preview_is_given_up_when_its_folder_goes(monkeypatch, tmp_path, caplog, event):
    """Or the folder would be emptied while it is written."""
    site_dir, slow = tmp_path / "site", tmp_path / "slow"
    site_dir.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setattr(search, "get_executable", lambda: str(slow))
    search.index_in_background(site_dir)
    [(thread, _)] = search.background
    time.sleep(0.5)
    assert thread.is_alive()
    start = time.monotonic()
    event()
    assert not thread.is_alive()
    assert time.monotonic() - start < 10
    assert not caplog.records
