"""What was run, where and when: `verified/<device>.json`, written by the runner only.

    {"foundations/causal": {"date": "2026-11-20", "device": "...", "torch": "2.13.0", "python": "3.11.7",
                      "cells": {"leak": "<sha256 of its program and output>"}}}

A page may call a cell verified only while its digest is still the recorded one.
"""

import contextlib
import datetime
import errno
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.cells.source import Cell, SourceError, digest, read_text

FACTS = ("date", "device", "torch", "python")
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def read_record(path: str | Path) -> dict[str, dict]:
    """The pages of a record; none where there is no such file; `SourceError` where nobody can have run what it says."""
    if not Path(path).is_file():
        return {}
    mend = mend_of(path)
    try:
        pages = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}:{error.lineno}: not JSON ({error.msg}); {mend}") from None
    if not isinstance(pages, dict):
        raise SourceError(f"{path}:1: not a record of pages; {mend}")
    for slug, page in pages.items():
        if fault := fault_of(page):
            raise SourceError(f"{path}: the entry {slug!r} {fault}; {mend}")
    return pages


def mend_of(path):
    """What to do about a record that says what cannot be."""
    return f"delete the file and write it anew with `nox -s {'update' if Path(path).stem == 'cpu' else 'gpu'}`"


def fault_of(page):
    """What an entry of a record cannot say, if it says that."""
    texts = isinstance(page, dict) and all(isinstance(page.get(fact), str) for fact in FACTS)
    if not texts or not isinstance(page.get("cells"), dict):
        return f"lacks one of {', '.join(FACTS)}, cells"
    if page["torch"] != (pinned := pinned_torch()):
        return f"is of torch {page['torch']}, and constraints.txt pins {pinned}"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", page["date"]) or page["date"] > today():
        return f"is of the day {page['date']!r}, which has not come yet or is no YYYY-MM-DD"
    return None


def pinned_torch() -> str:
    """The version of torch in constraints.txt."""
    return re.findall(r"^torch==(\S+)", CONSTRAINTS.read_text("utf-8"), re.MULTILINE)[0]


def today() -> str:
    """The day in UTC."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"


def write_record(path: str | Path, pages: dict[str, dict]) -> None:
    """Write a record, whole or not at all."""
    write_atomically(path, json.dumps(dict(sorted(pages.items())), indent=1, ensure_ascii=False) + "\n")


def write_atomically(path: str | Path, text: str) -> None:
    """Replace a file by one rename, so that a crash leaves the old one; a link stays a link, the mode stays.

    `SourceError` where that cannot be: the disk is full, or the file is not to be written.
    """
    path = Path(path).resolve()
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        fresh.write_text(text, encoding="utf-8", newline="\n")
        if path.exists():
            shutil.copymode(path, fresh)
        fresh.replace(path)
    except OSError as error:
        raise SourceError(
            f"{os.path.relpath(path)} cannot be written ({error.strerror}) and is as it was; mend that and try again"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()


def still_verified(page: Mapping | None, cells: Sequence[Cell], device: str) -> list[Cell]:
    """The cells of a page that have not changed since its entry in the record of a device was made.

    `SourceError` where the entry names a cell that this device cannot run.
    """
    recorded = page["cells"] if page else {}
    for cell in cells:
        if cell.name in recorded and cell.needs not in ("", device):
            path = f"verified/{device}.json"
            raise SourceError(f"{path}: the cell {cell.name!r} of {cell.path} needs {cell.needs}; {mend_of(path)}")
    return [cell for cell in cells if recorded.get(cell.name) == digest(cells, cell)]
