"""The runner as people use it: `pytest --codeblocks snippets`, on a project with one fault in each file."""

import pytest

from tests.cells.project import Project, cell
from tools.cells.record import read_record

INPUTS = "inputs = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])  # (T, D)\n"
SETUP = "setup", f"import torch\n\nT, D = 3, 2\n{INPUTS}"
PRINT_SUMS, SUMS = "print(inputs.sum(dim=-1))\n", "tensor([ 3.,  7., 11.])\n"
WRONG_SUMS = ("sums", PRINT_SUMS, "tensor([9.])\n")
RANDOM = "tensor([-0.2159, -0.7425])\n"

STATE = "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\nprint(torch.ones(1).dtype)\n"
F, A = "def f(x):\n    return x + 1\n", "class A:\n    x = 1\n"
GOOD = {  # below SETUP
    "right": [("sums", PRINT_SUMS, SUMS)],
    "seeded": [("draw", "torch.manual_seed(5)\nprint(torch.randn(2))\n", "tensor([-0.4868, -0.6038])\n")],
    "own-source": [
        ("f", f"import inspect\n\n\n{F}"),
        ("source", "print(inspect.getsource(f))\n", f"{F}\n"),
        ("class", f"{A}\n\nprint(inspect.getsource(A))\n", f"{A}\n"),
    ],
    "devices": [  # in the notebook, too, the next cell has the first default device again
        ("away", "torch.set_default_device('meta')\nprint(torch.ones(1).is_meta)\n", "True\n"),
        ("back", "print(torch.ones(1).is_meta)\n", "False\n"),
    ],
    "main": [("name", 'if __name__ == "__main__":\n    print("main")\n', "main\n")],
    "state": [("change", STATE, "torch.float64\n")],  # it runs before "states", by their names
    "states": [("look", "print(torch.ones(1).requires_grad_() / 3)\n", "tensor([0.3333], grad_fn=<DivBackward0>)\n")],
}

# Each changes torch for good: (how, what a cell of a later page prints all the same)
HOOK = "torch.nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(1))\n"
WORLDS = {
    "hook": (HOOK, ("print(torch.nn.Identity()(inputs[0]))\n", "tensor([1., 2.])\n")),
    "softmax": ("torch.softmax = max\n", ("print(torch.softmax(torch.zeros(2), 0))\n", "tensor([0.5000, 0.5000])\n")),
    "denormals": ("torch.set_flush_denormal(True)\n", ("print(torch.tensor(1e-40) * 1 > 0)\n", "tensor(True)\n")),
}


def fault(line, words, code, output="1\n", above=None, mark=""):
    """Cells of which the last is wrong, the line that is named, and words of the message."""
    return [SETUP, *([("above", above)] if above else []), ("bad", code, output, mark)], line, words


