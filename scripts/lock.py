"""Write the locks anew: what development and CI install, each file of it by its SHA-256.

    python scripts/lock.py              what pyproject.toml and constraints.txt ask for now; all else stays
    python scripts/lock.py --upgrade    the newest releases that have been out for a week
    python scripts/lock.py --until DATE the newest releases of that day

    requirements-dev.lock   what `make test` installs, on every platform and Python that pyproject.toml has
    requirements-min.lock   the lowest versions that pyproject.toml allows, on Linux with the lowest Python

A release that is younger than a week is left alone: bad ones are mostly found and withdrawn by then.

torch and what only its CUDA builds need are not in the lock: one version has other files on each index (CUDA
on PyPI, CPU on its own), and so other hashes. It is installed by its pin in constraints.txt.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
DEV = ROOT / "requirements-dev.lock"
LOWEST = ROOT / "requirements-min.lock"
WEEK = datetime.timedelta(days=7)
BY_ITS_PIN = re.compile(r"(torch|triton|nvidia-.+|cuda-.+)$")
PYTHONS = ("3.11", "3.12", "3.13")  # of the machines that run the suite
HEAD = """\
# Written by scripts/lock.py from {sources}, with releases until {until}.
# {what}
"""
WHAT = {
    DEV: "Everything but torch, which constraints.txt pins: each index has other files of it.",
    LOWEST: "The lowest versions that are allowed; tests/test_minimum_versions.py runs them.",
}
STANZA = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>\S+)(?: ; (?P<marker>.*?))?(?: \\)?$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?![0-9a-f])")
VIA = re.compile(r"^ +#(?: via|  ) ([a-z0-9.-]+)(?: \(pyproject\.toml\))?$", re.MULTILINE)


@dataclass(frozen=True)
class Pin:
    """One entry of a lock."""

    name: str
    version: str
    marker: str  # where it holds; empty: everywhere
    hashes: tuple[str, ...]
    via: tuple[str, ...]  # who asks for it
    text: str

    def holds(self, python: str) -> bool:
        """Whether it is installed on Linux with this Python, 3.11 for example."""
        return not self.marker or Marker(self.marker).evaluate(linux(python))


def linux(python: str) -> dict[str, str]:
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def pins(text: str) -> list[Pin]:
    """Read a lock."""
    starts = [*STANZA.finditer(text)]
    ends = [start.start() for start in starts[1:]] + [len(text)]
    found = []
    for start, end in zip(starts, ends, strict=False):
        body = text[start.start() : end]
        hashes, via = tuple(HASH.findall(body)), tuple(VIA.findall(body))
        found.append(Pin(start["name"], start["version"], start["marker"] or "", hashes, via, body))
    return found


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def asked(project: dict[str, Any], *extras: str) -> Iterator[Requirement]:
    """What the project asks for, with these extras and the extras that they name."""
    for line in (*project["dependencies"], *(r for e in extras for r in project["optional-dependencies"][e])):
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) == canonicalize_name(project["name"]):
            yield from asked({**project, "dependencies": []}, *sorted(requirement.extras))
        else:
            yield requirement


def unmet(requirements: Sequence[Requirement], locked: Sequence[Pin]) -> list[str]:
    """Say what a lock lacks: a package on one of the Pythons, a version within bounds, a hash."""
    lacks = [f"{pin.name}=={pin.version} has no SHA-256" for pin in locked if not pin.hashes]
    for python in PYTHONS:
        here = [pin for pin in locked if pin.holds(python)]
        names = [pin.name for pin in here]
        lacks += [f"{name} is there twice for Python {python}" for name in {*names} if names.count(name) > 1]
        for wanted in requirements:
            if wanted.marker and not wanted.marker.evaluate(linux(python)):
                continue
            name = canonicalize_name(wanted.name)
            found = [pin.version for pin in here if pin.name == name]
            if not found:
                lacks.append(f"{name} is missing for Python {python}")
            elif not wanted.specifier.contains(found[0], prereleases=True):
                lacks.append(f"{name} {found[0]} is not {wanted.specifier}")
    return lacks


def written(target: Path, until: str, upgrade: bool, *arguments: str) -> str:
    """Ask uv for a lock; what the old one says stays, unless `upgrade`."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / target.name
        if target.is_file() and not upgrade:
            fresh.write_text(target.read_text())
        uv = ["-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--no-header", "--generate-hashes"]
        command = [sys.executable, *uv, "--exclude-newer", f"{until}T23:59:59Z", "--output-file", str(fresh)]
        subprocess.run([*command, *arguments], cwd=ROOT, check=True)
        kept = [pin for pin in pins(fresh.read_text()) if not BY_ITS_PIN.match(pin.name)]
    sources = "pyproject.toml and constraints.txt" if target == DEV else "pyproject.toml"
    head = HEAD.format(sources=sources, until=until, what=WHAT[target])
    return head + "".join(pin.text for pin in kept)


def last_day(lock: Path) -> str:
    """The day until which releases count in the lock that is there."""
    known = re.search(r"releases until (\S+)\.$", lock.read_text(), re.MULTILINE) if lock.is_file() else None
    return known[1] if known else week_old()


def week_old() -> str:
    return (datetime.datetime.now(datetime.UTC).date() - WEEK).isoformat()


def main() -> int:
    parser = argparse.ArgumentParser(description="Write requirements-dev.lock and requirements-min.lock anew.")
    parser.add_argument("--upgrade", action="store_true", help="take newer releases, a week old and more")
    parser.add_argument("--until", metavar="DATE", help="take the newest releases of this day")
    args = parser.parse_args()
    until = args.until or (week_old() if args.upgrade else last_day(DEV))
    upgrade = bool(args.upgrade or args.until)
    lowest = project()["requires-python"].removeprefix(">=")
    pinned = ("--extra", "dev", "--constraint", "constraints.txt", "--universal", "--python-version", lowest)
    DEV.write_text(written(DEV, until, upgrade, *pinned))
    bare = ("--resolution", "lowest-direct", "--python-platform", "linux", "--python-version", lowest)
    LOWEST.write_text(written(LOWEST, until, upgrade, *bare))
    wanted = [r for r in asked(project(), "dev") if not BY_ITS_PIN.match(r.name)]
    lacks = unmet(wanted, pins(DEV.read_text()))
    print("\n".join(lacks) or f"{len(pins(DEV.read_text()))} and {len(pins(LOWEST.read_text()))} packages")
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
