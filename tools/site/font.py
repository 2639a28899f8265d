"""Cut the mathematical font to the characters that the formulas of a built site are drawn with, and all italic letters.

theme/assets/math.woff2 is cut from STIX Two Math (SIL Open Font License, theme/assets/math.LICENSE.txt), which the npm
package @fontsource/stix-two-math 5.3.0 has. To cut it anew:

    npm pack @fontsource/stix-two-math@5.3.0
    tar -xzf fontsource-stix-two-math-5.3.0.tgz
    python -m tools.site.font package/files/stix-two-math-latin-400-normal.woff2 site
"""

import html
import re
import sys
from pathlib import Path

from fontTools import subset
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.pens.transformPen import TransformPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

FONT = Path("theme/assets/math.woff2")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
GREEK = "αβγδεζηθικλμνξοπρςστυφχψω"
SIZES = 5  # of a bracket; a taller one is put together from its parts
UNUSED = ["GDEF", "GPOS", "GSUB", "gasp"]  # tables that a browser does not read for formulas
FORMULA = re.compile(r"<math\b.*?</math>", re.S)
ROOT = re.compile(r"<m(?:sqrt|root)\b")
IDENTIFIER = re.compile(r"<mi>([^<]+)</mi>")
TAG = re.compile(r"<[^>]*>")


def italic(character):
    """What a browser draws for a letter that is an identifier by itself: 𝑄 for Q."""
    for letters, first in ((LETTERS, 0x1D434), ("ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡϴΣΤΥΦΧΨΩ∇" + GREEK + "∂ϵϑϰϕϱϖ", 0x1D6E2)):
        if character in letters:
            return "ℎ" if character == "h" else chr(first + letters.index(character))
    return character


def characters(page):
    """The characters that the formulas of a page are drawn with."""
    found = set()
    for formula in FORMULA.findall(page):
        identifiers = map(html.unescape, IDENTIFIER.findall(formula))
        found |= {italic(name) for name in identifiers if len(name) == 1}
        found |= {"√" for _ in ROOT.findall(formula)}  # the browser adds it
        found |= set(html.unescape(TAG.sub("", IDENTIFIER.sub(long_names, formula))))
    return {character for character in found if not character.isspace()}


def long_names(match):
    return "" if len(html.unescape(match[1])) == 1 else match[1]


def site_characters(site):
    """The characters that the formulas of a built site are drawn with."""
    return set().union(*(characters(path.read_text("utf-8")) for path in Path(site).rglob("*.html")))


def lacking(site, font=FONT):
    """The characters of a built site's formulas that the font lacks."""
    return site_characters(site) - set(map(chr, TTFont(font).getBestCmap()))


def cut(source, target, wanted):
    """Write the part of a font that draws `wanted`, as woff2."""
    font = TTFont(source, recalcTimestamp=False)
    even_radicals(font)
    leave_out(font["MATH"].table)
    options = subset.Options(layout_features=[], hinting=False, name_IDs=[0, 13, 14])
    options.drop_tables += UNUSED
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(wanted))
    cutter.subset(font)
    font.flavor = "woff2"
    font.save(target)


def leave_out(mathematics):
    """Drop from a table MATH the tallest brackets and the fine kerning of scripts, which no browser does."""
    mathematics.MathGlyphInfo.MathKernInfo = None
    variants = mathematics.MathVariants
    for construction in (*variants.VertGlyphConstruction, *variants.HorizGlyphConstruction):
        del construction.MathGlyphVariantRecord[SIZES:]


def even_radicals(font):
    """Give all sizes of √ one width: Chromium leaves room for the widest of them behind each."""
    variants = font["MATH"].table.MathVariants
    root = font.getBestCmap()[ord("√")]
    sizes = variants.VertGlyphConstruction[variants.VertGlyphCoverage.glyphs.index(root)]
    names = {record.VariantGlyph for record in sizes.MathGlyphVariantRecord}
    names |= {part.glyph for part in sizes.GlyphAssembly.PartRecords}
    width, glyphs = font["hmtx"][root][0], font.getGlyphSet()
    for name in names:
        drawing, pen = DecomposingRecordingPen(glyphs), TTGlyphPen(None)
        glyphs[name].draw(drawing)
        drawing.replay(TransformPen(pen, (width / font["hmtx"][name][0], 0, 0, 1, 0, 0)))
        font["glyf"][name] = glyph = pen.glyph()
        glyph.recalcBounds(font["glyf"])
        font["hmtx"][name] = (width, glyph.xMin)


if __name__ == "__main__":
    source, site = sys.argv[1:]
    cut(source, FONT, set(map(italic, LETTERS)) | site_characters(site))
    print(f"{FONT}: {FONT.stat().st_size} bytes")
