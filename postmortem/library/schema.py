"""The vocabularies of `model.py` -> the JSON schema of a pattern file, which editors use for completion.

# yaml-language-server: $schema=../schema.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from postmortem.library.read import EVENT_KINDS, KEYS, LINE
from postmortem.model.vocabulary import (
    ACTIONS,
    AT_HAND,
    CATEGORIES,
    CONDITIONS,
    ENTITIES,
    JOINS,
    LASTS,
    ROLES,
    SEVERITIES,
    STATUSES,
    STRENGTHS,
    SURVIVALS,
    TELLS,
    TOPICS,
)

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
VERSIONS = {
    "type": "object",
    "additionalProperties": TEXT,
    "description": "where this wording holds, e.g. {linux: '>=4.19'}",
}


def _one_of(words: Iterable[str], description: str) -> dict[str, Any]:
    return {"enum": [w for w in words if w], "description": description}


def _some_of(words: Iterable[str], description: str) -> dict[str, Any]:
    word = {"enum": list(words)}
    return {"anyOf": [word, {"type": "array", "items": word}], "description": description}


def _record(required: Iterable[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _example(**more: Any) -> dict[str, Any]:
    return _record([], text=TEXT, source=TEXT, incident=TEXT, because=TEXT, **more)


def _properties() -> dict[str, Any]:
    captures = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
    matching = _example(captures=captures, **{"from": TEXT})
    on = _one_of(EVENT_KINDS, "reads the decisive line of such an event instead of every line")
    here = _one_of((*EVENT_KINDS, LINE), "as the file's own `on`, for this wording; `line` is every line")
    wording = {"regex": TEXT, "gate": TEXT, "since": VERSIONS, "on": here}
    return {
        "id": {
            "type": "string",
            "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$",
            "description": "the file's name; reads as “we saw …”",
        },
        "title": TEXT,
        "status": _one_of(STATUSES, "stable demands an example from a real log or the emitter's format string"),
        "category": {"enum": [*CATEGORIES, None], "description": "what the job died of"},
        "role": _one_of(ROLES, "what a match may claim"),
        "severity": _one_of(SEVERITIES, "how bad the line is"),
        "sources": TEXTS | {"description": "kinds of source the line may stand in; empty = all"},
        "gate": TEXT | {"description": "the cheap superset the scanner looks for; derived from regex otherwise"},
        "regex": TEXT | {"description": "searched in one line, as bytes"},
        "on": on,
        "frame": TEXT
        | {"description": "with on: exception: what the innermost frame has to match, as `file function`"},
        "derived": {"type": "boolean", "description": "found by reasoning over several ranks; has no regex"},
        "strength": _one_of(STRENGTHS, "what a derived finding rests on; a line states it otherwise"),
        "tells": _some_of(TELLS, "what the line tells the reasoning over several ranks"),
        "generic": {"type": "boolean", "description": "gives way to any other name of the same line"},
        "tried_again": TEXT
        | {"description": "what a warning of a retry matches: it accuses only where something failed"},
        "topic": _one_of(TOPICS, "the category is what its own words, or those around it, tell"),
        "survivable": _one_of(SURVIVALS, "harmless where anything goes on after it, or never harmless"),
        "restored_by": TEXT | {"description": "the pattern whose line ends the trouble"},
        "if_last": _one_of(LASTS, "trouble where nothing comes after it"),
        "cause_if": _some_of(CONDITIONS, "a cause under any of these conditions"),
        "cause_if_near": TEXT | {"description": "a cause where a line around it matches this"},
        "reads_as": _record(["id"], id=TEXT, before=VERSIONS)
        | {"description": "another pattern's observation below these versions, or where none is told"},
        "spreads": {"type": "boolean", "description": "reaches all ranks with the next collective"},
        "says_why": {"type": "boolean", "description": "the rank's own word on the reason"},
        "bears_out": _some_of(CATEGORIES, "what others tell of and this line confirms"),
        "names_ranks_of": _one_of(CATEGORIES, "names the ranks where the cause's own line does not"),
        "stands_for": _one_of(CATEGORIES, "the kind of failure, where only this is known of it"),
        "headline": TEXT | {"description": "a sentence with {who}, {code}, {ending} and the captures"},
        "entity": _one_of(ENTITIES, "what the match speaks of"),
        "explains": _list_of(_record(["id", "join"], id=TEXT, join={"enum": list(JOINS)}, within_s={"type": "number"})),
        "since": VERSIONS,
        "variants": _list_of(_record(["regex"], **wording)),
        "what": TEXT | {"description": "one or two sentences for the engineer on call"},
        "why": TEXT | {"description": "what it means for the search for the cause"},
        "actions": _list_of(
            _record(["kind", "text"], kind={"enum": list(ACTIONS)}, text=TEXT, unless={"enum": list(AT_HAND)})
        ),
        "not_to_be_confused_with": TEXT,
        "replay": TEXT | {"description": "the scenario that re-creates it"},
        "references": TEXTS,
        "examples": _record(["match", "no_match"], match=_list_of(matching), no_match=_list_of(_example())),
    }


def pattern_schema() -> dict[str, Any]:
    """Return the JSON schema of one pattern file."""
    properties = _properties()
    if set(properties) != KEYS:
        raise AssertionError(f"schema and loader disagree on {set(properties) ^ KEYS}")
    schema = _record(["id", "title", "role", "what", "why", "examples"], **properties)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pattern of postmortem",
    } | schema


def text() -> str:
    """Return the schema as it is committed."""
    return json.dumps(pattern_schema(), indent=1, ensure_ascii=False) + "\n"
