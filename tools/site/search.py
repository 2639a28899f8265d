"""Write the search index of the built site: Pagefind, one index per language, fetched on the first search.

Pagefind knows words by their spaces, which 因果掩码, "l’attenzione" and `scores.masked_fill` lack. So it reads a copy
of the pages that has one more space at each boundary of these, marked by a word joiner. theme/assets/find.js parts a
query likewise, and takes the marked spaces out of what it shows.

The copy has, too, what askers say and the page does not: their words in languages/aliases.csv, below the heading of the
section that answers.
"""

import html
import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pagefind_bin import get_executable

from tools.cells.source import SourceError
from tools.glossary import read_rows
from tools.site.body import GAP, change_text

ARTICLE = re.compile(
    r'(<html\b[^>]* lang="([\w-]+)"[^>]*>).*?(<article\b[^>]* data-pagefind-body[^>]*>.*</article>)', re.S
)
# Pagefind would leave these out itself, and take longer.
UNREAD = re.compile(r"<svg\b.*?</svg>|<wbr>|</?span\b[^>]*>", re.S)
OUTPUT = re.compile(r'<div class="output .*?</div>', re.S)
# A formula whose signs do not stand in one line would say something else: 1/E for one over the root of E.
FORMULA = re.compile(
    r"<math\b(?:(?!</math>).)*?<m(?:frac|over|root|sqrt|subsup|sup|under|underover|table)\b.*?</math>", re.S
)
HAN = r"[\u3000-\u9fff\uff00-\uffef]"  # and its punctuation
INSIDE = rf"[’'.](?<=[\w{GAP}].){GAP}*(?=[^\W\d])"
BESIDE = rf"{HAN}{GAP}*(?=[^\s{GAP}])|[^\s{GAP}]{GAP}*(?={HAN})"
BOUNDARY = {False: re.compile(INSIDE), True: re.compile(f"{INSIDE}|{BESIDE}")}
SPACE = "\u2060 "
TAG = re.compile("(<[^>]*>)")


def index(site: Path | str, aliases: Path) -> None:
    """Index every built page that has a `data-pagefind-body`, and below its headings their `aliases`."""
    output, rows = Path(site, "pagefind"), read_rows(aliases)
    with TemporaryDirectory() as copy:
        for path in Path(site).rglob("*.html"):
            if page := ARTICLE.search(path.read_text("utf-8")):
                spaced = Path(copy, path.relative_to(site))
                spaced.parent.mkdir(parents=True, exist_ok=True)
                article = with_aliases(page[3], page[2], path.relative_to(site).parent.as_posix(), rows)
                spaced.write_text(page[1] + readable(article), encoding="utf-8")
        command = [get_executable(), "--site", copy, "--output-path", output, "--exclude-selectors", ".headerlink"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SourceError(f"Pagefind could not write the search index: {done.stdout.strip()} {done.stderr.strip()}")
    for unused in output.glob("pagefind-[!ew]*"):  # its own dialogs
        unused.unlink()
    entry = output / "pagefind-entry.json"  # the only file whose order changes from run to run
    entry.write_text(json.dumps(json.loads(entry.read_text("utf-8")), sort_keys=True), encoding="utf-8")


def with_aliases(article: str, language: str, path: str, rows: Iterable[Mapping[str, str]]) -> str:
    """An article that has below each heading the words of its askers, in its own language or else in English."""
    for row in rows:
        slug, _, anchor = row["section"].partition("#")
        if path.removeprefix(f"{language}/") == slug:
            words = html.escape(row.get(language) or row["en"], quote=False)
            before, heading, after = article.partition(f'<h2 id="{anchor}"')
            article = before + heading + after.replace("</h2>", f'</h2><p data-pagefind-weight="6">{words}.</p>', 1)
    return article


def readable(article: str) -> str:
    """An article as Pagefind is to read it."""
    article = article.replace("<summary>", '<summary data-pagefind-weight="2">')  # a question, or a message of torch
    article = OUTPUT.sub(lambda output: messages(UNREAD.sub("", output[0])), article)
    return space_words(UNREAD.sub("", FORMULA.sub("…", article)))


def messages(output: str) -> str:
    """The lines of an output that are sentences, as messages of torch are; numbers are not looked for."""
    lines = (line for line in TAG.sub("", output).splitlines() if len(re.findall(r"\b[a-z]{2,}\b", line)) > 4)
    return f"<p>{' '.join(lines)}</p>"


def space_words(article: str) -> str:
    """An article whose text has a marked space at each boundary; the last word of a block gets none."""

    boundary = BOUNDARY[bool(re.search(HAN, article))]
    return change_text(article, TAG, lambda text: boundary.sub(rf"\g<0>{SPACE}", text))
