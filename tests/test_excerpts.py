"""Short logs of tests/data/excerpts/ and the verdicts on them: excerpts as people paste them, ends that only a launcher
reports, last lines, tables of ranks, and logs that look like a failure and are none.

A case has a `log` or several `files`, made of lines as their programs print them. `expect` lists an outcome (or
several), the category, the pattern, the ranks, hosts and GPUs, and a part of the headline or of the first evidence.

Each folder of tests/goodlogs/ is a real run (torch 2.13, gloo) that finished well and prints lines that sound like
trouble: a verdict other than healthy is a false alarm at 3 a.m. docs/false-alarms.md describes how to add one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import read_yaml, table
from postmortem.analyze import Options, analyze
from postmortem.blocks import read_text, signs
from postmortem.diagnose import topics
from postmortem.formats import unwrap

EXCERPTS = sorted((Path(__file__).parent / "data" / "excerpts").glob("*.yaml"))


def differences(case: dict[str, Any], folder: Path) -> dict[str, object]:
    """The expected facts that the verdict on a case does not have, with those that it has."""
    for name, text in case.get("files", {"train.log": case.get("log")}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    document = analyze([str(folder)], Options(redact=False)).document
    verdict = document["verdict"]
    first = "{source}:{line}: {text}".format(**verdict["evidence"][0]) if verdict["evidence"] else ""
    found = {**verdict, **verdict["culprit"], "attempts": document["job"]["attempts"], "evidence": first}
    found["command"] = document["runs"][-1]["command"]
    wrong: dict[str, object] = {}
    for key, wanted in case["expect"].items():
        value = found[key.removeprefix("not_")]
        if key == "outcome":
            right = value in (wanted if isinstance(wanted, list) else [wanted])
        elif key.endswith(("headline", "evidence", "because", "actions")):
            right = (wanted in str(value)) != key.startswith("not_")
        else:
            right = value == wanted
        if not right:
            wrong[key] = value
    return wrong


@pytest.mark.parametrize("file", EXCERPTS, ids=lambda path: path.stem)
def test_the_verdicts_on_excerpts(file: Path, tmp_path: Path) -> None:
    cases = read_yaml(file)
    wrong = {name: differences(case, tmp_path / str(n)) for n, (name, case) in enumerate(cases.items())}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_a_traceback_is_cut_only_where_the_log_ends() -> None:
    """With more lines after it than are read, the exception may be among them."""
    head = 'Traceback (most recent call last):\n  File "train.py", line 41, in <module>\n    main()\n'
    assert "cut" in [e.kind for e in read_text(head)]
    assert "cut" not in [e.kind for e in read_text(head + "    and so on\n" * 9000)]


def test_a_launchers_table_is_no_work_of_its_ranks() -> None:
    """`rank : 0 (local_rank: 0)`, `rank : 1 (local_rank: 1)`, … grow from row to row."""
    assert signs.series([f"  rank      : {r} (local_rank: {r})" for r in range(4)]) == []
    assert signs.series([f"  seen      : {r}" for r in range(4)]) == [1, 2, 3]


def test_a_numbered_part_that_is_done_is_no_completion() -> None:
    """A logger's name may be `train`, which would make it one: `train: shard 4 done, loss 0.03`."""
    assert not signs.completion("train: shard 4 done, loss 0.0354")
    assert not signs.completion("run: video 12 finished")
    assert signs.completion("train: rank 4 done, exiting normally")


def test_done_is_a_completion_where_it_is_the_whole_last_line(tmp_path: Path) -> None:
    ends = ("| 1 | done", "INFO:trainer:done", "[Rank 1] done", "process 1: done", "\u3010进程1\u3011done")
    others = ("epoch 3: done", "[12/60] done", "loading data... done", "compiling: done")
    for line in (*ends, "[15:52:22] INFO   done    train.py:55", *others):
        (tmp_path / "rank1.log").write_text(f"Nov 21 16:15:49 | 1 | train 0.30 loss=1.390\n{line}\n")
        (row,) = analyze([str(tmp_path)]).document["ranks"]
        assert (row["why"] == "reported that it finished") == (line not in others), line


def test_the_category_of_an_error_that_no_pattern_names() -> None:
    for line, category in table("excerpts")["topics"].items():
        assert topics.of(line) == category, line


def test_colors_without_their_escape_byte_and_margins_are_removed() -> None:
    for printed, read in table("excerpts")["colors"]:
        undo = unwrap.restoring(f"{printed}\n{printed}\n")
        assert undo is not None and undo(printed) == read
    frame = (
        '      File "train.py", line 3, in <module>\n        main()\n        ^^^^^^\n'  # indented by two in its block
    )
    undo = unwrap.restoring(frame)
    assert undo is not None and undo("    KeyError: 'x'") == "KeyError: 'x'"
    for lines in (
        ["step 3 took [5m]", "step 4 took [5m]"],  # minutes
        ["\x1b[36m(raylet)\x1b[0m ready"] * 3,  # printed by a terminal
        ["[rank0]: step 3", "    [rank1]: step 3", "[rank0]: step 4"],
        ['  File "train.py", line 3, in <module>', "    main()", "    ^^^^^^"],  # of a traceback: at its place
    ):
        assert unwrap.restoring("\n".join(lines)) is None


LOGS = Path(__file__).parent / "goodlogs"
ALARMS = table("goodlogs")["alarms"]


def test_a_good_run_raises_no_alarm() -> None:
    assert sorted(ALARMS) == sorted(p.name for p in LOGS.iterdir())
    for name, alarm in ALARMS.items():
        assert any(alarm in p.read_text() for p in (LOGS / name).rglob("*") if p.is_file()), name
        document = analyze([str(LOGS / name)], Options()).document
        causes = [f["pattern"] for f in document["findings"] if f["role"] == "cause"]
        assert (name, document["verdict"]["outcome"], causes) == (name, "healthy", [])
