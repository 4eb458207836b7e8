"""The verdict -> a chat, a pager or a webhook: short, with a link, and never in the way of the job.

    slack+https://chat.example/hooks/…   ->   {"text": "*Rank 3 on node-b was killed …*\\nincident · …"}

An address is its own password. It stands in no message of ours, and neither does the text of an error, which
may quote it. What is sent holds no line of a log but in the brief document, and no secret.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
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

SECONDS = 5.0  # that one try may take
PAUSES = (0.5, 1.5)  # seconds in front of the second and the third try
MOST = 8  # addresses
SETTINGS = 1 << 16  # bytes of a file of addresses
KINDS = ("slack", "teams", "pagerduty", "webhook")
_HOSTS = (
    ("slack", re.compile(r"hooks\.slack(?:-gov)?\.com$")),
    ("teams", re.compile(r"(?:^|\.)(?:webhook\.office\.com|logic\.azure\.com|api\.powerplatform\.com)$")),
    ("pagerduty", re.compile(r"^events\.(?:eu\.)?pagerduty\.com$")),
)
_SEVERITY = {"incident": "critical", "undetermined": "error", "recovered": "warning"}
_UNSAFE = re.compile(r"[^!-~]")  # in an address: blanks, line ends, what is not ASCII
SUMMARY, KEY = 1024, 255  # characters that PagerDuty takes


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """Where to, and what it understands. Its address is secret, so it has no `repr`."""

    kind: str
    url: str
    key: str = ""  # of PagerDuty
    login: str = ""  # user:password, as the header has it


class Unsent(Exception):
    """Why nothing was sent, in words that hold no address; `again`: another try may go better."""

    def __init__(self, why: str, again: bool = False) -> None:
        super().__init__(why)
        self.again = again


# ── where to ────────────────────────────────────────────────────────────────────────────────────────────────


def addresses(given: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """What the command line names, else what `POSTMORTEM_NOTIFY` holds: addresses, and `@FILE` of addresses.
    Raise Unsent where a file cannot be read."""
    named = list(given) or environ.get(NOTIFY, "").split()
    found: list[str] = []
    for one in named:
        found += _in_file(Path(one[1:])) if one.startswith("@") else [one]
    return list(dict.fromkeys(found))[:MOST]


def _in_file(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            said = file.read(SETTINGS).decode("utf-8", "replace")
    except OSError as error:
        raise Unsent(f"the file of addresses: {error.strerror}") from None
    lines = (line.strip() for line in said.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def target(address: str) -> Target:
    """Read one address. Raise Unsent where it is none."""
    prefix, plus, rest = address.partition("+")
    kind, url = (prefix, rest) if plus and prefix in KINDS else ("", address)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Unsent("the address is not one") from None
    if parts.scheme not in ("http", "https") or not host or _UNSAFE.search(url):
        raise Unsent("the address must be http:// or https://, or have one of " + ", ".join(KINDS) + " + it")
    kind = kind or next((name for name, known in _HOSTS if known.search(host)), "webhook")
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


# ── what ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Message:
    """What is told: the brief document, the job's name, and where the report is."""

    brief: Mapping[str, Any]
    job: str = ""
    link: str = ""

    @property
    def facts(self) -> str:
        """`train-1 · incident · host-oom · established · rank 3 · node-b · fingerprint 2.8c1f…`"""
        culprit = self.brief.get("culprit", {})
        ranks, hosts = (list(map(str, culprit.get(name, ()))) for name in ("ranks", "hosts"))
        told = [self.job, *(self.brief.get(name) or "" for name in ("outcome", "category", "confidence"))]
        told += [f"rank{'s' * (len(ranks) > 1)} {', '.join(ranks)}"] if ranks else []
        told += [", ".join(hosts)]
        told += [f"fingerprint {self.brief['fingerprint']}"] if self.brief.get("fingerprint") else []
        return " · ".join(filter(None, told))

    @property
    def lines(self) -> list[str]:
        """The headline, the facts, whether it was seen before, the first thing to do."""
        seen = [self.brief["history"]] if self.brief.get("history") else []
        return [self.brief["headline"], self.facts, *seen, *self.brief.get("actions", [])[:1]]


def message(incident: Incident, link: str = "") -> Message:
    """What is told of an incident, secrets masked even where the report shows them."""
    from postmortem.privacy import Redactor
    from postmortem.report.brief import render_brief

    if incident.as_written:
        incident = replace(incident, document=Redactor().document(incident.document))  # type: ignore[arg-type]
    job = incident.document["job"].get("id")
    return Message(json.loads(render_brief(incident)), str(job or "")[:120], _UNSAFE.sub("", link))


def slack(told: Message, _: Target) -> object:
    """Short text of Slack's own markup, in which nothing that a log says can act."""
    said = [html.escape(line, quote=False).replace("@", "@\u200b") for line in told.lines]
    link = [f"<{quote(told.link, safe=_SAFE)}|Report>"] if _is_link(told.link) else [told.link]
    return {
        "text": "\n".join(filter(None, [f"*{said[0]}*", *said[1:], *link])),
        "unfurl_links": False,
    }


