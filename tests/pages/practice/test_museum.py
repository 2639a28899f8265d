"""The museum: which probes catch each exhibit, and that its way of showing them is right."""

import functools
import re

import pytest
import torch

from tests.pages import properties as p

SLUG = "practice/museum"
PAGE = p.page_code(SLUG, "exhibit")
PROBES = [probe.__name__ for probe in PAGE.probes]


@functools.cache
def museum():
    """By room, of each exhibit the probes that fail when it is shown."""
    cells = p.read_cells(p.ROOT / f"snippets/{SLUG}.md")
    rooms = {}
    for room in (cell.name for cell in cells if cell.name.startswith("room-")):
        lines = p.run_cell(SLUG, room)[1].splitlines()
        rooms[room] = {line[:16].strip(): line[24:].split() for line in lines}
    return rooms


def exhibits():
    return {bug: set(probes) for room in museum().values() for bug, probes in room.items()}


def test_the_attention_in_pieces_keeps_all_promises_and_the_numbers_of_the_whole():
    numbers = PAGE.examine(PAGE.Pieces)
    assert list(numbers) == PROBES
    assert max(numbers.values()) < 1e-4
    for options, given in (({"causal": True}, [None, PAGE.real_last]), ({"memory_width": 12}, [PAGE.real_memory])):
        ours, inputs, memory = PAGE.setup(PAGE.Pieces, **options)
        whole = PAGE.setup(PAGE.UnifiedAttention, **options)[0]
        for is_real in given:
            call = inputs, memory if "memory_width" in options else None, is_real
            for found, wanted in zip(ours(*call), whole(*call, need_weights=True)):
                p.close(found, wanted, 1e-5)


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ({"over": 1.5e-4, "at": 1e-4, "below": 9e-5}, ["0.00015", "over", "at"]),
        ({"raised": torch.inf, "counted": 2.0}, ["2", "raised", "counted"]),
        ({"raised": torch.inf}, ["inf", "raised"]),
        ({"no number": torch.nan}, ["inf", "no", "number"]),
    ],
)
def test_an_exhibit_shows_the_first_finite_number_and_each_failed_probe(numbers, shown, capsys, monkeypatch):
    monkeypatch.setitem(PAGE.exhibit.__globals__, "examine", lambda build: numbers)
    PAGE.exhibit("bug")
    assert capsys.readouterr().out.split() == ["bug", *shown]


def test_an_exhibit_is_a_class_with_other_methods(capsys, monkeypatch):
    shown = []
    monkeypatch.setitem(PAGE.exhibit.__globals__, "examine", lambda build: shown.append(build) or {})
    PAGE.exhibit("bug", score=max)
    PAGE.exhibit("bug", PAGE.UnifiedAttention)
    assert [build.__base__ for build in shown] == [PAGE.Pieces, PAGE.UnifiedAttention]
    assert shown[0].score is max
    capsys.readouterr()


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
    lambda failed: failed == {"cache"},
    lambda failed: "modes" in failed and failed <= {"modes", "sdpa"},
    lambda failed: failed == {"empty"},
    lambda failed: "dtype" in failed,
    lambda failed: "state" in failed,
    lambda failed: failed == {"sdpa"},
    lambda failed: "padding" in failed and "causality" not in failed,
    lambda failed: "causality" in failed,
    lambda failed: failed >= {"cross", "sdpa"},
    lambda failed: failed == {"gradient", "sdpa"},
]


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_first_row_of_verdicts_that_fits_leads_to_the_room(language):
    text = (p.ROOT / "docs" / language / f"{SLUG}.md").read_text(encoding="utf-8")
    table = [re.findall(r"\(#(room-\w+)\)", line) for line in text.split("{#museum}")[0].splitlines()]
    rows = list(zip(FITS, filter(None, table), strict=True))
    for room, bugs in museum().items():
        for bug, probes in bugs.items():
            assert room in next(rooms for fits, rooms in rows if fits(set(probes))), bug


def test_sdpa_alone_lets_12_of_38_through_and_with_five_others_none():
    assert len(exhibits()) == 38
    named = {"divided again", "empty rows", "-1e9", "finfo.min twice", "naive softmax", *museum()["room-dropout"]}
    named |= {"top left", "open cache", "saved mask", "flipped in place"}
    assert {bug for bug, probes in exhibits().items() if "sdpa" not in probes} == named
    assert len(named) == 12
    six = {"sdpa", "empty", "dtype", "modes", "cache", "state"}
    assert all(probes & six for probes in exhibits().values())
    assert all({probe} in exhibits().values() for probe in six)


def test_every_probe_catches_an_exhibit():
    assert set().union(*exhibits().values()) == set(PROBES)


def test_the_exhibits_that_one_probe_alone_finds_are_those_of_the_table():
    def only(*probes):
        return {bug for bug, found in exhibits().items() if found == set(probes)}

    assert only("cache") == {"top left", "open cache"}
    assert only("sdpa") == {"no softmax", "scaled by width", "scaled twice", "K and V swapped", "heads reversed"}
    assert only("modes") == set(museum()["room-dropout"])
    assert only("empty") == {"empty rows", "finfo.min twice"}
    assert only("state") == {"saved mask", "flipped in place"}
    assert only("dtype") == {"naive softmax"}


# -- changes of the page's code that need no test, and of the solution that are as good ------------

SURVIVORS = {
    "of each head only the shape is read": ["visible = torch.ones_like(scores[0, 1], dtype=torch.bool)"],
}
