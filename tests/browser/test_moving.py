"""Figures that move: frames are stepped by mouse, finger and keyboard or played once, and show what torch computed."""

import itertools
import math

import pytest
from playwright.sync_api import expect

from tests.browser.test_explorers import PAGES, golden, middle, open_again, open_explorer, short, swipe
from tools.site.explorers import MOVING

every_moving = pytest.mark.parametrize("name", [name for name in PAGES if name in MOVING])


def stands_at(figure, frame):
    """Wait until a figure shows one sentence, that of a frame, and its slider stands there; return the sentence."""
    sentence = figure.locator(".steps > li").nth(frame)
    expect(sentence).to_be_visible()
    expect(figure.locator(".steps > li:visible")).to_have_count(1)
    expect(figure.locator("[name=frame]")).to_have_value(str(frame))
    return sentence.text_content()


def last_of(figure):
    return figure.locator(".steps > li").count() - 1


@every_moving
def test_frames_are_stepped_by_buttons_keys_and_slider_announced_shared_and_undone(tab, name):
    opened, figure, said = open_explorer(tab, name)
    back, on = (figure.get_by_role("button", name=said[way], exact=True) for way in ("back", "on"))
    slider, status, last = figure.locator("[name=frame]"), figure.get_by_role("status"), last_of(figure)
    stands_at(figure, 0)
    expect(back).to_have_attribute("aria-disabled", "true")
    back.press("Enter")
    on.click()
    assert status.text_content().startswith(stands_at(figure, 1))
    on.press("ArrowRight")
    stands_at(figure, 2)
    on.press("ArrowLeft")
    tab.ends_at(f"#{name}?frame=1")
    slider.press("End")
    stands_at(figure, last)
    expect(slider).to_have_attribute("aria-valuetext", f"{last + 1} / {last + 1}")
    expect(on).to_have_attribute("aria-disabled", "true")
    on.press("Enter")
    tab.ends_at(f"#{name}?frame={last}")
    open_again(opened)
    stands_at(figure, last)
    figure.get_by_role("button", name=said["reset"]).click()
    figure.get_by_role("button", name=said["undo"]).click()
    assert status.text_content().startswith(stands_at(figure, last))


@every_moving
def test_a_finger_swipes_frames_and_neither_taps_nor_scrolls_do(phone, name):
    opened, figure, _ = open_explorer(phone, name)
    stage = figure.locator(".stage")
    stage.scroll_into_view_if_needed()
    x, y = middle(stage)
    left, up = [(x - way, y) for way in (20, 60, 100)], [(x, y - way) for way in (20, 60, 100)]
    swipe(opened, (x, y), *left)
    phone.ends_at(f"#{name}?frame=1")
    swipe(opened, (x, y), left[0])
    before = opened.evaluate("scrollY")
    swipe(opened, (x, y), *up)
    opened.wait_for_function("before => scrollY > before", arg=before)
    stands_at(figure, 1)
    stage.scroll_into_view_if_needed()
    x, y = middle(stage)
    swipe(opened, (x, y), *((x + way, y) for way in (20, 60, 100)))
    stands_at(figure, 0)


@every_moving
def test_a_figure_is_played_once_to_its_end_and_paused(tab, name):
    _, figure, said = open_explorer(tab, name)
    player = figure.locator("[data-play]")
    player.click()
    expect(player).to_have_text(said["pause"])
    player.click()
    expect(player).to_have_text(said["play"])
    stands_at(figure, 0)
    figure.evaluate("figure => { figure.dataset.beat = 20 }")
    for _ in range(2):  # from its end it begins anew
        player.click()
        expect(player).to_have_text(said["play"])
        stands_at(figure, last_of(figure))
        tab.ends_at(f"#{name}?frame={last_of(figure)}")
        tab.hears(figure.get_by_role("status").text_content())


# How many parts of a figure are on their way, after each step from frame to frame.
ON_THEIR_WAY = """async name => {
    const figure = document.getElementById(name)
    const counts = []
    for (const _ of figure.sentences.slice(1)) {
        figure.go(1)
        counts.push(figure.getAnimations({ subtree: true }).length)
        figure.getAnimations({ subtree: true }).forEach(animation => animation.finish())
    }
    return counts
}"""


