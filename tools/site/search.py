"""Write the search index of the built site: Pagefind, one index per language, fetched on the first search.

What is found is a section, so Pagefind reads a copy of the site in which each section is a page. It knows words by
their spaces, which 因果掩码, "l’attenzione" and `scores.masked_fill` lack, so the copy has one more space at each
boundary of these, marked by a word joiner. theme/assets/find.js parts a query likewise, and takes the marked spaces out
of what it shows.

The copy has, too, what askers say and the page does not: their words in languages/aliases.csv, at the end of the
section that answers. Beside the index lies a list of its words, among which find.js looks for a mistyped one.
"""

import html
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pagefind_bin import get_executable

from tools.cells.source import SourceError
from tools.languages.glossary import read_rows
from tools.site.body import GAP, change_text

ARTICLE = re.compile(
    r'(<html\b[^>]* lang="([\w-]+)"[^>]*>).*?<article\b([^>]* data-pagefind-body[^>]*)>(.*)</article>', re.S
)
CHAPTER = re.compile(r'data-chapter="([^"]*)"')
SECTION = re.compile(r'(?=<h2\b[^>]* id=")')
HEADING = re.compile(r'<(h[12])\b[^>]* id="([^"]*)"[^>]*>(.*?)</\1>', re.S)
LINK = re.compile(r'<a class="headerlink".*?</a>', re.S)
# What is worth less than a section that explains: a list that leads to it, what repeats it, what asks about it.
WORTH = {"exercise": 0.5, "recap": 0.5, "questions": 0.95}
WORTH_OF_A_LIST = 0.1
# Pagefind would leave these out itself, and take longer.
UNREAD = re.compile(r'<svg\b.*?</svg>|<wbr>|<span class="c1">.*?</span>|</?span\b[^>]*>', re.S)
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
UNSEEN = "\u2063"  # behind it stand words that are found, but not shown
TAG = re.compile("(<[^>]*>)")
WORD = re.compile(rf"(?:(?!{HAN}|\d)\w)(?:(?!{HAN})\w){{2,}}")


def index(site: Path | str, aliases: Path) -> None:
    """Index every section of every built page that has a `data-pagefind-body`, with its `aliases`."""
    output, rows, words = Path(site, "pagefind"), read_rows(aliases), defaultdict[str, Counter[str]](Counter)
    with TemporaryDirectory() as copy:
        for path in Path(site).rglob("*.html"):
            if page := ARTICLE.search(path.read_text("utf-8")):
                folder = Path(copy, path.relative_to(site)).parent
                folder.mkdir(parents=True, exist_ok=True)
                slug = path.relative_to(site).parent.as_posix().removeprefix(f"{page[2]}/")
                for name, section in sections(page[4], page[3]):
                    text = section + asked(f"{slug}#{name}", page[2], rows)
                    Path(folder, f"{name or 'index'}.html").write_text(page[1] + text, encoding="utf-8")
                    words[page[2]].update(set(WORD.findall(TAG.sub(" ", text).replace(SPACE, "").lower())))
        command = [get_executable(), "--site", copy, "--output-path", output]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SourceError(f"Pagefind could not write the search index: {done.stdout.strip()} {done.stderr.strip()}")
    for unused in output.glob("pagefind-[!ew]*"):  # its own dialogs
        unused.unlink()
    entry = output / "pagefind-entry.json"  # the only file whose order changes from run to run
    entry.write_text(json.dumps(json.loads(entry.read_text("utf-8")), sort_keys=True), encoding="utf-8")
    for language, count in words.items():
        known = sorted((word for word in count if count[word] > 2), key=lambda word: (-count[word], word))
        Path(output, f"words.{language}.txt").write_text(" ".join(known), encoding="utf-8")


def sections(body: str, attributes: str) -> Iterator[tuple[str, str]]:
    """The sections of an article as Pagefind is to read them: the name of each, "" for what stands before the first."""
    chapter = CHAPTER.search(attributes)
    is_list = "data-list" in attributes
    page = ""
    for part in SECTION.split(LINK.sub("", body)):
        heading = HEADING.search(part)
        title = space_words(TAG.sub("", heading[3])) if heading else page
        name = heading[2] if heading and heading[1] == "h2" else ""
        page = page or title
        said = {"title": title, "page": page, "chapter": chapter[1] if chapter else ""}
        said["worth"] = str(WORTH_OF_A_LIST if is_list else WORTH.get(name, 1.0))
        meta = "".join(f'<span data-pagefind-meta="{key}">{value}</span>' for key, value in said.items() if value)
        yield name, f"<p>{meta}</p><article data-pagefind-body>{readable(part)}"


def asked(section: str, language: str, rows: Iterable[Mapping[str, str]]) -> str:
    """The words of those who ask for a section, in its own language or else in English."""
    words = [html.escape(row.get(language) or row["en"], quote=False) for row in rows if row["section"] == section]
    return f'<p data-pagefind-weight="10">{UNSEEN} {space_words(". ".join(words))}.</p>' if words else ""


def readable(article: str) -> str:
    """An article as Pagefind is to read it."""
    article = article.replace("<summary>", '<summary data-pagefind-weight="3">')  # a question, or a message of torch
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
