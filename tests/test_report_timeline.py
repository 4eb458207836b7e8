"""The static timeline, which remains readable at thousands of ranks, and the data and script of the interactive one."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from report_cases import DATA, PAYLOADS, Case, framed, load

from conftest import ROOT, needs
from postmortem import report
from postmortem.report import columns, lanes, svg, text
from postmortem.report.events import read_events

SCRIPTS = ROOT / "reports" / "scripts"
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
        host, file = f"n{rank // 8:03d}", f"{rank}.log"
        rows += [
            [ZERO - steps + s, 0.01, host, rank, "progress", "info", None, "step", file, s, "naive"]
            for s in range(steps)
        ]
        if rank != 37:
            rows.append([ZERO + 600, 0.5, host, rank, "timeout", "error", "timeout", "Timed out", file, steps, "naive"])
    return Case(document, framed(rows))


def test_the_kernels_line_is_in_the_lane_of_the_rank_it_killed() -> None:
    """A kernel line names a pid and no rank; the verdict has the rank."""
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


def test_ranks_without_an_event_have_one_sentence_and_no_lane() -> None:
    """Of 64 ranks three printed lines in the picture's time: 61 empty lanes would hide them."""
    case = many(64, 4)
    assert case.timeline is not None
    kept = case.timeline["rank"].isin([7, 37, 63])
    few = Case(case.document, case.timeline[kept])
    (note,) = packed(few).notes
    assert note == "No line of ranks 0–6, 8–36, 38–62 is on this timeline."
    labels = {lane.label for lane in picture(few).lanes if not lane.is_host}
    assert labels == {"rank 7", "rank 37", "rank 63"}
    assert not packed(case).notes


def test_a_job_that_went_well_has_no_decisive_line() -> None:
    case = many(2, 3)
    case.document["verdict"] |= {"outcome": "healthy", "evidence": []}
    rows = [[ZERO + s, 0.01, "n000", 0, "progress", "info", None, "step", "0.log", s, "naive"] for s in range(5)]
    found = picture(Case(case.document, framed(rows)))
    assert [mark.decisive for lane in found.lanes for mark in lane.marks] == [False] * 5


def test_a_short_failure_of_a_long_job_fills_the_picture() -> None:
    """After a day of training, a failure of two seconds would be one dot."""
    case = load("oom")
    rows = [
        [ZERO - 86400 + 600 * i, 0.0, "node-a", None, "line", "info", None, "step", "a.log", i, "naive"]
        for i in range(144)
    ]
    rows += [[ZERO + i, 0.0, "node-b", 5, "line", "error", None, f"error {i}", "b.log", i, "naive"] for i in range(3)]
    found = picture(Case(case.document, framed(rows)))
    assert found.end - found.start < 60
    assert found.whole[1] - found.whole[0] > 80_000
    assert any("events of a job of 24 h" in note for note in found.notes)


def test_a_time_that_is_unsure_is_drawn_wide_and_one_that_is_unknown_is_counted() -> None:
    found = picture(load("oom"))
    rank0 = next(lane for lane in found.lanes if lane.label == "rank 0")
    assert 'class="sigma' in svg.draw(found) and rank0, (
        "0.15 s of uncertainty are to be seen in a window of some seconds"
    )
    assert any("could not be placed in time" in note for note in found.notes)


def test_severity_has_a_shape_as_well_as_a_color() -> None:
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


def test_without_the_events_there_is_a_picture_of_the_evidence() -> None:
    assert "<svg" in report.render_html(Case(load("oom").document))


def test_a_line_without_a_usable_time_is_an_interval_and_no_diamond() -> None:
    """A traceback has no time; its last line inherits one that is a minute old. A diamond at that second would be wrong."""
    case = many(64, 3)
    case.document["verdict"]["evidence"][0]["uncertainty_s"] = 60.0
    rows = [(*row[:1], 60.0, *row[2:]) if row[5] == "fatal" else row for row in case.rows]
    sure, unsure = svg.draw(picture(case)), svg.draw(picture(Case(case.document, framed(rows))))
    assert 'class="m-fatal t-cause"' in sure
    assert 'class="m-fatal t-cause"' not in unsure and 'class="u-cause"' in unsure
    assert "about 21:13 UTC ± 60 s, fatal: Killed process 9" in unsure
    assert 'class="zero"' not in unsure and ">about 21:13</text>" in unsure
    page = report.render_html(Case(case.document, framed(rows)))
    assert "about 21:13 UTC" in page.partition("<main>")[2]


