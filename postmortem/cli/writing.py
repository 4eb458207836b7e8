"""The outputs of `analyze`: formats paired with files, each written whole, and the verdict on the terminal.

--format html -o r.html --format json -o r.json --format md   ->   two files, and Markdown on standard output
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from postmortem.errors import PostmortemError, UsageError, ours
from postmortem.system import output
from postmortem.system.arguments import HISTORY, NOTIFY

if TYPE_CHECKING:
    from postmortem.analyze import Incident
    from postmortem.report import view

DEFAULT_REPORT = "postmortem-report.html"
STANDARD = "-"


Format = StrEnum("Format", "html json md ndjson csv parquet github trace junit")
BRIEF = (Format.json, Format.md)  # formats that have a short form
_SUFFIXES = {"xml": "junit", "jsonl": "ndjson"}


class Target(NamedTuple):
    """One output. Without a path it goes to standard output."""

    form: Format
    path: Path | None


def targets(forms: Sequence[Format], outputs: Sequence[str], inputs: Sequence[str]) -> list[Target]:
    """Pair formats with files: by suffix where that decides, else in their order. A format without a file
    goes to standard output, HTML to its usual file. Raise UsageError before anything is read."""
    pairs = _paired(forms, outputs)
    found = [Target(form, None if out == STANDARD else Path(out)) for form, out in pairs]
    standard = [target for target in found if target.path is None]
    if len(standard) > 1:
        names = " and ".join(target.form.value for target in standard)
        raise UsageError(f"{names} would all go to standard output", "name a file for each: --output FILE")
    if standard and standard[0].form is Format.parquet and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("Parquet is binary, and standard output is a terminal", "use --output events.parquet")
    seen: set[Path] = set()
    for form, path in found:
        if path is not None:
            own = path == Path(DEFAULT_REPORT) and str(path) not in outputs  # may be read again, and written anew
            output.check_target(path, () if own else inputs)
            if path.resolve() in seen:
                raise UsageError(f"two formats would go to {path}", f"name another file for {form.value}")
            seen.add(path.resolve())
    return found


def _paired(forms: Sequence[Format], outputs: Sequence[str]) -> list[tuple[Format, str]]:
    left = list(forms)
    chosen: dict[int, Format] = {}
    for place, out in enumerate(outputs):
        if (form := _by_suffix(out)) in left:
            left.remove(form)
            chosen[place] = form
    open_ = [place for place in range(len(outputs)) if place not in chosen]
    every = len(left) >= len(open_)  # --format has priority over a suffix if there is one for each file
    for place in open_:
        form = _by_suffix(outputs[place])
        chosen[place] = left.pop(0) if left and (every or form is None) else form or html(Path(outputs[place]))
    pairs = [(chosen[place], out) for place, out in enumerate(outputs)]
    if not pairs and not left:
        left = [Format.html]
    return pairs + [(form, DEFAULT_REPORT if form is Format.html else STANDARD) for form in left]


def _by_suffix(out: str) -> Format | None:
    suffix = Path(out).suffix.lstrip(".")
    suffix = _SUFFIXES.get(suffix, suffix)
    return Format(suffix) if suffix in Format.__members__ else None


def html(path: Path) -> Format:
    """Return the format of a file with no other suffix. Raise UsageError for the suffix of another format."""
    name = path.suffix[1:]
    if name.isalpha() and name.lower() not in ("html", "htm"):
        page = path.with_suffix(".html")
        printed = f"chromium --headless --print-to-pdf={path} {page}" if name.lower() == "pdf" else ""
        hint = f"write {page}, and print it: {printed}" if printed else f"write {page}, or choose with --format"
        raise UsageError(f"--output {path}: {name.upper()} is not supported", hint)
    return Format.html


def check_history(where: str | None) -> None:
    """Raise UsageError for a history that cannot exist. One named in the environment costs no verdict: filing warns."""
    if not where or where == os.environ.get(HISTORY):
        return
    from postmortem.fleet.history.place import place

    try:
        file = place(where).file
    except PostmortemError as error:
        raise UsageError(f"--history: {error.message}", error.hint) from None
    if file:
        output.check_target(file, option="--history")


def write(incident: Incident, chosen: Sequence[Target], brief: bool, verbose: bool, quiet: bool) -> None:
    """Write each output, files first. One that fails costs no other; the first error is raised at the end."""
    failed: list[PostmortemError] = []
    written: list[Path] = []
    for form, path in chosen:
        if path is not None:
            try:
                output.write_file(path, _made(incident, form, brief))
                written.append(path)
            except PostmortemError as error:
                failed.append(error)
    from postmortem import report

    if verbose:
        output.say(report.render_verbose(incident))
    if written and not quiet:
        output.say(_summary(incident, ", ".join(map(str, written))))
    for form, path in chosen:
        if path is None:
            output.data(_made(incident, form, brief))
    if failed:
        raise failed[0]


class Fleet(NamedTuple):
    """Who is notified of an incident, on which ticket it is written, and the address of its report."""

    notify: Sequence[str] = ()
    ticket: str = ""
    report_url: str = ""
    dry_run: bool = False


def check_fleet(to: Fleet) -> None:
    """Raise UsageError for addresses that are none; one of --notify is not quoted, since it may be a secret."""
    if to.notify:
        from postmortem.fleet import notify

        notify.check(to.notify)
    if to.ticket:
        from postmortem.fleet.tickets import trackers

        found = trackers.ticket(to.ticket)
        if not to.dry_run:
            trackers.login(found)
    if to.report_url and not to.report_url.startswith(("https://", "http://")):
        raise UsageError(f"--report-url {to.report_url} is not an address", "write the https:// address of the report")
    if to.dry_run and not (to.ticket or to.notify or os.environ.get(NOTIFY)):
        raise UsageError("--dry-run is for --notify and --ticket", "name one of them, or omit it")


def notify(incident: Incident, to: Fleet, page: Path | None) -> None:
    """Send the notifications, if there are any: most runs have none, and import nothing for it."""
    if to.notify or os.environ.get(NOTIFY):
        from postmortem.fleet import notify

        notify.send(incident, to.notify, to.report_url, page, to.dry_run)


def ticket(incident: view.Incident, to: Fleet, page: bytes, quiet: bool) -> None:
    """Write the verdict on the ticket, with the page attached. Raise TicketError."""
    from postmortem.fleet.tickets import posting, trackers

    found = trackers.ticket(to.ticket)
    log = posting.brief(found, incident)
    if to.dry_run:
        output.say("\n".join(("nothing is sent; this would be:", *posting.plan(found, page, log, to.report_url))))
        return
    done = posting.post(found, trackers.login(found), page, log, to.report_url)
    if not quiet:
        output.say(f"  ticket   {done}")


def _made(incident: Incident, form: Format, brief: bool) -> str | bytes:
    from postmortem import report

    if form is Format.github and (summary := os.environ.get("GITHUB_STEP_SUMMARY")):
        output.append_file(Path(summary), report.render_markdown(incident))
    return report.render(incident, form.value, brief and form in BRIEF)


def _summary(incident: Incident, files: str) -> str:
    from postmortem import report

    try:
        return str(report.render_terminal(incident, width=output.width(), color=output.colour(), report=files))
    except Exception as e:  # the report is written, and that is what it is about
        return f"{incident.document['verdict']['outcome'].upper()}\n  summary  {ours(e)}\n  report   {files}"
