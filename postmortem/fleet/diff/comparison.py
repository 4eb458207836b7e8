"""Two runs -> what differs, the most telling first: why did B fail, where A went well?

    compare("good-run/", "bad-run/")["headline"]
    ->  "B failed where A ended well: Rank 3 raised …; B has torch 2.6.0 where A has 2.5.1 and 8 hosts …"

Each is a folder of logs, an archive, or a document that `postmortem analyze` wrote. Two healthy runs of one
job differ in nothing that matters. Secrets are masked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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

_PLACE = re.compile(r"\[/[^\s\]]+:\d+\] ")  # of a library's own source
QUOTED = 100  # characters of a line
SAID = 3  # things that the headline says of versions, world and settings


def compare(a: str, b: str, patterns: tuple[Path, ...] = (), progress: Progress | None = None) -> Comparison:
    """Read both and compare them. Raise PostmortemError."""
    return compared(*run.both(a, b, patterns, progress))


def compared(first: Run, second: Run) -> Comparison:
    """What differs between two runs that were read."""
    redactor = Redactor()
    for one in (first, second):  # a line of text is not only searched for what looks like a secret
        redactor.recall(one.secrets)
    rows = cast(list[Differs], redactor.document(differences(first, second)))
    told = [*only_in(second, first, "b"), *only_in(first, second, "a")]
    lines = cast(list[OnlyIn], redactor.document(told))
    matter = [row for row in rows if row["matters"]]
    telling = [line for line in lines if line["trouble"] or line["only_in"] == "b"]
    if not matter and {first.outcome, second.outcome} == {"healthy"}:
        # what libraries say in passing, of runs that went well, tells of no trouble
        telling = [line for line in telling if not is_of_library(line["text"])]
    return {
        "schema": SCHEMA,
        "differs": bool(matter or telling),
        "headline": _headline(first, second, matter, telling),
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
        "logs": one.heard is not None,
        **{name: verdict.get(name) for name in ("outcome", "category", "pattern")},
        "fingerprint": one.document.get("fingerprint"),
        "headline": verdict["headline"],
        "world_size": job.get("world_size"),
        "hosts": list(job.get("hosts") or ()),
        "step_s": round(one.steps.median, 6) if one.steps else None,
    }
    return cast(Side, redactor.document(side))


# ── the sentence on top ─────────────────────────────────────────────────────────────────────────────────────


def _headline(a: Run, b: Run, matter: Sequence[Differs], lines: Sequence[OnlyIn]) -> str:
    """What one would say of it, aloud."""
    kinds = {row["kind"] for row in matter}
    clauses = [row["text"].rstrip(".") for row in matter if row["kind"] == "verdict"]
    if not clauses and same_failure(a, b):
        clauses = [f"both {ended(a.document)} of the same cause"]
    elif clauses and b.document["verdict"].get("pattern") and ended(a.document) == "ended well":
        clauses = [f"B failed where A ended well: {b.document['verdict']['headline'].rstrip('.')}"]
    set_so = [row for row in matter if row["kind"] in ("version", "world", "setting")]
    if set_so:
        clauses.append(_has(set_so))
    for kind in ("step-time", "hosts"):
        clauses += [row["text"].rstrip(".") for row in matter if row["kind"] == kind]
    clauses += [_prints(line) for line in lines[:1] if not _follows(line, b)]
    if not kinds and not lines:
        clauses.append("no difference that matters")
    joined = "; ".join(clause[:1].lower() + clause[1:] if clause[:2] == "A " else clause for clause in clauses)
    return joined[:1].upper() + joined[1:] + "."


def _follows(line: OnlyIn, b: Run) -> bool:
    """Whether a line of B is no earlier than what proves the cause, which the headline tells."""
    verdict = b.document["verdict"]
    proofs = verdict.get("evidence") if verdict.get("pattern") else None
    proved = min((proof["time"] for proof in proofs or () if proof.get("time")), default=None)
    return line["only_in"] == "b" and proved is not None and (line["time"] or "") >= proved


def _has(rows: Sequence[Differs]) -> str:
    """`B has torch 2.6 where A has 2.5, and 8 hosts where A has 4`."""
    parts = [row["text"].rstrip(".").removeprefix("B has ") for row in rows[:SAID]]
    more = len(rows) - len(parts)
    return "B has " + listed([*parts, *([f"{more} more settings of its own"] if more else [])])


def _prints(line: OnlyIn) -> str:
    """`rank 3 first prints “…” after step 120, which no rank of A printed`."""
    has, lacks = ("B", "A") if line["only_in"] == "b" else ("A", "B")
    who = f"{ranks_text(line['ranks'])} of {has}" if line["ranks"] else has
    verb = "print" if len(line["ranks"]) > 1 else "prints"
    step = f" after step {line['step']}" if line["step"] is not None else ""
    return f"{who} first {verb} “{_quoted(line['text'])}”{step}, which nobody in {lacks} did"


def _quoted(words: str) -> str:
    words = _PLACE.sub("", words)
    said = message(words) if " " in message(words) else gist(words)
    return said if len(said) <= QUOTED else said[:QUOTED].rstrip() + "…"


def _uncompared(a: Run, b: Run) -> list[str]:
    said = []
    for one, name in ((a, "A"), (b, "B")):
        if one.heard is None:
            said.append(f"{name} is a document: of its lines, settings and steps only what it quotes is compared.")
        elif not one.heard.whole:
            said.append(f"Not all lines of {name} were read, so no line is said to be missing there.")
        elif one.steps is None:
            said.append(f"The steps of {name} have no times that could be compared.")
    return said
