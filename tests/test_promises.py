"""The promises of the tool, one test each: same bytes out, no secret out, bad input named, the rest analyzed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postmortem import report
from postmortem.analyze import Options, analyze
from postmortem.errors import NothingReadable, PathMissing

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_logs"
OOM = SAMPLES / "host-oom-cache-of-rank-2" / "logs"
LABEL = SAMPLES / "bad-label-one-rank" / "logs"


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *words]
    return subprocess.run(
        command, capture_output=True, cwd=ROOT, env=os.environ | environment, timeout=300, check=False
    )


FORMS = """
import sys
from pathlib import Path
from postmortem.cli.app import app
for form in ("json", "html", "md"):
    for name in ("host-oom-cache-of-rank-2", "healthy-two-hosts"):
        out = Path(sys.argv[1], f"{name}.{form}")
        words = ["analyze", f"sample_logs/{name}/logs", "--format", form, "--output", str(out)]
        app(words, standalone_mode=False)
"""


def test_time_zone_and_locale_of_the_reader_do_not_matter(tmp_path: Path) -> None:
    """Each place is a process of its own, in which the command writes every form."""
    places = [("Pacific/Kiritimati", "C"), ("America/St_Johns", "tr_TR.UTF-8")]
    outputs = []
    for zone, words in places:
        folder = tmp_path / words
        folder.mkdir()
        done = run("-c", FORMS, str(folder), TZ=zone, LC_ALL=words, LANG=words)
        assert done.returncode == 0, done.stderr
        outputs.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert len(outputs[0]) == 6 and all(outputs[0].values())
    assert outputs[0] == outputs[1]


def test_the_order_of_the_directory_and_the_number_of_workers_do_not_matter(tmp_path: Path) -> None:
    files = sorted(p for p in OOM.rglob("*") if p.is_file())
    pages = []
    for name, order, workers in (("a", files, 1), ("b", files[::-1], 2)):
        for file in order:
            target = tmp_path / name / "logs" / file.relative_to(OOM)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        incident = analyze([str(tmp_path / name / "logs")], Options(workers=workers))
        assert json.loads(report.render_json(incident)) == json.loads(json.dumps(incident.document))
        pages.append(report.render_json(incident) + report.render_html(incident))
    assert pages[0] == pages[1]


SECRETS = {
    "hf": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "url": "s3cr3tpassw0rd",
    "wandb": "0123456789abcdef0123456789abcdef01234567",
}


def test_no_planted_secret_leaves_in_any_output(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(LABEL, logs)
    lines = [
        f"2026-11-20 21:01:43,548 ERROR [rank0] hub: request with token {SECRETS['hf']} failed",
        f"2026-11-20 21:01:43,549 ERROR [rank0] s3: AWS_ACCESS_KEY_ID={SECRETS['aws']} was refused",
        f"2026-11-20 21:01:43,550 ERROR [rank0] git: https://trainer:{SECRETS['url']}@git.example.com/x.git cannot be read",
        f"2026-11-20 21:01:43,551 ERROR [rank0] git: {SECRETS['github']} expired",
        f"2026-11-20 21:01:43,552 ERROR [rank0] WANDB_API_KEY={SECRETS['wandb']} rejected",
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        f"PermissionError: token {SECRETS['hf']} is not allowed",
    ]
    (logs / "hub.log").write_text("\n".join(lines) + "\n")
    incident = analyze([str(logs)])
    renders = (report.render_html, report.render_json, report.render_markdown, report.render_verbose)
    outputs = [render(incident) for render in renders]
    outputs += [report.render_terminal(incident, width=100, color=False), incident.timeline.to_csv()]
    assert not [name for name, secret in SECRETS.items() for output in outputs if secret in output]


def test_inputs_without_a_log_are_named_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(PathMissing, match="no/such/place") as missing:
        analyze(["no/such/place"])
    assert missing.value.hint and missing.value.exit_code == 2
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary").mkdir()
    shutil.copyfile(sys.executable, tmp_path / "binary" / "python")
    for folder in ("empty", "binary"):
        with pytest.raises(NothingReadable) as error:
            analyze([str(tmp_path / folder)])
        assert folder in error.value.message and error.value.hint and error.value.exit_code == 3


def test_bad_files_are_named_and_the_rest_is_analyzed(tmp_path: Path) -> None:
    """A FIFO, a program, a cut .gz and a line of 30 MB beside a real incident."""
    logs = tmp_path / "logs"
    shutil.copytree(LABEL, logs)
    os.mkfifo(logs / "pipe")
    shutil.copyfile(sys.executable, logs / "python")
    packed = gzip.compress(b"2026-11-20 21:01:43,548 INFO step 1 loss 2.0\n" * 4000)
    (logs / "cut.log.gz").write_bytes(packed[: len(packed) // 2])
    (logs / "long.log").write_bytes(b"x" * 30_000_000)
    document = analyze([str(logs)]).document
    truth = json.loads((LABEL.parent / "truth.json").read_text())
    assert document["verdict"]["outcome"] == "incident"
    assert document["verdict"]["culprit"]["ranks"] == truth["ranks"]
    named = {row["path"] for row in document["ledger"]["skipped"]}
    assert {"pipe", "python", "cut.log.gz"} <= named
    assert document["ledger"]["bytes"] == document["ledger"]["scanned"] + sum(
        r["bytes"] for r in document["ledger"]["skipped"]
    )


def test_our_own_report_is_not_read_as_a_log(tmp_path: Path) -> None:
    """People run `postmortem analyze .` twice in one folder."""
    logs = tmp_path / "logs"
    shutil.copytree(LABEL, logs)
    first = analyze([str(logs)])
    (logs / "postmortem-report.html").write_text(report.render_html(first))
    (logs / "incident.json").write_text(report.render_json(first))
    second = analyze([str(logs)])
    assert second.document["verdict"] == first.document["verdict"]
    assert {"postmortem-report.html", "incident.json"} <= {row["path"] for row in second.document["ledger"]["skipped"]}
