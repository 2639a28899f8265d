"""The runner as people use it: `pytest --codeblocks snippets`, on a project with one fault in each file."""

import json
import re
import time

import pytest
import torch

from tests.cells.project import Project, cell

SETUP = (
    "setup",
    "import torch\n\nT, D = 3, 2\ninputs = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])  # (T, D)\n",
)
SUMS = "tensor([ 3.,  7., 11.])\n"
PRINT_SUMS = "print(inputs.sum(dim=-1))\n"
RANDOM = "tensor([-0.2159, -0.7425])\n"

GOOD = {
    "right": [SETUP, ("sums", PRINT_SUMS, SUMS)],
    "last-digit": [
        SETUP,
        (
            "third",
            "print(inputs / 3)\n",
            "tensor([[0.3334, 0.6667],\n        [1.0000, 1.3333],\n        [1.6667, 2.0000]])\n",
        ),
    ],
    "seeded": [SETUP, ("draw", "torch.manual_seed(5)\nprint(torch.randn(2))\n", "tensor([-0.4868, -0.6038])\n")],
    "own-source": [
        SETUP,
        ("f", "import inspect\n\n\ndef f(x):\n    return x + 1\n"),
        ("source", "print(inspect.getsource(f))\n", "def f(x):\n    return x + 1\n\n"),
        ("class", "class A:\n    x = 1\n\n\nprint(inspect.getsource(A))\n", "class A:\n    x = 1\n\n"),
    ],
    "a-library-deprecates": [
        SETUP,
        (
            "warn",
            "import warnings\n\nwarnings.warn_explicit('old', DeprecationWarning, 'library.py', 1)\nprint(1)\n",
            "1\n",
        ),
    ],
    "main": [SETUP, ("name", 'if __name__ == "__main__":\n    print("main")\n', "main\n")],
    "state": [  # it runs before "states", by their names
        SETUP,
        (
            "change",
            "torch.set_default_dtype(torch.float64)\ntorch.set_printoptions(precision=1)\n"
            + "torch.set_num_threads(1)\ntorch.set_grad_enabled(False)\ntorch.use_deterministic_algorithms(True)\n"
            + "print(torch.ones(1).dtype)\n",
            "torch.float64\n",
        ),
    ],
    "states": [
        SETUP,
        (
            "look",
            "x = torch.ones(1, requires_grad=True)\nprint(x * 1 / 3)\n"
            + "print(x.dtype, torch.are_deterministic_algorithms_enabled())\n",
            "tensor([0.3333], grad_fn=<DivBackward0>)\ntorch.float32 False\n",
        ),
    ],
}

# Each changes torch for good: (how, what a cell of a later page prints all the same)
WORLDS = {
    "hook": (
        "torch.nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(1))\n",
        ("print(torch.nn.Identity()(inputs[0]))\n", "tensor([1., 2.])\n"),
    ),
    "softmax": (
        "torch.softmax = lambda x, dim: x\n",
        ("print(torch.softmax(torch.zeros(2), dim=-1))\n", "tensor([0.5000, 0.5000])\n"),
    ),
    "denormals": ("torch.set_flush_denormal(True)\n", ("print(torch.tensor(1e-40) * 1 > 0)\n", "tensor(True)\n")),
}

