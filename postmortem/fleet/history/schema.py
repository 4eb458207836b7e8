"""The tables of the store, as this version of the program knows them; `migrations/` makes them."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

KNOWN = ("0001",)  # versions of the tables, oldest first; a test compares them with migrations/
HEAD = KNOWN[-1]
TIME = String(30)  # ISO 8601 in UTC: it sorts, every database has it, and people read it

metadata = MetaData()

incidents = Table(
    "incidents",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("filed", TIME, nullable=False, index=True),
    Column("outcome", String(20), nullable=False),
    Column("category", String(255)),
    Column("pattern", String(255)),
    Column("confidence", String(255)),
    Column("headline", Text, nullable=False),
    Column("fingerprint", String(80)),
    Column("cause", String(80), index=True),
    Column("code", String(255)),
    Column("job", String(255), index=True),
    Column("world_size", Integer),
    Column("attempts", Integer, nullable=False),
    Column("happened", TIME, index=True),
    Column("begun", TIME),
    Column("ended", TIME),
    Column("hours", Float),
    Column("lost_rank_hours", Float),
    Column("torch", String(255)),
    Column("nccl", String(255)),
    Column("version", String(255)),
    Column("library", String(255)),
    Column("report", Text),
    Column("logs", Text),
)

involved = Table(
    "involved",
    metadata,
    Column("uid", String(64), ForeignKey("incidents.uid", ondelete="CASCADE"), primary_key=True),
    Column("kind", String(10), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("fault", Boolean, nullable=False),
    Index("ix_involved_name", "kind", "name"),
)

notes = Table(
    "notes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("uid", String(64), ForeignKey("incidents.uid", ondelete="CASCADE"), nullable=False, index=True),
    Column("noted", TIME, nullable=False),
    Column("author", String(255)),
    Column("text", Text, nullable=False),
)
