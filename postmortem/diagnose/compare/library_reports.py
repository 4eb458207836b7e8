"""Comparisons that the library itself made: fingerprints of collectives, flight recorders, the desync report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim
from postmortem.diagnose.claims.observed import numbers
from postmortem.diagnose.compare import recorder
from postmortem.diagnose.compare.rank_rows import Table, at_odds, odd_one_out
from postmortem.diagnose.wording import ranks_text
from postmortem.formats.lineform import gist
from postmortem.model import Event
from postmortem.model.digits import whole
from postmortem.model.grouped import grouped
from postmortem.privacy import cut
from postmortem.system import forms

_REGEXES = forms.regexes("diagnose/lines")


def fingerprints(table: Table) -> Claim | None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: each rank prints its own fingerprint and the first peer's that differs. With
    tensors of different dimensions the peer's half is garbage (torch ProcessGroupWrapper.cpp)."""
    own: dict[int, Event] = {}
    prints: dict[int, str] = {}
    peers = Counter[int]()
    for e in table.case.telling("announces"):
        if m := _REGEXES["fingerprint"].search(e.text):
            peers.update([whole(m["peer"])] if m["peer"] else [])
            own.setdefault(whole(m["rank"]), e)
            prints.setdefault(whole(m["rank"]), cut(m["print"], 300).split(", TensorDeviceTypes")[0])
    groups = grouped((text, r) for r, text in prints.items())
    if not own or (len(own) == 1 and len(peers) != 1):
        return None
    odd = _odd(table, groups, peers, sorted(own))
    if len(own) == 1 and not odd:
        return None
    proof = [own[r] for r in sorted(own, key=lambda r: r not in odd)]
    because = at_odds(odd, set(odd) != set(own), _differences(groups))
    return table.case.claim("ranks-in-different-collectives", odd, proof, because)


def _odd(table: Table, groups: Mapping[str, list[int]], peers: Counter[int], own: Sequence[int]) -> list[int]:
    """The ranks that differ: the minority, or the one that all others name."""
    odd, majority = odd_one_out(groups)
    if odd and (majority or len(own) >= len(table.rows)):
        return odd
    by_all = [r for r, n in peers.items() if n == len(own) and r not in own]
    return by_all or odd if len(own) >= 2 else []  # of two that differ neither is known to be right


def _differences(groups: Mapping[str, list[int]]) -> str:
    """`rank 1 had OpType=BROADCAST, TensorShape=[16], ranks 0 and 2 …`: the parts in which fingerprints differ, or all."""
    split = {text: _REGEXES["fingerprint-field"].split(text) for text in groups}
    common = set.intersection(*map(set, split.values())) if split else set()
    shown = [(sorted(r), ", ".join(p for p in split[text] if p not in common) or text) for text, r in groups.items()]
    return "; ".join(f"{ranks_text(ranks)} had {parts}" for ranks, parts in sorted(shown)[:3])


def dumps_of(case: Case) -> dict[int, Event]:
    """The latest flight-recorder dump of each rank."""
    dated = sorted(case.of_kind("recorder"), key=lambda e: (e.time or 0.0, bool(e.fields.get("code"))))
    return {rank: e for e in dated if (rank := case.rank_of(e)) is not None}


def recorded(table: Table) -> Claim | None:
    """Flight-recorder dumps of several ranks."""
    dumps = dumps_of(table.case)
    reading = recorder.read(dumps) if len(dumps) >= 2 else None
    if reading is None:
        return None
    proof = [dumps[r] for r in dict.fromkeys([*reading.odd, *reading.group]) if r in dumps]
    made = table.case.claim(reading.pattern, reading.odd, proof, reading.because)
    return made if reading.sure or made is None else replace(made, strength="silent")


def desync_report(table: Table) -> Claim | None:
    """TORCH_NCCL_DESYNC_DEBUG: torch compared the records of all ranks and names those that did not join."""
    for e in [] if table.case.all_finished else table.case.telling("laggards"):
        named = numbers(e.fields.get("ranks", ""))
        if named and table.case.rank_of(e) not in named:
            because = f"torch's desync report states `{cut(gist(e.text), 110)}`"
            if e.source_kind == "ras":
                op, last, of = (e.fields.get(name) for name in ("op", "enqueued", "seq"))
                because = f"NCCL's RAS report has {ranks_text(named)} at {op} {last} of {of}"
            return table.case.claim("rank-never-arrived", named, [e], because)
    return None
