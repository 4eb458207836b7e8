"""`postmortem collect`: the archive, its index, the table, the exit code.

    execute(Path("evidence.tar.zst"))  ->  evidence.tar.zst, a table on standard error

Everything is redacted on its way into the archive. An archive never replaces another one, which may be
the only evidence.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from postmortem.errors import CollectError, PostmortemError, UsageError
from postmortem.live.collect import here, hosts, sent_program
from postmortem.live.collect.archive import Archive
from postmortem.live.collect.hosts import Answer, Hosts
from postmortem.privacy import Redactor
from postmortem.report.text import line, size
from postmortem.system import output
from postmortem.version import __version__

if TYPE_CHECKING:
    from postmortem.live.collect.here import Row
    from postmortem.live.collect.hosts import Answer

SCHEMA = "postmortem/input/1"
FORMS = {".tar.zst": "zst", ".tar.gz": "gz", ".tgz": "gz", ".tar": ""}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
WHOLE = 1 << 18  # characters: a longer text is redacted line by line, at ten times the speed
KEY = "PRIVATE KEY-----"  # which spans many lines
RAW = "/recorder/"  # pickles, whose text analyze redacts when it shows it


class Writer:
    """Adds items to the archive, redacted, from any thread."""

    def __init__(self, archive: Archive, redact: bool) -> None:
        self.archive = archive
        self.full = ""  # why an item did not fit
        self.lost: set[str] = set()
        self._redactor = Redactor() if redact else None
        self._lock = Lock()

    def add(self, row: Row, data: bytes) -> None:
        """Add one item, or note that it does not fit."""
        with self._lock:
            try:
                self.archive.add(row["file"], self._redacted(row["file"], data), row["started"])
            except OSError as error:
                self._note(error)
                self.lost.add(row["file"])

    def add_index(self, index: dict[str, object]) -> None:
        """Add the index, and end the archive."""
        text = json.dumps({"schema": SCHEMA, **index}, indent=1).encode("utf-8", "backslashreplace")
        try:
            self.archive.add_last(sent_program.INDEX, self._redacted(sent_program.INDEX, text), time.time())
        except OSError as error:
            self._note(error)

    def _note(self, error: OSError) -> None:
        if error.errno not in FULL:
            raise error
        self.full = os.strerror(error.errno)

    def _redacted(self, name: str, data: bytes) -> bytes:
        if self._redactor is None or RAW in name:
            return data
        text = data.decode("utf-8", "surrogateescape")
        if len(text) <= WHOLE or KEY in text:
            text = self._redactor.text(text)
        else:
            text = "\n".join(self._redactor.texts(text.split("\n")))
        return text.encode("utf-8", "surrogateescape")


def execute(
    target: Path | None = None,
    many: Hosts | None = None,
    *,
    timeout: int | None = None,  # seconds for each of many hosts
    parallel: int | None = None,
    job: str = "",
    since: float | None = None,
    redact: bool = True,
    quiet: bool = False,
) -> None:
    """Collect on this host or many. Raise CollectError if an item did not fit or a host did not answer."""
    began = time.time()
    who = many.launcher if many else sent_program.hostname()
    utc = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began))
    target = target or Path(f"postmortem-{who}-{utc}.tar.zst")
    commands: dict[str, tuple[str, ...]] = {}
    if many:
        wanted = job or (many.which if many.launcher == "srun" else "")
        commands = hosts.commands(many, json.dumps({"since": since, "job": wanted}))
    writer = Writer(_create(target), redact)
    rows: list[Row] = []
    answers: list[Answer] = []
    try:
        if many is None:
            for row, data in here.collected(since, job, alone=True):
                row["file"] = row["file"] and f"host={sent_program.hostname()}/{row['file']}"
                rows.append(row)
                if row["file"]:
                    writer.add(row, data)
        else:
            pool = hosts.HostPool(commands, writer.add, float(timeout or 120), parallel or 32)
            answers = pool.answers
            try:
                for row, data in here.taken(hosts.of_scheduler(many, list(commands))):
                    rows.append(row)
                    if row["file"]:
                        writer.add(row, data)
                pool.wait()
            finally:
                pool.stop()
    finally:
        every = [*rows, *(row for answer in answers for row in answer.items)]
        for row in every:
            if row.get("file") in writer.lost:
                row["file"], row["why"] = None, f"did not fit: {writer.full}"
        head = {"tool": f"postmortem {__version__}", "started": began, "by": sent_program.hostname()}
        writer.add_index({**head, "items": rows, "hosts": list(map(asdict, answers))})
        writer.archive.close()
        if not quiet:
            lines = [
                *(of_items(rows) if rows else []),
                *(of_hosts(answers) if answers else []),
            ]
            collected, size = sum(bool(row["file"]) for row in every), target.stat().st_size
            seconds = time.time() - began
            lines.append(f"{target}: {collected} of {len(every)} items, {size:,} bytes, in {seconds:.1f} s")
            lines += [f"  next: postmortem analyze {target}"] if collected else []
            output.say("\n".join(map(line, lines)))
    if writer.full:
        lost = f"{len(writer.lost)} items" if writer.lost else "the index"
        raise CollectError(f"{writer.full}: {lost} did not fit into {target}", "name a file on another disk: -o FILE")
    got = any(row["file"] for row in every)
    if silent := sorted(answer.asked for answer in answers if answer.why):
        some = ", ".join(silent[:4]) + (" …" if len(silent) > 4 else "")
        raise CollectError(
            f"{len(silent)} of {len(answers)} hosts did not answer in full: {some}",
            f"the archive is {'partial' if got else 'empty'}; the table lists the reasons",
        )
    if not got:
        raise CollectError(f"nothing was collected; {target} is empty", "the table lists the reasons")


def _create(target: Path) -> Archive:
    form = next((form for suffix, form in FORMS.items() if target.name.endswith(suffix)), None)
    if form is None:
        raise UsageError(f"{target} is not the name of an archive", "end it with .tar.zst or .tar.gz")
    try:
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{target} exists", "name another file: its evidence may exist nowhere else") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise PostmortemError(f"could not create {target}: {reason}", "name another file with -o FILE") from None
    return Archive(fd, form, str(target))


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────

REASON = 100  # characters
ALONE = 4  # rows of one item that get a line each


def of_items(rows: Sequence[Row]) -> list[str]:
    """Return the items of one host, missing ones last; one line for an item that many ranks have."""
    by_item: dict[str, list[Row]] = {}
    for row in rows:
        by_item.setdefault(str(row["item"]), []).append(row)
    hosts = {str(row["file"]).partition("/")[0] for row in rows if row["file"]}
    own = f"{hosts.pop()}/" if len(hosts) == 1 else ""
    collected: list[tuple[str, str, str, str]] = [("item", "size", "time", "")]
    missing: list[tuple[str, str, str, str]] = []
    for item, same in by_item.items():
        if len(same) > ALONE:
            collected.append(_together(same))
            continue
        for row in same:
            name, seconds = str(row["file"] or item).removeprefix(own), f"{row['seconds']:.1f} s"
            cells = (name, size(row["bytes"]) if row["file"] else "–", seconds, _note(row))
            (collected if row["file"] else missing).append(cells)
    return _columns([*collected, *missing])


def _together(rows: Sequence[Row]) -> tuple[str, str, str, str]:
    collected = sum(bool(row["file"]) for row in rows)
    notes = list(dict.fromkeys(filter(None, map(_note, rows))))
    more = f"; {len(notes) - 1} more reasons are in the index" if len(notes) > 1 else ""
    longest = max(row["seconds"] for row in rows)
    name = f"{rows[0]['item']}: {collected} of {len(rows)}"
    return name, size(sum(row["bytes"] for row in rows)), f"{longest:.1f} s", "".join(notes[:1]) + more


def of_hosts(answers: Sequence[Answer]) -> list[str]:
    """Return a line for each host."""
    lines = [("host", "received", "failed", "size", "time", "")]
    for a in sorted(answers, key=lambda a: a.asked):
        collected = sum(bool(row["file"]) for row in a.items)
        name = a.asked if a.host in ("", a.asked) else f"{a.asked} ({a.host})"
        failed = str(len(a.items) - collected)
        lines.append((name, str(collected), failed, size(a.bytes), f"{a.seconds:.1f} s", a.why[:REASON]))
    return _columns(lines)


def _note(row: Row) -> str:
    cut = "cut: it was larger" if row.get("cut") else ""
    return "; ".join(filter(None, (cut, str(row.get("why") or "")[:REASON])))


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers, last in rows:
        aligned = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=False)]
        lines.append("  ".join((first.ljust(widths[0]), *aligned, last)).rstrip())
    return lines
