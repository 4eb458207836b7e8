"""Run by alembic: the steps, on the open connection and transaction of the store."""

from __future__ import annotations

from alembic import context

from postmortem.fleet.history.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
