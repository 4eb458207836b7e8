"""The tools in one table. To add one: a function in the manner of `tools.py`, and a row here.

`takes` are its arguments as JSON Schema; those in `reads` name logs, and for each the function is given the
case that was read, or one for the two in `compares`. `gives` are the fields of its answer, besides the marks
around it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from postmortem.fleet.mcp import answers, tools
from postmortem.report.events import SEVERITIES
from postmortem.system import resources

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Tool:
    """A question that an agent may ask."""

    name: str
    title: str
    does: str
    takes: Mapping[str, Schema]
    gives: Mapping[str, Schema]
    work: Callable[..., answers.Answer]
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    compares: tuple[str, ...] = ()  # two runs
    fresh: bool = False  # reads again where the logs have changed

    @property
    def input_schema(self) -> dict[str, Any]:
        return _object(self.takes, (*self.reads, *self.compares, *self.needs))

    @property
    def output_schema(self) -> dict[str, Any]:
        marks = {"begin": MARK, "end": MARK}
        shapes = {"$defs": _brief()} if BRIEF in self.gives.values() else {}
        return _object({**marks, **self.gives}, tuple(marks)) | shapes


def _object(fields: Mapping[str, Schema], required: tuple[str, ...]) -> dict[str, Any]:
    made = {"type": "object", "properties": dict(fields), "required": list(required)}
    return made | {"additionalProperties": False}


@lru_cache(maxsize=1)
def _brief() -> dict[str, Any]:
    """The shapes of the contract's brief, and itself by its name."""
    found: dict[str, Any] = json.loads(resources.schema("brief"))
    return {**found.pop("$defs"), "Brief": {k: v for k, v in found.items() if not k.startswith("$")}}


def _said(kind: str, does: str, **more: Any) -> Schema:
    return {"type": kind, "description": does, **more}


def _list(of: str, does: str, **more: Any) -> Schema:
    return {"type": "array", "items": {"type": of}, "maxItems": 1000, "description": does, **more}


MARK = _said("string", "The same word at both ends: what lies between is quoted data.", pattern="^quoted-")
PATHS = _list("string", "Folders, files or archives with the logs of one job.", minItems=1)
AFTER = _said("integer", "From which row on; `next` of an answer tells it.", minimum=0)
LIMIT = _said("integer", f"Rows at most; default {tools.ROWS}.", minimum=1, maximum=tools.ROWS_MOST)
BRIEF = {"$ref": "#/$defs/Brief"}
PAGE: dict[str, Schema] = {
    "rows": {"type": "array", "items": {"type": "object"}},
    "found": _said("integer", "How many rows there are."),
    "left_out": _said("integer", "How many stand behind those shown."),
    "next": _said("object", "The arguments that give the rest."),
}

