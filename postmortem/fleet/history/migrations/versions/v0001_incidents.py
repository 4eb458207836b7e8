"""Incidents, the hosts and GPUs of their jobs, and notes."""

from __future__ import annotations

from alembic import op

from postmortem.fleet.history.schema import incidents, involved, metadata, notes

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables. Whoever changes one of them first writes its version 1 out here."""
    metadata.create_all(op.get_bind(), tables=[incidents, involved, notes])
