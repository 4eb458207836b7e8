r"""An export of records as one JSON document: the lines of each record, and their line numbers in the file.

[\n  {\n    "timestamp": "...",\n    "textPayload": "[rank1]: ValueError: ..."\n  },   gcloud logging read
{"events": [{"timestamp": 1795331121352, "message": "..."}, ...]}                      aws logs get-log-events
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain

from postmortem.formats import plain_json, records
from postmortem.formats.framing import Group, Logical, Numbered

TRIES = 20_000  # objects without a record, after which a document is given up
MOST_OUTSIDE = 400  # characters outside of objects at the begin of a document
EFFORT = 6  # times the size of a document that may be read: an object that contains records is read twice
HELD = 32 << 20  # of an export that is read whole
_OPENS = re.compile(r"\s*(?:\[\s*)?\{\s*\"[^\"\\\n]{1,80}\"\s*:")


def looks(text: str) -> bool:
    """Whether a file begins like such a document: with a record, and with little text outside of objects."""
    return _OPENS.match(text) is not None and next(groups(text), None) is not None and _is_whole(text)


def _is_whole(text: str) -> bool:
    """Whether objects follow each other. A log with some JSON has lines between the objects."""
    decoder = json.JSONDecoder(strict=False)
    at = outside = 0
    while (begins := text.find("{", at)) >= 0 and outside < MOST_OUTSIDE:
        outside += len(text[at:begins].strip(" \t\r\n,[]"))
        try:
            at = decoder.raw_decode(text, begins)[1]
        except (ValueError, RecursionError):
            return True  # the text ends inside the object that contains the others
    return outside + len(text[at:].strip(" \t\r\n,[]")) < MOST_OUTSIDE


def document(lines: Iterator[Numbered]) -> Iterator[Group]:
    """Records over several lines each: an array, objects one after another, or one object that contains them."""
    held: list[Numbered] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line[1]) + 1
        if size > HELD:
            break
    try:
        whole = plain_json.bounded("\n".join(text for _, text in held)) if size <= HELD else ""
    except plain_json.TooMuch:
        whole = ""
    yield from groups(whole) if whole else ([Logical(*line)] for line in chain(held, lines))


def groups(text: str) -> Iterator[Group]:
    """The lines of each record, with the number of the file's line."""
    decoder = json.JSONDecoder(strict=False)
    at = seen = tries = effort = 0
    number = 1
    while (at := text.find("{", at)) >= 0 and tries < TRIES and effort < EFFORT * len(text) + 1000:
        number, seen = number + text.count("\n", seen, at), at
        try:
            record, end = decoder.raw_decode(text, at)
            record = plain_json.without_surrogates(record, text[at:end])
        except (ValueError, RecursionError):
            tries, effort, at = tries + 1, effort + min(len(text) - at, 1 << 16), at + 1
            continue
        effort += end - at
        if records.body_of(record) is not None:
            yield list(_lines(record, text, at, end, number))
        elif any(isinstance(value, dict | list) for value in record.values()):
            tries, end = tries + 1, at + 1
        at = end


def _lines(record: records.Record, text: str, at: int, end: int, number: int) -> Iterator[Logical]:
    facts = records.facts(record)
    known: dict[str, int] = {}
    for line in records.texts(record):
        if line.field not in known:
            place = text.find(f'"{line.field}"', at, end)
            known[line.field] = number + text.count("\n", at, place) if place >= 0 else number
        yield Logical(known[line.field], line.text, facts, line.lead)
