"""The shapes for programs: the incident document, its brief, a row of its events, and a comparison of
two runs, as plain types.

    from postmortem.model.contract import Document      # a TypedDict, for type checkers and editors
    postmortem schema incident                    # the same as JSON Schema

The docstring of each field states its meaning, its unit, and when it is null. `scripts/contract.py` writes `schemas/`
and the tables of `docs/contract.md` from these words.
"""

from postmortem.model.contract.brief import Brief
from postmortem.model.contract.comparison import Comparison
from postmortem.model.contract.event import EventRow
from postmortem.model.contract.incident import Document

__all__ = ["Brief", "Comparison", "Document", "EventRow"]
