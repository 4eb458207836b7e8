"""`postmortem run`, `watch` and `collect`: commands for a job while it runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from postmortem.cli.options import JOB_HELP, History
from postmortem.errors import UsageError
from postmortem.live.run.switches import SWITCHES
from postmortem.system import output
from postmortem.system.arguments import moment

Keep = StrEnum("Keep", "failed always")


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run, with its arguments.")],
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Folder with one subfolder per run.")] = Path(
        "postmortem-runs"
    ),
    keep: Annotated[Keep, typer.Option(help="Keep the folder of failed runs, or of every run.")] = Keep.failed,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="SWITCH", help=f"Do not set this diagnostic; repeatable: {', '.join(SWITCHES)}."),
    ] = None,
    no_analyze: Annotated[bool, typer.Option("--no-analyze", help="Do not analyze a failure.")] = False,
    history: History = None,
) -> int:
    """Run a job unchanged, keep evidence of a failure, and analyze it."""
    from postmortem.live.run.wrapper import execute

    return execute(command, folder, keep, without or (), not no_analyze, history)


Form = StrEnum("Form", "text json")


def watch(
    paths: Annotated[list[str], typer.Argument(metavar="LOGS|RUN...", help="Logs of the job, or the folder of `run`.")],
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 10 at the first hang.")] = False,
    on_hang: Annotated[str | None, typer.Option(metavar="COMMAND", help="Command to run at a hang.")] = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Analyze the logs when the job has ended.")] = False,
    form: Annotated[Form, typer.Option("--format", "-f", help="Output format: text or JSON lines.")] = Form.text,
    interval: Annotated[float, typer.Option(min=1, metavar="S", help="Seconds between two states.")] = 30,
    patience: Annotated[
        float, typer.Option(min=1, metavar="S", help="Minimum quiet time before a hang is reported (seconds).")
    ] = 60,
    quiet_factor: Annotated[
        float, typer.Option(min=1, metavar="N", help="Minimum quiet time as a multiple of the usual quiet time.")
    ] = 4,
    folder: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the evidence of hangs.")] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help=JOB_HELP)] = None,
) -> int:
    """Follow the logs of a running job and report a hang while it lasts."""
    from postmortem.live.watch.rhythm import Settings
    from postmortem.live.watch.watcher import Options, command_words, execute
    from postmortem.system.process import tune

    tune()

    options = Options(
        Settings(patience, quiet_factor, min(5.0, patience / 4)),
        interval,
        form,
        once,
        exit_code,
        analyze,
        command_words(on_hang),
        folder,
        job or "",
    )
    return execute(paths, options)


def _of_hosts(*names: str, **more: Any) -> Any:
    """Return an option in the panel for several hosts."""
    return typer.Option(*names, rich_help_panel="Several hosts", **more)


def collect(
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Archive: .tar.zst, .tar.gz or .tar.")
    ] = None,
    srun: Annotated[str | None, _of_hosts(metavar="JOB", help="All hosts of this running Slurm job.")] = None,
    ssh: Annotated[
        str | None, _of_hosts(metavar="HOSTS|@FILE", help="These hosts, separated by commas, or one per line of FILE.")
    ] = None,
    kubectl: Annotated[
        str | None, _of_hosts(metavar="SELECTOR", help="Pods with these labels, such as app=train.")
    ] = None,
    namespace: Annotated[
        str | None, _of_hosts("--namespace", "-n", metavar="NAME", help="With --kubectl: namespace of the pods.")
    ] = None,
    container: Annotated[
        str | None, _of_hosts("--container", "-c", metavar="NAME", help="With --kubectl: container of each pod.")
    ] = None,
    python: Annotated[str | None, _of_hosts(metavar="PROGRAM", help="Python 3.8 or later on the other hosts.")] = None,
    timeout: Annotated[int | None, _of_hosts(min=1, metavar="S", help="Time limit per host (seconds).")] = None,
    parallel: Annotated[int | None, _of_hosts(min=1, max=512, metavar="N", help="Number of hosts at a time.")] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help=JOB_HELP)] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start of the job; by default that of its oldest rank, or a day ago."),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List the items of the archive, with reasons and commands.")
    ] = False,
    no_redact: Annotated[bool, typer.Option("--no-redact", help="Do not mask secrets.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no table.")] = False,
) -> None:
    """Save short-lived evidence of a host (stacks, counters, kernel log, GPUs) in one archive."""
    if listed:
        from postmortem.model import collected

        output.data(collected.listing())
        return
    from postmortem.live.collect import collection
    from postmortem.live.collect.hosts import Hosts

    launchers = {"srun": srun, "ssh": ssh, "kubectl": kubectl}
    named = [(name, which) for name, which in launchers.items() if which is not None]
    if len(named) > 1:
        raise UsageError(f"--{named[0][0]} and --{named[1][0]} cannot be combined", "use one of them")
    if (namespace or container) and kubectl is None:
        raise UsageError("--namespace and --container are for --kubectl", "omit them")
    if not named and (python or timeout or parallel):
        raise UsageError("--python, --timeout and --parallel are for many hosts", "add --srun, --ssh or --kubectl")
    collection.execute(
        out,
        Hosts(*named[0], python or "", namespace or "", container or "") if named else None,
        timeout=timeout,
        parallel=parallel,
        job=job or "",
        since=moment(since, "--since"),
        redact=not no_redact,
        quiet=quiet,
    )
