"""Incidents, the hosts and GPUs that had a part in them, and people's notes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
TIME = sa.String(30)


def upgrade() -> None:
    """Make the tables of the first version; a step is never changed once it is released."""
    op.create_table(
        "incidents",
        sa.Column("uid", sa.String(64), primary_key=True),
        sa.Column("filed", TIME, nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("category", sa.String(255)),
        sa.Column("pattern", sa.String(255)),
        sa.Column("confidence", sa.String(255)),
        sa.Column("headline", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.String(80)),
        sa.Column("cause", sa.String(80)),
        sa.Column("code", sa.String(255)),
        sa.Column("job", sa.String(255)),
        sa.Column("world_size", sa.Integer),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("happened", TIME),
        sa.Column("begun", TIME),
        sa.Column("ended", TIME),
        sa.Column("hours", sa.Float),
        sa.Column("lost_rank_hours", sa.Float),
        sa.Column("torch", sa.String(255)),
        sa.Column("nccl", sa.String(255)),
        sa.Column("version", sa.String(255)),
        sa.Column("library", sa.String(255)),
        sa.Column("report", sa.Text),
        sa.Column("logs", sa.Text),
    )
    for name in ("filed", "cause", "job", "happened"):
        op.create_index(f"ix_incidents_{name}", "incidents", [name])
    op.create_table(
        "involved",
        sa.Column("uid", sa.String(64), sa.ForeignKey("incidents.uid", ondelete="CASCADE"), primary_key=True),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("fault", sa.Boolean, nullable=False),
    )
    op.create_index("ix_involved_name", "involved", ["kind", "name"])
    op.create_table(
        "notes",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("uid", sa.String(64), sa.ForeignKey("incidents.uid", ondelete="CASCADE"), nullable=False),
        sa.Column("noted", TIME, nullable=False),
        sa.Column("author", sa.String(255)),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("ix_notes_uid", "notes", ["uid"])
