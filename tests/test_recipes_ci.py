"""recipes/github and recipes/gitlab: valid by the schemas, and each step run as the runners run it."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from recipe_runs import RECIPES, TRAIN, environment

from conftest import needs, python

WORKFLOW = RECIPES / "github" / "workflow.yml"
PIPELINE = RECIPES / "gitlab" / ".gitlab-ci.yml"
SCHEMAS = {WORKFLOW: "vendor.github-workflows", PIPELINE: "vendor.gitlab-ci"}


@needs("check_jsonschema")
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.parent.name)
def test_schemas_accept_the_files(path: Path, tmp_path: Path) -> None:
    def checked(file: Path) -> int:
        return python("-m", "check_jsonschema", "--builtin-schema", SCHEMAS[path], file).returncode

    wrong = tmp_path / path.name
    wrong.write_text(re.sub(r"(\n +)(timeout-minutes|artifacts):", r"\1\2: [x]\1unknown-\2:", path.read_text()))
    assert (checked(path), checked(wrong)) == (0, 1)


def test_actions_are_those_of_this_project() -> None:
    """Pinned by hash; Dependabot and the like look at .github only, so these follow its updates."""
    workflows = (RECIPES.parent / ".github" / "workflows").glob("*.yml")
    ours = {line for path in workflows for line in re.findall(r"uses: (.+)", path.read_text())}
    used = re.findall(r"uses: (.+)", WORKFLOW.read_text())
    assert used and {*used} <= ours
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "requirements.txt").touch()
    return tmp_path


def shell(folder: Path, script: str, wheel: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one step. The wheel is installed for real, into the recipe's environment, but not its dependencies."""
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PYTHONPATH": sysconfig.get_path("purelib")}
    env = environment(**{**offline, "POSTMORTEM": str(wheel), **more})
    command = ["bash", "--noprofile", "--norc", *options, "-c", script]
    return subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200
    )


def github(folder: Path, wheel: Path, **more: str) -> tuple[bool, dict[str, str]]:
    """Return whether the job succeeded, and the output of each step; GitHub's own actions are left out."""
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    given = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "RUNNER_TEMP": str(folder / "temp"), **more}
    success, outputs = True, {}
    for step in job["steps"]:
        assert step.get("if", "failure()") == "failure()"
        if "run" not in step or ("if" in step) == success:
            continue
        options = ("-eo", "pipefail") if step.get("shell") == "bash" else ("-e",)
        done = shell(folder, step["run"], wheel, *options, **given)
        outputs[step.get("name", "")] = done.stdout
        assert done.returncode == 0 or step.get("name") == "train", done.stdout
        success &= done.returncode == 0
    return success, outputs


def gitlab(folder: Path, wheel: Path, replaced: tuple[str, str] = ("", ""), **more: str) -> tuple[bool, str]:
    """Return whether the job succeeded, and the output of its after_script."""
    job = yaml.safe_load(PIPELINE.read_text())["training smoke test"]
    script = "\n".join([*job["before_script"], *job["script"]]).replace(*replaced)
    success = shell(folder, script, wheel, "-eo", "pipefail", **more).returncode == 0
    after = shell(folder, "\n".join(job["after_script"]), wheel, "-eo", "pipefail", **more)
    assert after.returncode == 0, after.stdout
    for path in (*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]):
        assert (folder / path).exists()
    return success, after.stdout


def failure(folder: Path) -> ET.Element:
    found = ET.parse(folder / "postmortem.xml").find(".//failure")
    assert found is not None
    return found


@pytest.mark.slow
@needs("torch", "bash")
def test_github_names_the_root_cause_of_a_failed_training(checkout: Path, wheel: Path) -> None:
    success, outputs = github(checkout, wheel, BAD_RANK="1")
    assert not success and [*outputs] == ["", "train", "install postmortem", "say why"]
    error, todo = (line for line in outputs["say why"].splitlines() if line.startswith("::"))
    assert error.startswith("::error file=train.py,line=10,title=Incident%3A Python exception")
    assert "ValueError: bad sample in shard 1" in error and todo.startswith("::notice title=What to do now")
    assert (checkout / "summary.md").read_text().startswith("# Rank 1 raised ValueError")
    (upload,) = yaml.safe_load(WORKFLOW.read_text())["jobs"]["smoke"]["steps"][-1:]
    assert all((checkout / path).exists() for path in upload["with"]["path"].split())


@pytest.mark.slow
@needs("torch", "bash")
def test_gitlab_shows_the_verdict_among_the_tests(checkout: Path, wheel: Path) -> None:
    success, _ = gitlab(checkout, wheel, BAD_RANK="1")
    assert not success and failure(checkout).get("type") == "python-exception"
    assert "Rank 1 raised ValueError: bad sample in shard 1" in failure(checkout).get("message", "")


@pytest.mark.release
@needs("torch", "bash")
def test_successful_jobs_have_no_verdict(checkout: Path, wheel: Path) -> None:
    success, outputs = github(checkout, wheel)
    assert success and [*outputs] == ["", "train"] and not (checkout / "summary.md").exists()
    success, _ = gitlab(checkout, wheel)
    suite = ET.parse(checkout / "postmortem.xml").getroot()
    assert success and suite.get("tests") == "1" and suite.get("failures") == "0"


@pytest.mark.release
@needs("torch", "bash")
def test_killed_and_hung_trainings_fail(checkout: Path, wheel: Path) -> None:
    """A killed torchrun writes nothing itself, and of a job stopped from outside no more is known than that."""
    success, output = gitlab(checkout, wheel, ("timeout 15m", "timeout 20s"), LATE_RANK="1")
    assert not success and output.startswith("INCIDENT")
    assert failure(checkout).get("type") in ("external-signal", "hang")
    (checkout / "train.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    success, outputs = github(checkout, wheel)
    assert not success and "was killed by SIGKILL" in outputs["say why"]
