"""Arguments in, exit code out; nothing else.
Everything that costs time is imported inside the command that needs it.

run(["analyze", "logs/", "--format", "json", "--output", "-"]) -> 0
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from postmortem.cli import declarations as commands
from postmortem.cli import overview, writing
from postmortem.cli.declarations import Group, argument, choice, flag, pattern_folders
from postmortem.cli.writing import Format
from postmortem.errors import PostmortemError, UsageError, ours, refusal
from postmortem.fleet.diff.declared import diff
from postmortem.fleet.history.declared import history
from postmortem.fleet.mcp.declared import mcp
from postmortem.live.collect.declared import collect
from postmortem.live.run.declared import run as run_a_job
from postmortem.live.watch.declared import watch
from postmortem.replay.declared import replay
from postmortem.system import output, process, resources

OUTCOME_CODES = {"incident": 10, "undetermined": 11, "recovered": 12, "healthy": 0}
STRICT_CODE = 4


@click.group(cls=Group, help=overview.DESCRIPTION, no_args_is_help=True)
def app() -> None:
    pass


@app.group("patterns", cls=Group, no_args_is_help=True)
def patterns_app() -> None:
    """List, show, test, lint or extend the pattern library."""


class Shape(StrEnum):
    incident = "incident"
    brief = "brief"
    event = "event"
    diff = "diff"


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def run(arguments: list[str]) -> int:
    """Run one command line; print what went wrong, once, with the next step."""
    try:
        with process.stoppable(), app.make_context("postmortem", arguments) as context:
            app.invoke(context)
    except click.exceptions.Exit as e:
        return process.stop_code() if e.exit_code == process.INTERRUPTED else e.exit_code
    except click.ClickException as e:
        e.show()
        return e.exit_code
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


@app.command()
@argument("paths", metavar="PATH...", nargs=-1, required=True, help="Folders, files, archives, globs; - for stdin.")
@click.option(
    "--output",
    "-o",
    "out",
    metavar="FILE|-",
    multiple=True,
    help="Output file; - is standard output; repeatable.",
)
@click.option(
    "--format",
    "-f",
    "formats",
    type=choice(Format),
    multiple=True,
    help="Output format; default html; repeatable.",
)
@flag("--brief", help="With --format json or md: only the verdict, for chat.")
@click.option("--job", metavar="ID", help="Analyze this job if the logs have several.")
@click.option("--since", metavar="TIME", help="Ignore earlier lines (ISO 8601; UTC if it has no time zone).")
@click.option("--until", metavar="TIME", help="Ignore later lines.")
@pattern_folders
@click.option("--baseline", metavar="DIR", type=Path, help="Logs of a healthy run, for comparison.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Number of reader processes. Default: automatic.")
@click.option("--dask", metavar="ADDRESS", help="Read on the workers of this Dask scheduler.")
@click.option("--executor", metavar="MODULE:FACTORY", help="Read on the executor that this function returns.")
@flag("--no-redact", help="Do not mask secrets found in the logs.")
@commands.anonymised
@commands.anonymise_map
@commands.history
@flag("--strict", help="Exit 4 if the cause stays undetermined.")
@flag("--exit-code", help="Exit 10 incident, 11 undetermined, 12 recovered, 0 healthy.")
@click.option(
    "--notify",
    metavar="URL|@FILE",
    multiple=True,
    help="Tell a chat, a pager or a webhook, unless all is well; repeatable.",
)
@click.option("--report-url", metavar="URL", default="", help="With --notify: where the report will be found.")
@flag("--open", "open_", help="Open the HTML report in a browser.")
@flag("--verbose", "-v", help="Explain the verdict.")
@commands.quiet
@click.pass_context
def analyze(
    context: click.Context,
    paths: tuple[str, ...],
    out: tuple[str, ...],
    formats: tuple[str, ...],
    brief: bool,
    job: str | None,
    since: str | None,
    until: str | None,
    folders: tuple[Path, ...],
    baseline: Path | None,
    jobs: int | None,
    dask: str | None,
    executor: str | None,
    no_redact: bool,
    anonymise: bool,
    anonymise_map: Path | None,
    where: str | None,
    strict: bool,
    exit_code: bool,
    notify: tuple[str, ...],
    report_url: str,
    open_: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Read logs, name what failed first and why, and write a report."""
    wanted = writing.targets([Format(name) for name in formats], out, paths)
    if brief and not any(target.form in writing.BRIEF for target in wanted):
        raise UsageError("--brief is a short form of JSON and Markdown", "use --format md --brief")
    if anonymise_map:
        for target in wanted:
            output.check_key(anonymise_map, target.path, paths)
    pages = [target.path for target in wanted if target.form is Format.html and target.path]
    if open_ and not pages:
        what = "--open shows an HTML report, and this run writes none to a file"
        raise UsageError(what, "leave out --format and --output -")
    from postmortem import input as collect
    from postmortem.analyze import Options
    from postmortem.analyze import analyze as read
    from postmortem.system import pool

    pool.tune()
    if collect.is_typed(paths):
        output.say("reading standard input; Ctrl-D ends it")
    chosen: dict[str, Any] = {
        "job": job,
        "since": commands.moment(since, "--since"),
        "until": commands.moment(until, "--until"),
        "patterns": tuple(map(commands.folder, folders)),
        "baseline": commands.folder(baseline) if baseline else None,
        "redact": not no_redact,
    }
    if jobs:
        chosen["workers"] = jobs
    with _engine(dask, executor) as engine, output.progress_bar(quiet) as progress:
        incident = read(paths, Options(**chosen, executor=engine, progress=progress))
    hide = anonymise or anonymise_map is not None
    if where:
        from postmortem.fleet.history import filing

        incident = filing.filed(incident, where, next(iter(pages), None), paths, hide)
    if hide:
        from postmortem.report import pseudonyms

        incident = pseudonyms.put(incident, anonymise_map)
    try:
        writing.write(incident, wanted, brief, verbose, quiet)
    finally:  # a full disk is told too
        writing.tell(incident, notify, report_url)
    if open_:
        output.browse(pages[0])
    if incident.interrupted:
        output.say("postmortem: interrupted; the report covers what was read so far")
        context.exit(process.stop_code())
    context.exit(code(incident.document["verdict"]["outcome"], strict, exit_code))


