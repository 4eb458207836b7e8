"""Private keys in PEM: where the lines of one begin and end, of which a log may show only a part.

[rank0]: -----BEGIN RSA PRIVATE KEY-----
[rank0]: MIIEpAIBAAKCAQEA1c7...
[rank0]: -----END RSA PRIVATE KEY-----
"""

from __future__ import annotations

from postmortem.system import forms

_REGEXES = forms.regexes("privacy/pem")
BEGIN, END, LONE = (_REGEXES[name] for name in ("begin", "end", "lone"))
LONE_LENGTH = 64
MAX_LINES = 400  # an RSA-16384 key has 200
_NOT_LONE = frozenset(" \t:.,;()[]{}<>'\"_-=")


def may_have_lone(text: str) -> bool:
    """A quick check for LONE: most lines of a log have a blank among their last 64 characters."""
    if "\n" in text:
        return any(map(_may_be_lone, text.split("\n")))
    return " " not in text[-LONE_LENGTH:] and _may_be_lone(text)


def _may_be_lone(text: str) -> bool:
    return len(text) >= LONE_LENGTH and _NOT_LONE.isdisjoint(text[-LONE_LENGTH:].rstrip())


def body_end(lines: list[str], at: int) -> int:
    """Return the line after a key's body: the END line, or the first line that does not look like a key."""
    for end in range(at, min(at + MAX_LINES, len(lines))):
        if END.search(lines[end]):
            return end
    while at < len(lines) and (_is_body(lines[at]) or _REGEXES["header"].match(lines[at]) or not lines[at].strip()):
        at += 1
    return at


def body_start(lines: list[str], end: int) -> int:
    """Return the first line of a key's body whose BEGIN line is cut off. Its last line may be short."""
    at = end
    while at > max(0, end - MAX_LINES):
        if not (_is_body(lines[at - 1]) or (at == end and _REGEXES["tail"].search(lines[at - 1]))):
            break
        at -= 1
    return at


def _is_body(line: str) -> bool:
    return _REGEXES["body"].search(line) is not None