# slug: (cells, the line that is named, words of the message)
BAD = {
    "a-digit": (
        [SETUP, ("sums", PRINT_SUMS, SUMS.replace("11", "12"))],
        12,
        "print(inputs.sum(dim=-1))\nThe page shows (-)",
    ),
    "a-lost-digit": ([SETUP, ("sums", PRINT_SUMS, SUMS.replace("11", "1"))], 12, "nox -s update -- a-lost-digit"),
    "a-sign": ([SETUP, ("minus", "print(-inputs[0] / 3)\n", "tensor([ 0.3333, -0.6667])\n")], 12, "The page shows (-)"),
    "a-transposed-matrix": (
        [SETUP, ("square", "print(inputs[:2])\n", "tensor([[1., 3.],\n        [2., 4.]])\n")],
        12,
        "The page shows (-)",
    ),
    "a-lost-mask": (
        [
            SETUP,
            (
                "mask",
                "s = inputs @ inputs.mT\n"
                + "s.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)\nprint(s.softmax(-1)[0])\n",
                "tensor([1., 0., 0.])\n",
            ),
        ],
        14,
        "The page shows (-)",
    ),
    "a-row-without-a-name": (
        [SETUP, ("square", "print(inputs[:2])\n", "tensor([[1., 2.],\n        [3., 4.]])\n", "rows: c; columns: a b")],
        10,
        "the cell 'square' names 1 rows, but a matrix that it prints has 2",
    ),
    "a-second-statement": ([SETUP, ("two", "print(1)\nprint(2)\n", "1\n3\n")], 13, "print(2)"),
    "a-lost-row": ([SETUP, ("two", "print(1)\nprint(2)\n", "1\n")], 13, "print(2)"),
    "a-shape-that-lies": (
        [SETUP, ("shape", "x = inputs.mT  # (T, D)\nprint(1)\n", "1\n")],
        12,
        "the comment says (T, D) = (3, 2)",
    ),
    "a-shape-in-a-function": (
        [SETUP, ("f", "def f(x):\n    return x.mT  # (T, D)\n"), ("call", "print(f(inputs)[0, 0])\n", "tensor(1.)\n")],
        13,
        "the tensor has (2, 3)",
    ),
    "a-shape-never-run": ([SETUP, ("f", "def f(x):\n    return x  # (T, D)\n")], 13, "no cell runs this line"),
    "a-shape-nowhere": ([SETUP, ("shape", "print(1)  # (T, D)\n", "1\n")], 12, "cannot be checked"),
    "a-comment": ([SETUP, ("words", "print(1)  # one\n", "1\n")], 12, "a comment in a cell is a shape"),
    "an-unseeded-number": (
        [SETUP, ("draw", "print(torch.randn(2))\n", RANDOM)],
        11,
        "put torch.manual_seed(...) above",
    ),
    "a-late-seed": (
        [SETUP, ("late", "x = torch.randn(2)\ntorch.manual_seed(0)\nprint(x)\n", RANDOM)],
        11,
        "prints something else each time",
    ),
    "an-unseeded-numpy": (
        [SETUP, ("numpy", "import numpy\n\nprint(numpy.random.rand())\n", "0.1\n")],
        11,
        "something else each time",
    ),
    "a-print-without-output": ([SETUP, ("print", "print(1)\n")], 12, "may not print"),
    "a-changed-tensor": (
        [SETUP, ("change", "inputs += 1\nprint(1)\n", "1\n")],
        11,
        "changes the shared object 'inputs'; work on a copy",
    ),
    "a-changed-view": (
        [SETUP, ("change", "inputs[0].zero_()\nprint(1)\n", "1\n")],
        11,
        "changes the shared object 'inputs'",
    ),
    "a-changed-module": (
        [
            SETUP,
            ("layer", "torch.manual_seed(0)\nlayer = torch.nn.Linear(D, D)\n"),
            ("change", "torch.nn.init.zeros_(layer.weight)\nprint(1)\n", "1\n"),
        ],
        18,
        "changes the shared object 'layer'",
    ),
    "a-changed-name": ([SETUP, ("change", "T = 4\nprint(1)\n", "1\n")], 11, "gives the shared name 'T' a new value"),
    "a-warning": (
        [SETUP, ("warn", "import warnings\n\nwarnings.warn('old')\nprint(1)\n", "1\n")],
        11,
        "the cell 'warn' warns at line 14 of snippets/a-warning.md: old",
    ),
    "a-deprecation": (
        [SETUP, ("warn", "import warnings\n\nwarnings.warn('old', DeprecationWarning)\nprint(1)\n", "1\n")],
        11,
        "warns at line 14",
    ),
    "a-swallowed-warning": (
        [
            SETUP,
            (
                "warn",
                "import warnings\n\ntry:\n    warnings.warn('old')\n    print(1)\nexcept UserWarning:\n    print(2)\n",
                "1\n",
            ),
        ],
        11,
        "warns at line 15",
    ),
    "a-swallowed-shape": (
        [SETUP, ("lie", "try:\n    x = inputs.mT  # (T, D)\nexcept Exception:\n    print(1)\n", "1\n")],
        13,
        "the comment says (T, D) = (3, 2), the tensor has (2, 3)",
    ),
    "a-lucky-draw": ([SETUP, ("luck", "print(torch.rand(2).argmax() < 2)\n", "tensor(True)\n")], 11, "without a seed"),
    "a-seed-elsewhere": (
        [
            SETUP,
            ("seed", "for _ in range(1):\n    torch.manual_seed(0)\n"),
            ("draw", "print(torch.rand(2) < 2)\n", "tensor([True, True])\n"),
        ],
        18,
        "draws random numbers without a seed of its own",
    ),
    "a-changed-list": (
        [SETUP, ("list", "log = [1]\n"), ("change", "log.append(2)\nprint(log)\n", "[1, 2]\n")],
        17,
        "changes the shared object 'log'",
    ),
    "a-changed-mode": (
        [SETUP, ("layer", "layer = torch.nn.Dropout(0.5)\n"), ("change", "layer.train(False)\nprint(1)\n", "1\n")],
        17,
        "changes the shared object 'layer'",
    ),
    "a-left-gradient": (
        [
            SETUP,
            ("leaf", "leaf = torch.ones(2, requires_grad=True)\n"),
            ("change", "leaf.sum().backward()\nprint(1)\n", "1\n"),
        ],
        17,
        "changes the shared object 'leaf'",
    ),
    "a-line-that-a-notebook-shows": (
        [SETUP, ("echo", "print(1)\ninputs\n", "1\n")],
        13,
        "a notebook would show the value of this last line",
    ),
    "an-error-beside": (
        [SETUP, ("stderr", "import sys\n\nprint(1)\nprint(2, file=sys.stderr)\n", "1\n")],
        11,
        "writes to stderr: 2",
    ),
    "a-skip": ([SETUP, ("skip", "import pytest\n\nprint(1)\npytest.skip('no')\n", "1\n")], 15, "Skipped: no"),
    "an-exit": (
        [SETUP, ("exit", "import os\n\nprint(1)\nos._exit(0)\n", "1\n")],
        11,
        "the cell 'exit' ends Python with status 0; let it run to its end",
    ),
    "a-kill": (
        [SETUP, ("kill", "import os\n\nprint(1)\nos.kill(os.getpid(), 9)\n", "1\n")],
        11,
        "the cell 'kill' ends Python by SIGKILL",
    ),
    "a-crash": (
        [SETUP, ("crash", "import ctypes\n\nprint(1)\nctypes.string_at(0)\n", "1\n")],
        15,
        "the cell 'crash' ends Python by SIGSEGV",
    ),
    "an-equal-size": (
        [SETUP, ("sizes", "B = T\nprint(B)\n", "3\n")],
        "",
        "B and T are both 3; a swapped axis could hide",
    ),
    "a-file-left-behind": (
        [
            SETUP,
            ("write", "torch.save(inputs, 'w.pt')\nprint(1)\n", "1\n"),
            ("read", "print(torch.load('w.pt').shape)\n", "torch.Size([3, 2])\n"),
        ],
        23,
        "No such file or directory: 'w.pt'",
    ),
    "an-exception": (
        [SETUP, ("raise", "print(1)\ninputs @ inputs\n", "1\n")],
        13,
        "mat1 and mat2 shapes cannot be multiplied",
    ),
    "a-syntax-error": ([SETUP, ("syntax", "print(1\n", "1\n")], 12, "SyntaxError"),
    "a-name-of-another-cell": (
        [SETUP, ("one", "x = 1\nprint(x)\n", "1\n"), ("two", "print(x)\n", "1\n")],
        23,
        "name 'x' is not defined",
    ),
    "labs/a-silent-measurement": (
        [SETUP, ("time", "x = 1\n", None, "measures: how long it takes")],
        11,
        "the cell 'time' prints nothing",
    ),
}

