"""The place and the time of a failure for a command on that host: `around 13:18 UTC`, the options of journalctl."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from postmortem.align.place import moment
from postmortem.diagnose.case import Case
from postmortem.diagnose.wording import DATED, listed, ranks_text
from postmortem.model import Event

NEAR = 4  # hosts that are named
AROUND_S = 300  # seconds of a log before and after a moment


def zone(case: Case) -> str:
    """` UTC`; empty where no stamp names a zone or was compared with one: then times are as the logs have them."""
    shifted = (e.clock == "naive" and abs((e.at or 0.0) - (e.time or 0.0)) > AROUND_S for e in case.events if e.at)
    return " UTC" if any(e.clock == "absolute" for e in case.events) or any(shifted) else ""


def host_of_the_dead(case: Case, hosts: Sequence[str]) -> str:
    """By name, by the rank that died, or any host of the job if no rank is known to have died."""
    waited = case.ranks_of(case.telling("wait"))  # a watchdog that times out aborts its own process
    died = [r for r in case.ended("kill", "crash") if r not in waited]
    every = sorted(set(case.registry.host_of.values()))
    others = listed(every) if 0 < len(every) <= NEAR else "each host of the job"
    return hosts[0] if hosts else f"the host of {ranks_text(died)}" if died else others


def when(e: Event | None, zone_: str) -> str:
    """` around 13:18`; empty where the time is not known."""
    at = dated(e) if e is not None else None
    return f" around {datetime.fromtimestamp(at, UTC):%H:%M}{zone_}" if at is not None else ""


def dated(e: Event) -> float | None:
    at = moment(e)
    return at if at is not None and at > DATED else None


def window(e: Event | None, zone_: str) -> str:
    """The options of journalctl. It reads a time without a zone as its host's own, like a log with no other."""
    at = dated(e) if e is not None else None
    if at is None:
        return ""
    since, until = (datetime.fromtimestamp(t, UTC) for t in (at - AROUND_S, at + AROUND_S))
    return f" --since '{since:%Y-%m-%d %H:%M:%S}{zone_}' --until '{until:%Y-%m-%d %H:%M:%S}{zone_}'"
