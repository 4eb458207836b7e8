"""What `postmortem replay` does, in words and exit codes; `cli.py` only reads the arguments.

In: a scenario's id, a report or an incident document, and the user's wishes. Out: on standard error what will
be done, for how long at most, and what came of it; on standard output JSON where asked. 0 reproduced, 5
another failure, 6 did not fail, 7 could not run here.
"""

from __future__ import annotations

import difflib
import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from postmortem.errors import ReplayError, UsageError
from postmortem.replay import able, documents, parameters, pick, script, verify
from postmortem.replay.catalogue import SCENARIOS, Arguments, Scenario
from postmortem.replay.isolate import CannotIsolate
from postmortem.replay.record import CannotRecord, DidNotFail, record
from postmortem.replay.run import Progress
from postmortem.system import output

IDS = {row.id: row for row in SCENARIOS}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user may choose."""

    pairs: tuple[str, ...] = ()
    nproc: int = 0
    backend: str = "auto"
    write: Path | None = None
    keep: Path | None = None
    record: Path | None = None
    attach: Path | None = None
    as_json: bool = False


# ── listing ─────────────────────────────────────────────────────────────────────────────────────────────────


def listing(as_json: bool) -> str:
    """All scenarios: a table for people, objects for programs."""
    if as_json:
        return json.dumps([_object(row) for row in SCENARIOS], indent=1)
    head = ("SCENARIO", "NEEDS", "PROVES", "")
    rows = [head, *((row.id, _needs(row), row.pattern or "a healthy run", row.title) for row in SCENARIOS)]
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(row[i].ljust(wide[i]) for i in range(3)), row[3]]).rstrip() for row in rows)


def _object(row: Scenario) -> dict[str, object]:
    known = parameters.taken(row)
    return {
        "id": row.id,
        "pattern": row.pattern,
        "category": row.category,
        "needs": list(row.needs),
        "title": row.title,
        "proves": sorted(row.proves),
        "nproc": row.nproc,
        "launcher": row.launcher,
        "parameters": {name: parameter.meaning for name, parameter in known.items()},
    }


def _needs(row: Scenario) -> str:
    words = {"netns": "two hosts", "gpu": "GPU", "kernel-log": "kernel log"}
    return ", ".join(words.get(need, need) for need in row.needs) or "-"


# ── choosing ────────────────────────────────────────────────────────────────────────────────────────────────


def order(what: str, wishes: Wishes) -> verify.Order:
    """A scenario by its id, or the one that fits a report;
    the user's own settings go before those of the report."""
    if what in IDS:
        chosen = verify.Order(IDS[what])
    elif Path(what).exists():
        chosen = pick.order(documents.read(Path(what)))
    else:
        near = difflib.get_close_matches(what, IDS, 1, 0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{what} is no scenario and no report", f"{hint}`postmortem replay --list` names all scenarios"
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
    if int(given.get("rank", 0)) >= nproc:
        raise UsageError(
            f"there is no rank {given['rank']} among {nproc} ranks",
            f"--nproc {int(given['rank']) + 1} has it",
        )


# ── doing ───────────────────────────────────────────────────────────────────────────────────────────────────


def execute(what: str, wishes: Wishes) -> int:
    """The whole command; returns its exit code."""
    _check_targets(wishes)
    ordered = order(what, wishes)
    if wishes.write:
        return _write(ordered, wishes.write)
    ready = verify.prepare(ordered)
    if isinstance(ready, verify.Result):
        result = ready
    else:
        _announce(ready)
        try:
            result = _recorded(ready, wishes) if wishes.record else verify.verify(ready, wishes.keep, _progress())
        except KeyboardInterrupt:
            output.say("\ninterrupted; everything that was started has been stopped and removed")
            raise
    _tell(result, wishes)
    return result.code


def _check_targets(wishes: Wishes) -> None:
    """Before anything is started: what will be written can be written."""
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


def _recorded(ready: verify.Ready, wishes: Wishes) -> verify.Result:
    """Run once, keep it as a sample, and judge the sample."""
    plan, out = ready.plan, wishes.record
    assert out is not None
    forms = ("dmesg_iso",) if "kernel-log" in plan.scenario.needs else ()
    try:
        record(plan, out, forms, _command(ready, wishes))
    except DidNotFail as error:
        return replace(verify.judged(ready, {"verdict": {"outcome": "healthy"}}), notes=(str(error),))
    except (CannotRecord, CannotIsolate) as error:
        raise ReplayError(str(error), "run it again; a sample must show what its scenario promises") from None
    return replace(verify.judged(ready, verify.analysed(out / "logs"), ready.notes), logs=str(out / "logs"))


def _command(ready: verify.Ready, wishes: Wishes) -> str:
    """The command that makes the sample again, for its README."""
    plan = ready.plan
    words = ["postmortem", "replay", plan.scenario.id, f"--nproc={plan.nproc}", f"--backend={ready.backend}"]
    sets = [
        f"--set={name}={value}" for name, value in plan.arguments.items() if name in parameters.taken(plan.scenario)
    ]
    assert wishes.record is not None
    return shlex.join([*words, *sets, f"--record=sample_logs/{wishes.record.name}"])


def _tell(result: verify.Result, wishes: Wishes) -> None:
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
