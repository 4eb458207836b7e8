"""recipes/notify: what each kind of server receives, and which message a failure costs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from recipe_runs import RECIPES, environment
from webhooks import Server, serving

from conftest import SAMPLES, needs, solved, table
from postmortem import analyze, report

OOM = SAMPLES / "oom-on-second-host"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def brief(case: Path = OOM) -> str:
    return str(report.render(solved(case), "json", brief=True))


def notify(where: str, server: Server, document: str, **more: str) -> tuple[int, str]:
    """Return the exit code of the recipe, and its standard error."""
    url = server.url
    addresses = {"CHAT_WEBHOOK": f"{url}/hooks/s3cr3t", "GRAFANA_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
    env = environment(**{**addresses, "GRAFANA_TOKEN": "t0ken", "no_proxy": "*", **more})
    command = [sys.executable, RECIPES / "notify" / "notify.py", where]
    done = subprocess.run(command, input=document, capture_output=True, text=True, env=env, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr


def received(where: str, server: Server, document: str, **more: str) -> tuple[str, Message, Any]:
    """Return path, headers and body of the one request of the recipe."""
    server.requests.clear()
    assert notify(where, server, document, **more) == (0, "")
    (one,) = server.requests
    return one


def test_a_chat_gets_the_headline_and_the_facts_and_no_line_of_the_logs(server: Server) -> None:
    address = {"JOB": "train-1", "REPORT_URL": "https://example.com/r.html"}
    path, headers, body = received("slack", server, brief(), **address)
    assert path == "/hooks/s3cr3t" and headers["Content-Type"] == "application/json"
    headline, short, action, link = body["text"].splitlines()
    assert headline.startswith("Rank 3 on node-b was killed by the kernel's out-of-memory killer")
    assert short.startswith("train-1 · incident · host-oom · established · ranks 3 · hosts node-b · fingerprint ")
    assert action.startswith("Add memory.") and link == "https://example.com/r.html"
    assert "total-vm" not in body["text"]


def test_quoted_log_text_is_inert_in_a_chat(server: Server, tmp_path: Path) -> None:
    """The exception of rank 0 calls everybody, and has a link that shows another address."""
    evil = "<!channel> @all <https://evil.example|ok> [ok](https://evil.example)"
    trace = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: {evil}\n'
    (tmp_path / "rank0.log").write_text(trace)
    incident = analyze([str(tmp_path)])
    as_json = str(report.render(incident, "json", brief=True))
    assert "<!channel> @all" in json.loads(as_json)["headline"]
    _, _, slack = received("slack", server, as_json)
    assert "&lt;!channel&gt; @\u200ball &lt;https" in slack["text"]
    _, _, grafana = received("grafana", server, as_json)
    assert "&lt;!channel&gt;" in grafana["text"] and "<!" not in grafana["text"]


def test_grafana_gets_an_annotation_at_the_time_of_the_failure(server: Server) -> None:
    path, headers, body = received("grafana", server, brief())
    assert path == "/api/annotations" and headers["Authorization"] == "Bearer t0ken"
    assert body["time"] == 1795267116950  # 2026-11-21T13:18:36.950Z
    assert body["tags"][:3] == ["postmortem", "incident", "host-oom"]
    assert body["text"].startswith("Rank 3 on node-b was killed by the kernel&#x27;s")


@needs("opentelemetry")
def test_a_collector_reads_the_log_record(server: Server) -> None:
    """OTLP's JSON is that of its protocol buffers: 64-bit numbers are text, names are in camel case."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_ERROR

    secret = {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b,x-more=1", "OTEL_SERVICE_NAME": "training"}
    path, headers, body = received("otlp", server, brief(), **secret)
    assert path == "/v1/logs" and (headers["X-key"], headers["X-more"]) == ("a b", "1")
    (logs,) = json_format.ParseDict(body, ExportLogsServiceRequest()).resource_logs
    assert logs.resource.attributes[0].value.string_value == "training"
    (record,) = logs.scope_logs[0].log_records
    assert record.time_unix_nano == 1795267116950 * 10**6 < record.observed_time_unix_nano
    assert record.severity_number == SEVERITY_NUMBER_ERROR and record.severity_text == "ERROR"
    assert record.body.string_value.startswith("Rank 3 on node-b was killed")
    attributes = {pair.key: pair.value for pair in record.attributes}
    assert attributes["postmortem.fingerprint"].string_value == json.loads(brief())["fingerprint"]
    assert [v.int_value for v in attributes["postmortem.ranks"].array_value.values] == [3]
    assert [v.string_value for v in attributes["postmortem.hosts"].array_value.values] == ["node-b"]


def test_a_good_run_has_no_time_and_no_culprit(server: Server) -> None:
    began = time.time_ns()
    _, _, body = received("otlp", server, brief(SAMPLES / "healthy-torchrun"))
    (record,) = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert record["severityText"] == "INFO" and int(record["timeUnixNano"]) >= began - 10**6
    assert {pair["key"] for pair in record["attributes"]} == {"postmortem.outcome", "postmortem.confidence"}


def test_a_refusal_costs_one_line(server: Server) -> None:
    for where in ("slack", "grafana", "otlp"):
        server.statuses = [403]
        assert notify(where, server, brief()) == (0, f"notify {where}: not sent: HTTP 403\n")


@pytest.mark.parametrize(("where", "document", "more", "reason"), table("recipes_notify")["failures"])
def test_a_failure_costs_one_line_without_the_address(
    server: Server, where: str, document: str, more: dict[str, str], reason: str
) -> None:
    """The address of a webhook is its password, and many people read the log of the job."""
    document = document.replace("BRIEF", brief())
    assert notify(where, server, document, **more) == (0, f"notify {where}: not sent: {reason}\n")
    assert server.requests == []


def test_the_token_does_not_follow_a_redirect(server: Server) -> None:
    server.statuses, server.redirect = [302], f"{server.url}/elsewhere"
    assert notify("grafana", server, brief()) == (0, "notify grafana: not sent: HTTP 302\n")
    assert [path for path, _, _ in server.requests] == ["/api/annotations"]


@pytest.mark.slow
def test_a_slow_server_is_abandoned_after_five_seconds(server: Server) -> None:
    """A byte each second is within every timeout of a socket."""
    server.drip = 1
    began = time.monotonic()
    assert notify("slack", server, brief()) == (0, "notify slack: not sent: no answer\n")
    assert 4 < time.monotonic() - began < 15
