"""Where a site has its home: what its pages link there, once a build is told the address of its repository."""

import re

from tools.cells.source import SourceError

BRANCH = "main"
NOTEBOOKS = "notebooks"  # the branch on which publish.yml puts the notebooks of all pages, as they lie in the site
GITHUB = "https://github.com/"


def refuse_unknown(repository: str | None) -> None:
    """`SourceError` where the address of a repository, if there is one, is of a host whose links are not known here."""
    if repository and not re.fullmatch(rf"{GITHUB}[\w.-]+/[\w.-]+(?<!\.git)", repository):
        fix = f"write the address of a repository on GitHub, as in {GITHUB}owner/name, or unset it"
        raise SourceError(f"REPOSITORY_URL is {repository!r}; {fix}: then no page has links to its repository")
