"""The verdict -> a chat, a pager or a webhook: short, with a link, and without delaying the job.

    slack+https://chat.example/hooks/…   ->   {"text": "*Rank 3 on node-b was killed …*\\nincident · …"}

An address is its own password: no message and no error text of ours has it. Only the brief document has lines of
logs, and no message has a secret.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import html
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit, urlunsplit

from postmortem.system import output
from postmortem.system.arguments import NOTIFY

if TYPE_CHECKING:
    from urllib.request import OpenerDirector, Request

    from postmortem.analyze import Incident

SECONDS = 5.0  # of one try
PAUSES = (0.5, 1.5)  # seconds before the second and the third try
NOT_NOW = (408, 429, 503)  # the server has not taken the message
MOST = 8  # addresses
SETTINGS = 1 << 16  # bytes of a file of addresses
SUMMARY, KEY = 1024, 255  # characters that PagerDuty accepts
HOSTS = {  # ends of host names
    "slack": ("hooks.slack.com", "hooks.slack-gov.com"),
    "teams": ("webhook.office.com", "logic.azure.com", "api.powerplatform.com"),
    "pagerduty": ("events.pagerduty.com", "events.eu.pagerduty.com"),
}
KINDS = (*HOSTS, "webhook")
_SEVERITY = {"incident": "critical", "undetermined": "error", "recovered": "warning"}
_SAFE = ":/?#[]@!$&'()*+,;=%~"  # characters of an address


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A server and its kind. Its address is secret, so it has no `repr`."""

    kind: str
    url: str
    key: str = ""  # of PagerDuty
    login: str = ""  # value of the header Authorization


class Unsent(Exception):
    """Why nothing was sent, without the address; `again`: another try may succeed; `arrived`: it may have arrived."""

    def __init__(self, why: str, again: bool = False, arrived: bool = False) -> None:
        super().__init__(why)
        self.again, self.arrived = again, arrived


