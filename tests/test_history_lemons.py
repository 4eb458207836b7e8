"""Accusations: a host that fails again and again, but none by chance or on few data."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from test_history_store import incident

from conftest import Command
from postmortem.errors import UsageError
from postmortem.fleet.history import lemons
from postmortem.fleet.history.lemons import Judged, adjusted, fleet, judge, mapping, sentence, table
from postmortem.fleet.history.rows import Involved, Row
from postmortem.fleet.history.store import opened

Tables = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def tables(*jobs: tuple[list[str], str | None], **more: Any) -> Tables:
    """Rows of the store: the hosts of each job, and the one at fault."""
    usual = {"outcome": "incident", "confidence": "established", "category": "gpu-hardware", "hours": None, "job": None}
    rows, involved = [], []
    for number, (hosts, fault) in enumerate(jobs):
        own = usual | {"uid": str(number), "cause": f"cause {number}", "world_size": 8 * len(hosts)} | more
        rows.append(own | ({"outcome": "healthy"} if fault is None else {}))
        involved += [{"uid": str(number), "kind": "host", "name": h, "fault": h == fault} for h in hosts]
    return rows, involved


def accused(found: list[Judged]) -> list[tuple[str, str]]:
    return [(each.kind, each.name) for each in found if each.lemon]


NINE = [f"gpu-{n:03}" for n in range(10, 19)]
JOBS = [(NINE, "gpu-017")] * 6 + [(NINE, "gpu-011"), (NINE, None), (NINE, None)]


def test_a_host_at_fault_in_six_of_nine_jobs_is_accused_in_one_sentence() -> None:
    found = judge(fleet(*tables(*JOBS), {}))
    assert accused(found) == [("host", "gpu-017")]
    words = sentence(found[0])
    assert words.startswith("gpu-017: at fault in 6 of 9 jobs, expected 0.1 (q < 0.001); ")
    assert words.endswith("times the usual rate")
    other = next(each for each in found if each.name == "gpu-011")
    assert "too few to accuse it" in sentence(other) and other.q > 0.05
    assert table(found, 0.05)[0].startswith("at fault more often than chance explains (at most 5% of these wrongly)")


def test_chance_few_failures_and_many_jobs_are_no_accusation() -> None:
    """Two failures, 600 spread over 200 hosts, and a host with ten times the failures and ten times the jobs."""
    two = [(NINE, "gpu-017")] * 2 + [([f"n{n}"], None) for n in range(500)]
    found = judge(fleet(*tables(*two), {}))
    assert [each.faults for each in found] == [2] and not accused(found)
    chance = random.Random(19)
    spread = [(hosts := chance.sample([f"n{i}" for i in range(200)], 8), chance.choice(hosts)) for _ in range(600)]
    busy: list[tuple[list[str], str | None]] = [(["busy"], "busy" if n % 10 == 0 else None) for n in range(300)]
    for host in range(20):
        busy += [([f"n{host}"], f"n{host}" if n % 10 == 0 else None) for n in range(30)]
    assert not accused(judge(fleet(*tables(*spread), {}))) and not accused(judge(fleet(*tables(*busy), {})))


def test_hours_are_the_exposure_where_they_are_known() -> None:
    rows, involved = tables(*JOBS)
    for row in rows:
        row["hours"] = 2.5
    found = fleet(rows, involved, {})
    assert found.hours and found.hosts["gpu-017"].exposure == pytest.approx(22.5)
    assert "6 times in 22 h" in sentence(judge(found)[0])
    rows[0]["hours"] = rows[1]["hours"] = None
    assert not fleet(rows, involved, {}).hours


def test_only_a_sure_verdict_of_a_chosen_category_counts() -> None:
    for more in (
        {"category": "python-exception"},  # the code is at fault, wherever it ran
        {"confidence": "hypothesis"},
        {"outcome": "undetermined"},
        {"job": "4711", "cause": "the same"},  # a requeue loop: one failure
    ):
        assert not accused(judge(fleet(*tables(*JOBS, **more), {}))), more
    rows = tables(*JOBS, category="hang")
    assert accused(judge(fleet(*rows, {}, ("hang",)))) == accused(judge(fleet(*rows, {}, ("all",)))) != []


def test_a_rack_is_accused_for_failures_that_its_hosts_do_not_explain() -> None:
    """A switch makes each of its hosts fail once or twice; one lemon in a rack is the host's matter."""
    names = [f"n{i}" for i in range(60)]
    racks = {name: {"rack": f"r{i // 10}"} for i, name in enumerate(names)}
    jobs: list[tuple[list[str], str | None]] = [(names, n) for n in names[:10] for _ in range(2)]
    jobs += [(names, None)] * 40
    assert accused(judge(fleet(*tables(*jobs), racks))) == [("rack", "r0")]
    alone = [(names, "n3")] * 12 + [(names, None)] * 40
    assert accused(judge(fleet(*tables(*alone), racks))) == [("host", "n3")]


