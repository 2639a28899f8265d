"""What was run, where and when: `verified/<device>.json`, written by the runner only.

    {"foundations/causal": {"date": "2026-11-20", "device": "...", "torch": "2.13.0", "python": "3.11.7",
                      "cells": {"leak": "<sha256 of its program and output>"}}}

A page may call a cell verified only while its digest is still the recorded one.
"""

import contextlib
import datetime
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.cells.source import Cell, SourceError, digest, read_text

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
Entry = Mapping[str, Any]  # what a record says of a page
Record = Mapping[str, Entry]


def facts(device: str) -> dict[str, str]:
    """What a record says of a run on a device, here and today."""
    import torch  # the site, which reads records, is built without

    return {
        "date": today(),
        "device": device_name(device),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
    }


def device_name(device: str) -> str:
    """What a device calls itself; a GPU of NVIDIA with the version of its driver, which torch does not know."""
    import torch

    if not device.startswith("cuda"):
        return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}" if device == "cpu" else device
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n")[0]
    return f"{torch.cuda.get_device_name(device)}, driver {driver}"


def read_records(folder: Path) -> dict[str, Record]:
    """By the name of each device what was verified on it."""
    return {path.stem: read_record(path) for path in sorted(folder.glob("*.json"))}


def read_record(path: str | Path) -> dict[str, dict[str, Any]]:
    """The pages of a record; none where there is no such file; `SourceError` where nobody can have run what it says."""
    if not Path(path).is_file():
        return {}
    fix = f"delete the file and write it anew with `nox -s {'update' if Path(path).stem == 'cpu' else 'gpu'}`"
    try:
        pages: dict[str, dict[str, Any]] = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}:{error.lineno}: not JSON ({error.msg}); {fix}") from None
    torch, day = pinned_torch(), today()
    for slug, page in pages.items():
        if page["torch"] != torch or page["date"] > day:
            known = f"today is {day} and constraints.txt pins {torch}"
            raise SourceError(f"{path}: {slug} ran on {page['date']} with torch {page['torch']}; {known}; {fix}")
    return pages


def pinned_torch() -> str:
    """The version of torch in constraints.txt."""
    return str(re.findall(r"^torch==(\S+)", CONSTRAINTS.read_text("utf-8"), re.MULTILINE)[0])


def today() -> str:
    """The day in UTC."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"


def write_record(path: str | Path, pages: Record) -> None:
    """Write a record, whole or not at all."""
    write_atomically(path, json.dumps(dict(sorted(pages.items())), indent=1, ensure_ascii=False) + "\n")


def write_atomically(path: str | Path, text: str) -> None:
    """Replace a file by one rename, so that a crash or a full disk leaves the old one; `SourceError` names it then."""
    fresh = Path(path).with_name(f".{Path(path).name}.new")
    try:
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8", newline="\n")
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise SourceError(f"{path}: it is as it was, since nothing can be written there: {error.strerror}") from None


def still_verified(page: Entry | None, cells: Sequence[Cell], device: str) -> list[Cell]:
    """The cells of a page that this device can run and that are those of its entry in the record of the device."""
    recorded = page["cells"] if page else {}
    able = (cell for cell in cells if cell.needs in ("", device))
    return [cell for cell in able if recorded.get(cell.name) == digest(cells, cell)]


def badges(slug: str, cells: Sequence[Cell], records: Mapping[str, Record]) -> dict[str, Entry]:
    """By its device what each record says of a page: how many of its cells have not changed since they passed."""
    return {
        device.upper(): {**entry, "device": device.upper(), "name": entry["device"], "cells": len(cells)}
        | {"verified": len(still_verified(entry, cells, device))}
        for device, pages in records.items()
        if (entry := pages.get(slug))
    }
