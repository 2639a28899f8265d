"""A page allows no script but those that it came with, and works so; `tab` fails on every word in the console."""


def test_a_script_that_slips_in_does_not_run(tab):
    opened = tab.open("foundations/causal/")
    html = "<img src='data:,' onerror='hacked = 1'>"
    with opened.expect_console_message(lambda said: "Content Security Policy" in said.text):
        opened.evaluate("html => document.querySelector('article').insertAdjacentHTML('afterbegin', html)", html)
    assert opened.evaluate("typeof hacked") == "undefined"
    assert len(tab.faults) == 1, "no other word in the console"
    tab.faults.clear()
