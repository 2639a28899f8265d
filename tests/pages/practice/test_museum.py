"""The museum: which probes catch each exhibit, and that its way of showing them is right."""

import functools
import re

import pytest
import torch

from snippets import attention_probes as kit
from tests.pages import properties as p

SLUG = "practice/museum"
PAGE = p.page_code(SLUG, "exhibit")
PROBES = [probe.name for probe in kit.PROBES]


@functools.cache
def museum():
    """By room, of each exhibit the probes that fail when it is shown."""
    cells = p.read_cells(p.ROOT / f"snippets/{SLUG}.md")
    rooms = {}
    for room in (cell.name for cell in cells if cell.name.startswith("room-")):
        bugs, bug = rooms.setdefault(room, {}), ""
        for line in p.run_cell(SLUG, room)[1].splitlines():
            bug = line[:16].strip() or bug
            bugs.setdefault(bug, []).extend(line[17:].split())
    return rooms


def exhibits():
    return {bug: set(probes) - {"none"} for room in museum().values() for bug, probes in room.items()}


def test_the_attention_in_pieces_passes_and_gives_the_numbers_of_the_whole():
    assert PAGE.examine(PAGE.Pieces) == {}
    given = torch.randn(2, 5, 8), None, torch.arange(5) >= torch.tensor([[0], [3]])
    torch.manual_seed(0)
    pieces, whole = PAGE.Pieces(8, 2, causal=True), PAGE.UnifiedAttention(8, 2, causal=True)
    whole.load_state_dict(pieces.state_dict())
    for found, wanted in zip(pieces.eval()(*given), whole.eval()(*given, need_weights=True)):
        p.close(found, wanted, 1e-5)


def test_all_probes_are_tried_on_an_exhibit(monkeypatch):
    reports = []
    monkeypatch.setitem(
        PAGE.examine.__globals__, "check", lambda *a, **o: reports.append(kit.check(*a, **o)) or reports[-1]
    )
    PAGE.examine(PAGE.Pieces)
    assert set.intersection(*(set(report.left_out) for report in reports)) == set()


def test_an_exhibit_is_a_class_with_other_methods_and_shows_what_fails(capsys, monkeypatch):
    shown, failed = [], dict.fromkeys(PROBES[:9], "")
    monkeypatch.setitem(PAGE.exhibit.__globals__, "examine", lambda build: shown.append(build) or failed)
    PAGE.exhibit("bug", score=max)
    failed.clear()
    PAGE.exhibit("other bug", PAGE.UnifiedAttention)
    assert [build.__base__ for build in shown] == [PAGE.Pieces, PAGE.UnifiedAttention]
    assert shown[0].score is max
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.split() == ["bug", *PROBES[:7]]
    assert second.split() == PROBES[7:9]
    assert third.split() == ["other", "bug", "none"]


# -- what the page says of the exhibits -------------------------------------------------------------


def test_the_picture_shows_which_probes_fail_for_each_exhibit():
    picture = (p.ROOT / "docs/assets/museum.svg").read_text(encoding="utf-8")
    filled = re.findall(r'<rect class="accent" id="museum-(\d+)-(\d+)"', picture)
    shown = [set() for _ in exhibits()]
    for row, column in filled:
        shown[int(row)].add(PROBES[int(column)])
    assert dict(zip(exhibits(), shown)) == exhibits()
    words = re.findall(r">([^<>\n]+)</text>", picture)
    assert words == [*PROBES, *(str(number) for number in range(1, len(museum()) + 1))]


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_tables_of_the_page_name_the_exhibits(language):
    text = (p.ROOT / "docs" / language / f"{SLUG}.md").read_text(encoding="utf-8")
    for room, bugs in museum().items():
        behind = text.split(f'"{SLUG}.md:{room}"')[1].split("\n#")[0]
        assert re.findall(r"^ *\| `([^`]+)` \|", behind, re.MULTILINE) == list(bugs)


