"""Worlds with known clocks: events and log folders with their truth beside them, never inside."""
