"""The regexes of data files, for parsers; see `system.forms`."""

from postmortem.system.forms import Form, regexes, rows

__all__ = ["Form", "regexes", "rows"]
