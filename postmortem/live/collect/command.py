"""`postmortem collect`: the archive, its index, the table, the exit code.

    execute(Wishes(output=Path("evidence.tar.zst")))  ->  evidence.tar.zst, a table on standard error

Everything is redacted on its way into the archive. An archive is never written over another one: what is in
that may be gone.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from postmortem.errors import CollectError, PostmortemError, UsageError
from postmortem.live.collect import here, hosts, remote, table
from postmortem.live.collect.archive import Archive
from postmortem.live.collect.hosts import Answer, Many
from postmortem.model import collected as items
from postmortem.privacy import Redactor
from postmortem.report.text import line
from postmortem.system import output
from postmortem.version import __version__

if TYPE_CHECKING:
    from postmortem.live.collect.here import Row

SCHEMA = "postmortem/input/1"
FORMS = {".tar.zst": "zst", ".tar.gz": "gz", ".tgz": "gz", ".tar": ""}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LIMIT, TOGETHER = 120.0, 32
WHOLE = 1 << 18  # characters: a longer text is redacted line by line, at ten times the speed
KEY = "PRIVATE KEY-----"  # which goes over many lines
RAW = "/recorder/"  # pickles, whose text analyze redacts when it shows it


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks for."""

    output: Path | None = None
    since: float | None = None
    job: str = ""
    many: Many | None = None
    limit: float = LIMIT  # seconds of each host of many
    together: int = TOGETHER
    redact: bool = True
    quiet: bool = False


def wishes(
    out: Path | None = None,
    srun: str | None = None,
    ssh: str | None = None,
    kubectl: str | None = None,
    namespace: str | None = None,
    container: str | None = None,
    python: str | None = None,
    timeout: int | None = None,
    parallel: int | None = None,
    job: str | None = None,
    since: float | None = None,
    no_redact: bool = False,
    quiet: bool = False,
) -> Wishes:
    """What the options mean together. Raise UsageError where they make no sense."""
    launchers = {"srun": srun, "ssh": ssh, "kubectl": kubectl}
    named = [(name, which) for name, which in launchers.items() if which is not None]
    if len(named) > 1:
        raise UsageError(f"--{named[0][0]} and --{named[1][0]} are two launchers", "name one of them")
    if (namespace or container) and kubectl is None:
        raise UsageError("--namespace and --container are for --kubectl", "leave them out")
    many = None
    if named:
        name, which = named[0]
        many = Many(name, which, python or "", namespace or "", container or "")
    elif python or timeout or parallel:
        raise UsageError("--python, --timeout and --parallel are for many hosts", "add --srun, --ssh or --kubectl")
    return Wishes(out, since, job or "", many, float(timeout or LIMIT), parallel or TOGETHER, not no_redact, quiet)


class Keeper:
    """Puts items into the archive, redacted, from any thread; says of each row whether it fitted."""

    def __init__(self, archive: Archive, redact: bool) -> None:
        self.archive = archive
        self.full = ""  # why the first one did not fit
        self.lost: set[str] = set()
        self._redactor = Redactor() if redact else None
        self._lock = Lock()

    def keep(self, row: Row, data: bytes) -> None:
        """Add one item; where it does not fit, its row says so."""
        with self._lock:
            try:
                self.archive.add(row["file"], self._clean(row["file"], data), row["started"])
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self.full = os.strerror(error.errno)
                self.lost.add(row["file"])

    def index(self, told: dict[str, object]) -> None:
        """Add the index, and end the archive."""
        text = json.dumps({"schema": SCHEMA, **told}, indent=1).encode("utf-8", "backslashreplace")
        try:
            self.archive.last(remote.INDEX, self._clean(remote.INDEX, text), time.time())
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.full = os.strerror(error.errno)

    def _clean(self, name: str, data: bytes) -> bytes:
        if self._redactor is None or RAW in name:
            return data
        text = data.decode("utf-8", "surrogateescape")
        if len(text) <= WHOLE or KEY in text:
            text = self._redactor.text(text)
        else:
            text = "\n".join(self._redactor.texts(text.split("\n")))
        return text.encode("utf-8", "surrogateescape")


def execute(wishes: Wishes) -> None:
    """Collect. Raise CollectError where not all that was there is in the archive."""
    target = wishes.output or Path(_default(wishes))
    asked = _targets(wishes)
    begun = time.time()
    fd = _created(target)
    keeper = Keeper(Archive(fd, _form(target), str(target)), wishes.redact)
    head: dict[str, object] = {"tool": f"postmortem {__version__}", "started": begun, "by": remote.hostname()}
    rows: list[Row] = []
    answers: list[Answer] = []
    try:
        if wishes.many is None:
            _here(wishes, keeper, rows)
        else:
            _there(wishes, asked, keeper, rows, answers)
    finally:
        for row in rows:
            _settle(row, keeper)
        for answer in answers:
            for row in answer.rows:
                _settle(row, keeper)
        keeper.index({**head, "items": rows, "hosts": [_told(a) for a in answers]})
        keeper.archive.close()
        if not wishes.quiet:
            _say(target, rows, answers, time.time() - begun)
    _judge(target, keeper, answers)


