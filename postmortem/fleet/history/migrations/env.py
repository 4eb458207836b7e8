"""What alembic runs: the steps, on the connection and in the transaction that the store has open."""

from __future__ import annotations

from alembic import context

from postmortem.fleet.history.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
