#!/usr/bin/env python3
"""Sends the verdict to a chat, to Grafana, or to an OpenTelemetry collector.

    postmortem analyze logs --quiet --format json --brief | python3 notify.py grafana

`postmortem analyze logs --notify URL` notifies chats, mail, PagerDuty and webhooks without this file. Take
it for the others, or to change what is said.

    slack       CHAT_WEBHOOK                Slack, Mattermost; also Google Chat and what else takes {"text": …}
    grafana     GRAFANA_URL, GRAFANA_TOKEN  an annotation at the time of the failure
    otlp        OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS (k=v,k=v): a log record, OTLP/HTTP

Each sends the headline and the facts, and no line of proof. JOB (the job's name) and REPORT_URL are added where they
are set. Python 3.9 or newer, and nothing else.

It takes 5 seconds at most, and its exit code is 0: a job must not fail because a chat is down.
"""

import html
import json
import os
import sys
import threading
import time
from datetime import datetime
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import HTTPRedirectHandler, Request, build_opener

SECONDS = 5
SEVERITY = {"incident": (17, "ERROR"), "undetermined": (13, "WARN"), "recovered": (13, "WARN")}


def slack(said):
    # A log may say `<!channel>` or @all, and the headline may quote it: nothing of it may act.
    text = "\n".join(html.escape(line, quote=False).replace("@", "@\u200b") for line in lines(json.loads(said)))
    return os.environ["CHAT_WEBHOOK"], {}, {"text": text}


def grafana(said):
    brief = json.loads(said)
    told = facts(brief)
    tags = [told[name] for name in ("outcome", "category", "fingerprint", "job") if name in told]
    text = "<br>".join(map(html.escape, lines(brief)))
    note = {"time": milliseconds(brief), "tags": ["postmortem", *tags], "text": text}
    headers = {"Authorization": f"Bearer {os.environ['GRAFANA_TOKEN']}"}
    return os.environ["GRAFANA_URL"].rstrip("/") + "/api/annotations", headers, note


def otlp(said):
    brief = json.loads(said)
    number, word = SEVERITY.get(brief["outcome"], (9, "INFO"))
    record = {
        "timeUnixNano": str(milliseconds(brief) * 10**6),
        "observedTimeUnixNano": str(time.time_ns()),
        "severityNumber": number,
        "severityText": word,
        "body": typed(brief["headline"]),
        "attributes": [{"key": f"postmortem.{name}", "value": typed(v)} for name, v in facts(brief).items()],
    }
    service = {"key": "service.name", "value": typed(os.environ.get("OTEL_SERVICE_NAME", "postmortem"))}
    scope = {"scope": {"name": "postmortem"}, "logRecords": [record]}
    pairs = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
    headers = {name.strip(): unquote(value.strip()) for name, is_, value in (p.partition("=") for p in pairs) if is_}
    logs = {"resource": {"attributes": [service]}, "scopeLogs": [scope]}
    return (
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/logs",
        headers,
        {"resourceLogs": [logs]},
    )


def typed(value):
    if isinstance(value, list):
        return {"arrayValue": {"values": [typed(item) for item in value]}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def facts(brief):
    """What a program asks for, by name; what is not known is left out."""
    found = {name: brief.get(name) for name in ("outcome", "category", "pattern", "confidence", "fingerprint")}
    found |= {name: brief.get("culprit", {}).get(name) for name in ("ranks", "hosts")}
    found |= {"job": os.environ.get("JOB"), "report": os.environ.get("REPORT_URL")}
    return {name: value for name, value in found.items() if value}


def lines(brief):
    """The verdict for people: the headline, the facts, the first thing to do, where the report is."""
    told = facts(brief)
    short = [told[name] for name in ("job", "outcome", "category", "confidence") if name in told]
    for name in ("ranks", "hosts"):
        short += [f"{name} {', '.join(map(str, told[name]))}"] if name in told else []
    short += [f"fingerprint {told['fingerprint']}"] if "fingerprint" in told else []
    rest = [*brief.get("actions", [])[:1], told.get("report", "")]
    return [brief["headline"], " · ".join(short), *filter(None, rest)]


def milliseconds(brief):
    """When it failed: the first proof that has a time; now, where none has."""
    times = [proof["time"] for proof in brief.get("evidence", []) if "time" in proof]
    moment = datetime.fromisoformat(times[0].replace("Z", "+00:00")).timestamp() if times else time.time()
    return round(moment * 1000)


class Stay(HTTPRedirectHandler):
    """Follows no redirect: a token is for the address that was given."""

    def redirect_request(self, *_):
        return None


def send(where):
    """Return why it was not sent; empty where it was."""
    try:
        address, headers, body = {
            "slack": slack,
            "grafana": grafana,
            "otlp": otlp,
        }[where](sys.stdin.read(65536))
        request = Request(address, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
        build_opener(Stay).open(request, timeout=SECONDS).close()
    except HTTPError as error:
        return f"HTTP {error.code}"
    except KeyError as error:
        return f"{error} is missing"
    except Exception as error:  # not its text: the address of a webhook is its password
        return type(error).__name__
    return ""


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else ""
    reasons = ["no answer"]
    # In a thread, since looking up a name has no timeout, and an answer may come byte by byte.
    sender = threading.Thread(target=lambda: reasons.append(send(where)), daemon=True)
    sender.start()
    sender.join(SECONDS)
    if reasons[-1]:
        sys.stderr.write(f"notify {where}: not sent: {reasons[-1]}\n")
        sys.stderr.flush()
    os._exit(0)