def teams(told: Message, _: Target) -> object:
    """A card of plain runs of text: a TextBlock would read Markdown, and so links, in what it quotes."""
    bold = {"weight": "bolder"}
    runs = [{"type": "TextRun", "text": line} | (bold if n == 0 else {}) for n, line in enumerate(told.lines)]
    rows = [{"type": "RichTextBlock", "inlines": [run]} for run in runs]
    card: dict[str, object] = {"type": "AdaptiveCard", "version": "1.4", "body": rows}
    if _is_link(told.link):
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Report", "url": told.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def pagerduty(told: Message, to: Target) -> object:
    """An event of version 2. One failure of one job is one alert, however often it is analyzed."""
    brief = told.brief
    source = told.job or next(iter(brief.get("culprit", {}).get("hosts", ())), "postmortem")
    payload = {
        "summary": brief["headline"][:SUMMARY],
        "source": source,
        "severity": _SEVERITY.get(brief["outcome"], "info"),
        "group": told.job,
        "class": brief.get("category"),
        "component": brief.get("pattern"),
        "custom_details": {"facts": told.facts, "actions": brief.get("actions", [])[:3]},
    }
    event = {"routing_key": to.key, "event_action": "trigger", "client": "postmortem"}
    known = brief.get("fingerprint")
    dedup = {"dedup_key": f"{known}:{told.job}"[:KEY]} if known else {}
    links = {"links": [{"href": told.link, "text": "Report"}]} if _is_link(told.link) else {}
    return {**event, **dedup, **links, "payload": {name: value for name, value in payload.items() if value}}


def webhook(told: Message, _: Target) -> object:
    """The brief document, with the job's name and the link where they are known."""
    more = {"job": told.job, "report": told.link}
    return {**told.brief, **{name: value for name, value in more.items() if value}}


_SAFE = ":/?#[]@!$&'()*+,;=%~"  # what an address is written with
_BODIES: Mapping[str, Callable[[Message, Target], object]] = {
    "slack": slack,
    "teams": teams,
    "pagerduty": pagerduty,
    "webhook": webhook,
}


def _is_link(address: str) -> bool:
    return address.startswith(("https://", "http://"))


# ── how ─────────────────────────────────────────────────────────────────────────────────────────────────────


def tell(incident: Incident, given: Sequence[str], link: str = "") -> None:
    """Tell everybody who is to be told of a job that did not go well. Raise nothing, take a quarter of a
    minute at most, and say on standard error what was not sent."""
    try:
        targets = addresses(given)
        if not targets or incident.document["verdict"]["outcome"] == "healthy":
            return
        told = message(incident, link)
    except Exception as error:
        output.say(f"postmortem: nobody was notified: {_why(error)}")
        return
    # threads, since looking up a name has no timeout and an answer may come byte by byte
    waiting: list[tuple[threading.Thread, list[str]]] = []
    for address in targets:
        said = ["notify: not sent: no answer"]
        thread = threading.Thread(target=_one, args=(address, told, said), daemon=True)
        thread.start()
        waiting.append((thread, said))
    end = time.monotonic() + SECONDS * (len(PAUSES) + 1)
    for thread, said in waiting:
        thread.join(max(0.0, end - time.monotonic()))
        if said[-1]:
            output.say(f"postmortem: {said[-1]}")


def _one(address: str, told: Message, said: list[str]) -> None:
    """Send to one address, and add what there is to say of it: nothing where it was sent."""
    kind = "notify"
    try:
        to = target(address)
        kind = f"notify {to.kind}"
        said.append(f"{kind}: not sent: no answer")
        body = json.dumps(_BODIES[to.kind](told, to)).encode()
        _delivered(to, body)
        said.append("")
    except Exception as error:  # whatever it is, the verdict is written and the job goes on
        said.append(f"{kind}: not sent: {_why(error)}")


def _delivered(to: Target, body: bytes) -> None:
    from urllib.request import Request

    headers = {"Content-Type": "application/json", "User-Agent": "postmortem"}
    headers |= {"Authorization": to.login} if to.login else {}
    opener = _opener()
    for pause in (*PAUSES, None):
        try:
            _post(opener, Request(to.url, body, headers, method="POST"))
            return
        except Unsent as error:
            if pause is None or not error.again:
                raise
            time.sleep(pause)


def _post(opener: OpenerDirector, request: Request) -> None:
    """One try. Raise Unsent, with words that hold nothing of the address."""
    import http.client
    import ssl
    from urllib.error import HTTPError, URLError

    try:
        opener.open(request, timeout=SECONDS).close()
    except HTTPError as error:
        error.close()
        where = ", a redirect that is not followed" if 300 <= error.code < 400 else ""
        again = error.code >= 500 or error.code in (408, 429)
        raise Unsent(f"HTTP {error.code}{where}", again) from None
    except URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise Unsent("its certificate is not trusted here (SSL_CERT_FILE names others)") from None
        raise Unsent(_why(reason), True) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unsent(_why(error), not isinstance(error, http.client.InvalidURL)) from None


def _why(error: object) -> str:
    """An error without its text, which may quote an address."""
    if isinstance(error, Unsent):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer in {SECONDS:.0f} s"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return type(error).__name__


def _opener() -> OpenerDirector:
    """What opens http and https alone, by a proxy where the environment names one."""
    from urllib import request

    class Near(request.HTTPRedirectHandler):
        """Follows a redirect within one server; a token is for nobody else."""

        def redirect_request(self, req: Request, *answer: Any) -> Request | None:
            _, code, _, _, newurl = answer
            if code == 303 or urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
                return None
            return request.Request(newurl, req.data, dict(req.header_items()), method="POST")

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        Near(),
        request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
