"""What a finger does on a phone: code that goes on sideways, and lines that it wraps."""

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import text
from tools.cells.source import program


def edges(code):
    """How both ends of a box look below its text."""
    box = code.bounding_box()
    strip = {"y": box["y"] + box["height"] - 7, "width": 6, "height": 4}
    ends = (box["x"] + 1, box["x"] + box["width"] - 7)
    return [code.page.screenshot(clip=strip | {"x": end}) for end in ends]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_code_has_a_shadow_where_it_goes_on(phone, scheme):
    phone.page.emulate_media(color_scheme=scheme)
    opened = phone.open("it/foundations/causal/")
    for selector in (".highlight", ".output"):
        code = opened.locator(f"article {selector} code[tabindex]").first
        code.scroll_into_view_if_needed()
        plain, shadow = edges(code)
        assert plain != shadow
        code.evaluate("code => code.scrollTo({left: 1e4, behavior: 'instant'})")
        left, right = edges(code)
        assert (left, right) != (plain, shadow)
        assert right == plain


CUT = """() => [...document.querySelectorAll("pre > code")].filter(code =>
    code.getClientRects().length && code.scrollWidth > code.clientWidth && !code.matches(".output :has(span)"))
    .map(code => code.textContent)"""


def test_long_lines_are_wrapped_by_a_button_which_every_page_remembers(phone):
    page = site.Page("zh", "foundations/causal")
    opened = phone.open(page.path)
    button = opened.locator("#cell-module").get_by_role("button", name=text("zh", "wrap"))
    short = opened.locator(".language-python:not(:has(code[tabindex])) [data-wrap]").first
    assert len(opened.evaluate(CUT)) > 3
    expect(short).to_be_hidden()
    expect(button).to_have_attribute("aria-pressed", "false")
    button.scroll_into_view_if_needed()
    place = button.bounding_box()["y"]
    button.tap()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert abs(button.bounding_box()["y"] - place) < 1
    assert opened.evaluate(CUT) == []
    opened.locator("#cell-module [data-show]").tap()
    assert opened.evaluate(CUT) == []
    wrap = opened.locator("dialog").get_by_role("button", name=text("zh", "wrap"))
    expect(wrap).to_have_attribute("aria-pressed", "true")
    opened.keyboard.press("Escape")
    matrix = opened.locator("article .output code.named").first
    assert matrix.evaluate("code => getComputedStyle(code).whiteSpace") == "pre"
    number = next(number for number, cell in enumerate(page.cells) if cell.name == "module")
    assert phone.copy(number) == program(page.cells, page.cells[number])

    opened = phone.open("masks/padding/")
    assert opened.evaluate(CUT) == []
    button = opened.get_by_role("button", name=text("en", "wrap")).first
    button.focus()
    opened.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert len(opened.evaluate(CUT)) > 3
    assert phone.open("it/masks/padding/").evaluate("document.documentElement.className") == "js"


def test_a_command_is_copied_by_its_button(phone):
    opened = phone.open("it/")
    for block in opened.locator(".language-sh").all():
        block.get_by_role("button", name=text("it", "copy_command")).tap()
        phone.hears(text("it", "command_copied"))
        assert opened.evaluate("navigator.clipboard.readText()") == block.locator("code").text_content()
