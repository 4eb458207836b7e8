"""Two runs -> their differences, the most significant first: why did B fail where A went well?

    compare("good-run/", "bad-run/")["headline"]
    ->  "B failed where A ended well: Rank 3 raised …; B has torch 2.6.0 where A has 2.5.1 and 8 hosts …"

Each is a folder of logs, an archive, or a document of `postmortem analyze`. Two healthy runs of one job have no
difference that matters. Secrets are masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from postmortem.blocks.signs import is_of_library
from postmortem.diagnose.wording import listed, ranks_text
from postmortem.fleet.diff import run
from postmortem.fleet.diff.differences import differences, ended, same_failure
from postmortem.fleet.diff.lines import only_in
from postmortem.fleet.diff.run import Run
from postmortem.formats.lineform import gist, message
from postmortem.model.contract.comparison import SCHEMA, Comparison, Differs, OnlyIn, Side
from postmortem.privacy import Redactor
from postmortem.reading import Progress

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
