"""What a line says, without what its logger put before it; and how well a moment is known."""

from __future__ import annotations

import pytest

from postmortem.diagnose.wording import clock_time
from postmortem.formats.lineform import message


@pytest.mark.parametrize(
    "line, expected",
    [
        ("2026-11-22 16:08:26,938 [rank2] INFO train: building an index of 9000", "train: building an index of 9000"),
        ("15:25:05 [2] rendezvous file /home/jul/share/b/rdv", "rendezvous file /home/jul/share/b/rdv"),
        ("2026-11-22_11:40:13.75931 I app starting rank=2 world=5", "app starting rank=2 world=5"),  # svlogd
        ("2026-11-22 11:40:00.404565011 train.py 1 exited 124", "train.py 1 exited 124"),  # s6-log
        ("I1122 18:45:38.487 21253 gen.py:33] image 60 of 150", "image 60 of 150"),  # absl
        ('{"ts": 1.5, "level": "info", "msg": "writing shard 3"}', "writing shard 3"),
        ("[rank2]: epoch 3 took 00:10:12 so far", "epoch 3 took 00:10:12 so far"),
    ],
)  # fmt: skip
def test_a_headline_quotes_no_stamp(line: str, expected: str) -> None:
    assert message(line) == expected


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [
        (0.001, " at 20:58:48"),
        (1.2, " at 20:58:48"),
        (5.05, " at about 20:58:48 (± 5 s)"),
        (40.0, " at about 20:58"),
        (60.0, " at about 20:58"),
        (90.0, ""),
    ],
)
def test_a_moment_is_reported_as_well_as_it_is_known(sigma: float, expected: str) -> None:
    assert clock_time(1_795_208_328.7, sigma) == expected
    assert clock_time(None, sigma) == clock_time(91_198_839.0, sigma) == ""
