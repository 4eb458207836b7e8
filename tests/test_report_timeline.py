"""The static timeline: lanes that stay readable at thousands of ranks,
and honesty about what is not drawn."""

from __future__ import annotations

import json
import re
from typing import Any

from report_cases import DATA, Case, Frames, frames, load

from postmortem import report
from postmortem.report import columns, lanes, svg
from postmortem.report.events import read_events

COLUMNS = ["time", "sigma", "host", "rank", "kind", "severity", "pattern", "text", "source", "line", "clock"]
ZERO = 1795209228.704


def picture(case: Case) -> lanes.Picture:
    found = lanes.picture(case.document, read_events(case))
    assert found
    return found


def many(ranks: int, steps: int) -> Case:
    """`ranks` on hosts of eight; rank 37 dies, all the others time out."""
    document = json.loads((DATA / "oom.json").read_text())
    document["verdict"]["culprit"] = {"ranks": [37], "hosts": ["n004"], "gpus": [], "pids": [], "code": None}
    document["verdict"]["evidence"][0] |= {"source": "n004/dmesg", "line": 1, "rank": 37}
    document["ranks"] = [
        {"rank": r, "state": "cause" if r == 37 else "victim", "group": "a" if r == 37 else "b"} for r in range(ranks)
    ]
    rows: list[list[Any]] = [
        [ZERO, 0.004, "n004", None, "kill", "fatal", "kill", "Killed process 9", "n004/dmesg", 1, "boot"]
    ]
    for rank in range(ranks):
        host = f"n{rank // 8:03d}"
        rows += [
            [ZERO - steps + s, 0.01, host, rank, "progress", "info", None, "step", f"{rank}.log", s, "naive"]
            for s in range(steps)
        ]
        if rank != 37:
            rows.append(
                [ZERO + 600, 0.5, host, rank, "timeout", "error", "timeout", "Timed out", f"{rank}.log", steps, "naive"]
            )
    return Case(document, frames({"columns": COLUMNS, "rows": rows}))


def test_the_kernels_line_stands_in_the_lane_of_the_rank_it_killed() -> None:
    """A kernel line names a pid and no rank; the verdict knows whose it was."""
    lane = next(lane for lane in picture(many(64, 3)).lanes if lane.label == "rank 37")
    assert [mark.row.text for mark in lane.marks if mark.decisive] == ["Killed process 9"]
    assert lane.state == "cause"


def test_a_thousand_ranks_become_few_lanes_and_the_culprit_keeps_its_own() -> None:
    case = many(1024, 20)
    found = picture(case)
    assert len(found.lanes) <= lanes.MAX_LANES
    assert any(lane.label == "rank 37" for lane in found.lanes)
    assert any("share a lane" in note for note in found.notes)
    assert len(svg.draw(found)) < 300_000


def test_a_job_that_went_well_has_no_decisive_line() -> None:
    """Then no line may be drawn as one: in a healthy job's picture there are ticks,
    and nothing in the colour of a cause."""
    case = many(2, 3)
    case.document["verdict"] |= {"outcome": "healthy", "evidence": []}
    rows = [[ZERO + s, 0.01, "n000", 0, "progress", "info", None, "step", "0.log", s, "naive"] for s in range(5)]
    found = picture(Case(case.document, frames({"columns": COLUMNS, "rows": rows})))
    assert [mark.decisive for lane in found.lanes for mark in lane.marks] == [False] * 5


def test_a_short_failure_of_a_long_job_fills_the_picture() -> None:
    """After a day of training, a failure of two seconds would be one dot;
    the strip above says where it lies."""
    case = load("oom")
    rows = [
        [ZERO - 86400 + 600 * i, 0.0, "node-a", None, "line", "info", None, "step", "a.log", i, "naive"]
        for i in range(144)
    ]
    rows += [[ZERO + i, 0.0, "node-b", 5, "line", "error", None, f"error {i}", "b.log", i, "naive"] for i in range(3)]
    found = picture(Case(case.document, frames({"columns": COLUMNS, "rows": rows})))
    assert found.end - found.start < 60
    assert found.whole[1] - found.whole[0] > 80_000
    assert "whole job, 24 h" in svg.draw(found)


def test_a_time_that_is_unsure_is_drawn_wide_and_one_that_is_unknown_is_counted() -> None:
    found = picture(load("oom"))
    rank0 = next(lane for lane in found.lanes if lane.label == "rank 0")
    assert 'class="sigma' in svg.draw(found) and rank0, (
        "0.15 s of uncertainty are to be seen in a window of some seconds"
    )
    assert any("could not be placed in time" in note for note in found.notes)


