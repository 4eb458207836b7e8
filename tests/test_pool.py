"""The pool: results in the order of the items, and one bad item costs one item."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pool_work
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, needs, python, table
from postmortem.errors import PatternError, UsageError
from postmortem.system import pool


def run(items: list[object], workers: int = 2, **more: object) -> list[object]:
    with pool.local(workers) as place:
        return pool.run(items, [1] * len(items), pool_work.halves, place, **more)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 500), max_size=60), st.integers(1, 1000))
def test_every_item_is_in_one_bundle_and_none_is_too_large_but_alone(sizes: list[int], target: int) -> None:
    found = pool.bundles(sizes, target)
    assert sorted(i for bundle in found for i in bundle) == list(range(len(sizes)))
    assert all(len(b) == 1 or sum(sizes[i] for i in b) <= target for b in found)


def test_bundles_do_not_grow_without_end_where_files_are_empty() -> None:
    assert max(map(len, pool.bundles([0] * 5000, 1 << 20))) <= pool.MOST_ITEMS


def test_small_inputs_get_one_process_and_no_input_gets_more_than_there_are_processors() -> None:
    assert pool.workers_for([10_000] * 64) == 1
    processors = len(os.sched_getaffinity(0))
    assert pool.workers_for([1 << 30] * 64) == min(processors, 64)
    assert pool.workers_for([10 << 30]) == 1, "one file is one task"


@pytest.mark.slow
def test_bad_items_are_named_and_cost_no_neighbor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A death, a fault, a hang, starvation and an exception among forty items in bundles."""
    monkeypatch.setattr(pool, "DEADLINE", 2.0)
    items: list[object] = list(range(40))
    bad = {3: pool_work.KILL, 4: pool_work.FAULT, 17: pool_work.HANG, 18: pool_work.STARVE, 39: pool_work.RAISE}
    for index, harm in bad.items():
        items[index] = harm
    results = run(items)
    assert [r for i, r in enumerate(results) if i not in bad] == [i / 2 for i in range(40) if i not in bad]
    assert [results[i] for i in sorted(bad)] == [
        pool.Failure("died (SIGKILL)"),
        pool.Failure("died (SIGSEGV)"),
        pool.Failure("took too long"),
        pool.Failure("ran out of memory"),
        pool.Failure("failed (ValueError: no such half)"),
    ]


def test_a_worker_killed_from_outside_costs_nothing(tmp_path: Path) -> None:
    """The second try finds a healthy worker, as after the kernel's OOM killer took the first."""
    assert run([8, (pool_work.ONCE, str(tmp_path)), 10]) == [4, pool_work.ONCE / 2, 5]


@pytest.mark.parametrize("times, results", [(3, [4.0, 4.5]), (99, None)])
def test_an_engine_that_breaks_costs_no_item_until_it_breaks_each_time(times: int, results: list[float] | None) -> None:
    """Pebble breaks where a worker dies between two tasks, and then ends all of them."""
    breaks = iter(range(times))

    def submit(work: object, bundle: object, seconds: float) -> Future[object]:
        future: Future[object] = Future()
        if next(breaks, None) is None:
            future.set_result(work(bundle))  # type: ignore[operator]
        else:
            future.set_exception(BrokenProcessPool("All workers expired"))
        return future

    place = pool.Place(submit, lambda: None, 2)
    found = pool.run([8, 9], [1, 1], pool_work.halves, place)  # type: ignore[arg-type]
    assert found == (results or [pool.Failure("failed (BrokenProcessPool: All workers expired)")] * 2)


def test_a_mistake_of_the_user_ends_everything() -> None:
    with pytest.raises(PatternError, match=r"x\.yaml:3"):
        run([1, pool_work.OURS, 2])


def test_ctrl_c_returns_the_finished_items() -> None:
    seen: list[int] = []

    def interrupt(index: int, well: bool) -> None:
        seen.append(index)
        os.kill(os.getpid(), signal.SIGINT)

    results = run(list(range(64)), done=interrupt)
    assert pool.INTERRUPTED in results
    assert all(results[i] == i / 2 for i in seen) and seen


def test_a_script_without_a_main_guard_may_use_workers(tmp_path: Path) -> None:
    """Spawned workers run the caller's script again, unless that is prevented:
    here it would start workers without end."""
    script = tmp_path / "three_lines.py"
    script.write_text(
        "import pool_work\nfrom postmortem.system import pool\n"
        "with pool.local(2) as p:\n    print(pool.run([2, 4], [1, 1], pool_work.halves, p))\n"
    )
    done = python(script, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"})
    assert done.stdout.strip() == "[1.0, 2.0]", done.stderr


def test_another_executor_does_the_same() -> None:
    with ThreadPoolExecutor(2) as threads:
        place = pool.elsewhere(threads)
        assert pool.run([2, pool_work.RAISE, 6], [1, 1, 1], pool_work.halves, place) == [
            1.0, pool.Failure("failed (ValueError: no such half)"), 3.0,
        ]  # fmt: skip


FACTORIES = table("pool")["factories"]


def test_a_wrong_factory_is_an_error_with_a_reason() -> None:
    for name, reason in FACTORIES.items():
        with pytest.raises(UsageError, match=reason), pool.made_by(name):
            pass


def test_a_factory_is_called_and_its_executor_shut_down() -> None:
    with pool.made_by("concurrent.futures:ThreadPoolExecutor") as threads:
        assert threads.submit(sum, [1, 2]).result() == 3
    with pytest.raises(RuntimeError):
        threads.submit(sum, [1, 2])


@needs("distributed")
def test_a_missing_scheduler_is_an_error_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ANSWER", 1.0)
    with (
        pytest.raises(UsageError, match="no Dask scheduler answers at tcp://127.0.0.1:9"),
        pool.dask("tcp://127.0.0.1:9"),
    ):
        pass