@every_moving
def test_parts_move_unless_a_reader_wants_less_motion(tab, name):
    tab.page.emulate_media(reduced_motion="no-preference")
    opened, _, _ = open_explorer(tab, name)
    assert any(opened.evaluate(ON_THEIR_WAY, name))
    tab.page.emulate_media(reduced_motion="reduce")
    open_explorer(tab, name)
    assert not any(opened.evaluate(ON_THEIR_WAY, name))


@every_moving
@pytest.mark.parametrize(("medium", "kind"), [("screen", "bare"), ("print", "tab")])
def test_without_scripts_and_on_paper_all_sentences_stand_below_the_picture(request, name, medium, kind):
    tab = request.getfixturevalue(kind)
    tab.page.emulate_media(media=medium)
    _, figure, _ = open_explorer(tab, name)
    expect(figure.locator(".steps > li:visible")).to_have_count(last_of(figure) + 1)
    expect(figure.locator(".player")).to_be_hidden()
    expect(figure.get_by_role("img")).to_be_visible()
    assert figure.get_by_role("img").get_attribute("aria-label")


# --- one sentence ---------------------------------------------------------------------------------


def test_a_line_of_code_has_the_number_of_its_step_leads_to_it_and_is_seen_whole(phone):
    _, figure, _ = open_explorer(phone, "one-sentence")
    line = figure.locator("[data-lit]").nth(6)
    line.tap()
    stands_at(figure, 6)
    expect(figure.locator("[aria-current=step]")).to_have_count(1)
    expect(line).to_have_attribute("aria-current", "step")
    assert line.evaluate("line => getComputedStyle(line, '::before').content").startswith('"7"')
    assert figure.locator("pre > code").evaluate("code => code.scrollWidth <= code.clientWidth")


# --- the two clocks -------------------------------------------------------------------------------

# What the clocks show in each frame: the numbers, the angle between the hands, and where each hand points.
CLOCKS = """layout => {
    const clocks = document.getElementById("rope-clocks")
    const shown = part => [...clocks.querySelectorAll(part)]
    clocks.choose("layout", layout)
    return clocks.sentences.map((_, i) => {
        clocks.frame = i
        return {
            numbers: shown(".stage strong").map(number => number.textContent),
            places: shown(".stage b").map(place => Number(place.textContent)),
            angles: shown(".stage span").map(angle => parseInt(angle.textContent.slice(2))),
            arcs: shown(".arc").map(arc => parseFloat(arc.style.strokeDasharray)),
            hands: shown(".clock").map(clock => [".query", ".key"].map(hand =>
                parseFloat(clock.querySelector(hand).style.rotate))),
        }
    })
}"""


def test_the_hands_and_numbers_of_the_clocks_are_those_of_torch(tab):
    tab.page.emulate_media(reduced_motion="reduce")
    opened, clocks, _ = open_explorer(tab, "rope-clocks")
    stored = golden("rope-clocks")
    for case in stored["cases"]:
        shown = opened.evaluate(CLOCKS, case["state"]["layout"])
        frames = zip(shown, stored["places"], stored["angles"], case["dots"], case["scores"], strict=True)
        for frame, places, angles, dots, score in frames:
            assert frame["places"] == places
            assert frame["numbers"] == [f"{number:.4f}" for number in (*dots, score)]
            assert frame["angles"] == frame["arcs"] == angles
            for hands, (_, first), speed in zip(frame["hands"], case["hands"], stored["speeds"], strict=True):
                for hand, place in zip(hands, places, strict=True):
                    assert math.cos(hand - first - place * speed) > 0.9999
    firsts = [stored["places"].index(list(places)) for places in sorted({*map(tuple, stored["places"])})]
    scores = [[case["scores"][frame] for case in stored["cases"]] for frame in firsts]
    rows = [short(number) for row in [*scores, *zip(*stored["errors"].values())] for number in row]
    assert clocks.locator("tbody td").all_text_contents() == rows


def test_a_hand_goes_the_way_of_its_position_and_not_around_a_hundred_times(tab):
    opened, _, _ = open_explorer(tab, "rope-clocks")
    shown = [(*frame["places"], frame["hands"][0][0]) for frame in opened.evaluate(CLOCKS, "halves")]
    for (before, _, hand), (after, _, turned) in itertools.pairwise(shown):
        assert 0 <= (turned - hand) * math.copysign(1, after - before) < 4 * math.pi


