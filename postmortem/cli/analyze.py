"""`postmortem analyze`: logs in, verdict and report out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from postmortem.cli import writing
from postmortem.cli.options import INPUT, OUTPUT, Anonymise, AnonymiseMap, PatternFolders, Quiet
from postmortem.cli.writing import Format, Target
from postmortem.errors import UsageError
from postmortem.system import output, process
from postmortem.system.arguments import HISTORY, folder, moment

OUTCOME_CODES = {"incident": 10, "undetermined": 11, "recovered": 12, "healthy": 0}
STRICT_CODE = 4
CI, FLEET = "For CI", "Notify and history"

app = typer.Typer(add_completion=False)


@app.command()
def analyze(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Folders, files, archives, globs; - for standard input.")
    ],
    out: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|-",
            help="Output file; - is standard output; repeatable.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    formats: Annotated[
        list[Format] | None,
        typer.Option("--format", "-f", help="Output format; html by default; repeatable.", rich_help_panel=OUTPUT),
    ] = None,
    brief: Annotated[
        bool,
        typer.Option("--brief", help="With --format json or md: only the verdict, for chat.", rich_help_panel=OUTPUT),
    ] = False,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Analyze this job if the logs have several.", rich_help_panel=INPUT)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Ignore earlier lines (ISO 8601; UTC without a time zone).", rich_help_panel=INPUT
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Ignore later lines.", rich_help_panel=INPUT)
    ] = None,
    folders: PatternFolders = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Logs of a healthy run, for comparison.", rich_help_panel=INPUT)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of reader processes; automatic by default.", rich_help_panel=INPUT
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Read on the workers of this Dask scheduler.", rich_help_panel=INPUT),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FACTORY", help="Read on the executor that this function returns.", rich_help_panel=INPUT
        ),
    ] = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Do not mask secrets found in the logs.", rich_help_panel=OUTPUT)
    ] = False,
    anonymise: Anonymise = False,
    anonymise_map: AnonymiseMap = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            envvar=HISTORY,
            help="Store the verdict here: a file, or postgresql://USER@HOST/DATABASE.",
            rich_help_panel=FLEET,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 if the cause stays undetermined.", rich_help_panel=CI)
    ] = False,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code", help="Exit 10 incident, 11 undetermined, 12 recovered, 0 healthy.", rich_help_panel=CI
        ),
    ] = False,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL|@FILE",
            help="Notify a chat, a pager or a webhook unless the run is healthy; repeatable.",
            rich_help_panel=FLEET,
        ),
    ] = None,
    report_url: Annotated[
        str, typer.Option(metavar="URL", help="With --notify: address of the report.", rich_help_panel=FLEET)
    ] = "",
    open_: Annotated[
        bool, typer.Option("--open", help="Open the HTML report in a browser.", rich_help_panel=OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Explain the verdict.", rich_help_panel=OUTPUT)
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Read logs, name what failed first and why, and write a report."""
    wanted = writing.targets(formats or [], out or [], paths)
    pages = _check(wanted, paths, brief, anonymise_map, open_)
    chosen: dict[str, Any] = {
        "job": job,
        "since": moment(since, "--since"),
        "until": moment(until, "--until"),
        "patterns": tuple(map(folder, folders or ())),
        "baseline": folder(baseline) if baseline else None,
        "redact": not no_redact,
    }
    if jobs:
        chosen["workers"] = jobs
    with _engine(dask, executor) as engine:
        incident = _read(paths, chosen, engine, quiet)
    hide = anonymise or anonymise_map is not None
    if history:
        from postmortem.fleet.history import filing

        incident = filing.filed(incident, history, next(iter(pages), None), paths, hide)
    if hide:
        from postmortem.report import anonymous

        incident = anonymous.hidden(incident, anonymise_map)
    try:
        writing.write(incident, wanted, brief, verbose, quiet)
    finally:  # also after a failed write, such as a full disk
        writing.notify(incident, notify or (), report_url)
    if open_:
        output.browse(pages[0])
    if incident.interrupted:
        output.say("postmortem: interrupted; the report covers what was read so far")
        return process.stop_code()
    return code(incident.document["verdict"]["outcome"], strict, exit_code)


def _check(wanted: list[Target], paths: list[str], brief: bool, anonymise_map: Path | None, open_: bool) -> list[Path]:
    """Return the HTML files to write. Raise UsageError for options that contradict each other."""
    if brief and not any(target.form in writing.BRIEF for target in wanted):
        raise UsageError("--brief is a short form of JSON and Markdown", "use --format md --brief")
    if anonymise_map:
        for target in wanted:
            output.check_key(anonymise_map, target.path, paths)
    pages = [target.path for target in wanted if target.form is Format.html and target.path]
    if open_ and not pages:
        message = "--open shows an HTML report, and this run writes none to a file"
        raise UsageError(message, "leave out --format and --output -")
    return pages


def _read(paths: list[str], chosen: dict[str, Any], engine: Any, quiet: bool) -> Any:
    from postmortem import input as collect
    from postmortem.analyze import Options
    from postmortem.analyze import analyze as read
    from postmortem.system import pool

    pool.tune()
    if collect.is_typed(paths):
        output.say("reading standard input; Ctrl-D ends it")
    with output.progress_bar(quiet) as progress:
        return read(paths, Options(**chosen, executor=engine, progress=progress))


def _engine(dask: str | None, executor: str | None) -> AbstractContextManager[Any]:
    """Return the executor that reads the logs; None for processes of this machine."""
    if dask and executor:
        raise UsageError("--dask and --executor cannot be combined", "use one of them")
    if not dask and not executor:
        return nullcontext()
    from postmortem.system import pool

    return pool.dask(dask) if dask else pool.made_by(str(executor))


def code(outcome: str, strict: bool, exit_code: bool) -> int:
    """Return the exit code of `analyze`."""
    if exit_code:
        return OUTCOME_CODES[outcome]
    return STRICT_CODE if strict and outcome == "undetermined" else 0
