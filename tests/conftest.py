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
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import yaml

import postgres
from postmortem.system import core_files

# Arrow's own allocator reserves 1 GiB of addresses at once, which tests with a limit of memory count.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
hypothesis.settings.register_profile("untimed", deadline=None)  # other work may take the processors
hypothesis.settings.load_profile("untimed")

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from postmortem.analyze import Incident
    from postmortem.model import Event

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_logs"
sys.path.append(str(ROOT / "benchmarks"))
corpus: Any = importlib.import_module("corpus")
# What of the caller's environment the suite may depend on, as in .ci/run: the way to an index, and what a test is asked by.
OF_PIP = r"PIP_\w+|SSL_CERT_\w+|(?i:https?|no)_proxy"
ASKED = "CHROMIUM|CLEAN|DEBIAN|FAULTS|GOLDEN|KILLS|PYTHONS|REQUIRE|SEED"
KEPT = re.compile(rf"PATH|HOME|TMPDIR|LD_LIBRARY_PATH|ARROW_\w+|PYTEST_\w+|{OF_PIP}|POSTMORTEM_({ASKED})")
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
GOOD = "".join(f"2026-11-20 21:01:{i:02d},548 INFO [rank0] step {i} loss 2.0\n" for i in range(50))
GOOD += "2026-11-20 21:02:00,548 INFO [rank0] training finished, exiting\n"


def needs(*what: str) -> pytest.MarkDecorator:
    """Mark a test that wants `what` of this machine:
    browser, root, gpu, cgroup, netns, slurm, postgresql, index, a module, or a command."""
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


@cache
def pythons() -> dict[str, str]:
    """Return the Pythons that can make environments here: {"3.11": "/usr/bin/python3.11"}."""
    known = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for minor in range(11, 16):
        kept = sorted(Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python"))
        found = str(kept[-1]) if kept else shutil.which(f"python3.{minor}")
        if found and _runs(found, "-c", "import venv, ensurepip"):  # a shim of pyenv may lead nowhere
            known.setdefault(f"3.{minor}", found)
    return known


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
    if what == "slurm":
        daemons = (name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name))
        return f"{gone} is not installed" if (gone := next(daemons, "")) else ""
    if what == "postgresql":
        return "" if postgres.programs() else "no PostgreSQL server (initdb, pg_ctl) is installed"
    if what == "core files":
        return core_files.lacking()
    if what == "index":
        asking = ("-m", "pip", "--retries", "0", "--timeout", "10", "index", "versions", "pebble")
        return "" if _runs(sys.executable, *asking) else "no package index is reached (pip index versions fails)"
    if what == "python3.11 with venv":
        return "" if "3.11" in pythons() else f"{what} is not installed"
    beside = str(Path(sys.executable).parent)  # a virtual environment that nobody activated
    if shutil.which(what) or shutil.which(what, path=beside) or importlib.util.find_spec(what):
        return ""
    return f"{what} is not installed"


# ── what is dear, once for all tests ────────────────────────────────────────────────────────────────────────

Command = Callable[..., subprocess.CompletedProcess[str]]


