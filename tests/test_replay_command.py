"""`postmortem replay` before anything is started: the choice of a scenario, its parameters, scripts, outcomes. The
catalogue of scenarios, its jobs and the samples agree; a plan starts the right processes; logs are scrubbed."""

from __future__ import annotations

import ast
import itertools
import json
import pickle  # of our own data
import shlex
from pathlib import Path
from typing import Any

import pytest

from conftest import SAMPLES, Command, needs, solved, table
from postmortem.cli.app import run
from postmortem.cli.replay import order
from postmortem.errors import ReplayError, UsageError
from postmortem.library import load
from postmortem.model.vocabulary import CATEGORIES
from postmortem.replay import able, catalogue, documents, kernel, pick, script, verify
from postmortem.replay.catalogue import BY_ID, JOBS, SCENARIOS
from postmortem.replay.isolate import CannotIsolate, Place, Wants, place
from postmortem.replay.plan import planned
from postmortem.replay.run import processes
from postmortem.replay.verify import Expected, Order, Ready, Result
from postmortem.report import render_html, render_json
from scripts.record_sample import parsed, plan_of
from scripts.scrub import scrub, scrub_pickle

VERDICT = {
    "outcome": "incident", "category": "hang", "pattern": "rank-never-arrived", "culprit": {"ranks": [2]},
}  # fmt: skip
HINT = {"scenario": "slow-rank", "arguments": {"world_size": 4, "rank": 2, "timeout_s": 6.0}}


def document(verdict: Any = (), replay: Any = ()) -> dict[str, Any]:
    parts = {"verdict": VERDICT | dict(verdict), "replay": HINT | dict(replay)}
    return {"schema": "postmortem/incident/1", **parts}


def test_list_is_a_table_for_people_and_objects_for_programs(in_process: Command) -> None:
    rows = json.loads(in_process("replay", "--list", "--json").stdout)
    assert [row["id"] for row in rows] == [*BY_ID]
    assert all(set(row) >= {"id", "pattern", "category", "needs", "parameters"} for row in rows)
    table = in_process("replay", "--list").stdout.splitlines()
    assert len(table) == len(SCENARIOS) + 1
    row = next(line for line in table if line.startswith("firewall-drop "))
    assert row.split()[1:4] == ["root,", "two", "hosts"]


def test_parameters_are_typed_and_in_range_or_refused() -> None:
    for pair in table("replay_command")["wrong_pairs"]:
        with pytest.raises(UsageError) as refused:
            catalogue.read(BY_ID["slow-rank"], [pair])
        assert refused.value.hint, pair
    assert catalogue.read(BY_ID["slow-rank"], ["rank=2", "timeout=7.5", "style=json", "stall=0"]) == {
        "rank": 2, "timeout": 7.5, "style": "json", "stall": 0.0,
    }  # fmt: skip
    assert catalogue.read(BY_ID["uneven-batches"], ["at-end=barrier"]) == {"at_end": "barrier"}


def test_hint_of_a_report_sets_scenario_and_arguments() -> None:
    made = pick.order(document())
    assert (made.scenario.id, made.nproc, made.arguments) == ("slow-rank", 4, {"rank": 2, "timeout": 6.0})
    assert made.expected == Expected("rank-never-arrived", ("hang",), (2,)) and not made.notes

    large = {"world_size": 512, "rank": 37, "step": 8120, "timeout_s": 600.0}
    made = pick.order(document(replay={"arguments": large}))
    assert (made.nproc, made.arguments) == (4, {"rank": 3})
    notes = " | ".join(made.notes)
    for text in ("512 ranks become 4", "rank 37 becomes rank 3", "8120", "600"):
        assert text in notes

    verdict = {"pattern": "index-out-of-range", "category": "python-exception"}
    made = pick.order(document(verdict, {"scenario": "python-exception-one-rank"}))
    assert made.arguments["error"] == "index" and made.expected and made.expected.pattern == "index-out-of-range"


def test_report_without_a_hint_is_matched_by_its_pattern() -> None:
    made = pick.order(document({"pattern": "env-var-missing"}, {"scenario": None, "arguments": {}}))
    assert made.scenario.id == "missing-env"
    for pattern in (None, "xid-79-gpu-fell-off-bus", ["slow-rank"], "x" * 10_000, "../../etc/passwd"):
        with pytest.raises(ReplayError):
            pick.order(document({"pattern": pattern}, {"scenario": pattern, "arguments": {}}))