def test_a_gpu_is_accused_by_its_host_and_address() -> None:
    rows, involved = tables(*JOBS)
    involved += [{"uid": str(n), "kind": "gpu", "name": "gpu-017/0000:3b:00", "fault": True} for n in range(6)]
    found = judge(fleet(rows, involved, {}))
    assert accused(found) == [("host", "gpu-017"), ("gpu", "gpu-017/0000:3b:00")]


def test_q_values_are_those_of_benjamini_and_hochberg() -> None:
    """The example of their paper (1995): at 0.05 the first four are rejected."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528]
    p += [0.7590, 1.0]
    q = adjusted(p)
    assert [value < 0.05 for value in q] == [True] * 4 + [False] * 11
    assert q == sorted(q) and q[-1] == 1.0 and q[3] == pytest.approx(0.0095 * 15 / 4)
    assert adjusted([]) == [] and adjusted(p[::-1]) == q[::-1]


def test_tails_are_those_of_the_negative_binomial() -> None:
    """Summed term by term from the other end, and Poisson's where the spread is small."""
    shape, p = 4, 1 / (1 + 0.25 * 0.4)
    far = sum(math.comb(k + shape - 1, k) * p**shape * (1 - p) ** k for k in range(6, 200))
    assert lemons._tail(6, 0.4, 0.25) == pytest.approx(far)
    assert lemons._tail(3, 1.0, 1.0) == pytest.approx(0.125)  # geometric
    assert lemons._tail(3, 1.0, 1e-6) == pytest.approx(0.0803, rel=0.01)
    assert lemons._tail(0, 1.0, 1.0) == 1.0
    assert 0 < lemons._tail(60, 0.1, 0.02) < 1e-60


def test_a_map_needs_a_column_host() -> None:
    assert mapping("host,rack,switch\nn1,r1,s1\nn2,r1,\n,r9,s9\n") == {
        "n1": {"rack": "r1", "switch": "s1"},
        "n2": {"rack": "r1"},
    }
    for text in ("", "host\nn1\n", "node,rack\nn1,r1\n"):
        with pytest.raises(UsageError):
            mapping(text)


def test_the_command_names_the_host(in_process: Command, tmp_path: Path) -> None:
    path, racks = tmp_path / "fleet.db", tmp_path / "racks.csv"
    racks.write_text("host,rack\n" + "".join(f"{name},r1\n" for name in NINE))

    def filed(number: int, fault: str | None) -> Row:
        hosts = tuple(Involved("host", name, name == fault) for name in NINE)
        outcome = "incident" if fault else "healthy"
        return incident(number, involved=hosts, category="gpu-hardware", outcome=outcome, cause=str(number), hours=None)

    with opened(str(path), make=True) as history:
        for number, (_, fault) in enumerate(JOBS):
            history.file(filed(number, fault))
    done = in_process("history", "hosts", "--history", path, "--map", racks)
    assert "  host    gpu-017: at fault in 6 of 9 jobs, expected 0.1 (q < 0.001)" in done.stdout, done.stderr
    as_json = in_process("history", "hosts", "--history", path, "--json").stdout
    assert '"name": "gpu-017"' in as_json and '"lemon": true' in as_json
