"""What was run, where and when: `verified/<device>.json`, written by the runner only.

    {"masks/causal": {"date": "2026-11-20", "device": "...", "torch": "2.13.0", "python": "3.11.7",
                      "cells": {"leak": "<sha256 of its program and output>"}}}

A page may call a cell verified only while its digest is still the recorded one.
"""

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path

from tools.cells.source import SourceError, digest, read_text

FACTS = ("date", "device", "torch", "python")


def read_record(path):
    """The pages of a record; none where there is no such file; `SourceError` where it is not a record."""
    if not Path(path).is_file():
        return {}
    mend = f"delete the file and write it anew with `nox -s {'update' if Path(path).stem == 'cpu' else 'gpu'}`"
    try:
        pages = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}:{error.lineno}: not JSON ({error.msg}); {mend}") from None
    if not isinstance(pages, dict):
        raise SourceError(f"{path}:1: not a record of pages; {mend}")
    for slug, page in pages.items():
        texts = isinstance(page, dict) and all(isinstance(page.get(fact), str) for fact in FACTS)
        if not texts or not isinstance(page.get("cells"), dict):
            raise SourceError(f"{path}: the entry {slug!r} lacks one of {', '.join(FACTS)}, cells; {mend}")
    return pages


def write_record(path, pages):
    """Write a record, whole or not at all."""
    write_atomically(path, json.dumps(dict(sorted(pages.items())), indent=1, ensure_ascii=False) + "\n")


def write_atomically(path, text):
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


def still_verified(page, cells):
    """The cells of a page that have not changed since its entry in a record was made."""
    recorded = page["cells"] if page else {}
    return [cell for cell in cells if recorded.get(cell.name) == digest(cells, cell)]
