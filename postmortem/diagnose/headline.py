"""The root and its victims -> the headline: one sentence that says who, what, when, and what it did to the others.

    Rank 3 on node-b was killed by the kernel's out-of-memory killer (python3, pid 11721) at 13:18:45; rank 2 lost the connection.

The decisive line stands right below it in every output, so the headline quotes of it only what tells more than the pattern's
title: an exception's message, a library, a number of clients. Never a whole line with its prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import regex

from postmortem.diagnose.case import Case, as_int, gist
from postmortem.diagnose.exits import ending
from postmortem.diagnose.words import clock_time, ranks_text
from postmortem.library.titles import entitled
from postmortem.model import Event, Finding

LIMIT = 105  # characters that a headline quotes
_MODULES = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*(?::|$))")
_SOURCE = re.compile(
    r"\[?(?:enforce fail at )?[\w/.-]+\.(?:cc|cpp|cu|h|hpp):\d+\][\s.:]*|\[Errno \d+\] "
)  # where in C++ it was made
_BARE = re.compile(r"^\W*Error: |^RuntimeError: ")
_WHOLE_LINE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:|\d+%\|"
)  # a time or a progress bar: a line of a log, no message


def headline(case: Case, root: Finding, ranks: Sequence[int], victims: dict[str, list[int]]) -> str:
    """One sentence: who, what, when, and what it did to the others."""
    who = ranks_text(ranks)
    if who and len(root.hosts) == 1 and len(ranks) <= 6:
        who += f" on {root.hosts[0]}"
    compared = (root.pattern.derived or root.derived_confidence) and not root.pattern.id.startswith(
        "rank-exit-"
    )
    if compared and root.because:
        said = _compared(root, who, len(ranks) > 1)
    else:
        what, remark = _what(root, who, len(ranks) > 1)
        if root.pattern.id == "rank-exit-crash-signal" and ranks and case.finished >= set(ranks):
            what += " after it had finished" if len(ranks) == 1 else " after they had finished"
        e = root.event
        said = what + ("" if root.pattern.derived and not remark else clock_time(e.at, e.at_sigma)) + remark
    return f"{said}{_effects({verb: hit for verb, hit in victims.items() if verb not in said})}."


def _compared(root: Finding, who: str, many: bool) -> str:
    """What the comparison of the ranks showed: `rank 2 had finished while …` is a sentence by itself, other reasons need a title."""
    plain = who.split(" on ")[0]
    if plain and root.because.startswith(f"{plain[0].lower()}{plain[1:]} "):
        return who + root.because[len(plain) :]
    title = (
        root.pattern.title.rstrip(".") if root.pattern.derived else "A rank was out of step with the others"
    )
    if root.because.split()[:2] == title.lower().split()[:2]:
        return root.because[0].upper() + root.because[1:]
    return f"{entitled(title, who, many)}: {root.because}"


def _what(root: Finding, who: str, many: bool) -> tuple[str, str]:
    """What happened to whom, and a remark that comes after the time."""
    e, p = root.event, root.pattern
    subject = _subject(root, who)
    code = e.fields.get("code")
    where = f" in {code}" if code else ""
    match p.id:
        case "python-exception":
            return (
                f"{subject or 'A process'} raised {_quoted(str(e.fields.get('line') or ''), bare=False)}{where}",
                "",
            )
        case "kernel-oom-killed-process" | "kernel-oom-summary":
            name = e.fields.get("comm") or "process"
            pid = f", pid {e.fields['pid']}" if e.fields.get("pid") else ""
            verb = "were" if many else "was"
            return (
                f"{f'{subject} {verb}' if subject else 'A process was'} killed by the kernel's out-of-memory killer ({name}{pid})",
                "",
            )
        case "faulthandler-fatal-error":
            return f"{subject or 'A process'} crashed: {_crash(e)}{where}", ""
        case "rank-exit-sigkill":
            verb = "were" if many else "was"
            return (
                f"{subject or 'A process'} {verb} killed with SIGKILL from outside",
                ", and nothing here says by whom",
            )
        case "rank-exit-signalled":
            told = ending(as_int(e.fields.get("exitcode")))
            return (
                f"{subject or 'A process'} ended with {told} from outside",
                ", which the launcher had not sent",
            )
        case "rank-exit-crash-signal" | "rank-exit-without-reason" | "rank-exit-cpu-limit":
            return (
                f"{subject or 'A process'} ended with {ending(as_int(e.fields.get('exitcode')))}",
                " and printed no reason",
            )
    said = entitled(p.title.rstrip("."), subject, many)
    detail = _detail(root)
    return said + (f" ({detail})" if detail else "") + (where if e.kind == "exception" else ""), ""


def _subject(root: Finding, who: str) -> str:
    """Ranks if they are known, else the GPU, else the host, where the pattern speaks of one."""
    if root.gpus:
        return f"{who} (GPU {root.gpus[0]})" if who else f"GPU {root.gpus[0]}"
    if not who and root.pattern.entity in ("host", "peer") and len(root.hosts) == 1:
        return root.hosts[0]
    return who


def _crash(e: Event) -> str:
    return (
        str(e.fields.get("signal") or e.fields.get("line") or gist(e.text))[:100]
        .lower()
        .replace("sig", "SIG")
    )


def _detail(root: Finding) -> str:
    """What the line tells beyond the title; nothing where that would be the whole line of a log."""
    fields, title = root.event.fields, root.pattern.title.rstrip(".")
    line, captured = str(fields.get("line") or ""), str(fields.get("detail") or "")
    wordy = sum(map(str.isalpha, captured)) * 2 > len(captured)
    said = _quoted(line or (captured if wordy else _telling(root)))
    plain = (
        _WHOLE_LINE.search(said)
        or said.lower() in title.lower()
        or title.startswith("Xid ")
        or title.endswith(")")
    )
    return "" if plain else said


def _telling(root: Finding) -> str:
    """The line from where the pattern starts to match: what stands before it in a glued line is a progress bar or a prefix."""
    text = gist(root.event.text)
    for form in root.pattern.variants:
        if m := regex.search(form.regex, text):
            return text[m.start() :]
    return text


def _quoted(text: str, bare: bool = True) -> str:
    """As much of a message as can stand in a sentence: whole clauses, if there are any, and no bracket left open."""
    shown = _SOURCE.sub("", _MODULES.sub("", " ".join(text.split())))
    shown = _BARE.sub("", shown) if bare else shown
    if len(shown) <= LIMIT:
        return shown.rstrip(".: ")
    cut = max(shown.rfind(mark, LIMIT // 3, LIMIT) for mark in (". ", "; "))
    if cut > 0:
        return shown[:cut]
    shown = shown[:LIMIT].rsplit(" ", 1)[0]
    while shown.count("(") > shown.count(")") and shown.rfind("(") > LIMIT // 3:
        shown = shown[: shown.rfind("(")]
    return shown.rstrip(" ,:;(") + "…"


def _effects(victims: dict[str, list[int]]) -> str:
    """`; rank 0 lost the connection and 2 other ranks were stopped by the launcher`."""
    parts = []
    for verb, ranks in victims.items():
        if ranks:
            n = len(ranks)
            parts.append(
                f"rank {ranks[0]} {verb.replace('were ', 'was ')}" if n == 1 else f"{n} other ranks {verb}"
            )
    return (
        "; " + " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) if parts else ""
    )
