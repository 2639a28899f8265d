"""What the sessions of the noxfile decide by themselves: a wrong argument is named, torch comes without CUDA."""

import contextlib
import importlib.util
import types
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.configuration import ROOT

spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")


class Refused(Exception):
    pass


class Session:
    """A session that runs nothing."""

    def __init__(self, *arguments):
        self.posargs, self.env_dir = list(arguments), Path(".nox/a-session")

    def run(self, *command, **options):
        raise AssertionError(f"runs {command}")

    def error(self, message):
        raise Refused(message)


@pytest.fixture(scope="module")
def sessions():
    with contextlib.chdir(ROOT):
        noxfile = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(noxfile)
        yield noxfile


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("update", ["foundations/casual"], "there is no snippets/foundations/casual.md"),
        ("mutants", ["masks/nothing-like-it"], "there is no snippets/masks/nothing-like-it.md"),
        ("tests", ["-k", "x"], "takes no arguments"),
    ],
)
def test_a_wrong_argument_is_named(sessions, name, arguments, message):
    with pytest.raises(Refused, match=message):
        getattr(sessions, name)(Session(*arguments))


def fails(*_, **__):
    raise URLError("no such host")


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (contextlib.nullcontext, ["--extra-index-url", "https://download.pytorch.org/whl/cpu"], ""),
        (fails, [], "export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"),
    ],
    ids=["an index that answers", "one that does not"],
)
def test_torch_comes_without_cuda_where_it_can(sessions, monkeypatch, tmp_path, answer, options, said):
    monkeypatch.setattr(sessions.sys, "platform", "linux")
    monkeypatch.setattr(sessions.shutil, "which", lambda program: None)
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: answer())
    told = []
    session = types.SimpleNamespace(virtualenv=types.SimpleNamespace(location=tmp_path), warn=told.append)
    assert sessions.small_torch(session) == options
    assert said in "".join(told)
