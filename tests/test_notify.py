"""`analyze --notify`: what each kind of server receives, and which message a failure costs."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from webhooks import Server, serving

from conftest import SAMPLES, needs, python, solved, table
from postmortem import Incident, Options, analyze
from postmortem.fleet import notify
from postmortem.system.resources import schema

OOM = SAMPLES / "oom-on-second-host"
TOKEN = "T00/B00/s3cr3t-t0ken"
REPORT = "https://example.com/r.html"
Send = Callable[..., str]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(notify, "PAUSES", (0.01, 0.02))
    with serving() as found:
        yield found


@pytest.fixture
def send(server: Server, capsys: pytest.CaptureFixture[str]) -> Send:
    """Notify a server, and return the message on standard error, which never has the address."""

    def run(kind: str = "", incident: Incident | None = None, *, query: str = "", to: Server = server) -> str:
        address = f"{to.url}/hooks/{TOKEN}{query}"
        if kind == "mmost":
            address = address.replace("http://", "mmost://").replace("/hooks", "")
        notify.send(incident or solved(OOM), [f"{kind}+{address}" if kind in notify.KINDS else address], REPORT)
        printed = capsys.readouterr()
        assert printed.out == "" and not [word for word in (*TOKEN.split("/"), "hooks") if word in printed.err]
        return printed.err

    return run


def failed(folder: Path, words: str, **options: Any) -> Incident:
    trace = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: {words}\n'
    (folder / "rank0.log").write_text(trace)
    return analyze([str(folder)], Options(**options))


@needs("apprise")
def test_a_chat_gets_headline_facts_action_and_link(server: Server, send: Send) -> None:
    """Mattermost's address can be this machine; Slack, Teams, Discord and others get the same from Apprise."""
    assert send("mmost") == ""
    ((path, _, body),) = server.requests
    headline, facts, action, link = body["text"].splitlines()
    assert path.endswith(TOKEN.rpartition("/")[2]) and headline.startswith(
        "Rank 3 on node-b was killed by the kernel's out-of-memory"
    )
    assert facts.startswith("incident · host memory · established · rank 3 · node-b · fingerprint ")
    assert action.startswith("Add memory.") and link == REPORT
    assert "total-vm" not in body["text"]  # no line of the logs


