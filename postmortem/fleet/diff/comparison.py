"""Two runs -> their differences, the most significant first: why did B fail where A went well?

    compare("good-run/", "bad-run/")["headline"]
    ->  "B failed where A ended well: Rank 3 raised …; B has torch 2.6.0 where A has 2.5.1 and 8 hosts …"

Each is a folder of logs, an archive, or a document of `postmortem analyze`. Two healthy runs of one job have no
difference that matters. Secrets are masked.

Two kinds of lines are left out: the halves of lines on a console that ranks share, and lines that differ in every run
of a job. A run with many lines of its own (it prints the output of a model) has no significant ones.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, cast

from postmortem.blocks.signs import is_of_library
from postmortem.diagnose.wording import listed, ranks_text
from postmortem.fleet.diff import run
from postmortem.fleet.diff.differences import differences, ended, same_failure
from postmortem.fleet.diff.run import Run
from postmortem.formats.lineform import alike, gist, message
from postmortem.model.contract.comparison import SCHEMA, Comparison, Differs, OnlyIn, Side
from postmortem.privacy import Redactor
from postmortem.reading import Progress
from postmortem.reading.distinct import DistinctLine, RunLines

_PLACE = re.compile(r"\[/[^\s\]]+:\d+\] ")  # in a library's own source
QUOTED = 100  # characters of a line
NAMED = 3  # versions, world sizes and settings in the headline


def compare(a: str, b: str, patterns: tuple[Path, ...] = (), progress: Progress | None = None) -> Comparison:
    """Read and compare two runs. Raise PostmortemError."""
    return compared(*run.both(a, b, patterns, progress))


def compared(first: Run, second: Run) -> Comparison:
    """Compare two runs that were read."""
    redactor = Redactor()
    for one in (first, second):  # their known secrets are masked wherever they occur
        redactor.recall(one.secrets)
    rows = cast(list[Differs], redactor.document(differences(first, second)))
    own = [*only_in(second, first, "b"), *only_in(first, second, "a")]
    lines = cast(list[OnlyIn], redactor.document(own))
    matter = [row for row in rows if row["matters"]]
    significant = [line for line in lines if line["trouble"] or line["only_in"] == "b"]
    if not matter and first.outcome == second.outcome == "healthy":
        # remarks of libraries in runs that went well are no sign of trouble
        significant = [line for line in significant if not is_of_library(line["text"])]
    return {
        "schema": SCHEMA,
        "differs": bool(matter or significant),
        "headline": _headline(first, second, matter, significant),
        "a": _side(first, redactor),
        "b": _side(second, redactor),
        "differences": rows,
        "lines": lines,
        "uncompared": list(_uncompared(first, second)),
    }


def _side(one: Run, redactor: Redactor) -> Side:
    verdict, job = one.document["verdict"], one.document["job"]
    side = {
        "path": redactor.path(one.path),
        "logs": one.lines is not None,
        **{name: verdict.get(name) for name in ("outcome", "category", "pattern")},
        "fingerprint": one.document.get("fingerprint"),
        "headline": _titled(one),
        "world_size": job.get("world_size"),
        "hosts": list(job.get("hosts") or ()),
        "step_s": round(one.steps.median, 6) if one.steps else None,
    }
    return cast(Side, redactor.document(side))


def _headline(a: Run, b: Run, matter: Sequence[Differs], lines: Sequence[OnlyIn]) -> str:
    """Return the most significant differences in one sentence."""
    texts = [(row["kind"], row["text"].rstrip(".")) for row in matter]
    clauses = [text for kind, text in texts if kind == "verdict"]
    if not clauses and same_failure(a, b):
        clauses = [f"both {ended(a)} of the same cause"]
    elif clauses and b.document["verdict"].get("pattern") and a.outcome == "healthy":
        rest = b.document["verdict"].get("rest", "").rstrip(".")
        clauses = [f"B failed where A ended well: {_titled(b).rstrip('.')}", *filter(None, [rest])]
    if has := [text.removeprefix("B has ") for kind, text in texts if kind in ("version", "world", "setting")]:
        more = [f"{len(has) - NAMED} more settings of its own"] if len(has) > NAMED else []
        clauses.append("B has " + listed([*has[:NAMED], *more]))
    for wanted in ("step-time", "hosts"):
        clauses += [text for kind, text in texts if kind == wanted]
    if lines and not _follows(lines[0], b):
        clauses.append(_prints(lines[0]))
    if not matter and not lines:
        clauses.append("no difference that matters")
    joined = "; ".join(clause[:1].lower() + clause[1:] if clause[:2] == "A " else clause for clause in clauses)
    return joined[:1].upper() + joined[1:] + "."


def _titled(one: Run) -> str:
    verdict = one.document["verdict"]
    return str(verdict.get("title") or verdict["headline"])


def _follows(line: OnlyIn, b: Run) -> bool:
    """Return whether a line of B is later than the evidence of the cause, which the headline names."""
    verdict = b.document["verdict"]
    proofs = verdict.get("evidence") if verdict.get("pattern") else None
    proved = min((proof["time"] for proof in proofs or () if proof.get("time")), default=None)
    return line["only_in"] == "b" and proved is not None and (line["time"] or "") >= proved


def _prints(line: OnlyIn) -> str:
    """Return `rank 3 of B first prints “…” after step 120, which A never prints`."""
    has, lacks = ("B", "A") if line["only_in"] == "b" else ("A", "B")
    who = f"{ranks_text(line['ranks'])} of {has}" if line["ranks"] else has
    verb = "print" if len(line["ranks"]) > 1 else "prints"
    step = f" after step {line['step']}" if line["step"] is not None else ""
    words = _PLACE.sub("", line["text"])
    quoted = message(words) if " " in message(words) else gist(words)
    quoted = quoted if len(quoted) <= QUOTED else quoted[:QUOTED].rstrip() + "…"
    return f"{who} first {verb} “{quoted}”{step}, which {lacks} never prints"


def _uncompared(a: Run, b: Run) -> Iterator[str]:
    for one, name in ((a, "A"), (b, "B")):
        if one.lines is None:
            yield f"{name} is a document: of its lines, settings and steps only the quoted ones are compared."
        elif not one.lines.whole:
            yield f"Not all lines of {name} were read, so no line is reported as missing there."
        elif one.steps is None:
            yield f"The steps of {name} have no times that could be compared."


# ── lines that one run has and the other lacks ──────────────────────────────────────────────────────────────

MOST_LINES = 12
LETTERS = 6  # in a form with a meaning
OWN = 0.15  # share of a run's forms from which on its ordinary lines are not significant
FEW = 5  # or so many
HALF = 8  # characters of half a line

Which = Literal["a", "b"]


def only_in(run: Run, other: Run, side: Which) -> list[OnlyIn]:
    """Return the lines of `run` that `other` lacks; nothing if the other's logs were not read completely."""
    if other.lines is None or not other.lines.whole:
        return []
    if run.lines is None:
        return list(_quoted(run, other, other.lines, side))[:MOST_LINES]
    forms = run.lines.distinct
    whole = _Whole(other.lines.distinct)
    own = [line for form, line in forms.items() if _is_own(form, other.lines)]
    own = [line for line in own if not whole.has_half(alike(line.text, run.names))]
    troubled = [line for line in own if line.troubled and (line.source, line.line) not in run.context]
    quiet = [line for line in own if line.ordinary]
    if len(quiet) > max(FEW, OWN * len(forms)):
        quiet = []
    return [
        _row(run, line, side) for line in [*_first_of_each(run, troubled), *_first_of_each(run, quiet)][:MOST_LINES]
    ]


