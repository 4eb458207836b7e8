"""Worlds with known clocks: events and log folders whose truth stands beside them, never inside."""