LIMIT = "\ntools.cells.apart.SECONDS = 3\n"

NOT_READ = {
    "a-fence-that-would-be-skipped": cell("x", "1\n").replace("```python", "```py"),
    "a-skipped-file": "<!--pytest-codeblocks:skipfile-->\n" + cell("x", "1\n"),
    "a-skip-mark": cell("x", "1\n").replace("```python", "<!--pytest.mark.skip-->\n```python"),
    "a-malformed-mark": cell("x", "1\n").replace("[start:x]", "[strat:x]"),
    "a-need-without-a-reason": cell("x", "1\n", mark="needs cuda"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("good"))
    for slug, cells in GOOD.items():
        project.add(slug, *cells)
    return project


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("bad"))
    for slug, (cells, _, _) in BAD.items():
        project.add(slug, *cells)
    project.add("on-no-page", SETUP, ("sums", PRINT_SUMS, SUMS))
    project.write("docs/en/on-no-page.md", '--8<-- "on-no-page.md:setup"\n')
    project.add("no-page", SETUP)
    (project.folder / "docs/en/no-page.md").unlink()
    for slug, text in NOT_READ.items():
        project.write(f"snippets/{slug}.md", text)
    status, text, messages = project.pytest("snippets", "--continue-on-collection-errors")
    assert status == 1, text
    return messages


