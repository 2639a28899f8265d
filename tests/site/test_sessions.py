"""The sessions of the noxfile run the commands that they promise, in the environment that has what these need."""

import contextlib
import importlib.util
import os
import types
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.configuration import ROOT

spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")


LABS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("snippets/labs/*.md"))
GPU = ("torch-env", "pytest", "--device", "cuda", "--record")


class Refused(Exception):
    pass


class Session:
    """A session that runs nothing and remembers what it was told to run."""

    def __init__(self, *arguments):
        self.posargs, self.commands, self.env_dir = list(arguments), [], Path(".nox/a-session")

    def run(self, python, *command, external, **options):
        assert external
        self.commands.append((Path(python).parts[1], *command[1:]))

    def error(self, message):
        raise Refused(message)


@pytest.fixture(scope="module")
def sessions():
    with contextlib.chdir(ROOT):
        noxfile = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(noxfile)
        yield noxfile


@pytest.mark.parametrize(
    ("name", "arguments", "command"),
    [
        ("serve", [], ("site-env", "mkdocs", "serve")),
        ("serve", ["--lang", "zh", "-a", "127.0.0.1:8001"], ("site-env", "mkdocs", "serve", "-a", "127.0.0.1:8001")),
        ("docs", [], ("site-env", "mkdocs", "build", "--strict")),
        (
            "translations",
            ["--accept", "masks/causal", "--lang", "it"],
            ("site-env", "tools.freshness", "--accept", "masks/causal", "--lang", "it"),
        ),
        ("tests", [], ("torch-env", "pytest", "-n", str(1 + os.cpu_count()), "--dist", "worksteal")),
        ("cells", [], ("torch-env", "pytest", "snippets")),
        ("cells", ["masks/causal"], ("torch-env", "pytest", "snippets/masks/causal.md")),
        ("cells", ["docs/it/masks/causal.md", "-x"], ("torch-env", "pytest", "snippets/masks/causal.md", "-x")),
        ("cells", ["tests/structure", "-k", "a"], ("torch-env", "pytest", "tests/structure", "-k", "a")),
        ("cells", ["snippets/masks/causal.md", "-x"], ("torch-env", "pytest", "snippets/masks/causal.md", "-x")),
        ("update", ["masks/causal"], ("torch-env", "pytest", "--update", "--record", "snippets/masks/causal.md")),
        ("gpu", [], (*GPU, "snippets", "tests/device", "tests/pages")),
        ("gpu", ["snippets"], (*GPU, "snippets")),
        ("labs", [], ("torch-env", "tools.labs", *LABS)),
        ("labs", ["labs/see-the-masks"], ("torch-env", "tools.labs", "snippets/labs/see-the-masks.md")),
        ("explorers", [], ("torch-env", "tools.explorers")),
        ("lint", ["--fix"], ("torch-env", "ruff", "check", "--fix")),
        ("mutants", ["masks/causal"], ("torch-env", "tools.mutants", "masks/causal")),
        ("standards", [], ("torch-env", "pytest", "tests/standards")),
        ("bench", [], ("torch-env", "tests.bench")),
    ],
)
def test_a_session_runs_its_command(sessions, name, arguments, command):
    session = Session(*arguments)
    getattr(sessions, name)(session)
    assert command in session.commands


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("update", ["masks/casual"], "there is no page masks/casual in snippets; did you mean masks/causal"),
        ("update", ["snippets/masks/casual.md"], "did you mean masks/causal"),
        ("cells", ["masks/casual"], "there is no page masks/casual in snippets; did you mean masks/causal"),
        (
            "labs",
            ["masks/causal"],
            "there is no page masks/causal in snippets/labs; it has labs/break-it-find-it, labs/",
        ),
        ("serve", ["--lang", "xx"], "there is no language 'xx'; docs/ holds en, it, zh"),
        ("tests", ["-k", "x"], "takes no arguments"),
    ],
)
def test_a_wrong_argument_is_named(sessions, name, arguments, message):
    with pytest.raises(Refused, match=message):
        getattr(sessions, name)(Session(*arguments))


def test_every_session_has_a_help_text(sessions):
    named = [value for value in vars(sessions).values() if type(value).__name__ == "Func"]
    assert len(named) >= 11
    assert all(session.__doc__ for session in named)


def fails(*_, **__):
    raise URLError("no such host")


@pytest.mark.parametrize(
    ("settings", "answer", "options", "said"),
    [
        ("", contextlib.nullcontext, ["--extra-index-url", "https://download.pytorch.org/whl/cpu"], ""),
        ("", fails, [], "export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"),
        ("global.index-url='https://mirror.example/simple'\n", contextlib.nullcontext, [], "that you have set"),
    ],
    ids=["an index that answers", "one that does not", "one of the reader's own"],
)
def test_torch_comes_without_cuda_where_it_can(sessions, monkeypatch, tmp_path, settings, answer, options, said):
    monkeypatch.setattr(sessions.sys, "platform", "linux")
    monkeypatch.setattr(sessions.shutil, "which", lambda program: None)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: answer())
    told = []
    session = types.SimpleNamespace(
        virtualenv=types.SimpleNamespace(location=tmp_path),
        run_install=lambda *_, **__: settings,
        log=told.append,
        warn=told.append,
    )
    assert sessions.small_torch(session) == options
    assert said in "".join(told)
