"""A machine that lacks what the tests need is told so at once, in one sentence."""

import pytest

from tests.browser import machine


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
