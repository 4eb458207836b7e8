"""The root and its victims -> the headline: one sentence with culprit, failure, time, and the effect on the others.

    Rank 3 on node-b was killed by the kernel's out-of-memory killer (python3, pid 11721) at about 13:18:36
    (± 5 s); 3 other ranks lost the connection.

Every output shows the decisive line right below it, so the headline quotes only the part that adds to the pattern's
title: an exception's message, a library, a number of clients; never a whole line with its prefixes. A pattern with
a title that is not enough has a sentence of its own in its file (`headline`).
"""

from __future__ import annotations

from collections.abc import Mapping

from postmortem.align.place import UNBOUNDED
from postmortem.diagnose.case import Case
from postmortem.diagnose.claim import Claim, in_time
from postmortem.diagnose.rules import survived
from postmortem.diagnose.verdict import blame, outcome, reached
from postmortem.diagnose.verdict.solution import Solution, Victims
from postmortem.diagnose.who.numbering import OWN_LINES
from postmortem.diagnose.wording import capital, clock_time, listed, ranks_text
from postmortem.formats import endings
from postmortem.formats.lineform import gist, message
from postmortem.library import regexes
from postmortem.library.titles import entitled, inside
from postmortem.model import Event
from postmortem.model.digits import number
from postmortem.model.vocabulary import LOUD, OF_PEERS
from postmortem.privacy import cut
from postmortem.system import forms

MOST_CHARACTERS = 140  # characters of a title
LIMITS = range(105, 20, -12)  # characters of a quoted message: less in a title that would be too long
ELSEWHERE = " while the others waited in a collective"
MANY = 6  # culprits of which the host is not named
_REGEXES = forms.regexes("say/headline")


def headline(solution: Solution) -> str:
    """One sentence: culprit, failure, time, and the effect on the others."""
    return _ended("; ".join(filter(None, _parts(solution, LIMITS[0]))))


def title(solution: Solution) -> tuple[str, str]:
    """The headline with the date of its time, in at most MOST_CHARACTERS if possible, and the rest, which may be
    empty. It has no half of a quotation in brackets: the decisive line is shown with it."""
    shorter = (_parts(solution, limit, dated=True) for limit in LIMITS)
    fits = (parts for parts in shorter if len(parts[0]) < MOST_CHARACTERS and "…)" not in parts[0])
    first, rest = next(fits, None) or _parts(solution, LIMITS[-1], dated=True)
    return _ended(first), _ended(capital(rest)) if rest else ""


def _ended(text: str) -> str:
    return text if text.endswith((".", "…")) else f"{text}."


def _parts(solution: Solution, limit: int, dated: bool = False) -> tuple[str, str]:
    """Culprit, failure and time; and what else the ranks did, which may be empty."""
    root = solution.root
    if root is None:
        return _rootless(solution), ""
    dated_line = next((e for e in root.events if e.at is not None), None)
    moment, sigma = _moment(dated_line) if dated_line is not None else (None, 0.0)
    at = clock_time(None if root.pattern.derived and sigma >= UNBOUNDED else moment, sigma, dated)
    if at and root.pattern.entity == "missing-ranks" and dated_line is not None and dated_line.kind in OWN_LINES:
        at = f" (last line{at})"  # the others waited later
    first, rest = _failure(solution, root, at, limit)
    return f"{_recovered(solution.case)} {inside(first)}" if solution.outcome == "recovered" else first, rest


def _failure(solution: Solution, root: Claim, time: str, limit: int) -> tuple[str, str]:
    if root.strength == "suffered":
        if root.tells("joins") and (start := reached.announced(solution.case)) is not None:
            return start.text, ""
        text, effects = _suffered(solution, root, time, limit)
        return f"{text}, and the cause is not in these logs", effects
    first, rest = _sentence(solution, root, time, limit)
    if not (ELSEWHERE in first and solution.victims.timed_out):
        more = rest, _holder(solution, root), *map(another, solution.apart), _effects(solution.victims, first + rest)
        return first, "; ".join(filter(None, more))
    first = first.replace(ELSEWHERE, "")
    whom = "it" if len(solution.ranks) == 1 else "them"
    return first, _effects(solution.victims, first).replace("timed out", f"timed out waiting for {whom}", 1)


def another(c: Claim) -> str:
    """`ranks 1, 2 and 3 failed for another reason (KeyError: 'valid')`."""
    return f"{ranks_text(c.ranks)} failed for another reason ({_detail(c) or inside(c.pattern.title.rstrip('.'))})"