def test_severity_is_told_by_shape_as_well_as_by_colour() -> None:
    drawing = svg.draw(picture(load("oom")))
    shapes = {
        kind: re.sub(r"[-\d.]+", "", path) for kind, path in re.findall(r'class="m-(\w+)[^"]*" d="([^"]+)"', drawing)
    }
    assert set(shapes) == {"fatal", "error", "warning"}
    assert len(set(shapes.values())) == 3


def test_refused_clocks_are_hatched() -> None:
    case = load("oom")
    for clock in case.document["clocks"]:
        clock["state"] = "refused" if clock["host"] == "node-a" else clock["state"]
    assert {lane.host for lane in picture(case).lanes if lane.refused} == {"node-a"}
    assert svg.draw(picture(case)).count("url(#tl-hatch)") == 5  # node-a and its four ranks


def test_without_the_events_the_evidence_still_gives_a_picture() -> None:
    """A report can be made again from the document alone, which holds no events but those it cites."""
    assert "<svg" in report.render_html(Case(load("oom").document))


def test_the_picture_in_words_names_each_kind_once() -> None:
    moments = lanes.moments(read_events(load("oom")))
    assert [m.time for m in moments] == sorted(m.time for m in moments)
    closed = [m for m in moments if "Connection closed by peer" in m.what]
    assert [(m.who, m.others) for m in closed] == [("rank 0 on node-a", 5)]


def test_a_line_without_a_usable_time_is_an_interval_and_no_diamond() -> None:
    """A traceback has no stamps; its last line inherits one that is a minute old. A diamond at that second
    would be a lie, so would a line through all lanes."""
    case = many(64, 3)
    case.document["verdict"]["evidence"][0]["uncertainty_s"] = 60.0
    rows = [(*row[:1], 60.0, *row[2:]) if row[5] == "fatal" else row for row in case.timeline.table]  # type: ignore[union-attr]
    sure, unsure = svg.draw(picture(case)), svg.draw(picture(Case(case.document, Frames(rows))))
    assert 'class="m-fatal t-cause"' in sure
    assert 'class="m-fatal t-cause"' not in unsure and 'class="u-cause"' in unsure
    assert "about 21:13 UTC ± 60 s, fatal: Killed process 9" in unsure
    assert 'class="zero"' not in unsure and ">about 21:13</text>" in unsure
    page = report.render_html(Case(case.document, Frames(rows)))
    assert "<dd>2026-11-20, about 21:13 UTC</dd>" in page


def test_one_stray_stamp_does_not_stretch_the_axis_and_is_named() -> None:
    """A line that quotes a date of 2019 in a job of 2026 made a job of 2,820 days, and the failure a dot."""
    case = many(64, 20)
    stray = [1551524401.0, 0.01, "n001", 9, "line", "info", None, "manifest of 2019", "9.log", 77, "naive"]
    with_it = Case(case.document, Frames([*case.timeline.table, tuple(stray)]))  # type: ignore[union-attr]
    found = picture(with_it)
    assert found.whole == picture(case).whole
    told = "1 event lies days outside of the job and not on this axis: 2019-03-02 11:00:01 UTC, 9.log:77."
    assert told in found.notes
    block = columns.block(with_it.document, read_events(with_it))
    assert block and block.notes == (told,), "the interactive axis leaves it out too, and says so"


def test_a_second_part_of_the_job_days_later_stays_on_the_axis() -> None:
    """Who restarts on Monday what failed on Friday has one job with a gap, not stray stamps."""
    case = many(64, 20)
    later = [(row[0] + 3 * 86400, *row[1:]) for row in case.timeline.table]  # type: ignore[union-attr]
    found = picture(Case(case.document, Frames([*case.timeline.table, *later])))  # type: ignore[union-attr]
    assert found.whole[1] - found.whole[0] > 3 * 86400
    assert not [note for note in found.notes if "outside" in note]


def test_others_said_the_same_only_where_the_words_are_the_same() -> None:
    """One rank raised ValueError, a thousand raised what follows from it: two sentences, not one."""
    said = ["ValueError: record 7 of x.bin", *[f"DistBackendError: aborted on rank {n}" for n in range(9)]]
    rows = [
        (ZERO + n, 0.0, "a", n, "line", "error", "python-exception", words, f"{n}.log", 1, "naive")
        for n, words in enumerate(said)
    ]
    (first,) = lanes.moments(read_events(Case({}, Frames(rows))))
    assert (first.what, first.others) == (said[0], 0)
