"""`postmortem analyze`: logs in, verdict and report out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from postmortem.cli import writing
from postmortem.cli.options import INPUT, OUTPUT, Anonymise, AnonymiseMap, PatternFolders, Quiet
from postmortem.cli.writing import Format, Target
from postmortem.errors import UsageError
from postmortem.system import output, process
from postmortem.system.arguments import HISTORY, folder, folder_of, window

OUTCOME_CODES = {"incident": 10, "undetermined": 11, "recovered": 12, "healthy": 0}
STRICT_CODE = 4
CI, FLEET = "For CI", "Notify and history"

_input, _output, _ci, _fleet = (partial(typer.Option, rich_help_panel=panel) for panel in (INPUT, OUTPUT, CI, FLEET))
Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Folders, files, archives, globs; - for standard input.")
]
Out = Annotated[
    list[str] | None, _output("--output", "-o", metavar="FILE|-", help="Output file; - is standard output; repeatable.")
]
Formats = Annotated[list[Format] | None, _output("--format", "-f", help="Output format; html by default; repeatable.")]
Brief = Annotated[bool, _output("--brief", help="With --format json or md: only the verdict, for chat.")]
Job = Annotated[str | None, _input(metavar="ID", help="Analyze this job if the logs have several.")]
JobName = Annotated[str | None, _input(metavar="NAME", help="Name of the job in all outputs; its folder by default.")]
Since = Annotated[
    str | None, _input(metavar="TIME", help="Ignore earlier lines: ISO 8601 (UTC), yesterday, 3 hours ago.")
]
Until = Annotated[str | None, _input(metavar="TIME", help="Ignore later lines.")]
Baseline = Annotated[Path | None, _input(metavar="DIR", help="Logs of a healthy run, for comparison.")]
Jobs = Annotated[int | None, _input(min=1, metavar="N", help="Number of reader processes; automatic by default.")]
Dask = Annotated[str | None, _input(metavar="ADDRESS", help="Read on the workers of this Dask scheduler.")]
Executor = Annotated[
    str | None, _input(metavar="MODULE:FACTORY", help="Read on the executor that this function returns.")
]
Executable = Annotated[
    str | None, _input(metavar="PYTHON", help="The Python of core files: pystack reads their stacks with it.")
]
NoRedact = Annotated[bool, _output("--no-redact", help="Do not mask secrets found in the logs.")]
History = Annotated[
    str | None,
    _fleet(
        metavar="FILE|URL", envvar=HISTORY, help="Store the verdict here: a file, or postgresql://USER@HOST/DATABASE."
    ),
]
Strict = Annotated[bool, _ci("--strict", help="Exit 4 if the cause stays undetermined.")]
ExitCode = Annotated[bool, _ci("--exit-code", help="Exit 10 incident, 11 undetermined, 12 recovered, 0 healthy.")]
Notify = Annotated[
    list[str] | None,
    _fleet(metavar="URL|@FILE", help="Notify a chat, a pager or a webhook unless the run is healthy; repeatable."),
]
Ticket = Annotated[
    str, _fleet(metavar="URL", help="Attach the report to this issue and comment on it; a later run replaces both.")
]
DryRun = Annotated[bool, _fleet("--dry-run", help="With --notify and --ticket: print what would be sent.")]
ReportUrl = Annotated[str, _fleet(metavar="URL", help="With --notify and --ticket: address of the report.")]
Open = Annotated[bool, _output("--open", help="Open the HTML report in a browser.")]
Verbose = Annotated[bool, _output("--verbose", "-v", help="Explain the verdict.")]


def analyze(
    paths: Paths,
    out: Out = None,
    formats: Formats = None,
    brief: Brief = False,
    job: Job = None,
    job_name: JobName = None,
    since: Since = None,
    until: Until = None,
    folders: PatternFolders = None,
    baseline: Baseline = None,
    jobs: Jobs = None,
    dask: Dask = None,
    executor: Executor = None,
    executable: Executable = None,
    no_redact: NoRedact = False,
    anonymise: Anonymise = False,
    anonymise_map: AnonymiseMap = None,
    history: History = None,
    strict: Strict = False,
    exit_code: ExitCode = False,
    notify: Notify = None,
    ticket: Ticket = "",
    report_url: ReportUrl = "",
    dry_run: DryRun = False,
    open_: Open = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Read logs, name what failed first and why, and write a report."""
    wanted = writing.targets(formats or [], out or [], paths)
    pages = _check(wanted, paths, brief, anonymise_map, open_)
    for option, value in (("--job", job), ("--job-name", job_name)):
        if value == "":
            raise UsageError(f"{option} is empty", "omit it, or check the variable that it was filled from")
    fleet = writing.Fleet(notify or (), ticket, report_url, dry_run)
    writing.check_history(history)
    writing.check_fleet(fleet)
    if ticket and no_redact:
        raise UsageError("--no-redact and --ticket cannot be combined", "omit --no-redact: a ticket has many readers")
    chosen: dict[str, Any] = {
        "job": job,
        "job_name": job_name or (None if anonymise or anonymise_map else folder_of(paths)),
        **window(since, until),
        "patterns": tuple(folders or ()),
        "baseline": folder(baseline) if baseline else None,
        "redact": not no_redact,
    }
    if executable:
        chosen["executable"] = _python(executable)
    if jobs:
        chosen["workers"] = jobs
    if history:
        from postmortem.fleet.history import filing

        chosen["resolved"] = filing.counts(history)
    with _engine(dask, executor) as engine:
        incident = _read(paths, chosen, engine, quiet)
    hide = anonymise or anonymise_map is not None
    if history:
        incident = filing.filed(incident, history, next(iter(pages), None), paths, hide, chosen["resolved"])
    if hide:
        from postmortem.report import anonymous

        incident = anonymous.hidden(incident, anonymise_map)
    try:
        writing.write(incident, wanted, brief, verbose, quiet)
    finally:  # also after a failed write, such as a full disk
        writing.notify(incident, fleet, next(iter(pages), None))
    if ticket and not incident.interrupted:
        from postmortem import report

        page = pages[0].read_bytes() if pages else str(report.render(incident, "html")).encode()
        writing.ticket(incident, fleet, page, quiet)
    if open_:
        output.browse(pages[0])
    if incident.interrupted:
        output.say("postmortem: interrupted; the report covers the input read so far")
        return process.stop_code()
    return code(incident.document["verdict"]["outcome"], strict, exit_code)