def _engine(dask: str | None, executor: str | None) -> AbstractContextManager[Any]:
    """Return what reads, where that is not this machine's own processes."""
    if dask and executor:
        raise UsageError("--dask and --executor are two engines", "name one of them")
    if not dask and not executor:
        return nullcontext()
    from postmortem.system import pool

    return pool.dask(dask) if dask else pool.made_by(str(executor))


def code(outcome: str, strict: bool, exit_code: bool) -> int:
    """Return what `analyze` ends with."""
    if exit_code:
        return OUTCOME_CODES[outcome]
    return STRICT_CODE if strict and outcome == "undetermined" else 0


app.add_command(run_a_job)
app.add_command(watch)
app.add_command(collect)
app.add_command(diff)
app.add_command(mcp)
app.add_command(history)
app.add_command(replay)

# ── patterns ────────────────────────────────────────────────────────────────────────────────────────────────

pattern_id = argument("pattern", metavar="PATTERN", help="The id of a pattern.")
some_ids = argument("ids", metavar="[PATTERN]...", nargs=-1, help="Only these patterns.")


@app.command()
@pattern_id
@pattern_folders
def explain(pattern: str, folders: tuple[Path, ...]) -> None:
    """Explain a pattern: what it means, how it looks, and what to do."""
    from postmortem.workshop import catalogue

    output.data(catalogue.explain(catalogue.find(pattern, map(commands.folder, folders))))


@app.command()
@argument("name", type=choice(Shape), help="What a program reads.")
def schema(name: str) -> None:
    """Print the JSON Schema of the incident document, its brief, an event of ndjson or a diff."""
    output.data(resources.schema(name))


@app.command()
@argument("shell", type=choice(Shell), help="The shell that reads it.")
def completion(shell: str) -> None:
    """Print what makes a shell complete commands, options and names at TAB."""
    from postmortem.cli import completion
    from postmortem.library import load
    from postmortem.replay.catalogue import SCENARIOS

    names = {"PATTERN": sorted(load().patterns), "SCENARIO": [row.id for row in SCENARIOS]}
    output.data(completion.script(shell, commands.read(app), names))


@patterns_app.command("list")
@flag("--json", "as_json", help="As JSON.")
@pattern_folders
def patterns_list(as_json: bool, folders: tuple[Path, ...]) -> None:
    """List all patterns, one per line."""
    from postmortem.workshop import catalogue

    output.data(catalogue.listing(map(commands.folder, folders), as_json))


@patterns_app.command("show")
@pattern_id
@pattern_folders
def patterns_show(pattern: str, folders: tuple[Path, ...]) -> None:
    """Show everything about one pattern: explanation, regular expressions, links, examples."""
    from postmortem.workshop import catalogue

    output.data(catalogue.show(catalogue.find(pattern, map(commands.folder, folders))))


@patterns_app.command("lint")
@some_ids
@pattern_folders
@click.pass_context
def patterns_lint(context: click.Context, ids: tuple[str, ...], folders: tuple[Path, ...]) -> None:
    """Check the pattern files, and say how to fix each finding. Exit 1 if there is any."""
    from postmortem.workshop import lint

    remarks = lint.run(tuple(map(commands.folder, folders)), ids)
    for remark in remarks:
        output.data(str(remark))
    output.say(f"{len(remarks)} remarks" if remarks else "nothing to fix")
    context.exit(1 if remarks else 0)


@patterns_app.command("test")
@some_ids
@pattern_folders
@click.pass_context
def patterns_test(context: click.Context, ids: tuple[str, ...], folders: tuple[Path, ...]) -> None:
    """Run every example through the scanner and parsers. Exit 1 if one does not match as its file says."""
    from postmortem.workshop import trial

    count, failures = trial.run(tuple(map(commands.folder, folders)), ids)
    for failure in failures:
        output.data(failure)
    output.say(f"{count} examples, {len(failures)} wrong")
    context.exit(1 if failures else 0)


@patterns_app.command("new")
@argument("name", metavar="FAMILY/ID", help="For example nccl/nccl-remote-process-exited.")
@click.option("--from", "line", metavar="FILE:LINE|TEXT", default="", help="A log line that shows it.")
@click.option("--patterns", "folder", metavar="DIR", type=Path, help="Write it to a folder of your own.")
def patterns_new(name: str, line: str, folder: Path | None) -> None:
    """Write the skeleton of a new pattern, with your line as its first example."""
    from postmortem.workshop import skeleton

    path = skeleton.write(name, line, commands.folder(folder) if folder else None)
    output.say(f"wrote {path}\n  fill in what `postmortem patterns lint {path.stem}` asks for")
