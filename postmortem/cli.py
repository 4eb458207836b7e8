"""Arguments in, exit code out; nothing else.
Everything that costs time is imported inside the command that needs it.

run(["analyze", "logs/", "--format", "json", "--output", "-"]) -> 0
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from postmortem import output, overview, process, resources, writing
from postmortem.errors import PathMissing, PostmortemError, UsageError, ours, refusal
from postmortem.writing import Format

OUTCOME_CODES = {"incident": 10, "undetermined": 11, "recovered": 12, "healthy": 0}
STRICT_CODE = 4

quick: dict[str, Any] = {
    "rich_markup_mode": None,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "no_args_is_help": True,
}
app = typer.Typer(help=overview.DESCRIPTION, **quick)
patterns_app = typer.Typer(help="List, show, test, lint or extend the pattern library.", **quick)
app.add_typer(patterns_app, name="patterns")


class Shape(StrEnum):
    incident = "incident"
    brief = "brief"
    event = "event"


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


class Backend(StrEnum):
    auto = "auto"
    nccl = "nccl"
    gloo = "gloo"


def run(arguments: list[str]) -> int:
    """Run one command line; print what went wrong, once, with the next step."""
    try:
        with process.stoppable():
            app(arguments, prog_name="postmortem")
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
        return process.stop_code() if code == process.INTERRUPTED else code
    except KeyboardInterrupt:
        return process.stop_code()
    except Exception as e:
        if os.environ.get("POSTMORTEM_DEBUG"):
            raise
        return _explain(e)
    return 0


def _explain(error: Exception) -> int:
    from postmortem.report.text import line

    error = refusal(error) or error
    if isinstance(error, PostmortemError):
        output.say(f"postmortem: {line(error.message)}")  # it may quote a log, or a file's name
        if error.hint:
            output.say(f"  {line(error.hint)}")
        return error.exit_code
    output.say(f"postmortem: {line(ours(error))}")
    output.say("  set POSTMORTEM_DEBUG=1 and run again for the traceback to report")
    return 1


# ── analyze ─────────────────────────────────────────────────────────────────────────────────────────────────

PatternFolders = Annotated[
    list[Path] | None,
    typer.Option("--patterns", metavar="DIR", help="A folder of your own patterns; repeatable."),
]


@app.command()
def analyze(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Folders, files, archives, globs; - for stdin.")
    ],
    out: Annotated[
        list[str] | None,
        typer.Option(
            "--output", "-o", metavar="FILE|-", help="Output file; - is standard output; repeatable."
        ),
    ] = None,
    format_: Annotated[
        list[Format] | None, typer.Option("--format", "-f", help="Output format; default html; repeatable.")
    ] = None,
    brief: Annotated[
        bool, typer.Option("--brief", help="With --format json or md: only the verdict, for chat.")
    ] = False,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Analyze this job if the logs have several.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Ignore earlier lines (ISO 8601; UTC if it has no time zone)."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Ignore later lines.")] = None,
    patterns: PatternFolders = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Logs of a healthy run, for comparison.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, metavar="N", help="Number of reader processes. Default: automatic."),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Read on the workers of this Dask scheduler."),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            "--executor", metavar="MODULE:FACTORY", help="Read on the executor that this function returns."
        ),
    ] = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Do not mask secrets found in the logs.")
    ] = False,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Replace hosts, users, addresses and paths by pseudonyms.")
    ] = False,
    anonymise_map: Annotated[
        Path | None,
        typer.Option("--anonymise-map", metavar="FILE", help="Anonymize, and write the mapping to FILE."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 4 if the cause stays undetermined.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 10 incident, 11 undetermined, 12 recovered, 0 healthy.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the HTML report in a browser.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Explain the verdict.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
) -> None:
    """Read logs, name what failed first and why, and write a report."""
    wanted = writing.targets(format_ or (), out or (), paths)
    if brief and not any(target.form in writing.BRIEF for target in wanted):
        raise UsageError("--brief is a short form of JSON and Markdown", "use --format md --brief")
    if anonymise_map:
        for target in wanted:
            output.check_key(anonymise_map, target.path, paths)
    pages = [target.path for target in wanted if target.form is Format.html and target.path]
    if open_ and not pages:
        what = "--open shows an HTML report, and this run writes none to a file"
        raise UsageError(what, "leave out --format and --output -")
    from postmortem import collect, pool
    from postmortem.analyze import Options
    from postmortem.analyze import analyze as read

    pool.tune()
    if collect.is_typed(paths):
        output.say("reading standard input; Ctrl-D ends it")
    chosen: dict[str, Any] = {
        "job": job,
        "since": _time(since, "--since"),
        "until": _time(until, "--until"),
        "patterns": tuple(_folder(p) for p in patterns or ()),
        "baseline": _folder(baseline) if baseline else None,
        "redact": not no_redact,
    }
    if jobs:
        chosen["workers"] = jobs
    bar = nullcontext() if quiet else output.progress_bar()
    with _engine(dask, executor) as engine, bar as progress:
        incident = read(paths, Options(**chosen, executor=engine, progress=progress))
    if anonymise or anonymise_map:
        from postmortem.report import pseudonyms

        incident = pseudonyms.put(incident, anonymise_map)
    writing.write(incident, wanted, brief, verbose, quiet)
    if open_:
        output.browse(pages[0])
    if incident.interrupted:
        output.say("postmortem: interrupted; the report covers what was read so far")
        raise typer.Exit(process.stop_code())
    raise typer.Exit(code(incident.document["verdict"]["outcome"], strict, exit_code))


def _engine(dask: str | None, executor: str | None) -> AbstractContextManager[Any]:
    """Return what reads, where that is not this machine's own processes."""
    if dask and executor:
        raise UsageError("--dask and --executor are two engines", "name one of them")
    if not dask and not executor:
        return nullcontext()
    from postmortem import pool

    return pool.dask(dask) if dask else pool.made_by(str(executor))