@needs("apprise", "aiosmtpd")
def test_a_mail_has_the_page_attached(send: Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from aiosmtpd.controller import Controller
    from aiosmtpd.handlers import Message as Reader

    mails: list[Any] = []

    class Kept(Reader):
        def handle_message(self, message: Any) -> None:
            mails.append(message)

    page = tmp_path / "postmortem-report.html"
    page.write_text("<!doctype html><p>the page</p>")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    smtp = Controller(Kept(), hostname="127.0.0.1", port=port)
    smtp.start()
    try:
        notify.send(
            solved(OOM), [f"mailto://127.0.0.1:{port}?to=oncall@site.example&from=pm@site.example"], REPORT, page
        )
    finally:
        smtp.stop()
    (mail,) = mails
    assert capsys.readouterr().err == "" and mail["To"] == "oncall@site.example"
    attached = {part.get_filename(): part.get_payload(decode=True) for part in mail.walk() if part.get_filename()}
    assert attached == {page.name: page.read_bytes()}


def test_chats_need_apprise(monkeypatch: pytest.MonkeyPatch, server: Server, send: Send) -> None:
    """Without it, a webhook of Slack is refused before the logs are read, and other webhooks work."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    for address in ("https://hooks.slack.com/services/T/B/x", "mailto://me:secret@example.com"):
        with pytest.raises(notify.Unsent, match="pip install 'torch-postmortem\\[notify\\]'"):
            notify.target(address)
    assert send() == "" and len(server.requests) == 1


def test_a_dry_run_sends_nothing_and_shows_no_address(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"pagerduty+{server.url}/hooks/{TOKEN}?routing_key=R0UT1NG"
    notify.send(solved(OOM), [address, f"{server.url}/hooks/{TOKEN}"], REPORT, dry_run=True)
    printed = capsys.readouterr().err
    assert (
        "notify pagerduty: would send {" in printed and '"dedup_key": ' in printed and "postmortem/brief/1" in printed
    )
    assert server.requests == [] and not [word for word in (*TOKEN.split("/"), "R0UT1NG") if word in printed]


def test_pagerduty_gets_one_alert_per_failure_and_no_key_in_the_address(server: Server, send: Send) -> None:
    for _ in range(2):  # a requeue loop analyzes twice
        assert send("pagerduty", query="?routing_key=R0UT1NG") == ""
    (path, _, event), (_, _, again) = server.requests
    assert "?" not in path and event["routing_key"] == "R0UT1NG" and event["event_action"] == "trigger"
    assert event["dedup_key"] == again["dedup_key"] and solved(OOM).document["fingerprint"] in event["dedup_key"]
    assert event["links"] == [{"href": REPORT, "text": "Report"}]
    payload = event["payload"]
    assert payload["severity"] == "critical" and payload["source"] == "node-b" and payload["class"] == "host-oom"
    assert len(payload["summary"]) <= 1024 and payload["summary"].startswith("Rank 3 on node-b was killed")


def test_any_other_address_gets_the_brief_document(server: Server, send: Send) -> None:
    assert send() == ""
    body = server.requests[0][2]
    jsonschema.validate(body, json.loads(schema("brief")))
    assert body["schema"] == "postmortem/brief/1" and body["report"] == REPORT


@needs("apprise")
def test_the_host_a_prefix_or_apprise_chooses_the_kind() -> None:
    for address, kind in table("notify")["addresses"].items():
        assert notify.target(address).kind == kind, address


@needs("apprise")
def test_quoted_log_text_is_inert_in_a_chat(server: Server, send: Send, tmp_path: Path) -> None:
    """Also in what Apprise makes of it for Slack, whose mentions it restores from escaped text."""
    evil = "<!channel> @all <@U012> [ok](https://evil.example) <https://evil.example|ok>"
    incident = failed(tmp_path, evil)
    send("mmost", incident)
    text = server.requests[0][2]["text"]
    assert "ok" in text and not re.search(r"[<>]|@\w|!\w|\]\(", text)
    slack = notify.target("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7")
    made = notify.body(notify.message(incident), slack)
    assert not re.search(r"[<>]|@\w|!\w|\]\(", made["title"] + made["body"])


@needs("apprise")
def test_a_secret_is_not_sent_even_if_the_report_shows_it(server: Server, send: Send, tmp_path: Path) -> None:
    key = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    incident = failed(tmp_path, f"bad token {key}", redact=False)
    assert key in incident.document["verdict"]["headline"]
    for kind in (*notify.KINDS, "mmost"):
        send(kind, incident, query="?routing_key=k" if kind == "pagerduty" else "")
    assert len(server.requests) == 3 and key not in json.dumps([body for _, _, body in server.requests])


def test_a_healthy_run_is_not_reported(server: Server, send: Send) -> None:
    assert send("", solved(SAMPLES / "healthy-torchrun")) == "" and server.requests == []


def test_a_message_that_may_have_arrived_is_not_sent_again(server: Server, send: Send) -> None:
    """A server that is in trouble behind its door has taken it; PagerDuty knows a repeated event."""
    for kind, statuses, failed, tries in (
        ("webhook", [503, 429], "", 3),
        ("webhook", [503] * 9, "HTTP 503", 3),
        ("webhook", [500], "HTTP 500", 1),
        ("webhook", [403], "HTTP 403", 1),
        ("pagerduty", [500, 502], "", 3),
    ):
        server.statuses = statuses
        server.requests.clear()
        message = f"postmortem: notify {kind}: not sent: {failed}\n" if failed else ""
        query = "?routing_key=R0UT1NG" if kind == "pagerduty" else ""
        assert send(kind, query=query) == message and len(server.requests) == tries


@needs("apprise")
def test_a_redirect_is_followed_within_the_server_only(server: Server, send: Send) -> None:
    server.statuses, server.redirect = [307], "/elsewhere"
    assert send() == ""
    assert [path for path, _, _ in server.requests] == [f"/hooks/{TOKEN}", "/elsewhere"]
    assert server.requests[0][2] == server.requests[1][2]
    server.requests.clear()
    with serving() as other:
        server.statuses, server.redirect = [302], f"{other.url}/hooks/x"
        assert send() == "postmortem: notify webhook: not sent: HTTP 302, a redirect that is not followed\n"
        assert len(server.requests) == 1 and other.requests == []
        server.statuses = [307]  # Apprise's senders follow none at all
        assert send("mmost") == "postmortem: notify mattermost: not sent: HTTP 307\n" and other.requests == []


@pytest.mark.parametrize("drip", [5, 0.1])
def test_a_hanging_server_is_abandoned(
    server: Server, send: Send, monkeypatch: pytest.MonkeyPatch, drip: float
) -> None:
    """Also one whose bytes each arrive within the timeout of the socket."""
    monkeypatch.setattr(notify, "SECONDS", 0.3)
    server.drip = drip
    began = time.monotonic()
    assert send().startswith("postmortem: notify webhook: not sent: no answer")
    assert time.monotonic() - began < 3


@needs("openssl")
def test_a_private_certificate_has_to_be_named(
    send: Send, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    files = ("-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem")
    subprocess.run(["openssl", *made.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with serving(lambda plain: context.wrap_socket(plain, server_side=True)) as server:
        address = [f"https://127.0.0.1:{server.port}/{TOKEN}"]
        notify.send(solved(OOM), address)
        refused = capsys.readouterr().err
        assert "its certificate is not trusted here (SSL_CERT_FILE names others)" in refused and not server.requests
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        notify.send(solved(OOM), address)
        assert capsys.readouterr().err == "" and len(server.requests) == 1


@needs("apprise")
def test_a_failure_costs_one_line_without_the_address(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for address, why in table("notify")["failures"]:
        notify.send(solved(OOM), [address.replace("TOKEN", TOKEN)])
        printed = capsys.readouterr().err
        assert why in printed and "Traceback" not in printed
        assert not [word for word in TOKEN.split("/") if word in printed]


def test_addresses_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """Where the process list does not show them. An address on the command line replaces them."""
    file = tmp_path / "addresses"
    file.write_text("# the team\nhttps://a.example/1\n\nhttps://b.example/2\n")
    environ = {"POSTMORTEM_NOTIFY": f"@{file} https://c.example/3"}
    assert notify.addresses([], environ) == ["https://a.example/1", "https://b.example/2", "https://c.example/3"]
    assert notify.addresses(["https://d.example/4"], environ) == ["https://d.example/4"]
    assert notify.addresses([], {}) == []


@pytest.mark.slow
def test_analyze_ends_the_same_with_and_without_a_server(server: Server, tmp_path: Path) -> None:
    """A message goes out, and with a history the second one reports the first failure."""
    env = {"POSTMORTEM_NOTIFY": f"{server.url}/hooks/{TOKEN}"}
    refused = {**env, "POSTMORTEM_NOTIFY": f"http://127.0.0.1:1/{TOKEN}", "POSTMORTEM_DEBUG": "1"}
    printed = ""
    for run, environment in (("monday", env), ("tuesday", env), ("wednesday", refused)):
        logs = shutil.copytree(OOM / "logs", tmp_path / run)
        (logs / f"{run}.log").write_text(f"the job of {run}\n")  # another job, and the same failure
        words = ["analyze", run, "--exit-code", "--report-url", REPORT, "--history", "fleet.db"]
        done = python("-m", "postmortem", *words, cwd=tmp_path, env=environment)
        assert done.returncode == 10 and ("not sent" in done.stderr) == (environment is refused)
        printed = done.stdout + done.stderr
    first, second = (body["history"] for _, _, body in server.requests)
    assert "not seen before in the history" in first and "seen once, on " in second
    assert "notify webhook: not sent: Connection refused" in printed
    assert not [word for word in TOKEN.split("/") if word in printed]
    assert (tmp_path / "postmortem-report.html").stat().st_size > 10_000


def test_without_an_address_nothing_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from postmortem.cli.app import run; run(sys.argv[1:]); "
        "assert not {'postmortem.fleet.notify', 'urllib.request', 'ssl'} & set(sys.modules)"
    )
    logs = str(SAMPLES / "healthy-torchrun" / "logs")
    python("-c", code, "analyze", logs, "--quiet", "--format", "md", "-o", "r.md", cwd=tmp_path, check=True)
