"""`postmortem collect`: short-lived evidence of hosts in one archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from postmortem.cli.options import JOB_HELP
from postmortem.errors import UsageError
from postmortem.system import output
from postmortem.system.arguments import moment


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
