"""Secrets are removed from every document, names on request.

    from postmortem.privacy import Redactor, cut

Only `--anonymise` imports `anonymize`, which comes after redaction.
"""

from postmortem.privacy.cut import cut, may_hold, window
from postmortem.privacy.redact import Redactor

__all__ = ["Redactor", "cut", "may_hold", "window"]
