r"""An export of records as one JSON document -> the lines of each record, and where in the file they stand.

[\n  {\n    "timestamp": "...",\n    "textPayload": "[rank1]: ValueError: ..."\n  },   gcloud logging read
{"events": [{"timestamp": 1795331121352, "message": "..."}, ...]}                      aws logs get-log-events
{"cells": [{"outputs": [{"name": "stderr", "text": ["...\\n", ...]}]}]}                 a notebook that was run
{"data": {"result": [{"stream": {...}, "values": [["1795...", "..."]]}]}}              Loki's query_range
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from postmortem.formats import records
from postmortem.formats.marks import NOTHING, Facts
from postmortem.formats.plain_json import of_whole_letters

TRIES = 20_000  # objects that hold no record: a document that is something else is given up
MOST_OUTSIDE = 400  # characters of a head that may stand outside of objects
EFFORT = 6  # times the document's size may be read, because an object that holds records is read, and they once more
_OPENS = re.compile(r"\s*(?:\[\s*)?\{\s*\"[^\"\\\n]{1,80}\"\s*:")
_NANO = re.compile(r"\d{10,19}", re.ASCII)

Line = tuple[int, str, Facts, str]


def looks(text: str) -> bool:
    """Whether a head is that of such a document: a record is in it, and little stands outside of objects."""
    return _OPENS.match(text) is not None and next(groups(text), None) is not None and _is_whole(text)


def _is_whole(text: str) -> bool:
    """Whether objects follow each other. The log of a program that printed a few has lines between them."""
    decoder = json.JSONDecoder(strict=False)
    at = outside = 0
    while (begins := text.find("{", at)) >= 0 and outside < MOST_OUTSIDE:
        outside += len(text[at:begins].strip(" \t\r\n,[]"))
        try:
            at = decoder.raw_decode(text, begins)[1]
        except (ValueError, RecursionError):
            return True  # the head ends inside the object that holds the others
    return outside + len(text[at:].strip(" \t\r\n,[]")) < MOST_OUTSIDE


def groups(text: str) -> Iterator[list[Line]]:
    """The lines of each record, with the number of the file's line."""
    decoder = json.JSONDecoder(strict=False)
    at = seen = tries = effort = 0
    number = 1
    while (at := text.find("{", at)) >= 0 and tries < TRIES and effort < EFFORT * len(text) + 1000:
        number, seen = number + text.count("\n", seen, at), at
        try:
            record, end = decoder.raw_decode(text, at)
            record = of_whole_letters(record, text[at:end])
        except (ValueError, RecursionError):
            tries, effort, at = tries + 1, effort + min(len(text) - at, 1 << 16), at + 1
            continue
        effort += end - at
        if records.body_of(record) is not None:
            yield list(_lines(record, text, at, end, number))
        elif isinstance(record.get("output_type"), str):
            yield list(_printed(record, text, at, end, number))
        elif isinstance(record.get("values"), list) and isinstance(record.get("stream"), dict):
            yield from _stream(record, text, at, end, number)
        elif _holds_records(record):
            tries, end = tries + 1, at + 1
        at = end


def _holds_records(record: dict[str, Any]) -> bool:
    return any(
        isinstance(value, dict) or isinstance(value, list) and value and isinstance(value[0], dict)
        for value in record.values()
    )


def _lines(record: dict[str, Any], text: str, at: int, end: int, number: int) -> Iterator[Line]:
    facts = records.facts(record)
    known: dict[str, int] = {}
    for line in records.texts(record):
        if line.field not in known:
            place = text.find(f'"{line.field}"', at, end)
            known[line.field] = number + text.count("\n", at, place) if place >= 0 else number
        yield known[line.field], line.text, facts, line.lead


def _printed(record: dict[str, Any], text: str, at: int, end: int, number: int) -> Iterator[Line]:
    """What a cell of a notebook printed, or the traceback that it ended with: nbformat has each line as one
    string of a list."""
    for field in ("text", "traceback"):
        lines = record.get(field)
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            continue
        place = text.find(f'"{field}"', at, end)
        first = number + (text.count("\n", at, place) if place >= 0 else 0) + 1
        for apart, line in enumerate(lines):
            for part in line.rstrip("\n").split("\n"):
                yield first + apart, part, NOTHING, ""


def _stream(record: dict[str, Any], text: str, at: int, end: int, number: int) -> Iterator[list[Line]]:
    """Loki's: labels, and pairs of nanoseconds and a line."""
    seen = at
    for pair in record["values"]:
        if not (isinstance(pair, list) and len(pair) > 1 and isinstance(pair[1], str)):
            continue
        if (place := text.find(f'"{pair[0]}"', seen, end)) >= 0:
            number, seen = number + text.count("\n", seen, place), place
        said = {"labels": record["stream"], "time": pair[0], "line": pair[1]}
        facts = records.facts(said)
        yield [(number, line.text, facts, line.lead) for line in records.texts(said)]
