"""The explorers print what torch computed, work by mouse, finger and keyboard, and stand still without JavaScript."""

import itertools
import json
import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tools.site import explorers
from tools.site.outputs import tint

# Each explorer where it is tested: the languages take turns.
PAGES = {
    "mask-painter": site.Page("it", "masks/combining"),
    "six-tokens": site.Page("it", "index"),
    "one-query": site.Page("zh", "foundations/weighted-average"),
    "leak-meter": site.Page("zh", "foundations/causal"),
    "shape-tracer": site.Page("it", "foundations/shapes"),
    "rope-clocks": site.Page("it", "position/rope"),
    "one-sentence": site.Page("it", "foundations/one-sentence"),
    "kv-grid": site.Page("zh", "cache/kv-cache"),
    "three-roles": site.Page("it", "foundations/queries-keys-values"),
    "kernel-choice": site.Page("it", "kernels/which-kernel"),
    "head-width": site.Page("it", "foundations/scale"),
    "word-lines": site.Page("zh", "cross/alignment"),
    "grouped-heads": site.Page("it", "cache/grouped"),
    "dropout-draws": site.Page("zh", "practice/dropout"),
    "qkv-rows": site.Page("it", "practice/fused-qkv"),
    "planted-bug": site.Page("zh", "practice/kit"),
    "last-digits": site.Page("it", "practice/same-seed"),
    "head-out": site.Page("zh", "practice/look-inside"),
}
OTHER_PAGES = [
    ("one-query", site.Page("en", "foundations/softmax")),
    ("leak-meter", site.Page("en", "masks/padding")),
    ("leak-meter", site.Page("zh", "masks/transformer-layers")),
    ("mask-painter", site.Page("zh", "kernels/flex-attention")),
    ("shape-tracer", site.Page("en", "foundations/many-heads")),
    ("shape-tracer", site.Page("zh", "cross/cross-attention")),
]
CONTROLS = ":is(button, select, [type=range], [type=radio])"

TOKENS = ["Your", "journey", "starts", "with", "one", "step"]

every_explorer = pytest.mark.parametrize("name", PAGES)


def golden(name):
    return json.loads((site.ROOT / f"verified/explorers/{name}.json").read_text("utf-8"))


def words(language):
    return explorers.words(site.ROOT / "languages/explorers.csv", language)


def open_explorer(tab, name):
    """The page of an explorer, the explorer, and its words."""
    opened = tab.open(PAGES[name].path)
    return opened, opened.locator(f"#{name}"), words(PAGES[name].language)


def short(number):
    """A number in a table: with two decimals, but for 0."""
    return f"{number:.2f}" if number else "0"


def open_again(opened):
    """Follow the address of a page, as somebody does to whom it was sent."""
    address = opened.evaluate("location.href")
    opened.goto("about:blank")
    opened.goto(address)


