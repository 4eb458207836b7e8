"""`--ticket` and `attach`: one comment and one page on an issue, however often it is analyzed. Against a real Redmine
where one is installed; the others against a server that checks requests by the trackers' published references."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import Request, urlopen

import hypothesis
import jsonschema
import pytest
from hypothesis import strategies as st

from conftest import SAMPLES, Command, needs, solved, table
from postmortem import report
from postmortem.errors import UsageError
from postmortem.fleet.tickets import posting, trackers

LOGS = SAMPLES / "oom-on-second-host" / "logs"
ROWS = table("tickets")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials and no proxy of the developer."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return written(SAMPLES / "oom-on-second-host", tmp_path / "report.html")


def written(case: Path, target: Path) -> Path:
    target.write_text(str(report.render(solved(case), "html")))
    return target


@dataclass
class Tracker:
    """A tracker with one issue, which it keeps as rows of (id, text, author)."""

    row: dict[str, Any]
    port: int = 0
    status: int = 0  # of all answers, where it is set
    forbidden: str = "-"  # the end of a path that answers 403
    location: str = ""
    comments: list[list[str]] = field(default_factory=list)
    files: list[list[str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.row['path']}"

    def answer(self, method: str, target: str, headers: Message, body: bytes) -> Any:
        """Do what the request asks for, and note what its reference does not have."""
        path, query = urlsplit(target).path, dict(parse_qsl(urlsplit(target).query))
        for call in self.row["calls"]:
            if found := re.fullmatch(call["call"], f"{method} {path}"):
                break
        else:
            self.wrong.append(f"{method} {target} is not in the reference")
            return None
        self.calls.append(call["does"])
        name, value = self.row["header"]
        checks = {f"header {n}": headers[n] == v for n, v in {name: value, **call.get("headers", {})}.items()}
        checks["query"] = sorted(query) == call.get("query", [])
        if "schema" in call:
            checks["type"] = headers["Content-Type"] == "application/json"
            jsonschema.validate(json.loads(body), call["schema"])
        self.wrong += [f"{method} {target}: {check}" for check, fine in checks.items() if not fine]
        done = getattr(self, f"_{call['does']}")(call, query, found.groupdict(), headers, body)
        return done

    def _me(self, call: dict[str, Any], *_: Any) -> Any:
        return call["answer"]

    def _comments(self, call: dict[str, Any], query: dict[str, str], *_: Any) -> Any:
        first = next((int(query[n]) for n in ("startAt", "sysparm_offset") if n in query), 0)
        first = first or (int(query.get("page", 1)) - 1) * 100
        return self._rows(call, self.comments[first : first + 100])

    def _files(self, call: dict[str, Any], *_: Any) -> Any:
        return self._rows(call, self.files)

    def _rows(self, call: dict[str, Any], rows: list[list[str]]) -> Any:
        made = [filled(call["row"], dict(zip(("id", "text", "author"), row, strict=True))) for row in rows]
        for name in reversed(call.get("rows", "").split(".") if "rows" in call else []):
            made = {name: made}  # type: ignore[assignment]
        return made

    def _add(self, call: dict[str, Any], _q: Any, _f: Any, _h: Any, body: bytes) -> Any:
        self.comments.append([str(len(self.comments) + 1), json.loads(body)[call["text"]], "42"])
        return {}

    def _edit(self, call: dict[str, Any], _q: Any, found: dict[str, str], _h: Any, body: bytes) -> Any:
        next(row for row in self.comments if row[0] == found["id"])[1] = json.loads(body)[call["text"]]
        return {}

    def _upload(self, call: dict[str, Any], query: dict[str, str], _f: Any, headers: Message, body: bytes) -> Any:
        name = query.get("file_name", "")
        if "form" in call:
            whole = message_from_bytes(f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
            (part,) = whole.get_payload()  # type: ignore[misc]
            assert isinstance(part, Message) and part.get_param("name", header="content-disposition") == call["form"]
            name, body = str(part.get_filename()), part.get_payload(decode=True)  # type: ignore[assignment]
        assert body.startswith(b"<!doctype html>")
        self.files.append([f"{len(self.calls):032x}" if "answer" in call else str(len(self.calls)), name, "42"])
        return filled(call.get("answer", {}), {"id": self.files[-1][0]})

    def _remove(self, _c: Any, _q: Any, found: dict[str, str], *_: Any) -> Any:
        self.files = [row for row in self.files if row[0] != found["id"]]


def filled(template: Any, values: dict[str, str]) -> Any:
    if isinstance(template, dict):
        return {name: filled(value, values) for name, value in template.items()}
    return re.sub(r"\$(\w+)", lambda m: values[m[1]], template) if isinstance(template, str) else template


@contextmanager
def serving(kind: str) -> Iterator[Tracker]:
    tracker = Tracker(ROWS["trackers"][kind])

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status = tracker.status or (403 if self.path.endswith(tracker.forbidden) else 200)
                made = None if status != 200 else tracker.answer(self.command, self.path, self.headers, body)
            except Exception as error:
                tracker.wrong.append(repr(error))
                made = None
            self.send_response(status)
            if tracker.location:
                self.send_header("Location", tracker.location)
            self.end_headers()
            self.wfile.write(b"" if made is None else json.dumps(made).encode())

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

        def log_message(self, *_: object) -> None: ...

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tracker.port = listening.server_port
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    yield tracker
    listening.shutdown()


@pytest.mark.parametrize("kind", ROWS["trackers"])
def test_the_second_run_replaces_comment_and_page(
    kind: str, in_process: Command, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    """Beside 120 comments of others, one of which quotes ours, and a page of the same name by another user."""
    with serving(kind) as tracker:
        monkeypatch.setenv(trackers.VARIABLE, tracker.row["secret"])
        tracker.comments = [[str(n), f"> {posting.MARK}\nthanks" if n == 7 else "hm", "9"] for n in range(120)]
        tracker.comments.append(["120", posting.MARK, "9"])  # of a colleague who uses postmortem too
        others = [["9", posting.NAME, "9"]]
        tracker.files = list(others)
        for n in range(2):
            url = tracker.url if kind in ("jira", "gitlab", "servicenow") else f"{kind}+{tracker.url}"
            done = in_process("attach", page, url)
            assert done.returncode == 0 and tracker.wrong == [], (done.stderr, tracker.wrong)
            assert ("comment replaced" if n else "comment written") in done.stderr
            assert len(tracker.comments) == 122
            text = tracker.comments[-1][1]
            assert tracker.row["markup"] in text and "Killed process 11721" in text and text.endswith(posting.MARK)
            if kind == "github":
                assert "GitHub's API attaches no files" in done.stderr
                continue
            assert len(tracker.files) == 2 and others[0] in tracker.files
            if kind == "gitlab":
                assert f"/uploads/{tracker.files[-1][0]}/postmortem-report.html" in text
        assert tracker.row["secret"].rpartition(":")[2] not in done.stderr


def test_the_form_of_an_address_names_the_tracker() -> None:
    for address, (kind, api) in ROWS["addresses"].items():
        found = trackers.ticket(address)
        assert (found.tracker.kind, found.api) == (kind, api), address
    for address, reason in ROWS["wrong"].items():
        with pytest.raises(UsageError, match=reason) as raised:
            trackers.ticket(address)
        assert raised.value.hint and "secret" not in f"{raised.value} {raised.value.hint}"


def test_credentials_are_of_the_environment_or_a_netrc(tmp_path: Path) -> None:
    jira, github = (trackers.ticket(f"https://x.example/{path}") for path in ("browse/A-1", "a/b/issues/1"))
    assert trackers.login(jira, {"JIRA_TOKEN": "t"}).header == {"Authorization": "Bearer t"}
    pair = trackers.login(jira, {"POSTMORTEM_TICKET_TOKEN": "me:t", "JIRA_TOKEN": "other"})
    assert pair.header == {"Authorization": "Basic bWU6dA=="} and "bWU6" not in repr(pair)
    (tmp_path / "netrc").write_text("machine x.example login me password t\n")
    environ = {"NETRC": str(tmp_path / "netrc")}
    assert trackers.login(jira, environ) == pair
    assert trackers.login(github, environ).header == {"Authorization": "Bearer t"}
    (tmp_path / "netrc").write_text("machine\n")
    for broken in (environ, {}, {"JIRA_TOKEN": "a\nb"}):
        with pytest.raises(UsageError) as raised:
            trackers.login(jira, broken)
        assert raised.value.hint


def test_a_failure_is_one_sentence_and_the_report_is_written(
    in_process: Command, monkeypatch: pytest.MonkeyPatch, page: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv(trackers.VARIABLE, "42:s3cr3t")
    with serving("jira") as tracker, serving("jira") as other:
        for status, sentence in ROWS["errors"].items():
            tracker.status = status
            done = in_process("attach", page, tracker.url)
            message, hint = done.stderr.splitlines()
            assert done.returncode == 14 and sentence in message and hint.startswith("  "), message
        done = in_process("analyze", LOGS, "--ticket", tracker.url, "--exit-code")
        assert done.returncode == 14 and (tmp_path / "postmortem-report.html").is_file()
        tracker.status, tracker.location = 302, f"http://127.0.0.1:{other.port}/rest/api/2/myself"
        done = in_process("attach", page, tracker.url)
        assert done.returncode == 14 and "HTTP 302, a redirect that is not followed" in done.stderr
        assert other.calls == [] and other.wrong == []
        tracker.status, tracker.location = 200, ""
        assert in_process("attach", page, tracker.url).returncode == 0  # an empty answer is fine
    for dead, reason in (("127.0.0.1:1", "Connection refused"), ("no.such.host.invalid", "host name is not known")):
        done = in_process("attach", page, f"http://{dead}/browse/A-1")
        assert done.returncode == 14 and reason in done.stderr and "postmortem attach" in done.stderr
    for words, reason in (
        (("attach", page, "https://x.example/"), "no known tracker"),
        (("attach", tmp_path, "https://x.example/browse/A-1"), "is not a file"),
        (("analyze", LOGS, "--ticket", "https://x.example/browse/A-1", "--no-redact"), "cannot be combined"),
        (("analyze", LOGS, "--dry-run"), "--dry-run"),
    ):
        done = in_process(*words)
        assert done.returncode == 2 and reason in done.stderr and len(done.stderr.splitlines()) == 2, done.stderr


def test_a_dry_run_sends_nothing_and_needs_no_credentials(in_process: Command, page: Path) -> None:
    with serving("gitlab") as tracker:
        done = in_process("attach", page, tracker.url, "--dry-run")
        assert done.returncode == 0 and tracker.calls == [] == tracker.wrong
    for word in ("POST ", "bytes of postmortem-report.html", "Killed process 11721", posting.MARK):
        assert word in done.stderr


ENDS = {"jira": r"(?i)\{noformat", "redmine": r"</?\w", "servicenow": r"(?i)\[code"}
PARTS = ROWS["parts"]


@hypothesis.given(log=st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map("".join)))
def test_log_text_cannot_end_the_frame_of_a_comment(log: str) -> None:
    """`{noformat}` in a line of a log would make wiki markup, and so links and mentions, of the rest."""
    for kind, end in ENDS.items():
        row = trackers.trackers()[kind]
        made, empty = (posting.text(trackers.Ticket(row, "", {}), {"file": ""}, text, "") for text in (log, ""))
        assert len(re.findall(end, made)) == len(re.findall(end, empty)) and posting.is_ours(made)
        assert log.strip("\n").replace("\u200b", "") in made.replace("\u200b", "")


def test_the_token_of_a_workflow_has_no_user(in_process: Command, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    """GitHub answers 403 to `GET /user` for GITHUB_TOKEN of Actions: the mark alone finds the comment."""
    with serving("github") as tracker:
        monkeypatch.setenv("GITHUB_TOKEN", "s3cr3t")
        tracker.forbidden = "/user"
        for _ in range(2):
            done = in_process("attach", page, tracker.url, "--report-url", "https://x.example/r.html")
            assert done.returncode == 0, done.stderr
        ((_, text, _),) = tracker.comments
        assert "[The report](https://x.example/r.html)" in text


# ── a real Redmine ──────────────────────────────────────────────────────────────────────────────────────────

REDMINE = Path("/usr/share/redmine")
SEED = """
Setting.rest_api_enabled = '1'
Redmine::DefaultData::Loader.load('en')
project = Project.create!(name: 'Training', identifier: 'training', enabled_module_names: %w(issue_tracking))
admin = User.find_by_login('admin')
admin.update_column(:must_change_passwd, false)
Issue.create!(project: project, tracker: Tracker.first, author: admin, subject: 'the job died',
              status: IssueStatus.first, priority: IssuePriority.first)
