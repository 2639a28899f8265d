"""What runs on GitHub keeps to its limits; above all, nobody's pull request reaches a machine of ours."""

import os
import re
import subprocess
import tarfile
import zipfile

import pytest
import yaml

from tests.configuration import ROOT
from tools.site import home

WORKFLOWS = {path.name: path for path in sorted(ROOT.glob(".github/workflows/*.yml"))}


def load(name):
    return yaml.load(WORKFLOWS[name].read_text("utf-8"), yaml.BaseLoader)  # BaseLoader keeps the key `on` a text


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_has_a_limit_its_rights_by_name_and_actions_by_their_commit(name):
    workflow = load(name)
    used = re.findall(r"uses: (\S+)", WORKFLOWS[name].read_text("utf-8"))
    assert [action for action in used if not re.fullmatch(r"\./\S+|[\w./-]+@[0-9a-f]{40}", action)] == []
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert "permissions" in job
        assert "uses" in job or int(job["timeout-minutes"]) <= 30


def test_a_machine_with_a_gpu_runs_what_is_on_main_alone_every_cell_first():
    workflow = load("gpu.yml")
    assert set(workflow["on"]) == {"push", "schedule", "workflow_dispatch"}
    assert workflow["on"]["push"] == {"branches": ["main"], "paths": ["snippets/**"]}
    [job] = workflow["jobs"].values()
    assert job["runs-on"] == "${{ vars.GPU_RUNNER }}"
    assert job["timeout-minutes"] == "30"
    commands = [step["run"] for step in job["steps"] if "nox -s" in step.get("run", "")]
    assert commands == ["nox -s gpu -- snippets", "nox -s gpu -- tests/device tests/pages"]
    assert "rm -f verified/cuda.json" in [step.get("run") for step in job["steps"]]
    uploads = [step["with"]["path"] for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert uploads == ["verified/cuda.json"]


def test_a_published_site_knows_its_repository_and_the_branch_that_its_pages_link_to():
    url = load("publish.yml")["jobs"]["build"]["env"]["REPOSITORY_URL"]
    assert url == "${{ github.server_url }}/${{ github.repository }}"
    assert load("ci.yml")["on"]["push"]["branches"] == [home.BRANCH]


def test_the_archive_is_the_site_and_lies_in_it_under_the_name_that_pages_know(tmp_path):
    job = load("publish.yml")["jobs"]["build"]
    [make] = [step["run"] for step in job["steps"] if "SITE_ARCHIVE" in step.get("run", "")]
    (tmp_path / "site/it").mkdir(parents=True)
    for path in ("site/index.html", "site/it/index.html"):
        (tmp_path / path).touch()
    subprocess.run(["bash", "-e", "-c", make], cwd=tmp_path, env={**os.environ, **job["env"]}, check=True)
    with zipfile.ZipFile(tmp_path / "site" / job["env"]["SITE_ARCHIVE"]) as archive:
        pages = {name for name in archive.namelist() if name.endswith("html")}
    assert pages == {"site/index.html", "site/it/index.html"}


def test_the_notebooks_of_a_site_are_pushed_as_one_commit_in_place_of_the_last(tmp_path):
    *_, push = load("publish.yml")["jobs"]["notebooks"]["steps"]
    remote = tmp_path / "remote"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    for day, name in enumerate(("a", "b")):
        job = tmp_path / str(day)
        for path in (f"site/{name}/{name}.ipynb", "site/index.html"):
            (job / path).parent.mkdir(parents=True, exist_ok=True)
            (job / path).write_text("{}", "utf-8")
        with tarfile.open(job / "artifact.tar", "w") as archive:
            archive.add(job / "site", arcname=".")
        (job / "site").rename(job / "built")
        environment = {**os.environ, "REMOTE": str(remote)}
        subprocess.run(["bash", "-e", "-c", push["run"]], cwd=job, env=environment, check=True)

    def ask(*words):
        return subprocess.run(["git", "-C", remote, *words], check=True, capture_output=True, text=True).stdout

    assert ask("ls-tree", "-r", "--name-only", home.NOTEBOOKS).split() == ["b/b.ipynb"]
    assert ask("rev-list", "--count", "--all").strip() == "1"
