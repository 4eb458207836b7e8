"""Where ranks stand: their stacks, the lines of code in which they waited, and who had left.

[rank0]: RuntimeError: … Timed out waiting 9000ms for send operation to complete      in loss.backward(), on node-a
[rank3]: RuntimeError: … Timed out waiting 9000ms for recv operation to complete      in loss.backward(), on node-b
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs.views import (
    PROOF,
    Scene,
    View,
    at_odds,
    minority,
)
from postmortem.diagnose.wording import capital, listed, ranks_text
from postmortem.model import Event

WORK = (  # what a stack with a frame of such a file is at
    ("torch/utils/data/", "stuck loading data"),
    ("torch/distributed/checkpoint/", "saving or loading a checkpoint"),
    ("torch/serialization.py", "saving or loading a checkpoint"),
    ("safetensors/", "saving or loading a checkpoint"),
)
SAFE = (
    "backward",
    "barrier",
)  # whose tensors have one size on all ranks: DDP compares its parameters, a barrier sends none
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
Place = tuple[str, str]  # collective and line of code


def stacks(scene: Scene) -> Claim | None:
    """Stack dumps of living ranks: identical ones are one group; the odd one is the suspect, above all
    if it is in no collective."""
    stacked = {r: v.stack for r, v in scene.views.items() if v.stack is not None}
    outside = [r for r, e in stacked.items() if not e.fields.get("collective")]
    if len(stacked) < 2 or len(outside) == len(stacked):
        return None
    if outside:
        return _elsewhere(scene, stacked, outside)
    groups: dict[Place, list[int]] = defaultdict(list)
    for r, e in stacked.items():
        groups[(str(e.fields["collective"]), _code(e))].append(r)
    if len(groups) < 2:
        return None
    odd, majority = minority(groups)
    proof = [stacked[r] for r in sorted(stacked, key=lambda r: r not in odd)]
    return scene.make("ranks-in-different-collectives", odd, proof, at_odds(odd, majority, _told(groups)))


def _waits(view: View) -> bool:
    """Whether a rank says that it waited, or was seen in a collective."""
    if view.complaint is not None or view.lost is not None:
        return True
    return view.silent and view.stack is not None and bool(view.stack.fields.get("collective"))


def _elsewhere(scene: Scene, stacked: dict[int, Event], outside: list[int]) -> Claim | None:
    """Ranks that stood in no collective while the others waited in one."""
    places = [f"rank {r} was {_doing(stacked[r])}" for r in outside[:4]]
    children = [e for e in scene.case.of_kind("stack") if e.fields.get("child") and scene.case.rank_of(e) in outside]
    proof = [*(stacked[r] for r in outside), *children]
    because = f"{', '.join(places)} while the others waited in a collective"
    return scene.make("rank-never-arrived", outside, proof, because)


def _doing(e: Event) -> str:
    """`stuck loading data (train.py:39)`, `in upload (train.py:23)`, `in select, called at train.py:46`."""
    found = e.fields.get("frames")
    frames = found if isinstance(found, tuple) else ()
    if e.fields.get("state") == "T":
        return "stopped by a signal"
    work = next((words for part, words in WORK for file, _, _ in frames if part in file), "")
    if work:
        return f"{work} ({_code(e)})"
    if not frames:
        return f"at {_code(e)}"
    file, line, function = frames[0]
    own = f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}" == _code(e)
    return f"in {function} ({_code(e)})" if own else f"in {function}, called at {_code(e)}"


def _code(e: Event) -> str:
    return str(e.fields.get("code") or "?")


def _told(groups: dict[Place, list[int]]) -> str:
    ordered = sorted(groups.items(), key=lambda item: (item[0], item[1]))
    return "; ".join(f"{ranks_text(ranks)} waited in {where} ({code})" for (where, code), ranks in ordered)


def left(scene: Scene) -> Claim | None:
    """A rank that ended its work, or left with exit code 0, while others still wait for it."""
    waiting = [r for r, v in scene.views.items() if v.complaint or v.lost]
    gone = [r for r in scene.quiet if scene.views[r].left] or _unlisted(scene)
    if not waiting or not gone or len(gone) >= len(scene.views):
        return None
    if len(gone) > len(waiting) and len(gone) + len(waiting) == len(scene.views):
        return _alone(scene, waiting, gone)
    proof = [*_goodbyes(scene, gone), *(scene.views[r].proof for r in waiting)]
    because = f"{ranks_text(gone)} had finished while {ranks_text(waiting)} still waited in a collective"
    return scene.make("rank-left-early", gone, proof, because)


def _goodbyes(scene: Scene, gone: Sequence[int]) -> list[Event | None]:
    return [view.finished or view.last for r in gone if (view := scene.views.get(r)) is not None]


def _alone(scene: Scene, waiting: Sequence[int], gone: Sequence[int]) -> Claim | None:
    """Most had finished, and a few still came to a collective: theirs is one too many."""
    proof = [*(scene.views[r].proof for r in waiting), *_goodbyes(scene, gone)]
    because = f"{ranks_text(waiting)} entered a collective after {ranks_text(gone)} had finished"
    return scene.make("ranks-in-different-collectives", waiting, proof, because)


def _unlisted(scene: Scene) -> list[int]:
    """Ranks of one host that spoke, and that torchrun does not list among those that failed or that it
    stopped: they had left with exit code 0."""
    case = scene.case
    hosts = {case.registry.host_of.get(r) for r in scene.views} - {None}
    unlisted = sorted({*scene.views, *range(case.registry.world or 0)} - set(case.ends))
    if len(case.ends) < 2 or len(hosts) > 1 or len(unlisted) >= len(case.ends):
        return []
    spoke = [view for r in unlisted if (view := scene.views.get(r)) is not None and view.lines]
    silent = all(view.silent for view in spoke) and (bool(spoke) or len(unlisted) == 1)
    return unlisted if silent else []


def code(scene: Scene) -> Claim | None:
    """The lines of the user's code in which the ranks waited. One rank elsewhere is the odd one."""
    placed = {r: p for r in scene.shouting if (p := scene.views[r].place) is not None}
    if len(set(placed.values())) < 2 or any(scene.views[r].lines for r in scene.quiet):
        return None
    if any(collective == "init" for collective, _ in placed.values()):
        return (
            None  # some are past it and some are not: then the group itself is at odds, about its size or its members
        )
    outside = [r for r, (collective, _) in placed.items() if collective == "none"]
    if outside and len(outside) < len(placed):
        return _outside(scene, placed, outside)
    return _at_two_places(scene, placed)