HOSTILE = [
    "; reboot", "$(id)", "--help", "\x00", "../x", -1, 2**70, float("nan"), float("inf"), True, None, [], {"rank": 1},
    "9" * 5000,
]  # fmt: skip


def test_values_of_a_document_reach_a_job_only_if_typed_and_in_range() -> None:
    names = [*catalogue.COMMON, *catalogue.OWN, *catalogue.RUNNER, "world_size", "env", "script", "; rm"]
    for value, row in itertools.product([*HOSTILE, 3], SCENARIOS):
        made = pick.order(document(replay={"scenario": row.id, "arguments": dict.fromkeys(names, value)}))
        known = catalogue.taken(row)
        assert all(value == 3 and known[name].read(name, taken) == taken for name, taken in made.arguments.items())
        assert bool(made.arguments) == (value == 3) and 1 <= made.nproc <= pick.MOST_RANKS


def test_settings_of_the_user_precede_those_of_a_report(tmp_path: Path) -> None:
    report = tmp_path / "incident.json"
    report.write_text(json.dumps(document()))
    made = order(str(report), ("rank=1", "stall=3"), 3)
    assert (made.nproc, made.arguments["rank"], made.arguments["stall"]) == (3, 1, 3.0)
    assert made.expected and made.expected.ranks == (1,)


