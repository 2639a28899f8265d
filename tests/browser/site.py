"""The built site behind a small server, and a real browser to look at it."""

import contextlib
import functools
import gzip
import http.server
import mimetypes
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import sync_playwright
from selectolax.lexbor import LexborHTMLParser

from tests.browser import machine
from tests.configuration import LANGUAGES, ROOT, page_file
from tests.configuration import PAGES as SLUGS
from tools.cells.source import resolve

SITE_URL = "https://example.org/attention/"
REPOSITORY_URL = "https://github.com/example/attention"
PREFIX = urlsplit(SITE_URL).path  # below a path, a link from the root would break
FEW = ["index", "foundations/weighted-average", "foundations/softmax", "foundations/one-head", "cross/cross-attention"]
FEW += ["masks/multihead-attention", "questions", "exercises", "map", "glossary", "verified"]
QUIET = ["gpu", "quic", "background-networking", "component-update", "sync"]


@dataclass(frozen=True)
class Page:
    """A page of the site in one language."""

    language: str
    slug: str

    def __str__(self):
        return f"{self.language}/{self.slug}"

    @property
    def path(self):
        """Where the page is published, below `PREFIX`."""
        parts = [*([] if self.language == "en" else [self.language]), *([] if self.slug == "index" else [self.slug])]
        return "".join(f"{part}/" for part in parts)

    @property
    def source(self):
        return page_file(self.language, self.slug)

    @property
    def snippets(self):
        return ROOT / "snippets" / f"{self.slug}.md"

    @property
    def cells(self):
        return resolve(self.source, ROOT / "snippets")


def in_turn(slugs):
    """Each page once; the languages take turns."""
    return [Page(list(LANGUAGES)[number % len(LANGUAGES)], slug) for number, slug in enumerate(slugs)]


PAGES = [Page(language, slug) for slug in SLUGS for language in LANGUAGES]
PAGES_WITH_CELLS = [page for page in PAGES if page.snippets.is_file()]
TURNS = in_turn(SLUGS)
TURNS_WITH_CELLS = [page for page in TURNS if page.snippets.is_file()]


def mkdocs(*arguments, root=ROOT, **environment):
    """Run MkDocs; return its exit status and what it says."""
    command = [sys.executable, "-m", "mkdocs", *arguments]
    fixed = {"NO_MKDOCS_2_WARNING": "1", "SOURCE_DATE_EPOCH": "1700000000"}
    fixed |= {"SITE_URL": SITE_URL, "REPOSITORY_URL": REPOSITORY_URL}
    environment = {**os.environ, **fixed, **environment}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout + done.stderr


def build(folder, root=ROOT, **environment):
    """Build the site as `nox -s docs` does; return what MkDocs says."""
    # Without --quiet, which would hide the warnings from --strict too.
    status, said = mkdocs("build", "--strict", "--site-dir", str(folder), root=root, **environment)
    if status:
        raise RuntimeError(said)
    return said


@functools.cache
def html(folder, page):
    """The HTML of a page of a built site, read once for all tests; none may change it."""
    return LexborHTMLParser((folder / page.path / "index.html").read_text("utf-8"))


def copy_project(folder):
    """Copy what the site is built from, so that a test may change it; of the pages only `FEW`, built in seconds."""
    for name in ("languages", "snippets", "theme", "tools", "verified"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CITATION.cff", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "docs/assets", folder / "docs/assets")
    for page in (page for page in PAGES if page.slug in FEW):
        text = page.source.read_text("utf-8")
        copied = folder / page.source.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(re.sub(r"^builds_on: .*\n", "", text, flags=re.M), encoding="utf-8")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = r"^ +- (?:Home: )?(\S+)\.(?:md|ipynb)\n"
    settings = re.sub(listed, lambda line: line[0] * (line[1] in FEW), settings, flags=re.M)
    settings = re.sub(r"^  - [A-Z].*:\n(?!    )", "", settings, flags=re.M)  # a chapter without pages
    settings = settings.replace("links: {not_found: warn, anchors: warn", "links: {not_found: ignore, anchors: ignore")
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    terms = (folder / "languages/glossary.csv").read_text("utf-8").splitlines(keepends=True)
    (folder / "languages/glossary.csv").write_text("".join(filter(of_few, terms)), encoding="utf-8")
    return folder


def of_few(term):
    """Whether a line of the glossary is its head, or leads to one of the few pages."""
    return term.startswith("id,") or any(f",{slug}#" in term for slug in FEW)


@dataclass
class Visit:
    """One answer of the server: the path asked for, the status, and the bytes on the wire, gzipped."""

    path: str
    status: int
    size: int


@dataclass
class Server:
    url: str
    visits: list = field(default_factory=list)


@contextlib.contextmanager
def serve(folder):
    """Serve a built site at a free port, below `PREFIX`, with gzip, as GitHub Pages does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            status, path = find(folder, unquote(urlsplit(self.path).path))
            body = compressed(path.read_bytes())
            server.visits.append(Visit(self.path, status, len(body)))
            self.send_response(status)
            self.send_header("Cache-Control", "max-age=600")
            self.send_header("Content-Type", mimetypes.guess_type(path)[0] or "application/octet-stream")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the browser left the page
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        server = Server(f"http://127.0.0.1:{web.server_port}{PREFIX}")
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield server
        web.shutdown()


@functools.cache
def compressed(data):
    return gzip.compress(data, compresslevel=6, mtime=0)


def find(folder, path):
    """The status and the file for a path, as a static host answers."""
    target = Path(folder, path.removeprefix(PREFIX)) if path.startswith(PREFIX) else None
    if target and target.is_dir():
        target /= "index.html"
    return (200, target) if target and target.is_file() else (404, Path(folder, "404.html"))


@contextlib.contextmanager
def browser():
    with sync_playwright() as playwright:
        options = ["--no-first-run", "--no-sandbox", *(f"--disable-{name}" for name in QUIET)]  # containers run as root
        chromium = playwright.chromium.launch(executable_path=machine.browser(), args=options)
        yield chromium
        chromium.close()