def _at_two_places(scene: Scene, placed: dict[int, Place]) -> Claim | None:
    groups: dict[Place, list[int]] = defaultdict(list)
    for r, place in placed.items():
        groups[place].append(r)
    odd, majority = minority(groups)
    past = [r for r, (operation, _) in placed.items() if operation not in POINT_TO_POINT]
    if 2 * len(past) < len(placed):
        odd, majority = (
            past or odd,
            bool(past) or majority,
        )  # the others still send to it or wait for what it sends
    elif len(groups) > 3 and not majority:
        return None
    proof = [scene.views[r].proof for r in sorted(placed, key=lambda r: r not in odd)]
    return scene.make("ranks-in-different-collectives", odd, proof, at_odds(odd, majority, _told(groups)))


def _outside(scene: Scene, placed: dict[int, Place], outside: list[int]) -> Claim | None:
    verb = "was" if len(outside) == 1 else "were"
    because = f"{ranks_text(outside)} {verb} at {placed[outside[0]][1]} while the others waited in a collective"
    proof = [*(scene.views[r].stack for r in outside), *(v.complaint for v in scene.views.values())]
    return scene.make("rank-never-arrived", outside, proof, because)


# ── nobody is missing: every rank timed out at the same place ───────────────────────────────────────────


def all_receive(scene: Scene) -> Claim | None:
    """Point to point: where every rank of the job waits in recv, nobody is left who could send."""
    if _collective(scene) != "recv":
        return None
    because = f"{capital(_all(scene))} waited in recv ({_codes(scene.views.values())}), and none sent"
    return scene.make("ranks-all-receive", [], _standing(scene), because)