def _holder(solution: Solution, root: Claim) -> str:
    """`25.0 GiB of 39.6 GiB of GPU 0 are held by attention.py:88 scores`, where a snapshot of the memory shows it."""
    if root.pattern.category != "gpu-oom" or root.event.source_kind == "memory-snapshot":
        return ""
    shown = [e for e in solution.case.of_kind("memory") if solution.case.rank_of(e) in (None, *solution.ranks)]
    return next((f"{e.fields['detail']}" for e in shown if e.fields.get("detail")), "")


def _moment(e: Event) -> tuple[float | None, float]:
    """When an event was. A time-out is as long after the last line with a stamp, so that one is not its time."""
    waited = number(e.fields.get("timeout_ms")) or 0
    return None if e.at_sigma >= UNBOUNDED and waited > UNBOUNDED * 1000 else e.at, e.at_sigma


def in_short(solution: Solution) -> str:
    """Culprit and failure, without the time and the effect on the others."""
    root = solution.root
    if root is None:
        return _rootless(solution)
    parts = _suffered(solution, root, "") if root.strength == "suffered" else _sentence(solution, root, "")
    return f"{'; '.join(filter(None, parts))}."


def _sentence(solution: Solution, root: Claim, time: str, limit: int = LIMITS[0]) -> tuple[str, str]:
    """The failure, and the second clause of a comparison that is too long for a title with it."""
    who = _who(root, solution.ranks)
    if root.strength not in ("compared", "silent") or not root.because:
        if root.pattern.entity == "job" and not who:  # the one host whose agent was stopped
            time = "".join(f" on {host}" for host in blame.hosts(solution.case, root, (), solution.claims)[:1]) + time
        return _stated(solution.case, root, who, solution.ranks, time, limit), ""
    text, clause, rest = _compared(root, who, solution.ranks), "", ""
    if found := _REGEXES["clause"].match(text):
        text, clause, rest = text[: found.start(1)], found[1], text[found.end(1) :]
    short = LIMITS.index(limit)
    if not short:
        return text + time + clause + rest, ""
    if short > 1 and text.endswith(")"):
        text, _, call = text[:-1].rpartition(" (")
        rest = "; ".join(filter(None, (call, rest)))
    return text + time, rest


def _recovered(case: Case) -> str:
    """`Recovered: in attempt 0`; in an earlier one, where no line numbers them."""
    return f"Recovered: in {'an earlier attempt' if case.attempt is None else f'attempt {case.attempt}'}"


def _who(root: Claim, ranks: tuple[int, ...]) -> str:
    """`Rank 3 on node-b`; empty where no rank is to blame."""
    if not ranks:
        return ""
    on = f" on {root.hosts[0]}" if len(root.hosts) == 1 and len(ranks) <= MANY else ""
    return capital(ranks_text(ranks)) + on


def _compared(root: Claim, who: str, ranks: tuple[int, ...]) -> str:
    """The result of the comparison of the ranks: a sentence by itself, or behind the pattern's title."""
    if root.because[0].isupper():
        return root.because  # a sentence by itself
    subject = ranks_text(ranks) if ranks else ""
    if subject and root.because.startswith(f"{subject} "):
        return who + root.because[len(subject) :]
    title = root.pattern.title.rstrip(".") if root.pattern.derived else "A rank diverged from the others"
    if root.because.split()[:2] == title.lower().split()[:2]:
        return capital(root.because)
    return f"{entitled(title, who, len(ranks) > 1)}: {root.because}"


def _stated(case: Case, root: Claim, who: str, ranks: tuple[int, ...], time: str, limit: int) -> str:
    """The pattern's own sentence, or its title with the details of the line."""
    e = root.event
    subject = _subject(root, who)
    where = f" in {e.fields['code']}" if e.fields.get("code") else ""
    if root.pattern.headline:
        captures = {name: str(value) for name, value in e.fields.items() if isinstance(value, str | int)}
        names = captures | _names(case, root, subject, ranks, limit)
        text = _filled(root.pattern.headline, names | {"code": where, "time": time})
        return text if "{time}" in root.pattern.headline else text + time
    text = entitled(root.pattern.title.rstrip("."), subject, len(ranks) > 1)
    detail = _detail(root) if limit == LIMITS[0] else ""
    return text + (f" ({detail})" if detail else "") + (where if e.kind == "exception" else "") + time


def _filled(form: str, parts: Mapping[str, str]) -> str:
    """A pattern's sentence with its names filled in, without parts in brackets with a name that the line lacks."""
    present = _REGEXES["optional"].sub(
        lambda m: m[1] if all(map(parts.get, _REGEXES["name"].findall(m[1]))) else "", form
    )
    return _REGEXES["name"].sub(lambda m: parts.get(m[1], ""), present)


