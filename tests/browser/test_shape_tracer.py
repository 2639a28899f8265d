"""The shape tracer shows the lines of five pages, each with its shapes, and says what torch says."""

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.test_explorers import golden, open_again, words
from tools.figures.shape_tracer import written

PAGES = {
    "shapes": "foundations/shapes",
    "one-head": "foundations/one-head",
    "many-heads": "foundations/many-heads",
    "cross-attention": "cross/cross-attention",
    "einsum": "practice/einsum",
}


def cases(code):
    return [case for case in golden("shape-tracer")["cases"] if case["state"]["code"] == code]


# What stands in the rows of the table in each of some states, and the boxes of the first one, chosen anew.
TRACED = """states => {
    const tracer = document.getElementById("shape-tracer")
    const boxes = () => [...tracer.querySelectorAll("td")].map(cell => cell.innerHTML)
    const sent = boxes()
    const rows = states.map(({ sizes, line }) => {
        tracer.choose("sizes", sizes)
        tracer.choose("line", line)
        tracer.update()
        return [...tracer.querySelectorAll("tbody tr:not(.fold)")].map(row =>
            ["code", "samp", "strong"].map(part => row.querySelector(part).textContent))
    })
    tracer.querySelector("[data-reset]").click()
    return [rows, sent, boxes()]
}"""


@pytest.mark.parametrize("code", PAGES)
def test_each_line_has_the_shapes_and_errors_of_torch_and_a_box_comes_as_drawn_later(tab, code):
    opened = tab.open(site.Page("zh", PAGES[code]).path)
    traced, sent, drawn = opened.evaluate(TRACED, [case["state"] for case in cases(code)])
    assert sent == drawn
    for case, rows in zip(cases(code), traced, strict=True):
        lines = [line for line, _ in written(case["state"])]
        steps = [step if ") " in step else "" for step in case["steps"]] + [""] * (len(lines) - len(case["steps"]))
        errors = [""] * len(lines)
        if case["error"]:
            steps[len(case["steps"]) - 1] = case["steps"][-1]
        errors[len(case["steps"]) - 1] = case["error"]
        assert rows == [list(row) for row in zip(lines, steps, errors)], case["state"]


ERROR = "RuntimeError: shape '[2, 6, 3, 5]' is invalid for input of size 240"


def test_a_line_is_replaced_by_mouse_and_keyboard_and_shared_by_its_address(tab):
    opened = tab.open(site.Page("zh", PAGES["shapes"]).path)
    tracer, said = opened.locator("#shape-tracer"), words("zh")
    status, line = tracer.get_by_role("status"), tracer.get_by_label(said["line"])
    line.select_option("matrix = torch.randn(3, 20)")
    expect(status).to_have_text(said["passed"].format(shape="(2, 6, 20)"))
    tracer.get_by_label(said["sizes"]).focus()
    opened.keyboard.press("ArrowDown")
    expect(status).to_have_text(said["raised"].format(step=4, message=ERROR))
    expect(tracer.get_by_role("row").filter(has_text="queries = ").locator("strong")).to_have_text(ERROR)
    expect(tracer.locator("tr.changed th")).to_have_text("matrix = torch.randn(3, 20)")
    expect(tracer.locator("tr.changed td span")).to_have_text("(E 3, 20)")
    tab.ends_at("#shape-tracer?sizes=1&line=2.1")
    open_again(opened)
    expect(status).to_have_text(said["raised"].format(step=4, message=ERROR))
    tracer.get_by_role("button", name=said["reset"]).click()
    expect(status).to_have_text(said["traced"].format(shape="(2, 6, 20)"))
    expect(tracer.locator("tr:is(.changed, .stopped)")).to_have_count(0)
    tab.ends_at("#shape-tracer")


def test_on_a_phone_the_controls_stay_and_the_step_that_fails_comes_into_view(phone):
    phone.page.emulate_media(reduced_motion="reduce")
    opened = phone.open(site.Page("it", PAGES["cross-attention"]).path)
    tracer, said = opened.locator("#shape-tracer"), words("it")
    rows, line = tracer.locator("tbody tr:not(.fold)"), tracer.get_by_label(said["line"])
    rows.last.evaluate("row => row.scrollIntoView({ block: 'end' })")
    expect(line).to_be_in_viewport(ratio=1)
    rows.first.evaluate("row => row.scrollIntoView({ block: 'end' })")
    line.select_option("scores = queries @ keys / D**0.5")
    expect(tracer.locator(".fold")).to_have_text([said["same"].format(steps=10), said["unrun"].format(steps=5)])
    expect(rows.locator("visible=true")).to_have_count(1)
    expect(rows.locator("visible=true")).to_be_in_viewport(ratio=0.99)  # but for a part of a pixel
    controls, failed = (tracer.locator(part).bounding_box() for part in (".bar", "tr:has(strong:not(:empty))"))
    assert controls["y"] + controls["height"] <= failed["y"] + 1
    same, unrun = tracer.locator(".fold button").all()
    same.tap()
    expect(rows.locator("visible=true")).to_have_count(11)
    unrun.press("Enter")
    expect(rows.locator("visible=true")).to_have_count(16)
    expect(unrun).to_have_attribute("aria-expanded", "true")
    same.tap()
    expect(rows.locator("visible=true")).to_have_count(6)
