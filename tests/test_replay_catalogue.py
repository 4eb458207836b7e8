"""The catalogue of scenarios and the jobs it speaks of belong together, row by row, and say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT, SAMPLES
from postmortem.library import load
from postmortem.model.vocabulary import CATEGORIES
from postmortem.replay import kernel
from postmortem.replay.catalogue import SCENARIOS, Scenario
from postmortem.replay.isolate import CannotIsolate, Place, Wants, place
from postmortem.replay.plan import default_plan
from postmortem.replay.record import _parser, _plan
from postmortem.replay.run import processes
from postmortem.replay.scrub import scrub, scrub_pickle

JOBS = ROOT / "postmortem" / "replay" / "scenarios"
IDS = [row.id for row in SCENARIOS]


def test_every_script_belongs_to_a_scenario() -> None:
    scripts = set(JOBS.glob("*.py")) - {JOBS / "__init__.py", JOBS / "trainer.py"}
    assert scripts == {row.path for row in SCENARIOS}
    assert all(len(row.situation) > 20 for row in SCENARIOS)


@pytest.mark.parametrize("row", SCENARIOS, ids=IDS)
def test_a_row_uses_the_closed_vocabularies(row: Scenario) -> None:
    assert {row.category, *row.also} - {None} <= set(CATEGORIES)
    assert set(row.outcomes) <= {"incident", "undetermined", "recovered", "healthy"}
    assert (row.category is None) == (not row.failing) == (row.pattern is None)
    assert set(row.needs) <= {"root", "gpu", "cgroup", "netns", "kernel-log"}
    assert "root" in row.needs or row.wants == Wants(), "namespaces, mounts and cgroups need root"


def test_the_expected_patterns_exist() -> None:
    known = {path.stem for path in (ROOT / "patterns").rglob("*.yaml")}
    assert {row.id: row.pattern for row in SCENARIOS if row.pattern and row.pattern not in known} == {}


def _place(folder: Path, wants: Wants = Wants()) -> Place:
    made = Place("postmortem-replay-4711-abcd", folder / "postmortem-replay-4711-abcd", wants, None)
    made.logs.mkdir(parents=True)
    return made


def test_two_hosts_share_the_ranks_and_each_lives_in_its_namespace(tmp_path: Path) -> None:
    plan = default_plan(next(row for row in SCENARIOS if row.id == "master-addr-hard-coded"))
    made = _place(tmp_path, Wants(hosts=plan.hosts))
    started = processes(plan, made, 29500)
    assert [(p.name, p.host, p.stdout.parent.name) for p in started] == [
        ("rank0", 0, "node-a"), ("rank1", 0, "node-a"), ("rank2", 1, "node-b"), ("rank3", 1, "node-b"),
    ]  # fmt: skip
    assert made.argv(started[3].argv, 1)[:4] == ["ip", "netns", "exec", f"{made.tag}-b"]


def test_only_the_rank_at_fault_is_started_oddly(tmp_path: Path) -> None:
    by_id = {row.id: row for row in SCENARIOS}
    absent = processes(default_plan(by_id["missing-rank"]), _place(tmp_path / "a"), 29500)
    assert [p.name for p in absent] == ["rank0", "rank1", "rank2"]
    twice = processes(default_plan(by_id["duplicate-rank"]), _place(tmp_path / "b"), 29500)
    assert [p.env["RANK"] for p in twice] == ["0", "1", "1", "3"]
    unset = processes(default_plan(by_id["missing-env"]), _place(tmp_path / "c"), 29500)
    assert ["RANK" in p.env for p in unset] == [True, False, True]


def test_the_scrubber_takes_out_names_of_this_machine_and_nothing_else(tmp_path: Path) -> None:
    made = _place(tmp_path)
    text = f'  File "{made.job}/train.py", line 3 in main; oom_memcg=/{made.tag},task=python3; loss 2.5'
    line = f"{text}\r\n\x00".encode()
    assert scrub(line, made) == (
        b'  File "/opt/train/run/train.py", line 3 in main; oom_memcg=/job_4711,task=python3; loss 2.5\r\n\x00'
    )


def test_a_scrubbed_pickle_still_loads(tmp_path: Path) -> None:
    import pickle  # ours, made two lines below

    made = _place(tmp_path)
    dump = {"frames": [{"filename": f"{made.job}/train.py", "line": 7}], "big": 2**70}
    assert pickle.loads(scrub_pickle(pickle.dumps(dump, protocol=2), made)) == {
        "frames": [{"filename": "/opt/train/run/train.py", "line": 7}], "big": 2**70,
    }  # fmt: skip


def test_only_kernel_records_since_the_start_count_even_if_the_ring_dropped_old_ones() -> None:
    assert kernel.since(["<6>[1.0] a", "<6>[2.0] b"], ["<6>[2.0] b", "<3>[3.0] c"]) == ["<3>[3.0] c"]
    assert kernel.since(["<6>[1.0] a"], ["<6>[8.0] x"]) == ["<6>[8.0] x"]
    assert kernel.pids(
        ["<3>[9.1] Killed process 42 (python3) total-vm:1kB", "<6>[9.2] python3[43]: segfault at 0 ip 0"]
    ) == {42, 43}


def test_what_the_kernel_says_of_others_is_no_evidence() -> None:
    """Two people replay an OOM on one machine: each reads the other's kills in the same ring."""

    def oom(pid: int) -> list[str]:
        told = f"Memory cgroup out of memory: Killed process {pid} (python3)"
        lines = ["python3 invoked oom-killer: gfp_mask=0xcc0", f"[ {pid}] 0 {pid} 1 python3", told]
        return [f"<4>[9.1] {line}" for line in lines]

    crash = ["<6>[9.2] python3[{0}]: segfault at 0 ip 0 error 4 in libc.so.6", "<6>[9.2] Code: 0f 1f"]
    ours, theirs = ([line.format(pid) for line in crash] for pid in (42, 99))
    reaped = ["<6>[9.3] oom_reaper: reaped process 99 (python3), now anon-rss:0kB"]
    between = ["<6>[9.4] eth0: link up"]
    assert kernel.of_processes([*oom(99), *reaped, *oom(42), *theirs, *between, *ours], {42}) == [
        *oom(42),
        *between,
        *ours,
    ]


def test_a_place_is_refused_where_it_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CannotIsolate, match="needs root"), place(Wants(memory_mb=10)):
        pass


@pytest.mark.parametrize("readme", sorted(SAMPLES.glob("*/README.md")), ids=lambda path: path.parent.name)
def test_every_sample_tells_the_command_that_makes_it_again(readme: Path) -> None:
    import shlex

    if (job := readme.parent / "job").is_dir():  # a run of another launcher: its scripts lie beside it
        commands = [line for line in readme.read_text().splitlines() if line.startswith("    ")]
        assert len(commands) == 1
        assert any(f" {script.name}" in commands[0] for script in job.iterdir())
        return

    command = next(
        line.strip()
        for line in readme.read_text().splitlines()
        if line.startswith("    python -m postmortem.replay.record ")
    )
    plan = _plan(_parser().parse_args(shlex.split(command)[3:]))
    assert f"--out sample_logs/{readme.parent.name}" in command
    assert plan.scenario.id in IDS


@pytest.mark.parametrize("row", [r for r in SCENARIOS if r.pattern], ids=lambda r: r.id)
def test_the_catalogue_and_the_pattern_agree_on_the_category(row: Scenario) -> None:
    pattern = load()[row.pattern]
    assert row.category == pattern.category
