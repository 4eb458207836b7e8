"""recipes/kubernetes: valid by the published schemas, and each command run as a process; there is no kubelet here."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from recipe_runs import KUBERNETES, TRAIN, Container, containers, environment, manifests, pod

from conftest import needs, table

JOBS = ("job.yaml", "sidecar.yaml", "analysis.yaml")
ENUMS = {name: {*words} for name, words in table("recipes_kubernetes")["enums"].items()}


@needs("kubernetes_validate")
def test_published_schemas_accept_the_manifests() -> None:
    import kubernetes_validate

    assert (found := [*manifests()])
    for path, document in found:
        misspelt = {**document, "spec": {**document["spec"], "replica": 1}}
        for version in ("1.29", "1.37"):
            assert kubernetes_validate.validate(document, version, strict=True) == version, path
            with pytest.raises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(misspelt, version, strict=True)


def test_words_that_the_schemas_do_not_check() -> None:
    seen = set()

    def walk(value: Any) -> None:
        for name, inner in value.items() if isinstance(value, dict) else ():
            if name in ENUMS:
                seen.add(name)
                assert {*(inner if isinstance(inner, list) else [inner])} <= ENUMS[name], name
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(inner)

    for _, document in manifests():
        walk(document)
    assert seen == ENUMS.keys()


def test_containers_have_few_rights() -> None:
    """Not root, nothing writable but its volumes, no token of the API, and a bound of its memory."""
    least = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for name in JOBS:
        spec = pod(name)
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in containers(spec):
            assert container["securityContext"] == least
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_manifests_agree_with_each_other() -> None:
    """Repeated parts are equal: the service, and the start and bounds of the training."""
    services = [document for _, document in manifests() if document["kind"] == "Service"]
    assert len(services) == 2 and services[0] == services[1]
    alone, beside = (next(c for c in pod(name)["containers"]) for name in JOBS[:2])
    for part in ("image", "command", "resources", "securityContext"):
        assert alone[part] == beside[part]
    _, _, *words = alone["args"][: alone["args"].index("torchrun")]
    assert words[-1] == "--", "alone it runs under `postmortem run`, which keeps a log of each rank itself"
    own = [word for word in beside["args"] if not word.startswith(("--log-dir=", "--tee="))]
    assert alone["args"][alone["args"].index("torchrun") :] == own
    assert pod("analysis.yaml")["volumes"] == [v for v in pod("sidecar.yaml")["volumes"] if v["name"] != "shm"]


def keep(folder: Path, script: str, start_new_session: bool = False, **more: str) -> subprocess.Popen[str]:
    command = ["sh", KUBERNETES / "keep.sh", "sh", "-c", script]
    env = environment(**{"LOGS": str(folder / "logs"), **more})
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, env=env, start_new_session=start_new_session, **out)  # type: ignore


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_exit_code_is_that_of_the_job(tmp_path: Path, script: str, code: int) -> None:
    """Even if the analysis fails, as here."""
    job = keep(tmp_path, f"echo out; echo err >&2; {script}", AFTER="echo after; exit 3")
    assert {"out", "err", "after"} <= set(job.communicate(timeout=30)[0].split())
    assert job.returncode == code
    assert (tmp_path / "logs" / "agent.log").read_text() == "out\nerr\n"
    assert (tmp_path / "logs" / "end.log").read_text() == f"command terminated with exit code {code}\n"


def test_job_runs_even_if_its_logs_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job = keep(tmp_path, "echo out; exit 7", LOGS=str(tmp_path / "file" / "logs"))
    assert job.communicate(timeout=30)[0].endswith("out\n") and job.returncode == 7


@pytest.mark.slow
def test_sigterm_reaches_the_job(tmp_path: Path) -> None:
    """A shell that is pid 1 does not forward signals: the job would be killed at the end of the grace period."""
    wait = "trap 'sleep 1; echo stopping; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    job = keep(tmp_path, wait, AFTER="echo after")
    assert job.stdout and job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGTERM)
    assert job.communicate(timeout=30)[0].splitlines()[-2:] == ["stopping", "after"]
    assert job.returncode == 5


def verdict(folder: Path, **more: str) -> tuple[int, str]:
    """Return the exit code of verdict.sh, and the termination message."""
    given = {"LOGS": "logs", "REPORT": "out/report", "MESSAGE": "message", **more}
    command = ["sh", KUBERNETES / "verdict.sh"]
    done = subprocess.run(command, cwd=folder, env=environment(**given), capture_output=True, timeout=120)
    return done.returncode, (folder / "message").read_text()


def test_failed_analysis_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    code, message = verdict(tmp_path)
    assert (code, message) == (0, "postmortem: exit code 2; the logs are in logs\n")
    code, message = verdict(tmp_path, LIMIT="0.01")
    assert (code, message) == (0, "postmortem: exit code 124; the logs are in logs\n")


@pytest.mark.slow
def test_message_has_whole_characters(tmp_path: Path) -> None:
    """A message that ends within a character is not UTF-8, and such a status cannot be stored."""
    (tmp_path / "logs").mkdir()
    wide = "\N{OWL}" * 390  # four bytes each
    trace = f'Traceback (most recent call last):\n  File "{wide}.py", line 3, in <module>\nValueError: {wide}\n'
    (tmp_path / "logs" / "rank0.log").write_text(trace)
    for most in (26, 27, 28, 29, 4096):
        code, message = verdict(tmp_path, BYTES=str(most))
        assert code == 0 and len(message.encode()) <= most
        assert (tmp_path / "out" / "report.md").read_text().startswith(message)


def test_killed_container_is_an_incident(tmp_path: Path) -> None:
    """The kernel kills all of it for memory; its logs end in the middle of good steps."""
    job = keep(tmp_path, "echo step 1 loss 0.5; exec sleep 600", start_new_session=True)
    assert job.stdout and job.stdout.readline() == "step 1 loss 0.5\n"
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(timeout=30)
    code, message = verdict(tmp_path)
    assert code == 0 and message.startswith("**A process was killed by SIGKILL") and "`end.log:1`" in message


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def run_all(file: str, root: Path, **more: str) -> tuple[int, ...]:
    """Run both pods of the job at once; return their exit codes."""
    env = environment(**more)
    pods = [Container(file, "train", root, index).start(**env) for index in range(2)]
    for each in pods:
        each.communicate(timeout=200)
    return tuple(each.returncode for each in pods)


@pytest.mark.slow
@needs("torch")
def test_pods_end_with_a_verdict_and_the_exit_code_of_their_ranks(node: Path) -> None:
    # an emptyDir is a folder of its own for each pod; here the pods share one, so that one verdict sees both
    assert run_all("job.yaml", node, BAD_RANK="3") == (1, 1)
    for index in range(2):
        message = Container("job.yaml", "train", node, index).message.read_text()
        assert "**rank** `3`" in message and "ValueError: bad sample in shard 3" in message


@pytest.mark.release
@needs("torch")
def test_sidecar_reports_after_the_end_of_the_training(node: Path) -> None:
    """Each sidecar reports on its host, and the last job on both."""
    sidecars = [Container("sidecar.yaml", "postmortem", node, index) for index in range(2)]
    running = [sidecar.start() for sidecar in sidecars]
    assert run_all("sidecar.yaml", node, BAD_RANK="3") == (1, 1)
    assert [sidecar.poll() for sidecar in running] == [None, None]  # they wait for a signal
    for each in running:
        each.send_signal(signal.SIGTERM)  # as the kubelet does now
    for each in running:
        each.communicate(timeout=100)
    assert "**rank** `3`" in sidecars[1].message.read_text()
    assert "lost the connection" in sidecars[0].message.read_text()

    last = Container("analysis.yaml", "postmortem", node / "last")
    (node / "last").mkdir()
    (node / "last" / "data").symlink_to(node / "data")
    done = last.start()
    assert "**rank** `3`" in done.communicate(timeout=100)[0] and done.returncode == 0
    assert "ValueError: bad sample in shard 3" in last.message.read_text()
    reports = {path.name for path in (node / "data" / "train-1" / "reports").iterdir()}
    assert {"all-hosts.html", "all-hosts.md", "train-1-0-x7k2p.html"} <= reports


@pytest.mark.release
@needs("torch")
def test_successful_run(node: Path) -> None:
    assert run_all("job.yaml", node) == (0, 0)
    assert Container("job.yaml", "train", node, 1).message.read_text().startswith("**No failure in these logs")
