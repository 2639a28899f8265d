"""What other sites are told of a page: https://schema.org for what looks it up, https://ogp.me for what links to it."""

import html
import json

from babel.core import get_global

from tools.markdown import ALL

LICENCE = "https://creativecommons.org/licenses/by/4.0/"
ENGLISH = "en"


def data(page, language, site_name, site_url, is_home):
    """A page in the words of schema.org, as JSON that may stand in a script."""
    kind = "WebSite" if is_home else ["TechArticle", "LearningResource"]
    is_english = language == ENGLISH or page.behind == ALL
    english = original(page, language, site_url)
    home = f"{language}/" if english else ""
    said = {
        "@context": "https://schema.org",
        "@type": kind,
        "name" if is_home else "headline": site_name if is_home else html.unescape(page.title),
        "description": html.unescape(page.meta["description"]),
        "url": page.canonical_url,
        "inLanguage": ENGLISH if is_english else language,
        "license": LICENCE,
    }
    if not is_home:
        said["isPartOf"] = {"@type": "WebSite", "name": site_name, "url": f"{site_url}{home}"}
    if english and not is_english:
        said["translationOfWork"] = {"@type": kind, "url": english, "inLanguage": ENGLISH}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def original(page, language, site_url):
    """The address of the English page that a translation was made from; "" in a build of one language."""
    home, here = f"{language}/", page.file.url
    return site_url + here.removeprefix(home) if here.startswith(home) else ""


def locale(language):
    """A language with the country that most of its readers live in, `it_IT`, as Open Graph wants it."""
    code = language.replace("-", "_")
    return f"{code.split('_')[0]}_{get_global('likely_subtags').get(code, code).rsplit('_', 1)[-1]}"
