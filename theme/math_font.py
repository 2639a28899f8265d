"""Cut theme/assets/math.woff2 to the alphabet of the formulas; a test names a sign that it lacks.

It is cut from STIX Two Math (SIL Open Font License, theme/assets/math.LICENSE.txt), which the npm package
@fontsource/stix-two-math 5.3.0 has. Put the sign into `ALPHABET`, and cut it anew:

    npm pack @fontsource/stix-two-math@5.3.0
    tar -xzf fontsource-stix-two-math-5.3.0.tgz
    python theme/math_font.py package/files/stix-two-math-latin-400-normal.woff2
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.pens.transformPen import TransformPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

FONT = Path("theme/assets/math.woff2")
# Identifiers of one letter are drawn in italics, and the italic h has a place of its own.
ALPHABET = (
    "!()+,./0123456789;<=>B[]_abcdefghiklmnoprstuvwxy{|}·×′\u2061\u2063←→∑−√∞∧∨∼≈≠≤≥⊤⋅⌊⌋"
    "𝐴𝐵𝐶𝐷𝐸𝐹𝐻𝐼𝐾𝐿𝑀𝑁𝑂𝑃𝑄𝑅𝑆𝑇𝑉𝑊𝑋𝑌𝑍𝑎𝑏𝑐𝑑𝑒𝑓𝑔ℎ𝑖𝑗𝑘𝑚𝑛𝑝𝑞𝑟𝑠𝑡𝑣𝑤𝑥𝑦𝛼𝛿𝜃𝜏𝜔𝜕"
)
SIZES = 5  # of a bracket; a taller one is put together from its parts
UNUSED = ["GDEF", "GPOS", "GSUB", "gasp"]  # tables that a browser does not read for formulas


def cut(source: str) -> None:
    """Write the part of a font that draws the alphabet, as woff2."""
    font = TTFont(source, recalcTimestamp=False)
    even_radicals(font)
    leave_out(font["MATH"].table)
    options = subset.Options(layout_features=[], hinting=False, name_IDs=[0, 13, 14])
    options.drop_tables += UNUSED
    cutter = subset.Subsetter(options)
    cutter.populate(text=ALPHABET)
    cutter.subset(font)
    font.flavor = "woff2"
    font.save(FONT)


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
    cut(sys.argv[1])
