"""recipes/github and recipes/gitlab: against the schemas, and their steps run as the runners run them."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from recipe_runs import RECIPES, TRAIN, environment

from conftest import needs

WORKFLOW = RECIPES / "github" / "workflow.yml"
PIPELINE = RECIPES / "gitlab" / ".gitlab-ci.yml"
SCHEMAS = {WORKFLOW: "vendor.github-workflows", PIPELINE: "vendor.gitlab-ci"}


@needs("check_jsonschema")
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.parent.name)
def test_the_schemas_take_them(path: Path, tmp_path: Path) -> None:
    def refused(file: Path) -> int:
        command = ["-m", "check_jsonschema", "--builtin-schema", SCHEMAS[path], file]
        return subprocess.run([sys.executable, *command], capture_output=True, timeout=120).returncode

    wrong = tmp_path / path.name
    wrong.write_text(re.sub(r"(\n +)(timeout-minutes|artifacts):", r"\1\2: [x]\1unknown-\2:", path.read_text()))
    assert (refused(path), refused(wrong)) == (0, 1)


def test_the_actions_are_those_of_this_project() -> None:
    """Pinned by hash; Dependabot and the like look at .github only, so these follow what is updated there."""
    ours = {
        line
        for path in (RECIPES.parent / ".github" / "workflows").glob("*.yml")
        for line in re.findall(r"uses: (.+)", path.read_text())
    }
    used = re.findall(r"uses: (.+)", WORKFLOW.read_text())
    assert used and {*used} <= ours
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


# ── as the runners do it ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "requirements.txt").touch()
    return tmp_path


def shell(folder: Path, script: str, wheel: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """One step. The wheel is installed for real, into the recipe's environment; what it depends on is this suite's."""
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PYTHONPATH": sysconfig.get_path("purelib")}
    env = environment(**{**offline, "POSTMORTEM": str(wheel), **more})
    command = ["bash", "--noprofile", "--norc", *options, "-c", script]
    kept: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "timeout": 200,
    }
    return subprocess.run(command, cwd=folder, env=env, check=False, **kept)


def github(folder: Path, wheel: Path, **more: str) -> tuple[bool, dict[str, str]]:
    """Whether the job went well, and what each step of it said; GitHub's own actions are left out."""
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    told = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "RUNNER_TEMP": str(folder / "temp"), **more}
    well, said = True, {}
    for step in job["steps"]:
        assert step.get("if", "failure()") == "failure()"
        if "run" not in step or ("if" in step) == well:
            continue
        options = ("-eo", "pipefail") if step.get("shell") == "bash" else ("-e",)
        done = shell(folder, step["run"], wheel, *options, **told)
        said[step.get("name", "")] = done.stdout
        assert done.returncode == 0 or step.get("name") == "train", done.stdout
        well &= done.returncode == 0
    return well, said


def gitlab(folder: Path, wheel: Path, replaced: tuple[str, str] = ("", ""), **more: str) -> tuple[bool, str]:
    """Whether the job went well, and what its after_script said."""
    job = yaml.safe_load(PIPELINE.read_text())["training smoke test"]
    script = "\n".join([*job["before_script"], *job["script"]]).replace(*replaced)
    well = shell(folder, script, wheel, "-eo", "pipefail", **more).returncode == 0
    after = shell(folder, "\n".join(job["after_script"]), wheel, "-eo", "pipefail", **more)
    assert after.returncode == 0, after.stdout
    for path in (*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]):
        assert (folder / path).exists()
    return well, after.stdout


@pytest.mark.slow
@needs("torch", "bash")
def test_a_pull_request_that_breaks_the_training_shows_where(checkout: Path, wheel: Path) -> None:
    well, said = github(checkout, wheel, BAD_RANK="1")
    assert not well and [*said] == ["", "train", "install postmortem", "say why"]
    error, todo = (line for line in said["say why"].splitlines() if line.startswith("::"))
    assert error.startswith("::error file=train.py,line=10,title=Incident%3A Python exception")
    assert "ValueError: bad sample in shard 1" in error and todo.startswith("::notice title=What to do now")
    assert (checkout / "summary.md").read_text().startswith("# Rank 1 raised ValueError")
    (upload,) = yaml.safe_load(WORKFLOW.read_text())["jobs"]["smoke"]["steps"][-1:]
    assert all((checkout / path).exists() for path in upload["with"]["path"].split())


@pytest.mark.slow
@needs("torch", "bash")
def test_a_torchrun_that_was_killed_is_not_taken_for_a_good_run(checkout: Path, wheel: Path) -> None:
    """It cannot say so itself; the step's exit code is all there is."""
    (checkout / "train.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    well, said = github(checkout, wheel)
    assert not well and "was killed by SIGKILL" in said["say why"]


@pytest.mark.slow
@needs("torch", "bash")
def test_a_good_pull_request_installs_nothing_and_says_nothing(checkout: Path, wheel: Path) -> None:
    well, said = github(checkout, wheel)
    assert well and [*said] == ["", "train"]
    assert not (checkout / "summary.md").exists()


@pytest.mark.slow
@needs("torch", "bash")
def test_gitlab_shows_the_verdict_among_the_tests(checkout: Path, wheel: Path) -> None:
    well, _ = gitlab(checkout, wheel, BAD_RANK="1")
    assert not well
    failure = ET.parse(checkout / "postmortem.xml").find(".//failure")
    assert failure is not None and failure.get("type") == "python-exception"
    assert "Rank 1 raised ValueError: bad sample in shard 1" in failure.get("message", "")


@pytest.mark.slow
@needs("torch", "bash")
def test_a_good_pipeline_has_a_test_that_passes(checkout: Path, wheel: Path) -> None:
    well, _ = gitlab(checkout, wheel)
    suite = ET.parse(checkout / "postmortem.xml").getroot()
    assert well and suite.get("tests") == "1" and suite.get("failures") == "0"


@pytest.mark.release
@pytest.mark.slow
@needs("torch", "bash")
def test_a_job_that_hangs_is_stopped_in_time_to_be_analyzed(checkout: Path, wheel: Path) -> None:
    """Of a job that is stopped from outside, no more is known than that; docs/how-to/ci.md says how to know more."""
    well, said = gitlab(checkout, wheel, ("timeout 15m", "timeout 20s"), LATE_RANK="1")
    assert not well and said.startswith("INCIDENT")
    failure = ET.parse(checkout / "postmortem.xml").find(".//failure")
    assert failure is not None and failure.get("type") in ("external-signal", "hang")
