"""What mkdocs.yml says: the only list of pages and the only list of languages."""

import os
import re
import sys
from pathlib import Path

from mkdocs.config import load_config

from tools.markdown import file_of_text
from tools.site.checks import nav_pages

ROOT = Path(os.path.relpath(Path(__file__).parents[1]))  # relative, as people name files in messages


def load():
    path = list(sys.path)
    try:
        return load_config(str(ROOT / "mkdocs.yml"))
    finally:
        sys.path[:] = path


CONFIG = load()
LANGUAGES = {language.locale: language for language in CONFIG.plugins["i18n"].config.languages}
PAGES = [page.rsplit(".", 1)[0] for page in nav_pages(CONFIG.nav)]
SLUGS = sorted(path.relative_to(ROOT / "snippets").with_suffix("").as_posix() for path in ROOT.glob("snippets/**/*.md"))


def page_file(language, page):
    """The file whose text a page shows: the English one until it is translated."""
    return file_of_text(ROOT / "docs" / language / f"{page}.md")


def text(language, key):
    """What the site says in a language, without its tags."""
    return re.sub("<[^>]*>", "", LANGUAGES[language].extra["text"][key])
