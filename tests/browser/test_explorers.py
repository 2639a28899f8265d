"""The explorers print what torch computed, work by mouse, finger and keyboard, and stand still without JavaScript."""

import json
import math
import re

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.test_accessibility import COLOURS, FAULTS, faults
from tools.site import explorers

PAGES = {
    "mask-painter": "masks/combining",
    "one-query": "foundations/weighted-average",
    "leak-meter": "masks/causal",
    "shape-tracer": "foundations/shapes",
}
OTHER_PAGES = [
    ("one-query", "foundations/softmax"),
    ("one-query", "foundations/scale"),
    ("leak-meter", "masks/padding"),
    ("shape-tracer", "foundations/many-heads"),
    ("shape-tracer", "cross/cross-attention"),
]
MOST = 15_000  # bytes of the scripts and the styles of all explorers, gzipped
TOLERANCE = {"rel_tol": 1e-6, "abs_tol": 1e-6}


def golden(name):
    return json.loads((site.ROOT / f"verified/explorers/{name}.json").read_text("utf-8"))


def words(language):
    return explorers.words(site.ROOT / "languages/explorers.csv", language)


def path_of(name, language):
    return site.Page(language, PAGES[name]).path


def flat(numbers):
    """The numbers of lists, whatever their depth; what a page has not been computed from is no number."""
    return [one for part in numbers for one in flat(part)] if isinstance(numbers, list) else [numbers]


every_language = pytest.mark.parametrize("language", site.LANGUAGES)

# --- the numbers of torch -------------------------------------------------------------------------

# What an explorer computes and prints in each of some states, which it is led to by its address.
VISITED = """async ([name, states]) => {
    const explorer = document.getElementById(name)
    const printed = shown => [...explorer.querySelectorAll(
        `[data-shows=${shown}] tbody td:not([data-shows]), td[data-shows=${shown}]`)].map(cell => cell.textContent)
    const found = []
    for (const state of states) {
        const arrived = new Promise(resolve => addEventListener("hashchange", resolve, {once: true}))
        location.hash = `${name}?${new URLSearchParams(state)}`
        await arrived
        const shown = [...new Set([...explorer.querySelectorAll("[data-shows]")].map(part => part.dataset.shows))]
        found.push({
            numbers: explorer.compute(explorer.state), code: explorer.querySelector("code")?.textContent,
            printed: Object.fromEntries(shown.map(name => [name, printed(name)])),
        })
    }
    return found
}"""


@pytest.mark.parametrize(("name", "language"), [("mask-painter", "it"), ("one-query", "zh"), ("leak-meter", "it")])
def test_an_explorer_computes_and_prints_what_torch_does(tab, name, language):
    """The shape tracer, which prints shapes, has a test of its own: test_shape_tracer.py."""
    stored = golden(name)
    opened = tab.open(path_of(name, language))
    found = opened.evaluate(VISITED, [name, [case["state"] for case in stored["cases"]]])
    for case, shown in zip(stored["cases"], found, strict=True):
        wanted = {"scores": stored.get("scores"), **case}
        for numbers in wanted.keys() & shown["numbers"].keys():
            ours, theirs = flat(shown["numbers"][numbers]), flat(wanted[numbers])
            assert len(ours) == len(theirs)
            for one, other in zip(ours, theirs):
                assert math.isclose(one, other, **TOLERANCE) or (math.isnan(one) and math.isnan(other)), case["state"]
        for numbers in wanted.keys() & shown["printed"].keys():
            printed = shown["printed"][numbers]
            raised = wanted[numbers] is None
            texts = ["–"] * len(printed) if raised else [f"{number:.4f}" for number in flat(wanted[numbers])]
            assert printed == texts, (numbers, case["state"])


def test_the_code_that_is_shown_is_the_code_that_torch_ran(tab):
    stored = golden("mask-painter")
    cases, [first, *others] = stored["cases"], stored["libraries"]
    opened = tab.open(path_of("mask-painter", "en"))
    states = [*(case["state"] for case in cases), *({"library": library["name"]} for library in others)]
    codes = [
        *(f"{case['code']}\n{first['code']}" for case in cases),
        *(f"{cases[0]['code']}\n{one['code']}" for one in others),
    ]
    assert [shown["code"] for shown in opened.evaluate(VISITED, ["mask-painter", states])] == codes


