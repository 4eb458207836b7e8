"""Exceptions that list one value for each rank: who differs from most is the odd one, whoever raised it."""

from __future__ import annotations

from pathlib import Path

import pytest

from postmortem.analyze import analyze
from postmortem.blocks import read_text

HEAD = 'Traceback (most recent call last):\n  File "/opt/train/eval.py", line 9, in <module>\n    check(x)\n'


def rows(message: str) -> list[tuple[int, str]]:
    found = next(e for e in read_text(HEAD + message) if e.kind == "exception").fields.get("table", ())
    assert isinstance(found, tuple)
    return [(row[0], row[1]) for row in found]


def verdict(tmp_path: Path, message: str, ranks: tuple[int, ...] = (0, 1, 2)) -> tuple[str, list[int]]:
    text = "".join(f"[rank{r}]: {line}\n" for r in ranks for line in (HEAD + message).split("\n"))
    (tmp_path / "job.log").write_text(text)
    told = analyze([str(tmp_path)]).document["verdict"]
    return told["category"], told["culprit"]["ranks"]


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: shapes differ\n\nInput shapes:\n  - Process 0: [8, 4]\n  - Process 1: [8, 6]\n  - Process 2: [8, 4]",
        "ValueError: shapes differ\n  Rank 0 has [8, 4]\n  Rank 1 has [8, 6]\n  Rank 2 has [8, 4]",
    ],
)
def test_the_rank_with_another_size_than_most_is_out_of_step(message: str, tmp_path: Path) -> None:
    assert [rank for rank, _ in rows(message)] == [0, 1, 2]
    assert verdict(tmp_path, message) == ("collective-mismatch", [1])


def test_other_values_than_sizes_keep_the_exceptions_kind(tmp_path: Path) -> None:
    message = "RuntimeError: builds differ\nrank 0: sha-41f0\nrank 1: sha-41f0\nrank 2: sha-97aa"
    assert verdict(tmp_path, message) == ("python-exception", [2])


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: sizes: rank 0: [8, 4], rank 1: [8, 6]",
        "ValueError: losses\nrank 0: 0.412\nrank 1: 0.398\nrank 2: 0.407",
        "ValueError: devices\nrank 0: cuda\nrank 1: cuda\nrank 2: cuda",
        "ValueError: rank 0 failed, see rank 1",
    ],
)
def test_without_a_majority_nobody_is_the_odd_one(message: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, message, (1,)) == ("python-exception", [1])


def test_who_is_named_by_all_differs(tmp_path: Path) -> None:
    said = "__main__.Diverged: codebook usage of rank 1 is inf, stopping all ranks (it 42)"
    assert verdict(tmp_path, said, (0, 2)) == ("python-exception", [1])


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: rank 1 is not a member of the group",
        "ValueError: rank 1 is out of range",
        "RuntimeError: rank 1 has 3 shards, rank 2 has 4 shards",  # of two neither is the odd one
        "KeyError: 'rank 1'",
    ],
)
def test_and_nobody_is_where_it_says_nothing_of_one(message: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, message, (0,))[1] == [0]
