"""Turn the TeX of a page into MathML while the site is built."""

import html
import re
from pathlib import Path

from math_core import LatexError, LatexToMathML

from tools.cells.source import SourceError
from tools.site.files import text
from tools.site.tree import Node, replace

BEHIND = re.compile(r"^[^\s\w<>&]+")
CONVERTER = LatexToMathML(fancy_error=False)


def to_mathml(body: Node, source: Path) -> None:
    """Make the formulas of a page MathML; `SourceError` names the line of one that is not TeX.

    The search leaves out what is displayed, not what belongs to a sentence; no line begins with the comma behind one.
    """
    for node in body.css(".arithmatex"):  # what pymdownx.arithmatex writes in its generic mode
        display, tex = node.tag == "div", node.text().strip()[2:-2].strip()
        formula, behind = mathml(tex, display, source), node.next
        if display:
            formula = formula.replace("<math", "<math data-pagefind-ignore", 1)
        elif behind and (text_behind := behind.text_content) and (rest := BEHIND.sub("", text_behind)) != text_behind:
            formula = f'<span class="kept">{formula}{html.escape(text_behind.removesuffix(rest))}</span>'
            behind.replace_with(rest)
        replace(node, formula)


def mathml(tex: str, display: bool, source: Path) -> str:
    """A formula as MathML."""
    try:
        return CONVERTER.convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        line = text(source).partition(tex.splitlines()[0])[0].count("\n") + 1
        message = str(error).partition(": ")[2].rstrip(".")
        raise SourceError(f"{source}:{line}: {message} in {' '.join(tex.split())}") from None