# --- the grid of the KV cache ---------------------------------------------------------------------

# What the grid shows in each frame: the kinds of its cells, the rows that are computed, and what is wrong.
GRID = """rule => {
    const figure = document.getElementById("kv-grid")
    const shown = part => [...figure.querySelectorAll(part)]
    figure.choose("rule", rule)
    return figure.sentences.map((_, i) => {
        figure.frame = i
        return {
            cells: shown(".grid").map(grid => [...grid.querySelectorAll("i")].map(cell => cell.className)),
            keys: shown(".grid").map(grid => [...grid.querySelectorAll("b")].map(key => key.className)),
            rows: shown(".stage p b").map(number => Number(number.textContent)),
            found: shown(".found b").map(number => number.textContent),
        }
    })
}"""


def ages(start, end):
    """Of nine tokens, those that are in the cache, those that are new, and those that are not there yet."""
    return ["old" if place < start else "now" if place < end else "" for place in range(9)]


def kinds(seen, start, end):
    """The kinds of the cells, if the rows of a call begin at `start` and end before `end`."""
    for age, query, row in zip(ages(start, end), range(9), seen, strict=True):
        for key, sees in enumerate(row + [None] * (9 - len(row))):
            kind = {(False, 0): " lost", (True, 0): " masked", (True, 1): " leak"}.get((key > query, sees), "")
            yield age + kind if age and sees is not None else ""


def test_the_grid_shows_which_rows_are_computed_and_the_leaks_and_gaps_of_torch(tab):
    opened, figure, _ = open_explorer(tab, "kv-grid")
    stored = golden("kv-grid")
    for case in stored["cases"]:
        frames = opened.evaluate(GRID, case["state"]["rule"])
        for frame, call in zip(frames, stored["frames"], strict=True):
            start, end = stored["calls"][call]
            full = [[int(key <= query) for key in range(end)] for query in range(9)]
            assert frame["cells"] == [list(kinds(full, 0, end)), list(kinds(case["seen"], start, end))]
            assert frame["keys"] == [ages(0, end), ages(start, end)]
            assert frame["rows"] == [end, stored["anew"][call], end - start, end]
            assert frame["found"] == [str(case["leaks"][call]), str(case["lost"][call]), f"{case['gaps'][call]:.4f}"]
    rows = [f"{gap:.4f}" for case in stored["cases"] for gap in case["gaps"]]
    assert figure.locator("td").filter(has_text=".").all_text_contents() == rows


# --- the three roles ------------------------------------------------------------------------------

# What the workbench of queries, keys and values shows in each frame: the bars, the sentence below them, the matrices.
ROLES = """([end, start]) => {
    const figure = document.getElementById("three-roles")
    const shown = part => [...figure.querySelectorAll(part)]
    figure.choose("end", end)
    figure.choose("start", start)
    return figure.sentences.map((_, i) => {
        figure.frame = i
        return {
            heights: shown(".stage i").map(bar => Number(bar.style.getPropertyValue("--weight"))),
            words: shown(".stage span").map(word => word.textContent),
            numbers: shown(".stage b, .found b").map(number => number.textContent),
            matrices: shown("td:not(:empty)").map(cell => cell.textContent),
        }
    })
}"""


def test_the_bars_the_loss_and_the_matrices_are_those_of_torch_at_each_step(tab):
    opened, _, _ = open_explorer(tab, "three-roles")
    for case in golden("three-roles")["cases"]:
        end, start = case["state"]["end"], case["state"]["start"]
        shown = opened.evaluate(ROLES, [end, start])
        for frame, weights, loss, matrices in zip(
            shown, case["weights"], case["losses"], case["matrices"], strict=True
        ):
            assert frame["heights"] == pytest.approx(weights, abs=0.0051)
            assert frame["words"] == ["animal", "street", "it", end]
            assert frame["numbers"] == [rounded(number) for number in (*weights, *weights[:2], loss)]
            assert frame["matrices"] == [rounded(number) for row in matrices for number in row]


def rounded(number):
    return f"{round(number, 2) + 0:.2f}"
