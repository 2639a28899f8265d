"""Say on a page what was run, where and when, while that is still true."""

from tools.cells.record import read_record, still_verified
from tools.notebooks import noted


def records(folder):
    """By the name of each device what was verified on it."""
    return {path.stem: read_record(path) for path in sorted(folder.glob("*.json"))}


def badges(slug, cells, records):
    """What each record says of a page: how many of its cells have not changed since they passed."""
    return [
        {
            "device": device.upper(),
            "verified": len(still_verified(entry, cells)),
            "cells": len(cells),
            **{fact: entry[fact] for fact in ("torch", "date")},
            "name": entry["device"],
        }
        for device, pages in records.items()
        if (entry := pages.get(slug))
    ]


def devices(slug, cells, records, text):
    """By the name of each cell that needs a device: a sentence that says whether, where and when it ran there."""
    said = {}
    for cell in cells:
        if cell.needs:
            entry = records.get(cell.needs, {}).get(slug)
            if cell in still_verified(entry, cells):
                facts = {"name": entry["device"], "torch": entry["torch"], "date": entry["date"]}
                said[cell.name] = text["ran_on"].format(**facts)
            else:
                said[cell.name] = text["not_run"].format(device=cell.needs.upper())
    return said


def measured(made, text):
    """By the name of each cell of a lab that measures: a sentence that says where and when its figures were drawn."""
    return {name: text["measured"].format(**facts) for name, facts in noted(made).items()}
