"""What mkdocs.yml says, for tests."""

import os
import re
from pathlib import Path

from mkdocs.config import load_config

from tools.languages import configuration
from tools.languages.markdown import file_of_text, read

ROOT = Path(os.path.relpath(Path(__file__).parents[1]))  # relative, as people name files in messages
CONFIG = load_config(str(ROOT / "mkdocs.yml"))
LANGUAGES = {language.locale: language for language in CONFIG.plugins["i18n"].config.languages}
SITE = configuration.read(ROOT / "mkdocs.yml")
FOLDERS = [ROOT / "docs" / language for language in SITE.languages]
# Those that are there in every language; tests/structure/test_layout.py names one that is not.
PAGES = [slug for slug in SITE.slugs if all((folder / f"{slug}.md").is_file() for folder in FOLDERS)]
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
