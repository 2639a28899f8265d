"""The game of the lab: each suspect fails exactly its probes, `guess` is right for every seed, each answer fixes."""

import functools
import re

import pytest
import torch

from tests.pages import properties as p

SLUG = "labs/break-it-find-it"
PAGE = p.page_code(SLUG, "guess")
PROBES = [probe.__name__ for probe in PAGE.probes]
VERDICTS = {
    "-1e9": "empty dtype",
    "K and V swapped": "sdpa",
    "divided by p": "modes",
    "flipped in place": "state",
    "open cache": "cache",
    "open in eval": "causality empty modes cache gradient sdpa",
    "padding ignored": "padding empty cross sdpa",
    "query softmax": "causality padding cache gradient sdpa",
    "scaled by width": "sdpa",
    "thrown away": "causality padding empty cross cache gradient sdpa",
    "top left": "cache",
    "zero scores": "causality padding empty cross cache gradient sdpa",
}
HIDE = "scores = scores.masked_fill(~visible, -torch.inf)"
FIXED = {  # the cell, the culprit's line, and the right one
    "-1e9": ("weigh", "scores = scores.masked_fill(~visible, -1e9)", HIDE),
    "K and V swapped": (
        "others",
        "queries, values, keys = Pieces.project(self, inputs, source)",
        "queries, keys, values = Pieces.project(self, inputs, source)",
    ),
    "divided by p": (
        "others",
        "return weights * kept / self.dropout @ values",
        "return weights * kept / (1 - self.dropout) @ values",
    ),
    "flipped in place": (
        "visible",
        "key_padding_mask = is_real.logical_not_()",
        "key_padding_mask = is_real.logical_not()",
    ),
    "open cache": ("others", "return visible.tril() if Tq == Tk else visible", "return visible.tril(Tk - Tq)"),
    "open in eval": ("visible", "if self.causal and self.training:", "if self.causal:"),
    "padding ignored": (
        "visible",
        "return visible",
        "return visible if is_real is None else visible & is_real[:, None, None]",
    ),
    "query softmax": (
        "weigh",
        "return scores.softmax(dim=-2).nan_to_num()",
        "return scores.softmax(dim=-1).nan_to_num()",
    ),
    "scaled by width": ("others", "width = self.to_queries.in_features", "width = queries.shape[-1]"),
    "thrown away": ("weigh", "scores.masked_fill(~visible, -torch.inf)", HIDE),
    "top left": ("others", "return visible.tril()", "return visible.tril(visible.shape[1] - visible.shape[0])"),
    "zero scores": ("weigh", "scores = scores.masked_fill(~visible, 0)", HIDE),
}


def dealt(seed):
    """The names of the modules, as a seed deals them."""
    deal = p.page_code(SLUG, "deal", bug=("deal", {"seed = 3": f"seed = {seed}"}))
    names = {build: name for name, build in deal.suspects.items()}
    return [names[build] for build in deal.broken]