def test_right_cells_pass(good):
    status, text, messages = good.pytest("snippets", "-W", "error")
    assert status == 0, text
    assert len(messages) == sum(len(cells) + 1 for cells in GOOD.values())


def test_right_cells_pass_on_the_pretend_accelerator(good):
    status, text, messages = good.pytest("snippets", "--device", "sim")
    assert status == 0, text
    assert len(messages) == sum(len(cells) + 1 for cells in GOOD.values())


@pytest.mark.parametrize("slug", BAD)
def test_a_fault_is_named_with_its_line(bad, slug):
    cells, line, words = BAD[slug]
    test = f"{slug}::notebook" if slug == "a-shape-never-run" else f"{slug}::{cells[-1][0]}"
    assert f"snippets/{slug}.md:{line}" in bad[test]
    assert words in bad[test]
    assert not bad[f"{slug}::setup"], "only the wrong cell fails"


def test_what_a_cell_changes_in_torch_reaches_no_other_page(tmp_path):
    project = Project(tmp_path)
    project.add("changes", SETUP, *((name, f"{how}print(T)\n", "3\n") for name, (how, _) in WORLDS.items()))
    project.add("later", SETUP, *((name, *seen) for name, (_, seen) in WORLDS.items()))
    status, text, _ = project.pytest("snippets")
    assert status == 0, text


def test_an_endless_cell_ends_and_is_named_with_the_line_where_it_was(tmp_path):
    project = Project(tmp_path)
    project.write("conftest.py", "import tools.cells.apart\n\n" + project.read("conftest.py") + LIMIT)
    endless = (
        "def wait():\n    while True:\n        try:\n            1\n        except BaseException:\n            1\n"
    )
    project.add("page", SETUP, ("wait", endless), ("sums", PRINT_SUMS, SUMS), ("endless", "print(1)\nwait()\n", "1\n"))
    _, _, messages = project.pytest("snippets")
    assert re.match(
        r"snippets/page\.md:1[3-7]: the cell 'endless' is not done after 3 seconds", messages["page::endless"]
    )
    assert messages["page::sums"] == ""


@pytest.mark.parametrize("slug", NOT_READ)
def test_a_block_that_would_not_run_is_an_error(bad, slug):
    [message] = [text for name, text in bad.items() if slug in name]
    assert f"snippets/{slug}.md:" in message
    assert "expected" in message


@pytest.mark.parametrize(("test", "page"), [("on-no-page::sums", "on-no-page"), ("no-page::setup", "no-page")])
def test_a_cell_on_no_page_is_an_error(bad, test, page):
    assert f"is on no page; show it in docs/en/{page}.md" in bad[test]


def test_a_file_shows_cells_of_another_which_run_with_its_own_and_are_mended_there(tmp_path):
    project = Project(tmp_path)
    unused = ("unused", "def unused(x):\n    return x  # (T,)\n")
    page = project.add("page", SETUP, unused, ("sums", PRINT_SUMS, "tensor([9.])\n"))
    before = page.read_text()
    shown = [f'--8<-- "page.md:{name}"' for name in ("setup", "unused", "sums")]
    lab = project.write("snippets/labs/a.md", "\n\n".join([*shown, cell("total", "print(inputs.sum())\n")]))
    project.write("docs/en/labs/a.md", "\n\n".join([*shown, '--8<-- "labs/a.md:total"\n']))
    _, _, messages = project.pytest("snippets/labs", "--update")
    said = messages.pop("labs/a::sums")
    assert said.startswith("snippets/page.md:19: print(inputs.sum(dim=-1))\nThe page shows (-)")
    assert said.endswith("nox -s update -- page")
    assert "mend sums first" in messages.pop("labs/a::notebook")
    assert messages == dict.fromkeys(["labs/a::setup", "labs/a::unused", "labs/a::total"], "")
    assert "```text\ntensor(21.)\n```" in lab.read_text()
    assert page.read_text() == before
    page.write_text(before.replace("tensor([9.])\n", SUMS))
    status, text, _ = project.pytest("snippets/labs", "--record")
    assert status == 0, text
    recorded = json.loads((tmp_path / "verified/cpu.json").read_text())["labs/a"]["cells"]
    assert recorded.keys() == {"setup", "unused", "sums", "total"}