ONE = ("one", "x = 1\nprint(x)\n", "1\n")
BY_CHANCE = 11, "prints something else each time, after other cells, or on another machine or day; put torch.manual"
SQUARE = "tensor([[1., 2.],\n        [3., 4.]])\n"
LAYER, LEAF = "layer = torch.nn.LayerNorm(D)\n", "leaf = torch.ones(2, requires_grad=True)\n"
ENDLESS = "import time\n\n\ndef wait():\n    while True:\n        time.sleep(0.01)\n"
BAD = {
    "a-digit": fault(12, f"{PRINT_SUMS}The page shows (-)", PRINT_SUMS, SUMS.replace("11", "12")),
    "a-second-digit": fault(13, "nox -s update -- a-second-digit", "print(1)\nprint(2)\n", "1\n3\n"),
    "a-row-without-a-name": fault(10, "names 1 rows, but", "print(inputs[:2])\n", SQUARE, mark="rows: c; columns: a b"),
    "a-shape-that-lies": fault(12, "the comment says (T, D) = (3, 2)", "x = inputs.mT  # (T, D)\nprint(1)\n"),
    "a-swallowed-shape": fault(13, "(T, D) = (3, 2)", "try:\n    x = inputs.mT  # (T, D)\nexcept:\n    print(1)\n"),
    "an-unseeded-number": fault(*BY_CHANCE, "print(torch.randn(2))\n", RANDOM),
    "a-late-seed": fault(*BY_CHANCE, "x = torch.randn(2)\ntorch.manual_seed(0)\nprint(x)\n", RANDOM),
    "an-unseeded-numpy": fault(*BY_CHANCE, "import numpy\n\nprint(numpy.random.rand())\n", "0.1\n"),
    "an-address": fault(*BY_CHANCE, "print(object())\n", "<object>\n"),
    "a-machine-processors": fault(*BY_CHANCE, "import os\n\nprint(os.cpu_count())\n"),
    "a-machine-version": fault(*BY_CHANCE, "print(torch.__version__)\n"),
    "a-machine-day": fault(*BY_CHANCE, "import datetime\n\nprint(datetime.date.today())\n"),
    "a-lucky-draw": fault(11, "without a seed of its own", "print(torch.rand(2).argmax() < 2)\n", "tensor(True)\n"),
    "a-print-without-output": fault(12, "may not print", "print(1)\n", None),
    "a-changed-tensor": fault(11, "changes the shared object 'inputs'; work on a copy", "inputs += 1\nprint(1)\n"),
    "a-changed-module": fault(17, "the shared object 'layer'", "layer.weight.data += 1\nprint(1)\n", above=LAYER),
    "a-left-gradient": fault(17, "changes the shared object 'leaf'", "leaf.sum().backward()\nprint(1)\n", above=LEAF),
    "a-changed-name": fault(11, "gives the shared name 'T' a new value", "T = 4\nprint(1)\n"),
    "a-warning": fault(11, "warns at line 14 of snippets/", "import warnings\n\nwarnings.warn('old')\nprint(1)\n"),
    "a-line-that-a-notebook-shows": fault(13, "a notebook would show the value of this last", "print(1)\ninputs\n"),
    "an-error-beside": fault(11, "writes to stderr: 2", "import sys\n\nprint(1)\nprint(2, file=sys.stderr)\n"),
    "a-skip": fault(15, "Skipped: no", "import pytest\n\nprint(1)\npytest.skip('no')\n"),
    "an-exit": fault(11, "ends Python with status 0; let it run to its end", "import os\n\nprint(1)\nos._exit(0)\n"),
    "a-crash": fault(11, "'bad' ends Python by SIGSEGV", "import ctypes\n\nprint(1)\nctypes.string_at(0)\n"),
    "an-endless-cell": fault(22, "'bad' is not done after 1 seconds; let it end", "print(1)\nwait()\n", above=ENDLESS),
    "an-equal-size": fault("", "B and T are both 3; a swapped axis could hide", "B = T\nprint(B)\n", "3\n"),
    "a-file-left-behind": fault(11, "leaves files behind: w.pt; let it", "torch.save(inputs, 'w.pt')\nprint(1)\n"),
    "an-exception": fault(13, "mat1 and mat2 shapes cannot be multiplied", "print(1)\ninputs @ inputs\n"),
    "a-syntax-error": fault(12, "SyntaxError: '(' was never closed", "print(1\n"),
    "a-name-of-another-cell": ([SETUP, ONE, ("two", "print(x)\n", "1\n")], 23, "name 'x' is not defined"),
    "labs/a-silent-measurement": fault(11, "prints nothing", "x = 1\n", None, mark="measures: how long it takes"),
}

NEEDS_SIM = "needs sim: the CPU is not pretended"
WHERE = "print(torch.ones(2).device, torch.ones(2, device='sim'))\n"
UNREADABLE = cell("x", "1\n").replace("[start:x]", "[strat:x]")


def test_each_fault_is_named_with_its_line(tmp_path):
    """One run for all of them, since a run takes seconds."""
    project = Project(tmp_path, "\nimport tools.cells.apart\n\ntools.cells.apart.SECONDS = 1\n")
    project.add_all({slug: cells for slug, (cells, _, _) in BAD.items()})
    project.add("a-shape-never-run", SETUP, ("f", "def f(x):\n    return x  # (T, D)\n"))
    project.add("not-here", SETUP, ("where", WHERE, "1\n", NEEDS_SIM))
    project.write("snippets/unreadable.md", UNREADABLE)
    status, text, messages = project.pytest("snippets", "--continue-on-collection-errors")
    assert status == 1, text
    for slug, (cells, line, words) in BAD.items():
        assert not messages[f"{slug}::setup"], "only the wrong cell fails"
        message = messages[f"{slug}::{cells[-1][0]}"]
        assert f"snippets/{slug}.md:{line}" in message
        assert words in message
    assert "a-shape-never-run.md:13: no cell runs this line" in messages["a-shape-never-run::Notebook"]
    assert "snippets/unreadable.md:1: here begins neither a whole cell" in text
    assert "SKIPPED [1] snippets/not-here.md: 'where' needs sim: the CPU is not pretended" in text


