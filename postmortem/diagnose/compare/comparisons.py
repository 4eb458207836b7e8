"""Comparisons of ranks by their stacks, lines of code, ends, silence and steps. Each returns one claim or None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from postmortem.diagnose.case import PROOF
from postmortem.diagnose.claim import Claim, in_time
from postmortem.diagnose.compare.rank_rows import (
    POINT_TO_POINT,
    Place,
    Row,
    Table,
    at_odds,
    last_seen,
    odd_one_out,
    undecided,
)
from postmortem.diagnose.order import WHOLE_S, gap
from postmortem.diagnose.processes import Process
from postmortem.diagnose.wording import capital, listed, ranks_text
from postmortem.formats.lineform import message, shape
from postmortem.model import Event
from postmortem.model.grouped import grouped
from postmortem.system import forms

WORK = (  # (part of a file's path, activity of a stack with such a frame)
    ("torch/utils/data/", "stuck loading data"),
    ("torch/distributed/checkpoint/", "saving or loading a checkpoint"),
    ("torch/serialization.py", "saving or loading a checkpoint"),
    ("safetensors/", "saving or loading a checkpoint"),
)
SAME_SIZE = ("backward", "barrier")  # collectives with tensors of one size on all ranks
SETUP = 8  # collectives: up to this number the job is still being set up
_REGEXES = forms.regexes("diagnose/lines")


# ── stacks and lines of code ────────────────────────────────────────────────────────────────────────────────


def stacks(table: Table) -> Claim | None:
    """Stacks of living ranks: the odd one is the suspect, above all if it is in no collective. Where every other rank
    waited when the stacks were taken, nothing is left to deduce."""
    stacked = {r: row.stack for r, row in table.rows.items() if row.stack is not None}
    outside = [r for r, e in stacked.items() if not e.fields.get("collective")]
    if (claim := _witnessed(table, stacked, outside)) is not None:
        return claim
    if len(stacked) < 2 or len(outside) == len(stacked):
        return None
    if outside:
        return _elsewhere(table, stacked, outside)
    return _different_places(table, {r: (e.fields["collective"] or "", _code(e)) for r, e in stacked.items()}, stacked)


def _witnessed(table: Table, stacked: Mapping[int, Event], outside: Sequence[int]) -> Claim | None:
    """The claim about silent ranks, by stacks taken when another rank had ended, where all others waited."""
    asked = [r for r in outside if table.rows[r].silent and _was_asked(stacked[r])]
    others = [row for r, row in table.rows.items() if r not in asked]
    if not (asked and table.waiting and table.complete and all(row.waits for row in others)):
        return None
    claim = _elsewhere(table, stacked, asked)
    proof = [*(claim.events if claim else ()), *(row.proof for row in others if row.proof)]
    return claim and replace(claim, witnessed=True, events=tuple(proof[:PROOF]))


def _was_asked(stack: Event) -> bool:
    return "after" in stack.fields or stack.fields.get("state") == "T"


def _elsewhere(table: Table, stacked: Mapping[int, Event], outside: Sequence[int]) -> Claim | None:
    """Ranks that were in no collective while the others waited in one."""
    places = [f"rank {r} was {_activity(stacked[r])}" for r in outside[:4]]
    children = [e for e in table.case.of_kind("stack") if e.fields.get("child") and table.case.rank_of(e) in outside]
    proof = [*(stacked[r] for r in outside), *children]
    because = f"{', '.join(places)} while the others waited in a collective"
    return table.case.claim("rank-never-arrived", outside, proof, because)


def _activity(e: Event) -> str:
    """`stuck loading data (train.py:39)`, `in upload (train.py:23)`, `in select, called at train.py:46`."""
    frames = e.fields.get("frames", ())
    if e.fields.get("state") == "T":
        return "stopped by a signal"
    work = next((words for part, words in WORK for file, _, _ in frames if part in file), "")
    if work or not frames or frames[0][2] == "<module>":
        return f"{work} ({_code(e)})" if work else f"at {_code(e)}"
    file, line, function = frames[0]
    own = f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}" == _code(e)
    return f"in {function} ({_code(e)})" if own else f"in {function}, called at {_code(e)}"


def _code(e: Event) -> str:
    return e.fields.get("code") or "?"


def _different_places(table: Table, places: Mapping[int, Place], proof: Mapping[int, Event]) -> Claim | None:
    """Ranks that wait in another call than most."""
    groups = grouped((place, r) for r, place in places.items())
    if len(groups) < 2:
        return None
    odd, majority = _odd(places, groups)
    if odd and all(proof[r].fields.get("subgroup") for r in odd):
        odd = []  # they wait in groups that their calls name: a partner in each went elsewhere
    waited = "; ".join(
        f"{ranks_text(ranks)} waited in {call} ({code})" for (call, code), ranks in sorted(groups.items())
    )
    events = [proof[r] for r in sorted(places, key=lambda r: r not in odd)]
    because = at_odds(odd, majority, waited) if odd else capital(waited)
    alike = all(call in POINT_TO_POINT for call, _ in groups)  # the ends of a pipeline differ: one of them is late
    return table.case.claim("rank-never-arrived" if alike else "ranks-in-different-collectives", odd, events, because)


def _odd(places: Mapping[int, Place], groups: Mapping[Place, list[int]]) -> tuple[list[int], bool]:
    """The ranks outside the usual call, and whether one is usual: a line of code, else an operation in several. Of
    ranks that all send or receive none is: the ends of a pipeline always differ."""
    odd, majority = odd_one_out(groups)
    collective = [r for r, (operation, _) in places.items() if operation not in POINT_TO_POINT]
    if not collective:
        return [], False
    if 2 * len(collective) < len(places):  # the others still send to these, or wait for their data
        return collective, True
    usual, n = Counter(places[r][0] for r in collective).most_common(1)[0]
    if not majority and len(places) < 2 * n < 2 * len(places):
        return [r for r, (operation, _) in places.items() if operation != usual], True
    return odd, majority


def code(table: Table) -> Claim | None:
    """The lines of the user's code in which the ranks waited."""
    placed = {r: p for r in table.complaining if (p := table.rows[r].place) is not None}
    if len(set(placed.values())) < 2 or any(
        table.rows[r].process.lines and not table.rows[r].stopped for r in table.quiet
    ):
        return None
    if undecided(table, {collective for collective, _ in placed.values()}):
        return None
    outside = [r for r, (collective, _) in placed.items() if collective == "none"]
    if not 0 < len(outside) < len(placed):
        return _different_places(table, placed, table.proofs)
    verb = "was" if len(outside) == 1 else "were"
    because = f"{ranks_text(outside)} {verb} at {placed[outside[0]][1]} while the others waited in a collective"
    proof = [*(table.rows[r].stack for r in outside), *(table.rows[r].complaint for r in table.waiting)]
    return table.case.claim("rank-never-arrived", outside, proof, because)


