"""The words inside pictures, which are drawn in English, in the other languages: languages/pictures.csv has them."""

import html
import re
from collections.abc import Mapping
from pathlib import Path

from tools.languages.glossary import read_rows

WORD = re.compile(r'(<text\b(?![^>]* class="code\b)[^>]*>)([^<]+)(?=</text>)')  # code is the same in every language


def words_of_pictures(path: Path, language: str) -> dict[str, str]:
    """What the English words inside pictures become in a language; those without a translation stay as they are."""
    return {row["en"]: row[language] for row in read_rows(path) if row.get(language)}


def in_words(drawing: str, words: Mapping[str, str]) -> str:
    """An SVG drawing whose texts have become `words`."""

    def translated(match: re.Match[str]) -> str:
        word = html.unescape(match[2])
        return f"{match[1]}{html.escape(words.get(word, word), quote=False)}"

    return WORD.sub(translated, drawing)
