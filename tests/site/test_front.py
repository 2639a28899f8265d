"""What the first page counts, and the head of a page."""

from tests.configuration import LANGUAGES
from tests.site import made
from tools.cells.source import Cell
from tools.site import head, overview

TEXT = LANGUAGES["en"].extra["text"]
CELLS = [
    Cell("setup", "import torch\nx = torch.ones(2)  # (T,)\n", None, 1),
    Cell("sum", "y = x + x  # (T,)\nprint(y)\n", "tensor([2., 2.])\n", 6),
]


def page(devices, behind=()):
    badges = [{"device": device, "verified": verified} for device, verified in devices.items()]
    return made.page("a/b", "B", own_cells=CELLS, badges=badges, behind=behind)


def test_every_promise_is_followed_by_what_was_counted_for_it():
    """The two pages show the same cells, which are written once."""
    pages = [page({"CPU": 2}), page({"CPU": 1}, ["probe"])]
    assert overview.counted(pages, 3, TEXT) == [
        ["3 of 4 cells verified on CPU.", "No GPU has run these pages yet."],
        ["2 shape comments."],
        ["1 programs."],
        [],
        ["3 languages; in this one, 1 of 2 pages are up to date."],
    ]


def test_once_a_gpu_has_run_the_pages_nobody_says_that_none_has():
    pages = [page({"CPU": 2, "CUDA": 1}), page({"CPU": 2, "CUDA": 0})]
    assert overview.counted(pages, 3, TEXT)[0] == [
        "4 of 4 cells verified on CPU.",
        "1 of 4 cells verified on CUDA.",
    ]
    pages = [page({"CPU": 2, "CUDA": 0})]  # its record is that of other cells
    assert overview.counted(pages, 3, TEXT)[0] == ["2 of 2 cells verified on CPU.", TEXT["no_gpu"]]


def test_a_finished_page_has_no_indents_but_those_of_its_code():
    page = "</head>\n  <body>\n\n    <pre>if x:\n    y\n</pre>\n    <p>"
    assert head.without_indents(page) == "</head>\n<body>\n<pre>if x:\n    y\n</pre>\n<p>"
