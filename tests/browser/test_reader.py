"""What a reader chooses and where they are: colours, languages, the section, the menu of a phone, a whole program."""

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import text
from tools.cells.source import program

PAPER = "getComputedStyle(document.body).backgroundColor"
# The entries of the contents whose words are wider, or on other lines, while the reader is in their section.
REWRAPPED = """() => [...document.querySelectorAll(".md-nav--secondary a")].filter(entry => {
    const words = document.createRange()
    words.selectNodeContents(entry)
    const sizes = ["location", null].map(state => {
        entry.ariaCurrent = state
        return [...words.getClientRects()].map(line => line.width).join()
    })
    return sizes[0] !== sizes[1]
}).map(entry => entry.textContent)"""


# --- colours --------------------------------------------------------------------------------------


def test_colours_are_chosen_in_turn_and_remembered(tab):
    tab.page.emulate_media(color_scheme="dark")
    opened = tab.open("foundations/causal/")
    button, dark = opened.locator(".colours"), opened.evaluate(PAPER)
    papers = []
    for choice in ("light", "dark", "auto", "light"):
        button.click()
        expect(button).to_have_accessible_name(site.LANGUAGES["en"].extra["text"]["colours"][choice])
        papers.append(opened.evaluate(PAPER))
    light = papers[0]
    assert papers == [light, dark, dark, light]
    assert light != dark
    assert tab.open("it/").evaluate(PAPER) == light
    tab.page.emulate_media(media="print", color_scheme="dark")
    assert opened.evaluate(PAPER) == light


# --- the frame of a page --------------------------------------------------------------------------


def test_the_table_of_contents_and_the_header_follow_the_reader(tab):
    opened = tab.open("foundations/causal/#probe")
    here = opened.locator(".md-nav--secondary [aria-current=location]")
    expect(here.last).to_have_attribute("href", "#probe")
    expect(opened.locator(".md-header__title--active .md-header__topic").last).to_contain_text("Causal masks")
    opened.evaluate("scrollTo({top: document.documentElement.scrollHeight, behavior: 'instant'})")
    expect(here.last).to_have_attribute("href", "#recap")
    expect(here.last).to_be_in_viewport()
    assert opened.evaluate(REWRAPPED) == []
    opened.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    expect(here).to_have_count(0)
    expect(opened.locator(".md-header__title--active")).to_have_count(0)


def test_the_menu_of_a_phone_opens_and_closes_by_keyboard(tab):
    tab.page.set_viewport_size({"width": 390, "height": 800})
    opened = tab.open("zh/foundations/causal/")
    menu, link = opened.locator("[data-drawer]"), opened.locator(".md-nav--primary [aria-current]")
    expect(link).not_to_be_in_viewport()
    menu.focus()
    opened.keyboard.press("Enter")
    expect(link).to_be_in_viewport()
    link.focus()
    opened.keyboard.press("Escape")
    expect(link).not_to_be_in_viewport()
    expect(menu).to_be_focused()
    tab.page.set_viewport_size({"width": 1300, "height": 900})
    expect(menu).to_be_hidden()


def test_every_chapter_of_the_menu_opens_in_place_by_keyboard(tab):
    opened = tab.open("it/foundations/causal/")
    chapter = opened.locator(".md-nav--primary details", has_text="In pratica")
    last = chapter.get_by_role("link").last
    expect(last).to_be_hidden()
    chapter.locator("summary").focus()
    opened.keyboard.press("Enter")
    expect(last).to_be_in_viewport()
    last.focus()
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/it/practice/museum/")
    expect(opened.locator(".md-nav--primary [aria-current=page]")).to_be_in_viewport()


def test_the_menu_of_languages_opens_until_escape(tab):
    tab.page.set_viewport_size({"width": 360, "height": 800})
    opened = tab.open("foundations/causal/")
    button, menu = opened.locator(".md-select button"), opened.locator(".md-select ul")
    expect(menu).to_be_hidden()
    button.click()
    expect(menu).to_be_in_viewport(ratio=1)
    opened.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(button).to_be_focused()


# --- the keyboard ---------------------------------------------------------------------------------


def test_the_keyboard_reaches_search_colours_languages_and_copy_buttons(tab):
    opened = tab.open("it/foundations/causal/")
    wanted = {".search-button", ".colours", ".md-select button", "article [data-copy]", "article [data-show]"}
    for _ in range(120):
        opened.keyboard.press("Tab")
        wanted -= {one for one in wanted if opened.evaluate("one => document.activeElement.matches(one)", one)}
        if not wanted:
            break
    assert wanted == set()


def test_the_first_stop_of_the_keyboard_leads_past_the_menu(tab):
    opened = tab.open("foundations/causal/")
    opened.keyboard.press("Tab")
    expect(opened.locator(":focus")).to_have_text("Skip to content")
    expect(opened.locator(":focus")).to_be_in_viewport()
    opened.keyboard.press("Enter")
    tab.ends_at("#__main")
    opened.keyboard.press("Tab")
    expect(opened.locator("main :focus")).to_have_count(1)