def _python(executable: str) -> str:
    """Return the path of the interpreter of core files. Raise UsageError where it or pystack is missing."""
    if find_spec("pystack") is None:
        raise UsageError("--executable needs pystack", "pip install 'torch-postmortem[cores]'")
    path = Path(executable).resolve()
    if not path.is_file():
        raise UsageError(f"--executable {executable}: no such file", "name the Python that the job ran with")
    return str(path)


def _check(wanted: list[Target], paths: list[str], brief: bool, anonymise_map: Path | None, open_: bool) -> list[Path]:
    """Return the HTML files to write. Raise UsageError for options that contradict each other."""
    if brief and not any(target.form in writing.BRIEF for target in wanted):
        raise UsageError("--brief is a short form of JSON and Markdown", "use --format md --brief")
    if anonymise_map:
        outputs = [target.path for target in wanted if target.path]
        output.check_target(anonymise_map, [*paths, *outputs], "--anonymize-map")
    pages = [target.path for target in wanted if target.form is Format.html and target.path]
    if open_ and not pages:
        message = "--open shows an HTML report, and this run writes none to a file"
        raise UsageError(message, "omit --format and --output -")
    return pages


def _read(paths: list[str], chosen: dict[str, Any], engine: Any, quiet: bool) -> Any:
    process.tune()  # before the imports, which make many objects
    from postmortem import input as collect
    from postmortem.analyze import Options
    from postmortem.analyze import analyze as read

    if collect.is_typed(paths):
        output.say("reading standard input; Ctrl-D ends it")
    try:
        with output.progress_bar(quiet) as progress:
            return read(paths, Options(**chosen, executor=engine, progress=progress))
    except KeyboardInterrupt:
        output.say("postmortem: interrupted; nothing was written")
        raise


def _engine(dask: str | None, executor: str | None) -> AbstractContextManager[Any]:
    """Return the executor that reads the logs; None for processes of this machine."""
    if dask and executor:
        raise UsageError("--dask and --executor cannot be combined", "use one of them")
    if not dask and not executor:
        return nullcontext()
    from postmortem.system import pool

    return pool.dask(dask) if dask else pool.made_by(str(executor))


def code(outcome: str, strict: bool, exit_code: bool) -> int:
    if exit_code:
        return OUTCOME_CODES[outcome]
    return STRICT_CODE if strict and outcome == "undetermined" else 0
