"""Every command of the project; `nox -l` lists them."""

import argparse
import contextlib
import os
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.11.12"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests"]
nox.options.stop_on_first_error = True  # what lacks a browser stops before torch is installed

PROJECT = nox.project.load_toml("pyproject.toml")
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
QUIET = {"NO_MKDOCS_2_WARNING": "1"}  # Material's banner about its end of life
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # each, or the threads of the workers get in each other's way
ON_SIM_IN_EVERY_RUN = ("snippets/practice/dropout.md", "snippets/masks/padding.md", "snippets/cache/grouped.md")

site = nox.session(venv_backend="none", requires=["site-env"])
torch = nox.session(venv_backend="none", requires=["torch-env"])
browser = nox.session(venv_backend="none", requires=["browser-env", "torch-env"])


def run(session: nox.Session, environment: str, module: str, *arguments: str, **options: Any) -> None:
    """Run a Python module in one of the two environments."""
    folder = session.env_dir.parent / environment
    python = folder / "Scripts/python.exe" if os.name == "nt" else folder / "bin/python"
    session.run(str(python), "-m", module, *arguments, external=True, **options)


@site
def serve(session: nox.Session) -> None:
    """Serve the English site at 127.0.0.1:8000 with live reload; `-- --lang zh`, `-- --lang all`, `-- -a HOST:PORT`."""
    parser = argparse.ArgumentParser(prog="nox -s serve --", add_help=False)
    parser.add_argument("--lang", default="en")
    options, rest = parser.parse_known_args(session.posargs)
    session.log(f"language: {options.lang}; -- --lang it, or zh, serves another, and -- --lang all all of them")
    only = options.lang.replace("all", "")  # one alone reloads in a third of the time
    run(session, "site-env", "mkdocs", "serve", *rest, env={**QUIET, "ONLY_LANGUAGE": only})


@site
def docs(session: nox.Session) -> None:
    """Build the site into site/; a warning is an error."""
    run(session, "site-env", "mkdocs", "build", "--strict", *session.posargs, env=QUIET)


@site
def translations(session: nox.Session) -> None:
    """List what translations lack; `-- --accept masks/padding --lang it` records that one says the same."""
    run(session, "site-env", "tools.languages.freshness", *session.posargs)


@browser
def tests(session: nox.Session) -> None:
    """All tests: lint, cells, page tests, structure, the built site in a browser."""
    if session.posargs:
        session.error("tests runs everything and takes no arguments; for a part: nox -s cells -- tests/structure")
    check_style(session)
    run_tests(session)
    run_tests(session, "--device", "sim", "tests/device", *ON_SIM_IN_EVERY_RUN)


@torch
def cells(session: nox.Session) -> None:
    """Run the cells: all, or `-- masks/padding`; or what you name to pytest, such as `-- tests/structure`."""
    pages = {name: f"snippets/{name}.md" for name in session.posargs if Path(f"snippets/{name}.md").is_file()}
    run(session, "torch-env", "pytest", *([pages.get(name, name) for name in session.posargs] or ["snippets"]))


@torch
def update(session: nox.Session) -> None:
    """Write all that is generated, of all pages or `-- masks/padding`: outputs, record, notebooks, figures."""
    files = named(session) or sorted(path.as_posix() for path in Path("snippets").rglob("*.md"))
    run(session, "torch-env", "pytest", "--update", "--record", *files)
    if labs := [file for file in files if Path(file).parent.name == "labs"]:
        run(session, "torch-env", "tools.labs.build", *labs)
    run(session, "torch-env", "tools.figures.explorers")


@torch
def gpu(session: nox.Session) -> None:
    """Run cells, page tests and random-number cases on CUDA and record them; fails where there is no CUDA device."""
    cases = session.posargs or ["snippets", "tests/device", "tests/pages"]
    run(session, "torch-env", "pytest", "--device", "cuda", "--record", *cases)