def test_result_is_attached_to_page_and_json(tmp_path: Path) -> None:
    incident = solved(SAMPLES / "bad-label-one-rank")
    text = "Reproduced: </script><script>alert(1)</script> & more."
    result = {"scenario": "python-exception-one-rank", "outcome": "reproduced", "text": text, "notes": ["on gloo"]}
    orders, page = [], render_html(incident)
    for name, content in (("report.html", page), ("incident.json", render_json(incident))):
        path = tmp_path / name
        path.write_text(content)
        before = documents.read(path)
        orders.append(pick.order(before))
        for _ in range(2):  # a second replay replaces the first
            documents.attach(path, result)
        after = documents.read(path)
        assert after["replay"].pop("result")["text"] == text
        assert after == before
    assert orders[0] == orders[1]
    assert (orders[0].scenario.id, orders[0].arguments["rank"]) == ("python-exception-one-rank", 2)
    attached = (tmp_path / "report.html").read_text()
    assert attached.count('<section id="replay"') == 1 and attached.count("</script>") == page.count("</script>")
    assert "Reproduced: &lt;/script&gt;" in attached and attached.rstrip().endswith("</html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["incident.json", "report.html"]


def test_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    unfinished = '{"schema": "postmortem/incident/1"}'
    for content in ("", "{}", "[]", "<html></html>", unfinished, "{" * 100_000, "\x00\xff"):
        path.write_text(content)
        with pytest.raises(UsageError):
            documents.read(path)


def defined(source: str) -> list[str]:
    body = ast.parse(source).body
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return names + [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def test_written_scripts_are_whole() -> None:
    shared = defined((JOBS / "trainer.py").read_text())
    for row in SCENARIOS:
        plan = verify.written(Order(row, {"rank": 1}))
        text = script.write(plan, "job.py")
        compile(text, "job.py", "exec")
        names = defined(text)
        assert len(names) == len(set(names)) and {*shared, row.function} <= set(names), row.id
        assert "import trainer" not in text
        launched = "\n".join(script.launch(plan, "job.py"))
        assert "job.py" in launched and ("torchrun --nproc-per-node=" in launched or "RANK=" in launched), row.id


def test_write_starts_nothing_and_prints_the_command(in_process: Command, tmp_path: Path) -> None:
    done = in_process("replay", "slow-rank", "--set", "rank=2", "--nproc", "3", "--write", "job.py")
    assert done.returncode == 0 and "nothing was started" in done.stderr
    assert "torchrun --nproc-per-node=3 --nnodes=1" in done.stderr and "--rank 2" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.py"]


def test_backend_follows_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, asked, name, backend, nproc in table("replay_command")["backends"]:
        monkeypatch.setattr(able, "gpus", lambda gpus=gpus: gpus)
        chosen = able.transport(BY_ID[name], asked, 0)
        assert (chosen.backend, chosen.nproc) == (backend, nproc)
        lost = "NCCL's watchdog, flight recorder" in chosen.why
        assert lost == (backend == "gloo" and name != "shape-mismatch"), (gpus, asked, name)


@needs("torch")
def test_gpu_scenarios_are_complete_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They end with 7 and the reason; script and command line can be taken to a machine that has a GPU."""
    monkeypatch.setattr(able, "gpus", lambda: 0)
    for row in SCENARIOS:
        if "gpu" in row.needs:
            assert run(["replay", row.id, "--json"]) == 7
            printed = capsys.readouterr()
            assert "it needs an NVIDIA GPU" in printed.err and json.loads(printed.out)["needs"] == [able.NO_GPU]
            target = tmp_path / f"{row.id}.py"
            words = ["--set", "rank=0", "--set", "step=3", "--nproc", "2", "--write", str(target)]
            assert run(["replay", row.id, *words]) == 0
            launched = capsys.readouterr().err
            for option in (f"--backend {row.backend}", "--rank 0", "--step 3"):
                assert option in launched
            assert target.exists()


@needs("torch")
def test_missing_needs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    # without root a limit of the address space replaces the cgroup
    ready = verify.prepare(Order(BY_ID["host-oom-rank"]))
    assert isinstance(ready, Ready)
    assert ready.expected.pattern == "cpu-allocator-out-of-memory" and ready.plan.arguments["limit_mb"] == 400
    assert any("root" in note for note in ready.notes)
    refused = verify.prepare(Order(BY_ID["firewall-drop"]))
    assert isinstance(refused, Result) and refused.code == 7 and "root" in refused.text
    monkeypatch.setattr(able.importlib.util, "find_spec", lambda name: None)
    refused = verify.prepare(Order(BY_ID["slow-rank"]))
    assert isinstance(refused, Result) and refused.code == 7 and "pip install torch" in refused.text


READY = Ready(
    verify.written(Order(BY_ID["slow-rank"], {"rank": 2})), Expected("rank-never-arrived", ("hang",), (2,)), "gloo", ()
)
EXCEPTION = {"pattern": "python-exception", "category": "python-exception"}
NOBODY: dict[str, list[int]] = {"ranks": []}


def test_reproduced_means_that_everything_agrees() -> None:
    healthy = {"outcome": "healthy", "pattern": None, "category": "", "culprit": NOBODY}
    undetermined = {"outcome": "undetermined", "pattern": None, "culprit": NOBODY}
    everything = ("pattern", "category", "ranks")
    for changes, outcome, code, differs in (
        ({}, "reproduced", 0, ()),
        ({"culprit": {"ranks": [1]}}, "different", 5, ("ranks",)),
        ({"culprit": NOBODY}, "different", 5, ("ranks",)),
        (EXCEPTION, "different", 5, ("pattern", "category")),
        (undetermined, "different", 5, ("pattern", "ranks")),
        (healthy, "did-not-fail", 6, everything),
        (dict.fromkeys(VERDICT), "different", 5, everything),
    ):
        result = verify.judged(READY, {"verdict": VERDICT | changes})
        assert (result.outcome, result.code, result.differs) == (outcome, code, differs)
        assert all(name in result.text or outcome == "did-not-fail" for name in differs)
        assert result.to_json()["expected"] == {"pattern": "rank-never-arrived", "category": "hang", "ranks": [2]}


def test_impossible_requests_are_refused_before_anything_starts(
    in_process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.log").touch()
    monkeypatch.setattr(able, "gpus", lambda: 0)
    for words, code, text in table("replay_command")["refused"]:
        done = in_process("replay", *words.split())
        assert done.returncode == code and text in done.stderr and "Traceback" not in done.stderr, words


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
        known = catalogue.taken(row)
        for given in (row.arguments, *(each.arguments for each in row.fallbacks), *row.proves.values()):
            for name, value in given.items():
                assert name in catalogue.LAUNCH or known[name].read(name, value) == value, row.id


def test_hints_of_the_library_lead_to_scenarios_that_show_the_pattern() -> None:
    assert (hinted := [pattern for pattern in load().patterns.values() if pattern.replay])
    for pattern in hinted:
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
    assert (readmes := sorted(SAMPLES.glob("*/README.md")))
    for readme in readmes:
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
