"""`postmortem replay` before anything is started: what is picked, what may be set, what is written,
what each outcome is called."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, SAMPLES, Command
from postmortem.analyze import analyze
from postmortem.errors import ReplayError, UsageError
from postmortem.replay import able, command, documents, parameters, pick, script, verify
from postmortem.replay.catalogue import BY_ID, SCENARIOS, Scenario
from postmortem.replay.command import Wishes
from postmortem.replay.verify import Expected, Order, Ready, Result
from postmortem.report import render_html, render_json

JOBS = ROOT / "postmortem" / "replay" / "scenarios"
IDS = [row.id for row in SCENARIOS]
DOCUMENT: dict[str, Any] = {
    "schema": "postmortem/incident/1",
    "verdict": {
        "outcome": "incident",
        "category": "hang",
        "pattern": "rank-never-arrived",
        "culprit": {"ranks": [2]},
    },
    "replay": {"scenario": "slow-rank", "arguments": {"world_size": 4, "rank": 2, "timeout_s": 6.0}},
}


def cli(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "postmortem", "replay", *map(str, words)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=60)


def document(**changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(DOCUMENT)
    for name, value in changes.items():
        made[name] = {**made[name], **value}
    return made


# ── the list ────────────────────────────────────────────────────────────────────────────────────────────────

PROMISED = """\
host-oom-rank host-oom-dataloader-worker host-oom-kept-graph gpu-oom-one-rank slow-rank rank-sigkill
sigterm-preemption master-addr-hard-coded segfault-faulthandler segfault-silent stack-overflow
abort-cpp-exception race-threads-one-group ranks-diverge-local-update shape-mismatch dtype-mismatch
order-mismatch cyclic-wait async-never-waited skipped-collective manual-allreduce-beside-ddp uneven-batches
swallowed-exception dataloader-fork-deadlock dataloader-starvation rank0-in-io master-unresolvable
master-refused firewall-drop late-rank missing-rank duplicate-rank missing-env wrong-interface port-in-use
world-size-disagrees nccl-without-gpu gloo-with-gpu two-ranks-one-gpu shm-too-small master-low-memory
version-mismatch device-assert illegal-access nan-one-rank disk-full-checkpoint truncated-checkpoint
unused-parameters too-many-open-files init-error-hidden-by-sleep
""".splitlines()


def test_the_list_is_a_table_for_people_and_objects_for_programs(tmp_path: Path) -> None:
    rows = json.loads(cli("--list", "--json", cwd=tmp_path).stdout)
    assert {name for line in PROMISED for name in line.split()} <= {row["id"] for row in rows}
    assert all(set(row) >= {"id", "pattern", "category", "needs"} for row in rows)
    table = cli("--list", cwd=tmp_path).stdout.splitlines()
    assert len(table) == len(SCENARIOS) + 1
    assert next(line for line in table if line.startswith("firewall-drop ")).split()[1:4] == [
        "root,",
        "two",
        "hosts",
    ]


# ── what may be set ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", SCENARIOS, ids=IDS)
def test_what_a_scenario_comes_with_lies_in_its_own_ranges(row: Scenario) -> None:
    known = parameters.taken(row)
    fallback = dict(row.fallback.arguments) if row.fallback else {}
    for given in (row.arguments, fallback, *row.proves.values(), parameters.defaults(row.path)):
        for name, value in given.items():
            if name not in parameters.LAUNCH:
                assert known[name].read(name, value) == value


@pytest.mark.parametrize(
    "pair",
    [
        "rank=-1",
        "rank=64",
        "rank=1.5",
        "rank=nan",
        "rank=1e3",
        "rank=0x1",
        "rank=",
        "rank",
        "timeout=inf",
        "style=$(reboot)",
        "step=९",
        "code=3",
        "backend=gloo;id",
        "megabytes=99999999999999999999",
        "=1",
        "rank=1 --help",
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(pair: str) -> None:
    with pytest.raises(UsageError) as refused:
        parameters.read(BY_ID["slow-rank"], [pair])
    assert refused.value.hint


def test_words_become_typed_values() -> None:
    assert parameters.read(BY_ID["slow-rank"], ["rank=2", "timeout=7.5", "style=json", "stall=0"]) == {
        "rank": 2, "timeout": 7.5, "style": "json", "stall": 0.0,
    }  # fmt: skip
    assert parameters.read(BY_ID["uneven-batches"], ["at-end=barrier"]) == {"at_end": "barrier"}


# ── from an incident ────────────────────────────────────────────────────────────────────────────────────────


def test_the_hint_of_a_report_is_taken_over() -> None:
    made = pick.order(DOCUMENT)
    assert (made.scenario.id, made.nproc, made.arguments) == ("slow-rank", 4, {"rank": 2, "timeout": 6.0})
    assert made.expected == Expected("rank-never-arrived", ("hang",), (2,)) and not made.notes


def test_what_a_miniature_cannot_take_over_is_said() -> None:
    made = pick.order(document(replay={"arguments": {"world_size": 512, "rank": 37, "step": 8120, "timeout_s": 600.0}}))
    assert (made.nproc, made.arguments) == (4, {"rank": 3})
    said = " | ".join(made.notes)
    assert "512 ranks become 4" in said and "rank 37 becomes rank 3" in said and "8120" in said and "600" in said


def test_the_pattern_sets_what_brings_it_about() -> None:
    verdict = {"pattern": "index-out-of-range", "category": "python-exception"}
    made = pick.order(document(verdict=verdict, replay={"scenario": "python-exception-one-rank"}))
    assert made.arguments["error"] == "index" and made.expected and made.expected.pattern == "index-out-of-range"


def test_a_report_without_a_hint_is_matched_by_its_pattern() -> None:
    made = pick.order(document(verdict={"pattern": "env-var-missing"}, replay={"scenario": None, "arguments": {}}))
    assert made.scenario.id == "missing-env"


@pytest.mark.parametrize("pattern", [None, "xid-79-gpu-fell-off-bus", ["slow-rank"], "x" * 10_000, "../../etc/passwd"])
def test_where_nothing_fits_nothing_is_run(pattern: object) -> None:
    with pytest.raises(ReplayError):
        pick.order(document(verdict={"pattern": pattern}, replay={"scenario": pattern, "arguments": {}}))


HOSTILE = [
    "; reboot",
    "$(id)",
    "--help",
    "\x00",
    "../x",
    -1,
    2**70,
    float("nan"),
    float("inf"),
    True,
    None,
    [],
    {"rank": 1},
    "9" * 5000,
]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
def test_nothing_of_a_document_reaches_a_job_unless_typed_and_in_range(value: object) -> None:
    names = [
        *parameters.COMMON,
        *parameters.OWN,
        *parameters.RUNNER,
        "world_size",
        "collective",
        "env",
        "script",
        "; rm",
    ]
    for row in SCENARIOS:
        made = pick.order(document(replay={"scenario": row.id, "arguments": dict.fromkeys(names, value)}))
        for name, taken in made.arguments.items():
            assert parameters.taken(row)[name].read(name, taken) == taken
        assert 1 <= made.nproc <= pick.MOST_RANKS


def test_a_user_sets_more_than_a_report_does(tmp_path: Path) -> None:
    report = tmp_path / "incident.json"
    report.write_text(json.dumps(DOCUMENT))
    made = command.order(str(report), Wishes(("rank=1", "stall=3"), nproc=3))
    assert (made.nproc, made.arguments["rank"], made.arguments["stall"]) == (3, 1, 3.0)
    assert made.expected and made.expected.ranks == (1,)


def test_every_hint_of_the_library_shows_the_pattern_that_gives_it() -> None:
    """A report must not send its reader to a replay of something else."""
    from postmortem.library import load

    for pattern in load().patterns.values():
        if pattern.replay:
            row = BY_ID[pattern.replay]
            assert pattern.id == row.pattern or pattern.id in row.proves, f"{pattern.id}: {row.id} shows {row.pattern}"


# ── reports ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same incident as a page and as JSON."""
    incident = analyze([str(SAMPLES / "bad-label-one-rank" / "logs")])
    folder = tmp_path_factory.mktemp("reports")
    for name, render in (("report.html", render_html), ("incident.json", render_json)):
        (folder / name).write_text(render(incident))
    return folder / "report.html", folder / "incident.json"


