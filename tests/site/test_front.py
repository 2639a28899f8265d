"""What the first page counts, and what other sites are told of a page."""

import json
from types import SimpleNamespace

import pytest

from tests.configuration import LANGUAGES, ROOT
from tools.cells.source import Cell
from tools.markdown import ALL
from tools.site import front, linked, policy

TEXT = LANGUAGES["en"].extra["text"]
CELLS = [
    Cell("setup", "import torch\nx = torch.ones(2)  # (T,)\n", None, 1, 4),
    Cell("sum", "y = x + x  # (T,)\nprint(y)\n", "tensor([2., 2.])\n", 6, 9),
]


def page(devices, behind=()):
    badges = [{"device": device, "verified": verified} for device, verified in devices.items()]
    return SimpleNamespace(cells_to_verify=CELLS, badges=badges, behind=behind)


def test_every_promise_is_followed_by_what_was_counted_for_it():
    """The two pages show the same cells, which are written once."""
    pages = [page({"CPU": 2}), page({"CPU": 1}, ["probe"])]
    assert front.counted(pages, 3, TEXT) == [
        ["3 of 4 cells verified on CPU.", "No GPU has run these pages yet."],
        ["2 shape comments."],
        ["1 programs."],
        [],
        ["3 languages; in this one, 1 of 2 pages are up to date."],
    ]


def test_once_a_gpu_has_run_the_pages_nobody_says_that_none_has():
    pages = [page({"CPU": 2, "CUDA": 1}), page({"CPU": 2, "CUDA": 0})]
    assert front.counted(pages, 3, TEXT)[0] == [
        "4 of 4 cells verified on CPU.",
        "1 of 4 cells verified on CUDA.",
    ]
    pages = [page({"CPU": 2, "CUDA": 0})]  # its record is that of other cells
    assert front.counted(pages, 3, TEXT)[0] == ["2 of 2 cells verified on CPU.", TEXT["no_gpu"]]


def test_what_was_counted_stands_in_its_promise_and_nowhere_else():
    body = '<ul><li>a</li></ul><h2 id="promises">P</h2><ol><li>b</li>\n<li>c</li></ol><ul><li>d</li></ul>'
    assert front.say_counted(body, [["1 < 2", "3"], ["4"]]) == (
        '<ul><li>a</li></ul><h2 id="promises">P</h2><ol><li>b<small>1 &lt; 2</small><small>3</small></li>\n'
        "<li>c<small>4</small></li></ol><ul><li>d</li></ul>"
    )


def test_the_picture_has_the_numbers_that_a_cell_prints():
    shown = front.attention(ROOT / "snippets")
    output = front.cell(ROOT / "snippets", *front.WEIGHTS).output
    rows = "],\n        [".join(", ".join(row) for row in shown["rows"])
    assert output.startswith(f"tensor([[{rows}]])\ntensor([{', '.join(shown['sums'])}])\n")
    words = front.cell(ROOT / "snippets", *front.WORDS).code
    assert f'words = "{" ".join(shown["words"])}"' in words
    tokens = words[words.index("inputs = ") : words.index("# (T, E)")]
    assert tokens in front.cell(ROOT / "snippets", "masks/causal", "attend").code
    slug, section = shown["shown"]
    source = (ROOT / f"docs/en/{slug}.md").read_text("utf-8")
    [found] = [part for part in source.split("\n## ") if f"{{#{section}}}" in part]
    assert '--8<-- "masks/causal.md:weights"' in found


# --- what other sites are told --------------------------------------------------------------------


def told(language, behind=(), is_home=False, url=None):
    url = url or {"en": "masks/causal/", "zh": "zh/masks/causal/"}[language]
    shown = SimpleNamespace(
        behind=behind,
        title="A &lt;/script&gt; title",
        meta={"description": "About."},
        file=SimpleNamespace(url=url),
        canonical_url=f"https://a.org/{url}",
    )
    said = linked.data(shown, language, "Site", "https://a.org/", is_home)
    assert "</" not in said
    return json.loads(said)


def test_a_translation_names_its_original_and_an_original_names_none():
    assert told("en")["isPartOf"]["url"] == "https://a.org/"
    assert "translationOfWork" not in told("en")
    assert told("zh")["isPartOf"]["url"] == "https://a.org/zh/"
    assert told("zh")["translationOfWork"]["url"] == "https://a.org/masks/causal/"
    assert "translationOfWork" not in told("zh", url="masks/causal/"), "a build of one language"
    assert told("zh", url="masks/causal/")["isPartOf"]["url"] == "https://a.org/"
    assert told("zh")["headline"] == "A </script> title"


def test_a_page_that_shows_the_english_text_is_no_translation():
    said = told("zh", behind=ALL)
    assert said["inLanguage"] == "en"
    assert "translationOfWork" not in said


def test_the_first_page_stands_for_the_whole_site():
    said = told("zh", is_home=True)
    assert (said["@type"], said["name"]) == ("WebSite", "Site")
    assert "isPartOf" not in said


@pytest.mark.parametrize(
    ("language", "wanted"),
    [("en", "en_US"), ("it", "it_IT"), ("zh", "zh_CN"), ("ja", "ja_JP"), ("pt-BR", "pt_BR"), ("zh-Hant", "zh_TW")],
)
def test_a_language_has_the_country_of_most_of_its_readers(language, wanted):
    assert linked.locale(language) == wanted


def test_data_is_no_script_that_a_policy_must_allow():
    page = '<meta charset="utf-8"><script>a()</script><script type="application/ld+json">{"a":1}</script>'
    assert policy.with_policy(page).count("'sha256-") == 1
