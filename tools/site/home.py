"""Where a site has its home: what its pages link there, once a build is told the address of its repository."""

import re
from collections.abc import Mapping
from typing import Any

from tools.cells.source import SourceError

BRANCH = "main"
NOTEBOOKS = "notebooks"  # the branch on which publish.yml puts the notebooks of all pages, as they lie in the site
GITHUB = "https://github.com/"


def refuse_unknown(repository: str | None) -> None:
    """`SourceError` where the address of a repository, if there is one, is of a host whose links are not known here."""
    if repository and not re.fullmatch(rf"{GITHUB}[\w.-]+/[\w.-]+(?<!\.git)", repository):
        raise SourceError(
            f"REPOSITORY_URL is {repository!r}; write the address of a repository on GitHub, as in {GITHUB}owner/name, "
            "or unset it: then no page has links to its repository"
        )


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
