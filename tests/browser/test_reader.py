"""What a reader chooses, where they are and what they have read: colours, the section, the menu, a whole program."""

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.conftest import open_tab
from tests.configuration import text
from tools.cells.source import program

PAPER = "getComputedStyle(document.body).backgroundColor"


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
    opened.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    expect(here).to_have_count(0)
    expect(opened.locator(".md-header__title--active")).to_have_count(0)


def test_the_menu_of_a_phone_opens_and_closes_by_keyboard(tab):
    tab.page.set_viewport_size({"width": 390, "height": 800})
    opened = tab.open("zh/foundations/causal/")
    menu, link = opened.locator("[data-drawer]"), opened.locator(".md-nav--primary [aria-current]")
    expect(link).not_to_be_in_viewport()
    menu.press("Enter")
    expect(link).to_be_in_viewport()
    link.press("Escape")
    expect(link).not_to_be_in_viewport()
    expect(menu).to_be_focused()
    opened.locator(".md-select button").click()
    expect(opened.locator(".md-select ul")).to_be_in_viewport(ratio=1)


# --- the contents of a page, where no column has room for them ------------------------------------


def named(opened, entry):
    """The button of the contents names a section, whose heading stands whole below what lies above it."""
    words, place = entry.text_content(), entry.get_attribute("href")
    expect(opened.locator(".here b")).to_have_text(words)
    heading, above = opened.locator(place).bounding_box(), opened.locator(".md-header").bounding_box()
    assert above["y"] + above["height"] <= heading["y"] < above["y"] + above["height"] + 50


@pytest.mark.parametrize("width", [1279, 390, 320])
def test_the_contents_are_one_touch_away_wherever_one_reads(chromium, server, width):
    with open_tab(chromium, server, has_touch=True, viewport={"width": width, "height": 900}) as tab:
        opened = tab.open("it/foundations/scale/")
        button, contents = opened.get_by_role("button", name=text("it", "toc")), opened.get_by_role("navigation")
        contents = contents.and_(opened.locator("#__toc"))
        expect(button).to_be_in_viewport(ratio=1)
        for number in (4, 2):
            button.tap()
            expect(contents).to_be_in_viewport(ratio=1)
            entry = contents.get_by_role("link").nth(number)
            entry.tap()
            expect(contents).to_be_hidden()
            named(opened, opened.locator("#__toc a").nth(number))
            expect(button).to_be_in_viewport(ratio=1)
        button.tap()
        expect(contents.locator("[aria-current=location]")).to_be_in_viewport(ratio=1)
        opened.touchscreen.tap(width / 2, 895)
        expect(contents).to_be_hidden()


def test_the_contents_open_and_close_by_mouse_and_by_keyboard(tab):
    tab.page.set_viewport_size({"width": 1000, "height": 800})
    opened = tab.open("zh/foundations/scale/#probe")
    button, contents = opened.locator(".here"), opened.locator("#__toc")
    section = contents.locator("[href='#probe']").text_content()
    expect(button).to_have_accessible_name(f"{text('zh', 'toc')} {section}")
    button.click()
    contents.get_by_role("link").first.click()
    expect(contents).to_be_hidden()
    named(opened, contents.locator("a").first)
    button.press("Enter")
    opened.keyboard.press("Tab")
    expect(contents.get_by_role("link").first).to_be_focused()
    opened.keyboard.press("Escape")
    expect(contents).to_be_hidden()
    expect(button).to_be_focused()
    button.press("Space")
    for key in ("Tab", "Tab", "Enter"):
        opened.keyboard.press(key)
    expect(contents).to_be_hidden()
    named(opened, contents.locator("a").nth(1))


def test_without_scripts_the_contents_cover_no_heading_that_they_lead_to(bare):
    bare.page.set_viewport_size({"width": 390, "height": 800})
    opened = bare.open("foundations/causal/")
    contents = opened.locator("#__toc")
    opened.locator(".here").click()
    for link in contents.get_by_role("link").all():
        link.click()
        box, heading = contents.bounding_box(), opened.locator(link.get_attribute("href")).bounding_box()
        assert box["y"] + box["height"] <= heading["y"] < 800
    opened.keyboard.press("Escape")
    expect(contents).to_be_hidden()


# --- what was read --------------------------------------------------------------------------------

KEPT = "JSON.stringify(Object.keys(localStorage))"