def _time(text: str | None, flag: str) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = f"write it like this: {flag} 2026-11-20T03:12:08Z"
        raise UsageError(f"{flag} {text} is not a time", hint) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise PathMissing(f"{path} is not a folder", "name an existing folder")
    return path


def code(outcome: str, strict: bool, exit_code: bool) -> int:
    """Return what `analyze` ends with."""
    if exit_code:
        return OUTCOME_CODES[outcome]
    return STRICT_CODE if strict and outcome == "undetermined" else 0


# ── patterns ────────────────────────────────────────────────────────────────────────────────────────────────

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
PatternId = Annotated[str, typer.Argument(metavar="PATTERN", help="The id of a pattern.")]
SomeIds = Annotated[list[str] | None, typer.Argument(metavar="[PATTERN]...", help="Only these patterns.")]


@app.command()
def explain(pattern: PatternId, folders: PatternFolders = None) -> None:
    """Explain a pattern: what it means, how it looks, and what to do."""
    from postmortem.library import catalogue

    output.data(catalogue.explain(catalogue.find(pattern, map(_folder, folders or ()))))


@app.command()
def schema(name: Annotated[Shape, typer.Argument(help="What a program reads.")]) -> None:
    """Print the JSON Schema of the incident document, its brief, or an event of ndjson."""
    output.data(resources.schema(name.value))


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="The shell that reads it.")]) -> None:
    """Print what makes a shell complete commands, options and names at TAB."""
    from postmortem import commands, completion
    from postmortem.library import load
    from postmortem.replay.catalogue import SCENARIOS

    names = {"PATTERN": sorted(load().patterns), "SCENARIO": [row.id for row in SCENARIOS]}
    output.data(completion.script(shell.value, commands.read(app), names))


@patterns_app.command("list")
def patterns_list(as_json: AsJson = False, folders: PatternFolders = None) -> None:
    """List all patterns, one per line."""
    from postmortem.library import catalogue

    output.data(catalogue.listing(map(_folder, folders or ()), as_json))


@patterns_app.command("show")
def patterns_show(pattern: PatternId, folders: PatternFolders = None) -> None:
    """Show everything about one pattern: explanation, regular expressions, links, examples."""
    from postmortem.library import catalogue

    output.data(catalogue.show(catalogue.find(pattern, map(_folder, folders or ()))))


@patterns_app.command("lint")
def patterns_lint(ids: SomeIds = None, folders: PatternFolders = None) -> None:
    """Check the pattern files, and say how to fix each finding. Exit 1 if there is any."""
    from postmortem.library import lint

    remarks = lint.run(tuple(map(_folder, folders or ())), tuple(ids or ()))
    for remark in remarks:
        output.data(str(remark))
    output.say(f"{len(remarks)} remarks" if remarks else "nothing to fix")
    raise typer.Exit(1 if remarks else 0)


@patterns_app.command("test")
def patterns_test(ids: SomeIds = None, folders: PatternFolders = None) -> None:
    """Run every example through the scanner and parsers. Exit 1 if one does not match as its file says."""
    from postmortem.library import trial

    count, failures = trial.run(tuple(map(_folder, folders or ())), tuple(ids or ()))
    for failure in failures:
        output.data(failure)
    output.say(f"{count} examples, {len(failures)} wrong")
    raise typer.Exit(1 if failures else 0)


@patterns_app.command("new")
def patterns_new(
    name: Annotated[
        str, typer.Argument(metavar="FAMILY/ID", help="For example nccl/nccl-remote-process-exited.")
    ],
    line: Annotated[
        str, typer.Option("--from", metavar="FILE:LINE|TEXT", help="A log line that shows it.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option("--patterns", metavar="DIR", help="Write it to a folder of your own.")
    ] = None,
) -> None:
    """Write the skeleton of a new pattern, with your line as its first example."""
    from postmortem.library import skeleton

    path = skeleton.write(name, line, _folder(folder) if folder else None)
    output.say(f"wrote {path}\n  fill in what `postmortem patterns lint {path.stem}` asks for")


# ── replay ──────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def replay(
    what: Annotated[
        str | None, typer.Argument(metavar="SCENARIO|REPORT", help="A scenario, or a report.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the scenarios and what each needs.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter, such as rank=2.")
    ] = None,
    nproc: Annotated[
        int | None, typer.Option("--nproc", min=1, max=64, metavar="N", help="Number of ranks.")
    ] = None,
    backend: Annotated[
        Backend, typer.Option("--backend", help="auto: nccl if every rank has a GPU, otherwise gloo.")
    ] = Backend.auto,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE", help="Write a stand-alone script instead of running it."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep the logs of the replay.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="DIR", help="Store the run as a sample incident.")
    ] = None,
    attach: Annotated[
        Path | None, typer.Option("--attach", metavar="REPORT", help="Add the result to this report.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a failure in miniature with real processes, and check that the verdict is the same."""
    from postmortem.replay import command

    if listed:
        output.data(command.listing(as_json))
        return
    if not what:
        raise UsageError(
            "nothing to replay",
            "name a scenario of `postmortem replay --list`, or a report of `postmortem analyze`",
        )
    wishes = command.Wishes(
        tuple(set_ or ()), nproc or 0, backend.value, write, keep, record, attach, as_json
    )
    raise typer.Exit(command.execute(what, wishes))
