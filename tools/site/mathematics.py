"""Turn the TeX of a page into MathML while the site is built."""

import html
import re
from pathlib import Path

from math_core import LatexError, LatexToMathML

from tools.cells.source import SourceError, read_text

# What pymdownx.arithmatex writes in its generic mode.
FORMULA = re.compile(r'<(?:span|div) class="arithmatex">\\([(\[])\s*(.*?)\s*\\[)\]]</(?:span|div)>([^\s\w<&]*)', re.S)
CELL_CLASSES = {
    "text-align: left;justify-items: start;": "left",
    "text-align: right;justify-items: end;": "right",
    "padding-left: 0;": "close-left",
    "padding-right: 0;": "close-right",
    "padding-left:1em;": "far-left",
}
STYLE = re.compile(r' style="([^"]*)"')
CONVERTER = LatexToMathML(fancy_error=False)


def to_mathml(body: str, source: Path) -> str:
    """The HTML of a page with its formulas as MathML; `SourceError` names the line of `source` that is not TeX.

    The search leaves out what is displayed, not what belongs to a sentence; no line begins with the comma behind one.
    """

    def convert(match):
        tex, display = html.unescape(match[2]), match[1] == "["
        try:
            formula = STYLE.sub(style_class, CONVERTER.convert_with_local_state(tex, displaystyle=display))
            if display:
                return formula.replace("<math", "<math data-pagefind-ignore", 1) + match[3]
            return f'<span class="kept">{formula}{match[3]}</span>' if match[3] else formula
        except LatexError as error:
            offset, message = str(error).split(": ", 1)
            line = line_of(tex, source) + tex.count("\n", 0, int(offset))
            raise SourceError(f"{source}:{line}: {message.rstrip('.')} in {' '.join(tex.split())}") from None

    return FORMULA.sub(convert, body)


def style_class(match):
    """The alignment of a cell as classes, since a strict policy of the site allows no style attribute."""
    style, names = match[1], []
    for rule, name in CELL_CLASSES.items():
        if rule in style:
            style = style.replace(rule, "")
            names.append(name)
    return match[0] if style else f' class="{" ".join(names)}"'


def line_of(tex, source):
    """The line on which a formula begins, indented or not."""
    text = read_text(Path(source))
    at = text.find(tex)
    if at < 0:
        at = text.find(tex.splitlines()[0])
    return text.count("\n", 0, max(at, 0)) + 1