def read_on(opened, end=None):
    """Turn the wheel until the end of a page, or until a section is the one that is read."""
    opened.mouse.move(300, 400)
    while opened.evaluate("innerHeight + scrollY < document.documentElement.scrollHeight - 2"):
        if end and opened.locator(f".md-nav--secondary [href='#{end}'][aria-current]").count():
            return
        opened.mouse.wheel(0, 300)
        opened.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def marked(opened):
    """The pages that the menu marks, as a screen reader hears them."""
    opened.evaluate("document.querySelectorAll('.md-nav--primary details').forEach(chapter => { chapter.open = true })")
    return [link.get_attribute("href") for link in opened.locator(".md-nav--primary a:has(.read)").all()]


def test_a_page_is_read_in_all_languages_once_its_sections_were_on_the_screen(tab):
    opened = tab.open("it/foundations/softmax/")
    opened.keyboard.press("End")
    tab.open("it/foundations/softmax/#recap")
    assert marked(tab.open("it/foundations/scale/")) == []
    read_on(opened, "probe")
    opened.reload()
    assert marked(opened) == []
    read_on(opened)
    expect(opened.locator(".md-nav--primary [aria-current] .read")).to_be_visible()
    opened = tab.open("foundations/softmax/")
    assert marked(opened) == ["../scale/"]
    link = opened.locator(".md-nav--primary [href='../scale/']")
    title = link.evaluate("link => link.firstChild.data")
    expect(link).to_have_accessible_name(f"{title} {text('en', 'read')}")


def test_home_leads_to_where_one_reads_or_to_the_next_page_until_it_is_forgotten(tab):
    opened = tab.open("zh/foundations/scale/")
    line = opened.locator(".go-on")
    read_on(opened, "probe")
    section = opened.locator(".md-nav--secondary [href='#probe']").text_content()
    title = opened.locator("h1").inner_text().removesuffix("¶")
    opened = tab.open("zh/")
    expect(line.get_by_role("link")).to_have_text(text("zh", "go_on").format(page=f"{title} · {section}"))
    expect(tab.open("it/").locator(".go-on a")).not_to_contain_text(section)
    line.get_by_role("link").click()
    opened.wait_for_url("**/it/foundations/scale/#probe")
    opened.evaluate("scrollTo(0, 0)")
    read_on(opened)
    tab.open("zh/")
    line.get_by_role("link").focus()
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/zh/foundations/one-head/")
    tab.open("zh/")
    line.get_by_role("button", name=text("zh", "forget")).press("Enter")
    expect(line).to_be_hidden()
    assert marked(opened) == []
    assert opened.evaluate(KEPT) == "[]"
    opened.reload()
    expect(line).to_be_hidden()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_line_that_leads_on_moves_nothing_when_it_comes(newcomer, width):
    newcomer.page.set_viewport_size({"width": width, "height": 2000})
    newcomer.page.add_init_script("""localStorage.setItem("attention.place", JSON.stringify(
        { page: "kernels/which-kernel/", hash: "#cpu", title: "Flash or math", language: "en" }))""")
    opened = newcomer.open("", quiet=True)
    below, top = opened.locator(".go-on + *"), "one => one.getBoundingClientRect().top"
    filled = below.evaluate(top)
    expect(opened.locator(".go-on")).to_contain_text("Flash or math")
    opened.evaluate("document.querySelector('.go-on').replaceChildren()")
    assert below.evaluate(top) == filled


def test_where_nothing_may_be_kept_a_page_is_read_without_an_error(newcomer):
    newcomer.page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('', 'SecurityError') } })"
    )
    opened = newcomer.open("foundations/scale/")
    read_on(opened)
    assert marked(opened) == []
    expect(newcomer.open("").locator(".go-on")).to_be_hidden()


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
    for key, slug in {"n": "queries-keys-values", "p": "softmax"}.items():
        opened.keyboard.press(key)
        opened.wait_for_url(f"**/zh/foundations/{slug}/")
    for typed in ("Alt+n", "Shift+P", "/", "n", "p"):
        opened.keyboard.press(typed)
    expect(opened.locator(".search__query")).to_have_value("np")
    opened.keyboard.press("Escape")
    opened.keyboard.press("p")
    opened.wait_for_url("**/zh/foundations/weighted-average/")


# --- programs -------------------------------------------------------------------------------------


