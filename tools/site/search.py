"""Write the search index of the built site: Pagefind, one index per language, fetched on the first search.

Pagefind knows words by their spaces; Chinese has none, and the Italian "l’attenzione" lacks one. So it reads a copy of
the pages in which each Han character and each elided article stands alone. theme/assets/site.js does the same to a
query, and takes these spaces out of what it shows.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from pagefind_bin import get_executable

from tools.cells.source import SourceError

HAN = r"[\u3400-\u9fff]"
ELISION = r"(?<=\w)[’'](?=\w)"
LAST_SPACE = re.compile(
    r' (?=</(?:h[1-6]|li|p|summary|td|th)>|<a class="headerlink")'
)  # here Pagefind sets a full stop
TAG = re.compile(r"(<[^>]*>)")


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


def space_words(page):
    """A page with a space on both sides of each Han character of its text, and in Italian behind each elision."""
    words = re.compile(rf"{HAN}|{ELISION}" if '<html lang="it"' in page else HAN)
    spaced = (part if part.startswith("<") else words.sub(space, part) for part in TAG.split(page))
    return LAST_SPACE.sub("", "".join(spaced))


def space(match):
    return f" {match[0]} " if re.fullmatch(HAN, match[0]) else f"{match[0]} "