def flat(numbers):
    """The numbers of lists, whatever their depth; what a page has not been computed from is no number."""
    return [one for part in numbers for one in flat(part)] if isinstance(numbers, list) else [numbers]


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
        const short = Object.fromEntries(shown.map(name => [name, printed(name)]))
        explorer.decimals?.click()
        found.push({
            short, numbers: explorer.compute(explorer.state), code: explorer.querySelector("code")?.textContent,
            printed: Object.fromEntries(shown.map(name => [name, printed(name)])),
        })
        explorer.decimals?.click()
    }
    return found
}"""


@pytest.mark.parametrize("name", [name for name in PAGES if name not in {"shape-tracer", *explorers.MOVING}])
def test_an_explorer_computes_prints_and_writes_what_torch_does(tab, name):
    """The shape tracer and the figures that move have tests of their own: test_shape_tracer.py and test_moving.py."""
    stored = golden(name)
    cases = stored["cases"]
    if name == "leak-meter":  # whose first three cases differ in the token alone, and a token belongs to one page
        cases = [case | {"state": {"bug": case["state"]["bug"]}} for case in cases[2:]]
    visited = tab.open(PAGES[name].path).evaluate(VISITED, [name, [case["state"] for case in cases]])
    for case, shown in zip(cases, visited, strict=True):
        assert shown["code"] == case.get("code")
        wanted = {"scores": stored.get("scores"), **case}
        for numbers in wanted.keys() & shown["numbers"].keys():
            theirs = flat(wanted[numbers])
            if not any(isinstance(one, str) for one in theirs):  # texts are compared to the letter
                theirs = pytest.approx(theirs, rel=1e-6, abs=1e-6, nan_ok=True)
            assert flat(shown["numbers"][numbers]) == theirs, (numbers, case["state"])
        for numbers in wanted.keys() & shown["printed"].keys():
            printed = shown["printed"][numbers]
            raised = wanted[numbers] is None
            texts = ["–"] * len(printed) if raised else [f"{number:.4f}" for number in flat(wanted[numbers])]
            assert printed == texts, (numbers, case["state"])
            if name != "six-tokens":
                texts = (
                    ["–"] * len(printed)
                    if raised
                    else [
                        short(round(number, 4) if name == "leak-meter" else number) for number in flat(wanted[numbers])
                    ]
                )
                assert shown["short"][numbers] == texts, (numbers, case["state"])


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


@pytest.mark.parametrize(("name", "page"), [*PAGES.items(), *OTHER_PAGES], ids=str)
def test_the_page_comes_with_what_the_script_makes_of_its_first_state(tab, name, page):
    sent, live = tab.open(page.path).evaluate(BOTH, name)
    assert sent[:-1] == live[:-1]
    assert (sent[-1], live[-1] > 0) == (0, True), "without the script no control can be used"


@every_explorer
@pytest.mark.parametrize(("medium", "kind"), [("screen", "bare"), ("print", "tab")])
def test_without_scripts_and_on_paper_an_explorer_stands_in_its_first_state(request, name, medium, kind):
    tab = request.getfixturevalue(kind)
    tab.page.emulate_media(media=medium)
    explorer = tab.open(PAGES[name].path).locator(f"#{name}")
    expect(explorer.locator("td:visible").first).to_be_visible()
    expect(explorer.locator("legend")).to_be_visible()
    assert explorer.locator(CONTROLS).locator("visible=true").count() == 0


# --- by mouse, by touch and by keyboard -----------------------------------------------------------


def rows(said, *tokens):
    """How a figure names the rows of tokens: row 0 (Your), row 1 (journey)."""
    return said["comma"].join(said["named_row"].format(place=TOKENS.index(token), name=token) for token in tokens)


def test_a_planted_bug_shows_its_line_the_probes_that_fail_and_what_they_say(tab):
    _, explorer, said = open_explorer(tab, "planted-bug")
    cases = {case["state"]["bug"]: case for case in golden("planted-bug")["cases"]}
    for bug, count in {"none": 0, "no scale": 1, "dropped in eval": 10}.items():
        explorer.locator("select").select_option(bug)
        case = cases[bug]
        assert explorer.locator("code").all_text_contents()[:2] == [case["code"], case["right"]]
        sentences = [f"{probe} {words}" for probe, words in case["said"].items()]
        assert explorer.locator("li").all_text_contents() == sentences
        expect(explorer.locator("tr.fails")).to_have_count(count)
        names = said["comma"].join(case["said"])
        told = said["plant_said"].format(count=count, names=names) if count else said["plant_said_none"]
        expect(explorer.get_by_role("status")).to_have_text(told)


def test_a_mask_is_painted_for_a_call_copied_and_shared_by_its_address(tab):
    opened, painter, said = open_explorer(tab, "mask-painter")
    status = painter.get_by_role("status")
    painter.get_by_label(said["side"]).select_option(said["right"])
    expect(status).to_have_text(said["painted"].format(visible=18, rows=said["none"]))
    painter.get_by_role("checkbox").first.locator("..").click()
    painted = said["painted"].format(visible=17, rows=rows(said, "Your"))
    expect(status).to_have_text(f"{painted} {said['given'].format(call='softmax, -inf', weight='nan')}")
    expect(painter.locator("[data-shows=weights] tr.empty td.odd")).to_have_text(["nan"] * 6)
    painter.get_by_label(said["library"]).select_option("SDPA, boolean")
    expect(painter.locator("[data-shows=mask] td").filter(has_text="True")).to_have_count(17)  # True = attend
    expect(painter.locator("tr.empty td.nil")).to_have_text(["False"] * 6 + ["0"] * 10)
    painter.get_by_role("button", name=said["copy_code"]).click()
    tab.hears(said["code_copied"])
    assert "attn_mask=visible" in tab.clipboard() == painter.locator("code").text_content()
    open_again(opened)
    expect(status).to_have_text(f"{painted} {said['given'].format(call='SDPA, boolean', weight='0.0000')}")
    expect(painter).to_be_in_viewport()


LOOKS = """painter => [...painter.querySelectorAll("[data-shows=mask] tbody td")].map(cell => [
    cell.className, cell.textContent, getComputedStyle(cell).backgroundImage !== "none",
    cell.querySelector("input").checked])"""


def test_a_mask_is_tinted_as_its_page_prints_it_and_striped_where_a_key_is_hidden(tab):
    opened, painter, said = open_explorer(tab, "mask-painter")
    library = painter.get_by_label(said["library"])
    for option in golden("mask-painter")["libraries"]:
        library.select_option(option["name"])
        hidden = golden("mask-painter")["entries"][option["says"]][0]
        for tone, entry, striped, sees in painter.evaluate(LOOKS):
            printed = entry.replace("min", "-3.4028e+38")
            assert tint(f"tensor([{printed}])") == f'tensor([<span class="{tone}">{printed}</span>])'
            assert striped == (not sees) == (entry == hidden)
    opened.goto(tab.server.url)
    looks = opened.locator("#six-tokens").evaluate(LOOKS)
    assert {(striped, sees) for _, _, striped, sees in looks} == {(True, False), (False, True)}


def pasted(tab):
    """The numbers that what is on the clipboard prints, in a Python of its own."""
    pipes = {"input": tab.clipboard(), "capture_output": True, "encoding": "utf-8"}
    run = subprocess.run([sys.executable, "-"], check=False, **pipes)
    assert run.returncode == 0, run.stderr
    return re.findall(r"-?\d\.\d{4}|nan", run.stdout)


COPIED = [
    "",
    "library=softmax-lowest&pattern=window&size=3&documents=2",
    "library=sdpa&pattern=hand&cells=802f0b440",
    "library=sdpa-inf&side=right&pads=1",
    "library=sdpa-lowest&pattern=full&pads=6",
    "library=mha-weights&pattern=prefix&size=4&pads=0",
    "library=mha&documents=3",
    "library=flex&pads=3",
    "library=flex&pattern=window&documents=2&pads=0",
    "library=flex&pattern=hand&cells=802f0b440",
]


@pytest.mark.parametrize("state", COPIED)
def test_the_painter_copies_a_program_that_prints_the_contexts_shown(tab, state):
    painter = tab.open(f"masks/combining/#mask-painter?{state}").locator("#mask-painter")
    painter.get_by_role("button", name=words("en")["decimals"]).click()
    painter.get_by_role("button", name=words("en")["copy_code"]).click()
    tab.hears(words("en")["code_copied"])
    contexts = painter.locator("[data-shows=output] td:not([data-shows]):not(:empty)").all_inner_texts()
    assert pasted(tab) == contexts
    assert len(contexts) == 18


def middle(part):
    box = part.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_query_is_dragged_and_shared_by_its_address(tab):
    opened, explorer, said = open_explorer(tab, "one-query")
    explorer.scroll_into_view_if_needed()
    opened.mouse.move(*middle(explorer.locator("[data-point=q] circle").first))
    opened.mouse.down()
    opened.mouse.move(*middle(explorer.locator("svg")), steps=3)
    opened.mouse.up()
    tab.ends_at("#one-query?qx=0.0&qy=0.0")
    open_again(opened)
    expect(explorer.locator("td[data-shows=weights]")).to_have_text(["0.20"] * 5)
    explorer.get_by_role("button", name=said["decimals"]).press("Enter")
    expect(explorer.locator("td[data-shows=weights]")).to_have_text(["0.2000"] * 5)
    x, y = explorer.locator("td[data-shows=context]").all_inner_texts()
    sentence = said["attended"].format(x=x, y=y, entropy="1.6094", equals="5.0000")
    expect(explorer.get_by_role("status")).to_have_text(sentence)
    temperature = explorer.get_by_label(said["temperature"])
    temperature.press("ArrowRight")
    expect(temperature).to_have_attribute("aria-valuetext", "1.4142")
    expect(explorer.locator("[name=temperature] + span")).to_have_text("1.4142")


def test_a_number_that_the_plane_cannot_show_changes_nothing(tab):
    _, explorer, _ = open_explorer(tab, "one-query")
    before, number = explorer.locator("table").all_inner_texts(), explorer.get_by_label("k0 x")
    for typed in ("9", "1.45", ""):
        number.fill(typed)
        number.press("Enter")
        assert not number.evaluate("number => number.validity.valid")
        assert explorer.locator("table").all_inner_texts() == before
        tab.ends_at(PAGES["one-query"].path)


def test_the_leak_meter_says_which_rows_move_folds_the_rest_and_leads_to_the_museum(tab):
    opened, meter, said = open_explorer(tab, "leak-meter")
    status, link, summary = meter.get_by_role("status"), meter.get_by_role("link"), meter.locator("summary")
    effects, bug = meter.locator("[data-shows=causal] tbody [data-shows=effect]"), meter.get_by_label(said["bug"])
    expect(bug).to_have_value("none")
    expect(effects).to_have_text([""] * 5 + [said["moves"]])
    bug.select_option(label=said["past only"])
    meter.get_by_role("radio", name="Your").check()
    tab.ends_at("#leak-meter?bug=past+only&token=causal-0")
    open_again(opened)
    expect(effects).to_have_text([said["lost"]] + [said["moves"]] * 5)
    others = said["others"].format(leaks=0, lost=2, nan=0, raised=0)
    expect(summary).to_have_text(others)
    nudged = said["nudge"].format(call=said["causal"].capitalize(), place=0, token="Your")
    sentence = said["measured"].format(
        bug=said["past only"],
        nudged=nudged,
        moves=rows(said, *TOKENS[1:]),
        leak=said["none"],
        lost=rows(said, "Your"),
        others=others,
    )
    expect(status).to_have_text(sentence)
    expect(meter.locator("table:visible")).to_have_count(1)
    summary.click()
    expect(meter.locator("table:visible")).to_have_count(3)
    bug.select_option("flipped in place")
    facts = {"bug": said["flipped in place"], "moves": rows(said, *TOKENS), "probes": "state"}
    expect(status).to_have_text(said["unseen"].format(nudged=nudged, **facts))
    expect(link).to_have_text(said["exhibit"].format(number=10, bug=said["flipped in place"]))
    link.click()
    tab.ends_at("practice/museum/#room-state")
    expect(opened.locator("#room-state")).to_be_in_viewport()


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_the_bugs_of_the_leak_meter_stand_under_the_headings_of_the_museum(built, language):
    meter = site.html(built, site.Page(language, "foundations/causal")).css_first("#leak-meter")
    museum = site.html(built, site.Page(language, "practice/museum"))
    groups = {group.attributes["data-room"]: group for group in meter.css("optgroup")}
    for room, group in groups.items():
        [heading] = museum.css(f"h2#{room}")
        assert group.attributes["label"] == heading.text(deep=False).strip()
    assert (len(groups), sum(len(group.css("option")) for group in groups.values())) == (10, 38)


def test_a_number_of_the_leak_meter_says_what_it_is(phone):
    opened, meter, said = open_explorer(phone, "leak-meter")
    status, cells = meter.get_by_role("status"), meter.locator("[data-shows=causal] tbody td:not([data-shows])")

    def says(bug, verdict, number="", row=0, place=5):
        nudged = said["nudge"].format(call=said["causal"].capitalize(), place=place, token=TOKENS[place])
        verdict = said[verdict].format(number=number)
        sentence = said["reading"].format(bug=bug, nudged=nudged, where=rows(said, TOKENS[row]), verdict=verdict)
        expect(status).to_have_text(sentence)

    cells.nth(5).tap()
    says(said["no_bug"], "fits", "0.0000")
    cells.nth(5).press("ArrowDown")
    expect(cells.nth(11)).to_be_focused()
    says(said["no_bug"], "fits", "0.0000", row=1)
    opened.keyboard.press("ArrowRight")  # there is none
    expect(meter.get_by_role("grid").first.locator("[tabindex]")).to_have_count(1)
    verdicts = {"thrown away": "leaks", "past only": "misses", "cut by view": "fits", "empty rows": "fits"}
    for case in golden("leak-meter")["cases"][2:]:
        bug, place = case["state"]["bug"], 0 if case["state"]["bug"] == "past only" else 5
        if bug not in verdicts:
            continue
        meter.get_by_label(said["bug"]).select_option(bug)
        cells.nth(place).tap()
        exhibit = said["exhibit"].format(number=case["room"], bug=said[bug])
        says(exhibit, verdicts[bug], f"{case['causal'][0][place]:.4f}", place=place)
    meter.locator("summary").tap()
    for bug, verdict in {"query softmax": "is_nan", "decoder length": "raises"}.items():
        meter.get_by_label(said["bug"]).select_option(bug)
        meter.locator("[data-shows=cross] tbody td").first.tap()
        expect(status).to_contain_text(said[verdict])


def test_dropout_is_called_again_by_one_button_up_to_the_last_call(tab):
    opened, figure, said = open_explorer(tab, "dropout-draws")
    again, stored = figure.locator("[data-more]"), golden("dropout-draws")
    again.focus()
    for count, following in itertools.pairwise(stored["calls"]):
        expect(again).to_have_text(said["drop_more"].format(count=following - count))
        opened.keyboard.press("Enter")
    opened.keyboard.press("Enter")
    tab.ends_at("#dropout-draws?calls=11")
    expect(again).to_be_focused()
    expect(again).to_have_attribute("aria-disabled", "true")
    case = stored["cases"][11]
    _, row, mean = case["sums"]
    facts = {"dropped": case["row"].count(0), "factor": "2.00", "sum": short(row), "mean": short(mean)}
    expect(figure.get_by_role("status")).to_have_text(said["drop_said"].format(count=1000, **facts))


def test_a_number_that_is_tapped_is_added_first_and_digits_that_differ_are_marked(phone):
    _, figure, said = open_explorer(phone, "last-digits")
    terms, drawn = figure.locator(".terms button"), golden("last-digits")["seconds"]["moved"]["numbers"]
    expect(terms).to_have_text(drawn[::-1])
    for place in range(4, -1, -1):
        terms.get_by_text(drawn[place], exact=True).tap()
    expect(terms).to_have_text(drawn)
    phone.ends_at("#last-digits?order=01234")
    expect(figure.locator("em")).to_have_text([""] * 3)
    terms.nth(2).tap()
    expect(figure.locator(".second")).to_have_text(["1.7969", "1.79239988", "1.7923999999999998"])
    expect(figure.locator("em")).to_have_text(["969", "39988", ""])
    status = figure.get_by_role("status")
    expect(status).to_have_text(said["digits_said_moved"].format(single="1e-07", double="0"))


def test_a_head_that_is_tapped_is_out_and_one_that_is_tapped_again_is_back(phone):
    _, figure, said = open_explorer(phone, "head-out")
    row, status = figure.locator("tbody tr").nth(1), figure.get_by_role("status")
    for sentence, head in ("out_said", "?head=1"), ("out_said_all", ""):
        row.tap()
        expect(status).to_have_text(said[sentence].format(head=1, food="fish" if not head else "soup"))
        phone.ends_at(f"#head-out{head}")


@pytest.mark.parametrize(
    ("name", "label", "keys", "state"),
    [
        ("mask-painter", "pads", f"Home{' Tab' * 7} ArrowDown ArrowRight Space", "pattern=hand&pads=0&cells=820e3cfbf"),
        (
            "six-tokens",
            "causal",
            "ArrowRight Tab ArrowLeft Tab ArrowDown ArrowRight Space",
            "pattern=hand&cells=820e1c387&query=1",
        ),
        ("one-query", "temperature", "ArrowLeft ArrowRight ArrowRight", "temperature=0.5"),
        ("leak-meter", "bug", "ArrowDown Tab Tab Tab Tab Tab ArrowLeft ArrowLeft", "bug=thrown+away&token=causal-3"),
        ("shape-tracer", "sizes", "ArrowDown", "sizes=1"),
        ("rope-clocks", "layout", "ArrowDown", "layout=pairs"),
        ("one-sentence", "frame", "ArrowRight ArrowRight", "frame=2"),
        ("kv-grid", "mask", "ArrowDown ArrowDown", "rule=none"),
        ("three-roles", "roles_start", "ArrowDown", "start=hand"),
        ("kernel-choice", "pick_axes", "ArrowDown Tab ArrowUp", "axes=3&mask=is_causal%2C+Tq+%3C+Tk"),
        ("head-width", "head_width", "ArrowRight ArrowRight", "width=6"),
        ("word-lines", "lines_steps", "ArrowUp Tab ArrowRight", "steps=30&place=4"),
        ("grouped-heads", "num_kv_heads", "ArrowRight Tab ArrowDown", "doublings=2&order=repeat"),
        ("dropout-draws", "p", "ArrowLeft Tab ArrowDown", "percent=40&mode=eval"),
        ("qkv-rows", "qkv_stored", "ArrowDown ArrowDown Tab ArrowDown", "stored=groups&cut=split"),
        ("planted-bug", "bug", "ArrowDown ArrowDown", "bug=triangle+off"),
        ("last-digits", "digits_second", f"ArrowDown ArrowDown{' Tab' * 8} Enter Enter", "second=bug&order=10432"),
        ("head-out", "out_remove", "ArrowDown ArrowDown Tab ArrowDown", "head=1&place=outputs"),
    ],
)
def test_a_state_is_chosen_by_keyboard_sent_as_a_link_and_undone(tab, name, label, keys, state):
    opened, explorer, said = open_explorer(tab, name)
    sent, undo = explorer.locator("td").all_text_contents(), explorer.get_by_role("button", name=said["undo"])
    expect(undo).to_be_disabled()
    explorer.get_by_label(said.get(label, label)).first.focus()
    for key in keys.split():
        opened.keyboard.press(key)
    tab.ends_at(f"#{name}?{state}")
    chosen = explorer.locator("td").all_text_contents()
    explorer.get_by_role("button", name=said["copy_link"]).press("Enter")
    tab.hears(said["link_copied"])
    link = tab.clipboard()
    while undo.is_enabled():
        undo.press("Enter")
    tab.ends_at(f"#{name}")
    assert explorer.locator("td").all_text_contents() == sent
    opened.goto("about:blank")
    opened.goto(link)
    tab.ends_at(f"{PAGES[name].path}#{name}?{state}")
    assert explorer.locator("td").all_text_contents() == chosen


def touch(opened):
    """A function that tells the browser what fingers do: kinds of event, each with places. Playwright can only tap."""
    session = opened.context.new_cdp_session(opened)

    def fingers(*events):
        for kind, *places in events:
            points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
            session.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

    return fingers


def swipe(opened, start, *points):
    """Move a finger from point to point."""
    touch(opened)(("Start", start), *(("Move", point) for point in points), ("End",))


def test_a_finger_paints_and_a_second_one_that_zooms_leaves_nothing_behind(phone):
    opened, painter, _ = open_explorer(phone, "mask-painter")
    boxes, undo = painter.locator("[data-shows=mask] input"), painter.locator("[data-undo]")
    painter.locator("[data-shows=mask]").scroll_into_view_if_needed()
    before, places = opened.evaluate("scrollY"), [middle(boxes.nth(entry)) for entry in (3, 4, 5, 35)]
    fingers = touch(opened)
    for end in [("Start", *places[2:]), ("End",)], [("Cancel",)]:
        fingers(("Start", places[0]), ("Move", places[1]), ("Move", places[2]))
        opened.wait_for_function("window['mask-painter'].address.includes('hand')")
        fingers(*end)
        opened.wait_for_function("window['mask-painter'].address === '#mask-painter'")
        expect(undo).to_be_disabled()
    swipe(opened, *places)
    phone.ends_at("#mask-painter?pattern=hand&cells=1c124d3cf")
    expect(painter.locator("[data-shows=mask] :checked")).to_have_count(17)
    assert opened.evaluate("scrollY") == before


@pytest.mark.parametrize("name", ["mask-painter", "six-tokens"])
def test_a_finger_that_moves_up_scrolls_and_paints_nothing(phone, name):
    opened, figure, _ = open_explorer(phone, name)
    boxes = figure.locator("[data-shows=mask] input")
    boxes.last.scroll_into_view_if_needed()
    x, y = middle(boxes.nth(33))
    before, address = opened.evaluate("scrollY"), opened.url
    swipe(opened, (x, y), *((x, y - way) for way in (30, 60, 90, 120)))
    opened.wait_for_function("before => scrollY > before", arg=before)
    expect(figure.locator("[data-undo]")).to_be_disabled()
    assert opened.url == address


def test_a_finger_drags_a_query_and_scrolls_where_nothing_can_be_dragged(phone):
    opened, explorer, _ = open_explorer(phone, "one-query")
    plane = explorer.locator("svg")
    plane.scroll_into_view_if_needed()
    (x, y), unit, before = middle(plane), plane.bounding_box()["width"] / 4.4, opened.evaluate("scrollY")
    at = middle(explorer.locator("[data-point=q] .hit"))
    swipe(opened, at, *((at[0], at[1] - step) for step in (20, 40, 60)), (x - unit, y - unit))
    phone.ends_at("#one-query?qx=-1.0&qy=1.0")
    assert opened.evaluate("scrollY") == before
    swipe(opened, *((x - unit, y + unit - step) for step in (0, 40, 80, 120)))
    opened.wait_for_function("before => scrollY > before", arg=before)


# A figure at its highest, and those of its parts that a phone shows together.
FITTING = {
    "it/masks/combining/#mask-painter?pattern=hand&library=flex": [".controls", "[data-shows=output]"],
    "it/foundations/softmax/#one-query": ["legend", "[data-shows=summary]"],
    "it/foundations/scale/#head-width": [".controls", "table"],
    "it/cross/cross-attention/#shape-tracer": [".bar"],
    "it/position/rope/#rope-clocks?frame=10&layout=pairs": [".controls", ".player"],
    "it/foundations/one-sentence/#one-sentence?frame=6": ["legend", ".player"],
    "it/cache/kv-cache/#kv-grid?frame=2&rule=is_causal": [".controls", ".player"],
    "it/foundations/queries-keys-values/#three-roles?frame=5&start=hand": [".controls", ".player"],
    "it/kernels/which-kernel/#kernel-choice?device=9.0&axes=3&dropout=0.1": [".controls", "table"],
    "zh/cross/alignment/#word-lines?sentence=1&steps=30": [".controls", "table"],
    "it/cache/grouped/#grouped-heads?doublings=3&order=repeat": [".controls", "table"],
    "it/practice/dropout/#dropout-draws?percent=60&calls=11": [".controls", "table"],
    "it/practice/fused-qkv/#qkv-rows?stored=unequal": [".controls", "table"],
    "it/practice/same-seed/#last-digits?second=bug": ["legend", "[role=status]"],
    "it/practice/look-inside/#head-out?head=1&place=outputs": [".controls", "[role=status]"],
    "it/practice/kit/#planted-bug?bug=dropped+in+eval": [".controls", "table"],
    "zh/foundations/causal/#leak-meter?bug=inverted": [".controls", "[data-shows=causal]", "[role=status]"],
}
# The gaps between the numbers of a row, in pixels.
GAPS = """explorer => [...explorer.querySelectorAll("tr")].flatMap(row => {
    const numbers = [...row.cells].filter(cell => /^-?[0-9]+[.][0-9]{4}$/.test(cell.textContent)).map(cell => {
        const text = document.createRange()
        text.selectNodeContents(cell)
        return text.getBoundingClientRect()
    })
    return numbers.slice(1).map((number, i) => number.left - numbers[i].right)
})"""


@pytest.mark.parametrize("path", FITTING)
def test_a_figure_fits_a_laptop_what_changes_a_phone_and_its_numbers_any_screen(tab, path):
    explorer = tab.open(path).locator(re.search(r"#[\w-]+", path)[0])
    header = tab.page.locator(".md-header").bounding_box()["height"]
    for width, height, parts in [(1280, 720, [explorer]), (390, 844, map(explorer.locator, FITTING[path]))]:
        tab.page.set_viewport_size({"width": width, "height": height})
        boxes = [part.bounding_box() for part in parts]
        taken = max(box["y"] + box["height"] for box in boxes) - min(box["y"] for box in boxes)
        assert taken <= height - header, (width, taken)
    explorer.locator("details").evaluate_all("parts => parts.forEach(part => { part.open = true })")
    explorer.locator("[data-decimals]").evaluate_all("buttons => buttons.forEach(button => button.click())")
    for width in (320, 390, 640, 720, 1000, 1280):
        tab.page.set_viewport_size({"width": width, "height": 800})
        assert min(explorer.evaluate(GAPS), default=3) > 2, width
        assert not explorer.evaluate("explorer => explorer.scrollWidth > explorer.clientWidth"), width


# --- addresses of others --------------------------------------------------------------------------

HOSTILE = {
    "mask-painter": ["pads=99", "cells=<img src=x onerror=alert(1)>", "library=__proto__", "%E0%A4%A"],
    "six-tokens": ["query=6", "pattern=__proto__", "cells=<b>", "query=0&pattern=hand&cells=0208e3cf"],
    "one-query": ["qx=1e9", "qx=", "k9x=1", "temperature=0.3", "constructor=1&toString=2"],
    "leak-meter": ["bug=unknown", 'token="]', "token=causal-9", "=&&=?#"],
    "shape-tracer": ["sizes=9", "line=1.1", "line=%22", "sizes=1&line=<b>"],
    "rope-clocks": ["frame=11", "frame=-1", "frame=1.5", "layout=<b>", "layout=__proto__&frame=2"],
    "one-sentence": ["frame=10", "frame=two", "frame=<b>"],
    "kv-grid": ["frame=6", "rule=__proto__", "rule=<b>&frame=2", "rule="],
    "three-roles": ["frame=6", "start=__proto__", "end=<b>&frame=2", "end=wide&start="],
    "word-lines": ["sentence=3", "steps=__proto__", "place=9&steps=30", "place=<b>"],
    "kernel-choice": ["axes=5", "device=__proto__", "mask=<b>&axes=3", "dtype="],
    "head-width": ["width=9", "width=0.5", "scale=__proto__", "scale=<b>&width=2"],
    "grouped-heads": ["doublings=4", "doublings=0.5", "order=__proto__", "order=<b>&doublings=2"],
    "dropout-draws": ["calls=12", "percent=45", "percent=70", "mode=__proto__", "mode=<b>&calls=2"],
    "qkv-rows": ["stored=__proto__", "cut=view&stored=", "stored=<b>&cut=split", "cut=chunk(3)"],
    "planted-bug": ["bug=__proto__", "bug=<b>", "bug=", "bug=none&probe=reads"],
    "last-digits": ["order=", "order=01233", "order=012345", "second=__proto__", "second=<b>&order=01234"],
    "head-out": ["head=6", "head=__proto__&place=outputs", "place=<b>&head=1", "head="],
}


@every_explorer
def test_an_address_that_names_no_state_leads_to_the_first(tab, name):
    for fragment in HOSTILE[name]:
        tab.page.goto("about:blank")
        opened = tab.open(f"{PAGES[name].path}#{name}?{fragment}")
        state, first = opened.evaluate("id => { const { state, first } = window[id]; return [state, first] }", name)
        assert state == first, fragment


def test_only_pages_with_an_explorer_load_one(built):
    for page in site.PAGES:
        html = (built / page.path / "index.html").read_text("utf-8")
        names = re.findall(r'class="explorer" id="([\w-]+)"', html)
        kernel = ["kernel.js"] if explorers.COMPUTING.intersection(names) else []
        shared = [*["painting"] * bool(explorers.PAINTING & {*names}), *["moving"] * bool(explorers.MOVING & {*names})]
        parts = ["explorer", *shared, *names] if names else []
        wanted = [*(f"{part}.css" for part in parts), *kernel, *(f"{part}.js" for part in parts)]
        assert re.findall(r'assets/explorers/([\w.-]+)"', html) == wanted
