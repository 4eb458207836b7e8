"""What may leave: secrets are taken out of every document, names on request.

    from postmortem.privacy import Redactor

`anonymise` is a module of its own that only `--anonymise` imports; it comes after redaction.
"""

from postmortem.privacy.redact import Redactor

__all__ = ["Redactor"]
