"""Items -> their results, by as many processes as pay off, here or on a cluster; one that dies costs one item.

    run([a, b, c], sizes, work, local(2))   ->   [result of a, Failure("died (SIGKILL)"), result of c]

Small items travel in bundles, a large one alone. A bundle that failed is tried a second time, item by item, so
that the item at fault is named and its neighbors are not lost. Workers are spawned, and so inherit neither threads
nor locks; where there are none, they are forked. Other engines are a `concurrent.futures.Executor`.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process, spawn
from multiprocessing.context import ForkProcess, SpawnContext, SpawnProcess
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from postmortem.errors import PostmortemError, UsageError
from postmortem.system.process import OutOfTime, begin, delayed_signals, may_fork, unhandled, unsignaled_children
from postmortem.system.process import tune as tune

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[tuple[T, ...]], list[R]]
Done = Callable[[int, bool], None]  # index of an item, and whether it was read

BUNDLE = 128 << 20  # bytes; dask takes 2 ms for each task
MOST_ITEMS = 512  # items in a bundle
PAYS = 1.0  # seconds of one process's work from which on a second process is worth its start
BYTES_PER_SECOND = 600e6
SECONDS_PER_ITEM = 1.5e-3
DEADLINE = 30.0  # seconds for a task, and as many more as a slow disk needs
SLOWEST = 20e6  # bytes a second
ANSWER = 10.0  # seconds until a cluster's scheduler has to answer
REBUILDS = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result, as a predicate: `the worker that read it …`."""

    reason: str


INTERRUPTED = Failure("interrupted")


class Place(NamedTuple):
    """An engine for tasks: `submit(work, bundle, seconds)`. `stop` ends the running ones."""

    submit: Callable[[Callable[..., Any], tuple[Any, ...], float], Future[Any]]
    stop: Callable[[], None]
    workers: int


def workers_for(sizes: Sequence[int]) -> int:
    """Return how many processes pay off: one for small inputs, at most one for each processor."""
    if current_process().daemon:  # may have no children
        return 1
    seconds = sum(sizes) / BYTES_PER_SECOND + len(sizes) * SECONDS_PER_ITEM
    return max(1, min(len(os.sched_getaffinity(0)), len(sizes), int(seconds / PAYS)))


def seconds_for(size: int) -> float:
    """Return the time limit for a task of so many bytes."""
    return DEADLINE + size / SLOWEST


def bundles(sizes: Sequence[int], target: int) -> list[tuple[int, ...]]:
    """Return neighbors together, up to `target` bytes each; the largest bundles first, so that none ends last."""
    out: list[tuple[int, ...]] = []
    held: list[int] = []
    weight = 0
    for index, size in enumerate(sizes):
        if held and (weight + size > target or len(held) >= MOST_ITEMS):
            out.append(tuple(held))
            held, weight = [], 0
        held.append(index)
        weight += size
    if held:
        out.append(tuple(held))
    return sorted(out, key=lambda bundle: -sum(sizes[i] for i in bundle))


def run(
    items: Sequence[T], sizes: Sequence[int], work: Work[T, R], place: Place, done: Done | None = None
) -> list[R | Failure]:
    """Return the result of `work` for each item, in their order. A KeyboardInterrupt ends it early.

    `work` takes a bundle and returns a result for each of its items. A PostmortemError from it ends everything;
    any other error is the failure of its items.
    """
    return _Run(items, sizes, work, place, done).all()


class _Run:
    """Running tasks. Each item is tried with its bundle and, if that failed, once alone; again where the engine broke,
    which takes all of its tasks with it."""

    def __init__(self, items: Sequence[Any], sizes: Sequence[int], work: Any, place: Place, done: Done | None) -> None:
        self.items, self.sizes, self.work, self.place, self.done = items, sizes, work, place, done
        self.results: list[Any] = [None] * len(items)
        self.ended: SimpleQueue[tuple[Future[Any], tuple[int, ...], int]] = SimpleQueue()
        self.under_way = 0

    def all(self) -> list[Any]:
        spread = sum(self.sizes) // (16 * self.place.workers)  # a share that ends last is 1/16 of the work of one
        try:
            for bundle in bundles(self.sizes, max(1, min(BUNDLE, spread))):
                self._submit(bundle, 0)
            while self.under_way:
                self._take(*self.ended.get())
        except KeyboardInterrupt:
            self.place.stop()
            return [INTERRUPTED if result is None else result for result in self.results]
        except BaseException:
            self.place.stop()
            raise
        return self.results

    def _submit(self, bundle: tuple[int, ...], failed: int) -> None:
        seconds = seconds_for(sum(self.sizes[i] for i in bundle))
        self.under_way += 1
        try:
            future = self.place.submit(self.work, tuple(self.items[i] for i in bundle), seconds)
        except Exception as error:  # the engine itself is broken
            future = Future()
            future.set_exception(error)
        future.add_done_callback(lambda ended: self.ended.put((ended, bundle, failed)))

    def _take(self, future: Future[Any], bundle: tuple[int, ...], failed: int) -> None:
        self.under_way -= 1
        try:
            results = future.result()
        except PostmortemError:
            raise
        except Exception as error:
            if failed < (REBUILDS if isinstance(error, BrokenExecutor) else 1):
                for index in bundle:
                    self._submit((index,), failed + 1)
                return
            results = [Failure(why(error))]
        for index, result in zip(bundle, results, strict=True):
            self.results[index] = result
            if self.done:
                self.done(index, not isinstance(result, Failure))