def python(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run this Python with the checkout's package, by default in the checkout."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | how.pop("env", {})
    usual = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run([sys.executable, *map(str, words)], env=env, **(usual | how))


@cache
def solved(case: Path) -> Incident:
    """A recorded incident, analysed once; who changes it takes a copy."""
    from postmortem.analyze import analyze

    return analyze([str(case / "logs")])


def typed_rows(incident: Incident) -> list[Event]:
    """The rows of an incident's timeline as events, without the details, which it does not have."""
    from postmortem.model.frame import Extras, to_events

    rows = incident.timeline
    length = int(rows.index.max()) + 1
    return to_events(rows, Extras([{}] * length, [()] * length, [0] * length))


def losses(document: dict[str, Any]) -> dict[str, str]:
    """The files of which something was lost, with the reasons."""
    return {row["path"]: row["reason"] for row in document["ledger"]["skipped"] if row.get("lost")}


def read_yaml(path: Path) -> dict[str, Any]:
    """The rows of a file, read by libyaml: eight times as fast, and each worker reads the files of all tests."""
    found: dict[str, Any] = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


@cache
def table(name: str) -> dict[str, Any]:
    """The rows of a test file: tests/data/tables/<name>.yaml. None of its parts is empty, so a loop over one runs."""
    found = read_yaml(ROOT / "tests" / "data" / "tables" / f"{name}.yaml")
    assert all(rows or rows == 0 for rows in found.values()), name
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    alone = ("--no-deps", "--no-build-isolation")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", *alone, "--wheel-dir", folder, ROOT], check=True, timeout=300
    )
    return next(folder.glob("torch_postmortem-*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh environment with the wheel alone and links to the third-party packages of this one."""
    home = tmp_path_factory.mktemp("elsewhere")
    python("-m", "venv", "--without-pip", home / "venv", check=True)
    program = home / "venv" / "bin" / "python"
    python("-m", "pip", "--python", program, "install", "--quiet", "--no-deps", wheel, check=True)
    site = next((home / "venv" / "lib").glob("python*/site-packages"))
    linked = site / "linked"
    linked.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "postmortem" not in entry.name and not entry.name.startswith("__"):
            (linked / entry.name).symlink_to(entry)
    (site / "linked.pth").write_text(f"{linked}\n")
    return home


SCREENS = ((1280, "light"), (400, "dark"), (1280, "dark"), (400, "light"))  # width and color scheme


@pytest.fixture(scope="session")
def running_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def browser(running_browser: Browser) -> Iterator[Browser]:
    """One Chromium for all tests; what a test opened in it is closed."""
    yield running_browser
    for context in running_browser.contexts:
        context.close()


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A command line in this process, in an empty folder: a third of a second cheaper than a new one.
    For words and exit codes; whoever tests streams, signals or the start itself starts a process."""
    from postmortem.cli import app as cli

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        code = cli.run([*map(str, words)])
        return subprocess.CompletedProcess(words, code, *capsys.readouterr())

    return run


LONGEST = (  # files whose tests take longest: a worker that took one of them last would end long after the others
    *("unchanged", "replay_run", "run_ranks", "recipes_slurm", "fault_injection", "watch", "style", "regex_growth"),
    *("interrupted", "recipes_ci", "run", "commands", "mcp", "gather", "contract", "system_faults", "analyze_scale"),
    *("history_store", "bounds", "robust", "diagnose_order", "patterns_library", "calls", "fuzz", "recipes_cron"),
    *("run_history", "cli", "diff", "golden", "docs_catalogue", "recipes_kubernetes"),
)


ON_ALL_SAMPLES = ("contract", "golden", "fingerprint", "robust")  # one worker analyzes the samples for these files


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "samples" if Path(file).stem.removeprefix("test_") in ON_ALL_SAMPLES else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first; a browser or a server is part of the long suite."""
    for item in items:
        if item.get_closest_marker("browser") or any("postgresql" in mark.args for mark in item.iter_markers("needs")):
            item.add_marker(pytest.mark.slow)
    order = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_configure() -> None:
    """The suite starts hundreds of processes, which inherit nothing of the shell: RANK, COLUMNS, POSTMORTEM_HISTORY and
    FORCE_COLOR change what they print, and without bytecode each would compile the package again. In the background of
    a shell the suite inherits an ignored SIGINT, under nohup SIGHUP, and so would all of them."""
    sys.dont_write_bytecode = False
    for name in [name for name in os.environ if not KEPT.fullmatch(name)]:
        del os.environ[name]
    os.environ["LANG"] = "C.UTF-8"
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
        for what in ("browser", "root", "gpu", "cgroup", "netns", "slurm", "postgresql", "rg", "gdb")
        if (reason := lacking(what))
    ]
    return "this machine lacks: " + ("; ".join(lacks) if lacks else "nothing the suite can use")
