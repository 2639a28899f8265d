"""A page allows no script but those that it came with, and works so."""

import re

import pytest

from tests.browser import site
from tests.browser.conftest import open_tab

POLICY = re.compile('<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="([^"]+)">')


def test_every_page_has_a_policy_without_unsafe_scripts(built):
    for path in built.rglob("*.html"):
        [policy] = POLICY.findall(path.read_text("utf-8"))
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == "'none'"
        assert "unsafe-inline" not in rules["script-src"]
        assert "'unsafe-eval'" not in rules["script-src"]


def test_a_script_that_slips_in_does_not_run(tab):
    opened = tab.open("masks/causal/")
    html = "<img src=x onerror='hacked = 1'>"
    opened.evaluate("html => document.querySelector('article').insertAdjacentHTML('afterbegin', html)", html)
    opened.wait_for_timeout(300)
    assert opened.evaluate("typeof hacked") == "undefined"
    assert any("Content Security Policy" in fault for fault in tab.faults)
    tab.faults.clear()


@pytest.fixture(scope="module")
def headers(built):
    """Those that CONTRIBUTING.md names for servers, with the policy of a page."""
    lines = re.findall(r"^      ([A-Z][\w-]+): (.+)$", (site.ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M)
    [policy] = POLICY.findall((built / "index.html").read_text("utf-8"))
    return {name: value.replace("POLICY", policy) for name, value in lines}


def test_one_policy_serves_all_pages_as_a_header(built):
    assert len({policy for path in built.rglob("*.html") for policy in POLICY.findall(path.read_text("utf-8"))}) == 1


def test_under_the_headers_for_servers_a_page_works(chromium, built, headers):
    assert {"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"} <= set(headers)
    with site.serve(built, headers) as server, open_tab(chromium, server) as tab:
        opened = tab.open("it/masks/causal/", quiet=True)
        tab.copy(0)
        opened.keyboard.press("/")
        opened.keyboard.insert_text("softmax")
        opened.locator(".search__results a").first.wait_for()


def test_under_the_headers_for_servers_no_other_site_frames_a_page(chromium, built, headers, tmp_path):
    with site.serve(built, headers) as server, site.serve(tmp_path) as other, open_tab(chromium, other) as tab:
        (tmp_path / "index.html").write_text(f'<link rel="icon" href="data:,"><iframe src="{server.url}"></iframe>')
        tab.open("", quiet=True)
        assert any("frame-ancestors" in fault for fault in tab.faults), tab.faults
        tab.faults.clear()


@pytest.mark.parametrize(
    "slug", ["index", "masks/causal", "labs/see-the-masks", "map", "symbols", "glossary", "verified"]
)
def test_under_its_policy_a_page_works_without_a_fault(tab, slug):
    """`tab` fails on every message of the browser's console."""
    opened = tab.open(site.Page("zh", slug).path, quiet=True)
    opened.keyboard.press("/")
    opened.keyboard.insert_text("掩码")
    opened.locator(".search__results a").first.wait_for()
