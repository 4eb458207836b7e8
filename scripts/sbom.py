"""Write the bill of materials of a release: the packages that the wheel needs at run time, as CycloneDX 1.6 in JSON.

    python scripts/sbom.py [--wheel dist/torch_postmortem-0.1.0-py3-none-any.whl] [--output FILE]

Versions and hashes are those of requirements-dev.lock: with them the release was tested, on Linux. Users may
have others within the bounds of pyproject.toml, which are listed beside them. The wheel itself contains no code of
others: the report's script has no dependencies. The same lock and wheel give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
PYTHONS = ("3.11", "3.12", "3.13")  # of the machines that run the suite
LINUX = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}
STANZA = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>\S+)(?: ; (?P<marker>.*?))?(?: \\)?$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?![0-9a-f])")
VIA = re.compile(r"^ +#(?: via|  ) ([a-z0-9.-]+)(?: \(pyproject\.toml\))?$", re.MULTILINE)
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
# Declared licenses, as SPDX expressions. Some metadata have no more than `BSD` or `LGPL`: there the license was
# read. tests/test_supply_chain.py compares with the metadata. A new package has no entry: read its license first.
LICENCES = {
    "annotated-doc": "MIT",
    "google-re2": "BSD-3-Clause",
    "hyperscan": "MIT",
    "isal": "PSF-2.0",
    "jinja2": "BSD-3-Clause",
    "lz4": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "markupsafe": "BSD-3-Clause",
    "mdurl": "MIT",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "pandas": "BSD-3-Clause",
    "pebble": "LGPL-3.0-or-later",
    "pygments": "BSD-2-Clause",
    "python-dateutil": "BSD-3-Clause",
    "pyyaml": "MIT",
    "regex": "Apache-2.0 AND CNRI-Python",
    "rich": "MIT",
    "shellingham": "ISC",
    "typer": "MIT",
    "tzdata": "Apache-2.0",
    "zstandard": "BSD-3-Clause",
}
# Needed on Windows only, which a lock does not show if another package needs the same one on Linux.
WINDOWS = {"colorama"}


@dataclass(frozen=True)
class Pin:
    """One entry of a lock."""

    name: str
    version: str
    marker: str  # where it is needed; empty: everywhere
    hashes: tuple[str, ...]
    via: tuple[str, ...]  # the packages that require it

    def needed_on(self, python: str) -> bool:
        """Return whether it is installed on Linux with this Python, 3.11 for example."""
        return not self.marker or Marker(self.marker).evaluate(linux(python))


def linux(python: str) -> dict[str, str]:
    return {**LINUX, "python_version": python, "python_full_version": f"{python}.0"}


def pins(text: str) -> list[Pin]:
    """Read a lock."""
    starts = [*STANZA.finditer(text)]
    ends = [start.start() for start in starts[1:]] + [len(text)]
    found = []
    for start, end in zip(starts, ends, strict=True):
        body = text[start.start() : end]
        hashes, via = tuple(HASH.findall(body)), tuple(VIA.findall(body))
        found.append(Pin(start["name"], start["version"], start["marker"] or "", hashes, via))
    return found


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def required(project: dict[str, Any], *extras: str) -> Iterator[Requirement]:
    """Yield the requirements of the project, with these extras and the extras that they name."""
    for line in (*project["dependencies"], *(r for e in extras for r in project["optional-dependencies"][e])):
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) == canonicalize_name(project["name"]):
            yield from required({**project, "dependencies": []}, *sorted(requirement.extras))
        else:
            yield requirement


def needed(locked: Iterable[Pin], names: Iterable[str]) -> list[Pin]:
    """Return these packages and all that they require, on Linux."""
    linux = [pin for pin in locked if any(pin.needed_on(python) for python in PYTHONS)]
    here = [pin for pin in linux if pin.name not in WINDOWS]
    known: set[str] = set()
    fresh: set[str] = {canonicalize_name(name) for name in names}
    while fresh - known:
        known |= fresh
        fresh = {pin.name for pin in here if known.intersection(pin.via)}
    return sorted((pin for pin in here if pin.name in known), key=lambda pin: (pin.name, pin.version))


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def licence(expression: str) -> list[dict[str, Any]]:
    form: dict[str, Any] = {"expression": expression} if " " in expression else {"license": {"id": expression}}
    declared = {"acknowledgement": "declared"}  # by its authors, not read in the files
    return [form | declared if "expression" in form else {"license": form["license"] | declared}]


def component(pin: Pin, bounds: dict[str, str]) -> dict[str, Any]:
    ref = purl(pin.name, pin.version)
    own = {"postmortem:allowed": bounds.get(pin.name, ""), "postmortem:where": pin.marker}
    files = {
        "type": "distribution",
        "url": ref,
        "comment": "The files of this release; which one is installed depends on the machine.",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(pin.hashes)],
    }
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": ref,
        "name": pin.name,
        "version": pin.version,
        "scope": "required",
        "licenses": licence(LICENCES[pin.name]),
        "purl": ref,
        "externalReferences": [files],
    }
    properties = [{"name": name, "value": value} for name, value in own.items() if value]
    return found | ({"properties": properties} if properties else {})


def bill(locked: Iterable[Pin], wheel: bytes | None = None) -> dict[str, Any]:
    """Return the document, with the hash of the wheel if its bytes are given."""
    about = project()
    bounds: dict[str, str] = {canonicalize_name(r.name): str(r.specifier) for r in required(about)}
    inside = needed(locked, bounds)
    refs: dict[str, list[str]] = {}
    for pin in inside:
        refs.setdefault(pin.name, []).append(purl(pin.name, pin.version))
    asks = {
        pin.name: sorted(ref for other in inside if pin.name in other.via for ref in refs[other.name]) for pin in inside
    }
    root = purl(about["name"], about["version"])
    product: dict[str, Any] = {
        "type": "application",
        "bom-ref": root,
        "name": about["name"],
        "version": about["version"],
        "description": about["description"],
        "licenses": licence(about["license"]),
        "purl": root,
    }
    if wheel is not None:
        product["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel).hexdigest()}]
    document: dict[str, Any] = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "scripts/sbom.py of torch-postmortem"}]},
            "component": product,
        },
        "components": [component(pin, bounds) for pin in inside],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(ref for name in bounds for ref in refs[name])},
            *({"ref": purl(pin.name, pin.version), "dependsOn": [*dict.fromkeys(asks[pin.name])]} for pin in inside),
        ],
    }
    # of the content, not of chance or the clock, so that it can be made again
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, content).urn
    return document


def text(locked: Iterable[Pin], wheel: bytes | None = None) -> str:
    return json.dumps(bill(locked, wheel), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    about = project()
    name = f"{about['name'].replace('-', '_')}-{about['version']}.cdx.json"
    parser = argparse.ArgumentParser(description="Write the bill of materials of a release (CycloneDX 1.6).")
    parser.add_argument("--wheel", type=Path, help="the wheel that it is of")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / name)
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text(pins(LOCK.read_text()), args.wheel.read_bytes() if args.wheel else None))
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
