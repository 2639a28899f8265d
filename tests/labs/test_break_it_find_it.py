"""The game of the lab: each suspect fails exactly its probes, `guess` is right for every seed, each answer fixes."""

import functools
import re

import pytest
import torch

from snippets import attention_probes as kit
from tests.pages import properties as p

SLUG = "labs/break-it-find-it"
PAGE = p.page_code(SLUG, "guess")
PROBES = [probe.name for probe in kit.PROBES]
VERDICTS = {
    "-1e9": "formats",
    "K and V swapped": "reference",
    "divided by p": "",
    "flipped in place": "state",
    "open cache": "steps",
    "open in eval": "future prefix steps reference",
    "padding ignored": "pads_left memory",
    "query softmax": "future prefix pads_right steps memory reference",
    "scaled by width": "reference",
    "thrown away": "future prefix pads_right pads_left steps memory reference",
    "top left": "steps",
    "zero scores": "future prefix pads_right pads_left steps memory reference",
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


@functools.cache
def examined(name):
    return PAGE.examine(PAGE.suspects[name])


@pytest.mark.parametrize("name", VERDICTS)
def test_a_suspect_fails_exactly_the_stated_probes(name):
    assert set(examined(name)) == set(VERDICTS[name].split())


@pytest.mark.parametrize("name", VERDICTS)
def test_who_fixes_the_line_of_the_answers_fails_no_probe(name):
    cell, wrong, right = FIXED[name]
    fixed = p.page_code(SLUG, "guess", bug=(cell, {f"\n    {wrong}\n": f"\n    {right}\n"}))
    assert fixed.examine(fixed.suspects[name]) == {}


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
    monkeypatch.setitem(PAGE.guess.__globals__, "examine", verdicts.get)


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
    assert names[8] == "divided by p"
    patterns = [VERDICTS[name] for name in names]
    assert [number for number in range(12) if patterns.count(patterns[number]) == 1] == [3, 6, 7, 8, 9, 11]
    assert set(PROBES) - set(" ".join(patterns).split()) == {"reads", "batch", "empty", "modes", "gradients"}


def test_five_probes_hand_over_a_mask(monkeypatch):
    masked = dict.fromkeys(PROBES, False)

    class Listening(PAGE.Pieces):
        def forward(self, inputs, memory=None, is_real=None, cache=None):
            masked[probe.name] |= is_real is not None
            return super().forward(inputs, memory, is_real, cache)

    monkeypatch.setitem(PAGE.examine.__globals__, "check", kit.check)
    for probe in kit.PROBES:
        monkeypatch.setattr(kit, "PROBES", [probe])
        PAGE.examine(Listening)
    assert [name for name in masked if masked[name]] == ["pads_right", "pads_left", "empty", "memory", "state"]


def test_what_the_sentences_say_of_a_query_softmax_and_of_a_number_too_large():
    assert examined("query softmax")["memory"].startswith("a nudge of a query changes wrong rows")
    assert examined("thrown away")["memory"].startswith("rows read pads")
    assert "value cannot be converted" in examined("-1e9")["formats"]


def test_modes_sees_a_mask_of_training_alone_where_nothing_drops():
    suspect = PAGE.suspects["open in eval"]
    assert "modes" in PAGE.examine(lambda dropout=0, **sizes: suspect(**sizes))


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
    found = {name: re.findall(r"\d\.\d+", text) for name, text in betrays.items()}
    assert {name: stated for name, stated in found.items() if stated} == told
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


@pytest.mark.parametrize(
    ("bug", "kept"), [(None, False), (("others", {" / self.dropout @": " / (1 - self.dropout) @"}), True)]
)
def test_the_mean_of_the_draws_is_the_row_of_eval_where_the_factor_is_right(bug, kept):
    in_eval, drawn = map(float, re.findall(r"\d\.\d+", p.run_cell(SLUG, "draws", bug=bug)[1]))
    assert (abs(drawn - in_eval) < 0.02 * in_eval) == kept