@torch
def sim(session: nox.Session) -> None:
    """Run every cell and the random-number cases on the pretend accelerator; `nox -s tests` runs three pages."""
    run_tests(session, "--device", "sim", "tests/device", "snippets")


@torch
def lint(session: nox.Session) -> None:
    """Run ruff on our Python and on the code inside the cells, and mypy; `-- --fix` repairs what it can."""
    check_style(session, *session.posargs)


@torch
def families(session: nox.Session) -> None:
    """Point the kit of probes at small models of transformers and attention of timm and others; `-- -k llama`."""
    wheels = nox.project.dependency_groups(PROJECT, "families")
    run(session, "torch-env", "pip", "install", "--quiet", *wheels, "-c", "constraints.txt")
    run(session, "torch-env", "pytest", "tests/families", *session.posargs, env=ONE_THREAD)


@torch
def mutants(session: nox.Session) -> None:
    """Break the code of pages in small ways and print what no test notices: all, or `-- masks/padding`."""
    named(session)
    run(session, "torch-env", "tests.pages.mutants", *session.posargs, env=ONE_THREAD)


@browser
def standards(session: nox.Session) -> None:
    """Ask the Nu validator and Lighthouse, which it installs with npm, what they think of the built site."""
    wheels = nox.project.dependency_groups(PROJECT, "standards")
    run(session, "torch-env", "pip", "install", "--quiet", *wheels, "-c", "constraints.txt")
    run(session, "torch-env", "pytest", "tests/standards")


@browser
def bench(session: nox.Session) -> None:
    """Print the sizes of the house, what a visit and a build take, and what a page costs the tests."""
    run(session, "torch-env", "tests.bench")


def check_style(session: nox.Session, *options: str) -> None:
    run(session, "torch-env", "ruff", "check", *options)
    run(session, "torch-env", "ruff", "format", *([] if options else ["--check"]))
    run(session, "torch-env", "tools.cells.lint")
    run(session, "torch-env", "mypy")


def run_tests(session: nox.Session, *arguments: str) -> None:
    workers = 1 + (os.cpu_count() or 1)  # one more than processors, since browsers wait; two more gain nothing
    run(session, "torch-env", "pytest", "-n", str(workers), "--dist", "worksteal", *arguments, env=ONE_THREAD)


def named(session: nox.Session) -> list[str]:
    """The snippet files of the pages that are named."""
    files = [Path("snippets", f"{slug}.md") for slug in session.posargs]
    if missing := next((file for file in files if not file.is_file()), None):
        session.error(f"there is no {missing}")
    return [file.as_posix() for file in files]


# -- environments that the sessions above share, so that torch is installed once -----------------


@nox.session(name="site-env", default=False)
def site_env(session: nox.Session) -> None:
    """(internal) The environment of serve and docs, without torch."""
    session.install(*nox.project.dependency_groups(PROJECT, "docs"), "-c", "constraints.txt")


@nox.session(name="browser-env", venv_backend="virtualenv", default=False)
def browser_env(session: nox.Session) -> None:
    """(internal) A browser and a Chinese font for the tests, or one sentence that says what to install."""
    session.run("python", "-m", "tests.browser.machine")


@nox.session(name="torch-env", default=False)
def torch_env(session: nox.Session) -> None:
    """(internal) The environment of all other sessions, with torch."""
    groups = nox.project.dependency_groups(PROJECT, "docs", "tests", "labs", "lint")
    session.install(*groups, "-c", "constraints.txt", *small_torch(session))


def small_torch(session: nox.Session) -> list[str]:
    """On Linux without an NVIDIA driver: pip's option for the CPU build of torch, where its index answers."""
    installed = any(Path(session.virtualenv.location).glob("lib/*/site-packages/torch"))
    if installed or sys.platform != "linux" or shutil.which("nvidia-smi"):
        return []
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{CPU_BUILDS}/torch/", timeout=3):
        return ["--extra-index-url", CPU_BUILDS]
    session.warn(f"torch comes with CUDA, some gigabytes; without it: export PIP_EXTRA_INDEX_URL={CPU_BUILDS}")
    return []
