"""The verdict -> a chat, a mailbox, a pager or a webhook: short, with a link, and without delaying the job.

    https://hooks.slack.com/services/…   ->   Rank 3 on node-b was killed …\\nincident · host-oom · …

Apprise knows the services. PagerDuty and plain webhooks are ours: one alert per failure, a message that may have
arrived is not sent again. An address is its own password: no message and no error text of ours has it. Only the brief
document, and the page in a mail, have lines of logs, and no message has a secret.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import io
import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from postmortem.errors import UsageError
from postmortem.fleet.exchange import Unsent, answer, why
from postmortem.report.labels import CATEGORIES
from postmortem.system import output
from postmortem.system.arguments import NOTIFY

if TYPE_CHECKING:
    from postmortem.analyze import Incident

SECONDS = 5.0  # of one try
PAUSES = (0.5, 1.5)  # seconds before the second and the third try
MOST_ADDRESSES = 8  # addresses
SETTINGS = 1 << 16  # bytes of a file of addresses
SUMMARY, KEY = 1024, 255  # characters that PagerDuty accepts
PAGERDUTY = ("events.pagerduty.com", "events.eu.pagerduty.com")
KINDS = ("pagerduty", "webhook")
INSTALL = "pip install 'torch-postmortem[notify]'"
# ends of host names whose https:// addresses are Apprise's, so that they do not become plain webhooks without it
CHATS = re.compile(r"(?:.*\.)?(?:slack\.com|slack-gov\.com|office\.com|azure\.com|powerplatform\.com|discord\.com)")
_SEVERITY = {"incident": "critical", "undetermined": "error", "recovered": "warning"}
# In quoted text no service may see a mention, a command, or a link with another text; Apprise restores Slack's own.
_INERT = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "@\u200b", "!": "!\u200b", "]": "]\u200b"})


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A server and its kind. Its address is secret, so it has no `repr`."""

    kind: str
    url: str
    key: str = ""  # of PagerDuty
    login: str = ""  # value of the header Authorization
    service: Any = None  # of Apprise


def check(given: Sequence[str]) -> None:
    """Raise UsageError for an address that is none; it is not quoted, since it may be a secret."""
    try:
        for address in addresses(given):
            target(address)
    except Unsent as error:
        if str(error).endswith(INSTALL):
            raise UsageError("--notify: this address needs Apprise", INSTALL) from None
        hint = "use https://…, pagerduty+https://…, one of Apprise (mailto://…, slack://…), or @FILE with one a line"
        raise UsageError(f"--notify: {error}", hint) from None


