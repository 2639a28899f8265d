import contextlib
import functools
import shutil
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from filelock import FileLock
from playwright.sync_api import expect

from tests.browser import site

LIMIT = 20_000  # milliseconds; a busy machine needs some
SCREEN = {"viewport": {"width": 1300, "height": 900}}
SCREENS = {
    "wide": SCREEN,
    "phone": {"has_touch": True, "is_mobile": True, "viewport": {"width": 390, "height": 844}},
    "bare": {"java_script_enabled": False},
}
AS_USUAL = dict.fromkeys(("media", "color_scheme", "reduced_motion", "forced_colors"), "null")
expect.set_options(timeout=LIMIT)
COPY = """async cell => {
    await navigator.clipboard.writeText("nothing yet")
    cell.querySelector("[data-copy]").click()
    for (let frames = 0; frames < 300 && await navigator.clipboard.readText() === "nothing yet"; frames++)
        await new Promise(requestAnimationFrame)
    return navigator.clipboard.readText()
}"""
# All that a page announces, since a message goes after two seconds, before a busy machine looks.
HEARD = """globalThis.heard = []
new MutationObserver(changes => {
    const statuses = changes.map(({ target }) => target).filter(target => target.role === "status")
    heard.push(...statuses.map(status => status.textContent))
}).observe(document, { subtree: true, childList: true })"""


@pytest.fixture(scope="session")
def once(tmp_path_factory, worker_id):
    """A function that makes a folder, once for all workers; one that could not be made is made anew."""
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent

    def once(name, make):
        folder, unfinished = base / name, base / f"{name}-unfinished"
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                shutil.rmtree(unfinished, ignore_errors=True)
                make(unfinished)
                unfinished.rename(folder)
        return folder

    return once


@pytest.fixture(scope="session")
def built(once):
    """The folder of the site; its build says nothing but that it builds."""

    def build(folder):
        said = site.build(folder)
        assert [line for line in said.splitlines() if not line.startswith("INFO ")] == []

    return once("site", build)


@pytest.fixture(scope="session")
def server(built):
    with site.serve(built) as server:
        yield server


@pytest.fixture(scope="session")
def chromium():
    with site.browser() as chromium:
        yield chromium


@dataclass
class Tab:
    """A browser tab that remembers what it asked for, and what went wrong in it."""

    page: object
    server: object
    size: dict
    asked: list = field(default_factory=list)
    faults: list = field(default_factory=list)

    def open(self, path, quiet=False):
        """Open a path of the site and wait until it is loaded; `quiet`: until it has asked for nothing for 500 ms, too.

        Playwright's `networkidle` can come before the page is loaded, while a long one is parsed.
        """
        self.page.goto(self.server.url + path)
        asked = None
        while quiet and asked != len(self.asked):
            asked = len(self.asked)
            self.page.wait_for_timeout(500)
        return self.page

    def ends_at(self, end):
        """Wait until the address ends so; Playwright's own `page.url` lags behind what a script writes into it."""
        self.page.wait_for_function("end => location.href.endsWith(end)", arg=end)

    def hears(self, words):
        """Wait until the page has announced some words, since it was opened or heard the last time."""
        self.page.wait_for_function("words => heard.includes(words) && heard.splice(0)", arg=words)

    def clipboard(self):
        return self.page.evaluate("navigator.clipboard.readText()")

    def renew(self):
        """Forget what a test has left: what it kept, chose and asked for. A warm tab costs a third of a new one."""
        self.page.evaluate("() => { try { sessionStorage.clear() } catch { /* nothing was opened */ } }")
        self.page.goto("about:blank")
        self.page.unroute_all()
        self.page.context.unroute_all()
        self.page.emulate_media(**AS_USUAL)
        self.page.set_viewport_size(self.size)
        self.page.mouse.move(0, 0)
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.server.url))
        session = self.page.context.new_cdp_session(self.page)
        session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        session.detach()
        self.asked.clear()
        self.faults.clear()
        return self

    def unfold(self):
        """Open every folded block at once."""
        self.page.locator("article details > summary").evaluate_all("parts => parts.forEach(part => part.click())")

    def copy(self, number):
        """Press the copy button of a cell, counted from 0; return what is on the clipboard then."""
        return self.page.locator("article .language-python").nth(number).evaluate(COPY)


@contextlib.contextmanager
def open_tab(chromium, server, **screen):
    """A fresh tab; it fails if a page asks another host or logs anything, as a browser does if no answer comes."""
    screen = SCREEN | screen
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"], **screen)
    context.set_default_timeout(LIMIT)
    context.add_init_script(HEARD)
    tab = Tab(context.new_page(), server, screen["viewport"])
    host = urlsplit(server.url).netloc

    def on_request(asked):
        tab.asked.append(asked.url)
        if urlsplit(asked.url).netloc != host and not asked.url.startswith(("data:", "blob:")):
            tab.faults.append(f"asks another host: {asked.url}")

    context.on("request", on_request)
    tab.page.on("pageerror", lambda error: tab.faults.append(f"script error: {error}"))
    tab.page.on("console", lambda said: tab.faults.append(f"console: {said.text} {said.location['url']}"))
    yield tab
    context.close()
    assert tab.faults == []


@pytest.fixture
def newcomer(chromium, server):
    """A tab that has nothing in its cache, and keeps nothing for others: for what is counted, and for other clocks."""
    with open_tab(chromium, server) as tab:
        yield tab


@pytest.fixture(scope="session")
def kept(chromium, server):
    """A function that gives the tab of a screen; it is opened once."""
    with contextlib.ExitStack() as opened:
        yield functools.cache(lambda name: opened.enter_context(open_tab(chromium, server, **SCREENS[name])))


@pytest.fixture
def tab(kept):
    """A tab for one test.

    A test that wants another screen or colour scheme calls `tab.page.set_viewport_size` or `tab.page.emulate_media`;
    one that provokes a fault on purpose clears `tab.faults`.
    """
    yield (tab := kept("wide").renew())
    assert tab.faults == []


@pytest.fixture
def phone(kept):
    """A tab for one test on a phone, where fingers touch."""
    yield (tab := kept("phone").renew())
    assert tab.faults == []


@pytest.fixture
def bare(kept):
    """A tab for one test without JavaScript."""
    yield (tab := kept("bare").renew())
    assert tab.faults == []
