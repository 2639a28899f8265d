"""Say on a page what was run, where and when, while that is still true."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cells.record import read_record, still_verified
from tools.cells.source import Cell

Record = Mapping[str, Mapping]
Badge = Mapping[str, Any]


def records(folder: Path) -> Mapping[str, Record]:
    """By the name of each device what was verified on it."""
    return {path.stem: read_record(path) for path in sorted(folder.glob("*.json"))}


def badges(slug: str, cells: Sequence[Cell], records: Mapping[str, Record]) -> list[Badge]:
    """What each record says of a page: how many of its cells have not changed since they passed."""
    return [
        {
            "device": device.upper(),
            "verified": len(still_verified(entry, cells, device)),
            "cells": len(cells),
            "torch": entry["torch"],
            "date": entry["date"],
            "name": entry["device"],
        }
        for device, pages in records.items()
        if (entry := pages.get(slug))
    ]


def ran_on(slug: str, cells: Sequence[Cell], records: Mapping[str, Record], text: Mapping) -> dict[str, str]:
    """By the name of each cell that needs a device: a sentence that says whether, where and when it ran there."""
    said = {}
    for cell in (cell for cell in cells if cell.needs):
        entry = records.get(cell.needs, {}).get(slug)
        if cell in still_verified(entry, cells, cell.needs):
            said[cell.name] = text["ran_on"].format(name=entry["device"], torch=entry["torch"], date=entry["date"])
        else:
            said[cell.name] = text["not_run"].format(device=cell.needs.upper())
    return said


def measured(figures: Mapping[str, Sequence], text: Mapping) -> dict[str, str]:
    """By the name of each cell of a lab that measures: a sentence that says where and when its figures were drawn."""
    notes = {name: found[0].metadata.get("measured") for name, found in figures.items()}
    return {name: text["measured"].format(**facts) for name, facts in notes.items() if facts}


@dataclass(frozen=True)
class Table:
    """What the records say of some pages on each of the `devices`.

    A row is a page and its badges in the order of the devices; `totals` are the badges of all pages, with counts alone.
    `waiting` are the pages and their cells that need a device.
    """

    devices: Sequence[str]
    rows: Sequence[tuple[Any, Sequence[Badge]]]
    totals: Sequence[Badge]
    waiting: Sequence[tuple[Any, Cell]]


def table(pages: Iterable) -> Table:
    """The table of those pages that have cells."""
    pages = [page for page in pages if page.own_cells]
    devices = sorted({badge["device"] for page in pages for badge in page.badges})
    rows = [(page, [on(page, device) for device in devices]) for page in pages]
    columns = zip(*(badges for _, badges in rows))
    totals = [{count: sum(badge[count] for badge in column) for count in ("verified", "cells")} for column in columns]
    return Table(devices, rows, totals, [(page, cell) for page in pages for cell in page.own_cells if cell.needs])


def on(page, device: str) -> Badge:
    none = {"verified": 0, "cells": len(page.own_cells)}
    return next((badge for badge in page.badges if badge["device"] == device), none)