def test_a_page_and_its_json_lead_to_the_same_replay(reports: tuple[Path, Path]) -> None:
    page, plain = (pick.order(documents.read(path)) for path in reports)
    assert page == plain and page.scenario.id == "python-exception-one-rank" and page.arguments["rank"] == 2


def test_a_result_is_attached_where_people_and_programs_look_for_it(reports: tuple[Path, Path], tmp_path: Path) -> None:
    text = "Reproduced: </script><script>alert(1)</script> & more."
    for source in reports:
        path = tmp_path / source.name
        path.write_bytes(source.read_bytes())
        before = documents.read(path)
        for _ in range(2):  # a second replay replaces the first
            documents.attach(
                path,
                {
                    "scenario": "python-exception-one-rank",
                    "outcome": "reproduced",
                    "text": text,
                    "notes": ["on gloo"],
                },
            )
        after = documents.read(path)
        assert after["replay"].pop("result")["text"] == text
        assert after == before
    page = (tmp_path / "report.html").read_text()
    assert page.count('<section id="replay"') == 1 and page.count("</script>") == reports[0].read_text().count(
        "</script>"
    )
    assert "Reproduced: &lt;/script&gt;" in page and page.rstrip().endswith("</html>")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "<html></html>", '{"schema": "postmortem/incident/1"}', "{" * 100_000, "\x00\xff"],
)
def test_a_file_that_is_no_report_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(content)
    with pytest.raises(UsageError):
        documents.read(path)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────


