"""Write the search index of the built site: Pagefind, one index per language, fetched on the first search.

Pagefind knows words by their spaces, which 因果掩码, "l’attenzione" and `scores.masked_fill` lack. So it reads a copy
of the pages that has one more space at each boundary of these, marked by a word joiner. theme/assets/search.js parts a
query likewise, and takes the marked spaces out of what it shows.
"""

import json
import logging
import re
import shutil
import subprocess
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from pagefind_bin import get_executable

from tools.cells.source import SourceError

HAN = r"[\u3000-\u9fff\uff00-\uffef]"  # and its punctuation
BOUNDARY = re.compile(rf"(?<={HAN})(?=\S)|(?<=\S)(?={HAN})|(?<=\w[’'.])(?=[^\W\d])")
SPACE = "\u2060 "
TAG = re.compile(r"(<[^>]*>)")

log = logging.getLogger(f"mkdocs.{__name__}")
background = []


def index(site):
    """Index every built page that has a `data-pagefind-body`."""
    output = Path(site, "pagefind")
    shutil.rmtree(output, ignore_errors=True)
    with TemporaryDirectory() as copy:
        for path in Path(site).rglob("*.html"):
            page = path.read_text("utf-8")
            if " data-pagefind-body" in page:
                spaced = Path(copy, path.relative_to(site))
                spaced.parent.mkdir(parents=True, exist_ok=True)
                spaced.write_text(space_words(page), encoding="utf-8")
        command = [get_executable(), "--site", copy, "--output-path", output, "--exclude-selectors", ".headerlink"]
        run = subprocess.run(command, capture_output=True, encoding="utf-8")
    if run.returncode:
        raise SourceError(f"Pagefind could not write the search index: {run.stderr.strip() or run.stdout.strip()}")
    for unused in output.glob("pagefind-[!ew]*"):  # its own dialogs
        unused.unlink()
    entry = output / "pagefind-entry.json"  # the only file whose order changes from run to run
    entry.write_text(json.dumps(json.loads(entry.read_text("utf-8")), sort_keys=True), encoding="utf-8")


def index_in_background(site):
    """Index the pages of a preview while it is shown already."""

    def attempt():
        try:
            index(site)
        except (OSError, SourceError) as error:  # the preview may have ended
            log.warning("the search of this preview is not ready: %s", error)

    background.append(threading.Thread(target=attempt, daemon=True))
    background[-1].start()


def wait():
    """Wait for the index of the build before, whose folder is about to be emptied."""
    while background:
        background.pop().join()


def space_words(page):
    """A page whose text has a marked space at each boundary; the last word of a block gets none."""
    parts, before = [], "  "  # what a boundary may depend on, also across a tag

    def space(match):
        return SPACE if match.start() >= len(before) else ""

    for part in TAG.split(page):
        if not part.startswith("<"):
            text = before + part
            part = BOUNDARY.sub(space, text)[len(before) :]
            before = text[-2:]
        parts.append(part)
    return "".join(parts)
