"""The typography of the prose: in English its quotes, else what languages/style.*.md want."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from string import ascii_letters, digits

from tools.languages.markdown import Page, Piece, parse

# Each code span, formula, address and {placeholder} becomes one of these characters: a word that no rule looks into.
OBJECTS = range(0xE000, 0xF900)
OBJECT = f"[{chr(OBJECTS[0])}-{chr(OBJECTS[-1])}]"
NO_WORDS = re.compile(r'(\{\w+\}|https?://[^\s)]+|\w+="[^"\n]*")')
LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
AROUND = 8  # characters that a message shows on each side of a violation
Rule = tuple[str, str]

# A rule is a pattern and what to write instead. What its group `right` matches, or what would stay, is no violation.

NUMBERS = [
    (r"(\d) +%", r"\1%"),
    (r"(\d) ?((?:[kKMGT]i?B|[mnµ]s|[MG]Hz)\b)", "\\1\u00a0\\2"),
    (r"(?<![\w.,])(\d{1,3}) (\d{3})(?![\w.,]\d|[\d-])", "\\1\u00a0\\2"),
]

ENGLISH = [
    ("'", "’"),
    ('"([^"\n]*)"', r"“\1”"),
    ('(?P<right>“[^“”\n]*”)|[“”"]', "“”"),
]

ARTICLES = (  # before feminine words, before masculine ones, before a vowel; and forms that suit none of ours
    "la il l’ lo, le i gli, una un un uno un’, della del dell’ dello, delle dei degli, alla al all’ allo, alle ai "
    "agli, dalla dal dall’ dallo, dalle dai dagli, nella nel nell’ nello, nelle nei negli, sulla sul sull’ sullo, "
    "sulle sui sugli, quella quel quell’ quello, quelle quei quegli, questa questo questo, queste questi questi"
)
FEMININE = "query softmax shape cache loss heatmap self-attention cross-attention"
MASCULINE = (
    "token batch mini-batch layer padding pad buffer bug flag decoder kernel notebook dropout dataset checkpoint "
    "backend tokenizer reshape broadcasting logit bias test matmul"
)
VOWEL = "output input encoder embedding overflow underflow"  # masculine


def articles() -> Iterator[Rule]:
    """Rules for an article of the wrong gender or form before a word that stays English."""
    for forms in map(str.split, ARTICLES.split(",")):
        for right, words in zip(forms, (FEMININE, MASCULINE, VOWEL)):
            wrong, gap = "|".join({*forms} - {right}), "" if right.endswith("’") else " "
            yield rf"\b(?:{wrong}) ?({'|'.join(words.split())})(?![\w-])", rf"{right}{gap}\1"


SHORTENED = "(?:po|mo|di|fa|va|sta)"
GRAVE, ACUTE = "\u0300", "\u0301"
ITALIAN = [
    (r"\b(\w*ch[eE]|[nNsS][eE])['’](?!\w)", rf"\1{ACUTE}"),
    (rf"\b(?!{SHORTENED}['’])(\w*[aeiouAEIOU])['’](?!\w)", rf"\1{GRAVE}"),
    (r"\b(\w*ch|[nNsS])è\b", r"\1é"),
    (r"\b([cC]io|[cC]aff|)é\b", r"\1è"),
    ("É", "È"),
    (r"\b((?i:perch|poich|finch|affinch|bench|anzich|purch|sicch|cosicch|giacch|nonch)e)\b", rf"\1{ACUTE}"),
    (r"\b((?i:gia|puo|piu|cosi|cioe|percio|pero|sara|potra|dovra|quantita|probabilita|polarita))\b", rf"\1{GRAVE}"),
    (r"\b([sS])e (stess[oa])\b", r"\1é \2"),
    (r"\b([pP])ò\b", r"\1o’"),
    ("['‘]", "’"),
    ('["“”„]([^"“”„\n]*)["“”„]', r"«\1»"),
    ('["“”„]', "«»"),
    ("(?P<right>«[^«»\n]*»)|[«»]", "«»"),
    (r" +([,;:?!)»]|\.(?!\w))", r"\1"),
    (r" [–—] |(?<=\w{2}) - (?=\w{2})", ", "),
    ("(?P<right>«[^«»\n]*»)|!", "."),
    (r"(\d),(\d)", r"\1.\2"),
    (r"\b((?:[aA]ttenzion[ei]|attention|decoder) )casual([ei])\b", r"\1causal\2"),
    (rf"\b({'|'.join(f'{FEMININE} {MASCULINE} {VOWEL}'.split())})e?s\b(?! @)", r"\1"),
    (r"\bqueries\b", "query"),
    *articles(),
]

HAN = "[\u3400-\u9fff]"
LATIN = rf"[A-Za-z0-9\u0370-\u03ff√%°#@&_+−∞]|{OBJECT}"
STOP = "[，。；：？！、]"
CLOSED = "[，。；：？！、（）“”《》]"
WIDE = {",": "，", ";": "；", ":": "：", "?": "？"}
CHINESE = [
    ('「([^」\n]*)」|『([^』\n]*)』|«([^»\n]*)»|"([^"\n]*)"', r"“\1\2\3\4”"),
    ('["「」『』«»„]', "“”"),
    ("(?P<right>“[^“”\n]*”)|[“”]", "“”"),
    (rf" ?（((?:\w|{OBJECT})+(?:, ?(?:\w|{OBJECT})+)+,?)） ?", r" (\1) "),
    (r"…*\.\.\.+…*|(?<!…)…(?!…)", "……"),
    *((rf"(?<=[”）]|{HAN}) *\{half} *|\{half} *(?=[“（]|{HAN})", wide) for half, wide in WIDE.items()),
    (rf"(?P<right>\([^()\n]*\))|(?<={OBJECT}), *(?={OBJECT})", "、"),
    (rf"(?<=[”）0-9]|{OBJECT}|{HAN}) *\.(?![A-Za-z0-9]) *|(?<=[”）]|{HAN})\.|(?<=\w)\. *(?={HAN})", "。"),
    (rf"(?P<right>^(?:(?!{HAN}).)*$|“[^“”\n]*”)|(?<=\w)\.$", "。"),
    (rf"(?P<right>^(?:(?!{HAN}).)*$|“[^“”\n]*”)|\?", "？"),
    (rf"\(([^()\n]*{HAN}[^()\n]*)\)|(?<=”|{HAN}) ?\(([^(),\n]*)\)", r"（\1\2）"),
    (rf"({HAN})(?={LATIN})", r"\1 "),
    (rf"({HAN})\(", r"\1 ("),
    (rf"({LATIN}|\))(?={HAN})", r"\1 "),
    (rf" +(?={CLOSED})|(?<={CLOSED}) +", ""),
    (rf"(?<={HAN}) +(?={HAN})", ""),
    ("(?P<right>“[^“”\n]*”)|[！!]", "。"),
    *((chr(ord(half) + 0xFEE0), half) for half in f"{ascii_letters}{digits}%"),  # full-width forms stand in that order
    ("(?<=[^\n])\n(?=[^\n])", ""),
]
EMPHASIS = [  # the only rules that see the asterisks
    (rf"\*\*({STOP}*)([^*\n]+?)({STOP}*)\*\*", r"\1**\2**\3"),
    (rf"(?P<right>^\*[^*\n]+\*$|\*\*[^*\n]+\*\*|\*(?:(?!{HAN})[^*\n])+\*)|\*([^*\n]+)\*", r"**\2**"),
]


RULES = {"en": ENGLISH + NUMBERS, "it": ITALIAN + NUMBERS, "zh": CHINESE + NUMBERS}
RULES_OF_EMPHASIS = {"zh": EMPHASIS}


class Prose:
    """What a reader sees of a page, and the asterisks; the line of each character; the source of each object."""

    def __init__(self, page: Page):
        self.text = ""
        self.lines: list[int] = []
        self.objects: dict[int, str] = {}
        self.line = page.line_of("description")
        self.add_words(str(page.front.get("description", "")))
        for block in page.blocks:
            self.line = block.line
            self.add("\n\n")
            for piece in block.pieces:
                self.line = piece.line
                self.add_piece(piece)

    def add(self, text: str) -> None:
        self.text += text
        self.lines += [self.line] * len(text)

    def add_piece(self, piece: Piece) -> None:
        if piece.kind == "words":
            self.add_words(piece.text)
        elif piece.kind in ("code", "formula"):
            self.add_object(f"`{piece.text}`" if piece.kind == "code" else f"${piece.text}$")
        elif piece.kind in ("mark", "end of mark", "break"):
            self.add(piece.text if piece.kind != "break" else "\n")

    def add_words(self, words: str) -> None:
        for number, part in enumerate(NO_WORDS.split(words)):
            (self.add_object if number % 2 else self.add)(part)

    def add_object(self, source: str) -> None:
        character = chr(OBJECTS[len(self.objects)])
        self.objects[ord(character)] = source
        self.add(character)


def check(text: str, language: str, path: Path = Path("the text")) -> list[tuple[int, str, str]]:
    """The violations in a text, in order, each as its line, the old text and the new, with some characters around."""
    prose = Prose(parse(text, path))
    marked = prose.text if language == "zh" else LINE_BREAK.sub(" ", prose.text)
    places = [index for index, character in enumerate(marked) if character != "*"]
    faults = [(places[at], old, new) for at, old, new in violations(marked.replace("*", ""), RULES.get(language, []))]
    faults += violations(marked, RULES_OF_EMPHASIS.get(language, []))
    sources = prose.objects
    return [(prose.lines[at], old.translate(sources), new.translate(sources)) for at, old, new in sorted(faults)]


def violations(prose: str, rules: list[Rule]) -> Iterator[tuple[int, str, str]]:
    """Each as its position, the old text and the new; where two rules meet, the first."""
    taken: set[int] = set()
    for pattern, wanted in rules:
        for match in re.finditer(pattern, prose, re.MULTILINE):
            instead = unicodedata.normalize("NFC", match.expand(wanted))
            span = range(*match.span())
            if match.groupdict().get("right") is not None or instead == match[0] or not taken.isdisjoint(span):
                continue
            taken.update(span)
            before = prose[max(0, span.start - AROUND) : span.start].rpartition("\n")[2].lstrip()
            after = prose[span.stop : span.stop + AROUND].partition("\n")[0].rstrip()
            yield span.start, before + match[0] + after, before + instead + after
