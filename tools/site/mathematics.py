"""Turn the TeX of a page into MathML while the site is built."""

import html
import re
from pathlib import Path

from math_core import LatexError, LatexToMathML

from tools.cells.source import SourceError
from tools.site.files import text

# What pymdownx.arithmatex writes in its generic mode.
FORMULA = re.compile(r'<(?:span|div) class="arithmatex">\\([(\[])\s*(.*?)\s*\\[)\]]</(?:span|div)>([^\s\w<&]*)', re.S)
CONVERTER = LatexToMathML(fancy_error=False)


def to_mathml(body: str, source: Path) -> str:
    """The HTML of a page with its formulas as MathML; `SourceError` names the line of one that is not TeX.

    The search leaves out what is displayed, not what belongs to a sentence; no line begins with the comma behind one.
    """

    def convert(match):
        tex, display = html.unescape(match[2]), match[1] == "["
        try:
            formula = CONVERTER.convert_with_local_state(tex, displaystyle=display)
            if display:
                return formula.replace("<math", "<math data-pagefind-ignore", 1) + match[3]
            return f'<span class="kept">{formula}{match[3]}</span>' if match[3] else formula
        except LatexError as error:
            line = text(source).partition(tex.splitlines()[0])[0].count("\n") + 1
            message = str(error).partition(": ")[2].rstrip(".")
            raise SourceError(f"{source}:{line}: {message} in {' '.join(tex.split())}") from None

    return FORMULA.sub(convert, body)
