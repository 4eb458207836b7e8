"""Plain types with their constraints in JSON Schema: closed vocabularies, times, counts."""

from __future__ import annotations

from typing import Annotated

from postmortem.model.vocabulary import ACTIONS, CATEGORIES, CAUSES, CLOCK_STATES, DIFFERENCES, LIKELIHOODS

STAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+Z$"

Category = Annotated[str, ("title", "category"), ("enum", CATEGORIES)]
ActionKind = Annotated[str, ("title", "kind of action"), ("enum", ACTIONS)]
CauseId = Annotated[str, ("title", "cause"), ("enum", CAUSES)]
Likelihood = Annotated[str, ("title", "likelihood"), ("enum", LIKELIHOODS)]
Difference = Annotated[str, ("title", "kind of difference"), ("enum", DIFFERENCES)]
ClockState = Annotated[str, ("enum", CLOCK_STATES)]
Time = Annotated[str, ("format", "date-time"), ("pattern", STAMP)]  # ISO 8601, UTC
Count = Annotated[int, ("minimum", 0)]  # of things, and ranks and pids, which are never negative
LineNumber = Annotated[int, ("minimum", 1)]
Seconds = Annotated[float, ("minimum", 0)]