NEEDS_SIM = (
    "where",
    "print(torch.ones(2).device, torch.ones(2, device='sim'))\n",
    "cpu tensor([1., 1.], device='sim:0')\n",
    "needs sim: the CPU is not pretended",
)
READERS = """print(torch.backends.cudnn.enabled, torch.backends.cuda.flash_sdp_enabled())
torch.manual_seed(0)
here, there = torch.randn(3), torch.randn(3, device="sim").cpu()
torch.manual_seed(0)
print(torch.equal(here, torch.randn(3)), torch.equal(here, there))
"""
NEEDS_CUDA = ("fused", "print(torch.cuda.get_device_name())\n", None, "needs cuda: a kernel of its own")


def test_a_cell_that_needs_another_device_is_listed_as_not_run_with_its_reason(tmp_path):
    project = Project(tmp_path)
    project.add("page", SETUP, NEEDS_SIM, ("sums", PRINT_SUMS, SUMS), NEEDS_CUDA)
    status, text, _ = project.pytest("snippets", "--record")
    assert status == 0, text
    assert "SKIPPED [1] snippets/page.md: 'where' needs sim: the CPU is not pretended" in text
    assert "SKIPPED [1] snippets/page.md: 'fused' needs cuda: a kernel of its own" in text
    assert "3 passed, 2 skipped" in text, "setup, sums and the notebook"
    assert set(json.loads((tmp_path / "verified/cpu.json").read_text())["page"]["cells"]) == {"setup", "sums"}


def test_a_cell_runs_on_the_device_that_it_needs(tmp_path):
    project = Project(tmp_path)
    project.add("page", SETUP, NEEDS_SIM, NEEDS_CUDA)
    status, text, _ = project.pytest("snippets", "--device", "sim")
    assert status == 0, text
    assert "3 passed, 1 skipped" in text, "setup, where and the notebook; not what needs cuda"


# slug: (the cell, words of the message)
BAD_ON_ITS_DEVICE = {
    "a-wrong-output": ("cpu\n", NEEDS_SIM[1], "nox -s gpu -- --update snippets/a-wrong-output.md"),
    "no-output-yet": (None, NEEDS_SIM[1], "nox -s gpu -- --update snippets/no-output-yet.md"),
    "nothing-printed": (None, "x = torch.ones(2)\n", "the cell 'bad' prints nothing"),
    "a-shape-never-run": ("1\n", "def f(x):\n    return x  # (T, D)\n\n\nprint(1)\n", "its shape comment is unchecked"),
    "a-lucky-draw": (None, "print(torch.rand(2) < 2)\n", "without a seed of its own"),
}


def test_on_its_device_a_cell_obeys_the_rules_of_the_house(tmp_path):
    project = Project(tmp_path)
    for slug, (output, code, _) in BAD_ON_ITS_DEVICE.items():
        project.add(slug, SETUP, ("bad", code, output, NEEDS_SIM[3]))
    _, _, messages = project.pytest("snippets", "--device", "sim")
    for slug, (_, _, words) in BAD_ON_ITS_DEVICE.items():
        assert f"snippets/{slug}.md:1" in messages[f"{slug}::bad"]
        assert words in messages[f"{slug}::bad"]


def test_update_on_a_device_writes_the_cells_that_need_it_and_no_other(tmp_path):
    project = Project(tmp_path)
    right = project.add("page", SETUP, NEEDS_SIM).read_text()
    path = project.add("page", SETUP, (NEEDS_SIM[0], NEEDS_SIM[1], None, NEEDS_SIM[3]))
    wrong = project.add("wrong", SETUP, ("sums", PRINT_SUMS, "tensor([9.])\n"))
    before = wrong.read_text()
    status, _, messages = project.pytest("snippets", "--device", "sim", "--update")
    assert status == 1
    assert "The CPU prints what the page shows; --device sim does not." in messages["wrong::sums"]
    assert path.read_text() == right
    assert wrong.read_text() == before


