"""What the sessions of the noxfile decide by themselves: a wrong argument is named, torch comes without CUDA.

A machine that lacks what the tests need is told so at once, in one sentence.
"""

import contextlib
import importlib.util
import urllib.request
from unittest import mock
from urllib.error import URLError

import pytest

from tests.browser import machine
from tests.configuration import ROOT

spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")


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
    session = mock.MagicMock(posargs=arguments)
    session.error.side_effect = SystemExit
    with pytest.raises(SystemExit):
        getattr(sessions, name)(session)
    assert message in session.error.call_args[0][0]
    session.run.assert_not_called()


@pytest.mark.parametrize("answers", [True, False])
def test_torch_comes_without_cuda_where_its_index_answers(sessions, monkeypatch, tmp_path, answers):
    index = {"return_value": contextlib.nullcontext()} if answers else {"side_effect": URLError("no such host")}
    monkeypatch.setattr(sessions.sys, "platform", "linux")
    monkeypatch.setattr(sessions.shutil, "which", lambda program: None)
    monkeypatch.setattr(urllib.request, "urlopen", mock.Mock(**index))
    session, url = mock.Mock(**{"virtualenv.location": tmp_path}), "https://download.pytorch.org/whl/cpu"
    assert sessions.small_torch(session) == (["--extra-index-url", url] if answers else [])
    assert (f"export PIP_EXTRA_INDEX_URL={url}" in str(session.warn.call_args)) is not answers


# --- a machine that lacks what the tests need -----------------------------------------------------


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A Linux without a browser, without fonts, without apt."""
    monkeypatch.setattr(machine, "FETCHED", tmp_path)
    monkeypatch.setattr(machine.sys, "platform", "linux")
    monkeypatch.setattr(machine.shutil, "which", lambda program: None)
    monkeypatch.setattr(machine, "fetch", lambda: None)


@pytest.mark.usefixtures("bare")
def test_without_a_browser_one_sentence_says_what_to_install():
    with pytest.raises(SystemExit) as stop:
        machine.main()
    assert "need a browser (Chromium, Chrome or Edge) and a font with Chinese characters" in stop.value.code
    assert stop.value.code.endswith("apt-get install chromium-headless-shell fontconfig fonts-noto-cjk).")
    assert "\n" not in stop.value.code


@pytest.mark.usefixtures("bare")
def test_a_browser_that_is_installed_or_was_fetched_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.shutil, "which", lambda program: program if program.startswith(str(tmp_path)) else None)
    assert machine.browser() is None
    fetched = tmp_path / "chromium_headless_shell-1255/chrome-headless-shell-linux64/chrome-headless-shell"
    fetched.parent.mkdir(parents=True)
    fetched.touch()
    assert machine.browser() == str(fetched)
    monkeypatch.setattr(machine.shutil, "which", lambda program: program)
    assert machine.browser() == "chromium-headless-shell"