def cut_off(scene: Scene) -> Claim | None:
    """Between hosts: all had come, none was late and none left, so what they sent did not arrive."""
    hosts = {scene.case.registry.host_of.get(r) for r in scene.views}
    steps = {v.step for v in scene.views.values() if v.step is not None}
    if len(hosts) < 2 or None in hosts or len(steps) > 1 or _collective(scene) not in SAFE:
        return None
    named = listed(sorted(map(str, hosts))) if len(hosts) < 4 else f"{len(hosts)} hosts"
    where = f"{_waited(scene)} in {_collective(scene)} ({_codes(scene.views.values())})"
    because = f"No data passed between {named}: {_all(scene)} {where}"
    made = scene.make("hosts-cut-off", [], _standing(scene), because)
    return made and replace(made, strength="silent")


def stuck_alike(scene: Scene) -> Claim | None:
    """On one host, or where the hosts are not known: all came, all wait in the same call, and it does
    not end."""
    collective = _collective(scene)
    if collective is None:
        return None
    where = f"{_waited(scene)} in {collective} ({_codes(scene.views.values())})"
    because = f"{_all(scene)} {where}: none was missing or late, and none had exited"
    return scene.make("all-ranks-stuck", [], _standing(scene), capital(because))


def _collective(scene: Scene) -> str | None:
    """The one collective in which all ranks of the job timed out, or stood when somebody saw that none got on;
    if there is one."""
    if len(scene.views) < 2 or not scene.complete:
        return None
    places = {_waits_in(scene, v) for v in scene.views.values()}
    lost = any(v.lost for v in scene.views.values())
    return places.pop() if len(places) == 1 and not lost else None


def _waits_in(scene: Scene, view: View) -> str | None:
    if view.place is None or (view.complaint is None and not (scene.stands_still and view.stack)):
        return None
    return view.place[0] if view.place[0] != "none" else None


def _waited(scene: Scene) -> str:
    return "timed out" if scene.waiting else "waited"


def _standing(scene: Scene) -> list[Event | None]:
    """Of each rank what shows that it waits."""
    return [v.complaint or v.stack for v in scene.views.values()]


def _all(scene: Scene) -> str:
    """`both ranks`, `all 4 ranks`"""
    n = len(scene.views)
    return "both ranks" if n == 2 else f"all {n} ranks"


def _codes(views: Iterable[View]) -> str:
    return ", ".join(sorted({v.place[1] for v in views if v.place is not None})[:4])


def witnessed(scene: Scene) -> Claim | None:
    """Who was seen elsewhere in the moment in which those that waited gave up. Where all others waited,
    nothing is left to deduce."""
    views = scene.views.values()
    outside = {v.rank: v.stack for v in views if v.stack and _was_seen(v, v.stack)}
    others = [v for v in views if v.rank not in outside]
    if not (outside and scene.waiting and scene.complete and all(map(_waits, others))):
        return None
    claim = _elsewhere(scene, outside, list(outside))
    proof = [*(claim.events if claim else ()), *filter(None, (v.proof for v in others))]
    return claim and replace(claim, witnessed=True, events=tuple(proof[:PROOF]))


def _was_seen(view: View, stack: Event) -> bool:
    """Whether a rank was asked when another had ended, and stood in no collective."""
    asked = "after" in stack.fields or stack.fields.get("state") == "T"
    return view.silent and asked and not _waits(view)
