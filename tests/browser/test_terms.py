"""The glossary in a real browser: the sentence of a term where it stands, and the page that lists all."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import text
from tools.languages.glossary import read_glossary

SAID = [term for term in read_glossary(site.ROOT / "languages/glossary.csv") if term.says("en")]


def test_the_glossary_lists_each_term_with_its_sentence_and_its_page(built):
    for language in site.LANGUAGES:
        listed, wanted = {}, {}
        for entry in site.html(built, site.Page(language, "glossary")).css(".entry"):
            link = entry.css("p > a")[-1]
            words = entry.css_first("p").text().removesuffix(link.text()).strip()
            listed[entry.css_first("h2").id] = words, link.attributes["href"]
        for term in SAID:
            page, _, section = term.cells["where"].partition("#")
            wanted[term.id] = (term.says(language), f"../{page}/" + (f"#{section}" if section != "top" else ""))
        assert listed == wanted


def test_the_sentence_of_a_term_shows_for_pointer_and_keyboard_and_is_its_title(tab):
    opened = tab.open("it/foundations/causal/")
    term, note = opened.locator("a.term").nth(4), opened.get_by_role("tooltip")
    says = term.get_attribute("title")
    expect(note).to_be_hidden()
    term.hover()
    expect(note).to_have_text(says)
    expect(term).to_have_accessible_description(says)
    box = note.bounding_box()
    assert box["y"] + box["height"] < term.bounding_box()["y"], "it covers what is read next"
    note.hover()  # it stays, so that its words can be selected
    opened.wait_for_timeout(400)
    expect(note).to_be_visible()
    opened.mouse.move(0, 0)
    expect(note).to_be_hidden()
    term.focus()
    expect(note).to_have_text(says)
    opened.keyboard.press("Escape")
    expect(note).to_be_hidden()
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/glossary/#*")
    assert says in opened.locator(".entry:has(:target) p").inner_text()


def test_a_tap_shows_the_sentence_of_a_term_and_a_second_tap_leads_to_the_glossary(phone):
    opened = phone.open("zh/practice/capstone/")
    term, other = opened.locator("p > a.term").all()[:2]
    note = opened.get_by_role("tooltip")
    for leads in (term, opened.locator(".says").get_by_role("link", name=text("zh", "term"))):
        says = term.get_attribute("title")
        other.tap()
        expect(note).not_to_have_text(says)
        term.tap()
        expect(note).to_have_text(says)
        leads.tap()
        opened.wait_for_url("**/zh/glossary/#*")
        assert says in opened.locator(".entry:has(:target) p").inner_text()
        opened.go_back()
        opened.reload()


def test_the_sentence_of_a_term_stays_inside_a_phone(phone):
    opened = phone.open("practice/capstone/")
    for term in opened.locator("p > a.term").all()[:6]:
        term.focus()
        expect(opened.locator(".says")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize(
    ("page", "typed", "named"),
    [
        (site.Page("zh", "glossary"), "MASK", "因果掩码"),
        (site.Page("it", "glossary"), "polarita", "polarità"),
        (site.Page("en", "symbols"), "softmax", "F.softmax"),
        (site.Page("it", "questions"), "PADDING", "Il batch dà numeri diversi"),  # by the title of its page
        (site.Page("en", "questions"), "loss nan", "My output or my loss is nan"),  # by words that stand apart
    ],
    ids=str,
)
def test_a_filter_leaves_the_entries_that_are_named_so_and_says_how_many(tab, page, typed, named):
    opened = tab.open(page.path)
    words, status = site.LANGUAGES[page.language].extra["text"], opened.locator(".finder").get_by_role("status")
    everything = opened.locator(".entry").count()
    opened.get_by_role("searchbox", name=words["filter"][page.slug]).focus()
    opened.keyboard.type(typed)
    left = opened.locator(".entry:visible").all_inner_texts()
    assert 0 < len(left) < everything / 3
    assert any(named in name for name in left)
    expect(status).to_have_text(words["filtered"].format(shown=len(left), all=everything))
    opened.keyboard.press("Escape")
    expect(status).to_have_text("")
    expect(opened.locator(".entry:visible")).to_have_count(everything)


@pytest.mark.parametrize("page", [site.Page("zh", "glossary"), site.Page("it", "symbols")], ids=str)
def test_without_scripts_the_letters_lead_to_the_first_entry_of_each(bare, page):
    opened = bare.open(page.path)
    letters = opened.get_by_role("navigation", name="A–Z").get_by_role("link")
    assert letters.all_inner_texts() == sorted(letters.all_inner_texts())
    assert letters.count() > 15
    letters.get_by_text("S", exact=True).click()
    first = opened.locator(".entry:target h2")
    expect(first).to_be_in_viewport()
    words = first.inner_text().rpartition(".")[2], *first.locator("small").all_inner_texts()[:1]
    assert any(re.match("s|.* s", word, re.I) for word in words)
    expect(opened.locator(".filter")).to_be_hidden()