%w(common_mark textile).each do |form|
  Setting.text_formatting = form
  puts JSON.generate(ApplicationController.helpers.extend(ApplicationHelper).textilizable(ENV['COMMENT']))
end
puts admin.api_key
"""
EVIL = (
    '</pre> <script>alert(1)</script> [ok](https://evil.example) "ok":https://evil.example @admin #1 {{toc}} **b** *b*'
)


@dataclass
class Redmine:
    url: str
    key: str
    rendered: list[str]  # a comment with hostile log text, in Markdown and in Textile

    def issue(self) -> dict[str, Any]:
        address = f"{self.url}/issues/1.json?include=journals,attachments"
        with urlopen(Request(address, headers={"X-Redmine-API-Key": self.key}), timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)["issue"]
        return found


@pytest.fixture(scope="module")
def redmine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redmine]:
    """Debian's Redmine on loopback: a copy of its files with a database of its own, served by puma."""
    if not (REDMINE / "config.ru").is_file():
        pytest.skip("Redmine is not installed (apt-get install redmine redmine-sqlite puma)")
    home = tmp_path_factory.mktemp("redmine") / "redmine"
    shutil.copytree(REDMINE, home, symlinks=True, ignore=shutil.ignore_patterns("instances", "database.yml"))
    (home / "Gemfile.lock").unlink()
    shutil.copyfile("/var/lib/redmine/Gemfile.lock", home / "Gemfile.lock")
    own = home / "instances" / "default"
    for name in ("config", "log", "tmp", "files"):
        (own / name).mkdir(parents=True)
    database = f"production: {{adapter: sqlite3, database: {own}/redmine.sqlite3}}\n"
    (own / "config" / "database.yml").write_text(database)
    (own / "config" / "secret_key.txt").write_text("0123456789abcdef" * 4)
    (home / "seed.rb").write_text(SEED)
    comment = posting.text(trackers.ticket("https://redmine.example/issues/1"), {}, EVIL, "")
    env = {**os.environ, "RAILS_ENV": "production", "REDMINE_LANG": "en", "COMMENT": comment}
    how: dict[str, Any] = {"cwd": home, "env": env}
    subprocess.run(["bin/rake", "db:migrate"], check=True, capture_output=True, timeout=300, **how)
    seeded = subprocess.run(
        ["bin/rails", "runner", "seed.rb"], check=True, capture_output=True, text=True, timeout=300, **how
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["puma", "--bind", f"tcp://127.0.0.1:{port}", "--environment", "production", "config.ru"]
    with (home / "puma.log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, **how)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, (home / "puma.log").read_text()
            time.sleep(0.1)
        *rendered, key = seeded.stdout.splitlines()[-3:]
        yield Redmine(f"http://127.0.0.1:{port}", key, list(map(json.loads, rendered)))
    finally:
        server.terminate()
        server.wait(60)


@pytest.mark.slow
@needs("puma")
def test_a_real_redmine_has_one_page_and_one_comment_after_two_runs(
    redmine: Redmine, in_process: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REDMINE_API_KEY", redmine.key)
    url = f"{redmine.url}/issues/1"
    assert in_process("analyze", LOGS, "--ticket", url).returncode == 0
    first = redmine.issue()
    (note,) = (j for j in first["journals"] if j["notes"])
    assert note["notes"].startswith("<pre>\nINCIDENT") and "Killed process 11721" in note["notes"]
    page = written(SAMPLES / "skipped-collective", tmp_path / "other.html")
    done = in_process("attach", page, url)
    assert done.returncode == 0 and "comment replaced" in done.stderr, done.stderr
    second = redmine.issue()
    (again,) = (j for j in second["journals"] if j["notes"])
    assert again["id"] == note["id"] and again["notes"] != note["notes"] and again["notes"].endswith(posting.MARK)
    (file,) = second["attachments"]
    assert file["filename"] == posting.NAME and file["filesize"] == page.stat().st_size
    assert file["id"] != first["attachments"][0]["id"]
    shown = urlopen(Request(url, headers={"X-Redmine-API-Key": redmine.key}), timeout=60).read().decode()
    assert "<pre>\nINCIDENT" in shown and "/attachments/" in shown  # its page shows the text as it is


@pytest.mark.slow
@needs("puma")
def test_a_real_redmine_shows_log_text_as_text(redmine: Redmine) -> None:
    assert redmine.rendered
    for html in redmine.rendered:
        assert set(re.findall(r"<(/?\w+)", html)) == {"pre", "/pre", "p", "/p"}, html
        assert "@admin #1 {{toc}} **b** *b*" in html


@pytest.mark.slow
@needs("puma")
def test_a_real_redmine_refuses(
    redmine: Redmine, in_process: Command, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    for key, path, reason in (
        ("wrong", "issues/1", "does not accept the credentials (HTTP 401)"),
        (redmine.key, "issues/999", "has no such issue, or does not show it to this user (HTTP 404)"),
    ):
        monkeypatch.setenv("REDMINE_API_KEY", key)
        done = in_process("attach", page, f"{redmine.url}/{path}")
        assert done.returncode == 14 and reason in done.stderr
