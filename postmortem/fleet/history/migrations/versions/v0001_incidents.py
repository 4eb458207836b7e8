"""Incidents, the hosts and GPUs of their jobs, and notes."""

from __future__ import annotations

from alembic import op

from postmortem.fleet.history.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables. Whoever adds version 2 first writes the tables of version 1 out here."""
    metadata.create_all(op.get_bind())