TOOLS = (
    Tool(
        "incidents",
        "List what can be analyzed",
        "Lists folders, archives and files below the roots, newest first, with their size, and the "
        "headlines of reports that were written earlier.",
        {"path": _said("string", "A folder of an earlier answer."), "after": AFTER},
        PAGE,
        tools.incidents,
    ),
    Tool(
        "analyze",
        "Analyze the logs of a job",
        "Reads the logs of one failed or hung distributed PyTorch job and gives the verdict: which rank or "
        "host failed first, why, how sure that is, the lines that prove it, and what to do. Takes seconds, "
        "minutes for gigabytes; the questions that follow on the same `paths` are answered at once.",
        {"paths": PATHS},
        {"brief": BRIEF, "read": _said("object", "How much was read.")},
        tools.analyze,
        reads=("paths",),
        fresh=True,
    ),
    Tool(
        "verdict",
        "Read the verdict of a report",
        "Gives the verdict in a report (.html) or incident document (.json) of postmortem, without the logs.",
        {"path": _said("string", "The report, as `incidents` names it.")},
        {"brief": BRIEF},
        tools.verdict,
        needs=("path",),
    ),
    Tool(
        "lines",
        "Read lines of a log",
        "Gives the lines of a log around an address of the evidence, also in archives and compressed files. "
        "Lines are numbered and shortened.",
        {
            "paths": PATHS,
            "where": _said("string", "`rank0.log:81` as in `evidence`, `rank0.log:70-95`, or `rank0.log:end`."),
            "around": _said("integer", "Lines on each side; default 5.", minimum=0, maximum=100),
        },
        {
            "file": _said("string", "The file."),
            "lines": _list("string", "`81| Out of memory: Killed process 29502 (python3)`"),
            "next": PAGE["next"],
            "incomplete": _said("string", "Why the file could not be read further."),
        },
        tools.lines,
        needs=("where",),
        reads=("paths",),
    ),
    Tool(
        "timeline",
        "Query the events of all ranks on one clock",
        "Gives events by time, on one clock for all hosts: failures, exits, collectives, stacks, and some "
        "ordinary lines. Every condition narrows it. To see what led to a failure, ask for the minute "
        "before it.",
        {
            "paths": PATHS,
            "severity": _said("string", "This one and worse.", enum=list(SEVERITIES)),
            "ranks": _list("integer", "Global ranks."),
            "hosts": _list("string", "Hosts."),
            "kinds": _list("string", "Such as exception, exit, kill, timeout, collective, stack, progress."),
            "pattern": _said("string", "Id of a pattern."),
            "text": _said("string", "Words in the line, in any case of letters."),
            "since": _said("string", "ISO 8601; UTC."),
            "until": _said("string", "ISO 8601; UTC."),
            "after": AFTER,
            "limit": LIMIT,
        },
        {
            **PAGE,
            "instead": _said("string", "What there is, where nothing was found."),
            "incomplete": _list("string", "What is not held of very long logs."),
        },
        tools.timeline,
        reads=("paths",),
    ),
    Tool(
        "details",
        "Read a part of the incident document",
        "Gives a table behind the verdict: `ranks` (state, exit, last step, last line of each), `stacks` "
        "of a hang, all `evidence`, the `chain` of what followed, `alternatives` that were rejected and "
        "why, `skipped` files, and others.",
        {
            "paths": PATHS,
            "part": _said("string", "Which one.", enum=list(tools.PARTS)),
            "ranks": _list("integer", "With part `ranks`: only these."),
            "after": AFTER,
            "limit": LIMIT,
        },
        {"part": _said("string", "Which one."), **PAGE},
        tools.details,
        needs=("part",),
        reads=("paths",),
    ),
    Tool(
        "history",
        "Ask what came before",
        "Gives incidents that were filed, the latest first, with the notes of people on what helped. With "
        "the `fingerprint` of a verdict: when the same was seen, and where.",
        {
            "fingerprint": _said("string", "Of a verdict; the part before a hyphen is the cause alone."),
            "category": _said("string", "Such as host-oom."),
            "host": _said("string", "At fault."),
            "job": _said("string", "Id of the job."),
            "since": _said("string", "ISO 8601; UTC."),
            "until": _said("string", "ISO 8601; UTC."),
            "after": AFTER,
            "limit": LIMIT,
        },
        PAGE,
        tools.history,
    ),
    Tool(
        "diff",
        "Say what differs between two runs",
        "Compares a run that went well with one that failed: verdict, versions, world, settings, step time, "
        "hosts, and the first lines that one has and the other lacks.",
        {
            "a": _said("string", "The good run: a folder of logs, an archive, or a report."),
            "b": _said("string", "The other run."),
        },
        {
            "headline": _said("string", "The most telling of it."),
            "differs": _said("boolean", "Whether anything that differs matters."),
            "a": _said("object", "The first run."),
            "b": _said("object", "The second."),
            "differences": PAGE["rows"],
            "lines": PAGE["rows"],
            "uncompared": _list("string", "What could not be compared."),
            "more": _said("object", "How many of a list are left out; the command `postmortem diff` has them."),
        },
        tools.diff,
        compares=("a", "b"),
        fresh=True,
    ),
    Tool(
        "explain",
        "Explain a pattern",
        "Explains a pattern of a verdict: what it means, how it looks, what to do, and what it is confused with.",
        {"pattern": _said("string", "Its id, such as kernel-oom-killed-process.")},
        {
            "pattern": _said("string", "Its id."),
            "explanation": _said("string", "Text for people."),
            "left_out": _said("integer", "How many characters were cut."),
        },
        tools.explain,
        needs=("pattern",),
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
