"""Say on a page what was run, where and when, while that is still true."""

from pathlib import Path

from tools.cells.record import read_record, still_verified
from tools.notebooks import noted


def badges(slug, cells, folder):
    """What each record of `folder` says of a page: how many of its cells have not changed since they passed."""
    return [
        {
            "device": path.stem.upper(),
            "verified": len(still_verified(entry, cells)),
            "cells": len(cells),
            **{fact: entry[fact] for fact in ("torch", "date")},
            "name": entry["device"],
        }
        for path in sorted(Path(folder).glob("*.json"))
        if (entry := read_record(path).get(slug))
    ]


def devices(slug, cells, folder, text):
    """By the name of each cell that needs a device: a sentence that says whether, where and when it ran there."""
    said = {}
    for cell in cells:
        if cell.needs:
            entry = read_record(Path(folder, f"{cell.needs}.json")).get(slug)
            if cell in still_verified(entry, cells):
                facts = {"name": entry["device"], "torch": entry["torch"], "date": entry["date"]}
                said[cell.name] = text["ran_on"].format(**facts)
            else:
                said[cell.name] = text["not_run"].format(device=cell.needs.upper())
    return said


def measured(made, text):
    """By the name of each cell of a lab that measures: a sentence that says where and when its figures were drawn."""
    return {name: text["measured"].format(**facts) for name, facts in noted(made).items()}
