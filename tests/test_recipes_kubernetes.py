"""recipes/kubernetes: the manifests against the published schemas, and their commands run as processes.
There is no kubelet here: when it starts and stops a container is its documentation's word, not a test's."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from recipe_runs import KUBERNETES, TRAIN, Container, containers, environment, manifests, pod

from conftest import needs

JOBS = ("job.yaml", "sidecar.yaml", "analysis.yaml")
OBJECTS = [pytest.param(doc, id=f"{path.stem}-{doc['kind']}") for path, doc in manifests()]
# The schemas are generated without the enums that the API server checks.
ENUMS = {
    "restartPolicy": {"Never", "OnFailure", "Always"},
    "completionMode": {"Indexed", "NonIndexed"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "medium": {"", "Memory"},
    "clusterIP": {"None"},
    "accessModes": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
    "drop": {"ALL"},
}


@needs("kubernetes_validate")
@pytest.mark.parametrize("version", ["1.29", "1.32", "1.37"])
@pytest.mark.parametrize("document", OBJECTS)
def test_the_published_schemas_take_the_manifests(document: dict[str, Any], version: str) -> None:
    import kubernetes_validate

    assert kubernetes_validate.validate(document, version, strict=True) == version
    misspelt = {**document, "spec": {**document["spec"], "replica": 1}}
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


@pytest.mark.parametrize("name", JOBS)
def test_no_container_has_more_rights_than_it_needs(name: str) -> None:
    """Not root, nothing writable but its volumes, no token of the API, and a bound of its memory."""
    spec = pod(name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert not any("hostPath" in volume for volume in spec["volumes"])
    for container in containers(spec):
        least = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["securityContext"] == least
        assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_manifests_agree_with_each_other() -> None:
    """What is written twice is the same: the service, and how the training is started and bounded."""
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


@needs("kubectl")
def test_the_config_map_has_the_scripts_by_the_names_that_the_manifests_use() -> None:
    command = (KUBERNETES / "job.yaml").read_text().split("#     ")[1].splitlines()[0]
    offline = [*command.split(), "--dry-run=client", "-o", "yaml"]
    done = subprocess.run(offline, cwd=KUBERNETES, capture_output=True, text=True, check=True, timeout=60)
    made = yaml.safe_load(done.stdout)
    assert made["data"] == {n: (KUBERNETES / n).read_text() for n in ("keep.sh", "verdict.sh")}
    for name in JOBS:
        (volume,) = (v for v in pod(name)["volumes"] if v["name"] == "recipe")
        assert volume["configMap"]["name"] == made["metadata"]["name"]


@needs("kubectl")
@pytest.mark.parametrize(
    ("name", "shown"), [("job.yaml", ["train 0", "train 1"]), ("sidecar.yaml", ["side 0", "side 1"])]
)
def test_the_line_that_shows_the_messages_finds_them(name: str, shown: list[str], tmp_path: Path) -> None:
    """The line at the head of the manifest, asked of a server that knows two pods and nothing else."""

    def ended(name: str, message: str) -> list[dict[str, Any]]:
        return [{"name": name, "state": {"terminated": {"exitCode": 1, "message": message}}}]

    def state(index: int) -> dict[str, Any]:
        beside = {"initContainerStatuses": ended("postmortem", f"side {index}")} if name == "sidecar.yaml" else {}
        return {"containerStatuses": ended("train", f"train {index}"), **beside}

    one = {"apiVersion": "v1", "kind": "Pod"}
    pods = [{**one, "metadata": {"name": f"train-1-{i}"}, "status": state(i)} for i in range(2)]
    kind = {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "list"],
    }
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [kind]},
        "/api/v1/namespaces/default/pods": {"kind": "PodList", "apiVersion": "v1", "items": pods},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None: ...

    (line,) = re.findall(r"^#     (kubectl get pods.*)$", (KUBERNETES / name).read_text(), re.MULTILINE)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = [*shlex.split(line), "--server", f"http://127.0.0.1:{server.server_port}"]
        env = environment(HOME=tmp_path, no_proxy="*")
        done = subprocess.run(here, env=env, capture_output=True, text=True, timeout=60)
        server.shutdown()
    assert done.stdout == " ".join(shown), done.stderr


# ── keep.sh ─────────────────────────────────────────────────────────────────────────────────────────────────


def keep(folder: Path, script: str, start_new_session: bool = False, **more: str) -> subprocess.Popen[str]:
    command = ["sh", KUBERNETES / "keep.sh", "sh", "-c", script]
    env = environment(**{"LOGS": str(folder / "logs"), **more})
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=start_new_session,
    )


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_the_exit_code_is_the_jobs(tmp_path: Path, script: str, code: int) -> None:
    """Whatever becomes of the analysis: here it fails."""
    job = keep(tmp_path, f"echo out; echo err >&2; {script}", AFTER="echo after; exit 3")
    assert {"out", "err", "after"} <= set(job.communicate(timeout=30)[0].split())
    assert job.returncode == code
    assert (tmp_path / "logs" / "agent.log").read_text() == "out\nerr\n"
    assert (tmp_path / "logs" / "end.log").read_text() == f"command terminated with exit code {code}\n"


def test_a_job_whose_logs_cannot_be_kept_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job = keep(tmp_path, "echo out; exit 7", LOGS=str(tmp_path / "file" / "logs"))
    assert job.communicate(timeout=30)[0].endswith("out\n") and job.returncode == 7


def test_sigterm_reaches_the_job_and_its_last_words_are_kept(tmp_path: Path) -> None:
    """A shell that is pid 1 does not hand signals on: the job would be killed at the end of the grace period,
    with nothing in its log of having been told."""
    wait = "trap 'sleep 1; echo told; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    job = keep(tmp_path, wait, AFTER="echo after")
    assert job.stdout and job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGTERM)
    assert job.communicate(timeout=30)[0].splitlines()[-2:] == ["told", "after"]
    assert job.returncode == 5


# ── verdict.sh ──────────────────────────────────────────────────────────────────────────────────────────────


def verdict(folder: Path, **more: str) -> tuple[int, str]:
    """Its exit code, and the termination message."""
    told = {"LOGS": "logs", "REPORT": "out/report", "MESSAGE": "message", **more}
    command = ["sh", KUBERNETES / "verdict.sh"]
    done = subprocess.run(command, cwd=folder, env=environment(**told), capture_output=True, timeout=120)
    return done.returncode, (folder / "message").read_text()


def test_an_analysis_that_fails_says_so_and_fails_nothing(tmp_path: Path) -> None:
    code, message = verdict(tmp_path)
    assert (code, message) == (0, "postmortem: exit code 2; the logs are in logs\n")
    code, message = verdict(tmp_path, LIMIT="0.01")
    assert (code, message) == (0, "postmortem: exit code 124; the logs are in logs\n")


def test_the_message_is_whole_characters_in_4096_bytes(tmp_path: Path) -> None:
    """A message that ends within a character is no UTF-8, and a status that is none cannot be stored."""
    (tmp_path / "logs").mkdir()
    wide = "\N{OWL}" * 390  # four bytes each
    trace = f'Traceback (most recent call last):\n  File "{wide}.py", line 3, in <module>\nValueError: {wide}\n'
    (tmp_path / "logs" / "rank0.log").write_text(trace)
    code, message = verdict(tmp_path)
    assert code == 0 and 4000 < len(message.encode()) <= 4096
    assert (tmp_path / "out" / "report.md").read_text().startswith(message)


def test_a_container_that_was_killed_is_not_taken_for_a_good_run(tmp_path: Path) -> None:
    """The kernel kills all of it for memory; its logs end in the middle of good steps."""
    job = keep(tmp_path, "echo step 1 loss 0.5; exec sleep 600", start_new_session=True)
    assert job.stdout and job.stdout.readline() == "step 1 loss 0.5\n"
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(timeout=30)
    code, message = verdict(tmp_path)
    assert code == 0 and message.startswith("**A process was killed by SIGKILL") and "`end.log:1`" in message


# ── the manifests' own commands ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def run_all(file: str, root: Path, **more: str) -> tuple[int, ...]:
    """Both pods of the job at once; their exit codes."""
    env = environment(**more)
    pods = [Container(file, "train", root, index).start(**env) for index in range(2)]
    for each in pods:
        each.communicate(timeout=200)
    return tuple(each.returncode for each in pods)


@pytest.mark.slow
@needs("torch")
def test_each_pod_ends_with_a_verdict_and_the_exit_code_of_its_ranks(node: Path) -> None:
    # an emptyDir is a folder of its own for each pod; here the pods share one, so that one verdict sees both
    assert run_all("job.yaml", node, BAD_RANK="3") == (1, 1)
    for index in range(2):
        message = Container("job.yaml", "train", node, index).message.read_text()
        assert "**rank** `3`" in message and "ValueError: bad sample in shard 3" in message


@pytest.mark.slow
@needs("torch")
def test_the_sidecar_speaks_when_the_training_container_has_ended(node: Path) -> None:
    """Each sidecar of its host, while the last job looks at both."""
    sidecars = [Container("sidecar.yaml", "postmortem", node, index) for index in range(2)]
    running = [sidecar.start() for sidecar in sidecars]
    assert run_all("sidecar.yaml", node, BAD_RANK="3") == (1, 1)
    assert [sidecar.poll() for sidecar in running] == [None, None]  # nobody has told them yet
    for each in running:
        each.send_signal(signal.SIGTERM)  # what the kubelet does now
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


@pytest.mark.slow
@needs("torch")
def test_a_good_run_ends_well(node: Path) -> None:
    assert run_all("job.yaml", node) == (0, 0)
    assert Container("job.yaml", "train", node, 1).message.read_text().startswith("**No failure in these logs")
