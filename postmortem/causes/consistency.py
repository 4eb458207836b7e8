"""Document -> the signs of its usual causes that another part of it contradicts. Each is a defect of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any


def contradictions(document: Mapping[str, Any]) -> Iterator[str]:
    """Usual causes with a sign that another part of the document contradicts, or a line of a file that was not read."""
    rows, known = document.get("causes", ()), {row["path"] for row in document["sources"]}
    yield from (f"the cause {i} is listed {n} times" for i, n in Counter(row["id"] for row in rows).items() if n > 1)
    for row in rows:
        for sign in (*row["for"], *row["against"]):
            if sign["source"] is not None and sign["source"] not in known:
                yield f"{row['id']}: {sign['source']} is not a source"
            if _contradicted(document, sign["fact"], sign["value"]):
                yield f"{row['id']}: {sign['text']}, and the document shows otherwise"


def _contradicted(document: Mapping[str, Any], fact: str, value: object) -> bool:
    """Whether the tables of the document contradict the value of a fact."""
    ranks, processes = document["verdict"]["culprit"]["ranks"], document["processes"]
    stuck = document["verdict"].get("collective") or {}
    stepped = any((row["last_step"] or 0) > 1 for row in processes)
    against = {
        ("affected", "one"): len(ranks) != 1,
        ("affected", "several"): len(ranks) < 2,
        ("affected", "all"): bool(ranks) and (document["job"]["world_size"] or 0) > len(ranks),
        ("phase", "before-steps"): stepped,
        ("phase", "start"): stepped,
        ("first-collective", True): stepped or any(n > 0 for n in stuck.get("completed", {}).values()),
        ("finished", "some"): bool(processes) and not any(row["finished"] for row in processes),
        ("kernel-log", "here"): not any(row["kind"] == "kernel" for row in document["sources"]),
    }
    return against.get((fact, value), False)