def test_a_cell_runs_on_its_device_as_a_reader_runs_it_and_the_next_one_does_not_notice(tmp_path):
    """With fused kernels, cuDNN and the random numbers of the device, and without a default device."""
    project = Project(tmp_path)
    own = ("own", READERS, "True True\nTrue False\n", NEEDS_SIM[3])
    seeded = ("seeded", "torch.manual_seed(5)\nprint(torch.randn(2))\n", "tensor([-0.4868, -0.6038])\n")
    project.add("page", SETUP, own, seeded)
    status, text, _ = project.pytest("snippets", "--device", "sim")
    assert status == 0, text


def test_a_cell_that_does_not_run_here_is_read_all_the_same(tmp_path):
    project = Project(tmp_path)
    project.add("comment", SETUP, ("fused", "print(1)  # 42 on every GPU\n", None, NEEDS_CUDA[3]))
    project.add("syntax", SETUP, ("fused", "print(1\n", None, NEEDS_CUDA[3]))
    project.add("device", SETUP, ("fused", "print(1)\n", None, "needs cdua: a kernel of its own"))
    project.add("no-lab", SETUP, ("time", "print(1)\n", "1\n", "measures: how long it takes"))
    status, text, _ = project.pytest("snippets")
    assert status == 2
    assert "snippets/comment.md:12: a comment in a cell is a shape" in text
    assert "snippets/syntax.md:12: SyntaxError" in text
    assert "snippets/device.md:10: needs cdua: give one of cuda, mps" in text
    assert "snippets/no-lab.md:10: only a lab has figures that measure" in text


def test_a_job_on_github_says_what_it_ran(tmp_path):
    project = Project(tmp_path)
    project.add("page", SETUP, ("sums", PRINT_SUMS, SUMS), ("wrong", "print(1)\n", "2\n"), NEEDS_CUDA)
    project.write("tests/test_other.py", "def test_other():\n    pass\n")
    project.write("snippets/broken.md", NOT_READ["a-malformed-mark"])
    summary = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    project.pytest("snippets", "tests", "--device", "sim", "--continue-on-collection-errors", **summary)
    summary = (tmp_path / "summary.md").read_text()
    for row in (
        "device | sim",
        f"torch | {torch.__version__}",
        "cells run | 3",
        "cells failed | 1",
        "cells not run | 1",
        "other tests run | 3",
        "other tests failed | 2",
        "snippets/page.md::fused | Skipped: 'fused' needs cuda: a kernel of its own",
    ):
        assert f"| {row} |" in summary
    failed, slowest = summary.split("| failed |")[1].split("| slowest |")
    assert "snippets/page.md::wrong" in failed
    assert "snippets/broken.md" in failed
    assert len(re.findall(r"^\| \S+::\S+ \| \d+\.\d\d \|$", slowest, re.M)) == 5


def test_update_writes_what_the_check_then_accepts(tmp_path):
    project = Project(tmp_path)
    right = project.add(
        "page", SETUP, ("sums", PRINT_SUMS, SUMS), ("last", "print(inputs[0])\n", "tensor([1., 2.])\n")
    ).read_text()
    path = project.add("page", SETUP, ("sums", PRINT_SUMS, "tensor([9.])\n"), ("last", "print(inputs[0])\n"))
    other = project.add("other", SETUP, ("sums", PRINT_SUMS, "tensor([9.])\n"))
    status, text, _ = project.pytest("snippets/page.md", "--update", "--record")
    assert status == 0, text
    assert path.read_text() == right
    assert "tensor([9.])" in other.read_text(), "only the named pages are written"
    assert set(json.loads((tmp_path / "verified/cpu.json").read_text())["page"]["cells"]) == {"setup", "sums", "last"}
    assert project.pytest("snippets/page.md")[0] == 0


