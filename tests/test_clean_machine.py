"""The README's two commands on a Debian that has Python, pip and make alone, and the first one with each Python here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import OF_PIP, ROOT, needs, pythons

pytestmark = [pytest.mark.release, needs("index", "git")]
DEBIAN = os.environ.get("POSTMORTEM_DEBIAN", "bookworm")
PACKAGES = "python3,python3-venv,make,ca-certificates,git"
SKIPS = re.compile(  # why tests are skipped there; all others run
    "(cc|fish|groff|ip|mpiexec|mpirun|munged|node|puma|shellcheck|sshd|systemd-analyze|zsh) is not installed"
    "|no (Chromium|PostgreSQL server|NVIDIA GPU) .*|no (memory cgroup|network namespace) can be made here"
    "|root may read everything"
)
CONFIGS = ("/etc/pip.conf", *(f"{Path.home()}/{name}" for name in (".config/pip/pip.conf", ".pip/pip.conf")))


def of_pip() -> dict[str, str]:
    """Return the variables that lead pip to its index, as `.ci/run` hands them on."""
    named = {name: value for name, value in os.environ.items() if re.fullmatch(OF_PIP, name)}
    (config, *_) = [path for path in CONFIGS[1:] if Path(path).exists()] or [""]
    return ({"PIP_CONFIG_FILE": config} if config else {}) | named


def checkout(folder: Path) -> Path:
    """Copy what git has, with what is changed and not committed."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    folder.mkdir(parents=True)
    archive = subprocess.run(
        ["tar", "-c", "--null", "-T", "-", "--ignore-failed-read"], cwd=ROOT, input=names, capture_output=True
    )
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A root of Debian with the checkout in /src, and how to run a command line there."""
    root = tmp_path_factory.mktemp("debian") / "root"
    words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", DEBIAN, str(root)]
    subprocess.run(words, check=True, timeout=1200)
    checkout(root / "src")
    config = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    # folders of wheels and the certificates of a proxy, which are files of this machine
    named = re.findall(r"/[\w.+-]+(?:/[\w.+-]+)+", " ".join([config, *CONFIGS, *of_pip().values()]))
    named = [path.removesuffix("/simple") for path in named]  # an index on disk has its files beside its pages
    # and the name of this host, by which the ranks of torchrun meet
    shared = [path for path in dict.fromkeys([*named, "/etc/resolv.conf", "/etc/hosts"]) if Path(path).exists()]
    mounts = ["mount --bind {root} {root}"]  # the replays change how mounts spread, which needs a root that is one
    mounts += ["mount -t proc proc {root}/proc", "mount --rbind /dev {root}/dev", "mount --rbind /sys {root}/sys"]
    for path in shared:
        made = "mkdir -p {root}" + (path if Path(path).is_dir() else f"{Path(path).parent}; touch {{root}}{path}")
        mounts.append(f"{made}; mount --bind {path} {{root}}{path}")
    before = "; ".join(mounts).format(root=shlex.quote(str(root)))
    bare = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **of_pip()}

    def run(line: str) -> str:
        inside = ["chroot", str(root), "sh", "-c", f"cd /src && {line}"]
        words = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", f'{before}; exec "$@"', "-", *inside]
        log = root.with_name("log")  # to follow while it runs
        with log.open("w") as text:
            done = subprocess.run(words, env=bare, stdout=text, stderr=text, timeout=7200)
        assert not done.returncode, log.read_text()[-20000:]
        return log.read_text()

    return run


@needs("root", "mmdebstrap", "unshare")
def test_the_first_command_on_a_fresh_debian(debian: Callable[[str], str]) -> None:
    assert "INCIDENT  host memory" in debian("make demo && test -s postmortem-report.html")


@needs("root", "mmdebstrap", "unshare")
def test_the_second_command_on_a_fresh_debian(debian: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    """The suite skips what this root has no programs for, and lists it. POSTMORTEM_CLEAN="pytest words" runs a part."""
    part = os.environ.get("POSTMORTEM_CLEAN", "")
    line = f".venv/bin/python -m pytest -q -rs {part}" if part else "make test"
    shown = debian(
        f"make .venv/.dev >/dev/null || make .venv/.dev LOCK=; git config --global safe.directory '*'; {line}"
    )
    skipped = re.findall(r"^SKIPPED \[(\d+)\] \S+ (.+)$", shown, re.MULTILINE)
    ended = re.search(r"\d+ passed.*", shown)
    with capsys.disabled():
        print("", *(f"{count:>5} skipped: {reason}" for count, reason in skipped), ended and ended[0], sep="\n")
    assert ended and not [reason for _, reason in skipped if not SKIPS.fullmatch(reason)]


@pytest.mark.parametrize("version", sorted({"3.12", "3.13", *pythons()}))
def test_the_first_command_with_each_python(version: str, tmp_path: Path) -> None:
    if version not in pythons():
        pytest.skip(f"no Python {version} with venv")
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", **of_pip()}
    words = ["make", "demo", f"PYTHON={pythons()[version]}"]
    done = subprocess.run(words, cwd=checkout(tmp_path / "src"), env=bare, capture_output=True, text=True, timeout=1200)
    assert not done.returncode and "INCIDENT  host memory" in done.stderr, done.stderr
