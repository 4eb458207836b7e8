"""Document -> the statements in it that contradict another one, or that lack their ground.

    rank 9 of a job of 8        stated 2 times: Rank 3 was killed.        no reason is given for an incident

Every statement is made from one diagnosis, so each is a defect of ours. `--verbose` prints them; tests demand none.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from postmortem.model.vocabulary import OF_THE_GROUP

_CUT = re.compile(r"… \(\+\d")  # how a list or a text that is too long ends
_SILENT = "no line in these logs is known to be its own"
_UNKNOWN = "the cause is not in these logs"
_NOBODY = re.compile(r"\bthis (?:rank|process|host|GPU)\b")
_FATE = re.compile(r"\b[Rr]anks? ([\d, –]+(?: and \d+)?) (timed out|lost the connection)")
_REASONLESS = re.compile(r"printed no (?:reason|error)|without a reason")


def contradictions(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each. The document need not be ours: keys of any version are read with care."""
    for check in (_grounds, _ranks, _collective, _repeated, _times, _zones, _reasons, _fates, of_causes):
        yield from check(document)


def _grounds(document: Mapping[str, Any]) -> Iterator[str]:
    """Statements that each outcome must make, and those that it must not."""
    verdict = document["verdict"]
    culprit = verdict["culprit"]
    if verdict["outcome"] == "incident" and not verdict["because"]:
        yield "no reason is given for an incident"
    if verdict["outcome"] == "undetermined" and not verdict["missing"]:
        yield "undetermined, and nothing is missing"
    if verdict["outcome"] == "healthy" and (culprit["ranks"] or verdict["category"]):
        yield "healthy, with a category or a culprit"
    named = all(re.search(rf"\b{re.escape(str(rank))}\b", verdict["headline"]) for rank in culprit["ranks"])
    if _UNKNOWN in verdict["headline"] and not named:  # only the writer of the complaint itself
        yield f"the cause is not known, and ranks {culprit['ranks']} are culprits"
    if verdict["confidence"] == "established" and verdict["category"] in OF_THE_GROUP and not any(culprit.values()):
        yield "established, and no rank is at fault"


def _ranks(document: Mapping[str, Any]) -> Iterator[str]:
    """Ranks that the job does not have, or that are on two hosts; states against the processes' rows."""
    verdict, world = document["verdict"], document["job"]["world_size"]
    hosts = {row["rank"]: row["host"] for row in document["ranks"]}
    for rank in (*verdict["culprit"]["ranks"], *hosts):
        if world is not None and rank >= world:
            yield f"rank {rank} of a job of {world}"
    for row in (*document["chain"], *document["findings"]):
        who = row["entity"]
        host = hosts.get(who.get("rank"))
        if host is not None and who.get("host", host) != host:
            yield f"{row['pattern']}: rank {who['rank']} is on {host}, not on {who['host']}"
    for row in document["ranks"]:
        if row["state"] == "cause" and row["rank"] not in verdict["culprit"]["ranks"]:
            yield f"rank {row['rank']} is a cause and no culprit"
        if row["state"] == "silent" and row["why"] == _SILENT and row["last_line"]:
            yield f"rank {row['rank']} has no line, and its last line is {row['last_line']}"


def _collective(document: Mapping[str, Any]) -> Iterator[str]:
    """Ranks that both had and had not entered a collective, or that are not in the job."""
    row = document["verdict"].get("collective")
    if row is not None:
        named = [*row["entered"], *row["missing"], *map(int, row["elsewhere"])]
        world = document["job"]["world_size"]
        yield from (f"rank {r} is listed {n} times" for r, n in Counter(named).items() if n > 1)
        yield from (f"rank {r} of a job of {world}" for r in named if world is not None and r >= world)


def _repeated(document: Mapping[str, Any]) -> Iterator[str]:
    """Sentences that occur twice or are cut, and findings that do."""
    verdict, chain = document["verdict"], document["chain"]
    rows = [(row["pattern"], row["role"], json.dumps(row["entity"], sort_keys=True)) for row in chain]
    for repeated, times in (*Counter(verdict["because"]).items(), *Counter(rows).items()):
        if times > 1:
            yield f"stated {times} times: {repeated}"
    for text in (verdict["headline"], *verdict["because"], *(row["because"] for row in chain)):
        if _CUT.search(text):
            yield f"cut: {text}"


def _times(document: Mapping[str, Any]) -> Iterator[str]:
    """Times of findings that are not those of their lines."""
    evidence = document["verdict"]["evidence"]
    for row in (*document["chain"], *document["findings"]):
        shown = [evidence[n]["time"] for n in row["evidence"]]
        if shown and row["time"] != next((t for t in shown if t), None):
            yield f"{row['pattern']} at {row['time']}, its lines at {shown}"


def _zones(document: Mapping[str, Any]) -> Iterator[str]:
    """A time zone in a request for evidence, where no stamp has one."""
    naive = [c for c in document["clocks"] if c["kind"] == "naive" and c["zone_s"] is None]
    if document["clocks"] and len(naive) == len(document["clocks"]):
        yield from (
            f"asks for {m['what']}, and no zone is known" for m in document["verdict"]["missing"] if " UTC" in m["how"]
        )


def _fates(document: Mapping[str, Any]) -> Iterator[str]:
    """A headline about `this rank` without a rank, and reasons with other ranks than the headline."""
    verdict = document["verdict"]
    if m := _NOBODY.search(re.split(r" \(|: ", verdict["headline"])[0]):
        yield f"the headline is about {m[0]}"
    fates = {m[2]: m[1] for m in _FATE.finditer(verdict["headline"])}
    for m in (m for reason in verdict["because"] for m in _FATE.finditer(reason)):
        if fates.get(m[2], m[1]) != m[1]:
            yield f"{fates[m[2]]} {m[2]} in the headline, {m[1]} in a reason"


def _reasons(document: Mapping[str, Any]) -> Iterator[str]:
    """A process that is reported to have printed no reason, with an error of its own in the table."""
    verdict = document["verdict"]
    if _REASONLESS.search(verdict["headline"]):
        for row in document["processes"]:
            if row["rank"] in verdict["culprit"]["ranks"] and row["rank"] is not None and row["error"]:
                yield f"rank {row['rank']} printed no reason, and an error at {row['error']}"


def of_causes(document: Mapping[str, Any]) -> Iterator[str]:
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
