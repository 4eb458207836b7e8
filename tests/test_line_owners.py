"""The rank of a line: prefixes, numbers of files, columns; and numbers that look like a rank and are none.

Also lines of a script that started the ranks about how they ended. Verdicts on whole logs are in
tests/data/excerpts/owners.yaml and ends.yaml.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from conftest import table
from postmortem.analyze import analyze
from postmortem.blocks import read_text
from postmortem.blocks.identities import End, end_in
from postmortem.diagnose.same import stem
from postmortem.diagnose.who.numbering import numbered
from postmortem.formats.envelope import learn, peel
from postmortem.model import Source


def ranks_of(names: list[str], world: int | None = None, known: Mapping[str, int] = {}) -> dict[str, int]:
    sources = [Source(name, "console", 1) for name in names]
    stems = {name: stem(name) for name in names}
    votes = {stem(name): Counter([rank]) for name, rank in known.items()}
    found = numbered(sources, stems, votes, world)
    return {name: found[stems[name]] for name in names if stems[name] in found}


def test_ranks_by_the_numbers_of_files() -> None:
    for names in table("line_owners")["numbered"]:
        found = ranks_of(names)
        assert set(found) == set(names) and found[names[0]] == 0 and found[names[-1]] == 1
    for names in (["go.0.log", "go.1.log"], ["gnn.0.log", "gnn.1.log"], ["f1-0.txt", "f2-1.txt"]):  # by the world size
        assert ranks_of(names) == ranks_of(names, 8) == {}
        assert ranks_of(names, 2) == {names[0]: 0, names[1]: 1}
    workers = ["worker-00.log", "worker-01.log", "worker-02.log"]  # by the rank that one of them prints
    assert ranks_of(workers, 16) == ranks_of(workers, 16, {workers[2]: 5}) == {}
    assert ranks_of(workers, 16, {workers[2]: 2}) == {name: i for i, name in enumerate(workers)}


def test_other_numbers_of_files_are_no_ranks() -> None:
    for names, world in table("line_owners")["no_ranks"]:
        assert ranks_of(names, world) == {}, names


def test_prefixes_and_text_that_looks_like_them() -> None:
    for line, rank, local in table("line_owners")["prefixes"]:
        assert (peel(line).rank, peel(line).local_rank) == (rank, local), line
    docker = '{"log": "2026-11-20 21:02:56,633 INFO [rank1] step 15\\n", "stream": "stdout"}'
    printed = peel("2026-11-20 21:02:56,633 INFO [rank1] step 15")
    assert printed.stamp is not None and peel(docker) == printed, "a record without a time has the time of its line"


def test_a_column_of_ranks_is_distinguished_from_progress(tmp_path: Path) -> None:
    mixed = (0, 2, 1, 3, 5, 4, 7, 6, 8, 9, 11, 10, 13, 12, 14)
    for form in ("[{}/3] step", "<r{}> tile"):
        lines = [f"{form.format(i % 3)} {i}" for i in mixed]
        assert peel(lines[1], learn(lines)).rank == 2
    progress = [f"[{i}/9] compile part {i}" for i in range(1, 10)]
    assert peel(progress[1], learn(progress)).rank is None
    assert not learn([f"layer {i}: norm 0.{k}" for k in range(3) for i in range(4)]).lead
    assert not learn([f"step {i}: loss 2.1" for i in range(20)]).lead
    by_step, by_rank = [(s, r) for s in range(6) for r in (0, 2, 1)], [(s, r) for r in range(3) for s in range(6)]
    bars, colon = "Nov 21 16:15:{:02d} | {} | step {} loss 1.4\n", "{1}: step {2}\n"
    for form, order, ranks in ((bars, by_step, [0, 1, 2]), (colon, by_step, [0, 1, 2]), (bars, by_rank, [])):
        (tmp_path / "console.log").write_text("".join(form.format(s, rank, s) for s, rank in order))
        assert [r["rank"] for r in analyze([str(tmp_path)]).document["ranks"]] == ranks, (
            "numbers that only rise are epochs"
        )


def test_a_prefix_before_the_head_of_a_traceback_is_before_all_its_lines() -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "train.py", line 412, in main',
        "    f(x)",
        "KeyError: 'mask'",
    )
    events = read_text("loading\n" + "".join(f"stderr | {line}\n" for line in lines))
    assert [(e.where.line, e.fields["code"]) for e in events if e.kind == "exception"] == [(5, "train.py:412")]


def test_heads_of_tracebacks_that_are_together_have_their_own_exceptions() -> None:
    lines = ("Traceback (most recent call last):", '  File "/opt/train.py", line 29, in main', "    step()")
    both = "".join(f"{line}\n" * 2 for line in lines)
    events = read_text(f"{both}RuntimeError: peer 1\nRuntimeError: peer 2\n")
    assert [e.fields["line"] for e in events if e.kind == "exception"] == [
        "RuntimeError: peer 1",
        "RuntimeError: peer 2",
    ]


BOX = table("line_owners")["rich_box"]


def test_a_box_of_rich_is_a_traceback() -> None:
    event = next(e for e in read_text(BOX) if e.kind == "exception")
    assert event.fields["line"] == "ValueError: example 17 of the shard has 32 tokens, but the labels have 31"
    assert (event.fields["code"], event.rank, event.where.line) == ("data.py:10", 1, 14)


TASK = table("line_owners")["ray_task"]


def test_an_exception_that_rays_driver_shows_is_the_actors(tmp_path: Path) -> None:
    event = next(e for e in read_text(TASK) if e.kind == "exception" and "wrapper" not in e.fields)
    assert event.fields["line"] == "ManifestError: row 21 of shard 1 is not usable"
    assert (event.fields["code"], event.pid) == ("r.py:11", 22891)
    (tmp_path / "driver.log").write_text(TASK)
    assert analyze([str(tmp_path)]).document["verdict"]["culprit"]["ranks"] == [1]


def test_a_traceback_below_a_loggers_error_is_the_loggers() -> None:
    trace = 'Traceback (most recent call last):\n  File "/srv/warm.py", line 7, in <module>\n    store.wait(keys)\n'
    for level, rank in (("error    ", 1), ("info     ", None)):
        text = f"2026-11-22 11:59:10 [{level}] step failed                    rank=1\n{trace}ValueError: no such key\n"
        (event,) = (e for e in read_text(text) if e.kind == "exception")
        assert event.rank == rank


def test_a_rank_that_introduces_itself() -> None:
    for line, found in table("line_owners")["introductions"]:
        assert [[e.rank, e.fields["pid"]] for e in read_text(line + "\nready\n") if e.kind == "pid"] == found, line
    environment = "15:19:37 slot 3 {'RANK': '0', 'WORLD_SIZE': '4', 'MASTER_PORT': '29941'}\n"
    event = next(e for e in read_text(environment) if e.kind == "identity")
    assert (event.fields["stated_rank"], event.fields["world"]) == (0, 4)


TABLE = table("ends")
ENDS = {line: End(*row) for line, row in TABLE["ends"].items()}
NOTHING = TABLE["no_ends"]
PREFIXED = {(line, rank): end and End(*end) for line, rank, end in TABLE["prefixed"]}


def test_an_end_is_a_rank_a_word_and_a_code() -> None:
    assert {line: end_in(line, None) for line in ENDS} == ENDS
    assert {line: end_in(line, None) for line in NOTHING} == dict.fromkeys(NOTHING)
    assert {given: end_in(*given) for given in PREFIXED} == PREFIXED  # the rank of the line's prefix
