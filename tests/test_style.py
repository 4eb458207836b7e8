"""ruff, mypy and shellcheck over the project, as tests, so that one command checks a change."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from conftest import ROOT, needs, python

pytestmark = pytest.mark.lint


def run(*command: str) -> str:
    return "" if (done := python("-m", *command)).returncode == 0 else done.stdout + done.stderr


def test_ruff() -> None:
    assert not run("ruff", "check", "--output-format", "concise", ".") + run("ruff", "format", "--check", ".")


@pytest.mark.slow
def test_mypy_strict() -> None:
    assert not run("mypy")


@pytest.mark.slow
def test_prose_keeps_to_the_limits_of_well_kept_libraries() -> None:
    done = python("scripts/prose.py")
    assert not done.returncode, done.stdout


@needs("shellcheck")
def test_shellcheck() -> None:
    recipes = [*(ROOT / "recipes").rglob("*.sh"), *(ROOT / "recipes").rglob("*.sbatch")]
    subprocess.run(["shellcheck", ROOT / ".ci" / "run", *recipes], check=True)


def test_the_suite_reads_no_variable_of_a_developers_shell() -> None:
    """Each of these changes what a command prints or where it writes; the index and the browser are asked for."""
    strange = dict.fromkeys(
        ("POSTMORTEM_HISTORY", "RANK", "SLURM_JOB_ID", "COLUMNS", "FORCE_COLOR", "TZ", "LC_ALL", "PYTHONSTARTUP"), "9"
    )
    asked = {"PIP_INDEX_URL": "http://localhost/simple", "POSTMORTEM_CHROMIUM": "/opt/chromium", "PYTEST_X": "1"}
    code = "import conftest, json, os; conftest.pytest_configure(); print(json.dumps(dict(os.environ)))"
    seen = json.loads(python("-c", code, cwd=ROOT / "tests", env=strange | asked | {"LANG": "de_DE"}).stdout)
    assert not strange.keys() & seen.keys() and asked.items() <= seen.items() and seen["LANG"] == "C.UTF-8"


def test_versions_agree() -> None:
    from postmortem import __version__

    project = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.+)"', project, re.MULTILINE)[1] == __version__  # type: ignore[index]
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_hooks_before_a_commit_run_existing_scripts() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = {hook["id"]: hook for repo in config["repos"] for hook in repo["hooks"]}
    generated = {"contract", "catalogue", "coverage", "examples", "reference"}
    assert hooks.keys() == generated | {"ruff-check", "ruff-format", "mypy"}
    for hook in hooks.values():
        python, *words = hook["entry"].split()
        assert python == ".venv/bin/python" and hook["pass_filenames"] is False
        assert words[0] == "-m" or (ROOT / words[0]).is_file()
        re.compile(hook.get("files", ""))
