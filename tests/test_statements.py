"""What all ranks said once, and one of them with another number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postmortem.analyze import analyze

SIZES = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at ../gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 27200 vs 27072. "
    "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
)
LOST = (
    "[rank{r}]: RuntimeError: [../gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer."
)


def verdict(tmp_path: Path, said: str, values: tuple[object, ...], times: int = 1) -> Any:
    """Ranks that say a sentence with a number each, and then send sizes that do not fit; 1 aborts in gloo."""
    head = [f"[rank{r}] world_size={len(values)}, pid {4000 + r}" for r in range(len(values))]
    lines = [f"[rank{r}] {said.format(v)}" for _ in range(times) for r, v in enumerate(values)]
    lost = [LOST.format(r=r) for r in range(len(values)) if r != 1]
    (tmp_path / "job.log").write_text("\n".join([*head, *lines, SIZES, *lost, ""]))
    found = analyze([str(tmp_path)]).document["verdict"]
    assert found["category"] == "collective-mismatch"
    return found


@pytest.mark.parametrize("odd", range(3))
def test_who_states_another_number_than_all_others_is_the_odd_one(odd: int, tmp_path: Path) -> None:
    values = tuple(96 if r == odd else 94 for r in range(3))
    found = verdict(tmp_path, "charset with {} glyphs", values)
    assert found["culprit"]["ranks"] == [odd]
    assert "charset with 96 glyphs`; all others logged 94" in found["headline"]


@pytest.mark.parametrize(
    "values, times",
    [
        ((94, 94, 94), 1),  # all the same
        ((94, 95, 96), 1),  # a pid, a loss
        ((94, 94, 96), 9),  # what comes again and again counts steps
        ((94, 96), 1),  # of two neither is the odd one
    ],
)
def test_and_nobody_is_where_numbers_say_nothing(values: tuple[object, ...], times: int, tmp_path: Path) -> None:
    assert "all others said" not in verdict(tmp_path, "charset with {} glyphs", values, times)["headline"]


LATE = "torch.distributed.DistStoreError: wait timeout after 15000ms, keys: /default_pg/0//cpu//0/4"


@pytest.mark.parametrize(
    "said, culprits",
    [
        ("app starting rank={r} world={v} port=29822", [2]),
        ("rendezvous file /home/jul/share/{v}/rdv", [2]),
        ("slot {r}: init_process_group(file:///home/edo/v{v}/rdv, rank={r}, world_size=4)", [2]),
        ("app starting on host=node-{v} pid={r}", []),  # hosts differ as they should
        ("app starting rank={r} gpu={v}", []),
    ],
)
def test_who_was_started_with_another_setting(said: str, culprits: list[int], tmp_path: Path) -> None:
    for r in range(4):
        line = said.format(r=r, v=5 if r == 2 else 4)
        (tmp_path / f"rank{r}.log").write_text(f"2026-11-22 11:40:14,137 I {line}\n" + (f"{LATE}\n" if r == 2 else ""))
    found = analyze([str(tmp_path)]).document["verdict"]
    assert found["category"] == "rendezvous"
    assert (found["pattern"] == "setting-of-one-rank") == bool(culprits)
    assert found["culprit"]["ranks"] == (culprits or found["culprit"]["ranks"])


def test_the_same_in_another_order_is_another_program(tmp_path: Path) -> None:
    views = ("['local0', 'global0']", "['global0', 'local0']")
    found = verdict(tmp_path, "statistics: views {}", tuple(views[r == 2] for r in range(3)))
    assert found["culprit"]["ranks"] == [2]


def test_hosts_are_other_values_as_they_should_be(tmp_path: Path) -> None:
    assert "all others said" not in verdict(tmp_path, "runs on {}", ("node-1", "node-1", "node-2"))["headline"]


def test_all_wait_and_one_had_said_that_it_does_another_thing(tmp_path: Path) -> None:
    late = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation to complete"
    frame = '  File "/opt/pbt.py", line 5, in exploit\n    dist.broadcast(p.data, src=best)'
    lines = [f"[rank{r}] exploit: copying the weights of member {2 if r == 2 else 0}" for r in range(3)]
    for r in range(3):
        trace = f"Traceback (most recent call last):\n{frame}\n{late}"
        lines += [f"[rank{r}]: {line}" for line in trace.split("\n")]
    (tmp_path / "job.log").write_text("\n".join([*lines, ""]))
    found = analyze([str(tmp_path)]).document["verdict"]
    assert (found["pattern"], found["culprit"]["ranks"]) == ("rank-said-otherwise", [2])


def test_whose_loss_was_nan_first_where_all_refuse_to_go_on(tmp_path: Path) -> None:
    refused = "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped."
    lines = [f"[rank{r}] step {n} loss {'nan' if (r, n) == (2, 40) else '0.5'}" for n in (0, 20, 40) for r in range(4)]
    for r in range(4):
        lines += [
            f"[rank{r}]: Traceback (most recent call last):",
            f'[rank{r}]:   File "/opt/t.py", line 9, in <module>',
        ]
        lines += [f"[rank{r}]: {refused}"]
    (tmp_path / "job.log").write_text("\n".join([*lines, ""]))
    found = analyze([str(tmp_path)]).document["verdict"]
    assert (found["category"], found["culprit"]["ranks"]) == ("numerics", [2])
