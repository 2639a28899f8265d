"""A record counts a cell as verified only while its program and its output are the recorded ones."""

import errno
import multiprocessing
import time
from pathlib import Path

import pytest

from tests.cells.project import cell
from tools.cells import plugin, record
from tools.cells.record import read_record, still_verified, write_atomically, write_record
from tools.cells.source import SourceError, digest, read_cells

PAGE = {"date": "2026-11-20", "device": "x86_64", "torch": record.pinned_torch(), "python": "3.11.7", "cells": {}}
FORK = multiprocessing.get_context("fork")
SETUP, SHOW, OTHER = cell("setup", "x = 1\n"), cell("show", "print(x)\n", "1\n"), cell("other", "print(2)\n", "2\n")
FUSED = cell("fused", "print(2)\n", "2\n", "needs cuda: a kernel")
ALL = SETUP + SHOW + OTHER + FUSED


@pytest.mark.parametrize(
    ("text", "verified"),
    [
        (ALL, ["setup", "show", "other"]),
        (SETUP + SHOW.replace("1\n", "2\n") + OTHER, ["setup", "other"]),
        (SETUP + SHOW.replace("print(x)", "print(x )") + OTHER, ["setup", "other"]),
        (SETUP.replace("1", "3") + SHOW + OTHER, []),
        (SETUP + OTHER + SHOW, ["setup", "other", "show"]),
    ],
)
def test_what_has_changed_or_needs_another_device_is_not_verified(tmp_path, text, verified):
    paths = tmp_path / "recorded.md", tmp_path / "page.md"
    for path, written in zip(paths, (ALL, text)):
        path.write_text(written, "utf-8")
    recorded, cells = map(read_cells, paths)
    page = PAGE | {"cells": {c.name: digest(recorded, c) for c in recorded}}
    assert [c.name for c in still_verified(page, cells, "cpu")] == verified
    assert still_verified(None, recorded, "cpu") == []
    assert recorded[-1] in still_verified(page, recorded, "cuda")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"torch": "2.12.0"}, "torch 2.12.0; .* pins 2"), ({"date": "2999-01-01"}, "ran on 2999-01-01 .* today is")],
)
def test_a_record_that_nobody_can_have_made_says_how_to_mend_it(tmp_path, change, words):
    write_record(tmp_path / "cpu.json", {"a": PAGE | change})
    with pytest.raises(SourceError, match=f"cpu.json: a .*{words}.*; delete the file .*nox -s update"):
        read_record(tmp_path / "cpu.json")


def stuck(path):
    """Write, but for the last step."""
    Path.replace = lambda *_: time.sleep(60)
    write_atomically(path, "after")


def test_a_file_is_whole_after_a_kill(tmp_path):
    (path := tmp_path / "page.md").write_text("before")
    child = FORK.Process(target=stuck, args=(path,))
    child.start()
    while not list(tmp_path.glob(".page.md.*")):
        assert child.is_alive()
    child.kill()
    child.join()
    assert path.read_text() == "before"


def test_a_full_disk_leaves_the_old_file_and_no_other_and_is_said_in_a_sentence(tmp_path, monkeypatch):
    def fill(path, text, **_):
        path.write_bytes(text.encode()[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    (path := tmp_path / "page.md").write_text("before")
    monkeypatch.setattr(Path, "write_text", fill)
    with pytest.raises(SourceError, match=f"^{path}: it is as it was, .*: No space left on device$"):
        write_atomically(path, "after")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.md", "before")]


def add_slowly(path, slug):
    """Add an entry, with time between reading and writing for another to come in between."""
    plugin.write_record = lambda *given: (time.sleep(0.2), write_record(*given))
    plugin.add_entry(path, slug, PAGE)


def test_two_updates_at_once_lose_no_entry(tmp_path):
    path = tmp_path / "verified/cpu.json"
    write_record(path, {"old": PAGE})
    writers = [FORK.Process(target=add_slowly, args=(path, slug)) for slug in ("one", "two")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert read_record(path) == dict.fromkeys(["old", "one", "two"], PAGE)
    assert read_record(tmp_path / "verified/cuda.json") == {}
