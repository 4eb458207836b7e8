"""The end of an analysis: file its verdict, and add to the document how often the failure was seen before.

An error of the store prints a warning and takes a few seconds at most; the verdict and the exit code are unaffected.

`postmortem run` files a run that ended well, the hours of its hosts, from its journal. The logs are not read: the run
is healthy by its exit code, or recovered if ranks were restarted. The tasks of one Slurm step share a row, to which
each adds its host; each host of another launcher has its own row, since nothing proves that they are one job.

A store without names has pseudonyms, made of the name and a key (`gpu-017` -> `host-8213377046`): a host has the same
one in every incident, and names cannot be tried without the key, which is beside the SQLite file (`fleet.db.key`) or
where POSTMORTEM_HISTORY_KEY points.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from postmortem.errors import HistoryError, UsageError, ours
from postmortem.fleet.history.place import Place, place
from postmortem.fleet.history.rows import Involved, Row, clean, count, hours, moment, row
from postmortem.model.fingerprint import marked
from postmortem.privacy.anonymize import Anonymizer, learn
from postmortem.report import view
from postmortem.report.text import line
from postmortem.system import output
from postmortem.version import __version__

PATIENCE_S = 10.0


Counts = Mapping[str, Mapping[str, int]]  # by category and cause


def counts(where: str) -> Counts:
    """Return how often each usual cause was the true one here; nothing where that cannot be read: filing says why."""
    try:
        from postmortem.fleet.history.store import opened

        with opened(where, reads=True, patience=PATIENCE_S) as store:
            from postmortem.fleet.history import resolved

            return resolved.counts(store)
    except Exception:  # an old or a new store; the verdict must still be printed
        return {}


def filed(
    incident: Any, where: str, report: Path | None, paths: Sequence[str], hide: bool, known: Counts | None = None
) -> Any:
    """File the incident. Return it with `history` in its document; unchanged if filing failed. `known` are the counts
    by which its usual causes were weighed."""
    try:
        of_category = (known or {}).get(incident.document["verdict"]["category"] or "", {})
        found = _filed(incident.document, where, report, paths, hide, sum(of_category.values()))
        return replace(incident, document=found)
    except HistoryError as error:
        output.say(f"postmortem: not filed in the history: {line(error.message)}")
        output.say(f"  {line(error.hint)}")
    except Exception as error:  # the verdict must still be printed
        output.say(f"postmortem: not filed in the history: {line(ours(error))}")
    return incident


def _filed(
    document: Mapping[str, Any], where: str, report: Path | None, paths: Sequence[str], hide: bool, count: int
) -> dict[str, Any]:
    from postmortem.fleet.history.store import opened

    at = place(where)
    warn_of_network(at)
    target, logs, real = str(report.absolute()) if report else "", " ".join(paths), dict[str, str]()
    if hide:
        names = Keyed(key(at))
        own = row(hidden(document, names), names.path(target), " ".join(map(names.path, logs.split())))
        real = {names.text(host): host for host in document["verdict"]["culprit"]["hosts"]}
    else:
        own = row(document, target, logs)
    with opened(where, make=True, patience=PATIENCE_S) as store:
        from postmortem.fleet.history import resolved

        changed = resolved.changed(store, own)
        store.file(own)
        found = store.seen(own.uid, own.cause)
    if changed:
        found["changes"] = changed
    if count and document.get("causes"):
        found["resolved"] = count
    if "host" in found:
        found["host"] = real.get(found["host"], found["host"])
    return {**document, "history": found}


def warn_of_network(at: Place) -> None:
    """Warn if the store is a file on a network file system."""
    if at.network:
        output.say(
            f"postmortem: {at.shown} is on {at.network}, where SQLite is not safe for writers on several hosts; "
            "use a PostgreSQL URL, or write --format json there and file the documents from one host "
            "(postmortem history add)"
        )


# ── runs that ended well ────────────────────────────────────────────────────────────────────────────────────

JOURNAL = "run.jsonl"
LONGEST = 1 << 16  # bytes of a record


def row_of_run(path: Path, names: Anonymizer | None = None) -> Row | None:
    """Return the row of a run; None for one that did not end well. `names` replaces its host."""
    first, last = _ends(path)
    begun, ended, host = moment(first.get("time")), moment(last.get("time")), clean(first.get("host"))
    well = first.get("event") == "run" and last.get("event") == "done" and last.get("code") == 0
    if not well or last.get("signal") or not host or not begun or not ended:
        return None
    slurm, ranks = view.part(first, "slurm"), view.part(last, "ranks")
    job, step = clean(slurm.get("job")), clean(slurm.get("step"))
    here, world, attempts = (count(ranks.get(name)) for name in ("here", "world", "lives"))
    key: list[Any] = [job, step, clean(slurm.get("restart"))] if job and step else [host, begun, first.get("pid")]
    restarted = (attempts or 1) > 1
    if names is not None:
        names.learn(host, "host")
        host = names.text(host)
    return Row(
        uid=hashlib.sha256(json.dumps(["run", *key]).encode()).hexdigest(),
        outcome="recovered" if restarted else "healthy",
        headline="Ended with exit code 0" + (f" in attempt {attempts}." if restarted else "."),
        attempts=attempts or 1,
        job=job,
        world_size=world if step or world == here else None,  # a part of a job has not the size of the job
        happened=ended,
        begun=begun,
        ended=ended,
        hours=hours(begun, ended),
        lost_rank_hours=None if restarted else 0.0,
        version=__version__,
        involved=(Involved("host", host, False),),
    )


def _ends(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first and the last record."""
    try:
        with path.open("rb") as file:
            first = file.readline(LONGEST)
            file.seek(max(0, path.stat().st_size - LONGEST))
            lines = file.read(LONGEST).splitlines() or [b""]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name a journal of `postmortem run`") from None
    return _record(first), _record(lines[-1])


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# ── pseudonyms ──────────────────────────────────────────────────────────────────────────────────────────────

