"""axe finds nothing on any kind of page, light or dark, on a wide screen or a phone."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser import site

KINDS = ["index", "foundations/causal", "masks/multihead-attention", "labs/see-the-masks"]
KINDS += ["map", "symbols", "questions", "exercises", "glossary", "verified", "changelog"]
EXPLORERS = {
    "#mask-painter": site.Page("it", "masks/combining"),
    "#one-query": site.Page("zh", "foundations/weighted-average"),
    "#shape-tracer": site.Page("it", "foundations/shapes"),
    "#one-sentence": site.Page("zh", "foundations/one-sentence"),
    "#rope-clocks": site.Page("en", "position/rope"),
    "#kv-grid": site.Page("it", "cache/kv-cache"),
    "#three-roles": site.Page("zh", "foundations/queries-keys-values"),
    "#kernel-choice": site.Page("zh", "kernels/which-kernel"),
    "#head-width": site.Page("en", "foundations/scale"),
    "#word-lines": site.Page("it", "cross/alignment"),
    "#grouped-heads": site.Page("zh", "cache/grouped"),
    "#dropout-draws": site.Page("en", "practice/dropout"),
    "#qkv-rows": site.Page("en", "practice/fused-qkv"),
    "#last-digits": site.Page("zh", "practice/same-seed"),
    "#head-out": site.Page("it", "practice/look-inside"),
}
FAULTS = {"resultTypes": ["violations"]}  # or it describes all that is right, too, which takes most of its time
COLOURS = {"runOnly": ["color-contrast"]}  # all that differs between light and dark


def faults(opened, options=FAULTS, context=None):
    # axe reads no colour on a gradient
    opened.add_style_tag(content="pre > code { background-image: none !important }")
    found = Axe().run(opened, context, options).response["violations"]
    return [f"{fault['id']}: {node['html'][:150]}" for fault in found for node in fault["nodes"]]


@pytest.mark.parametrize(
    ("part", "page"), [*((None, page) for page in site.in_turn(KINDS)), *EXPLORERS.items()], ids=str
)
def test_axe_finds_nothing_in_light_and_dark(tab, part, page):
    tab.page.emulate_media(reduced_motion="reduce")  # what fades in has too little contrast for a moment
    opened = tab.open(page.path)
    tab.unfold()
    assert faults(opened, FAULTS, part) == []
    opened.emulate_media(color_scheme="dark")
    assert faults(opened, FAULTS | COLOURS, part) == []


@pytest.mark.parametrize(("slug", "scheme"), [("foundations/causal", "light"), ("cross/alignment", "dark")])
def test_axe_finds_nothing_on_a_phone_where_a_menu_or_the_contents_are_open(tab, slug, scheme):
    tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab.page.set_viewport_size({"width": 360, "height": 800})
    opened = tab.open(f"zh/{slug}/")
    opened.locator("[data-drawer]").click()
    assert faults(opened) == []
    opened.keyboard.press("Escape")
    opened.locator(".here").click()
    opened.locator("#__toc").wait_for()
    assert faults(opened) == []


def test_axe_finds_nothing_in_the_search_and_in_a_whole_program(tab):
    opened = tab.open("it/foundations/causal/")
    opened.locator("[data-show]").first.click()
    assert faults(opened) == []
    opened.keyboard.press("Escape")
    opened.keyboard.press("/")
    opened.keyboard.insert_text("softmax")
    opened.locator(".search__results a").first.wait_for()
    assert faults(opened) == []
