"""The job has the name that its scheduler, cluster or launcher gave it, and no invented one; every output shows it.
A user chooses one of several jobs, or a window of time; a wrong choice is reported."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conftest import SAMPLES, table
from postmortem import Options, analyze, report
from postmortem.errors import UsageError
from postmortem.fleet import notify

ERROR = "[rank0]: ValueError: bad label\n"


def made(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


@pytest.mark.parametrize(("files", "job"), table("jobs")["ids"])
def test_the_id_of_the_job(tmp_path: Path, files: dict[str, str], job: str | None) -> None:
    logs = made(tmp_path, {name: text + ERROR for name, text in files.items()})
    assert analyze([logs]).document["job"]["id"] == job


def test_the_job_is_in_each_output_and_separates_alerts(tmp_path: Path) -> None:
    keys = set()
    for n in (42221, 42222):
        logs = made(tmp_path / str(n), {f"slurm-{n}.out": "+ srun torchrun train.py\n" + ERROR})
        found = analyze([logs], Options(job=str(n), job_name="bert"))
        text, page = report.render_markdown(found), report.render_html(found)
        chat = "\n".join(notify.message(found).lines)
        for shown in (text, page, report.render_terminal(found)):
            assert f"job {n} (bert)" in shown and "srun torchrun train.py" in shown
        assert str(n) in chat and f"job {n}" in report.render_markdown(found, brief=True)
        pager = notify.target("pagerduty+https://example.org/?routing_key=k")
        keys.add(notify.pagerduty(notify.message(found), pager)["dedup_key"])
    assert len(keys) == 2


def test_two_jobs_never_share_the_key_of_an_alert() -> None:
    """Neither with long ids nor without one, on another day or at no time; the same one has its key again."""
    pager = notify.target("pagerduty+https://example.org/?routing_key=k")

    def key(job: str, name: str, time: str | None, line: str = "Killed process 7") -> str:
        evidence = [{"time": time, "text": line}]
        brief = {"fingerprint": "f" * 16, "job": name, "headline": "h", "outcome": "incident", "evidence": evidence}
        return str(notify.pagerduty(notify.Message(brief, job_id=job), pager)["dedup_key"])

    jobs: list[Any] = [("x" * 300 + n, "", "t") for n in "12"] + [("a", "", "t"), ("b", "", "t")]
    jobs += [("", "run-7", f"2026-11-2{n}") for n in "01"] + [("", "", None, f"Killed process {n}") for n in "12"]
    assert len({key(*job) for job in jobs * 2}) == len(jobs) and max(len(key(*job)) for job in jobs) <= notify.KEY


LOGS = str(SAMPLES / "oom-on-second-host" / "logs")


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def two_jobs(folder: Path) -> str:
    for number, line in ((101, "ValueError: bad label"), (102, "KeyError: 'text'")):
        logs = folder / f"job-{number}"
        logs.mkdir()
        (logs / "rank0.log").write_text(
            f"2026-11-2{number - 100} 10:00:00,000 INFO step 1 loss 2.0\nTraceback (most recent call last):\n"
            f'  File "train.py", line 3, in <module>\n{line}\n'
        )
    return str(folder)


def test_of_several_jobs_the_named_one_is_reported(tmp_path: Path) -> None:
    found = analyze([two_jobs(tmp_path)], Options(job="job-101")).document
    assert (found["job"]["id"], [other["id"] for other in found["other_jobs"]]) == ("job-101", ["job-102"])
    assert "bad label" in found["verdict"]["headline"]


def test_a_job_that_is_not_there_is_an_error_that_lists_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no job 103 in these logs") as error:
        analyze([two_jobs(tmp_path)], Options(job="103"))
    assert error.value.hint == "the jobs in these logs: job-101, job-102"
    with pytest.raises(UsageError, match="which contain no job ID") as error:
        analyze([LOGS], Options(job="103"))
    assert error.value.hint == "omit --job"


@pytest.mark.parametrize(("since", "until", "window"), table("choices")["windows"])
def test_a_window_without_events_is_not_healthy(since: str | None, until: str | None, window: str) -> None:
    incident = analyze([LOGS], Options(since=since and stamp(since), until=until and stamp(until)))
    verdict = incident.document["verdict"]
    assert verdict["outcome"] == "undetermined"
    assert verdict["headline"] == (
        f"Undetermined: no event {window}; the logs run from 2026-11-21 13:18:22 UTC to 2026-11-21 13:18:42 UTC."
    )
    assert "--since" in verdict["missing"][0]["how"]
    assert "Not everything was read" not in report.render_terminal(incident)


def test_logs_without_a_year_are_not_stated_to_be_of_1972(tmp_path: Path) -> None:
    """glog and some loggers write no year, and such stamps are kept as a leap year's after 1970."""
    lines = (f"01-0{day} 10:00:00,000 INFO step {day} loss 2.0\n" for day in range(1, 6))
    (tmp_path / "rank0.log").write_text("".join(lines))
    verdict = analyze([str(tmp_path)], Options(since=stamp("2027-01-01"))).document["verdict"]
    headline = "Undetermined: no event since 2027-01-01 00:00:00 UTC; the logs have no dates."
    assert (verdict["outcome"], verdict["headline"]) == ("undetermined", headline)


def test_a_window_around_the_failure_keeps_the_verdict() -> None:
    window = Options(since=stamp("2026-11-21T13:18:30"), until=stamp("2026-11-21T13:19:00"))
    assert analyze([LOGS], window).document["verdict"]["culprit"]["ranks"] == [3]
