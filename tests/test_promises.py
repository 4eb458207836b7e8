"""The promises of the tool, one test each: same bytes out, no secret out, bad input named, the rest analyzed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postmortem.analyze import analyze
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