def _is_own(form: str, other: RunLines) -> bool:
    return form not in other.distinct and sum(map(str.isalpha, form)) >= LETTERS


def _first_of_each(run: Run, own: Iterable[DistinctLine]) -> Iterator[DistinctLine]:
    """Yield by time the first line of each rank, and of each file for lines without a rank."""

    def order(line: DistinctLine) -> tuple[float, str, int]:
        at = run.time(line.source, line.line)
        return float("inf") if at is None else at, line.source, line.line

    seen: set[object] = set()
    for line in sorted(own, key=order):
        writers: set[object] = {*line.ranks} or {line.source}
        if writers - seen:
            seen |= writers
            yield line


def _row(run: Run, line: DistinctLine, side: Which) -> OnlyIn:
    return {
        "only_in": side,
        "text": line.text.strip(),
        "ranks": sorted(line.ranks),
        "source": line.source,
        "line": line.shown,
        "step": line.step,
        "time": run.moment(line.source, line.line),
        "trouble": line.troubled,
    }


def _quoted(run: Run, other: Run, lines: RunLines, side: Which) -> Iterator[OnlyIn]:
    """Yield the lines of evidence in a document."""
    for proof in run.document["verdict"].get("evidence") or ():
        if _is_own(alike(str(proof.get("text") or "").split("\n")[0], other.names), lines):
            yield {
                "only_in": side,
                "text": str(proof["text"]).strip(),
                "ranks": [] if proof.get("rank") is None else [proof["rank"]],
                "source": str(proof.get("source") or ""),
                "line": proof.get("line"),
                "step": None,
                "time": proof.get("time"),
                "trouble": True,
            }


class _Whole:
    """Forms of whole lines."""

    def __init__(self, forms: Iterable[str]) -> None:
        self.forms = set(forms)
        self.sorted = sorted(self.forms)
        self.reversed = sorted(form[::-1] for form in self.forms)

    def has_half(self, form: str) -> bool:
        """Return whether a form is the begin or the end of a whole line, or is made of two of them."""
        if _is_begin(form, self.sorted) or _is_begin(form[::-1], self.reversed):
            return True
        for at in range(HALF, len(form)):
            if form[:at].rstrip() in self.forms:
                rest = form[at:].lstrip()
                if len(rest) < HALF or rest in self.forms or _is_begin(rest, self.sorted):
                    return True
        return False


def _is_begin(form: str, known: list[str]) -> bool:
    place = bisect_left(known, form)
    return len(form) >= HALF and place < len(known) and known[place].startswith(form)
