"""What the library itself compared: fingerprints of collectives, torch's desync report, a flight
recorder's dumps."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claims import Claim
from postmortem.diagnose.derive.hangs import recorder
from postmortem.diagnose.derive.hangs.views import Scene, at_odds, minority
from postmortem.diagnose.observe import numbers
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.lineform import gist
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.privacy import cut

_SELF = re.compile(
    r"Rank (?P<rank>\d{1,7}) is running collective: CollectiveFingerPrint\((?P<print>.*?)(?:\), but Rank (?P<peer>\d{1,7})|$)"
)
_FIELD = re.compile(r", (?=[A-Z]\w*=)")


@dataclass
class _Fingerprints:
    """What each rank says of itself, and how often each peer is named as differing."""

    own: dict[int, tuple[str, Event]]
    named: Counter[int]


def fingerprints(scene: Scene) -> Claim | None:
    """ProcessGroupWrapper: each rank prints its own fingerprint and the first peer's that differs. Only
    the own half is trustworthy: with tensors of different dimensions the peer's half is garbage (torch
    ProcessGroupWrapper.cpp)."""
    said = _said(scene)
    if not said.own or (len(said.own) == 1 and len(said.named) != 1):
        return None
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, (text, _event) in said.own.items():
        groups[text.split(", TensorDeviceTypes")[0]].append(rank)
    odd = _odd(scene, said, groups)
    if not odd and len(said.own) == 1:
        return None  # what one rank states is all that is known
    proof = [said.own[r][1] for r in sorted(said.own, key=lambda r: r not in odd)]
    because = at_odds(odd, set(odd) != set(said.own), _announced(groups))
    return scene.make("ranks-in-different-collectives", odd, proof, because)


def _said(scene: Scene) -> _Fingerprints:
    said = _Fingerprints({}, Counter())
    for e in scene.case.telling("announces"):
        if m := _SELF.search(e.text):
            said.own.setdefault(whole(m["rank"]), (cut(m["print"], 300), e))
            if m["peer"]:
                said.named[whole(m["peer"])] += 1
    return said


def _odd(scene: Scene, said: _Fingerprints, groups: dict[str, list[int]]) -> list[int]:
    """Who differs: the minority, or the one whom all others name."""
    odd, majority = minority(groups)
    if len(groups) == 1 and len(said.own) >= 2 and said.named:
        odd = [said.named.most_common(1)[0][0]]
    if odd and (majority or len(said.own) >= len(scene.views)):
        return odd
    everybodys = [r for r, n in said.named.items() if n == len(said.own) and r not in said.own]
    return everybodys or odd if len(said.own) >= 2 else []  # of two who differ neither is known to be right


def _announced(groups: dict[str, list[int]]) -> str:
    """`rank 1 had OpType=BROADCAST, TensorShape=[16], ranks 0 and 2 …`: of the fingerprints only what differs, or all."""
    split = {text: _FIELD.split(text) for text in groups}
    common = set.intersection(*map(set, split.values()))
    shown = []
    for text, ranks in groups.items():
        shown.append((sorted(ranks), ", ".join(p for p in split[text] if p not in common) or text))
    return "; ".join(f"{ranks_text(ranks)} had {told}" for ranks, told in sorted(shown)[:3])


def laggards(scene: Scene) -> Claim | None:
    """TORCH_NCCL_DESYNC_DEBUG: torch itself compared what the ranks had recorded and names those that
    did not come."""
    for e in scene.case.telling("laggards"):
        named = numbers(e.fields.get("ranks"))
        if named and scene.case.rank_of(e) not in named:
            because = f"torch's desync report says `{cut(gist(e.text), 110)}`"
            return scene.make("rank-never-arrived", named, [e], because)
    return None


def dumps_of(case: Case) -> dict[int, Event]:
    """Each rank's flight-recorder dump; of several the latest."""
    dated = sorted(case.of_kind("recorder"), key=lambda e: (e.time or 0.0, bool(e.fields.get("code"))))
    return {rank: e for e in dated if (rank := case.rank_of(e)) is not None}


def recorded(scene: Scene) -> Claim | None:
    """Flight recorder: compare, for each process group, the last enqueued collective and the entry with
    the same number."""
    dumps = dumps_of(scene.case)
    reading = recorder.read(dumps) if len(dumps) >= 2 else None
    if reading is None:
        return None
    proof = [dumps[r] for r in dict.fromkeys([*reading.odd, *reading.group]) if r in dumps]
    made = scene.make(reading.pattern, reading.odd, proof, reading.because)
    return made if reading.sure or made is None else replace(made, strength="silent")