def defined(source: str) -> set[str]:
    tree = ast.parse(source)
    made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return made | {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("row", SCENARIOS, ids=IDS)
def test_a_written_script_is_whole(row: Scenario) -> None:
    plan = verify.written(Order(row, {"rank": 1}))
    text = script.write(plan, "job.py")
    compile(text, "job.py", "exec")
    shared, own = (defined(path.read_text()) for path in (JOBS / "trainer.py", row.path))
    assert not shared & own, "one file has room for each name once"
    assert "import trainer" not in text
    launched = "\n".join(script.launch(plan, "job.py"))
    assert "job.py" in launched and ("torchrun --nproc-per-node=" in launched or "RANK=" in launched)


def test_write_runs_nothing_and_gives_the_line(tmp_path: Path) -> None:
    done = cli("slow-rank", "--set", "rank=2", "--nproc", "3", "--write", "job.py", cwd=tmp_path)
    assert (
        done.returncode == 0 and "torchrun --nproc-per-node=3 --nnodes=1" in done.stderr and "--rank 2" in done.stderr
    )
    assert "nothing was started" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.py"]


# ── backend and machine ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("gpus", "asked", "name", "backend", "nproc"),
    [
        (0, "auto", "slow-rank", "gloo", 4),
        (1, "auto", "slow-rank", "gloo", 4),
        (2, "auto", "slow-rank", "nccl", 2),
        (8, "auto", "slow-rank", "nccl", 4),
        (8, "gloo", "slow-rank", "gloo", 4),
        (1, "nccl", "slow-rank", "nccl", 4),
        (8, "auto", "shape-mismatch", "gloo", 3),
        (1, "auto", "gpu-oom-one-rank", "gloo", 2),
        (1, "auto", "two-ranks-one-gpu", "nccl", 2),
    ],
)
def test_the_backend_follows_the_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: int, asked: str, name: str, backend: str, nproc: int
) -> None:
    monkeypatch.setattr(able, "gpus", lambda: gpus)
    chosen = able.transport(BY_ID[name], asked, 0)
    assert (chosen.backend, chosen.nproc) == (backend, nproc)
    if backend == "gloo" and name == "slow-rank":
        assert "NCCL's watchdog, flight recorder" in chosen.why


