"""What must hold before anything is built."""

import os
import socket
from pathlib import Path

from tools.cells.source import SourceError


def check_port(host, port):
    """`SourceError` where another program has the port that the preview wants."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SourceError(
                f"port {port} of {host} cannot be used ({error.strerror}); "
                f"choose another: nox -s serve -- -a {host}:{port + 1}, or mkdocs serve -a {host}:{port + 1}"
            ) from None


def check_pages(nav, docs, languages):
    """`SourceError` where a page of the nav is not there in a language, which MkDocs would fill with English."""
    for page in nav_pages(nav):
        for language in languages:
            path = Path(docs, language, page)
            if not path.is_file():
                raise SourceError(
                    f"{shown(path)} is missing: every page of the nav stands in every language "
                    f"(one language alone: nox -s serve -- --lang {languages[0]})"
                )


def nav_pages(item):
    """The files that a nav names."""
    if isinstance(item, str):
        return [item]
    return [page for part in (item.values() if isinstance(item, dict) else item) for page in nav_pages(part)]


def shown(path):
    """A path as people write it."""
    return os.path.relpath(path)