FITS = [
    lambda failed: "modes" in failed,
    lambda failed: "batch" in failed,
    lambda failed: "state" in failed,
    lambda failed: failed == {"steps"},
    lambda failed: failed == {"steps", "memory"},
    lambda failed: "empty" in failed and "future" not in failed,
    lambda failed: "formats" in failed and failed <= {"formats", "reference"},
    lambda failed: failed == {"reference"},
    lambda failed: "memory" in failed and failed <= {"memory", "reference"},
    lambda failed: "pads_left" in failed and "future" not in failed,
    lambda failed: failed == {"reads", "reference"},
    lambda failed: "future" in failed,
]
UNSEEN = {"dropped scores", "divided by p", "finfo.min twice", "saved mask"}


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_first_row_of_verdicts_that_fits_leads_to_the_room(language):
    text = (p.ROOT / "docs" / language / f"{SLUG}.md").read_text(encoding="utf-8")
    table = [re.findall(r"\(#(room-\w+)\)", line) for line in text.split("{#museum}")[0].splitlines()]
    rows = list(zip(FITS, filter(None, table), strict=True))
    for room, bugs in museum().items():
        for bug in bugs.keys() - UNSEEN:
            assert room in next(rooms for fits, rooms in rows if fits(exhibits()[bug])), bug


def test_a_reference_alone_lets_15_of_38_through_and_four_pass_every_probe():
    through = {bug for bug, probes in exhibits().items() if "reference" not in probes}
    assert (len(exhibits()), len(through)) == (38, 15)
    assert through >= {"top left", "open cache", "-1e9", "naive softmax", "flipped in place"}
    assert {bug for bug, probes in exhibits().items() if not probes} == UNSEEN


def test_every_probe_but_that_of_gradients_catches_an_exhibit():
    assert set().union(*exhibits().values()) == set(PROBES) - {"gradients"}


def test_the_exhibits_that_one_probe_alone_finds():
    def only(*probes):
        return {bug for bug, found in exhibits().items() if found == set(probes)}

    assert only("steps") == {"top left", "open cache"}
    assert only("empty") == {"empty rows"}
    assert only("formats") == {"-1e9", "naive softmax"}
    assert only("reference") >= {"scaled by width", "scaled twice", "heads reversed"}


def broken(room, **methods):
    """A subclass of Pieces with methods of a room, in which they have other names."""
    names = p.run_cell(SLUG, room)[0]
    return type("Broken", (PAGE.Pieces,), {name: getattr(names, function) for name, function in methods.items()})


@pytest.mark.parametrize(
    ("methods", "same_mean", "draws"),
    [({}, True, True), ({"mix": "by_p"}, False, True), ({"weigh": "dropped_scores", "mix": "plain"}, True, False)],
)
def test_many_draws_for_a_lone_token_show_wrong_dropout(methods, same_mean, draws):
    torch.manual_seed(0)
    module = broken("room-dropout", **methods)(8, 2, dropout=0.2)
    lone = torch.ones(1, 1, 8).repeat(20000, 1, 1)
    with torch.no_grad():
        rows, right = module.train()(lone)[0], module.eval()(lone[:1])[0]
    assert ((rows.mean(dim=0) - right[0]).abs().max() < 0.02) == same_mean
    assert (rows != rows[:1]).any() == draws


@pytest.mark.parametrize("methods", [{}, {"visible": "two_biases", "weigh": "add"}])
def test_rows_without_a_key_change_with_a_token_where_finfo_min_is_added_twice(methods):
    torch.manual_seed(0)
    module = broken("room-masks", **methods)(8, 2, causal=True).eval()
    tokens, is_real = torch.randn(1, 4, 8), torch.tensor([[False, False, True, True]])
    before = module(tokens, is_real=is_real)[0]
    after = module(tokens + torch.eye(4)[0][None, :, None], is_real=is_real)[0]
    assert (after[0, 0] != before[0, 0]).any() == bool(methods)


def test_a_saved_mask_is_in_the_checkpoint_and_is_no_parameter():
    module = type("Saved", (p.run_cell(SLUG, "room-state")[0].Holding,), {"saved": True})(width=8, num_heads=2)
    assert module.state_dict().keys() - dict(module.named_parameters()) == {"held"}


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "of each head only the shape is read": ["visible = torch.ones_like(scores[0, 1], dtype=torch.bool)"],
}