def equal_sizes(table: Table) -> Claim | None:
    """The one rank without a place, where data of another size was received and all others waited at one place in a
    collective with tensors of one size on all ranks: it was in another collective."""
    elsewhere = [r for r, row in table.rows.items() if row.place is None]
    places = {row.place for row in table.rows.values() if row.place is not None}
    sizes = [c.event for c in table.claims if c.accuses and c.pattern.category == "collective-mismatch"]
    others = [row.proof for r, row in table.rows.items() if r not in elsewhere]
    if not sizes or len(elsewhere) != 1 or len(places) != 1 or len(others) < 2 or not all(map(_of_one_size, others)):
        return None
    ((call, at),) = places
    because = f"{ranks_text(elsewhere)} was in a different collective than the others, which waited in {call} ({at})"
    return table.case.claim("ranks-in-different-collectives", elsewhere, [*sizes, *others], because)


def _of_one_size(e: Event | None) -> bool:
    fields = e.fields if e is not None else {}
    sharded = any("torch/distributed/fsdp/" in file for file, _, _ in fields.get("frames", ()))
    return sharded or fields.get("collective") in SAME_SIZE


# ── ranks that left ─────────────────────────────────────────────────────────────────────────────────────────


def left(table: Table) -> Claim | None:
    """Ranks that had finished, or left with exit code 0, while others still waited for them; where most had
    finished, the others entered one collective too many."""
    waiting = [r for r, row in table.rows.items() if row.complaint or row.lost]
    finished = [r for r in table.quiet if table.rows[r].left]
    gone, how = (finished, "had finished") if finished else (_unlisted(table), "had left with exit code 0")
    if not waiting or not gone:
        return None
    ends = [row.process.finished or row.last for r in gone if (row := table.rows.get(r)) is not None]
    complaints = [table.rows[r].proof for r in waiting]
    if len(gone) > len(waiting) and len(gone) + len(waiting) == len(table.rows):
        because = f"{ranks_text(waiting)} entered a collective after {ranks_text(gone)} {how}"
        return table.case.claim("ranks-in-different-collectives", waiting, [*complaints, *ends], because)
    because = f"{ranks_text(gone)} {how} while {ranks_text(waiting)} still waited in a collective"
    return table.case.claim("rank-left-early", gone, [*ends, *complaints], because)


