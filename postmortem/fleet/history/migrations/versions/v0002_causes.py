"""The usual causes of incidents, which one was the true one, and the inputs by which a job is recognized."""

from __future__ import annotations

from alembic import op

from postmortem.fleet.history.schema import inputs, metadata, resolutions, usual

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables. Whoever changes one of them first writes its version 2 out here."""
    metadata.create_all(op.get_bind(), tables=[usual, resolutions, inputs])