@pytest.mark.parametrize("row", [row for row in SCENARIOS if "gpu" in row.needs], ids=lambda row: row.id)
def test_a_gpu_scenario_is_complete_where_there_is_no_gpu(
    row: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says why it cannot run and ends with 7;
    its script and command line can be taken to a machine that has a GPU."""
    monkeypatch.setattr(able, "gpus", lambda: 0)
    assert command.execute(row.id, Wishes(as_json=True)) == 7
    told = capsys.readouterr()
    assert "it needs an NVIDIA GPU" in told.err and json.loads(told.out)["needs"] == [able.NO_GPU]
    assert command.execute(row.id, Wishes(pairs=("rank=0", "step=3"), nproc=2, write=tmp_path / "job.py")) == 0
    said = capsys.readouterr().err
    assert f"--backend {row.backend}" in said and "--rank 0" in said and "--step 3" in said
    compile((tmp_path / "job.py").read_text(), "job.py", "exec")


def test_without_torch_the_next_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(able.importlib.util, "find_spec", lambda name: None)
    result = verify.prepare(Order(BY_ID["slow-rank"]))
    assert isinstance(result, Result) and result.code == 7
    assert "pip install torch" in result.text


def test_without_root_a_limit_of_address_space_stands_in_for_the_cgroup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    ready = verify.prepare(Order(BY_ID["host-oom-rank"]))
    assert isinstance(ready, Ready)
    assert ready.expected.pattern == "cpu-allocator-out-of-memory" and ready.plan.arguments["limit_mb"] == 400
    assert any("root" in note for note in ready.notes)
    refused = verify.prepare(Order(BY_ID["firewall-drop"]))
    assert isinstance(refused, Result) and refused.code == 7 and "root" in refused.text


# ── outcomes ────────────────────────────────────────────────────────────────────────────────────────────────

READY = Ready(
    verify.written(Order(BY_ID["slow-rank"], {"rank": 2})),
    Expected("rank-never-arrived", ("hang",), (2,)),
    "gloo",
    (),
)


NEVER = "rank-never-arrived"


def verdict(
    outcome: str = "incident",
    pattern: str | None = NEVER,
    category: str = "hang",
    ranks: tuple[int, ...] = (2,),
) -> Any:
    return {
        "verdict": {
            "outcome": outcome,
            "pattern": pattern,
            "category": category,
            "culprit": {"ranks": list(ranks)},
        }
    }


@pytest.mark.parametrize(
    ("found", "outcome", "code", "differs"),
    [
        (verdict(), "reproduced", 0, ()),
        (verdict(ranks=(1,)), "different", 5, ("ranks",)),
        (verdict(ranks=()), "different", 5, ("ranks",)),
        (
            verdict(pattern="python-exception", category="python-exception"),
            "different",
            5,
            ("pattern", "category"),
        ),
        (verdict("undetermined", None, "hang", ()), "different", 5, ("pattern", "ranks")),
        (verdict("healthy", None, "", ()), "did-not-fail", 6, ("pattern", "category", "ranks")),
        ({}, "different", 5, ("pattern", "category", "ranks")),
    ],
)
def test_reproduced_means_that_everything_agrees(found: Any, outcome: str, code: int, differs: tuple[str, ...]) -> None:
    result = verify.judged(READY, found)
    assert (result.outcome, result.code, result.differs) == (outcome, code, differs)
    assert all(name in result.text or outcome == "did-not-fail" for name in differs)
    assert json.loads(json.dumps(result.to_json()))["expected"] == {
        "pattern": "rank-never-arrived",
        "category": "hang",
        "ranks": [2],
    }


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "nothing to replay"),
        (("slow-rnk",), 2, "did you mean slow-rank"),
        (("slow-rank", "--set", "rank=9"), 2, "there is no rank 9"),
        (("firewall-drop", "--nproc", "3"), 2, "two hosts"),
        (("slow-rank", "--keep", "."), 2, "already exists"),
        (("wrong-interface", "--backend", "nccl"), 2, "gloo's own"),
        (("two-ranks-one-gpu", "--backend", "gloo"), 2, "about backend nccl"),
        (("slow-rank", "--attach", "none.html"), 2, "none.html is no file"),
        (("gpu-oom-one-rank",), 7, "it needs an NVIDIA GPU"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_starts(
    in_process: Command, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    if code == 7 and able.gpus():
        pytest.skip("this machine has a GPU")
    (tmp_path / "old.log").touch()
    done = in_process("replay", *words)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
