"""Whether two names mean one thing: hosts, GPUs, and the files of one process."""

from __future__ import annotations

import re
from functools import lru_cache

_STEM = re.compile(
    r"(?:\.|_|-)?(?:std)?(?:out|err|log)$|\.(?:log|txt|out|err|stdout|stderr|jsonl?|ndjson|console)$"
    r"|\.(?:gz|xz|bz2|zstd?)$|(?<=\.(?:log|txt|out|err))\.\d{1,3}$"  # compressed, rotated
)


def same_host(a: str | None, b: str | None) -> bool:
    """Whether two names mean one host: node7 and node7.cluster.local do."""
    return a is not None and b is not None and (a == b or a.split(".")[0] == b.split(".")[0] and not a[:1].isdecimal())


@lru_cache(maxsize=1 << 15)
def stem(path: str) -> str:
    """`proc1.err` and `proc1.out` are two streams of one process."""
    previous = None
    while previous != path:
        previous, path = path, _STEM.sub("", path)
    return path


def bus_key(text: str) -> str:
    """NCCL's busId 56000 and the kernel's 0000:56:00 are one GPU: compare bus and device only."""
    digits = text.lower().split(".")[0]
    if ":" in digits:
        parts = [p for p in digits.split(":") if p]
        return "".join(parts[-2:]).lstrip("0")
    return digits[:-1].lstrip("0") if len(digits) > 1 else digits
