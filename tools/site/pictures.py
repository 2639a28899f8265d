"""The pictures that need pixels, drawn while the site is built: beside a link to it, and on the screen of a phone.

tools/site/pictures.otf is cut from Noto Serif CJK SC 2.001 (SIL Open Font License, pictures.LICENSE.txt), so that every
machine draws the same words, and lays out the same Chinese in the figures of a lab (tools/labs.py). To cut it anew,
with NotoSerifCJK-Regular.ttc of github.com/notofonts/noto-cjk:

    (grep -hE 'site_(name|description):' mkdocs.yml; cat snippets/labs/*.md) > words.txt
    pyftsubset NotoSerifCJK-Regular.ttc --font-number=2 --text-file=words.txt --unicodes=20-7E,A0-17F,2013-2026 \\
        --layout-features=kern --no-hinting --notdef-outline --name-IDs=0,1,2,6,13 --drop-tables+=BASE,VORG,vhea,vmtx \\
        --no-recalc-timestamp --output-file=tools/site/pictures.otf
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Template
from mkdocs import utils
from mkdocs.config.defaults import MkDocsConfig
from resvg_py import svg_to_bytes

from tools.site.files import ROOT, text

FONT = Path(__file__).with_suffix(".otf")
STYLE = """
.attention text { fill: #1f5f99; font-size: 15px; text-anchor: middle }
.attention .muted { fill: #5a6572 }
.attention .sum { text-anchor: end }
.attention path { fill: none; stroke: #1f5f99; stroke-linecap: round }
.attention rect { fill: #1f5f99 }
"""
SENTENCE = re.compile(r"(?<=\.) |(?<=。)")


def write(template: Template, config: MkDocsConfig, language: str, attention: Mapping) -> None:
    """The picture beside a link, 1200 by 630: the name of the site, what it is, one query attending. And the icon.

    That has a margin, since phones cut its corners off.
    """
    sentences = SENTENCE.split(config.site_description)
    social = template.render(config=config, sentences=sentences, attention=attention)
    icon = text(ROOT / "theme" / config.theme["favicon"]).replace('viewBox="0 0 24 24"', 'viewBox="-5 -5 34 34"')
    for name, picture in {
        f"social-{language}.png": draw(social, style_sheet=STYLE),
        "touch-icon.png": draw(icon, background="#fff", width=180, height=180),
    }.items():
        utils.write_file(picture, str(Path(config.site_dir, "assets", name)))


@functools.cache
def draw(svg, **options):
    """A picture as PNG, drawn once for all languages of a build and all builds of a preview."""
    return svg_to_bytes(svg, skip_system_fonts=True, font_files=[str(FONT)], **options)