def _names(case: Case, root: Claim, subject: str, ranks: tuple[int, ...], limit: int) -> dict[str, str]:
    """The names for a pattern's `headline`, beside {code} and {time}."""
    e, end = root.event, endings.reported(root.event)
    many = len(ranks) > 1
    done = bool(ranks) and case.finished >= set(ranks) and end is not None and end.kind == "crash"
    # `segmentation fault`, `signal 11`, `SIGSEGV`
    name = str(e.fields.get("signal") or e.fields.get("line") or gist(e.text))
    return {
        "who": _killed(case, e, subject, ranks) or f"A process{f' on {root.hosts[0]}' if len(root.hosts) == 1 else ''}",
        "was": "were" if many else "was",
        "line": _quoted(e.fields.get("line", ""), limit, bare=False),
        "crash": _REGEXES["signal"].sub(lambda m: m[0].upper(), cut(name, 100).lower()),
        "ending": str(end).removeprefix("exit ") if end else "an error",
        "finished": f" after {'they' if many else 'it'} had finished" if done else "",
        "unsaid": _last_words(case, root, ranks),
        "comm": e.fields.get("comm") or "process",
        "pid": f", pid {e.fields['pid']}" if e.fields.get("pid") else "",
        "own_pid": f" (pid {e.fields['pid']})" if e.fields.get("pid") else "",
    }


def _killed(case: Case, e: Event, subject: str, ranks: tuple[int, ...]) -> str:
    """`A child process of rank 2`, where the kernel names the process that it killed, and the rank itself left later
    with an exit code of its own."""
    end = case.ends.get(ranks[0]) if len(ranks) == 1 and e.fields.get("comm") else None
    return f"A child process of {inside(subject)}" if end is not None and end.kind == "own" else subject


def _last_words(case: Case, root: Claim, ranks: tuple[int, ...]) -> str:
    """` after "license refused"`, the last ordinary line of the one rank, else what any process printed of such an end;
    else that it printed no reason."""
    proofs = {x.where for x in root.events}  # that it ended is none of its own words
    events = (x for r in ranks for x in case.by_rank.get(r, ()))
    own = [x for x in events if x.kind in OWN_LINES and x.where not in proofs]
    patterns = ((e, case.library.get(e.pattern)) for e in case.of_kind("pattern"))
    kind = root.pattern.category
    said = {e.place: e for e, p in patterns if p and p.stands_for == kind and p.family != "launcher"}
    final = max((x for x in own if x.fields.get("last")), key=lambda x: x.line, default=None)
    works = {x.place for x in own if x.kind in ("progress", "finished") or x.fields.get("first")} | said.keys()
    works |= {x.place for x in case.of_kind("worked")}
    if len(ranks) == 1 and final is not None and final.place not in works:
        return f" after `{message(final.text)}`"
    if quoted := next((text for e in said.values() if not _REGEXES["whole_line"].search(text := message(e.text))), ""):
        return f" (`{quoted}`)"
    # a stack or a line without a rank may be the reason
    logs = {x.where.source for x in own}
    beside = [*case.of_kind("stack"), *(x for log in logs for x in case.by_source[log])]
    return " and printed no reason" if own and all(case.rank_of(x) is not None for x in beside) else ""


def _subject(root: Claim, who: str) -> str:
    """Ranks if they are known, else the GPU, else the host, where the pattern is about one."""
    if root.gpus:
        return f"{who} (GPU {root.gpus[0]})" if who else f"GPU {root.gpus[0]}"
    if not who and root.pattern.entity in ("host", "peer") and len(root.hosts) == 1:
        return root.hosts[0]
    return who


def _detail(root: Claim) -> str:
    """The part of the line that adds to the title; empty where that would be the whole line of a log."""
    fields, title = root.event.fields, root.pattern.title.rstrip(".")
    line, captured = fields.get("line", ""), fields.get("detail", "")
    wordy = sum(map(str.isalpha, captured)) * 2 > len(captured)
    detail = _quoted(line or (captured if wordy else _from_match(root)))
    if _REGEXES["whole_line"].search(detail) or detail.lower() in title.lower():
        return ""
    return "" if title.startswith("Xid ") or title.endswith(")") else detail


def _from_match(root: Claim) -> str:
    """The line from the start of the pattern's match: the text before it is a progress bar or a prefix."""
    text = gist(root.event.text)
    for form in root.pattern.variants:
        if m := regexes.search(form.regex, text):
            return text[m.start() :]
    return text