def _unlisted(table: Table) -> list[int]:
    """Ranks that ended with exit code 0, or that torchrun lists neither among those that failed nor among those that it
    stopped."""
    case = table.case
    failed = {r for r, end in case.ends.items() if end.kind != "clean"}
    hosts = {case.registry.host_of.get(r) for r in table.rows} - {None}
    unlisted = sorted({*table.rows, *range(case.registry.world or 0)} - failed)
    known = [row for r in unlisted if (row := table.rows.get(r)) is not None and row.process.lines]
    few = len(unlisted) < len(failed) and (known or len(unlisted) == 1)
    most = len(unlisted) == len(known) > len(failed)
    return unlisted if (few or most) and len(hosts) <= 1 and all(row.silent for row in known) else []


def asked_to_stop(table: Table) -> Claim | None:
    """The only rank that reports that it was asked to stop, where all others lost it: who stops a job asks all."""
    asked = {r: c.event for c in table.claims if c.tells("asked") and (r := table.case.rank_of(c.event)) is not None}
    lost = [r for r, row in table.rows.items() if row.lost is not None]
    stopped = [r for r, row in table.rows.items() if row.stopped and row.silent]
    if len(asked) != 1 or not lost or asked.keys() & stopped or {*asked, *lost, *stopped} != table.rows.keys():
        return None
    because = f"{ranks_text(asked)} reported that it was asked to stop, and {ranks_text(lost)} lost the connection"
    return table.case.claim("rank-was-stopped", asked, [*asked.values(), *(table.rows[r].lost for r in lost)], because)


# ── silence ─────────────────────────────────────────────────────────────────────────────────────────────────


def silence(table: Table) -> Claim | None:
    """The ranks without a complaint, where most complain; they vanished if the others only lost the connection."""
    suspects = _suspects(table)
    if not suspects:
        return None
    others, rows = ranks_text(table.complaining), [table.rows.get(r) or Row(Process("rank", r)) for r in suspects]
    mismatch = any(c.pattern.category == "collective-mismatch" for c in table.claims)
    if not table.waiting and not mismatch:
        return _vanished(table, rows, f"{others} lost the connection")
    proof = [row.stack or row.thread or row.last for row in rows] + [table.rows[r].proof for r in table.complaining]
    because = f"{others} reported an error, {ranks_text(suspects)} did not{last_seen(rows)}"
    if not rows[0].stack and not table.waiting and all(row.aborted for row in rows):
        because = f"{ranks_text(suspects)} aborted on data of another size, and {others} lost the connection"
    return table.case.claim(table.missed, suspects, proof, because)


def _vanished(table: Table, rows: Sequence[Row], effect: str) -> Claim | None:
    """Silent ranks that the others lost, with the last line of a single one. They had ended before the launcher stopped
    the others."""
    rows = [row for row in rows if not row.stopped]
    if not rows:
        return None
    ranks = [row.rank for row in rows]
    proof = [row.last for row in rows] + [table.rows[r].lost for r in table.complaining]
    error = rows[0].last_error if len(rows) == 1 else None
    if error is not None:
        because = f"{ranks_text(ranks)} logged `{message(error.text)}`, and {effect}"
        return table.case.claim("rank-gave-up", ranks, [error, *proof], because)
    after = f" after `{last}`" if len(rows) == 1 and (last := rows[0].last_message) else ""
    ended = f"fell silent{after}" if any(row.process.lines for row in rows) else "vanished without a line"
    return table.case.claim("rank-vanished", ranks, proof, f"{ranks_text(ranks)} {ended}, and {effect}")


