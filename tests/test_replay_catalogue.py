"""The catalogue of scenarios, its jobs and the samples agree; a plan starts the right processes; logs are scrubbed."""

from __future__ import annotations

import ast
import pickle  # of our own data
import shlex
from pathlib import Path

import pytest

from conftest import SAMPLES
from postmortem.library import load
from postmortem.model.vocabulary import CATEGORIES
from postmortem.replay import kernel, parameters
from postmortem.replay.catalogue import BY_ID, JOBS, SCENARIOS
from postmortem.replay.isolate import CannotIsolate, Place, Wants, place
from postmortem.replay.plan import planned
from postmortem.replay.run import processes
from postmortem.replay.scrub import scrub, scrub_pickle
from scripts.record_sample import parsed, plan_of


def test_every_function_with_a_job_belongs_to_a_scenario() -> None:
    jobs = set()
    for path in set(JOBS.glob("*.py")) - {JOBS / "__init__.py", JOBS / "trainer.py"}:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and [each.arg for each in node.args.args] == ["job"]:
                jobs.add(f"{path.stem}.{node.name}")
    assert jobs == {row.job for row in SCENARIOS}
    assert all(len(row.story) > 20 for row in SCENARIOS)


def test_rows_use_the_closed_vocabularies_and_ranges() -> None:
    library = load()
    for row in SCENARIOS:
        assert {row.category, *row.also} - {None} <= set(CATEGORIES), row.id
        assert set(row.outcomes) <= {"incident", "undetermined", "recovered", "healthy"}, row.id
        assert (row.category is None) == (not row.failing) == (row.pattern is None), row.id
        assert set(row.needs) <= {"root", "gpu", "cgroup", "netns", "kernel-log"}, row.id
        assert "root" in row.needs or row.wants == Wants(), "namespaces, mounts and cgroups need root"
        assert not row.pattern or library[row.pattern].category == row.category, row.id
        known = parameters.taken(row)
        for given in (row.arguments, row.fallback.arguments if row.fallback else {}, *row.proves.values()):
            for name, value in given.items():
                assert name in parameters.LAUNCH or known[name].read(name, value) == value, row.id


def test_hints_of_the_library_lead_to_scenarios_that_show_the_pattern() -> None:
    for pattern in load().patterns.values():
        if pattern.replay:
            row = BY_ID[pattern.replay]
            assert pattern.id == row.pattern or pattern.id in row.proves, f"{pattern.id}: {row.id} shows {row.pattern}"


def _place(folder: Path, wants: Wants = Wants()) -> Place:
    made = Place("postmortem-replay-4711-abcd", folder / "postmortem-replay-4711-abcd", wants, None)
    made.logs.mkdir(parents=True)
    return made


def test_two_hosts_share_the_ranks_and_each_has_its_namespace(tmp_path: Path) -> None:
    plan = planned(BY_ID["master-addr-hard-coded"])
    made = _place(tmp_path, Wants(hosts=plan.hosts))
    started = processes(plan, made, 29500)
    assert [(p.name, p.host, p.stdout.parent.name) for p in started] == [
        ("rank0", 0, "node-a"), ("rank1", 0, "node-a"), ("rank2", 1, "node-b"), ("rank3", 1, "node-b"),
    ]  # fmt: skip
    assert made.argv(started[3].argv, 1)[:4] == ["ip", "netns", "exec", f"{made.tag}-b"]


def test_only_the_rank_at_fault_starts_differently(tmp_path: Path) -> None:
    absent, twice, unset = (
        processes(planned(BY_ID[name]), _place(tmp_path / name), 29500)
        for name in ("missing-rank", "duplicate-rank", "missing-env")
    )
    assert [p.name for p in absent] == ["rank0", "rank1", "rank2"]
    assert [p.env["RANK"] for p in twice] == ["0", "1", "1", "3"]
    assert ["RANK" in p.env for p in unset] == [True, False, True]


def test_scrubbing_replaces_the_names_of_this_machine_and_nothing_else(tmp_path: Path) -> None:
    made = _place(tmp_path)
    text = f'  File "{made.job}/train.py", line 3 in main; oom_memcg=/{made.tag},task=python3; loss 2.5\r\n\x00'
    assert scrub(text.encode(), made) == (
        b'  File "/opt/train/run/train.py", line 3 in main; oom_memcg=/job_4711,task=python3; loss 2.5\r\n\x00'
    )
    dump = {"frames": [{"filename": f"{made.job}/train.py", "line": 7}], "big": 2**70}
    assert pickle.loads(scrub_pickle(pickle.dumps(dump, protocol=2), made)) == {
        "frames": [{"filename": "/opt/train/run/train.py", "line": 7}], "big": 2**70,
    }  # fmt: skip


def test_kernel_records_are_those_since_the_start_and_of_own_processes() -> None:
    assert kernel.since(["<6>[1.0] a", "<6>[2.0] b"], ["<6>[2.0] b", "<3>[3.0] c"]) == ["<3>[3.0] c"]
    assert kernel.since(["<6>[1.0] a"], ["<6>[8.0] x"]) == ["<6>[8.0] x"]

    def oom(pid: int) -> list[str]:
        killed = f"Memory cgroup out of memory: Killed process {pid} (python3)"
        lines = ["python3 invoked oom-killer: gfp_mask=0xcc0", f"[ {pid}] 0 {pid} 1 python3", killed]
        return [f"<4>[9.1] {line}" for line in lines]

    crash = ["<6>[9.2] python3[{0}]: segfault at 0 ip 0 error 4 in libc.so.6", "<6>[9.2] Code: 0f 1f"]
    ours, theirs = ([line.format(pid) for line in crash] for pid in (42, 99))
    reaped = ["<6>[9.3] oom_reaper: reaped process 99 (python3), now anon-rss:0kB"]
    between = ["<6>[9.4] eth0: link up"]
    records = [*oom(99), *reaped, *oom(42), *theirs, *between, *ours]
    assert kernel.of_processes(records, {42}) == [*oom(42), *between, *ours]


def test_place_without_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CannotIsolate, match="needs root"), place(Wants(memory_mb=10)):
        pass


def test_every_sample_has_the_command_that_makes_it_again() -> None:
    for readme in sorted(SAMPLES.glob("*/README.md")):
        commands = [line for line in readme.read_text().splitlines() if line.startswith("    ")]
        if (job := readme.parent / "job").is_dir():  # a run of another launcher: its scripts are beside it
            assert len(commands) == 1
            assert any(f" {script.name}" in commands[0] for script in job.iterdir())
            continue
        command = next(line for line in commands if line.startswith("    python scripts/record_sample.py "))
        assert f"--out sample_logs/{readme.parent.name}" in command
        plan = plan_of(parsed(shlex.split(command)[2:]))
        text = f"`{plan.scenario.function}` in `postmortem/replay/scenarios/{plan.scenario.path.name}`"
        assert text in readme.read_text(), readme
