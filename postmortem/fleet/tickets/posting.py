"""A page and a text -> a ticket: find our comment, upload the page, write or replace the comment."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from postmortem.errors import TicketError
from postmortem.fleet.exchange import Unsent, answer
from postmortem.fleet.tickets.trackers import VARIABLE, Listing, Login, Ticket
from postmortem.system import output

if TYPE_CHECKING:
    from postmortem.report.view import Incident

NAME = "postmortem-report.html"  # of the attachment; the calls and texts of trackers.yaml know it as {name}
MARK = "Written by postmortem; its next run on this ticket replaces this comment."
SECONDS = 30.0  # of one request
PAGES, ROWS = 50, 100  # of a listing
_REASONS = {
    401: "does not accept the credentials",
    403: "does not allow this user to do that",
    404: "has no such issue, or does not show it to this user",
    413: "does not take a page of this size",
}


class Row(NamedTuple):
    """A comment, or an attachment: its text is its name."""

    id: str
    text: str
    author: str


class Session(NamedTuple):
    """The calls to one tracker. `known` fills in their places."""

    ticket: Ticket
    login: Login
    known: dict[str, Any]

    def call(self, line: str, body: bytes | None = None, kind: str = "", refusal: int = 0) -> Any:
        """Return the JSON of an answer; None where there is none, and for the status `refusal`. Raise TicketError."""
        method, path = line.split(" ", 1)
        headers = {"Accept": "application/json", **self.ticket.tracker.headers, **self.login.header}
        headers |= {"Content-Type": kind} if kind else {}
        url = self.ticket.api + filled_path(path, self.known)
        try:
            found, _ = answer(method, url, body, headers, SECONDS)
        except Unsent as error:
            if refusal and error.status == refusal:
                return None
            raise _failed(self.ticket, error) from None
        try:
            return json.loads(found) if found.strip() else None
        except (ValueError, RecursionError):
            hint = f"check that the address is of {self.ticket.tracker.kind}, or prefix it with another kind and +"
            raise TicketError(f"{self.ticket.host} answers with something other than JSON", hint) from None

    def send(self, line: str, body: object) -> Any:
        return self.call(line, json.dumps(filled(body, self.known)).encode(), "application/json")

    def rows(self, listing: Listing) -> Iterator[Row]:
        """Yield the rows of a listing, all pages of it."""
        paged = "{start}" in listing.call or "{page}" in listing.call
        seen: set[str] = set()
        for page in range(PAGES if paged else 1):
            self.known.update(page=page + 1, start=page * ROWS)
            found = picked(self.call(listing.call), listing.rows)
            rows = [
                Row(*(str(picked(row, name) or "") for name in (listing.id, listing.text, listing.author)))
                for row in found or ()
            ]
            yield from rows
            if len(rows) < ROWS or {row.id for row in rows} <= seen:  # a server that knows no pages
                return
            seen |= {row.id for row in rows}


def post(to: Ticket, login: Login, page: bytes, log: str, report_url: str = "") -> str:
    """Attach a page and write the comment, or replace ours. Return what was done; raise TicketError."""
    tracker = to.tracker
    session = Session(to, login, {**to.parts, "name": NAME})
    me = login.user
    if tracker.me:  # the token of a workflow of GitHub is no user's: 403, and the mark alone decides
        me = str(picked(session.call(tracker.me.call, refusal=403), tracker.me.value) or "")
    mine = [row for row in session.rows(tracker.comments) if is_ours(row.text) and me in (row.author, "")]
    old = _old_files(session, mine[-1].text if mine else "", me)
    if tracker.upload:
        kind, body = _body(tracker.upload.form, tracker.upload.type, page)
        session.known["file"] = str(picked(session.call(tracker.upload.call, body, kind), tracker.upload.value) or "")
    session.known["text"] = text(to, session.known, log, report_url)
    if mine:
        session.known["comment"] = mine[-1].id
    for line, template in (tracker.again if mine else tracker.first).items():
        session.send(line, template)
    for file in old:
        session.known["file"] = file
        try:
            session.call(tracker.remove)
        except TicketError as error:
            output.say(f"postmortem: the earlier page stays on the ticket: {error.message}")
    comment = "comment replaced" if mine else "comment written"
    if tracker.upload:
        return f"page attached, {comment}"
    return comment if report_url else f"{comment}; GitHub's API attaches no files: link the page with --report-url URL"


def _old_files(session: Session, comment: str, me: str) -> list[str]:
    """Return the ids of the pages of earlier runs."""
    files = session.ticket.tracker.files
    if files is None:
        return []
    if files.within:
        return re.findall(files.within, comment)
    return [row.id for row in session.rows(files) if row.text == NAME and me in (row.author, "")]


def text(to: Ticket, known: Mapping[str, Any], log: str, report_url: str) -> str:
    """Return the comment. Its last line marks it as ours."""
    tracker = to.tracker
    if tracker.inert:
        first, rest = tracker.inert[0], tracker.inert[1:]
        log = re.sub(f"{re.escape(first)}(?={re.escape(rest)})", f"{first}\u200b", log, flags=re.IGNORECASE)
    link = tracker.link.format_map({"name": NAME, **known})
    shown = f"[The report]({report_url})" if tracker.form == "markdown" else report_url
    parts = (tracker.frame.format(log=log.strip("\n")), link, shown if report_url else "", MARK)
    return "\n\n".join(filter(None, parts))


def brief(to: Ticket, incident: Incident) -> str:
    """Return what the comment says: Markdown where the tracker renders it, else a text of 80 columns."""
    from postmortem import report

    if to.tracker.form == "markdown":
        return str(report.render_markdown(incident, brief=True))
    return str(report.render_terminal(incident, width=80))


def is_ours(comment: str) -> bool:
    """Whether a comment is one of `text`; a reply that quotes it ends otherwise."""
    return comment.rstrip().splitlines()[-1:] == [MARK]


def plan(to: Ticket, page: bytes, log: str, report_url: str = "") -> list[str]:
    """Return the calls that would write to a ticket, and the comment, without sending anything."""
    tracker = to.tracker
    known = {**to.parts, "name": NAME, "comment": "COMMENT", "file": "FILE"}
    upload = [f"{tracker.upload.call}   {len(page):,} bytes of {NAME}"] if tracker.upload else []
    lines = [*upload, *tracker.first, *(f"{line}   on a later run" for line in tracker.again)]
    shown = [f"{line.split(' ', 1)[0]} {to.api}{filled_path(line.split(' ', 1)[1], known)}" for line in lines]
    return [*shown, "", *text(to, known, log, report_url).splitlines()]


def filled(template: Any, known: Mapping[str, Any]) -> Any:
    """Return a JSON value with its places filled in."""
    if isinstance(template, dict):
        return {name: filled(value, known) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, known) for value in template]
    return template.format_map(known)


def filled_path(path: str, known: Mapping[str, Any]) -> str:
    return path.format_map({name: quote(str(value), safe="") for name, value in known.items()})


def picked(value: Any, path: str) -> Any:
    """Return the field at `issue.journals`, or the first that exists of `a.id|a.name`; None where there is none."""
    for way in path.split("|"):
        found = value
        for name in filter(None, way.split(".")):
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def _body(form: str, kind: str, page: bytes) -> tuple[str, bytes]:
    """Return type and body of an upload (RFC 7578 for a form)."""
    if form == "raw":
        return kind, page
    mark = secrets.token_hex(16)
    head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{NAME}"\r\nContent-Type: {kind}\r\n\r\n'
    return f"multipart/form-data; boundary={mark}", head.encode() + page + f"\r\n--{mark}--\r\n".encode()


def _failed(to: Ticket, error: Unsent) -> TicketError:
    """Return the sentence for a request that failed."""
    tracker, status = to.tracker, error.status
    said = _said(error.body) if status in (400, 413, 422) else ""
    reason = _REASONS.get(status, "")
    message = f"{to.host} {reason} (HTTP {status})" if reason else f"{to.host}: {error}"
    names = ", ".join((VARIABLE, *tracker.variables))
    hints = {
        401: f"check {names}, or ~/.netrc",
        403: "ask for the right to comment, and to attach files",
        404: "open the address in a browser as this user",
        413: "ask for a higher limit on attachments, or attach the page's address: --report-url URL",
    }
    again = "write it later: postmortem attach REPORT URL"
    if 300 <= status < 400:
        again = "give the address that the browser ends at; a login page in front of the API must let tokens pass"
    return TicketError(message + said, hints.get(status, again))


def _said(body: bytes) -> str:
    """Return the reason in a tracker's answer: `{"errors": ["…"]}`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    strings = re.findall(r'"([^"\\]{12,160})"', json.dumps(found, ensure_ascii=False))
    return f": {strings[0]}" if strings else ""