# --- without JavaScript ---------------------------------------------------------------------------

# What stands on the page as it was sent, and as it is now: the cells of its tables, its picture, its code.
BOTH = """async name => {
    const sent = await (await fetch(location.pathname)).text()
    return [new DOMParser().parseFromString(sent, "text/html"), document].map(page => {
        const explorer = page.getElementById(name)
        const cells = [...explorer.querySelectorAll("td")].map(cell => [cell.className, cell.textContent])
        return [cells, ...["svg.picture", "code"].map(part => explorer.querySelector(part)?.outerHTML),
            [...explorer.querySelectorAll("tr")].map(row => row.className),
            [...new FormData(explorer.querySelector("form"))].length]
    })
}"""


@pytest.mark.parametrize(("name", "slug"), [*PAGES.items(), *OTHER_PAGES])
def test_the_page_comes_with_what_the_script_makes_of_its_first_state(tab, name, slug):
    opened = tab.open(site.Page("en", slug).path)
    sent, live = opened.evaluate(BOTH, name)
    assert sent[:-1] == live[:-1]
    assert (sent[-1], live[-1] > 0) == (0, True), "without the script no control can be used"


@every_language
def test_without_javascript_an_explorer_shows_its_first_state_and_no_controls(chromium, server, language):
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    for name in PAGES:
        opened.goto(server.url + path_of(name, language))
        explorer = opened.locator(f"#{name}")
        expect(explorer.locator("td:visible").first).to_be_visible()
        expect(explorer.locator("legend")).to_be_visible()
        assert explorer.locator(":is(button, select, [type=range], [type=radio])").locator("visible=true").count() == 0
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_machines_that_read_get_a_link_to_it(built, name):
    page = site.Page("zh", PAGES[name])
    legend = site.soup(built, page).select_one(f"#{name} legend").get_text()
    link = f"[{legend}]({site.SITE_URL}{page.path}#{name})"
    assert f"\n{link}\n" in (built / page.path / "index.md").read_text("utf-8")
    [notebook] = (built / page.path).glob("*.ipynb")
    assert link in notebook.read_text("utf-8")


# --- by mouse, by touch and by keyboard -----------------------------------------------------------


def said(language, sentence, /, **values):
    return words(language)[sentence].format(**values)


@every_language
def test_a_mask_is_painted_by_mouse_and_shared_by_its_address(tab, language):
    opened = tab.open(path_of("mask-painter", language))
    painter = opened.locator("#mask-painter")
    status, said_of = painter.get_by_role("status"), words(language)
    painter.get_by_label(said_of["side"]).select_option(said_of["right"])
    expect(status).to_have_text(said(language, "painted", visible=18, rows=said_of["none"]))
    row = painter.locator("[data-shows=weights] tbody tr").first
    expect(row).not_to_have_class("empty")
    painter.get_by_role("checkbox", name=said(language, "sees", one="Your", other="Your")).locator("..").click()
    expect(status).to_have_text(said(language, "painted", visible=17, rows="0"))
    expect(row).to_have_class("empty")
    expect(painter.get_by_label(said_of["pattern"])).to_have_value("hand")
    painter.get_by_role("radio", name="SDPA, boolean").check()
    assert painter.locator("[data-shows=mask] td").filter(has_text="True").count() == 17, "True = attend"
    assert "attn_mask=~masked" in painter.locator("code").inner_text()
    address = opened.url
    opened.goto("about:blank")
    opened.goto(address)
    expect(status).to_have_text(said(language, "painted", visible=17, rows="0"))
    expect(painter).to_be_in_viewport()
    painter.get_by_role("button", name=said_of["reset"]).click()
    expect(status).to_have_text(said(language, "painted", visible=10, rows="0, 1"))
    assert tab.at().endswith("#mask-painter")


