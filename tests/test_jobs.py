"""The job has the name that its scheduler, cluster or launcher gave it, and no invented one; every output shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import table
from postmortem import Options, analyze, report
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
        slack = str(notify.slack(notify.message(found), notify.target("slack+https://example.org/x")))
        for shown in (text, page, report.render_terminal(found)):
            assert f"job {n} (bert)" in shown and "srun torchrun train.py" in shown
        assert str(n) in slack and f"job {n}" in report.render_markdown(found, brief=True)
        pager = notify.target("pagerduty+https://example.org/?routing_key=k")
        keys.add(notify.pagerduty(notify.message(found), pager)["dedup_key"])  # type: ignore[index]
    assert len(keys) == 2


def test_two_jobs_never_share_the_key_of_an_alert() -> None:
    """Neither with long names nor without one, on another day; the same one has its key again."""
    pager = notify.target("pagerduty+https://example.org/?routing_key=k")

    def key(job: str, time: str) -> str:
        brief = {
            "fingerprint": "f" * 16,
            "job": job,
            "headline": "h",
            "outcome": "incident",
            "evidence": [{"time": time}],
        }
        return str(notify.pagerduty(notify.Message(brief), pager)["dedup_key"])  # type: ignore[index]

    jobs = [("x" * 300 + n, "t") for n in "12"] + [("", f"2026-11-2{n}") for n in "01"] + [("a", "t"), ("b", "t")]
    assert len({key(*job) for job in jobs * 2}) == len(jobs) and max(len(key(*job)) for job in jobs) <= notify.KEY
