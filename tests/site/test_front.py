"""What the first page counts, and what other sites are told of a page."""

import json
from types import SimpleNamespace

import pytest
from jinja2 import Environment, FileSystemLoader

from tests.configuration import LANGUAGES, ROOT
from tests.site import made
from tools.cells.source import Cell, read_cells
from tools.markdown import ALL
from tools.site import front, head

TEXT = LANGUAGES["en"].extra["text"]
CELLS = [
    Cell("setup", "import torch\nx = torch.ones(2)  # (T,)\n", None, 1, 4),
    Cell("sum", "y = x + x  # (T,)\nprint(y)\n", "tensor([2., 2.])\n", 6, 9),
]


def page(devices, behind=()):
    badges = [{"device": device, "verified": verified} for device, verified in devices.items()]
    return made.page("a/b", "B", own_cells=CELLS, badges=badges, behind=behind)


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
    pages = {
        slug: made.page(slug, slug, own_cells=read_cells(ROOT / f"snippets/{slug}.md"))
        for slug, _ in (front.WORDS, front.WEIGHTS)
    }
    shown, output = front.attention(pages), front.cell(pages, *front.WEIGHTS).output
    rows = "],\n        [".join(", ".join(row) for row in shown["rows"])
    assert output.startswith(f"tensor([[{rows}]])\ntensor([{', '.join(shown['sums'])}])\n")
    words = front.cell(pages, *front.WORDS).code
    assert f'words = "{" ".join(shown["words"])}"' in words
    tokens = words[words.index("inputs = ") : words.index("# (T, E)")]
    assert tokens in front.cell(pages, "foundations/causal", "attend").code
    slug, section = shown["shown"]
    source = (ROOT / f"docs/en/{slug}.md").read_text("utf-8")
    [found] = [part for part in source.split("\n## ") if f"{{#{section}}}" in part]
    assert '--8<-- "foundations/causal.md:weights"' in found


# --- what other sites are told --------------------------------------------------------------------


def told(language, behind=(), is_home=False, alternates=("en", "zh")):
    env = Environment(loader=FileSystemLoader(ROOT / "theme"))
    config = {"site_name": "Site", "site_url": "https://a.org/", "theme": {"language": language}}
    files = {name: SimpleNamespace(url="" if name == "en" else f"{name}/") for name in alternates}
    said = env.get_template("partials/linked.html").render(
        here=made.page("foundations/causal", "A </script> title", description="About.", behind=behind),
        page={"file": {"alternates": files}},
        edition=made.edition(loose=[made.page("index", "Home")]),
        config=config,
        is_home=is_home,
    )
    assert "</" not in said
    return json.loads(said)


def test_a_translation_names_its_original_and_an_original_names_none():
    assert told("en")["isPartOf"]["url"] == "https://site/index/"
    assert "translationOfWork" not in told("en")
    assert told("zh")["translationOfWork"]["url"] == "https://a.org/"
    assert "translationOfWork" not in told("zh", alternates=["zh"]), "a build of one language"
    assert told("zh")["headline"] == "A </script> title"


def test_a_page_that_shows_the_english_text_is_no_translation():
    said = told("zh", behind=ALL)
    assert said["inLanguage"] == "en"
    assert "translationOfWork" not in said


def test_the_first_page_stands_for_the_whole_site():
    said = told("zh", is_home=True)
    assert (said["@type"], said["name"]) == ("WebSite", "Site")
    assert "isPartOf" not in said


# --- the policy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "<article><script>page()</script></article>",
        "<article></article><script>page()</script></article>",
        '<script type="application/ld+json">{"a": 1}</script>',
    ],
)
def test_a_policy_allows_the_scripts_of_the_theme_and_no_other(body):
    page = f'<meta charset="utf-8"><script>theme()</script>{body}'
    assert head.with_policy(page).count("sha256-") == 1


def test_a_page_names_whole_addresses_of_itself_and_a_preview_has_no_policy():
    page = '<meta charset="utf-8">\n<link rel="alternate" href="../zh/a/" hreflang="zh"></head>'
    assert 'href="https://a.org/zh/a/" hreflang="zh">' in head.finished(page, "https://a.org/a/", True)
    assert "Policy" not in head.finished(page, "https://a.org/a/", True)
    assert "alternate" not in head.finished(page, "", False)