@every_language
def test_a_mask_is_painted_by_keyboard(tab, language):
    opened = tab.open(path_of("mask-painter", language))
    painter = opened.locator("#mask-painter")
    pads, said_of = painter.get_by_label(words(language)["pads"]), words(language)
    pads.focus()
    opened.keyboard.press("Home")
    status = painter.get_by_role("status")
    expect(status).to_have_text(said(language, "painted", visible=21, rows=said_of["none"]))
    for key in ("Tab", "Tab", "Tab", "ArrowDown", "ArrowRight", "Space"):
        opened.keyboard.press(key)
    box = painter.get_by_role("checkbox", name=said(language, "sees", one="journey", other="journey"))
    expect(box).to_be_focused()
    expect(box).not_to_be_checked()
    expect(status).to_have_text(said(language, "painted", visible=20, rows=said_of["none"]))
    for key in ("Tab", "ArrowDown"):
        opened.keyboard.press(key)
    expect(painter.get_by_role("radio", name="softmax, finfo.min")).to_be_checked()
    opened.keyboard.press("Shift+Tab")
    expect(box).to_be_focused()


def test_the_code_of_a_mask_is_copied(tab):
    opened = tab.open(path_of("mask-painter", "it"))
    painter = opened.locator("#mask-painter")
    painter.get_by_role("button", name=words("it")["copy_code"]).click()
    expect(opened.locator("#said")).to_have_text(words("it")["code_copied"])
    copied = opened.evaluate("navigator.clipboard.readText()")
    assert copied == painter.locator("code").text_content()


def drag(opened, point, to):
    """Drag a point of the plane to a place in it."""
    plane = opened.locator("#one-query svg").bounding_box()
    start = opened.locator(f"[data-point={point}] circle").first.bounding_box()
    unit = plane["width"] / 4.4
    opened.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    opened.mouse.down()
    opened.mouse.move(
        plane["x"] + plane["width"] / 2 + unit * to[0], plane["y"] + plane["height"] / 2 - unit * to[1], steps=3
    )
    opened.mouse.up()


@every_language
def test_a_query_is_dragged_and_shared_by_its_address(tab, language):
    opened = tab.open(path_of("one-query", language))
    explorer = opened.locator("#one-query")
    explorer.scroll_into_view_if_needed()
    drag(opened, "q", (0, 0))
    expect(explorer.locator("td[data-shows=weights]")).to_have_text(["0.2000"] * 5)
    assert tab.at().endswith("#one-query?qx=0.0&qy=0.0")
    context = explorer.locator("td[data-shows=context]").all_inner_texts()
    facts = {"x": context[0], "y": context[1], "entropy": "1.6094", "equals": "5.0000"}
    expect(explorer.get_by_role("status")).to_have_text(said(language, "attended", **facts))
    drag(opened, "k3", (9, 9))
    expect(explorer.get_by_label("k3 x")).to_have_value("2.0")


@pytest.mark.parametrize("typed", ["9", "1.45", ""])
def test_a_number_that_the_plane_cannot_show_changes_nothing(tab, typed):
    opened = tab.open(path_of("one-query", "en"))
    explorer = opened.locator("#one-query")
    before = explorer.locator("table").all_inner_texts(), tab.at()
    number = explorer.get_by_label("k0 x")
    number.fill(typed)
    number.press("Enter")
    assert not number.evaluate("number => number.validity.valid")
    assert (explorer.locator("table").all_inner_texts(), tab.at()) == before
    number.blur()
    assert number.evaluate("number => getComputedStyle(number).outlineStyle") == "solid"
    number.fill("1.2")
    number.press("Enter")
    assert tab.at().endswith("#one-query?k0x=1.2")


@every_language
def test_a_query_is_moved_by_keyboard(tab, language):
    opened = tab.open(path_of("one-query", language))
    explorer = opened.locator("#one-query")
    explorer.get_by_label("q x").focus()
    opened.keyboard.press("ArrowDown")
    expect(explorer.get_by_label("q x")).to_have_value("1.4")
    explorer.get_by_label(words(language)["temperature"]).focus()
    opened.keyboard.press("ArrowRight")
    expect(explorer.locator("[data-shows=summary] td").first).to_have_text("1.4142")
    assert tab.at().endswith("#one-query?temperature=0.5&qx=1.4")


def nudged(language, name, place):
    """What the leak meter calls a token that can be nudged."""
    token = golden("leak-meter")["meters"][name][1][place]
    return said(language, "nudge", call=words(language)[name], place=place, token=token)


