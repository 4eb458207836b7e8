"""Tables of the store in this version of the program; `migrations/` creates them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

KNOWN = ("0001", "0002")  # versions of the tables, oldest first; a test compares them with migrations/
HEAD = KNOWN[-1]
NAME = String(255)
TIME = String(30)  # ISO 8601 in UTC: sortable as text in every database

metadata = MetaData()


def _columns(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


def _incident(**options: Any) -> Column[Any]:
    return Column("uid", String(64), ForeignKey("incidents.uid", ondelete="CASCADE"), **options)


incidents = Table(
    "incidents",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("filed", TIME, nullable=False, index=True),
    Column("outcome", String(20), nullable=False),
    *_columns(NAME, "category", "pattern", "confidence"),
    Column("headline", Text, nullable=False),
    Column("fingerprint", String(80)),
    Column("cause", String(80), index=True),
    Column("code", NAME),
    Column("job", NAME, index=True),
    Column("world_size", Integer),
    Column("attempts", Integer, nullable=False),
    Column("happened", TIME, index=True),
    *_columns(TIME, "begun", "ended"),
    *_columns(Float, "hours", "lost_rank_hours"),
    *_columns(NAME, "torch", "nccl", "version", "library"),
    *_columns(Text, "report", "logs"),
)

involved = Table(
    "involved",
    metadata,
    _incident(primary_key=True),
    Column("kind", String(10), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("fault", Boolean, nullable=False),
    Index("ix_involved_name", "kind", "name"),
)

usual = Table(  # the rows of the document's `causes`
    "usual",
    metadata,
    _incident(primary_key=True),
    Column("place", Integer, primary_key=True),  # 1 is the first
    Column("cause", NAME, nullable=False),
    Column("title", Text, nullable=False),
)

resolutions = Table(
    "resolutions",
    metadata,
    _incident(primary_key=True),
    Column("cause", NAME, nullable=False),  # the true one
    Column("resolved", TIME, nullable=False),
    Column("author", NAME),
)

inputs = Table(
    "inputs",
    metadata,
    _incident(primary_key=True),
    Column("digest", String(32), primary_key=True),  # of the name and the size of a source
    Index("ix_inputs_digest", "digest"),
)

notes = Table(
    "notes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    _incident(nullable=False, index=True),
    Column("noted", TIME, nullable=False),
    Column("author", NAME),
    Column("text", Text, nullable=False),
)