def test_n_and_p_lead_to_the_next_page_and_the_previous_but_not_while_a_reader_types(tab):
    opened = tab.open("zh/foundations/softmax/")
    for key, slug in {"n": "scale", "p": "softmax"}.items():
        opened.keyboard.press(key)
        opened.wait_for_url(f"**/zh/foundations/{slug}/")
    for typed in ("Alt+n", "Shift+P", "/", "n", "p"):
        opened.keyboard.press(typed)
    expect(opened.locator(".search__query")).to_have_value("np")
    opened.keyboard.press("Escape")
    opened.locator(".explorer input").first.focus()
    opened.keyboard.press("n")
    opened.locator(".cell-tools [data-show]").first.click()
    opened.keyboard.press("n")
    expect(opened.locator(".program")).to_be_visible()
    opened.keyboard.press("Escape")
    opened.keyboard.press("p")
    opened.wait_for_url("**/zh/foundations/weighted-average/")


# --- programs -------------------------------------------------------------------------------------


def test_a_whole_program_is_shown_before_it_is_copied(tab):
    page = site.Page("it", "foundations/causal")
    opened = tab.open(page.path)
    box = opened.get_by_role("dialog", name=text("it", "program"))
    cell = next(cell for cell in page.cells if cell.name == "buffer")
    opened.locator("#cell-buffer [data-show]").click()
    title = opened.title().partition(" - ")[0]
    expect(box).to_have_accessible_name(f"{text('it', 'program')} {title} · {cell.name}")
    wanted = program(page.cells, cell)
    assert box.locator("code").text_content().split() == wanted.split()
    colours = "spans => new Set(spans.map(span => getComputedStyle(span).color)).size"
    assert box.locator("code span").evaluate_all(colours) > 3
    box.locator("[data-copy]").click()
    tab.hears(text("it", "copied"))
    assert opened.evaluate("navigator.clipboard.readText()").split() == wanted.split()
    opened.keyboard.press("Escape")
    expect(box).to_be_hidden()


def test_who_copies_hears_and_reads_it_for_two_seconds_after_the_last_copy(tab):
    tab.page.clock.install()
    opened, said = tab.open("zh/foundations/causal/"), tab.page.locator("#said")
    opened.clock.pause_at(opened.evaluate("Date.now() + 1000"))
    for copy in opened.locator(".cell-tools [data-copy]").all()[:2]:
        opened.clock.run_for(1500)
        copy.click()
        tab.hears(text("zh", "copied"))
    opened.clock.run_for(1500)
    expect(said).to_have_text(text("zh", "copied"))
    expect(said).to_be_in_viewport(ratio=1)
    expect(opened.locator(".copied")).to_have_count(1)
    opened.clock.run_for(600)
    expect(said).to_have_text("")


def test_where_nothing_can_be_copied_the_program_is_shown(tab):
    opened = tab.open("foundations/causal/")
    opened.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not here')) }")
    opened.locator(".cell-tools [data-copy]").first.click()
    box = opened.get_by_role("dialog", name=text("en", "program"))
    expect(box).to_be_visible()
    box.locator("[data-copy]").click()
    opened.wait_for_function("`${getSelection()}`.trim() === document.querySelector('.program code').innerText.trim()")


# --- scripts of others, on paper, and without scripts ---------------------------------------------


def test_a_script_that_slips_in_does_not_run(tab):
    opened = tab.open("foundations/causal/")
    html = "<img src='data:,' onerror='hacked = 1'>"
    with opened.expect_console_message(lambda said: "Content Security Policy" in said.text):
        opened.evaluate("html => document.querySelector('article').insertAdjacentHTML('afterbegin', html)", html)
    assert opened.evaluate("typeof hacked") == "undefined"
    assert len(tab.faults) == 1, "no other word in the console"
    tab.faults.clear()


def test_paper_has_the_article_with_its_answers_and_no_menus(tab):
    opened = tab.open("foundations/causal/")
    assert opened.locator("article details:not([open])").count() > 3
    opened.emulate_media(media="print")
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(opened.locator("article details:not([open])")).to_have_count(0)
    for part in (".md-header", ".md-nav--primary", ".md-nav--secondary", ".skip", ".place", ".pages", ".headerlink"):
        expect(opened.locator(part).first).to_be_hidden()
    expect(opened.locator("article")).to_be_visible()


@pytest.mark.parametrize(("width", "menu"), [(1300, False), (390, True)])
def test_without_scripts_there_is_no_button_that_does_nothing(bare, width, menu):
    bare.page.set_viewport_size({"width": width, "height": 800})
    opened = bare.open("it/foundations/causal/")
    for needs_scripts in ("[data-drawer]", ".colours", ".search-button"):
        expect(opened.locator(needs_scripts)).to_be_hidden()
    label, link = opened.locator("label.md-header__button"), opened.locator(".md-nav--primary").first
    assert label.is_visible() == menu
    if menu:
        label.click()
    expect(link).to_be_in_viewport()
    chapter = link.locator("details", has_text="Laboratori")
    chapter.locator("summary").click()
    chapter.get_by_role("link").last.click()
    opened.wait_for_url("**/it/labs/break-it-find-it/")
