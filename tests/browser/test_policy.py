"""A page allows no script but those that it came with, and works so."""

import re

import pytest

from tests.browser import site


def test_every_page_has_a_policy_without_unsafe_scripts(built):
    for path in built.rglob("*.html"):
        [policy] = re.findall(
            r'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="([^"]+)">',
            path.read_text("utf-8"),
        )
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


@pytest.mark.parametrize(
    "slug", ["index", "masks/causal", "labs/see-the-masks", "map", "symbols", "glossary", "verified"]
)
def test_under_its_policy_a_page_works_without_a_fault(tab, slug):
    """`tab` fails on every message of the browser's console."""
    opened = tab.open(site.Page("zh", slug).path, until="networkidle")
    opened.keyboard.press("/")
    opened.keyboard.insert_text("掩码")
    opened.locator(".search__results a").first.wait_for()