def test_right_cells_pass_whatever_others_change_in_torch(tmp_path):
    project = Project(tmp_path)
    changes = [(name, f"{how}print(T)\n", "3\n") for name, (how, _) in WORLDS.items()]
    later = [(name, *seen) for name, (_, seen) in WORLDS.items()]
    project.add_all(GOOD | {"changes": changes, "later": later}, SETUP)
    project.write("README.md", "```sh\ntouch run\n```\n")
    strict = ("-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning")  # of the preloaded time_machine
    status, text, messages = project.pytest(".", *strict)
    assert status == 0, text
    assert len(messages) == sum(len(cells) + 2 for cells in GOOD.values()) + 2 * (len(WORLDS) + 2)
    assert not (tmp_path / "run").exists(), "a block of another Markdown file is a command for people"


# -- on a device ---------------------------------------------------------------------------------

AS_READERS = """print(torch.backends.cudnn.enabled, torch.backends.cuda.flash_sdp_enabled())
torch.manual_seed(0)
here, there = torch.randn(3), torch.randn(3, device="sim").cpu()
torch.manual_seed(0)
print(torch.equal(here, torch.randn(3)), torch.equal(here, there))
"""

# slug: (the output of a cell that needs the device, its code, words of the message)
BAD_ON_ITS_DEVICE = {
    "a-wrong-output": ("cpu\n", WHERE, "nox -s gpu -- --update snippets/a-wrong-output.md"),
    "no-output-yet": (None, WHERE, "nox -s gpu -- --update snippets/no-output-yet.md"),
    "nothing-printed": (None, "x = torch.ones(2)\n", "the cell 'bad' prints nothing"),
    "a-shape-never-run": ("1\n", "def f(x):\n    return x  # (T, D)\n\n\nprint(1)\n", "its shape comment is unchecked"),
    "a-lucky-draw": (None, "print(torch.rand(2) < 2)\n", "without a seed of its own"),
}


def test_on_a_device_cells_print_what_the_cpu_prints_and_obey_the_rules_of_the_house(tmp_path):
    """Those run as a reader runs them, with fused kernels, cuDNN and the device's own random numbers."""
    project = Project(tmp_path)
    own = [("own", AS_READERS, "True True\nTrue False\n", NEEDS_SIM), *GOOD["seeded"]]
    bad = {slug: [("bad", code, output, NEEDS_SIM)] for slug, (output, code, _) in BAD_ON_ITS_DEVICE.items()}
    project.add_all(GOOD | bad | {"own": own}, SETUP)
    _, text, messages = project.pytest("snippets", "--device", "sim")
    for slug, (_, _, words) in BAD_ON_ITS_DEVICE.items():
        message = messages.pop(f"{slug}::bad")
        assert f"snippets/{slug}.md:1" in message
        assert words in message
    assert not [test for test, message in messages.items() if message and not test.endswith("::Notebook")], text


def test_update_on_a_device_writes_the_cells_that_need_it_and_no_other(tmp_path):
    project = Project(tmp_path)
    here = "cpu tensor([1., 1.], device='sim:0')\n"
    right = project.add("page", SETUP, ("where", WHERE, here, NEEDS_SIM)).read_text()
    path = project.add("page", SETUP, ("where", WHERE, None, NEEDS_SIM))
    wrong = project.add("wrong", SETUP, WRONG_SUMS)
    before = wrong.read_text()
    status, _, messages = project.pytest("snippets", "--device", "sim", "--update")
    assert status == 1
    assert "The CPU prints what the page shows; --device sim does not." in messages["wrong::sums"]
    assert path.read_text() == right
    assert wrong.read_text() == before


# -- update and record ---------------------------------------------------------------------------

PRINTS = {"fence": "```\\n", "mark": "<!-- x\\n", "feed": "\\x0c\\n", "accent": "\\xe9\\n", "open": "no line break"}