def addresses(given: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the addresses of the command line, else those in `POSTMORTEM_NOTIFY`; `@FILE` is replaced by its lines.
    Raise Unsent if a file cannot be read."""
    found: list[str] = []
    for one in list(given) or environ.get(NOTIFY, "").split():
        found += _in_file(Path(one[1:])) if one.startswith("@") else [one]
    return list(dict.fromkeys(found))[:MOST_ADDRESSES]


def _in_file(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(SETTINGS).decode("utf-8", "replace")
    except OSError as error:
        raise Unsent(f"the file of addresses: {error.strerror}") from None
    lines = (line.strip() for line in content.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def target(address: str) -> Target:
    """Parse an address. Raise Unsent if it is none."""
    prefix, plus, rest = address.partition("+")
    kind, url = (prefix, rest) if plus and prefix in KINDS else ("", address)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Unsent("the address is not valid") from None
    kind = kind or ("pagerduty" if host in PAGERDUTY else "")
    if not kind and (found := _of_apprise(address, parts.scheme, host)):
        return found
    if parts.scheme not in ("http", "https") or not host or _printable(url) != url:
        raise Unsent(
            "the address must be one of Apprise, http:// or https://, or have pagerduty+ or webhook+ before it"
        )
    key, query = "", parts.query
    if kind == "pagerduty":
        key, query = parse_qs(query).get("routing_key", [""])[0], ""
        if not key:
            raise Unsent("a PagerDuty address ends with ?routing_key=KEY")
    login = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = "Basic " + base64.b64encode(pair.encode()).decode()
    place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    return Target(kind or "webhook", urlunsplit((parts.scheme, place, parts.path or "/", query, "")), key, login)


def _of_apprise(address: str, scheme: str, host: str) -> Target | None:
    """Return a target of one of Apprise's services; None for an address that it does not know. Raise Unsent."""
    try:
        apprise: Any = importlib.import_module("apprise")
    except ImportError:
        if scheme in ("http", "https", "") and not CHATS.fullmatch(host):
            return None
        raise Unsent(f"this address needs Apprise; {INSTALL}") from None
    logging.getLogger("apprise").propagate = False  # its messages quote addresses
    asset = apprise.AppriseAsset(
        app_id="postmortem", app_desc="", app_url="", image_url_mask="", http_redirects=False, async_mode=False
    )
    service = apprise.Apprise.instantiate(address, asset=asset, suppress_exceptions=True)
    return service and Target(str(service.service_name).lower(), address, service=service)


def _printable(address: str) -> str:
    """Return an address without blanks, line ends, and characters that are not ASCII."""
    return "".join(char for char in address if "!" <= char <= "~")


@dataclass(frozen=True, slots=True)
class Message:
    """The brief document, the address of the report, and the id of the job where its logs have one."""

    brief: Mapping[str, Any]
    link: str = ""
    job_id: str | None = None

    @property
    def job(self) -> str:
        return str(self.brief.get("job", ""))

    @property
    def own(self) -> str:
        """What no other job has: the id, or else the name with a digest of the evidence, since folders share names."""
        said = [(proof.get("text"), proof.get("time")) for proof in self.brief.get("evidence", ())]
        own = self.job_id or f"{self.job}:{_digest(json.dumps(said))[:16]}"
        return own if len(own) < KEY // 2 else _digest(own)

    @property
    def has_link(self) -> bool:
        return self.link.startswith(("https://", "http://"))

    @property
    def facts(self) -> str:
        """`train-1 · incident · host memory · established · rank 3 · node-b · fingerprint 2.8c1f…`"""
        culprit = self.brief.get("culprit", {})
        ranks, hosts = (", ".join(map(str, culprit.get(name, ()))) for name in ("ranks", "hosts"))
        print_ = self.brief.get("fingerprint")
        outcome, category, sure = map(self.brief.get, ("outcome", "category", "confidence"))
        facts = [self.job, outcome, CATEGORIES.get(str(category), category), sure]
        facts += [f"rank{'s' * (',' in ranks)} {ranks}" if ranks else "", hosts]
        facts += [f"fingerprint {print_}" if print_ else ""]
        return " · ".join(filter(None, facts))

    @property
    def lines(self) -> list[str]:
        """The headline, the facts, earlier incidents, and the first action."""
        seen = [self.brief["history"]] if self.brief.get("history") else []
        return [self.brief["headline"], self.facts, *seen, *self.brief.get("actions", [])[:1]]


def message(incident: Incident, link: str = "") -> Message:
    """Return the message of an incident, with secrets masked even where the report shows them."""
    from postmortem.privacy import Redactor
    from postmortem.report.json import render_brief

    if incident.as_written:
        incident = replace(incident, document=Redactor().document(incident.document))  # type: ignore[arg-type]
    return Message(json.loads(render_brief(incident)), _printable(link), incident.document["job"].get("id"))


def pagerduty(message: Message, to: Target) -> dict[str, object]:
    """Return an event of version 2. One failure of one job is one alert, however often it is analyzed."""
    brief = message.brief
    payload = {
        "summary": brief["headline"][:SUMMARY],
        "source": message.job or next(iter(brief.get("culprit", {}).get("hosts", ())), "postmortem"),
        "severity": _SEVERITY.get(brief["outcome"], "info"),
        "group": message.job,
        "class": brief.get("category"),
        "component": brief.get("pattern"),
        "custom_details": {"facts": message.facts, "actions": brief.get("actions", [])[:3]},
    }
    event: dict[str, object] = {"routing_key": to.key, "event_action": "trigger", "client": "postmortem"}
    if known := brief.get("fingerprint"):
        event["dedup_key"] = f"{known}:{message.own}"
    if message.has_link:
        event["links"] = [{"href": message.link, "text": "Report"}]
    return {**event, "payload": {name: value for name, value in payload.items() if value}}


def _digest(words: str) -> str:
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()


def webhook(message: Message) -> dict[str, object]:
    """Return the brief document, with the link if it is known."""
    return {**message.brief, **({"report": message.link} if message.link else {})}


def body(message: Message, to: Target) -> dict[str, Any]:
    """Return what a server is sent: the JSON of ours, or title and text for Apprise."""
    if to.kind in KINDS:
        return pagerduty(message, to) if to.kind == "pagerduty" else webhook(message)
    title, *rest = (line.translate(_INERT) for line in message.lines)
    return {"title": title, "body": "\n".join([*rest, message.link] if message.has_link else rest)}


def send(
    incident: Incident, given: Sequence[str], link: str = "", page: Path | None = None, dry_run: bool = False
) -> None:
    """Notify of a job that did not go well, within 15 s; a mail gets the page too. Raise nothing; report failures on
    standard error. With `dry_run` send nothing, and print what would be sent."""
    try:
        targets = addresses(given)
        if not targets or incident.document["verdict"]["outcome"] == "healthy":
            return
        content = message(incident, link)
    except Exception as error:
        output.say(f"postmortem: no notification was sent: {why(error, SECONDS)}")
        return
    if incident.as_written:
        page = None
    # in threads: a look-up of a name has no timeout, and an answer may come byte by byte
    waiting: list[tuple[threading.Thread, list[str]]] = []
    for address in targets:
        results = ["notify: not sent: no answer"]
        work = partial(_send_one, address, content, page, dry_run, results)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        waiting.append((thread, results))
    end = time.monotonic() + SECONDS * (len(PAUSES) + 1)
    for thread, results in waiting:
        thread.join(max(0.0, end - time.monotonic()))
        if results[-1]:
            output.say(f"postmortem: {results[-1]}")


def _send_one(address: str, content: Message, page: Path | None, dry_run: bool, results: list[str]) -> None:
    """Send to one address, and add the result: empty on success."""
    kind = "notify"
    try:
        to = target(address)
        kind = f"notify {to.kind}"
        results.append(f"{kind}: not sent: no answer")
        made, page = body(content, to), page if to.kind == "e-mail" else None  # a chat gets no line of the logs
        if dry_run:
            shown = {name: value for name, value in made.items() if name != "routing_key"}
            attached = f"\n  with {page.name} attached" if page else ""
            results.append(f"{kind}: would send {json.dumps(shown, indent=1, ensure_ascii=False)}{attached}")
            return
        if to.service is None:
            _deliver(to, json.dumps(made).encode())
        else:
            _by_apprise(to, made, page)
        results.append("")
    except Exception as error:  # the verdict is written, and the job goes on
        results.append(f"{kind}: not sent: {why(error, SECONDS)}")


def _by_apprise(to: Target, made: Mapping[str, str], page: Path | None) -> None:
    """Send with Apprise. Raise Unsent."""
    apprise: Any = importlib.import_module("apprise")
    thread = threading.get_ident()
    handler = logging.StreamHandler(log := io.StringIO())  # of this target: several are notified at once
    handler.addFilter(lambda record: record.thread == thread)
    logging.getLogger("apprise").addHandler(handler)
    try:
        attached = apprise.AppriseAttachment(str(page)) if page else None
        sent = to.service.notify(**made, notify_type="failure", body_format="text", attach=attached)
    finally:
        logging.getLogger("apprise").removeHandler(handler)
    if not sent:
        status = re.search(r"error=(\d{3})\b", log.getvalue())
        raise Unsent(f"HTTP {status[1]}" if status else "Apprise could not send it (apprise -vv shows why)")


def _deliver(to: Target, body: bytes) -> None:
    headers = {"Content-Type": "application/json"} | ({"Authorization": to.login} if to.login else {})
    for pause in (*PAUSES, None):
        try:
            answer("POST", to.url, body, headers, SECONDS)
            return
        except Unsent as error:
            # a message that may have arrived is not sent again, except to PagerDuty, which knows a repeated one
            if pause is None or not error.again or (error.arrived and b'"dedup_key"' not in body):
                raise
            time.sleep(pause)
