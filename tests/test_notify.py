"""`analyze --notify`: what reaches a server that listens, what is said of one that does not, and what never is."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, SAMPLES, needs, solved
from postmortem import Incident, Options, analyze
from postmortem.fleet import notify
from postmortem.system.resources import schema

OOM = SAMPLES / "oom-on-second-host"
TOKEN = "T00/B00/s3cr3t-t0ken"
REPORT = "https://example.com/r.html"


@dataclass
class Server:
    """Keeps what it is sent, and answers as told."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)  # one for each request, then 200
    to: str = ""  # of a redirect
    slow: float = 0  # seconds before it answers
    asked: list[tuple[str, Message, Any]] = field(default_factory=list)

    def url(self, kind: str = "", scheme: str = "http") -> str:
        return f"{kind and kind + '+'}{scheme}://127.0.0.1:{self.port}/hooks/{TOKEN}"


def serving(told: Server, wrapped: Callable[[socket.socket], socket.socket] | None = None) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.asked.append((self.path, self.headers, json.loads(body)))
            time.sleep(told.slow)
            try:
                status = told.statuses.pop(0) if told.statuses else 200
                self.send_response(status)
                if told.to and 300 <= status < 400:
                    self.send_header("Location", told.to)
                self.end_headers()
            except OSError:  # the other side has left
                pass

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if wrapped:
        listening.socket = wrapped(listening.socket)
    told.port = listening.server_port
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    return listening


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(notify, "PAUSES", (0.01, 0.02))
    told = Server()
    listening = serving(told)
    yield told
    listening.shutdown()


def said(capsys: pytest.CaptureFixture[str], *given: str, incident: Incident | None = None) -> str:
    """Notify, and return what was said of it; whatever that is, the address is not in it."""
    notify.send(incident or solved(OOM), given, REPORT)
    told = capsys.readouterr()
    assert told.out == "" and not [word for word in (*TOKEN.split("/"), "hooks") if word in told.err]
    return told.err


# ── what is sent ────────────────────────────────────────────────────────────────────────────────────────────


def test_slack_gets_the_headline_the_facts_what_to_do_and_the_link(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, server.url("slack")) == ""
    ((path, headers, body),) = server.asked
    assert path == f"/hooks/{TOKEN}" and headers["Content-Type"] == "application/json"
    headline, facts, action, link = body["text"].splitlines()
    assert headline.startswith("*Rank 3 on node-b was killed by the kernel's out-of-memory killer")
    assert facts.startswith("incident · host-oom · established · rank 3 · node-b · fingerprint ")
    assert action.startswith("Add memory.") and link == f"<{REPORT}|Report>"
    assert "total-vm" not in body["text"]  # no line of the logs


def test_teams_gets_a_card_with_a_button(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, server.url("teams")) == ""
    card = server.asked[0][2]["attachments"][0]["content"]
    assert card["body"][0]["inlines"][0]["text"].startswith("Rank 3 on node-b was killed")
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Report", "url": REPORT}]