def test_a_cell_whose_output_is_missing_is_accused_alone_and_one_update_mends_it(tmp_path):
    """It is not shared: a shared cell below it may give its names a new value."""
    project = Project(tmp_path)
    first, use = ("first", "T = 9\nprint(T)\n", "9\n"), ("use", "print(T)\n", "3\n")
    right = project.add("page", first, SETUP, use).read_text()
    assert project.pytest("snippets", "--record")[0] == 0
    recorded = json.loads((tmp_path / "verified/cpu.json").read_text())["page"]["cells"]
    path = project.add("page", first[:2], SETUP, use)
    _, _, messages = project.pytest("snippets")
    assert "may not print; this one prints:\n\n9\n" in messages.pop("page::first")
    assert messages.pop("page::notebook").endswith("mend first first")
    assert messages == {"page::setup": "", "page::use": ""}
    status, text, _ = project.pytest("snippets", "--update", "--record")
    assert status == 0, text
    assert path.read_text() == right
    assert json.loads((tmp_path / "verified/cpu.json").read_text())["page"]["cells"] == recorded


def test_a_cell_that_uses_a_name_of_one_whose_output_is_missing_is_not_recorded(tmp_path):
    project = Project(tmp_path)
    project.add("page", SETUP, ("one", "x = 1\nprint(x)\n"), ("two", "print(x)\n"))
    status, _, messages = project.pytest("snippets", "--update", "--record")
    assert status == 1
    assert "name 'x' is not defined" in messages["page::two"]
    assert json.loads((tmp_path / "verified/cpu.json").read_text())["page"]["cells"] == {}


HALF_WRITTEN = """
import pathlib, time

write = pathlib.Path.write_text

def write_half(path, text, **how):
    if "{name}" not in path.name:
        return write(path, text, **how)
    write(path, text[: len(text) // 2], **how)
    time.sleep(60)

pathlib.Path.write_text = write_half
"""


@pytest.mark.parametrize("written", ["verified/cpu.json", "snippets/page.md"])
def test_a_kill_in_the_middle_of_an_update_leaves_every_file_whole(tmp_path, written):
    project = Project(tmp_path)
    page = project.add("page", ("sums", "print(1)\n", "0\n"))
    project.pytest("snippets", "--record")
    before = {path: path.read_text() for path in (page, tmp_path / "verified/cpu.json")}
    path = tmp_path / written
    conftest = tmp_path / "conftest.py"
    conftest.write_text(conftest.read_text() + HALF_WRITTEN.replace("{name}", path.name))
    run = project.start("snippets", "--update", "--record")
    while not list(path.parent.glob(f".{path.name}.*")):
        assert run.is_alive()
        time.sleep(0.05)
    run.kill()
    run.join()
    assert path.read_text() == before[path]
    assert page.read_text() == before[page]
    assert json.loads((tmp_path / "verified/cpu.json").read_text())["page"]["cells"].keys() <= {"sums"}


STOP = """


def pytest_runtest_protocol(item):
    if item.nodeid == "snippets/page.md::setup":
        {how}
"""


@pytest.mark.parametrize(
    ("how", "arguments"),
    [
        ("raise KeyboardInterrupt", []),
        ("item.session.shouldstop = 'enough'", []),
        ("item.runtest = None  # it fails", ["-x"]),
        ("1 / 0  # an internal error", []),
        ("pass", ["--collect-only"]),
        ("pass", ["--deselect", "snippets/page.md::sums"]),
        ("pass", ["broken"]),
    ],
)
def test_a_run_that_stops_before_its_end_writes_nothing_and_says_so(tmp_path, how, arguments):
    project = Project(tmp_path)
    project.write("broken/snippets/unreadable.md", NOT_READ["a-malformed-mark"])
    project.add("done", SETUP, ("sums", PRINT_SUMS, SUMS))
    project.add("page", SETUP, ("sums", PRINT_SUMS, SUMS))
    assert project.pytest("snippets", "--record")[0] == 0
    done = project.add("done", SETUP, ("sums", PRINT_SUMS, "tensor([9.])\n"))
    before = {path: path.read_text() for path in (done, tmp_path / "verified/cpu.json")}
    conftest = tmp_path / "conftest.py"
    conftest.write_text(conftest.read_text() + STOP.replace("{how}", how))
    _, text, _ = project.pytest("snippets", "--update", "--record", *arguments)
    assert {path: path.read_text() for path in before} == before
    assert "\nstopped before the end: snippets/ and verified/ are as they were\n" in text


def test_update_refuses_what_is_not_the_same_twice_and_keeps_the_file(tmp_path):
    project = Project(tmp_path)
    path = project.add("page", SETUP, ("draw", "print(torch.randn(2))\n", RANDOM))
    before = path.read_text()
    status, _, messages = project.pytest("snippets", "--update")
    assert status == 1
    assert "torch.manual_seed" in messages["page::draw"]
    assert path.read_text() == before


