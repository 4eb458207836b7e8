"""The host of a log by the lines that state one: they are right where the name of its file or folder is not.

    node0.log         host      : proj186     a log of proj186; `node0` is a number that a script gave
    cu-12/dmesg.txt   host      : cu-12       in another log: this folder is named after a host

An agent of torchrun states its own host's name (torch/distributed/elastic/multiprocessing/errors, socket.gethostname).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from postmortem.model import Event, Source

LOCAL = ("localhost", "localhost.localdomain")
Stated = Mapping[str, str]  # path of a source -> its host


def stated(events: Sequence[Event], sources: Sequence[Source]) -> tuple[list[Event], list[Source]]:
    """Events and sources with the hosts that failure reports state."""
    own = {s.path: s.host for s in sources}
    reports = {
        (e.where.source, e.host)
        for e in events
        if e.kind == "exit" and e.host and e.host not in LOCAL and own.get(e.where.source) != e.host
    }
    hosts = _renamed(reports, own) | _folders(reports, own) if reports else {}
    if not hosts:
        return [*events], [*sources]
    return [_of(e, hosts, own) for e in events], [replace(s, host=hosts.get(s.path, s.host)) for s in sources]


def _of(e: Event, hosts: Stated, own: Mapping[str, str | None]) -> Event:
    """The event on its log's host, where it has no host but that of the log's name."""
    host = hosts.get(e.where.source)
    return e._replace(host=host) if host and e.host in (None, own[e.where.source]) else e


def _renamed(reports: set[tuple[str, str]], own: Mapping[str, str | None]) -> dict[str, str]:
    """The logs of a name that is no host's: all reports in them state one other host, and no other name has it."""
    found: dict[str, set[str]] = defaultdict(set)
    for source, host in reports:
        if (name := own.get(source)) is not None:
            found[name].add(host)
    names = [host for hosts in found.values() for host in hosts]
    new = {name: min(hosts) for name, hosts in found.items() if len(hosts) == 1 and names.count(min(hosts)) == 1}
    taken = {host for host in own.values() if host}
    return {path: new[name] for path, name in own.items() if name in new and new[name] not in taken}


def _folders(reports: set[tuple[str, str]], own: Mapping[str, str | None]) -> dict[str, str]:
    """The logs without a host in a folder that is named like a host that a report states."""
    hosts = {host for _, host in reports}
    parts = {path: hosts.intersection(path.split("/")[:-1]) for path, name in own.items() if name is None}
    return {path: min(found) for path, found in parts.items() if len(found) == 1}