def test_a_whole_program_is_shown_before_it_is_copied(tab):
    page = site.Page("it", "foundations/causal")
    opened = tab.open(page.path)
    [cell] = [cell for cell in page.cells if cell.name == "buffer"]
    opened.locator("#cell-buffer [data-show]").click()
    box = opened.get_by_role(
        "dialog", name=f"{text('it', 'program')} {opened.title().partition(' - ')[0]} · {cell.name}"
    )
    wanted = program(page.cells, cell)
    assert box.locator("code").text_content().split() == wanted.split()
    box.locator("[data-copy]").click()
    tab.hears(text("it", "copied"))
    assert tab.clipboard().split() == wanted.split()
    opened.keyboard.press("Escape")
    expect(box).to_be_hidden()


def test_who_copies_hears_and_reads_it_for_two_seconds(newcomer):
    newcomer.page.clock.install()
    opened, message = newcomer.open("zh/foundations/causal/"), newcomer.page.locator("#said")
    opened.clock.pause_at(opened.evaluate("Date.now() + 1000"))
    opened.locator(".cell-tools [data-copy]").first.click()
    expect(message).to_have_text(text("zh", "copied"))
    expect(message).to_be_in_viewport(ratio=1)
    opened.clock.run_for(2100)
    expect(message).to_have_text("")


def test_where_nothing_can_be_copied_the_program_is_shown(tab):
    opened = tab.open("foundations/causal/")
    opened.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not here')) }")
    opened.locator(".cell-tools [data-copy]").first.click()
    box = opened.get_by_role("dialog", name=text("en", "program"))
    expect(box).to_be_visible()
    box.locator("[data-copy]").click()
    opened.wait_for_function("`${getSelection()}`.trim() === document.querySelector('.program code').innerText.trim()")


# How many blocks of code go on sideways, where no number stands below another.
WRAPPABLE = """() => [...document.querySelectorAll("pre > code:not(.output :has(span))")].filter(code =>
    code.getClientRects().length && code.scrollWidth > code.clientWidth).length"""

# Whether a block says that it goes on at its right.
SAYS_MORE = "code => getComputedStyle(code.parentElement, '::after').content !== 'none'"


def test_long_lines_are_wrapped_by_a_button_which_every_page_remembers(phone):
    page = site.Page("zh", "foundations/causal")
    opened = phone.open(page.path)
    button = opened.locator("#cell-module").get_by_role("button", name=text("zh", "wrap"))
    assert opened.evaluate(WRAPPABLE) > 3
    expect(button).to_have_attribute("aria-pressed", "false")
    button.tap()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert opened.evaluate(WRAPPABLE) == 0
    matrix = opened.locator("article .output code.named").first
    assert matrix.evaluate("code => getComputedStyle(code).whiteSpace") == "pre"
    assert matrix.evaluate(SAYS_MORE)
    matrix.evaluate("code => code.scrollTo(code.scrollWidth, 0)")
    opened.wait_for_function(f"() => !({SAYS_MORE})(document.querySelector('article .output code.named'))")
    [number] = [number for number, cell in enumerate(page.cells) if cell.name == "module"]
    assert phone.copy(number) == program(page.cells, page.cells[number])
    opened = phone.open("masks/padding/")
    assert opened.evaluate(WRAPPABLE) == 0
    opened.get_by_role("button", name=text("en", "wrap")).first.press("Enter")
    assert opened.evaluate(WRAPPABLE) > 3
    assert not phone.open("it/masks/padding/").evaluate("document.documentElement.matches('.wrapped')")


# --- scripts of others, on paper, and without scripts ---------------------------------------------


def test_a_script_that_slips_in_does_not_run(tab):
    opened = tab.open("foundations/causal/")
    html = "<img src='data:,' onerror='hacked = 1'>"
    with opened.expect_console_message(lambda said: "Content Security Policy" in said.text):
        opened.evaluate("html => document.querySelector('article').insertAdjacentHTML('afterbegin', html)", html)
    assert opened.evaluate("typeof hacked") == "undefined"
    assert len(tab.faults) == 1, "no other word in the console"
    tab.faults.clear()


@pytest.mark.parametrize("width", [1300, 390])
def test_without_scripts_there_is_no_button_that_does_nothing(bare, width):
    bare.page.set_viewport_size({"width": width, "height": 800})
    opened = bare.open("it/foundations/causal/")
    expect(opened.locator(":is([data-drawer], .colours, .search-button, [data-copy], #print):visible")).to_have_count(0)
    label, menu = opened.locator("label.md-header__button"), opened.locator(".md-nav--primary").first
    if width < 1000:
        label.click()
    expect(menu).to_be_in_viewport()
    chapter = menu.locator("details", has_text="Laboratori")
    chapter.locator("summary").click()
    chapter.get_by_role("link").last.click()
    opened.wait_for_url("**/it/labs/break-it-find-it/")