def addresses(given: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the addresses of the command line, else those in `POSTMORTEM_NOTIFY`; `@FILE` is replaced by its lines.
    Raise Unsent if a file cannot be read."""
    found: list[str] = []
    for one in list(given) or environ.get(NOTIFY, "").split():
        found += _in_file(Path(one[1:])) if one.startswith("@") else [one]
    return list(dict.fromkeys(found))[:MOST]


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
    if parts.scheme not in ("http", "https") or not host or _printable(url) != url:
        raise Unsent("the address must be http:// or https://, or have one of " + ", ".join(KINDS) + " + it")
    kind = kind or next((name for name, ends in HOSTS.items() if _belongs(host, name, ends)), "webhook")
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
    return Target(kind, urlunsplit((parts.scheme, place, parts.path or "/", query, "")), key, login)


def _printable(address: str) -> str:
    """Return an address without blanks, line ends, and characters that are not ASCII."""
    return "".join(char for char in address if "!" <= char <= "~")


def _belongs(host: str, kind: str, ends: tuple[str, ...]) -> bool:
    return host in ends or (kind == "teams" and host.endswith(tuple(f".{end}" for end in ends)))


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
        """`train-1 · incident · host-oom · established · rank 3 · node-b · fingerprint 2.8c1f…`"""
        culprit = self.brief.get("culprit", {})
        ranks, hosts = (", ".join(map(str, culprit.get(name, ()))) for name in ("ranks", "hosts"))
        print_ = self.brief.get("fingerprint")
        facts = [self.job, *map(self.brief.get, ("outcome", "category", "confidence"))]
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
    from postmortem.report.brief import render_brief

    if incident.as_written:
        incident = replace(incident, document=Redactor().document(incident.document))  # type: ignore[arg-type]
    return Message(json.loads(render_brief(incident)), _printable(link), incident.document["job"].get("id"))


def slack(message: Message, _: Target) -> object:
    """Return short text in Slack's markup, in which quoted text is inert."""
    headline, *rest = (html.escape(line, quote=False).replace("@", "@\u200b") for line in message.lines)
    link = f"<{quote(message.link, safe=_SAFE)}|Report>" if message.has_link else message.link
    return {"text": "\n".join(filter(None, [f"*{headline}*", *rest, link])), "unfurl_links": False}


def teams(message: Message, _: Target) -> object:
    """Return a card of plain text runs: a TextBlock would read Markdown, and so links, in quoted text."""
    runs: list[dict[str, str]] = [{"type": "TextRun", "text": line} for line in message.lines]
    runs[0]["weight"] = "bolder"
    rows = [{"type": "RichTextBlock", "inlines": [run]} for run in runs]
    card: dict[str, object] = {"type": "AdaptiveCard", "version": "1.4", "body": rows}
    if message.has_link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Report", "url": message.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def pagerduty(message: Message, to: Target) -> object:
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


def webhook(message: Message, _: Target) -> object:
    """Return the brief document, with the link if it is known."""
    return {**message.brief, **({"report": message.link} if message.link else {})}


_BODIES: Mapping[str, Callable[[Message, Target], object]] = {
    "slack": slack,
    "teams": teams,
    "pagerduty": pagerduty,
    "webhook": webhook,
}


def send(incident: Incident, given: Sequence[str], link: str = "") -> None:
    """Notify of a job that did not go well, within 15 s. Raise nothing; report failures on standard error."""
    try:
        targets = addresses(given)
        if not targets or incident.document["verdict"]["outcome"] == "healthy":
            return
        content = message(incident, link)
    except Exception as error:
        output.say(f"postmortem: no notification was sent: {_why(error)}")
        return
    # in threads: a look-up of a name has no timeout, and an answer may come byte by byte
    waiting: list[tuple[threading.Thread, list[str]]] = []
    for address in targets:
        results = ["notify: not sent: no answer"]
        thread = threading.Thread(target=_send_one, args=(address, content, results), daemon=True)
        thread.start()
        waiting.append((thread, results))
    end = time.monotonic() + SECONDS * (len(PAUSES) + 1)
    for thread, results in waiting:
        thread.join(max(0.0, end - time.monotonic()))
        if results[-1]:
            output.say(f"postmortem: {results[-1]}")


def _send_one(address: str, content: Message, results: list[str]) -> None:
    """Send to one address, and add the result: empty on success."""
    kind = "notify"
    try:
        to = target(address)
        kind = f"notify {to.kind}"
        results.append(f"{kind}: not sent: no answer")
        _deliver(to, json.dumps(_BODIES[to.kind](content, to)).encode())
        results.append("")
    except Exception as error:  # the verdict is written, and the job goes on
        results.append(f"{kind}: not sent: {_why(error)}")


def _deliver(to: Target, body: bytes) -> None:
    from urllib.request import Request

    headers = {"Content-Type": "application/json", "User-Agent": "postmortem"}
    headers |= {"Authorization": to.login} if to.login else {}
    opener = _opener()
    for pause in (*PAUSES, None):
        try:
            return _post(opener, Request(to.url, body, headers, method="POST"))
        except Unsent as error:
            # a message that may have arrived is not sent again, except to PagerDuty, which knows a repeated one
            if pause is None or not error.again or (error.arrived and b'"dedup_key"' not in body):
                raise
            time.sleep(pause)


def _post(opener: OpenerDirector, request: Request) -> None:
    """Try once. Raise Unsent."""
    import http.client
    import socket
    import ssl
    from urllib.error import HTTPError, URLError

    try:
        opener.open(request, timeout=SECONDS).close()
    except HTTPError as error:
        error.close()
        where = ", a redirect that is not followed" if 300 <= error.code < 400 else ""
        not_now = error.code in NOT_NOW
        raise Unsent(f"HTTP {error.code}{where}", not_now or error.code >= 500, not not_now) from None
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise Unsent("its certificate is not trusted here (SSL_CERT_FILE names others)") from None
        refused = isinstance(error.reason, (ConnectionRefusedError, socket.gaierror))
        unreachable = getattr(error.reason, "errno", None) in (errno.EHOSTUNREACH, errno.ENETUNREACH)
        raise Unsent(_why(error.reason), True, not (refused or unreachable)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unsent(_why(error), not isinstance(error, http.client.InvalidURL), True) from None


def _why(error: object) -> str:
    """Return an error without its text, which may quote an address."""
    if isinstance(error, Unsent):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer in {SECONDS:.0f} s"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return type(error).__name__


def _opener() -> OpenerDirector:
    """Return an opener for http and https alone, with the proxies of the environment."""
    from urllib import request

    class SameServer(request.HTTPRedirectHandler):
        """Follows a redirect within one server: no other may get the token."""

        def redirect_request(self, req: Request, *answer: Any) -> Request | None:
            _, code, _, _, newurl = answer
            if code == 303 or urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
                return None
            return request.Request(newurl, req.data, dict(req.header_items()), method="POST")

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler, request.HTTPHandler, request.HTTPSHandler, request.HTTPDefaultErrorHandler,
        SameServer, request.HTTPErrorProcessor,
    ):  # fmt: skip
        opener.add_handler(handler())
    return opener