def _suspects(table: Table) -> list[int]:
    """The silent ranks, where silence is evidence: their own logs are here, or one rank is absent among all. A rank
    without a line may be the late one as well."""
    gaps = set(range(max(table.rows, default=0))) - set(table.rows)
    quiet = table.quiet or _absent(table)
    logged = [r for r in quiet if r in table.rows and table.rows[r].process.lines]
    if not 0 < len(gaps.union(quiet)) <= len(table.complaining) or (logged and 2 * len(logged) <= len(quiet)):
        return []
    if logged:
        return table.aborted or _elsewhere_by_last_line(table, logged) or logged
    return quiet if len(quiet) == 1 and (quiet[0] not in table.rows or _all_others_logged(table)) else []


def _absent(table: Table) -> list[int]:
    """The one rank without a line among those that complain; of two files of two ranks one may only be missing, and where
    a rank lacks the line that another has, the excerpt is not whole."""
    absent = sorted(set(range(max(table.rows, default=0))) - set(table.rows))
    files, kinds = {e.where.source for e in table.proofs.values()}, {e.pattern for e in table.proofs.values()}
    return absent if len(absent) == 1 == len(kinds) and len(table.complaining) > min(len(files), 2) else []


def _all_others_logged(table: Table) -> bool:
    """Whether every other rank has a file of its own, or waits on a common console until the launcher stops the one."""
    world = table.case.registry.world or len(table.rows)
    files = {e.rank for e in table.case.registry.files.values()}
    stopped = any(row.silent and row.stopped for row in table.rows.values())
    return world >= 2 and (len(files) >= world - 1 or (stopped and len(table.waiting) == world - 1))


def _elsewhere_by_last_line(table: Table, quiet: Sequence[int]) -> list[int]:
    """Of several silent ranks those with a last line that no waiting rank printed. Rank 0 alone proves nothing: often no
    other rank prints."""
    lines = {r: shape(last[0].text) for r in (*table.complaining, *quiet) if (last := table.rows[r].last_lines)}
    common = {lines[r] for r in table.complaining if r in lines}
    odd = [r for r in quiet if r in lines and lines[r] not in common]
    if not common or odd == [0] or len(odd) >= len(quiet):
        return []
    return odd if all(r in lines for r in quiet) else []


def came_after_timeout(table: Table) -> Claim | None:
    """The one rank that found its connections closed where all others timed out: had it come in time, it would have
    timed out with them. Of several ranks only those that were in another collective."""
    came = _lost_after_timeout(table)
    if not came or (len(came) > 1 and not _in_another(table, came)):
        return None
    who, waiting = ranks_text(row.rank for row in came), ranks_text(table.waiting)
    because = f"{who} {'answered' if table.remote else 'entered the collective'} after {waiting} had timed out, and found the connection closed"
    if len(came) > 1:
        because = f"{who} waited in a different collective until {waiting} had timed out and closed the connection"
    ranks, lines = [row.rank for row in came], [e for row in came for e in row.last_lines[:1]]
    proof = [*lines, *(table.proofs[r] for r in (*ranks, *table.waiting))]
    return table.case.claim(table.missed, ranks, proof, because)


def _lost_after_timeout(table: Table) -> list[Row]:
    """The ranks that did not time out, if each only lost the connection, and none surely before the others timed out."""
    came = [row for row in table.rows.values() if row.complaint is None]
    if not table.waiting or any(row.lost is None or row.fatal is not None for row in came):
        return []
    gave_up = min((table.proofs[r] for r in table.waiting), key=in_time)
    lost = (table.proofs[row.rank] for row in came)
    return [] if any((gap(e, gave_up) or 0.0) > WHOLE_S + 2 * e.at_sigma for e in lost) else came


def _in_another(table: Table, came: Sequence[Row]) -> bool:
    """Whether these ranks are fewer than those that wait, and lost the connection in collectives in which none of
    them waited. The send or receive that gloo names is a part of any of its collectives."""
    waits = {r: place[0] if (place := table.rows[r].place) else table.proofs[r].fields.get("op") for r in table.waiting}
    waited = {str(op or "").lower().replace("_", "") for op in waits.values()}
    places = {row.place[0].replace("_", "") for row in came if row.place is not None}
    return len(came) < len(table.waiting) and bool(places) and not waited & {"", "send", "recv", *places}


