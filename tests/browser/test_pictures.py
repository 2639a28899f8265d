"""A reader sees the words of a picture in the language of the page, whole and apart from each other."""

import csv
import re

import pytest

from tests.browser import site
from tests.configuration import ROOT

FIGURE = re.compile(r"^!\[.*\]\(#", re.M)  # what a lab says of one

# The texts of the pictures that are cut by the frame of their picture, and those that lie on another; the box around a
# slanted text says nothing of what lies on it.
MISPLACED = """pictures => {
    document.querySelector("article").innerHTML = pictures.join("")
    const slanted = text => /\\((?!-?0\\b)/.test(text.getAttribute("transform"))
    const found = []
    for (const picture of document.querySelectorAll("article svg")) {
        const frame = picture.getBoundingClientRect()
        const texts = [...picture.querySelectorAll("text")]
        const boxes = new Map(texts.map(text => [text, text.getBoundingClientRect()]))
        const level = texts.filter(text => !slanted(text))
        for (const [text, box] of boxes) {
            if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom)
                found.push(`${text.textContent} is cut`)
            if (slanted(text)) continue
            for (const other of level) {
                const { left, right, y } = boxes.get(other)
                if (other !== text && left < box.right && box.left < right && Math.abs(y - box.y) < box.height * .6)
                    found.push(`${text.textContent} lies on ${other.textContent}`)
            }
        }
    }
    return found
}"""


def pictures(built, language):
    """The pictures and figures of all pages of a language, as they are published."""
    pages = [site.Page(language, slug) for slug in site.SLUGS]
    drawn = [picture for page in pages for picture in site.html(built, page).css("p > svg.picture, .plot > svg")]
    return [
        f'<{one.parent.tag} class="{one.parent.attributes.get("class")}">{one.html}</{one.parent.tag}>' for one in drawn
    ]


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_no_text_of_a_picture_is_cut_or_lies_on_another(built, tab, language):
    drawn = pictures(built, language)
    figures = sum(len(FIGURE.findall(lab.read_text("utf-8"))) for lab in ROOT.glob("docs/en/labs/*.md"))
    assert len(drawn) == figures + len(list(ROOT.glob("docs/assets/*.svg")))
    page = tab.open(site.Page(language, "verified").path)
    for width in (1300, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(MISPLACED, drawn) == []


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_words_of_a_picture_are_those_of_its_page(built, language):
    with (ROOT / "languages/pictures.csv").open(encoding="utf-8", newline="") as table:
        words = {row["en"]: row[language] for row in csv.DictReader(table)}
    seen = set(re.findall(r'<text(?![^>]* class="code)[^>]*>([^<]*)<', "".join(pictures(built, language))))
    assert set(words.values()) - seen == set()
    assert seen & (words.keys() - set(words.values())) == set()
