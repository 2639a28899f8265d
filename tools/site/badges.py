"""Say on a page what was run, where and when, while that is still true."""

from pathlib import Path

from tools.cells.record import read_record, still_verified


def badges(slug, cells, folder):
    """What each record of `folder` says of a page: only of cells that have not changed since."""
    found = []
    for path in sorted(Path(folder).glob("*.json")):
        entry = read_record(path).get(slug)
        verified = len(still_verified(entry, cells))
        if verified:
            found.append(
                {
                    "verified": verified,
                    "cells": len(cells),
                    "device": path.stem.upper(),
                    "name": entry["device"],
                    "torch": entry["torch"],
                    "date": entry["date"],
                }
            )
    return found
