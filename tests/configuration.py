"""What mkdocs.yml says, for tests."""

import os
import re
import sys
from pathlib import Path

from mkdocs.config import load_config

from tools.languages import configuration
from tools.languages.markdown import file_of_text, read

ROOT = Path(os.path.relpath(Path(__file__).parents[1]))  # relative, as people name files in messages


def load():
    path = list(sys.path)
    try:
        return load_config(str(ROOT / "mkdocs.yml"))
    finally:
        sys.path[:] = path


def is_written(page):
    """Whether a page is there in every language; tests/structure/test_layout.py names one that is not."""
    return all((ROOT / "docs" / language / f"{page}.md").is_file() for language in SITE.languages)


CONFIG = load()
LANGUAGES = {language.locale: language for language in CONFIG.plugins["i18n"].config.languages}
SITE = configuration.read(ROOT / "mkdocs.yml")
PAGES = list(filter(is_written, SITE.slugs))
SLUGS = sorted(path.relative_to(ROOT / "snippets").with_suffix("").as_posix() for path in ROOT.glob("snippets/**/*.md"))


def page_file(language, page):
    """The file whose text a page shows: the English one until it is translated."""
    return file_of_text(ROOT / "docs" / language / f"{page}.md")


def pages(language):
    """All pages of the nav in a language, English where they are not translated."""
    return [read(page_file(language, page)) for page in PAGES]


def in_both(page, translation):
    """A page in English and in another language."""
    return read(page_file("en", page)), read(page_file(translation, page))


def text(language, key):
    """What the site says in a language, without its tags."""
    return re.sub("<[^>]*>", "", LANGUAGES[language].extra["text"][key])


def flat(words):
    """Words by their keys, those of a group by `group key`."""
    groups = {key: value if isinstance(value, dict) else {"": value} for key, value in words.items()}
    return {f"{key} {part}".strip(): word for key, group in groups.items() for part, word in group.items()}