def table(language, columns):
    """The rows of the table of the page that has so many columns, by the name of the suspect."""
    text = (p.ROOT / f"docs/{language}/{SLUG}.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in re.findall(r"^ *\| `.*", text, re.MULTILINE)]
    return {row[0].strip("`"): row for row in rows if len(row) == columns}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_suspect_fails_exactly_the_stated_probes(name):
    assert " ".join(PAGE.failed(PAGE.suspects[name])) == VERDICTS[name]


@pytest.mark.parametrize("name", VERDICTS)
def test_who_fixes_the_line_of_the_answers_gets_twelve_passes(name):
    cell, wrong, right = FIXED[name]
    fixed = p.page_code(SLUG, "guess", bug=(cell, {f"\n    {wrong}\n": f"\n    {right}\n"}))
    assert fixed.failed(fixed.suspects[name]) == {}


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_every_language_names_the_suspects_and_the_lines_that_fix_them(language):
    assert list(table(language, 2)) == list(table(language, 4)) == list(VERDICTS) == list(PAGE.suspects)
    assert {name: row[2] for name, row in table(language, 4).items()} == {
        name: f"`{right}`" for name, (*_, right) in FIXED.items()
    }


def test_each_seed_is_another_round_of_the_same_suspects():
    rounds = [dealt(seed) for seed in range(4)]
    assert all(sorted(names) == sorted(VERDICTS) for names in rounds)
    assert len(set(map(tuple, rounds))) == 4


@pytest.fixture
def known(monkeypatch):
    """`guess`, its probes asked before."""
    verdicts = {PAGE.suspects[name]: dict.fromkeys(probes.split()) for name, probes in VERDICTS.items()}
    monkeypatch.setitem(PAGE.guess.__globals__, "failed", verdicts.get)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("number", range(12))
def test_a_guess_is_right_or_names_the_first_probe_that_speaks_against_it(number, capsys):
    [right] = [name for name, build in PAGE.suspects.items() if build is PAGE.broken[number]]
    for name in VERDICTS:
        PAGE.guess(number, name)
        ours, theirs = set(VERDICTS[right].split()), set(VERDICTS[name].split())
        against = [probe for probe in PROBES if probe in ours ^ theirs]
        if name == right:
            said = f"yes: module {number} is {name}"
        elif not against:
            said = f"no: {name} fails alike; only an experiment can tell"
        elif against[0] in ours:
            said = f"no: {name} passes {against[0]}, module {number} fails"
        else:
            said = f"no: {name} fails {against[0]}, module {number} passes"
        assert capsys.readouterr().out == f"{said}\n"


def test_a_name_that_no_suspect_has_is_told(capsys):
    PAGE.guess(3, "top-left")
    assert capsys.readouterr().out == "no suspect is called top-left\n"


def test_the_stored_round_is_the_one_of_which_the_page_tells():
    names = dealt(3)
    assert names[3] == "padding ignored"
    assert {names[0], names[4]} == {"top left", "open cache"}
    assert [names[1], names[5], names[7]] == ["thrown away", "zero scores", "query softmax"]
    assert {names[2], names[10]} == {"K and V swapped", "scaled by width"}
    patterns = [VERDICTS[name] for name in names]
    assert [number for number in range(12) if patterns.count(patterns[number]) == 1] == [3, 6, 7, 8, 9, 11]
    assert set(PROBES) - set(" ".join(patterns).split()) == {"batch", "order"}


def test_five_probes_hand_over_a_mask_and_state_is_one_of_them():
    def asked(probe):
        masks = []

        def forward(self, inputs, memory=None, is_real=None, cache=None):
            masks.append(is_real)
            return PAGE.Pieces.forward(self, inputs, memory, is_real, cache)

        probe(type("Listening", (PAGE.Pieces,), {"forward": forward}))
        return any(mask is not None for mask in masks)

    masked = {probe.__name__ for probe in PAGE.probes if asked(probe)}
    assert masked == {*VERDICTS["padding ignored"].split(), "state"}


@functools.cache
def printed(cell):
    return p.run_cell(SLUG, cell)[1]


def numbers(cell, number):
    """What a cell prints of a module."""
    [line] = re.findall(rf"^module {number},.*", printed(cell), re.MULTILINE)
    return re.findall(r"\d\.\d+", line)


@pytest.mark.parametrize("language", p.languages(SLUG))
def test_the_numbers_of_the_answers_are_those_of_the_experiments(language):
    names, betrays = dealt(3), {name: row[1] for name, row in table(language, 4).items()}
    told = {
        "K and V swapped": numbers("alone", names.index("K and V swapped")),
        "open cache": numbers("steps", names.index("open cache")),
        "query softmax": numbers("weights", names.index("query softmax"))[:1],
        "zero scores": numbers("weights", names.index("zero scores"))[-1:],
    }
    assert {name: re.findall(r"\d\.\d+", text) for name, text in betrays.items() if "." in text} == told
    assert numbers("alone", names.index("scaled by width")) == ["0.00"]
    assert numbers("steps", names.index("top left"))[0] != "0.00"


def test_what_the_grids_of_weights_show():
    weights = [torch.tensor([*map(float, numbers("weights", number))]) for number in (1, 5, 7)]
    assert len(set(weights[0].tolist())) == 5
    assert len(set(weights[1][1:].tolist())) == 1
    assert weights[2][1:].tolist() == [0] * 4
    look = p.page_code(SLUG, "weights").look
    for number in (1, 5, 7):
        assert look(PAGE.broken[number])[1].all()
