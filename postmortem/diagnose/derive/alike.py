"""Hangs in which nobody is missing: every rank of the job timed out, and all at the same place.

[rank0]: RuntimeError: … Timed out waiting 9000ms for send operation to complete      in loss.backward(), on node-a
[rank3]: RuntimeError: … Timed out waiting 9000ms for recv operation to complete      in loss.backward(), on node-b
"""

from __future__ import annotations

from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.views import View, make

SAFE = (
    "backward",
    "barrier",
)  # whose tensors have one size on all ranks: DDP compares its parameters, a barrier sends none


def _collective(case: Case, seen: dict[int, View]) -> str | None:
    """The one collective in which all ranks of the job timed out, if there is one."""
    world = (
        case.registry.world if case.registry.world is not None else len(case.ends)
    )  # the launchers list every rank that failed
    places = {v.place[0] if v.place is not None and v.complaint is not None else None for v in seen.values()}
    return places.pop() if len(places) == 1 and len(seen) >= 2 and set(seen) == set(range(world)) else None


def _code(seen: dict[int, View]) -> str:
    return ", ".join(sorted({v.place[1] for v in seen.values() if v.place is not None})[:4])


def all_receive(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """Point to point: where every rank of the job waits in recv, nobody is left who could send."""
    if _collective(case, seen) != "recv":
        return None
    text = f"all {len(seen)} ranks stood in recv ({_code(seen)})"
    return make(case, "ranks-all-receive", [], [v.complaint for v in seen.values()], text)


def cut_off(case: Case, seen: dict[int, View], _: list[Claim]) -> Claim | None:
    """Between hosts: all had come, none was late and none left, so what they sent did not arrive."""
    hosts = {case.registry.host_of.get(r) for r in seen}
    steps = {v.step for v in seen.values() if v.step is not None}
    if (
        len(hosts) < 2
        or None in hosts
        or len(steps) > 1
        or any(v.lost for v in seen.values())
        or _collective(case, seen) not in SAFE
    ):
        return None
    named = " and ".join(sorted(str(h) for h in hosts)) if len(hosts) < 4 else f"{len(hosts)} hosts"
    text = f"all {len(seen)} ranks on {named} timed out at the same place ({_code(seen)}), and none was missing, late or gone"
    made = make(case, "hosts-cut-off", [], [v.complaint for v in seen.values()], text)
    return made and replace(made, strength="silent")
