"""axe finds nothing on any kind of page, in any language, light or dark, on a wide screen or a phone."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser import site

KINDS = [
    "index",
    "masks/causal",
    "masks/multihead-attention",
    "labs/see-the-masks",
    "map",
    "symbols",
    "glossary",
    "verified",
]


COLOURS = {"runOnly": ["color-contrast"]}  # all that differs between light and dark
FAULTS = {"resultTypes": ["violations"]}  # or it describes all that is right, too, which takes most of its time


def faults(opened, options=FAULTS, context=None):
    found = Axe().run(opened, context, options).response["violations"]
    return [f"{fault['id']}: {node['html'][:150]}" for fault in found for node in fault["nodes"]]


@pytest.mark.parametrize("language", site.LANGUAGES)
@pytest.mark.parametrize("slug", KINDS)
def test_axe_finds_nothing(tab, slug, language):
    opened = tab.open(site.Page(language, slug).path)
    tab.unfold()
    assert faults(opened) == []
    opened.emulate_media(color_scheme="dark")
    assert faults(opened, FAULTS | COLOURS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_a_phone_with_its_menu_open(tab, scheme):
    tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab.page.set_viewport_size({"width": 390, "height": 800})
    opened = tab.open("zh/masks/causal/")
    opened.locator("[data-drawer]").click()
    assert faults(opened) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("slug", ["masks/causal", "cross/alignment"])
def test_axe_finds_nothing_beside_the_names_of_rows_nor_in_the_ways_to_open_a_notebook(tab, slug, scheme):
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.set_viewport_size({"width": 360, "height": 800})
    opened = tab.open(f"zh/{slug}/")
    opened.locator("article [popovertarget]").click()
    opened.locator(".cloud").wait_for()
    assert faults(opened) == []


def test_axe_finds_nothing_in_the_search_and_in_a_whole_program(tab):
    opened = tab.open("it/masks/causal/")
    opened.locator("[data-show]").first.click()
    assert faults(opened) == []
    opened.keyboard.press("Escape")
    opened.keyboard.press("/")
    opened.keyboard.insert_text("softmax")
    opened.locator(".search__results a").first.wait_for()
    assert faults(opened) == []
