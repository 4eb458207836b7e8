"""The command `postmortem replay`: output and exit codes.

In: a scenario's id, a report or an incident document, and the user's wishes. Out: on standard error the plan, its
time limit and the result; on standard output JSON where asked. 0 reproduced, 5 another failure, 6 did not fail,
7 could not run here.
"""

from __future__ import annotations

import difflib
import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from postmortem.errors import UsageError
from postmortem.replay import able, documents, parameters, pick, script, verify
from postmortem.replay.catalogue import BY_ID, SCENARIOS, Arguments, Scenario
from postmortem.replay.run import Progress
from postmortem.system import output

NEEDS = {"netns": "two hosts", "gpu": "GPU", "kernel-log": "kernel log"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of the command."""

    pairs: tuple[str, ...] = ()
    nproc: int = 0
    backend: str = "auto"
    write: Path | None = None
    keep: Path | None = None
    record: Path | None = None
    attach: Path | None = None
    as_json: bool = False


def listing(as_json: bool) -> str:
    """Return all scenarios: a table for people, objects for programs."""
    if as_json:
        return json.dumps([_object(row) for row in SCENARIOS], indent=1)
    rows = [("SCENARIO", "NEEDS", "PROVES", "")]
    for row in SCENARIOS:
        needs = ", ".join(NEEDS.get(need, need) for need in row.needs) or "-"
        rows.append((row.id, needs, row.pattern or "a healthy run", row.title))
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(row[i].ljust(wide[i]) for i in range(3)), row[3]]).rstrip() for row in rows)


def _object(row: Scenario) -> dict[str, object]:
    keys = ("id", "pattern", "category", "needs", "title", "nproc", "launcher")
    meanings = {name: parameter.meaning for name, parameter in parameters.taken(row).items()}
    return {key: getattr(row, key) for key in keys} | {"proves": sorted(row.proves), "parameters": meanings}


def order(name: str, wishes: Wishes) -> verify.Order:
    """Return the order for a scenario or for the one that fits a report; the user's settings precede the report's."""
    if name in BY_ID:
        chosen = verify.Order(BY_ID[name])
    elif Path(name).exists():
        chosen = pick.order(documents.read(Path(name)))
    else:
        near = difflib.get_close_matches(name, BY_ID, 1, 0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{name} is no scenario and no report", f"{hint}`postmortem replay --list` names all scenarios"
        )
    row, given = chosen.scenario, parameters.read(chosen.scenario, wishes.pairs)
    nproc = wishes.nproc or chosen.nproc or row.nproc
    _check_ranks(row, nproc, given)
    able.check_backend(row, wishes.backend)
    arguments = {**chosen.arguments, **given}
    if int(arguments.get("rank", row.arguments.get("rank", 1))) >= nproc:
        arguments["rank"] = nproc - 1
    expected = chosen.expected
    if expected and expected.ranks:
        expected = replace(expected, ranks=verify.promised(row, arguments).ranks)
    return replace(chosen, arguments=arguments, nproc=nproc, backend=wishes.backend, expected=expected)


def _check_ranks(row: Scenario, nproc: int, given: Arguments) -> None:
    if row.launcher.startswith("two-hosts") and nproc % 2:
        raise UsageError(f"--nproc {nproc} cannot be split evenly over two hosts", f"--nproc {nproc + 1}, for example")
    rank = int(given.get("rank", 0))
    if rank >= nproc:
        raise UsageError(f"there is no rank {rank} among {nproc} ranks", f"--nproc {rank + 1} has it")


def execute(name: str, wishes: Wishes) -> int:
    """Run the whole command; return its exit code."""
    _check_targets(wishes)
    ordered = order(name, wishes)
    if wishes.write:
        return _write(ordered, wishes.write)
    result = verify.prepare(ordered)
    if isinstance(result, verify.Ready):
        _announce(result)
        sample = (wishes.record, _command(result, wishes.record)) if wishes.record else None
        try:
            result = verify.verify(result, wishes.keep, _progress(), sample)
        except KeyboardInterrupt:
            output.say("\ninterrupted; everything that was started has been stopped and removed")
            raise
    _report(result, wishes)
    return result.code


def _check_targets(wishes: Wishes) -> None:
    """Raise an error, before anything is started, if a target cannot be written."""
    if wishes.write:
        output.check_target(wishes.write)
    if wishes.attach:
        documents.read(wishes.attach)
    for flag, folder in (("--keep", wishes.keep), ("--record", wishes.record)):
        if folder and folder.exists() and (flag == "--record" or not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{flag} {folder} already exists", "name a folder that does not exist yet")
    if wishes.keep and wishes.record:
        raise UsageError("--keep and --record both keep the logs", "leave out one of them")


def _write(ordered: verify.Order, target: Path) -> int:
    plan = verify.written(ordered)
    output.write_file(target, script.write(plan, target.name))
    output.say(f"wrote {target}; nothing was started. Run it like this:")
    for line in script.launch(plan, target.name):
        output.say(f"  {line}")
    return 0


def _announce(ready: verify.Ready) -> None:
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


def _command(ready: verify.Ready, record: Path) -> str:
    """Return the command that makes the sample again, for its README."""
    plan, known = ready.plan, parameters.taken(ready.plan.scenario)
    words = ["postmortem", "replay", plan.scenario.id, f"--nproc={plan.nproc}", f"--backend={ready.backend}"]
    words += [f"--set={name}={value}" for name, value in plan.arguments.items() if name in known]
    return shlex.join([*words, f"--record=sample_logs/{record.name}"])


def _report(result: verify.Result, wishes: Wishes) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    output.say(result.text)
    if headline := result.found.get("headline"):
        output.say(f"  the verdict on its logs: {headline}")
    for note in result.notes if result.outcome != "reproduced" else ():
        output.say(f"  {note}")
    if result.logs:
        output.say(f"  its logs: {result.logs}")
    if wishes.attach:
        documents.attach(wishes.attach, result.to_json())
        output.say(f"  the result is in {wishes.attach}")
    if wishes.as_json:
        output.data(json.dumps(result.to_json(), indent=1))