def test_update_writes_what_the_check_then_accepts_and_records_it_and_nothing_else(tmp_path):
    """A cell whose output is missing is not shared: a shared cell below it may give its names a new value."""
    project = Project(tmp_path)
    first, last = ("first", "T = 9\nprint(T)\n", "9\n"), ("last", "print(inputs[0])\n", "tensor([1., 2.])\n")
    right = project.add("page", first, SETUP, ("sums", PRINT_SUMS, SUMS), last).read_text()
    path = project.add("page", first[:2], SETUP, WRONG_SUMS, last[:2])
    other = project.add("other", SETUP, WRONG_SUMS)
    shows = {slug: [("show", f"print('{printed}', end='')\n", "x\n")] for slug, printed in PRINTS.items()}
    kept = project.add_all(shows | {"draw": [("show", "print(torch.randn(2))\n", RANDOM)]}, SETUP)
    before = {slug: path.read_text() for slug, path in kept.items()}
    project.add("uses", SETUP, ONE[:2], ("two", "print(x)\n"))
    project.add("later", ONE, ("two", "print('x' in globals())\n", "False\n"))
    named = [f"snippets/{slug}.md" for slug in ("page", "uses", "later", *kept)]
    status, text, messages = project.pytest(*named, "--update", "--record")
    assert status == 1
    assert path.read_text() == right, text
    assert "tensor([9.])" in other.read_text(), "only the named pages are written"
    assert {slug: path.read_text() for slug, path in kept.items()} == before
    assert all("a page cannot show what the cell 'show' prints" in messages[f"{slug}::show"] for slug in PRINTS)
    assert "torch.manual_seed" in messages["draw::show"]
    assert "name 'x' is not defined" in messages["uses::two"]
    record = {slug: set(page["cells"]) for slug, page in read_record(tmp_path / "verified/cpu.json").items()}
    assert record["page"] == {"first", "setup", "sums", "last"}
    assert record["uses"] == record["later"] == set()
    status, text, _ = project.pytest("snippets/page.md")
    assert status == 0, text


def test_a_file_shows_cells_of_another_which_run_with_its_own_and_are_mended_there(tmp_path):
    project = Project(tmp_path)
    unused = ("unused", "def unused(x):\n    return x  # (T,)\n")
    page = project.add("page", SETUP, unused, WRONG_SUMS)
    before = page.read_text()
    shown = [f'--8<-- "page.md:{name}"' for name in ("setup", "unused", "sums")]
    lab = project.write("snippets/labs/a.md", "\n\n".join([*shown, cell("total", "print(inputs.sum())\n")]))
    _, _, messages = project.pytest("snippets/labs", "--update", "--record")
    said = messages.pop("labs/a::sums")
    assert said.startswith("snippets/page.md:19: print(inputs.sum(dim=-1))\nThe page shows (-)")
    assert said.endswith("nox -s update -- page")
    assert "The page shows (-)" in messages.pop("labs/a::Notebook")
    assert messages == dict.fromkeys(["labs/a::setup", "labs/a::unused", "labs/a::total"], "")
    assert "```text\ntensor(21.)\n```" in lab.read_text()
    assert page.read_text() == before


STOP = """
def pytest_runtest_protocol(item):
    if item.nodeid == "snippets/page.md::setup":
        {how}
"""
STOPS = [("raise KeyboardInterrupt", []), ("item.runtest = None  # it fails", ["-x"]), ("pass", ["broken"])]


@pytest.mark.parametrize(("how", "arguments"), STOPS)
def test_a_run_that_stops_before_its_end_writes_nothing_and_says_so(tmp_path, how, arguments):
    project = Project(tmp_path, STOP.replace("{how}", how))
    project.write("broken/snippets/unreadable.md", UNREADABLE)
    done = project.add("done", SETUP, WRONG_SUMS)
    project.add("page", SETUP, ("sums", PRINT_SUMS, SUMS))
    before = done.read_text()
    _, text, _ = project.pytest("snippets", "--update", "--record", *arguments)
    assert done.read_text() == before
    assert not (tmp_path / "verified").exists()
    assert "\nstopped before the end: snippets/ and verified/ are as they were\n" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--record", "-n", "2"], "--update and --record write files from one process; leave out -n"),
        (["--record", "--device", "sim"], "--record: the pretend accelerator proves nothing"),
        (["--device", "cuda"], "--device cuda: torch"),
        (["--device", "gpu"], "--device gpu: give one of cpu, cuda"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(tmp_path, arguments, words):
    project = Project(tmp_path)
    project.add("right", SETUP, *GOOD["right"])
    status, text, _ = project.pytest("snippets", *arguments)
    assert (status, words in text) == (4, True), text
    assert not (tmp_path / "verified").exists()
