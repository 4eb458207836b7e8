"""A journal's head -> whether it is a machine's, or what one unit printed: `journalctl -u train >
console.log` is a console."""

from __future__ import annotations

import re
from collections import Counter

from postmortem.system import lazy as late

WITHIN = 1 << 15  # bytes: the first dozen lines of a machine's may well be of one program
_LINE = late.regex(
    rb"(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
    rb"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)) "
    rb"(?!(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL) )(\S+) ([\w./-]{1,48})(?:\[\d+\])?: "
)
_DAEMONS = late.regex(
    rb"kernel|systemd|(?:sys|r)?syslog|sshd?|cron|sudo|su$|dbus|NetworkManager|dhclient|containerd|docker"
    rb"|kubelet|crio|slurm|munge|nvidia|nv-|audit|chronyd|ntpd|polkit|snapd|login|getty|multipath"
    rb"|irqbalance|node_exporter|postfix|puppet|smartd",
    re.IGNORECASE,
)


_IDENTIFIER = late.regex(rb'^SYSLOG_IDENTIFIER=(.{1,200})$|"SYSLOG_IDENTIFIER" ?: ?"([^"\n]{1,200})"', re.MULTILINE)


def of_programs(head: bytes) -> bool:
    """Whether an export, or its JSON, holds what programs printed, and next to nothing of the system's
    daemons."""
    tags = [plain or quoted for plain, quoted in _IDENTIFIER.findall(head)]
    own = [tag for tag in tags if not _DAEMONS.match(tag)]
    return bool(own) and len(own) * 10 >= 9 * len(tags)


def of_unit(head: bytes) -> bool:
    """Whether one program of one host, and no daemon of the system, speaks nearly every line."""
    lines = [line for line in head[:WITHIN].split(b"\n") if line]
    told = [m for line in lines if (m := _LINE.match(line))]
    tags = Counter((m[1], m[2]) for m in told if not _DAEMONS.match(m[2]))
    return bool(tags) and tags.most_common(1)[0][1] * 10 >= 9 * len(lines)