def test_pagerduty_gets_one_alert_for_one_failure_and_the_key_is_no_part_of_the_address(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Analyzed twice, as a requeue loop does: the same `dedup_key`, so the pager rings once."""
    for _ in range(2):
        assert said(capsys, server.url("pagerduty") + "?routing_key=R0UT1NG") == ""
    (path, _, event), (_, _, again) = server.asked
    assert "?" not in path and event["routing_key"] == "R0UT1NG" and event["event_action"] == "trigger"
    assert event["dedup_key"] == again["dedup_key"] and solved(OOM).document["fingerprint"] in event["dedup_key"]
    assert event["links"] == [{"href": REPORT, "text": "Report"}]
    payload = event["payload"]
    assert payload["severity"] == "critical" and payload["source"] == "node-b" and payload["class"] == "host-oom"
    assert len(payload["summary"]) <= 1024 and payload["summary"].startswith("Rank 3 on node-b was killed")


def test_any_other_address_gets_the_brief_document(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    import jsonschema

    assert said(capsys, server.url()) == ""
    body = server.asked[0][2]
    jsonschema.validate(body, json.loads(schema("brief")))
    assert body["schema"] == "postmortem/brief/1" and body["report"] == REPORT


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack"),
        ("https://acme.webhook.office.com/webhookb2/x", "teams"),
        ("https://prod-1.westus.logic.azure.com:443/workflows/x?sig=y", "teams"),
        ("https://events.eu.pagerduty.com/v2/enqueue?routing_key=k", "pagerduty"),
        ("https://hooks.slack.com.evil.example/x", "webhook"),
        ("https://nothooks.slack.com.example/x", "webhook"),
        ("slack+https://chat.example/x", "slack"),
        ("webhook+https://hooks.slack.com/x", "webhook"),
    ],
)
def test_the_host_tells_what_is_understood_there_or_a_prefix_does(address: str, kind: str) -> None:
    assert notify.target(address).kind == kind


def test_what_a_log_says_cannot_act_in_a_chat(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    evil = "<!channel> @all <https://evil.example|ok>"
    trace = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: {evil}\n'
    (tmp_path / "rank0.log").write_text(trace)
    said(capsys, server.url("slack"), incident=analyze([str(tmp_path)]))
    assert "&lt;!channel&gt; @\u200ball &lt;https" in server.asked[0][2]["text"]


def test_a_secret_in_a_log_is_not_sent_even_where_the_report_shows_it(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`--no-redact` is for one's own disk."""
    key = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    trace = f'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nValueError: bad token {key}\n'
    (tmp_path / "rank0.log").write_text(trace)
    incident = analyze([str(tmp_path)], Options(redact=False))
    assert key in incident.document["verdict"]["headline"]
    for kind in notify.KINDS:
        more = "?routing_key=k" if kind == "pagerduty" else ""
        said(capsys, server.url(kind) + more, incident=incident)
    assert len(server.asked) == 4 and key not in json.dumps([body for _, _, body in server.asked])


def test_a_run_that_went_well_rings_nowhere(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, server.url(), incident=solved(SAMPLES / "healthy-torchrun")) == ""
    assert server.asked == []


# ── a server that does not do as it should ──────────────────────────────────────────────────────────────────


def test_a_server_in_trouble_is_asked_again(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.statuses = [500, 429]
    assert said(capsys, server.url("slack")) == ""
    assert len(server.asked) == 3


def test_after_three_times_it_is_said_and_no_more(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.statuses = [500] * 9
    assert said(capsys, server.url("slack")) == "postmortem: notify slack: not sent: HTTP 500\n"
    assert len(server.asked) == 3


def test_who_refuses_is_not_asked_again(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.statuses = [403]
    assert said(capsys, server.url("slack")) == "postmortem: notify slack: not sent: HTTP 403\n"
    assert len(server.asked) == 1


def test_a_redirect_leads_on_within_its_server_and_nowhere_else(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.statuses, server.to = [307], "/elsewhere"
    assert said(capsys, server.url()) == ""
    assert [path for path, _, _ in server.asked] == [f"/hooks/{TOKEN}", "/elsewhere"]
    assert server.asked[0][2] == server.asked[1][2]
    other = Server()
    listening = serving(other)
    server.asked.clear()
    server.statuses, server.to = [302], other.url()
    told = said(capsys, server.url())
    listening.shutdown()
    assert told == "postmortem: notify webhook: not sent: HTTP 302, a redirect that is not followed\n"
    assert len(server.asked) == 1 and other.asked == []


def test_a_server_that_hangs_is_left(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "SECONDS", 0.2)
    server.slow = 5
    began = time.monotonic()
    assert said(capsys, server.url("slack")).startswith("postmortem: notify slack: not sent: no answer")
    assert time.monotonic() - began < 3


def test_a_byte_now_and_then_is_no_answer_either(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is within the timeout of a socket."""
    monkeypatch.setattr(notify, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            other, _ = listening.accept()
            with other:
                for _ in range(100):
                    try:
                        other.sendall(b"H")
                    except OSError:
                        return
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        server.port = listening.getsockname()[1]
        began = time.monotonic()
        assert said(capsys, server.url("slack")) == "postmortem: notify slack: not sent: no answer\n"
        assert time.monotonic() - began < 3


@needs("openssl")
def test_a_certificate_of_ones_own_has_to_be_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    files = ("-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem")
    subprocess.run(["openssl", *made.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    told = Server()
    listening = serving(told, lambda plain: context.wrap_socket(plain, server_side=True))
    refused = said(capsys, told.url("slack", "https"))
    assert "its certificate is not trusted here (SSL_CERT_FILE names others)" in refused and told.asked == []
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    assert said(capsys, told.url("slack", "https")) == "" and len(told.asked) == 1
    listening.shutdown()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (f"http://127.0.0.1:1/hooks/{TOKEN}", "webhook: not sent: Connection refused"),
        (f"file:///etc/{TOKEN}", ": not sent: the address must be http:// or https://"),
        (f"ftp://127.0.0.1/{TOKEN}", ": not sent: the address must be http:// or https://"),
        (TOKEN, ": not sent: the address must be http:// or https://"),
        (f"https://127.0.0.1:x{TOKEN}/", ": not sent: the address is not one"),
        (f"http://127.0.0.1/\r\nX: {TOKEN}", ": not sent: the address must be http:// or https://"),
        (
            f"pagerduty+http://127.0.0.1:1/{TOKEN}",
            ": not sent: a PagerDuty address ends with ?routing_key=KEY",
        ),
        (f"@https://chat.example/{TOKEN}", "no notification was sent: the file of addresses: No such file"),
    ],
)
def test_trouble_costs_a_line_that_keeps_the_secret(
    address: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(notify, "PAUSES", (0.01,))
    notify.send(solved(OOM), [address], "")
    told = capsys.readouterr().err
    assert why in told and "Traceback" not in told
    assert not [word for word in TOKEN.split("/") if word in told]


# ── how it is asked for ─────────────────────────────────────────────────────────────────────────────────────


def test_an_address_may_stand_in_a_file_or_in_the_environment(tmp_path: Path) -> None:
    """Where nobody reads it in the process list. What is said on the command line counts alone."""
    file = tmp_path / "addresses"
    file.write_text("# the team\nhttps://a.example/1\n\nhttps://b.example/2\n")
    environ = {"POSTMORTEM_NOTIFY": f"@{file} https://c.example/3"}
    assert notify.addresses([], environ) == [
        "https://a.example/1",
        "https://b.example/2",
        "https://c.example/3",
    ]
    assert notify.addresses(["https://d.example/4"], environ) == ["https://d.example/4"]
    assert notify.addresses([], {}) == []


def test_analyze_tells_and_ends_as_it_would_without(server: Server, tmp_path: Path) -> None:
    """Neither the exit code nor the report depends on whether anybody listens."""
    logs, env = (
        OOM / "logs",
        {**os.environ, "PYTHONPATH": str(ROOT), "POSTMORTEM_NOTIFY": server.url("slack")},
    )
    command = [
        sys.executable,
        "-m",
        "postmortem",
        "analyze",
        str(logs),
        "--exit-code",
        "--report-url",
        REPORT,
    ]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 10 and len(server.asked) == 1 and "not sent" not in done.stderr
    deaf = {**env, "POSTMORTEM_NOTIFY": f"slack+http://127.0.0.1:1/{TOKEN}", "POSTMORTEM_DEBUG": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=deaf, capture_output=True, text=True, timeout=120)
    assert done.returncode == 10 and (tmp_path / "postmortem-report.html").stat().st_size > 10_000
    assert "notify slack: not sent: Connection refused" in done.stderr
    assert not [word for word in TOKEN.split("/") if word in done.stderr + done.stdout]


def test_who_is_told_hears_that_it_was_seen_before(server: Server, tmp_path: Path) -> None:
    """With a history, the second message says so: the night shift need not look it up."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "POSTMORTEM_NOTIFY": server.url("slack")}
    for run in ("monday", "tuesday"):
        logs = shutil.copytree(OOM / "logs", tmp_path / run)
        (logs / f"{run}.log").write_text(f"the job of {run}\n")  # another job, and the same failure
        command = [sys.executable, "-m", "postmortem", "analyze", run, "--history", "fleet.db", "--quiet"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    first, second = (body["text"] for _, _, body in server.asked)
    assert "\nnot seen before in the history" in first and "\nseen once, on " in second


def test_nothing_is_imported_for_who_is_not_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys; from postmortem.cli.app import run; run(sys.argv[1:]); "
        "assert not {'postmortem.fleet.notify', 'urllib.request', 'ssl'} & set(sys.modules)"
    )
    arguments = [
        "analyze",
        str(SAMPLES / "healthy-torchrun" / "logs"),
        "--quiet",
        "--format",
        "md",
        "-o",
        "r.md",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, env=env, check=True, timeout=120)
