"""Say on a page what was run, where and when, while that is still true."""

from dataclasses import dataclass

from tools.cells.record import read_record, still_verified


def records(folder):
    """By the name of each device what was verified on it."""
    return {path.stem: read_record(path) for path in sorted(folder.glob("*.json"))}


def badges(slug, cells, records):
    """What each record says of a page: how many of its cells have not changed since they passed."""
    return [
        {
            "device": device.upper(),
            "verified": len(still_verified(entry, cells, device)),
            "cells": len(cells),
            **{fact: entry[fact] for fact in ("torch", "date")},
            "name": entry["device"],
        }
        for device, pages in records.items()
        if (entry := pages.get(slug))
    ]


@dataclass(frozen=True)
class Table:
    """What the records say of some pages on each of the `devices`.

    A row is a page and its badges in the order of the devices; `totals` are the badges of all pages, with counts alone,
    as a page has where nothing of it was recorded. `waiting` are the pages and their cells that need a device.
    """

    devices: list
    rows: list
    totals: list
    waiting: list


def table(pages):
    """The table of those pages that have cells."""
    pages = [page for page in pages if page.cells_to_verify]
    devices = sorted({badge["device"] for page in pages for badge in page.badges})
    rows = [(page, [on(page, device) for device in devices]) for page in pages]
    columns = zip(*(badges for _, badges in rows))
    totals = [{count: sum(badge[count] for badge in column) for count in ("verified", "cells")} for column in columns]
    waiting = [(page, cell) for page in pages for cell in page.cells_to_verify if cell.needs]
    return Table(devices, rows, totals, waiting)


def on(page, device):
    """The badge of a page on a device."""
    none = {"verified": 0, "cells": len(page.cells_to_verify)}
    return next((badge for badge in page.badges if badge["device"] == device), none)


def devices(slug, cells, records, text):
    """By the name of each cell that needs a device: a sentence that says whether, where and when it ran there."""
    said = {}
    for cell in cells:
        if cell.needs:
            entry = records.get(cell.needs, {}).get(slug)
            if cell in still_verified(entry, cells, cell.needs):
                facts = {"name": entry["device"], "torch": entry["torch"], "date": entry["date"]}
                said[cell.name] = text["ran_on"].format(**facts)
            else:
                said[cell.name] = text["not_run"].format(device=cell.needs.upper())
    return said


def measured(figures, text):
    """By the name of each cell of a lab that measures: a sentence that says where and when its figures were drawn."""
    notes = {name: found[0].metadata.get("measured") for name, found in figures.items()}
    return {name: text["measured"].format(**facts) for name, facts in notes.items() if facts}