@every_language
def test_a_bug_is_chosen_and_a_token_nudged_by_mouse_and_shared_by_its_address(tab, language):
    opened = tab.open(path_of("leak-meter", language))
    meter = opened.locator("#leak-meter")
    status, verdict = meter.get_by_role("status"), meter.locator("[data-shows=verdict] td")
    meter.get_by_label(words(language)["bug"]).select_option("past only")
    meter.get_by_label(nudged(language, "causal", 0)).check()
    facts = {"bug": "past only", "nudged": nudged(language, "causal", 0), "leaks": 0, "lost": 6, "nan": 0, "raised": 0}
    expect(status).to_have_text(said(language, "measured", rows="1, 2, 3", **facts))
    expect(verdict).to_have_text(["past only", "gradient sdpa", "2"])
    assert tab.at().endswith("#leak-meter?bug=past+only&token=causal-0")
    address = opened.url
    opened.goto("about:blank")
    opened.goto(address)
    expect(status).to_have_text(said(language, "measured", rows="1, 2, 3", **facts))
    meter.get_by_label(words(language)["bug"]).select_option("flipped in place")
    facts = {"bug": "flipped in place", "nudged": nudged(language, "causal", 0), "probes": "state"}
    expect(status).to_have_text(said(language, "unseen", rows="0, 1, 2, 3", **facts))
    meter.get_by_role("button", name=words(language)["reset"]).click()
    expect(verdict.first).to_have_text("thrown away")


@every_language
def test_a_bug_is_chosen_and_a_token_nudged_by_keyboard(tab, language):
    opened = tab.open(path_of("leak-meter", language))
    meter = opened.locator("#leak-meter")
    meter.get_by_label(words(language)["bug"]).focus()
    opened.keyboard.press("Home")
    expect(meter.locator("[data-shows=verdict] td")).to_have_text(
        [words(language)["no_bug"], words(language)["none"], "0"]
    )
    for key in ("Tab", "Tab", "ArrowRight", "ArrowRight"):
        opened.keyboard.press(key)
    expect(meter.get_by_label(nudged(language, "padding", 1))).to_be_focused()
    facts = {
        "bug": words(language)["no_bug"],
        "nudged": nudged(language, "padding", 1),
        "probes": words(language)["none"],
    }
    expect(meter.get_by_role("status")).to_have_text(said(language, "unseen", rows="1, 2, 3", **facts))


# How many numbers are marked in each meter for each bug: those that leak, and those that are lost.
MARKED = """() => {
    const meter = document.getElementById("leak-meter")
    const { bug } = meter.querySelector("form").elements
    return [...bug.options].map(({ value }) => {
        bug.value = value
        meter.update()
        return [...meter.querySelectorAll(".tables table")].map(
            table => [".leak", ".lost"].map(mark => table.querySelectorAll(mark).length))
    })
}"""


def test_what_moves_and_must_not_and_what_must_and_does_not_is_marked(tab):
    stored = golden("leak-meter")
    right = stored["cases"][0]
    for case, marked in zip(stored["cases"], tab.open(path_of("leak-meter", "en")).evaluate(MARKED), strict=True):
        for name, (leaks, lost) in zip(stored["meters"], marked, strict=True):
            moved = [number > 5e-5 if number == number else None for number in flat(case[name] or [])]
            both = [*zip(moved, [number > 5e-5 for number in flat(right[name])])]
            assert (leaks, lost) == (both.count((True, False)), both.count((False, True))), (name, case["state"])


def test_fingers_paint_drag_and_nudge(chromium, server):
    context = chromium.new_context(has_touch=True, viewport={"width": 360, "height": 740})
    opened = context.new_page()
    opened.goto(server.url + path_of("mask-painter", "zh"))
    box = opened.locator("#mask-painter [data-shows=mask] label").first
    box.tap()
    expect(box.locator("input")).to_be_checked()
    smallest = opened.locator(
        "#mask-painter :is(label:has([type=checkbox], [type=radio]), button, select)"
    ).evaluate_all("all => Math.min(...all.map(one => one.getBoundingClientRect().height))")
    assert smallest >= 24
    opened.goto(server.url + path_of("one-query", "zh"))
    opened.locator("#one-query svg").scroll_into_view_if_needed()
    assert opened.locator("[data-point=q]").evaluate("point => getComputedStyle(point).touchAction") == "none"
    drag(opened, "q", (-1, 1))
    expect(opened.get_by_label("q x")).to_have_value("-1.0")
    opened.goto(server.url + path_of("leak-meter", "zh"))
    tokens = opened.locator("#leak-meter thead label")
    tokens.first.tap()
    expect(tokens.first.locator("input")).to_be_checked()
    assert tokens.evaluate_all("all => Math.min(...all.map(one => one.getBoundingClientRect().height))") >= 24
    context.close()


