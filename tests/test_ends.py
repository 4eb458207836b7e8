"""The lines of a script that started the ranks about how they ended; see data/excerpts/ends.yaml for verdicts."""

from __future__ import annotations

from conftest import table
from postmortem.blocks.identities import End, end_in

ENDS = {
    "lidar.py rank 0: exit status 139": End(0, 139),
    "supervise: launch 2 rank 3 ended with 1": End(3, 1),
    "12:04:11 system  | rank1.1 stopped (rc=-9)": End(1, -9),
    "worker 3 (pid 3322) exit status 0": End(3, 0, 3322),
    "[launcher] rank 2 exited with code 0": End(2, 0),
    "rank 0 -> 132": End(0, 132),
    "start.sh: rank 2 (pid 20958) died of SIGXCPU": End(2, -24, 20958),
    "worker 3 killed by signal 9": End(3, -9),
    "start.sh: rank0 pid 16379 ended: exit status 137 (KILL)": End(0, 137, 16379),
    "rank 3 exited: code 139 (Segmentation fault)": End(3, 139),
    "member 1: ProcessExpired: Abnormal termination -11": End(1, -11),  # pebble
}
NOTHING = table("ends")["no_ends"]


PREFIXED = {
    ("app.py exited with 1", 3): End(3, 1),
    ("status 124", 3): End(3, 124),
    ("app.py exited with 1", None): None,
    ("exited by signal SIGTERM", 1): End(1, -15),
    ("worker killed by signal 9", 2): End(2, -9),
    ("exited by signal SIGTERM", None): None,
}


def test_an_end_is_a_rank_a_word_and_a_code() -> None:
    assert {line: end_in(line, None) for line in ENDS} == ENDS
    assert {line: end_in(line, None) for line in NOTHING} == dict.fromkeys(NOTHING)
    assert {given: end_in(*given) for given in PREFIXED} == PREFIXED  # the rank of the line's prefix
