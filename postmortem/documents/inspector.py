"""NCCL Inspector's records, one JSON object for each collective that a rank completed.

{"header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
 "metadata": {"dump_timestamp_us": 1748030377748202, "hostname": "gn1", "pid": 1639453},
 "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": 61974}}

The last number of each rank is compared with those of the other ranks' files, as the counters of a recorder are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postmortem.formats.excerpt import source_event, timed
from postmortem.model import Event, Source, Stamp
from postmortem.model.details import Counts, Details, Group
from postmortem.model.digits import whole

_RECORD = re.compile(
    rb'"header"\s*:\s*\{\s*"id"\s*:\s*"(?P<id>[^"]{1,40})"\s*,\s*"rank"\s*:\s*(?P<rank>\d{1,7})\s*,\s*"n_ranks"\s*:\s*'
    rb'(?P<size>\d{1,7})[^{}]*\}.{0,400}?"dump_timestamp_us"\s*:\s*(?P<us>\d{1,17})\s*,\s*"hostname"\s*:\s*'
    rb'"(?P<host>[^"]{1,253})"\s*,\s*"pid"\s*:\s*(?P<pid>\d{1,10}).{0,200}?"coll"\s*:\s*"(?P<op>\w{1,40})"\s*,\s*'
    rb'"coll_sn"\s*:\s*(?P<sn>\d{1,15})',
    re.DOTALL,
)


def parse(source: Source, content: bytes) -> Iterator[Event]:
    """One `recorder` with the last collective of each communicator; the rank is that in the largest."""
    last: dict[bytes, re.Match[bytes]] = {}
    for m in _RECORD.finditer(content):
        kept = last.get(m["id"])
        if kept is None or whole(m["sn"].decode()) >= whole(kept["sn"].decode()):
            last[m["id"]] = m
    if not last:
        return
    world = max(last.values(), key=lambda m: whole(m["size"].decode()))
    status: dict[str, Counts] = {}
    groups: dict[str, Group] = {}
    for comm, m in last.items():
        done, key = whole(m["sn"].decode()), comm.decode("latin-1")
        status[key] = {"enqueued": done, "started": done, "completed": done}
        groups[key] = {"desc": "NCCL communicator", "ranks": tuple(range(min(whole(m["size"].decode()), 4096)))}
    fields: Details = {"entries": (), "pending": (), "status": status, "groups": groups, "whole": False}
    rank, host, pid = whole(world["rank"].decode()), world["host"].decode("latin-1"), whole(world["pid"].decode())
    op, number, name = (world[key].decode("latin-1") for key in ("op", "sn", "id"))
    text = f"rank {rank}: last completed {op} {number} of communicator {name}"
    event = source_event(source, "recorder", text, rank=rank, host=host, pid=pid, fields=fields)
    us = world["us"].decode()
    yield timed(event, Stamp(whole(us) / 1e6, "absolute", us, 0.001))
