"""`postmortem replay`: a small real reproduction of a failure.

On standard error the plan, its time limit and the result; on standard output JSON where asked. Exit codes:
0 reproduced, 5 another failure, 6 did not fail, 7 could not run here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postmortem.cli.options import Json
from postmortem.errors import UsageError
from postmortem.system import output

if TYPE_CHECKING:
    from postmortem.replay.run import Progress
    from postmortem.replay.verify import Order, Ready, Result

NEEDS = {"netns": "two hosts", "gpu": "GPU", "kernel-log": "kernel log"}
Backend = StrEnum("Backend", "auto nccl gloo")


def complete_scenario(incomplete: str) -> list[str]:
    """Return the scenario ids that start with the incomplete word."""
    from postmortem.replay.catalogue import SCENARIOS

    return [row.id for row in SCENARIOS if row.id.startswith(incomplete)]


def replay(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO|REPORT", help="Scenario id, or a report of analyze.", autocompletion=complete_scenario
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the scenarios and their requirements.")] = False,
    pairs: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Parameter, such as rank=2; repeatable.")
    ] = None,
    nproc: Annotated[int | None, typer.Option(min=1, max=64, metavar="N", help="Number of ranks.")] = None,
    backend: Annotated[
        Backend, typer.Option(help="Backend; auto is nccl if every rank has a GPU, otherwise gloo.")
    ] = Backend.auto,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained script instead of running it.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the logs of the replay here.")] = None,
    attach: Annotated[Path | None, typer.Option(metavar="REPORT", help="Add the result to this report.")] = None,
    as_json: Json = False,
) -> int:
    """Reproduce a failure with a few real processes and check that the verdict is the same."""
    from postmortem.replay import documents, verify

    if listed:
        output.data(listing(as_json))
        return 0
    if not name:
        raise UsageError(
            "nothing to replay", "name a scenario of `postmortem replay --list`, or a report of `postmortem analyze`"
        )
    if write:  # errors come before anything is started
        output.check_target(write)
    if attach:
        documents.read(attach)
    if keep and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"--keep {keep} already exists", "name a folder that does not exist yet")
    ordered = order(name, pairs or (), nproc or 0, backend)
    if write:
        _write(ordered, write)
        return 0
    result = verify.prepare(ordered)
    if isinstance(result, verify.Ready):
        _announce(result)
        try:
            result = verify.verify(result, keep, _progress())
        except KeyboardInterrupt:
            output.say("\ninterrupted; everything that was started has been stopped and removed")
            raise
    _report(result)
    if attach:
        documents.attach(attach, result.to_json())
        output.say(f"  the result is in {attach}")
    if as_json:
        output.data(json.dumps(result.to_json(), indent=1))
    return result.code


def listing(as_json: bool) -> str:
    """Return all scenarios: a table for people, objects for programs."""
    from postmortem.replay import catalogue
    from postmortem.replay.catalogue import SCENARIOS

    if as_json:
        keys = ("id", "pattern", "category", "needs", "title", "nproc", "launcher")
        objects = []
        for row in SCENARIOS:
            meanings = {name: parameter.meaning for name, parameter in catalogue.taken(row).items()}
            own = {"proves": sorted(row.proves), "parameters": meanings}
            objects.append({key: getattr(row, key) for key in keys} | own)
        return json.dumps(objects, indent=1)
    rows = [("SCENARIO", "NEEDS", "PROVES", "")]
    for row in SCENARIOS:
        needs = ", ".join(NEEDS.get(need, need) for need in row.needs) or "-"
        rows.append((row.id, needs, row.pattern or "a healthy run", row.title))
    wide = [max(len(cells[column]) for cells in rows) for column in range(3)]
    return "\n".join("  ".join([*(cells[i].ljust(wide[i]) for i in range(3)), cells[3]]).rstrip() for cells in rows)


def order(name: str, pairs: Sequence[str] = (), nproc: int = 0, backend: str = "auto") -> Order:
    """Return the order for a scenario or for the one that fits a report; the user's settings precede the report's."""
    from postmortem.replay import able, catalogue, documents, pick, verify
    from postmortem.replay.catalogue import BY_ID

    if name in BY_ID:
        chosen = verify.Order(BY_ID[name])
    elif Path(name).exists():
        chosen = pick.order(documents.read(Path(name)))
    else:
        from difflib import get_close_matches

        near = get_close_matches(name, BY_ID, 1, 0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{name} is neither a scenario nor a report", f"{hint}`postmortem replay --list` names all scenarios"
        )
    row, given = chosen.scenario, catalogue.read(chosen.scenario, pairs)
    nproc = nproc or chosen.nproc or row.nproc
    if row.launcher.startswith("two-hosts") and nproc % 2:
        raise UsageError(f"--nproc {nproc} cannot be split evenly over two hosts", f"--nproc {nproc + 1}, for example")
    if (rank := int(given.get("rank", 0))) >= nproc:
        raise UsageError(f"there is no rank {rank} among {nproc} ranks", f"--nproc {rank + 1} has it")
    able.check_backend(row, backend)
    arguments = {**chosen.arguments, **given}
    if int(arguments.get("rank", row.arguments.get("rank", 1))) >= nproc:
        arguments["rank"] = nproc - 1
    expected = chosen.expected
    if expected and expected.ranks:
        expected = replace(expected, ranks=verify.promised(row, arguments).ranks)
    return replace(chosen, arguments=arguments, nproc=nproc, backend=backend, expected=expected)


def _write(ordered: Order, target: Path) -> None:
    from postmortem.replay import script, verify

    plan = verify.written(ordered)
    output.write_file(target, script.write(plan, target.name))
    output.say(f"wrote {target}; nothing was started. Run it like this:")
    for line in script.launch(plan, target.name):
        output.say(f"  {line}")


def _announce(ready: Ready) -> None:
    plan = ready.plan
    fault = f", rank {plan.rank} at fault" if plan.scenario.culprit == "rank" else ""
    output.say(f"replaying {plan.scenario.id}: {plan.scenario.title}; {plan.nproc} ranks on this machine{fault}")
    for note in ready.notes:
        output.say(f"  {note}")
    output.say(f"  it is stopped after {ready.limit_s:.0f} s at the latest")


def _progress() -> Progress | None:
    if not sys.stderr.isatty():
        return None

    def show(elapsed: float, step: int) -> None:
        sys.stderr.write(f"\r  {elapsed:4.0f} s, {f'step {step}' if step >= 0 else 'starting'}   ")
        sys.stderr.flush()

    return show


def _report(result: Result) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    output.say(result.text)
    if headline := result.found.get("headline"):
        output.say(f"  the verdict on its logs: {headline}")
    for note in result.notes if result.outcome != "reproduced" else ():
        output.say(f"  {note}")
    if result.logs:
        output.say(f"  its logs: {result.logs}")
