"""What the lab tells beyond its prints: what the maps read, which words are wrong, and what a changed line gives."""

import functools

import pytest
import torch

from tests.pages import properties as p

SLUG = "labs/watch-alignment"
CHANGES = {
    "english": ("tables", {"words, answers = italian, chinese": "words, answers = english, chinese"}),
    "nothing hidden": ("train", {"> 0.25": "> 0.0"}),
    "letter removed": ("proof", {"translate(model, inputs, others)": "translate(model, inputs * others, others)"}),
    "another seed": ("train", {"manual_seed(7)": "manual_seed(0)"}),
}


@functools.cache
def ran(cell, change=None):
    """What the program of a cell defines, and what the cell prints."""
    return p.run_cell(SLUG, cell, CHANGES.get(change))


@functools.cache
def lab(change=None):
    """The trained model of the lab, or of one with a changed line, beside all that the cells define."""
    return p.page_code(SLUG, "train", CHANGES.get(change))


def read(number, change=None):
    """Each sign that is written for a number, with the letter of the largest weight and its place."""
    code = lab(change)
    found, weights = code.translate(code.model, code.source, code.is_real)
    places = weights[number - 1].argmax(dim=-1).tolist()
    word = code.words[number - 1]
    return [(code.signs[sign], word[place], place) for sign, place in zip(found[number - 1], places, strict=True)]


def test_the_words_are_those_of_three_languages():
    code = lab()
    assert [len(words) for words in (code.italian, code.english, code.chinese)] == [99] * 3
    for number, *words in (
        (2, "due", "two", "二"),
        (16, "sedici", "sixteen", "十六"),
        (17, "diciassette", "seventeen", "十七"),
        (21, "ventuno", "twenty-one", "二十一"),
        (23, "ventitré", "twenty-three", "二十三"),
        (88, "ottantotto", "eighty-eight", "八十八"),
        (99, "novantanove", "ninety-nine", "九十九"),
    ):
        assert [language[number - 1] for language in (code.italian, code.english, code.chinese)] == words


def test_the_map_goes_left_at_16_and_right_at_17():
    (ten, *first), (six, *second) = read(16)[:2]
    assert (ten, first, six, second) == ("十", ["i", 3], "六", ["d", 2])
    (ten, *first), (seven, *second) = read(17)[:2]
    assert (ten, first, seven, second) == ("十", ["i", 1], "七", ["t", 8])
    assert read(23) == [("二", "v", 0), ("十", "n", 2), ("三", "é", 7), ("。", "t", 3)]


def test_after_20_steps_the_small_numbers_and_the_round_tens_are_wrong():
    code, _ = ran("watch")
    found, _ = code.translate(code.stages[20], code.source, code.is_real)
    wrong = set(code.number[(found != code.target).any(dim=-1)].tolist())
    assert len(wrong) == 35
    assert len(wrong & set(range(1, 20))) == 14
    assert wrong >= set(range(20, 100, 10))
    assert {16, 23} <= wrong


def test_english_crosses_at_16_and_at_17():
    _, output = ran("watch", "english")
    assert "100 steps: 84 of 84 right, 15 of 15 new ones" in output
    assert read(16, "english")[:2] == [("十", "t", 3), ("六", "x", 2)]
    assert read(17, "english")[:2] == [("十", "t", 5), ("七", "s", 0)]
    assert read(23, "english")[1] == ("十", "y", 5)


def test_without_the_mask_the_pads_of_due_have_almost_all_the_weight():
    code = lab()
    found, weights = code.translate(code.model, code.source, torch.ones_like(code.is_real))
    row, length = weights[1, 1], len("due")
    assert "".join(code.signs[sign] for sign in found[1]) == "二十。。"
    assert len(row) - length == 13
    assert 0.3 < row[length] < 0.35
    torch.testing.assert_close(row[length + 1 :], torch.full((12,), 0.05, dtype=row.dtype), atol=0.005, rtol=0)
    assert (row[:length] < row[length:].min()).all()
    lengths, wrong = code.is_real.sum(dim=-1), (found != code.target).any(dim=-1)
    assert (wrong[lengths < 10].sum(), (lengths < 10).sum(), wrong[lengths > 9].sum()) == (11, 37, 0)


@pytest.mark.parametrize(("change", "changed"), [(None, 0), ("nothing hidden", 39), ("letter removed", 6)])
def test_how_many_signs_change_without_their_heaviest_letter(change, changed):
    _, output = ran("proof", change)
    assert f"signs that change: {changed} of 60" in output


def test_a_model_that_was_trained_with_all_letters_does_not_show_its_missing_mask():
    code, output = ran("forgotten", "nothing hidden")
    counts = [line.partition("letters: ")[2] for line in output.splitlines() if "letters:" in line]
    assert counts == ["13 of 14", "23 of 23", "61 of 62"] * 2
    found, _ = code.translate(code.model, code.source, code.is_real)
    right = (found == code.target).all(dim=-1)
    assert (right[~code.is_new].sum(), right[code.is_new].sum()) == (83, 14)
    assert "second row: 0.39 on pads" in output


def test_another_seed_reads_another_letter_and_is_right():
    code = lab("another seed")
    found, _ = code.translate(code.model, code.source, code.is_real)
    assert torch.equal(found, code.target)
    assert read(23, "another seed")[1] == ("十", "t", 3)