def test_a_record_keeps_only_what_passed_alone_and_as_a_notebook(tmp_path):
    project = Project(tmp_path)
    project.add("right", SETUP, ("sums", PRINT_SUMS, SUMS))
    project.add("wrong", SETUP, ("sums", PRINT_SUMS, SUMS), ("wrong", "print(1)\n", "2\n"))
    project.add("later", ("one", "x = 1\nprint(x)\n", "1\n"), ("two", "print('x' in globals())\n", "False\n"))
    status, text, messages = project.pytest("snippets", "--record")
    assert status == 1, text
    pages = json.loads((tmp_path / "verified/cpu.json").read_text())
    assert {slug: set(page["cells"]) for slug, page in pages.items()} == {
        "right": {"setup", "sums"},
        "wrong": set(),
        "later": set(),
    }
    assert set(pages["right"]) == {"cells", "date", "device", "python", "torch"}
    assert messages["wrong::notebook"].endswith("wrong.md: the notebook fails, and so do cells of it: mend wrong first")
    _, _, messages = project.pytest("snippets/later.md::notebook")
    assert "as in the notebook of the page later" in messages["later::notebook"]


def test_a_page_of_which_nothing_passes_any_more_loses_its_record(tmp_path):
    project = Project(tmp_path)
    project.add("page", ("setup", "import os\n\nassert 'BROKEN' not in os.environ\n"), ("show", "print(1)\n", "1\n"))
    project.add("other", SETUP)
    assert project.pytest("snippets", "--record")[0] == 0
    assert project.pytest("snippets/page.md", "--record", BROKEN="1")[0] == 1
    pages = json.loads((tmp_path / "verified/cpu.json").read_text())
    assert pages["page"]["cells"] == {}
    assert set(pages["other"]["cells"]) == {"setup"}


def test_update_refuses_what_a_page_cannot_show(tmp_path):
    project = Project(tmp_path)
    right = project.add("right", SETUP, ("sums", PRINT_SUMS))
    prints = {"fence": "```\\n", "mark": "<!-- x\\n", "feed": "\\x0c\\n", "accent": "\\xe9\\n", "open": "no line break"}
    paths = {
        slug: project.add(slug, SETUP, ("show", f"print('{printed}', end='')\n", "x\n"))
        for slug, printed in prints.items()
    }
    before = {slug: path.read_text() for slug, path in paths.items()}
    status, text, messages = project.pytest("snippets", "--update", "--record")
    assert status == 1, text
    for slug in prints:
        assert "a page cannot show what the cell 'show' prints" in messages[f"{slug}::show"]
    assert {slug: path.read_text() for slug, path in paths.items()} == before
    assert SUMS in right.read_text(), "the other pages are written"


def test_only_snippets_are_run(tmp_path):
    """A block of another Markdown file is a command for people."""
    project = Project(tmp_path)
    project.write("README.md", "```sh\ntouch run\n```\n")
    project.add("page", SETUP)
    status, text, messages = project.pytest(".")
    assert status == 0, text
    assert set(messages) == {"page::setup", "page::notebook"}
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--record", "-n", "2"], "--update and --record write files from one process; leave out -n"),
        (["--update", "-n", "2"], "--update and --record write files from one process; leave out -n"),
        (["--record", "-k", "sums"], "--record: snippets/right.md is selected in part; name the whole file"),
        (["--record", "--device", "sim"], "--record: the pretend accelerator proves nothing"),
        (["--device", "cuda"], "--device cuda: torch"),
        (["--device", "gpu"], "--device gpu: give one of cpu, cuda"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(good, arguments, words):
    before = {path: path.read_text() for path in good.folder.glob("snippets/*.md")}
    status, text, _ = good.pytest("snippets", *arguments)
    assert status == 4
    assert words in text
    assert {path: path.read_text() for path in before} == before


def test_a_corrupt_record_is_named_and_kept(tmp_path):
    project = Project(tmp_path)
    project.add("page", SETUP)
    record = project.write("verified/cpu.json", "{\n broken")
    status, text, _ = project.pytest("snippets", "--record")
    assert status != 0
    assert "verified/cpu.json:2: not JSON" in text
    assert record.read_text() == "{\n broken"
