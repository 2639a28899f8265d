"""Where a site has its home: what its pages link there, once a build is told the address of its repository."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from tools.cells.source import SourceError
from tools.site.pages import SitePage

BRANCH = "main"
NOTEBOOKS = "notebooks"  # the branch on which publish.yml puts the notebooks of all pages, as they lie in the site
GITHUB = "https://github.com/"
COLAB = "https://colab.research.google.com/github/"


def refuse_unknown(repository: str | None) -> None:
    """`SourceError` where the address of a repository, if there is one, is of a host whose links are not known here."""
    if repository and not re.fullmatch(rf"{GITHUB}[\w.-]+/[\w.-]+(?<!\.git)", repository):
        raise SourceError(
            f"REPOSITORY_URL is {repository!r}; write the address of a repository on GitHub, as in {GITHUB}owner/name, "
            "or unset it: then no page has links to its repository"
        )


def links(repository: str, page: SitePage) -> dict[str, str]:
    """The addresses of what belongs to a page in its repository."""
    path = page.source.path.as_posix()
    asked = urlencode({"title": f"{path}: ", "body": f"{page.address}\n\n"}, quote_via=quote)
    found = {"edit": f"{repository}/edit/{BRANCH}/{path}", "report": f"{repository}/issues/new?{asked}"}
    if page.own_cells:
        found["source"] = f"{repository}/blob/{BRANCH}/snippets/{page.slug}.md"
    if page.notebook:
        notebook = quote(page.url + page.notebook_name)
        found["colab"] = f"{repository.replace(GITHUB, COLAB)}/blob/{NOTEBOOKS}/{notebook}"
    return found


def bibtex(citation: Mapping[str, Any], address: str) -> str:
    """What CITATION.cff says, as an entry of BibTeX for the page at an address."""
    title = citation["title"]
    fields = {
        "author": " and ".join(f"{{{author['name']}}}" for author in citation["authors"]),
        "title": title,
        "year": citation["date-released"].year,
        "url": address,
    }
    lines = [f"@misc{{{title.lower().replace(' ', '-')}", *(f"  {name} = {{{said}}}" for name, said in fields.items())]
    return ",\n".join(lines) + "\n}\n"
