"""A record counts a cell as verified only while its program and its output are the recorded ones."""

import errno
import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from tests.cells.project import cell
from tools.cells import plugin, record
from tools.cells.record import read_record, still_verified, write_atomically, write_record
from tools.cells.source import SourceError, digest, read_cells

PAGE = {"date": "2026-11-20", "device": "x86_64", "torch": record.pinned_torch(), "python": "3.11.7"}
FORK = multiprocessing.get_context("fork")
SETUP, SHOW, OTHER = cell("setup", "x = 1\n"), cell("show", "print(x)\n", "1\n"), cell("other", "print(2)\n", "2\n")


@pytest.fixture
def cells(tmp_path):
    def write(text):
        path = tmp_path / "page.md"
        path.write_text(text, encoding="utf-8")
        return read_cells(path)

    return write


def test_a_record_is_written_and_read(tmp_path, cells):
    page = PAGE | {"cells": {c.name: digest(cells(SETUP), c) for c in cells(SETUP)}}
    write_record(tmp_path / "verified/cpu.json", {"foundations/causal": page})
    assert read_record(tmp_path / "verified/cpu.json") == {"foundations/causal": page}
    assert read_record(tmp_path / "verified/cuda.json") == {}
    assert [path.name for path in (tmp_path / "verified").iterdir()] == ["cpu.json"]


@pytest.mark.parametrize(
    ("text", "verified"),
    [
        (SETUP + SHOW + OTHER, ["setup", "show", "other"]),
        (SETUP + SHOW.replace("1\n", "2\n") + OTHER, ["setup", "other"]),
        (SETUP + SHOW.replace("print(x)", "print(x )") + OTHER, ["setup", "other"]),
        (SETUP.replace("1", "3") + SHOW + OTHER, []),
        (SETUP + OTHER + SHOW, ["setup", "other", "show"]),
    ],
)
def test_a_changed_cell_is_no_longer_verified(cells, text, verified):
    recorded = cells(SETUP + SHOW + OTHER)
    page = PAGE | {"cells": {c.name: digest(recorded, c) for c in recorded}}
    assert [c.name for c in still_verified(page, cells(text), "cpu")] == verified


def test_a_page_without_an_entry_has_no_verified_cells(cells):
    assert still_verified(None, cells(SETUP), "cpu") == []


def test_a_cell_that_needs_another_device_cannot_have_run_on_this_one(cells):
    fused = cells(SETUP + cell("fused", "print(2)\n", "2\n", "needs cuda: a kernel"))
    page = PAGE | {"cells": {"fused": digest(fused, fused[1])}}
    assert [c.name for c in still_verified(page, fused, "cuda")] == ["fused"]
    with pytest.raises(SourceError, match=r"^verified/cpu\.json: the cell 'fused' of .* needs cuda; delete the file"):
        still_verified(page, fused, "cpu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps({"a": PAGE | {"cells": {}, "torch": "2.12.0"}}), "is of torch 2.12.0, and constraints.txt pins 2."),
        (json.dumps({"a": PAGE | {"cells": {}, "date": "2999-01-01"}}), "the day '2999-01-01', which has not come"),
        (json.dumps({"a": PAGE | {"cells": {}, "date": "26-1-1"}}), "is of the day '26-1-1'"),
        ('{"a":\n', "cpu.json:2: not JSON"),
        ("[]", "not a record of pages"),
        ('{"a": 1}', "the entry 'a' lacks one of date, device, torch, python, cells"),
        ('{"a": {"date": "2026", "cells": {}}}', "the entry 'a' lacks"),
        ('{"a": {"date": "1", "device": "2", "torch": "3", "python": "4"}}', "the entry 'a' lacks"),
    ],
)
def test_a_corrupt_record_says_how_to_mend_it(tmp_path, text, message):
    path = tmp_path / "cpu.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError) as error:
        read_record(path)
    assert message in str(error.value)
    assert "nox -s update" in str(error.value)


@pytest.mark.parametrize("failing", ["write_text", "replace"])
def test_a_file_that_cannot_be_written_is_named_and_stays_whole(tmp_path, monkeypatch, failing):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "page.md"
    path.write_text("before")
    monkeypatch.setattr(Path, failing, full)
    with pytest.raises(SourceError, match=r"page\.md cannot be written \(No space left on device\) and is as it was"):
        write_atomically(path, "after")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.md", "before")]


def stuck(path):
    """Write, but for the last step."""
    Path.replace = lambda *_: time.sleep(60)
    write_atomically(path, "after")


def test_a_file_is_whole_after_a_kill(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before")
    child = FORK.Process(target=stuck, args=(path,))
    child.start()
    while not list(tmp_path.glob(".page.md.*")):
        assert child.is_alive()
    child.kill()
    child.join()
    assert path.read_text() == "before"


def add_slowly(path, slug):
    """Add an entry, with time between reading and writing for another to come in between."""
    plugin.write_record = lambda *given: (time.sleep(0.2), write_record(*given))
    plugin.add_entries(path, {slug: PAGE | {"cells": {}}})


def test_two_updates_at_once_lose_no_entry(tmp_path):
    path = tmp_path / "verified/cpu.json"
    write_record(path, {"old": PAGE | {"cells": {}}})
    writers = [FORK.Process(target=add_slowly, args=(path, slug)) for slug in ("one", "two", "three")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert set(read_record(path)) == {"old", "one", "two", "three"}


def test_a_file_that_may_not_be_written_is_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    path.write_text("before")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(SourceError, match=r"page\.md cannot be written \(Permission denied\)"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