def busy_rank0(table: Table) -> Claim | None:
    """A progress bar that still moves when other ranks time out during the setup: in a merged console only rank 0
    draws bars."""
    complaints = [row.complaint for row in table.rows.values() if row.complaint is not None]
    if 0 in table.waiting or any((e.fields.get("seq") or 0) > SETUP for e in complaints):
        return None
    for e in complaints:
        if (bar := _bar_above(e)) is not None:
            where = f" in collective {e.fields['seq']}" if "seq" in e.fields else ""
            because = f"rank 0 was still busy when rank {table.case.rank_of(e)} timed out{where}"
            return table.case.claim("rank0-still-busy", [0], [bar, e], because)
    return None


def _bar_above(e: Event) -> Event | None:
    """The last progress bar above a complaint, or in front of it on the same line."""
    nearby = [*e.context[: e.before], e.text]
    for i in range(len(nearby) - 1, -1, -1):
        if _REGEXES["progress-bar"].search(nearby[i].split("[E ")[0].split("[rank")[0]):
            where = e.where._replace(line=e.line - (len(nearby) - 1 - i), end_line=None)
            return e if i == e.before else e._replace(where=where, text=nearby[i], rank=None, context=(), before=0)
    return None


def lowest_step(table: Table) -> Claim | None:
    """The one rank with a lower last step than all others."""
    steps = {r: row.process.last_step for r, row in table.rows.items() if row.process.last_step is not None}
    common = max(steps.values(), default=0)
    low = [r for r, step in steps.items() if step < common]
    others = {step for r, step in steps.items() if r not in low[:1]}
    if len(steps) < max(3, len(table.rows)) or len(low) != 1 or len(others) != 1:
        return None
    if not table.waiting and (table.only_lost or low[0] in table.case.ended("kill")):
        return None  # no rank waited until a timeout: this one is behind because it ended
    because = f"rank {low[0]} was at step {steps[low[0]]}; all others were at step {common}"
    return table.case.claim("rank-behind", low, [table.rows[low[0]].last], because)


# ── all ranks wait alike ────────────────────────────────────────────────────────────────────────────────────


def alike(table: Table) -> Claim | None:
    """All ranks of the job wait in one call: all receive and none sends, the hosts are cut off from each other, or
    the call does not end."""
    call = _common_call(table)
    if call is None:
        return None
    rows = table.rows.values()
    codes = ", ".join(sorted({row.place[1] for row in rows if row.place is not None})[:4])
    everyone = "both ranks" if len(rows) == 2 else f"all {len(rows)} ranks"
    where = f"{'timed out' if table.waiting else 'waited'} in {call} ({codes})"
    proof = [row.complaint or row.stack for row in rows]
    if call == "recv":
        because = f"{everyone} waited in recv ({codes}), and none sent"
        return table.case.claim("ranks-all-receive", [], proof, capital(because))
    hosts = _hosts(table)
    if call in SAME_SIZE and len(hosts) > 1 and len({row.process.last_step for row in rows} - {None}) < 2:
        between = listed(hosts) if len(hosts) < 4 else f"{len(hosts)} hosts"
        made = table.case.claim("hosts-cut-off", [], proof, f"No data passed between {between}: {everyone} {where}")
        return made and replace(made, strength="silent")
    because = f"{everyone} {where}: none was missing or late, and none had exited"
    return table.case.claim("all-ranks-stuck", [], proof, capital(because))


def _common_call(table: Table) -> str | None:
    """The call in which every rank of the job waits, by its complaint or by its stack when a watcher saw that no rank
    made progress."""
    watched = any(c.tells("standstill") for c in table.claims)
    rows = [row for row in table.rows.values() if row.complaint or (watched and row.stack)]
    calls = {row.place[0] if row.place else "none" for row in rows}
    if not table.complete or len(rows) < max(2, len(table.rows)) or len(calls) != 1 or any(row.lost for row in rows):
        return None
    return None if calls == {"none"} else calls.pop()


def _hosts(table: Table) -> list[str]:
    """The hosts of all ranks; empty where one is unknown."""
    hosts = {table.case.registry.host_of.get(r) for r in table.rows}
    return sorted(h for h in hosts if h) if None not in hosts else []
