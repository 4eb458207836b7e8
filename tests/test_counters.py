"""Which lines clocks are compared by, found by their structure."""

from __future__ import annotations

from conftest import table
from postmortem.blocks import counters, progress
from postmortem.formats.envelope import Style, peel
from postmortem.model import Event, Sample, Source
from postmortem.model.details import MARKS
from postmortem.model.digits import zeros


def form_of(body: str) -> tuple[str, tuple[int, ...]] | None:
    found = counters.form_of(zeros(body))
    return found and (found[0], tuple(int(body[place]) for place in found[1]))


def test_a_counter_is_found_behind_any_prefix_and_other_numbers_are_none() -> None:
    for line in table("counters")["prefixes"]:  # hosts of one job log in formats of their own
        assert form_of(peel(line).body) == ("epoch # step # loss ~", (0, 15)), line
    forms = {body: row and (row[0], tuple(row[1])) for body, row in table("counters")["forms"].items()}
    assert {body: form_of(body) for body in forms} == forms


def test_lines_that_all_ranks_print_after_an_init() -> None:
    one = form_of("train: process group ready: rank 0 of 4, pid 29500, torch 2.13.0+cpu")
    other = form_of("RANK 2 | process group ready: rank 2 of 4, pid 77, torch 2.13.0+cpu")
    assert one == other and one is not None and one[0].startswith("once ")
    nccl = "NCCL INFO ncclCommInitRank comm 0x24 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 56000 commId 0x5a - Init COMPLETE"
    assert form_of(nccl) is not None
    assert form_of("initializing process group backend=gloo") is None, "ranks begin when they like"
    assert "once" not in str(form_of("barrier not reached, waiting for all ranks, joined 3"))


def marks(text: str, rank: int = 0) -> list[Event]:
    source = Source("rank0.log", "console", len(text), rank=rank)
    return [e for e in progress.parse(source, (Sample(1, 0, text.encode()),), Style()) if e.kind == "sync"]


def stamped(n: int, body: str) -> str:
    return f"2026-11-20 21:{n // 60 % 60:02d}:{n % 60:02d},000 INFO train: {body}\n"


def test_marks_are_packed_and_bounded() -> None:
    found = marks("".join(stamped(n, f"step {n} loss 2.3") for n in range(900)))
    assert len(found) == 1
    fields = found[0].fields
    assert len(fields["times"]) == len(fields["lines"]) == MARKS
    assert len(fields["values"]) == MARKS * fields["columns"]
    steps = list(fields["values"])[1 :: fields["columns"]]
    assert steps == sorted(steps) and set(range(890, 900)) <= set(steps), "the end of the run is always there"


def test_ranks_select_the_same_marks_of_many() -> None:
    """Also for a rank that printed less, or nothing would be left in common."""
    a = marks("".join(stamped(n, f"step {n} loss 2.3") for n in range(900)))[0]
    b = marks("".join(stamped(n, f"step {n} loss 2.3") for n in range(3, 880)), rank=1)[0]
    common = set(list(a.fields["values"])[1::2]) & set(list(b.fields["values"])[1::2])
    assert len(common) > 0.8 * MARKS


def test_a_restart_in_the_same_file_is_another_attempt() -> None:
    text = "".join(stamped(n, f"step {n % 20} loss 2.3") for n in range(40))
    attempts = list(marks(text)[0].fields["values"])[::2]
    assert attempts == [0] * 20 + [1] * 20
    assert not marks("step 1 loss 2.3\nstep 2 loss 2.2\n"), "lines without a stamp compare nothing"
