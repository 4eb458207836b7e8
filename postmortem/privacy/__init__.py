"""What may leave: secrets are taken out of every document, names on request.

    from postmortem.privacy import Redactor, cut

`anonymise` is a module of its own that only `--anonymise` imports; it comes after redaction.
"""

from postmortem.privacy.cut import cut, may_hold, window
from postmortem.privacy.redact import Redactor

__all__ = ["Redactor", "cut", "may_hold", "window"]
