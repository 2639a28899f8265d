"""What the head of a finished page says: where it is in other languages, and its policy.

That is nothing but files of its own site, and no script in it but those that the theme wrote.
"""

import base64
import hashlib
import re
from urllib.parse import urljoin

INLINE = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.S)
ALTERNATE = re.compile(r'\s*<link rel="alternate" href="([^"]*)"( hreflang="[^"]*">)')
ARTICLE = re.compile(r"<article\b.*</article>", re.S)
PREFORMATTED = re.compile(r"(<pre\b.*?</pre>)", re.S)
INDENT = re.compile(r"\n\s+")
CHARSET = '<meta charset="utf-8">'
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' {hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)


def with_policy(page: str) -> str:
    """A page with a Content-Security-Policy that names the inline scripts of its theme by their hashes.

    Pagefind is WebAssembly, the pictures in style sheets are data, and MathML comes with styles of its own.
    """
    digests = {hashlib.sha256(script.encode()).digest() for script in INLINE.findall(ARTICLE.sub("", page))}
    hashes = " ".join(sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))
    policy = POLICY.format(hashes=hashes)
    return page.replace(CHARSET, f'{CHARSET}<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)


def without_indents(page: str) -> str:
    """A page whose lines begin at their first characters, but for those of its code."""
    parts = PREFORMATTED.split(page)
    parts[::2] = [INDENT.sub("\n", part) for part in parts[::2]]
    return "".join(parts)


def finished(page: str, address: str, preview: bool) -> str:
    """A page with its policy, and with whole addresses of itself in other languages, which search engines want.

    One without an `address` names none. A preview has no policy, since it puts a script of its own into each page.
    """

    def whole(link):
        return f'<link rel="alternate" href="{urljoin(address, link[1])}"{link[2]}' if address else ""

    head, end, rest = without_indents(page).partition("</head>")
    page = ALTERNATE.sub(whole, head) + end + rest
    return page if preview else with_policy(page)
