"""The address of an issue -> its tracker, and the parts of the address that the tracker's calls are made of."""

from __future__ import annotations

import base64
import netrc
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import yaml

from postmortem.errors import UsageError

VARIABLE = "POSTMORTEM_TICKET_TOKEN"  # of any tracker
FORMS = (
    "give the issue's own address, such as https://github.com/OWNER/REPOSITORY/issues/7,"
    " https://gitlab.example/GROUP/PROJECT/-/issues/7, https://jira.example/browse/KEY-7,"
    " https://redmine.example/issues/7, or that of a record in ServiceNow, with its sys_id"
)


class Listing(NamedTuple):
    """A call that lists rows, and the fields of a row. `within`: a regex for ids in a text, instead of a call."""

    call: str = ""
    rows: str = ""
    id: str = "id"
    text: str = ""
    author: str = ""
    within: str = ""


class Single(NamedTuple):
    """A call, the field of its answer that is needed, and for an upload form and type of the body."""

    call: str
    value: str = ""
    form: str = "raw"
    type: str = "text/html"


class Tracker(NamedTuple):
    """A row of trackers.yaml."""

    kind: str
    address: str
    api: str
    token: str
    pairs: bool
    variables: list[str]
    comments: Listing
    first: Mapping[str, Any]
    again: Mapping[str, Any]
    form: str
    frame: str
    inert: str = ""
    link: str = ""
    me: Single | None = None
    files: Listing | None = None
    upload: Single | None = None
    remove: str = ""
    headers: Mapping[str, str] = {}
    hosted: Mapping[str, str] = {}


class Ticket(NamedTuple):
    """An issue: its tracker, the root of the API, and the named parts of its address."""

    tracker: Tracker
    api: str
    parts: Mapping[str, str]

    @property
    def host(self) -> str:
        return urlsplit(self.parts["root"]).hostname or ""


class Login(NamedTuple):
    """A header, and the name of the user where it is known. It is secret, so it has no `repr`."""

    header: Mapping[str, str]
    user: str = ""

    def __repr__(self) -> str:
        return "Login(…)"


@cache
def trackers() -> dict[str, Tracker]:
    """Return the rows of trackers.yaml."""
    rows = yaml.safe_load((Path(__file__).parent / "trackers.yaml").read_text())
    types = {"comments": Listing, "files": Listing, "upload": Single, "me": Single}
    made = {kind: {k: types[k](**v) if k in types else v for k, v in row.items()} for kind, row in rows.items()}
    return {kind: Tracker(kind, **row) for kind, row in made.items()}


def ticket(address: str) -> Ticket:
    """Parse the address of an issue, `KIND+https://…` where its form fits several trackers. Raise UsageError."""
    kind, plus, rest = address.partition("+")
    known = [trackers()[kind]] if plus and kind in trackers() else [*trackers().values()]
    url = unquote(unquote(rest if len(known) == 1 else address)).partition("#")[0]
    if urlsplit(url).username is not None:
        raise UsageError("the address of the ticket has a password", f"set {VARIABLE}, or write it into ~/.netrc")
    if [char for char in url if not "!" <= char <= "~"] or not url.startswith(("https://", "http://")):
        raise UsageError("the ticket is not an address", FORMS)
    for tracker in known:
        if found := re.fullmatch(rf"{tracker.address}(?:\?.*|/)?", url):
            return Ticket(tracker, _api(tracker, found["root"]), found.groupdict())
    raise UsageError("no known tracker has tickets at such an address", FORMS)


def _api(tracker: Tracker, root: str) -> str:
    for pattern, template in tracker.hosted.items():
        if found := re.fullmatch(pattern, root):
            return found.expand(template)
    return tracker.api.format(root=root)


def login(to: Ticket, environ: Mapping[str, str] = os.environ) -> Login:
    """Return the credentials for a ticket: of the environment, else of the netrc file. Raise UsageError."""
    tracker = to.tracker
    secret = next(filter(None, map(environ.get, (VARIABLE, *tracker.variables))), "").strip()
    if not secret:
        user, password = _netrc(to.host, environ)
        secret = f"{user}:{password}" if tracker.pairs else password
    if not secret.strip(":"):
        names = " or ".join((VARIABLE, *tracker.variables))
        pair = ", as USER:PASSWORD or a token" if tracker.pairs else ""
        raise UsageError(f"no credentials for {to.host}", f"set {names}{pair}, or write them into ~/.netrc")
    if [char for char in secret if not " " <= char <= "~"]:
        raise UsageError(f"the credentials for {to.host} have characters that no header can have", "check them")
    if tracker.pairs and ":" in secret:
        return Login({"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()}, secret.partition(":")[0])
    name, _, value = tracker.token.format(token=secret).partition(": ")
    return Login({name: value})


def _netrc(host: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return login and password of a host. Raise UsageError for a file that cannot be read."""
    path = Path(environ.get("NETRC") or Path(environ.get("HOME", "/"), ".netrc"))
    if not path.is_file():
        return "", ""
    try:
        user, _, password = netrc.netrc(str(path)).authenticators(host) or ("", "", "")
    except (OSError, netrc.NetrcParseError) as error:
        line = f":{error.lineno}" if isinstance(error, netrc.NetrcParseError) else ""
        raise UsageError(f"{path}{line} cannot be read", f"correct it, or set {VARIABLE}") from None
    return user or "", password or ""