def why(error: BaseException) -> str:
    """Return the predicate for a Failure."""
    if isinstance(error, TimeoutError | OutOfTime):
        return "took too long"
    if isinstance(error, MemoryError):
        return "ran out of memory"
    code = getattr(error, "exitcode", None)
    if code is not None:
        killed = isinstance(code, int) and -code in set(signal.Signals)
        return f"died ({signal.Signals(-code).name if killed else f'exit code {code}'})"
    if type(error).__name__ == "KilledWorker":  # dask: it died on several workers
        return "died each time"
    return f"failed ({type(error).__name__}: {str(error)[:200]})"


# ── here ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def local(workers: int) -> Iterator[Place]:
    """Yield a place of `workers` processes on this machine."""
    processes = _Processes(workers)
    try:
        processes.start()  # before the caller has more threads
        yield Place(processes.submit, processes.stop, workers)
    finally:
        processes.stop()


class _Processes:
    """Pebble's pool: `ProcessPoolExecutor` gives up all its tasks when one worker dies. Pebble gives up where a
    worker dies between two tasks; then a new pool takes the next tasks."""

    def __init__(self, workers: int) -> None:
        self.workers, self.rebuilds = workers, 0
        self.context = _Context()
        self.pool: Any = self._made()

    def _made(self) -> Any:
        from multiprocessing.resource_tracker import ensure_running

        from pebble import ProcessPool

        with unsignaled_children():  # it is a process too
            ensure_running()
        return ProcessPool(max_workers=self.workers, context=self.context, initializer=begin)

    def start(self) -> bool:
        """Start the workers and return whether they run."""
        with delayed_signals():
            return bool(self.pool.active)

    def submit(self, work: Callable[..., Any], bundle: tuple[Any, ...], seconds: float) -> Future[Any]:
        try:
            with delayed_signals():  # it starts the workers of a new pool
                future: Future[Any] = self.pool.schedule(work, args=[bundle], timeout=seconds)
        except RuntimeError:
            if self.rebuilds == REBUILDS:
                raise
            self.rebuilds += 1
            self.stop()
            self.pool = self._made()
            return self.submit(work, bundle, seconds)
        return future

    def stop(self) -> None:
        """End the workers, then their channel. Pebble's `join` ends the channel first, and a worker that is
        still starting then misses its lock and prints a traceback."""
        self.pool.stop()
        if (loop := self.pool._pool_manager_loop) is not None:
            loop.join()  # it would start new ones
        for process in self.context.started:
            if process.is_alive():
                process.terminate()
        self.pool.join()


_prepared = spawn.get_preparation_data
_STARTING = threading.Lock()


def _prepared_without_main(name: str) -> dict[str, Any]:
    return {key: value for key, value in _prepared(name).items() if not key.startswith("init_main")}


class _Process(SpawnProcess):
    """A spawned process that does not run the caller's script, which may lack a `__main__` guard, again."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _STARTING:
            spawn.get_preparation_data = _prepared_without_main
            try:
                with unsignaled_children():
                    return SpawnProcess._Popen(process_obj)
            finally:
                spawn.get_preparation_data = _prepared


class _Copy(ForkProcess):
    """A copy of this process, which need not start Python, import or read the patterns: a third of a second."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with unsignaled_children():
            return ForkProcess._Popen(process_obj)

    def run(self) -> None:
        unhandled()
        super().run()


class _Context(SpawnContext):
    """Knows the processes that it started."""

    def __init__(self) -> None:
        self.started: list[_Process | _Copy] = []

    def Process(self, *args: Any, **options: Any) -> _Process | _Copy:  # type: ignore[override]
        self.started.append((_Copy if may_fork() else _Process)(*args, **options))
        return self.started[-1]


# ── elsewhere ───────────────────────────────────────────────────────────────────────────────────────────────


def elsewhere(executor: Executor) -> Place:
    """Return a place for an executor of the caller's, which has its own number of workers and deadlines."""
    futures: list[Future[Any]] = []

    def submit(work: Callable[..., Any], bundle: tuple[Any, ...], _seconds: float) -> Future[Any]:
        futures.append(executor.submit(work, bundle))
        return futures[-1]

    def stop() -> None:  # the tasks; the executor is the caller's
        for future in futures:
            future.cancel()

    return Place(submit, stop, 4)


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """Yield the executor of a running Dask scheduler. Raise UsageError without one."""
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--dask needs dask and distributed", "pip install 'dask[distributed]'") from None
    try:
        client: Any = Client(address, timeout=ANSWER)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address}: {str(error)[:200]}", "give it like this: tcp://10.0.0.7:8786"
        ) from None
    try:
        if not client.scheduler_info()["workers"]:
            raise UsageError(f"the Dask scheduler at {address} has no workers", f"start one: dask worker {address}")
        yield client.get_executor(pure=False)
    finally:
        client.close()


@contextmanager
def made_by(name: str) -> Iterator[Executor]:
    """Yield the executor that `package.module:function` makes, and shut it down. Raise UsageError."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise UsageError(f"--executor {name} names no factory", "for example: --executor package.module:function")
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--executor {name}: {error}", "the module must be importable where postmortem runs") from None
    executor = factory() if callable(factory) else factory
    if not callable(getattr(executor, "submit", None)):
        raise UsageError(
            f"--executor {name} gave a {type(executor).__name__}, which has no `submit`",
            "return a concurrent.futures.Executor",
        )
    try:
        yield executor
    finally:
        executor.shutdown()