VARIABLE = "POSTMORTEM_HISTORY_KEY"
DIGITS = 10  # two of 10,000 hosts share a pseudonym in one fleet of 200


class Keyed(Anonymizer):
    """Pseudonyms that are the same in all incidents."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def _name(self, kind: str, key: str) -> str:
        digest = hmac.digest(self._key, f"{kind}:{key}".encode("utf-8", "backslashreplace"), "sha256")
        return self._names.setdefault((kind, key), f"{kind}-{int.from_bytes(digest) % 10**DIGITS:0{DIGITS}d}")


def key(at: Place) -> bytes:
    """Return the key of the store. Create a missing one, readable for its owner and group."""
    named, hint = os.environ.get(VARIABLE), f"name another: {VARIABLE}=FILE"
    if not named and at.file is None:
        raise HistoryError(
            "--anonymize needs a key for a history in PostgreSQL", f"name a file of yours: {VARIABLE}=FILE"
        )
    path = Path(named) if named else Path(f"{at.file}.key")
    try:
        if not path.exists():
            _create(path)
        found = path.read_bytes().strip()
    except OSError as error:
        raise HistoryError(f"the key {path} cannot be read: {error.strerror}", hint) from None
    if len(found) < 32:
        raise HistoryError(f"the key {path} is too short", f"remove it, or {hint}")
    return found


def _create(path: Path) -> None:
    """Write a new key as a whole; the first of several concurrent writers wins."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    beside.touch(0o640, exist_ok=False)
    beside.write_text(secrets.token_hex(32) + "\n")
    try:
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink()


def hidden(document: Any, names: Anonymizer) -> Any:
    """Return the document with pseudonyms. Its own fields suffice, since the store has no lines of logs."""
    learn(document, names)
    cleaned = names.document(document)
    cause, _, mark = str(document.get("fingerprint") or "").partition("-")
    if mark:  # the hash of a host name can be reversed by trying all names
        culprit = cleaned["verdict"]["culprit"]
        cleaned["fingerprint"] = marked(cause, [*culprit["hosts"], *culprit["gpus"]])
    return cleaned
