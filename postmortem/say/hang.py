"""Where each rank was in each process group: the matrix of a hang, the odd ranks first and equal rows as one.

               default group         mesh_tp
    rank 2     #8119 ALLREDUCE  ○    #41 done       train.py:88
    0–1, 3     #8120 ALLREDUCE  ●    #41 done       train.py:92

Numbers of one kind of group (all tensor-parallel groups) are in one column: a rank is in one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from postmortem.diagnose.case import Case
from postmortem.diagnose.compare import library_reports, watchdogs
from postmortem.diagnose.compare.watchdogs import DEFAULT
from postmortem.diagnose.verdict.solution import Solution
from postmortem.diagnose.wording import capital, ranks_text
from postmortem.model.contract import quantities as contract
from postmortem.model.contract import verdict
from postmortem.model.grouped import grouped
from postmortem.say import collective
from postmortem.system import forms

MOST_GROUPS, MOST_ROWS, PARTS = 6, 64, 3
_REGEXES = forms.regexes("say/lines")
Cells = dict[str, contract.Cell]  # by the kind of group
PLACES = {"missing": "did not enter it", "done": "completed it"}


def hang(solution: Solution, stuck: verdict.Collective | None) -> contract.Hang | None:
    """The matrix; None where there is no wait, or nothing is known of two ranks."""
    if stuck is None:
        return None
    by_rank = _recorded(solution.case) or _counted(solution.case)
    own = _kind(stuck["group"])
    places = _places(stuck)
    for rank, place in places.items():
        cell = by_rank.setdefault(rank, {}).setdefault(own, _cell(None, None, None))
        cell["place"] = place
        if place == "elsewhere":
            cell["op"] = stuck["elsewhere"][str(rank)]
        elif place == "entered":
            cell |= {"seq": stuck["seq"], "op": stuck["op"]}
    called = collective.calls(solution.case)
    kinds = _kinds(by_rank, own)
    rows = _rows(by_rank, called, kinds, solution.ranks)
    if len(by_rank) < 2:
        return None
    return {"text": _sentence(stuck, places), "groups": kinds, "rows": rows[:MOST_ROWS]}


def _cell(seq: int | None, completed: int | None, op: str | None) -> contract.Cell:
    return {"seq": seq, "completed": completed, "op": op, "place": ""}


def _kind(group: str | None) -> str:
    """`41 TENSOR_MODEL_PARALLEL_GROUP [12, 13]` -> `TENSOR_MODEL_PARALLEL_GROUP`; `3(mesh_tp)` -> `mesh_tp`."""
    if group is None or group in DEFAULT:
        return "default group"
    m = _REGEXES["group"].fullmatch(group)
    return (m["desc"] or m["name"]) if m else group


# ── sources ─────────────────────────────────────────────────────────────────────────────────────────────────


def _recorded(case: Case) -> dict[int, Cells]:
    """By flight-recorder dumps: of each group the first collective that did not complete, else the last."""
    found: dict[int, Cells] = {}
    for rank, e in library_reports.dumps_of(case).items():
        row = found.setdefault(rank, {})
        pending: dict[str, tuple[int, str]] = {}
        for key, seq, name, _ in e.fields.get("pending", ()):
            pending.setdefault(key, (seq, name))
        last = {key: (seq, name) for key, seq, name, _ in e.fields.get("entries", ())}
        for key, counts in e.fields.get("status", {}).items():
            shown = pending.get(key) or last.get(key)
            if key in pending or _kind(key) not in row:
                op = _REGEXES["backend"].sub("", shown[1]) if shown else None
                row[_kind(key)] = _cell(shown[0] if shown else counts["enqueued"], counts["completed"], op or None)
    return found


def _counted(case: Case) -> dict[int, Cells]:
    """By watchdogs."""
    found: dict[int, Cells] = {}
    for group in watchdogs.groups(case):
        for rank, w in group.waits.items():
            seq = w.enqueued if w.seq is None else w.seq
            found.setdefault(rank, {}).setdefault(_kind(group.key), _cell(seq, w.completed, w.op or None))
    return found


def _places(stuck: verdict.Collective) -> dict[int, str]:
    """The place of each rank in the collective of the verdict."""
    seq, completed = stuck["seq"], stuck["completed"]
    places = dict.fromkeys(stuck["entered"], "entered") | dict.fromkeys(stuck["missing"], "missing")
    places |= dict.fromkeys(map(int, stuck["elsewhere"]), "elsewhere")
    done = {int(rank) for rank, n in completed.items() if seq is not None and n >= seq}
    return {rank: "done" if rank in done and place == "entered" else place for rank, place in places.items()}


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────


def _kinds(by_rank: Mapping[int, Cells], own: str) -> list[str]:
    """The group of the verdict, then those in which most ranks wait, then those in which the ranks differ."""
    members = grouped((kind, cell) for cells in by_rank.values() for kind, cell in cells.items())

    def order(kind: str) -> tuple[Any, ...]:
        cells = members[kind]
        waits = sum(c["seq"] is not None and c["seq"] != c["completed"] for c in cells)
        return kind != own, -waits, -len({c["seq"] for c in cells}), kind

    return sorted(members, key=order)[:MOST_GROUPS]


def _rows(
    by_rank: Mapping[int, Cells], called: Mapping[int, tuple[str, str]], kinds: list[str], culprits: tuple[int, ...]
) -> list[contract.RankCells]:
    """Equal rows as one: those of the culprits first, then by the place in the collective, the fewest ranks first."""
    alike: dict[str, contract.RankCells] = {}
    for rank, cells in sorted(by_rank.items()):
        call, code = called.get(rank, ("", ""))
        row: contract.RankCells = {
            "ranks": [],
            "cells": [cells.get(kind) for kind in kinds],
            "code": code or None,
            "call": call or None,
        }
        alike.setdefault(f"{rank in culprits} {row}", row)["ranks"].append(rank)
    order = ("missing", "elsewhere", "entered", "done", "")

    def oddness(row: contract.RankCells) -> tuple[Any, ...]:
        own = row["cells"][0]
        return (
            row["ranks"][0] not in culprits,
            order.index(own["place"] if own else ""),
            len(row["ranks"]),
            row["ranks"][0],
        )

    return sorted(alike.values(), key=oddness)


def _sentence(stuck: verdict.Collective, places: Mapping[int, str]) -> str:
    """`Ranks 0, 1 and 3 wait in ALLREDUCE #8120 of the default group; rank 2 did not enter it.`"""
    by_place = grouped((place, rank) for rank, place in places.items())
    op = f"{stuck['op'] or 'a collective'}{f' #{seq}' if (seq := stuck['seq']) is not None else ''}"
    kind = _kind(stuck["group"])
    name = (stuck["group"] or "").partition(" [")[0]
    group = f" of the {kind}" if name in DEFAULT else f" of group {name}" if name else ""
    waiting = by_place.get("entered", [])
    verb = "waits" if len(waiting) == 1 else "wait"
    parts = [f"{ranks_text(waiting)} {verb} in {op}{group}"] if waiting else []
    parts += [f"{ranks_text(ranks)} {PLACES[p]}" for p in ("missing", "done") if (ranks := by_place.get(p))]
    calls = Counter(stuck["elsewhere"].values())
    for call, _ in calls.most_common(PARTS):
        ranks = sorted(int(r) for r, own in stuck["elsewhere"].items() if own == call)
        parts.append(f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} in {call}")
    if limit := stuck["timeout_s"]:
        parts.append(f"the wait timed out after {limit:g} s")
    return capital("; ".join(parts)) + "." if parts else f"Ranks wait in {op}{group}."
