"""What a finished page says in its head of scripts, and how it is sent.

It loads nothing but files of its own site, and runs no script but those of the theme, whose hashes its policy names.
"""

import base64
import hashlib
import re
from collections.abc import Iterable

PREFORMATTED = re.compile(r"""(<pre\b.*?</pre>|data-(?:code|head)="[^"]*")""", re.S)
INDENT = re.compile(r"\n\s+")
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' {hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)


def policy(scripts: Iterable[str]) -> str:
    """A Content-Security-Policy that allows some inline scripts.

    Pagefind is WebAssembly, the pictures in style sheets are data, and MathML comes with styles of its own.
    """
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))
    return POLICY.format(hashes=hashes)


def without_indents(page: str) -> str:
    """A page whose lines begin at their first characters, but for those of its code.

    It stays a text: nothing is looked for in it, and each of its texts would have to be touched in a tree.
    """
    parts = PREFORMATTED.split(page)
    parts[::2] = [INDENT.sub("\n", part) for part in parts[::2]]
    return "".join(parts)
