"""Private keys in PEM: where the lines of one begin and end, of which a log may show only a part.

[rank0]: -----BEGIN RSA PRIVATE KEY-----
[rank0]: MIIEpAIBAAKCAQEA1c7...
[rank0]: -----END RSA PRIVATE KEY-----
"""

from __future__ import annotations

from postmortem.system import lazy as late

BEGIN = late.regex(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
END = late.regex(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
BODY = late.regex(r"(?:^|[\s:>|\]])(?:[A-Za-z0-9+/]{16,}={0,2}|\[REDACTED:private-key:\d+\])\s*$")
TAIL = late.regex(r"(?:^|[\s:>|\]])[A-Za-z0-9+/]{1,64}={0,2}\s*$")
HEADER = late.regex(r"\s*(?:Proc-Type|DEK-Info|Version|Comment): ")
# A line of a key whose first and last lines are not in sight: 64 characters, 70 in ssh's own form.
LONE_LENGTH = 64
LONE = late.regex(
    r"(?m)(?:^|[\s:>|\]])(?P<s>(?=[^\n]{0,63}[a-z])(?=[^\n]{0,63}[A-Z])(?=[^\n]{0,63}\d)"
    r"[A-Za-z0-9+/]{64}(?:[A-Za-z0-9+/]{6})?)[ \t]*$"
)
_NOT_LONE = frozenset(" \t:.,;()[]{}<>'\"_-=")
MAX_LINES = 400  # an RSA-16384 key has 200


def may_have_lone(text: str) -> bool:
    """A cheap look: most lines of a log have a blank among their last 64 characters."""
    if "\n" in text:
        return any(map(_may_be_lone, text.split("\n")))
    return " " not in text[-LONE_LENGTH:] and _may_be_lone(text)


def _may_be_lone(text: str) -> bool:
    return len(text) >= LONE_LENGTH and _NOT_LONE.isdisjoint(text[-LONE_LENGTH:].rstrip())


def body_end(lines: list[str], at: int) -> int:
    """Return the line after a key's body:
    the END line if there is one, else where the lines stop to look like a key."""
    for end in range(at, min(at + MAX_LINES, len(lines))):
        if END.search(lines[end]):
            return end
    while at < len(lines) and (BODY.search(lines[at]) or HEADER.match(lines[at]) or not lines[at].strip()):
        at += 1
    return at


def body_start(lines: list[str], end: int) -> int:
    """Return the first line of a key's body whose BEGIN line is cut off. Its last line may be short."""
    at = end
    while at > max(0, end - MAX_LINES) and (BODY.search(lines[at - 1]) or (at == end and TAIL.search(lines[at - 1]))):
        at -= 1
    return at
