"""What is done once for all languages of a build, and for all builds of a preview."""

import functools
import re

from jinja2 import BytecodeCache
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name
from pygments.util import ClassNotFound

FORMATTER = HtmlFormatter(nowrap=True)
PLAIN_TOKEN = re.compile(r'<span class="(?:n|o|p|w|fm|kc|vm)">([^<]*)</span>')


def fence(source, language, css_class, options, md, **attributes):
    """A fenced block as HTML, as pymdownx.superfences asks for it."""
    return block(source, language)


@functools.cache
def block(source, language):
    """A block of code as HTML, without a span around each name, operator and bracket: they have the colour of text."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        language, lexer = "text", TextLexer()
    code = PLAIN_TOKEN.sub(lambda token: token[1], highlight(source, lexer, FORMATTER))
    return f'<div class="language-{language} highlight"><pre><span></span><code>{code}</code></pre></div>'


class Kept:
    """What was made of each thing, until it is made of something else."""

    def __init__(self):
        self.made = {}

    def __call__(self, name, source, make):
        """What `make` returns; what it returned the last time, where it was called for an equal `source`."""
        if self.made.get(name, (None,))[0] != source:
            self.made[name] = source, make()
        return self.made[name][1]


class Templates(BytecodeCache):
    """Compiled templates; one that has changed has another checksum."""

    def __init__(self):
        self.compiled = {}

    def load_bytecode(self, bucket):
        bucket.code = self.compiled.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket):
        self.compiled[bucket.key, bucket.checksum] = bucket.code
