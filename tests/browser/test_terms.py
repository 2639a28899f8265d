"""The glossary in a real browser: the sentence of a term where it stands, and the page that lists all."""

from playwright.sync_api import expect

from tests.browser import site
from tools.glossary import read_glossary

SAID = [term for term in read_glossary(site.ROOT / "languages/glossary.csv") if term.says("en")]


def test_the_glossary_lists_each_term_with_its_sentence_and_its_page(built):
    for language in site.LANGUAGES:
        found, wanted = {}, {}
        for entry in site.soup(built, site.Page(language, "glossary")).select(".entry"):
            [*said, link] = entry.p.contents
            found[entry.h2["id"]] = "".join(part.get_text() for part in said).strip(), link["href"]
        for term in SAID:
            page, _, section = term.cells["where"].partition("#")
            wanted[term.id] = (term.says(language), f"../{page}/" + (f"#{section}" if section != "top" else ""))
        assert found == wanted


def test_the_sentence_of_a_term_shows_for_pointer_and_keyboard_and_is_its_title(tab):
    opened = tab.open("it/foundations/causal/")
    term, note = opened.locator("a.term").nth(4), opened.get_by_role("tooltip")
    says = term.get_attribute("title")
    expect(note).to_be_hidden()
    term.hover()
    expect(note).to_have_text(says)
    expect(term).to_have_accessible_description(says)
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


def test_the_sentence_of_a_term_stays_inside_a_phone(tab):
    tab.page.set_viewport_size({"width": 360, "height": 700})
    opened = tab.open("practice/capstone/")
    for term in opened.locator("p > a.term").all()[:6]:
        term.focus()
        box = opened.get_by_role("tooltip").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 700