def _default(wishes: Wishes) -> str:
    who = remote.hostname() if wishes.many is None else wishes.many.launcher
    return f"postmortem-{who}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.zst"


def _form(target: Path) -> str:
    for suffix, form in FORMS.items():
        if target.name.endswith(suffix):
            return form
    raise UsageError(f"{target} is no archive by its name", "end it with .tar.zst or .tar.gz")


def _targets(wishes: Wishes) -> list[hosts.Target]:
    if wishes.many is None:
        return []
    job = wishes.job or (wishes.many.which if wishes.many.launcher == "srun" else "")
    return hosts.targets(wishes.many, json.dumps({"since": wishes.since, "job": job}))


def _created(target: Path) -> int:
    _form(target)
    try:
        return os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{target} exists", "name another file: what is in this one may be gone") from None
    except OSError as error:
        raise PostmortemError(
            f"could not create {target}: {os.strerror(error.errno or 0)}", "name another file with -o FILE"
        ) from None


def _here(wishes: Wishes, keeper: Keeper, rows: list[Row]) -> None:
    folder = f"host={remote.hostname()}"
    for row, data in here.collected(wishes.since, wishes.job, alone=True):
        rows.append(row)
        if row["file"]:
            row["file"] = f"{folder}/{row['file']}"
            keeper.keep(row, data)


def _there(
    wishes: Wishes, asked: Sequence[hosts.Target], keeper: Keeper, rows: list[Row], answers: list[Answer]
) -> None:
    assert wishes.many
    crowd = hosts.Crowd(asked, keeper.keep, wishes.limit, wishes.together)
    try:
        for row, data in here.taken(hosts.of_scheduler(wishes.many, [t.name for t in asked])):
            rows.append(row)
            if row["file"]:
                keeper.keep(row, data)
        crowd.wait()
    finally:
        crowd.stop()
        answers.extend(crowd.answers)


def _settle(row: Row, keeper: Keeper) -> None:
    """Say of what did not fit that it did not come."""
    if row.get("file") in keeper.lost:
        row["file"], row["why"] = None, f"did not fit: {keeper.full}"


def _told(answer: Answer) -> dict[str, object]:
    return {
        "asked": answer.name,
        "host": answer.host,
        "why": answer.why,
        "seconds": round(answer.seconds, 3),
        "clock_ahead_s": answer.offset,
        "items": answer.rows,
    }


def _say(target: Path, rows: Sequence[Row], answers: Sequence[Answer], seconds: float) -> None:
    if rows:
        _print(table.of_items(rows))
    if answers:
        _print(table.of_hosts([_counted(a) for a in sorted(answers, key=lambda a: a.name)]))
    every = [*rows, *(row for a in answers for row in a.rows)]
    came = sum(bool(row["file"]) for row in every)
    size = target.stat().st_size
    output.say(
        f"{line(target)}: {came} of {len(every)} items, {size:,} bytes, in {seconds:.1f} s\n"
        f"  next: postmortem analyze {line(target)}"
    )


def _print(text: str) -> None:
    output.say("\n".join(line(row) for row in text.split("\n")))


def _counted(answer: Answer) -> tuple[str, int, int, int, float, str]:
    came = sum(bool(row["file"]) for row in answer.rows)
    name = answer.name if answer.host in ("", answer.name) else f"{answer.name} ({answer.host})"
    return name, came, len(answer.rows) - came, answer.bytes, answer.seconds, answer.why


def _judge(target: Path, keeper: Keeper, answers: Sequence[Answer]) -> None:
    silent = sorted(a.name for a in answers if a.why)
    if keeper.full:
        what = f"{len(keeper.lost)} items" if keeper.lost else "the index"
        raise CollectError(
            f"{keeper.full}: {what} did not fit into {target}", "name a file on another disk with -o FILE"
        )
    if silent:
        some = ", ".join(silent[:4]) + (" …" if len(silent) > 4 else "")
        raise CollectError(
            f"{len(silent)} of {len(answers)} hosts did not answer in full: {some}",
            "the archive has what came; the table says why",
        )


def listing() -> str:
    """The items as a table: file, why, command."""
    rows = [(item.name, item.why, " | ".join(map(items.shown, item.ways))) for item in items.ALL]
    return "\n".join(f"{name}\n  {why}\n  {ways}" for name, why, ways in rows)