# --- addresses of others --------------------------------------------------------------------------

# The states of an explorer at some addresses; before each, a good one has led to another than the first.
STATES = """async ([name, fragments]) => {
    const explorer = document.getElementById(name)
    const other = {
        "mask-painter": "pads=5&side=right", "one-query": "temperature=4&qy=0.1", "leak-meter": "bug=inverted",
        "shape-tracer": "sizes=2",
    }[name]
    const found = []
    for (const fragment of fragments.flatMap(fragment => [other, fragment])) {
        const arrived = new Promise(resolve => addEventListener("hashchange", resolve, {once: true}))
        location.hash = `${name}?${fragment}`
        await arrived
        found.push(explorer.state)
    }
    return found.filter((_, i) => i % 2)
}"""
HOSTILE = [
    "pads=99",
    "pads=two",
    "pads=3&pattern=none",
    "size=2.5",
    "cells=zzzzzzzzz",
    "cells=<img src=x onerror=alert(1)>",
    "library=__proto__",
    "__proto__=1",
    "constructor=1&toString=2",
    "%E0%A4%A",
    "=&&=?#",
    "pads=3&nothing=1",
]


def test_an_address_that_names_no_state_leads_to_the_first(tab):
    opened = tab.open(f"{path_of('mask-painter', 'en')}#mask-painter?{HOSTILE[0]}")
    expect(opened.locator("#mask-painter [role=status]")).to_have_text(said("en", "painted", visible=10, rows="0, 1"))
    first = golden("mask-painter")["cases"][0]["state"] | {"library": "softmax"}
    assert opened.evaluate(STATES, ["mask-painter", HOSTILE]) == [first] * len(HOSTILE)
    opened = tab.open(path_of("one-query", "en"))
    hostile = ["qx=1e9", "qx=", "k9x=1", "temperature=0.3"]
    assert opened.evaluate(STATES, ["one-query", hostile]) == [golden("one-query")["cases"][0]["state"]] * len(hostile)
    opened = tab.open(path_of("leak-meter", "en"))
    hostile = ["bug=unknown", "bug=Inverted", 'token="]', "token=causal-9", "bug=no+mask&token=", "bug=no+mask&room=1"]
    first = {"bug": "thrown away", "token": "causal-3"}
    assert opened.evaluate(STATES, ["leak-meter", hostile]) == [first] * len(hostile)


# --- for everybody --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_in_an_explorer(tab, name, scheme):
    tab.page.emulate_media(color_scheme=scheme)
    opened = tab.open(path_of(name, "zh"))
    assert faults(opened, FAULTS | COLOURS if scheme == "dark" else FAULTS, f"#{name}") == []


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_an_explorer_has_its_numbers_and_no_controls(tab, name):
    opened = tab.open(path_of(name, "it"))
    opened.emulate_media(media="print")
    explorer = opened.locator(f"#{name}")
    expect(explorer.locator("[data-shows]").first).to_be_visible()
    assert explorer.locator(":is(button, select, [type=range], [type=radio])").locator("visible=true").count() == 0


# --- what a page takes ----------------------------------------------------------------------------


def test_all_explorers_together_take_at_most_15_kilobytes(built):
    files = [path.read_bytes() for path in (built / "assets/explorers").iterdir()]
    assert sum(len(site.compressed(data)) for data in files) <= MOST


def test_only_pages_with_an_explorer_load_one(built):
    for page in site.PAGES:
        html = (built / page.path / "index.html").read_text("utf-8")
        names = re.findall(r'class="explorer" id="([\w-]+)"', html)
        kernel = ["kernel.js"] if {"mask-painter", "one-query"}.intersection(names) else []
        wanted = ["explorers.css", *kernel, "explorer.js", *(f"{name}.js" for name in names)] if names else []
        assert re.findall(r'assets/explorers/([\w.-]+)"', html) == wanted
