"""A page allows no script but those that it came with, and works so; `tab` fails on every word in the console."""

import re

from tests.browser import site
from tests.browser.conftest import open_tab


def test_a_script_that_slips_in_does_not_run(tab):
    opened = tab.open("foundations/causal/")
    html = "<img src=x onerror='hacked = 1'>"
    opened.evaluate("html => document.querySelector('article').insertAdjacentHTML('afterbegin', html)", html)
    opened.wait_for_timeout(300)
    assert opened.evaluate("typeof hacked") == "undefined"
    assert any("Content Security Policy" in fault for fault in tab.faults)
    tab.faults.clear()


def test_under_the_headers_that_contributing_names_for_servers_a_page_works(chromium, built):
    written = (site.ROOT / "CONTRIBUTING.md").read_text("utf-8")
    headers = dict(re.findall(r"^      ([A-Z][\w-]+): (.+)$", written, re.M))
    assert {"X-Content-Type-Options", "Referrer-Policy"} <= set(headers)
    with site.serve(built, headers) as server, open_tab(chromium, server) as tab:
        opened = tab.open("it/foundations/causal/", quiet=True)
        tab.copy(0)
        opened.keyboard.press("/")
        opened.keyboard.insert_text("softmax")
        opened.locator(".search__results a").first.wait_for()
