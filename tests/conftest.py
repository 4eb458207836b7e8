"""What the tests need from the machine, in one place.

    from conftest import needs

    @needs("root", "cgroup")
    def test_oom(): ...

`@pytest.mark.browser`, `@pytest.mark.root` and `@pytest.mark.gpu` say the same. A test that lacks something
is skipped with the reason; `POSTMORTEM_REQUIRE=browser,root` turns those skips into failures (.ci/run does).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_logs"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def needs(*what: str) -> pytest.MarkDecorator:
    """Mark a test that wants `what` of this machine:
    browser, root, gpu, cgroup, netns, a module, or a command."""
    return pytest.mark.needs(*what)


def chromium() -> str | None:
    """Return the Chromium to drive: $POSTMORTEM_CHROMIUM, else one on the PATH."""
    return os.environ.get("POSTMORTEM_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)


def memory_cgroup() -> Path | None:
    """Return the folder under which a memory cgroup can be made, version 1 or 2."""
    for base in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        try:
            controllers = (base / "cgroup.controllers").read_text() if base.name == "cgroup" else "memory"
            if "memory" not in controllers.split():
                continue
            probe = Path(tempfile.mkdtemp(prefix="postmortem-probe-", dir=base))
            probe.rmdir()
            return base
        except OSError:
            continue
    return None


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@lru_cache
def lacking(what: str) -> str:
    """Say why `what` is not to be had here; empty if it is."""
    if what == "browser":
        return "" if chromium() else "no Chromium on the PATH and POSTMORTEM_CHROMIUM is not set"
    if what == "root":
        return "" if os.geteuid() == 0 else "not root"
    if what == "gpu":
        return "" if _runs("nvidia-smi", "-L") else "no NVIDIA GPU (nvidia-smi -L fails)"
    if what == "cgroup":
        return "" if memory_cgroup() else "no memory cgroup can be made here"
    if what == "netns":
        return "" if _runs("unshare", "--net", "true") else "no network namespace can be made here"
    if shutil.which(what) or importlib.util.find_spec(what):
        return ""
    return f"{what} is not installed"


def pytest_configure() -> None:
    """A suite in the background of a shell inherits an ignored SIGINT, under nohup SIGHUP,
    and so would every process it starts."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_runtest_setup(item: pytest.Item) -> None:
    wanted = [w for mark in item.iter_markers("needs") for w in mark.args]
    wanted += [name for name in ("browser", "root", "gpu") if item.get_closest_marker(name)]
    required = os.environ.get("POSTMORTEM_REQUIRE", "").split(",")
    for what in dict.fromkeys(wanted):
        if reason := lacking(what):
            if what in required:
                pytest.fail(f"{reason}, and POSTMORTEM_REQUIRE asks for it", pytrace=False)
            pytest.skip(reason)


def pytest_report_header() -> str:
    lacks = [
        reason
        for what in ("browser", "root", "gpu", "cgroup", "netns", "rg", "gdb")
        if (reason := lacking(what))
    ]
    return "this machine lacks: " + ("; ".join(lacks) if lacks else "nothing the suite can use")