def test_one_stray_stamp_does_not_stretch_the_axis_and_is_named() -> None:
    """A line that quotes a date of 2019 in a job of 2026 made a job of 2,820 days, and the failure a dot."""
    case = many(64, 20)
    stray = [1551524401.0, 0.01, "n001", 9, "line", "info", None, "manifest of 2019", "9.log", 77, "naive"]
    with_it = Case(case.document, framed([*case.rows, tuple(stray)]))
    found = picture(with_it)
    assert found.whole == picture(case).whole
    note = "1 event lies days outside of the job and not on this axis: 2019-03-02 11:00:01 UTC, 9.log:77."
    assert note in found.notes
    block = columns.block(with_it.document, read_events(with_it))
    assert block and block.notes == (note,), "the interactive axis omits it too"


def test_a_second_part_of_the_job_days_later_stays_on_the_axis() -> None:
    """A job that failed on Friday and was restarted on Monday has a gap, not wrong times."""
    case = many(64, 20)
    later = [(row[0] + 3 * 86400, *row[1:]) for row in case.rows]
    found = picture(Case(case.document, framed([*case.rows, *later])))
    assert found.whole[1] - found.whole[0] > 3 * 86400
    assert not [note for note in found.notes if "outside" in note]


# ── the data block ──────────────────────────────────────────────────────────────────────────────────────────


def packed(case: Case, limit: int = columns.MAX_EVENTS) -> columns.Block:
    found = columns.block(case.document, read_events(case), limit)
    assert found
    return found


@needs("node")
def test_the_script_unpacks_every_text(tmp_path: Path) -> None:
    """Numbers that count on, jump, have leading zeros, points, or more digits than a double; and hostile texts."""
    texts = [f"step {n}: loss {n / 7:.4f} {n:03d} 0x{n:x} {10**n} {n}.{n} {n * 7919 % 1000}" for n in range(40)]
    texts += [text.line(payload)[:300] for payload in PAYLOADS] + ["", "0", "00", "1.", ".5", "٣ ３ 1٣"]
    rows = [
        [ZERO + i, 0.0, "a", i % 3, "line", "info", None, words, "a.log", i, "naive"] for i, words in enumerate(texts)
    ]
    found = packed(Case({}, framed(rows)))
    (tmp_path / "block").write_text(found.data)
    script = f"""import {{ decode, unpack }} from "{(SCRIPTS / "src" / "data.js").as_uri()}";
      import {{ readFileSync }} from "node:fs";
      const events = decode(await unpack(readFileSync("{tmp_path / "block"}", "utf8")));
      const rows = [...Array(events.count).keys()].map((i) => [events.line[i], events.text(i)]);
      console.log(JSON.stringify(rows));"""
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script], capture_output=True, text=True, check=True, timeout=60
    )
    read = dict(json.loads(done.stdout))
    assert [read[i] for i in range(1, len(texts)) if texts[i]] == [words for words in texts[1:] if words]


def test_thinning_omits_ordinary_lines_and_counts_them() -> None:
    case = many(64, 200)
    found = packed(case, 3000)
    assert found.events <= 3000
    (note,) = found.notes
    assert "of 12,864 events" in note and "lines that are neither warnings nor errors" in note
    rows = [row for row in read_events(case) if row.severity != "info"]
    shown, _ = columns.thinned(read_events(case), 3000, set())
    assert [row for row in shown if row.severity != "info"] == sorted(rows, key=lambda r: r.severity != "fatal")
    assert not packed(case).notes


def test_the_block_is_the_same_in_any_order_of_reading() -> None:
    case = load("oom")
    rows = read_events(case)
    assert columns.block(case.document, rows) == columns.block(case.document, rows[::-1])


# ── the script ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bundle_is_built_from_these_sources() -> None:
    """Without Node: the bundle's first line has the hash of its sources, as scripts/build.js computes it."""
    found = hashlib.sha256()
    for source in sorted((SCRIPTS / "src").glob("*.js")):
        found.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    first = (SCRIPTS / "report.js").read_text().partition("\n")[0]
    assert found.hexdigest()[:16] in first, "run `npm ci --ignore-scripts && npm run build` in reports/"


@needs("node")
def test_the_bundle_is_the_output_of_the_bundler(tmp_path: Path) -> None:
    if not (ROOT / "reports" / "node_modules" / "esbuild").is_dir():
        pytest.skip("esbuild is not installed (npm ci --ignore-scripts in reports/)")
    subprocess.run(["node", SCRIPTS / "build.js", tmp_path / "report.js"], check=True, timeout=60)
    assert (tmp_path / "report.js").read_bytes() == (SCRIPTS / "report.js").read_bytes()


@needs("node")
def test_the_modules_of_the_script() -> None:
    files = sorted(map(str, (SCRIPTS / "test").glob("*.test.js")))
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_the_script_can_be_embedded() -> None:
    bundle = (SCRIPTS / "report.js").read_text(encoding="ascii")
    acting = r"</script|\beval\(|new Function|(inner|outer)HTML|insertAdjacentHTML|document\.write|fetch\(|https?://"
    assert not re.search(acting, bundle)