def _quoted(text: str, limit: int = LIMITS[0], bare: bool = True) -> str:
    """As much of a message as fits into a sentence: whole clauses, if there are any, and no open bracket."""
    shown = _REGEXES["source"].sub("", _REGEXES["modules"].sub("", " ".join(text.split())))
    shown = (_REGEXES["bare"].sub("", shown) if bare else shown).lstrip(": ")
    if len(shown) <= limit:
        return shown.rstrip(".: ")
    clause = max(shown.rfind(mark, limit // 3, limit) for mark in (". ", "; "))
    shown = shown[:clause] if clause > 0 else cut(shown, limit).rsplit(" ", 1)[0]
    while shown.count("(") > shown.count(")") and shown.rfind("(") > limit // 3:
        shown = shown[: shown.rfind("(")]
    return shown.rstrip(" ,:;(") + ("" if clause > 0 else "…")


def _effects(victims: Victims, text: str) -> str:
    """`rank 0 lost the connection and 2 other ranks were stopped by the launcher`."""
    parts = []
    for ranks, verb in victims.by_fate():
        if verb not in text and not (verb == "timed out" and " waited in " in text):
            parts.append(f"rank {ranks[0]} {verb}" if len(ranks) == 1 else f"{len(ranks):,} other ranks {verb}")
    return listed(parts)


# ── without a cause ─────────────────────────────────────────────────────────────────────────────────────────


def _rootless(solution: Solution) -> str:
    case = solution.case
    if solution.unread is not None:
        return f"Undetermined: {solution.unread}."
    if solution.outcome == "healthy":
        return f"No failure in these logs{_finished(solution) or _late_failures(solution)}."
    if solution.reached is not None:
        return f"{solution.reached.text}."
    failure = "; ".join(_victims(solution)) or _complaint(solution)
    if not failure:
        return f"Undetermined: {outcome.lacking(case) or 'the job failed, and the cause is not in these logs'}."
    attempt = _recovered(case) if solution.outcome == "recovered" else "Undetermined:"
    return f"{attempt} {failure}, and the cause is not in these logs."


def _finished(solution: Solution) -> str:
    """`; 3 of 4 ranks reported that they finished`, or that no line is known as the end; else empty."""
    if n := len(solution.case.finished):
        return f"; {n} of {len(solution.case.registry.ranks) or n} ranks reported that they finished"
    return "; the logs do not show how the run ended" if solution.end == "unfinished" else ""


def _suffered(solution: Solution, root: Claim, time: str, limit: int = LIMITS[0]) -> tuple[str, str]:
    """The effects on the ranks, where they complain about each other; else the line that represents the failure, and
    the effects."""
    if (solution.victims.timed_out or solution.victims.lost) and root.pattern.category in (*OF_PEERS, "network"):
        first, *others = _victims(solution)
        return capital("; ".join((first + time, *others))), ""
    detail = _detail(root) if limit == LIMITS[0] else ""
    text = entitled(root.pattern.title.rstrip("."), _who(root, solution.ranks), len(solution.ranks) > 1)
    text += f" ({detail})" if detail else ""
    return text + time, _effects(solution.victims, text)


def _victims(solution: Solution) -> list[str]:
    """`ranks 1 and 2 timed out`"""
    return [f"{ranks_text(ranks)} {verb}" for ranks, verb in solution.victims.by_fate()]


def _late_failures(solution: Solution) -> str:
    """`; the run had finished before an NCCL call failed (a.log:12)`: failures while processes exited."""
    found = [c for c in solution.claims if c.fell_by == survived.while_leaving.__name__]
    if not found:
        return ""
    first = min(found, key=lambda c: c.event.where)
    return f"; the run had finished before {inside(first.pattern.title.rstrip('.'))} ({first.event.where})"


def _complaint(solution: Solution) -> str:
    """The first complaint of a failure without a cause, in plain words; empty where there is none."""
    found = [c for c in solution.claims if c.role in ("symptom", "confirms")]
    loud = [c for c in found if c.pattern.severity in LOUD] or [c for c in found if c.role == "symptom"]
    if not loud:
        return "the only evidence is the stack of a process" if solution.case.of_kind("stack") else ""
    last = next((c for c in loud if c.event.fields.get("last_error")), None)
    if last is not None:
        return f"NCCL's last error was `{_quoted(gist(last.event.text))}`"
    first = min(loud, key=lambda c: (c.pattern.category in (None, "scheduler"), c.role != "symptom", in_time(c.event)))
    detail = first.event.fields.get("detail") if first.speaker == "tool" else None
    return inside(first.pattern.title.rstrip(".")) + (f" ({detail})" if detail else "")
